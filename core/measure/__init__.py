"""Runs in numbers, and runs beside each other: metrics, comparisons, baselines, load."""
