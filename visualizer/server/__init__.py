"""The page's server: jobs, stored runs, uploads, the shared engine, routes and limits."""
