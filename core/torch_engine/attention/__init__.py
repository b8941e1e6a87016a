"""Attention over the paged pool, handed to transformers models. See `plug` (how), `cpu` and `dense`
(with what).
"""
