"""transformers' own continuous-batching scheduler, driven without a model: what it decides on a
workload, step by step.

Its `FIFOScheduler`, its cache's books and its `OffloadingManager` are the installed ones;
`ContinuousBatchProcessor.prepare_next_batch` and `update_batch` are followed here line by line, but
for tensors (transformers 5.23, `generation/continuous_batching/continuous_api.py`). The workloads
and decisions are in the form of `core.proof.replay`.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GPT2Config
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.offloading_manager import OffloadingManager
from transformers.generation.continuous_batching.requests import RequestState
from transformers.generation.continuous_batching.scheduler import FIFOScheduler

from core.proof.replay import next_token

_ALONE = SimpleNamespace(tp_size=1, tp_all_reduce_min=lambda tensor, on_cpu=False: tensor)


def decisions(workload: dict[str, Any]) -> list[Any]:
    """What transformers decides in each step that computes anything."""
    cache = _cache(workload)
    margin = workload.get("margin", 0.15)
    scheduler = FIFOScheduler(cache, margin, workload["seqs"])
    offloading = OffloadingManager(cache, scheduler, 0.0, 0.9, None, _ALONE)
    cache_budget = workload.get("kv_reads", cache.max_tokens_read)
    pending = sorted(workload["requests"], key=lambda r: r["arrival"])
    decided: list[Any] = []
    step = 0
    while pending or scheduler.has_pending_requests():
        while pending and pending[0]["arrival"] <= step:
            r = pending.pop(0)
            scheduler.add_waiting_request(
                RequestState(r["id"], list(r["prompt"]), max_new_tokens=r["max_tokens"])
            )
        step += 1
        if not scheduler.has_pending_requests():
            continue
        active = set(scheduler.active_requests)
        batch, *_ = scheduler.schedule_batch(workload["budget"], cache_budget)
        while batch is None:
            assert offloading.offload_requests()
            batch, *_ = scheduler.schedule_batch(workload["budget"], cache_budget)
        if scheduler.starved_requests:
            offloading.offload_requests()
        assert batch, "it would wait for ever"
        assert len(scheduler.active_requests) <= workload["seqs"], "more run than we have lanes"
        preempted = sorted(active - set(scheduler.active_requests))
        computed = [[f.state.request_id, f.state.position_offset, f.query_length] for f in batch]
        admitted = sorted(r for r, *_ in computed if r not in active)
        finished = _update(scheduler, batch)
        decided.append([admitted, preempted, sorted(computed), finished])
    return decided


def _update(scheduler: FIFOScheduler, batch: list[Any]) -> list[str]:
    finished = []
    for future in batch:
        state = future.state
        state.position_offset += future.query_length  # as `prepare_batch_tensors` does
        if not future.has_new_token:
            continue
        token = next_token(state.request_id, state.position_offset)
        if state.update_and_check_completion(token, None):
            scheduler.finish_request(state.request_id)
            scheduler.block_new_requests = False
            finished.append(state.request_id)
    return sorted(finished)


def _cache(workload: dict[str, Any]) -> PagedAttentionCache:
    settings = ContinuousBatchingConfig(
        page_size=workload["size"],
        num_blocks=workload["blocks"],
        max_batch_tokens=workload["budget"],
        max_requests_per_batch=workload["seqs"],
        allow_block_sharing=False,
        max_blocks_per_request=0,
        max_memory_percent=0.9,
    )
    model = GPT2Config(
        n_layer=1, n_head=1, n_embd=32, vocab_size=8, bos_token_id=0, eos_token_id=0
    )  # a block of one page is then a sector of its own
    return PagedAttentionCache(model, settings, "cpu", _ALONE, torch.float32)  # type: ignore[arg-type]


def random_workload(seed: int) -> dict[str, Any]:
    """KV pressure more often than not; every request fits the pool, and as many lanes as
    requests.
    """
    draw = random.Random(seed)
    size, blocks = draw.choice([1, 2, 4, 8, 16]), draw.randint(4, 40)
    room = size * blocks
    requests = []
    for index in range(draw.randint(2, 12)):
        prompt = draw.randint(1, max(1, min(room - 1, draw.choice([8, 30, 80]))))
        new = draw.randint(1, min(room - prompt, draw.choice([4, 20, 60])))
        ids = [draw.randrange(8) for _ in range(prompt)]
        requests.append(
            {"id": f"r{index}", "prompt": ids, "max_tokens": new, "arrival": draw.randint(0, 12)}
        )
    seqs = len(requests)
    budget = max(seqs, draw.choice([4, 16, 64, 256]))
    found: dict[str, Any] = {
        "seqs": seqs,
        "budget": budget,
        "blocks": blocks,
        "size": size,
        "caching": False,
        "requests": requests,
    }
    if draw.random() < 0.5:
        found["margin"] = draw.choice([0.0, 0.3, 0.5])
    if draw.random() < 0.5:  # one that binds: whoever is alone can still be read
        longest = max(len(r["prompt"]) + r["max_tokens"] for r in requests)
        found["kv_reads"] = draw.randint(longest, max(longest, room))
    return found
