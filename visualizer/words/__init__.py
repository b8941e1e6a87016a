"""Sentences about steps and comparisons, with computed numbers."""
