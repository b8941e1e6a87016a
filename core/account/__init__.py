"""A run in numbers: metrics, the times of requests, where their time went, tables."""
