"""Why a request waits: lanes, and the order of those waiting."""

from __future__ import annotations

import random

from core.workload.presets.preset import BPE, preset_of, requests_of
from core.workload.presets.prompts import SPEECHES
from core.workload.request import Request

_GPT2_SIX = (  # the GPT-2 article's own
    ("The capital of France is", 6),
    ("Today's weather is so", 50),
    ("In machine learning, a transformer is", 300),
    ("Once upon a time in a land far away,", 30),
    ("Quantum computing differs from classical computing because", 180),
    ("The history of the Roman Empire began", 45),
)


def _short_and_long() -> list[Request]:
    new = (10, 18, 9, 14, 6, 21, 8, 12, 7, 16, 9, 11)
    arrivals = (0, 0, 0, 2, 5, 8, 11, 12, 16, 20, 24, 28)
    return requests_of(*zip(SPEECHES, new, arrivals, strict=True))


def _overtaken() -> list[Request]:
    """Two short requests, then a long prompt, then eleven speeches, one a step."""
    rows: list[tuple[str, int, float]] = [(SPEECHES[2], 12, 0), (SPEECHES[5], 12, 0), ("\n\n".join(SPEECHES[:8]), 10, 1)]
    return requests_of(*rows, *((SPEECHES[i * 5 % 12], 8 + i * 5 % 7, 2 + i) for i in range(1, 12)))


def _poisson(count: int = 32, rate: float = 0.3, seed: int = 7) -> list[Request]:
    """Poisson arrivals at `rate` a step; prompts of one to three speeches, lengths from a long-tailed draw."""
    draw = random.Random(seed)
    rows, at = [], 0.0
    for _ in range(count):
        prompt = "\n\n".join(draw.choices(SPEECHES, k=draw.choice((1, 1, 1, 2, 3))))
        rows.append((prompt, min(60, 4 + int(draw.expovariate(1 / 14))), int(at)))
        at += draw.expovariate(rate)
    return requests_of(*rows)


WAITING = (
    preset_of(
        "short-and-long",
        "Short & long",
        "Twelve speeches of mixed length share four lanes: each joins the moment a lane is free.",
        BPE,
        _short_and_long(),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=24,
        block_size=8,
        num_blocks=32,
    ),
    preset_of(
        "gpt2-six",
        "Six prompts, three lanes",
        "The GPT-2 article's six requests: 300 steps here, 480 with static batching.",
        BPE,
        requests_of(*((text, new, 0) for text, new in _GPT2_SIX)),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=256,
    ),
    preset_of(
        "shortest-first",
        "Shortest first",
        "Eight short prompts overtake a long one, then it is next: the median first token comes 10 steps sooner.",
        BPE,
        _overtaken(),
        "shortest-first",
        max_num_seqs=2,
        max_num_batched_tokens=12,
    ),
    preset_of(
        "poisson-32",
        "Thirty-two arrivals",
        "Thirty-two requests arrive at random (Poisson, seeded) with prompts and answers of mixed length.",
        BPE,
        _poisson(),
        "continuous",
        max_num_seqs=8,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=96,
    ),
)
