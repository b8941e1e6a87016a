"""The rules that a step must obey for a page to draw it."""
