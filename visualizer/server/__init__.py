"""What the page's server does, as plain functions: runs, comparisons, uploads, limits."""
