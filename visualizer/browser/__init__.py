"""Answers the page without a server: what a tab's worker runs, on the standard library alone."""
