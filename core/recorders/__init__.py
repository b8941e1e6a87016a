"""Other engines on record: what runs inside them, and what opens their recordings as traces."""
