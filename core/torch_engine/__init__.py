"""Runs a transformers model for the engine: computes the passes that a scheduler decided, in plain
torch, or with kernels and graphs on a GPU. The engine and the scheduler know no torch.
"""
