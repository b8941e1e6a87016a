"""A run in numbers: metrics, times of requests, where their time went, tables."""
