"""A CPU's own: kernels that numba compiles, linear layers whose weights are packed once, what
stands in for whole layers, and threads.

With few rows an operation takes its time before it computes, so one does here what torch and
transformers do in many. Only `core.torch_engine.choose` imports the kernels: numba is not installed
everywhere, and importing it takes time.
"""
