"""Recordings of other engines: what runs inside them, and what opens their files as traces."""
