"""Computes the passes that a scheduler decided: eagerly anywhere, or with kernels and graphs on a GPU."""
