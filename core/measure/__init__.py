"""Runs in numbers, and runs compared: metrics, comparisons, baselines, load."""
