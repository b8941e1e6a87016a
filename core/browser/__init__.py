"""The same engine in a browser's tab: what Pyodide runs there. Nothing is imported but the standard
library and `core`.
"""
