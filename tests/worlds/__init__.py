"""What tests are made of: small models, counted tokens, a real browser, the page in a process of
its own.
"""
