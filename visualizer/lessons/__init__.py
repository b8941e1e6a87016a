"""Guided lessons on recorded runs: what each stop shows and asks, its sentences filled with numbers
from the trace, and sheets to print.
"""
