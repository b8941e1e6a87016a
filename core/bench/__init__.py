"""Benchmarks, which print nothing: `speed` beside other ways to serve the same requests, `gpu` for the CUDA path. What is measured under load is
`core.measure.load`.
"""
