"""Continuous batching as in the GPT-2 article: all caches are joined for a pass, then split."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from core.measure.baselines.records import BaselineRequest, BaselineRun, Work, prompt_lengths
from core.torch_engine.attention.plug import given_cache


@dataclass(eq=False)
class Row:
    """A running request: the tokens to feed next, and keys and values `[1, H, n, D]` by layer."""

    request: BaselineRequest
    feed: list[int]
    layers: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    output: list[int] = field(default_factory=list)

    @property
    def cached(self) -> int:
        """Positions in this row's cache."""
        return 0 if self.layers is None else self.layers[0][0].shape[2]


def article(model: Any, work: Work, lanes: int) -> BaselineRun:
    """Run requests by continuous batching as in the GPT-2 article; see `article_step`."""
    waiting = [Row(request, list(request.prompt)) for request in work]
    running: list[Row] = []
    times: dict[str, list[float]] = {request.id: [] for request in work}
    outputs, steps = {}, 0
    started = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.pop(0))
        article_step(model, running)
        steps, now = steps + 1, time.perf_counter() - started
        for row in running:
            times[row.request.id].append(now)
            if row.request.is_over(row.output):
                outputs[row.request.id] = row.output
        running = [row for row in running if not row.request.is_over(row.output)]
    return BaselineRun(
        outputs=outputs,
        wall_s=time.perf_counter() - started,
        prompts=prompt_lengths(work),
        token_times=times,
        steps=steps,
        about={"lanes": lanes},
    )


@torch.inference_mode()
def article_step(model: Any, rows: Sequence[Row]) -> None:
    """One packed pass over one cache: the caches of all rows joined end to end, a dense
    block-diagonal mask, and the new entries distributed to the rows.
    """
    device, dtype = model.device, model.dtype
    fed, cached = [len(r.feed) for r in rows], [r.cached for r in rows]
    owner = torch.arange(len(rows), device=device)
    q_owner = owner.repeat_interleave(torch.tensor(fed, device=device))
    k_owner = torch.cat([owner.repeat_interleave(torch.tensor(cached, device=device)), q_owner])
    q_position = torch.cat(
        [torch.arange(c, c + n, device=device) for c, n in zip(cached, fed, strict=True)]
    )
    k_position = torch.cat([*(torch.arange(c, device=device) for c in cached), q_position])
    allowed = (q_owner[:, None] == k_owner) & (k_position <= q_position[:, None])
    mask = torch.zeros(1, 1, *allowed.shape, dtype=dtype, device=device).masked_fill_(
        ~allowed, torch.finfo(dtype).min
    )
    past: Any = DynamicCache()
    held = [r.layers for r in rows if r.layers is not None]
    for layer in range(len(held[0]) if held else 0):
        joined = DynamicLayer()
        keys, values = (torch.cat([layers[layer][i] for layers in held], dim=2) for i in (0, 1))
        joined.lazy_initialization(keys, values)
        joined.keys, joined.values = keys, values
        past.layers.append(joined)
    ids = torch.tensor([[token for r in rows for token in r.feed]], device=device)
    ends = torch.tensor(fed, device=device).cumsum(0) - 1
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=q_position[None],
        use_cache=True,
        logits_to_keep=ends,
        **given_cache(model, past),
    )
    tokens = out.logits[0].argmax(-1).tolist()
    at = sum(cached)
    for row, count, token in zip(rows, fed, tokens, strict=True):
        new = [
            (layer.keys[:, :, at : at + count], layer.values[:, :, at : at + count])
            for layer in past.layers
        ]
        if row.layers is not None:
            new = [
                (torch.cat([a, c], 2), torch.cat([b, d], 2))
                for (a, b), (c, d) in zip(row.layers, new, strict=True)
            ]
        row.layers, row.feed = new, [token]
        row.output.append(token)
        at += count
