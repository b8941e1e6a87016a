"""Runs timed side by side: rounds, comparisons, baselines, the cost of a step, load."""
