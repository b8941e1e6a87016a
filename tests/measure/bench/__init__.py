"""Benchmarks, as data: `speed` compares with other ways to serve the same requests, `gpu` measures
the CUDA path. Scripts beside this folder run them.
"""
