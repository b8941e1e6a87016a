"""Benchmarks, as data: `speed` compares with other ways to serve the same requests, `gpu` measures the CUDA path. Measurements under load are
in `core.measure.load`.
"""
