"""A transformers model on this engine: computes the passes that a scheduler decided, eagerly
anywhere, or with kernels and graphs on a GPU. Nothing above this room knows torch.
"""
