"""A run on record: events, traces, and what follows from them alone. Knows no engine."""
