"""Measurements: comparisons timed in rounds, baselines, the cost of a step, load, and plans."""
