"""Attention over the paged KV pool for transformers models: `plug` connects it to the model; `cpu`
and `dense` compute it.
"""
