"""The work that a page can ask for, without threads, HTTP and torch: for the server and for an
engine in the visitor's browser tab.
"""
