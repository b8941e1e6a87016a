"""What the page asks of its server, as plain functions: runs, comparisons, uploads, limits."""
