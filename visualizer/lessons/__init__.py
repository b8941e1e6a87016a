"""Guided lessons about recorded runs, with numbers from their traces, and sheets to print."""
