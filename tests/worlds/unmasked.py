"""Another mistake that a mask prevents, for a run that a lesson shows."""

from __future__ import annotations

import torch

from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.spec import AttentionSpec, scores_to_output


def unmasked_pads(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """An `Attend` that forgets the padding: every token of a padded row also reads the pads before
    it.

    All pads of a pass are alike: the same token at the same position, attending to nothing. So the
    slot that they all write to represents each of them.
    """
    rows, heads, width, _ = query.shape
    groups = heads // keys.shape[1]
    out = query.new_zeros(rows, width, heads, values.shape[2])
    for segment in batch.segments:
        if segment.end == segment.first:
            continue
        pads = batch.slot_mapping[segment.row * width :][: segment.num_pads]
        slots = segment.slots
        own = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        read = torch.cat([pads, own])
        k, v = (
            pool[read].transpose(0, 1)[None].repeat_interleave(groups, 1) for pool in (keys, values)
        )
        q = query[segment.row, :, segment.first : segment.end][None]
        positions = torch.arange(segment.start, segment.kv_len)[:, None]
        seen = torch.arange(segment.kv_len)[None] <= positions
        if spec.window is not None:
            seen &= positions - torch.arange(segment.kv_len)[None] < spec.window
        mask = torch.cat([torch.ones(len(seen), len(pads), dtype=torch.bool), seen], dim=1)
        out[segment.row, segment.first : segment.end] = scores_to_output(q, k, v, mask, spec)[
            0
        ].transpose(0, 1)
    return out
