"""The work that a page can ask for, for a server and for a tab: no threads, HTTP or torch."""
