"""Attention over the paged KV pool: `plug` connects models, `cpu` and `dense` compute it."""
