"""The rules that a step must obey so that a page can draw it."""
