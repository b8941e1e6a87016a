"""Sentences about steps, runs and comparisons, with computed numbers."""
