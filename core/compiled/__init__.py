"""Kernels for a CPU that numba compiles. Only `core.runner.choose` imports them: numba is not installed everywhere, and importing it takes time.

With few rows an operation takes its time before it computes, so one does here what torch and transformers do in many.
"""
