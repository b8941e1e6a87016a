"""What continuous batching does: the runs that come first on the page. `gpt2-six` is the GPT-2 article's."""

from __future__ import annotations

import random

from core.workload.presets.preset import BPE, SPEECHES, Preset, entry, requests
from core.workload.request import Request

_GPT2_SIX = (
    ("The capital of France is", 6),
    ("Today's weather is so", 50),
    ("In machine learning, a transformer is", 300),
    ("Once upon a time in a land far away,", 30),
    ("Quantum computing differs from classical computing because", 180),
    ("The history of the Roman Empire began", 45),
)

_SCENE = (
    "ACT I. Scene: a street in Verona. Enter the Prince with his train, and the people of both houses. "
    "PRINCE:\nRebellious subjects, enemies to peace, profaners of this neighbour-stained steel, will they not hear? "
)


def _short_and_long() -> list[Request]:
    new = (10, 18, 9, 14, 6, 21, 8, 12, 7, 16, 9, 11)
    arrivals = (0, 0, 0, 2, 5, 8, 11, 12, 16, 20, 24, 28)
    return requests(*zip(SPEECHES, new, arrivals, strict=True))


def _kv_pressure() -> list[Request]:
    new = (44, 40, 36, 40, 30, 28)
    return requests(*((speech, n, i) for i, (speech, n) in enumerate(zip(SPEECHES, new, strict=False))))


def _long_prompt() -> list[Request]:
    rows: list[tuple[str, int, float]] = [(speech, 40, 0) for speech in SPEECHES[1:5]]
    long = "\n\n".join(SPEECHES * 3)
    return requests(*rows, (long, 12, 8))


def _shared_prefix() -> list[Request]:
    endings = ("CAPULET:\n", "MONTAGUE:\n", "BENVOLIO:\n", "TYBALT:\n", "LADY CAPULET:\n")
    return requests(*((_SCENE + ending, 14, 3 * i) for i, ending in enumerate(endings)))


def _overtaken() -> list[Request]:
    """Two short requests, then a long prompt, then eleven speeches, one a step."""
    rows: list[tuple[str, int, float]] = [(SPEECHES[2], 12, 0), (SPEECHES[5], 12, 0), ("\n\n".join(SPEECHES[:8]), 10, 1)]
    return requests(*rows, *((SPEECHES[i * 5 % 12], 8 + i * 5 % 7, 2 + i) for i in range(1, 12)))


def _poisson(count: int = 32, rate: float = 0.3, seed: int = 7) -> list[Request]:
    """Poisson arrivals at `rate` a step; prompts of one to three speeches, lengths from a long-tailed draw."""
    draw = random.Random(seed)
    rows, at = [], 0.0
    for _ in range(count):
        prompt = "\n\n".join(draw.choices(SPEECHES, k=draw.choice((1, 1, 1, 2, 3))))
        rows.append((prompt, min(60, 4 + int(draw.expovariate(1 / 14))), int(at)))
        at += draw.expovariate(rate)
    return requests(*rows)


def _long_among_short(count: int = 32, seed: int = 5) -> list[Request]:
    """Short answers to short prompts, and every fourth prompt all the speeches: in nearly every step somebody joins."""
    draw = random.Random(seed)
    long = "\n\n".join(SPEECHES)
    rows = [(long if i % 4 == 3 else draw.choice(SPEECHES), draw.randint(4, 9), 0) for i in range(count)]
    return requests(*rows)


SHOWCASE: tuple[Preset, ...] = (
    entry(
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
    entry(
        "gpt2-six",
        "Six prompts, three lanes",
        "The GPT-2 article's six requests: 300 steps here, 480 with static batching.",
        BPE,
        requests(*((text, new, 0) for text, new in _GPT2_SIX)),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=256,
    ),
    entry(
        "long-prompt-arrives",
        "Long prompt, whole",
        "A long prompt computed in one piece makes everybody who is decoding wait for one slow step.",
        BPE,
        _long_prompt(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=1024,
        chunked_prefill=False,
    ),
    entry(
        "long-prompt-chunked",
        "Long prompt, chunked",
        "The same long prompt in chunks: decodes go on in every step, and no step is slow.",
        BPE,
        _long_prompt(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=48,
    ),
    entry(
        "kv-pressure",
        "Cache full",
        "More requests than the KV pool can hold: whoever lacks a block takes it from the newest, who starts again.",
        BPE,
        _kv_pressure(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=64,
        block_size=8,
        num_blocks=20,
    ),
    entry(
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
    entry(
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
    entry(
        "shortest-first",
        "Shortest first",
        "Eight short prompts overtake a long one, then it is next: the median first token comes 10 steps sooner.",
        BPE,
        _overtaken(),
        "shortest-first",
        max_num_seqs=2,
        max_num_batched_tokens=12,
    ),
    entry(
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
    entry(
        "where-padding-costs",
        "Long prompts join short ones",
        "A prompt joins in nearly every step, every fourth a long one: packed it costs its tokens, padded it costs all rows.",
        BPE,
        _long_among_short(),
        "continuous",
        max_num_seqs=8,
        max_num_batched_tokens=256,
    ),
)
