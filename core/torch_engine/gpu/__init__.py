"""The engine's passes on a GPU: static buffers, CUDA graphs over them, and no waiting for results.
See `runner`.
"""
