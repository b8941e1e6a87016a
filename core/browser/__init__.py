"""The engine in a browser tab, run by Pyodide. It imports only the standard library and `core`."""
