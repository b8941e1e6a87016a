"""Reference attention, slow and obvious: one boolean mask over all queries and cached keys."""

import torch

from core.torch_engine.attention.batch import PackedBatch, slots_of
from core.torch_engine.attention.spec import AttentionSpec, scores_to_output


def dense_mask(batch: PackedBatch, window: int | None) -> torch.Tensor:
    """bool `[R * W, K]`: queries row by row, with pads; keys by segment, cached then new."""
    rows, width = batch.input_ids.shape
    owner = torch.full((rows, width), -1)
    position = torch.zeros(rows, width, dtype=torch.long)
    key_owner, key_position = [], []
    for index, segment in enumerate(batch.segments):
        owner[segment.row, segment.first : segment.end] = index
        position[segment.row, segment.first : segment.end] = torch.arange(
            segment.start, segment.kv_len
        )
        if segment.end > segment.first:
            key_owner.append(torch.full((segment.kv_len,), index))
            key_position.append(torch.arange(segment.kv_len))
    q_owner, q_position = owner.view(-1, 1), position.view(-1, 1)
    k_owner, k_position = torch.cat(key_owner)[None], torch.cat(key_position)[None]
    allowed = (q_owner == k_owner) & (k_position <= q_position)
    if window is not None:
        allowed &= q_position - k_position < window
    return allowed


def attend_under(
    mask: torch.Tensor,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """Attention of all queries to all cached keys of a pass under a mask like `dense_mask`."""
    rows, heads, width, _ = query.shape
    slots = torch.cat([slots_of(s) for s in batch.segments if s.end > s.first])
    groups = heads // keys.shape[1]
    k = keys[slots].transpose(0, 1)[None].repeat_interleave(groups, 1)  # [1, H, K, D]
    v = values[slots].transpose(0, 1)[None].repeat_interleave(groups, 1)
    q = query.transpose(0, 1).reshape(1, heads, rows * width, -1)
    out = scores_to_output(q, k, v, mask.to(q.device), spec)  # [1, H, R * W, Dv]
    return out[0].transpose(0, 1).reshape(rows, width, heads, -1)
