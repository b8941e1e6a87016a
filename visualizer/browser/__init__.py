"""Answers the page without a server: Python code for a worker of the browser tab, on the standard
library alone.
"""
