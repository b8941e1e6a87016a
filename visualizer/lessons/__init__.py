"""Guided lessons on recorded runs, filled with numbers from their traces, and sheets to print."""
