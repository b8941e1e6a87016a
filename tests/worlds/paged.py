"""Engines whose passes go through the buffers of a GPU, on a CPU: the model that only remembers,
read by lanes, and graphs by tracing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from core import Engine, EngineConfig
from core.config import Execution
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.attention.spec import AttentionSpec, Backend, scores_to_output
from core.torch_engine.choose import AttentionChoice
from core.torch_engine.gpu import paged as triton_paged
from core.torch_engine.gpu.runner import Capture, PagedRunner
from core.torch_engine.models.probe import probe
from worlds.small import VOCAB_SIZE, MemoryModel, next_token


class PagedMemoryModel(MemoryModel):
    """`MemoryModel` that finds each request's queries and cache where the paged kernel would."""

    num_heads = 1

    def forward(self, batch: PackedBatch, pool: KVPool, backend=None) -> torch.Tensor:
        keys, values = (t.view(-1) for t in pool.layers[0])
        keys[batch.slot_mapping] = batch.input_ids.flatten().float()
        values[batch.slot_mapping] = batch.position_ids.flatten().float()
        paged = batch.paged
        assert paged is not None
        logits = torch.zeros(len(batch.sample_rows), VOCAB_SIZE)
        for lane, (row, queries, kv_len) in enumerate(
            zip(paged.query_rows, paged.query_lens, paged.kv_lens, strict=True)
        ):
            wanted = (batch.sample_rows == row + queries - 1).nonzero().flatten()
            if not queries or not len(wanted):
                continue
            positions = torch.arange(int(kv_len))
            slots = (
                paged.block_tables[lane][positions // paged.block_size].long() * paged.block_size
                + positions % paged.block_size
            )
            assert values[slots].long().equal(positions), "a slot of somebody else"
            logits[wanted[0]] = 0.0
            logits[wanted[0], next_token(keys[slots].int().tolist())] = 9.0
            if self.fails_after == kv_len:
                logits[wanted[0]] = torch.nan
        return logits


def engine_on_buffers(
    model: Any,
    tokenizer: Any,
    config: EngineConfig,
    *,
    capture: Capture | None = None,
    attention: Backend = triton_paged.BACKEND,
    asynchronous: bool | None = None,
    fused: bool = False,
) -> Engine:
    """The real engine on a `PagedRunner`, its passes captured by `capture`; asynchronous where its
    policy can be.
    """
    if asynchronous is None:
        asynchronous = config.policy.layout != "split"
    execution = Execution(
        "triton",
        asynchronous=asynchronous,
        fused_sampling=fused,
        fused_norms=fused,
        fused_rotary=fused,
    )
    adapter = probe(model) if isinstance(model, torch.nn.Module) else model

    choice = AttentionChoice(True, attention, asynchronous)

    def runner(num_blocks: int) -> PagedRunner:
        return PagedRunner(
            adapter, num_blocks, config, execution, choice, time.perf_counter, capture
        )

    return Engine(adapter, tokenizer, config, execution=execution, runner=runner)


def paged_engine(
    policy: str = "continuous",
    tokenizer: Any = None,
    model: MemoryModel | None = None,
    *,
    capture: Capture | None = None,
    asynchronous: bool | None = None,
    fused: bool = False,
    **limits: Any,
) -> Engine:
    """`engine_on_buffers` on a `PagedMemoryModel`."""
    config = EngineConfig(policy=policy, **limits)
    return engine_on_buffers(
        model or PagedMemoryModel(),
        tokenizer,
        config,
        capture=capture,
        asynchronous=asynchronous,
        fused=fused,
    )


def again(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The plainest `Capture`: the same function over the same buffers."""
    function()
    return function


def traced(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A `Capture` that, like a CUDA graph, keeps operations and addresses and forgets every line of
    Python: what depended on a number read from a tensor raises RuntimeError here, and what depended
    on anything but the buffers replays stale.
    """
    return torch.inference_mode()(make_fx(lambda: function())())


def attend_by_gathering(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """The paged kernel's job in operations of torch alone, none of whose shapes depends on the
    pass: every query against every slot that its sequence's table names.
    """
    paged = batch.paged
    assert paged is not None
    rows, heads, width, _ = query.shape
    flat = torch.arange(rows * width)[:, None]
    mine = (flat >= paged.query_rows) & (flat < paged.query_rows + paged.query_lens)  # [R * W, S]
    sequence, present = mine.int().argmax(1), mine.any(1)
    position = (
        (paged.kv_lens - paged.query_lens)[sequence] + flat[:, 0] - paged.query_rows[sequence]
    )
    length = paged.block_tables.shape[1] * paged.block_size
    key = torch.arange(length)
    # [S, K]
    slots = (
        paged.block_tables[:, key // paged.block_size].long() * paged.block_size
        + key % paged.block_size
    )
    groups = heads // keys.shape[1]
    k = keys[slots[sequence]].repeat_interleave(groups, 2).transpose(1, 2)  # [R * W, H, K, Dk]
    v = values[slots[sequence]].repeat_interleave(groups, 2).transpose(1, 2)
    seen = (key <= position[:, None]) & present[:, None]
    if spec.window is not None:
        seen = seen & (position[:, None] - key < spec.window)
    q = query.transpose(1, 2).reshape(rows * width, heads, 1, -1)
    out = scores_to_output(q, k, v, seen[:, None, None], spec)  # [R * W, H, 1, Dv]
    return out.reshape(rows, width, heads, -1)


GATHERING = Backend(attend_by_gathering)
