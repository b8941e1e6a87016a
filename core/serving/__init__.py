"""One engine for many clients: a thread that steps it, a stream of tokens for each request, and
HTTP.
"""
