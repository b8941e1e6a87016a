"""Proves a recorded run: replays it, computes it again, and compares it with `generate`."""
