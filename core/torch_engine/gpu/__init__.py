"""The engine's passes on a GPU: buffers that stay in place, CUDA graphs over them, and no waiting
for results. See `runner`.
"""
