"""Recorded runs: events, traces, and what follows from them alone."""
