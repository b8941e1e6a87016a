"""The page's answers without a server: what the worker of a visitor's tab runs, on the standard
library alone.
"""
