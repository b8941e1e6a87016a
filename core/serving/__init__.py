"""One engine for many clients: a thread, a stream of tokens for each request, HTTP in front."""
