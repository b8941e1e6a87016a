"""What a page can ask to have computed, without threads, HTTP and torch: for the server and for an
engine in the visitor's own tab.
"""
