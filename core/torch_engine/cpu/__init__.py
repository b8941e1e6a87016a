"""Code for CPUs only: kernels compiled by numba, linear layers with repacked weights, replacements
of whole layers, and thread settings.

With few rows, the overhead of an operation exceeds its computing, so one operation here does what
torch and transformers do in many. Only `core.torch_engine.choose` imports the kernels: numba is not
installed everywhere, and importing it takes time.
"""
