"""The engine in a browser's tab: what Pyodide runs there. It imports only the standard library and
`core`.
"""
