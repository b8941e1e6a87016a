"""One engine for many clients: its thread, a stream of tokens per request, and HTTP."""
