"""The KV cache runs out, or is shared."""

from __future__ import annotations

from core.workload.presets.preset import BPE, preset_of, requests_of
from core.workload.presets.prompts import SCENE, SPEECHES, VERSES
from core.workload.request import Request


def _kv_pressure() -> list[Request]:
    new = (44, 40, 36, 40, 30, 28)
    return requests_of(*((speech, n, i) for i, (speech, n) in enumerate(zip(SPEECHES, new, strict=False))))


def _scheduler_zoo() -> list[Request]:
    """Five requests that come to need more blocks together than there are; then a long prompt, and two short ones behind it."""
    rows = zip(SPEECHES, (56, 48, 64, 40, 44), range(5), strict=False)
    return requests_of(*rows, ("\n\n".join(SPEECHES[:6]), 20, 12), (SPEECHES[6], 36, 14), (SPEECHES[9], 24, 16))


def _shared_prefix() -> list[Request]:
    endings = ("CAPULET:\n", "MONTAGUE:\n", "BENVOLIO:\n", "TYBALT:\n", "LADY CAPULET:\n")
    return requests_of(*((SCENE + ending, 14, 3 * i) for i, ending in enumerate(endings)))


MEMORY = (
    preset_of(
        "kv-pressure",
        "Cache full",
        "More requests than the KV pool can hold: one that lacks a block takes it from the newest, which starts again.",
        BPE,
        _kv_pressure(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=20,
    ),
    preset_of(
        "kv-pressure-stall",
        "Cache full, stalling",
        "The same requests where an older one stalls until a block is free: 3 preemptions for 4, and 65 steps for 60.",
        BPE,
        _kv_pressure(),
        "stall",
        max_num_seqs=6,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=20,
    ),
    preset_of(
        "scheduler-zoo",
        "Scheduler zoo",
        "Five requests are about to fill the KV pool when a long prompt joins: what each engine's rule makes of it.",
        BPE,
        _scheduler_zoo(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=34,
    ),
    preset_of(
        "shared-prefix",
        "Shared prefix",
        "Five requests open with the same scene: its blocks are computed once and shared.",
        BPE,
        _shared_prefix(),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=64,
        prefix_caching=True,
    ),
    preset_of(
        "prefix-too-short",
        "A prefix shorter than a block",
        "Prompts that begin alike for fewer tokens than a block holds share nothing: the prefix cache is never hit.",
        BPE,
        requests_of(*((f"ROMEO:\n{text}", new, 2 * i) for i, (text, new) in enumerate(VERSES[:4]))),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=16,
        num_blocks=32,
        prefix_caching=True,
    ),
)
