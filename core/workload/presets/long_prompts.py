"""A long prompt joins requests that decode: read whole, in chunks, before the decodes or after them."""

from __future__ import annotations

import random

from core.workload.presets.preset import BPE, CHAR, preset_of, requests_of
from core.workload.presets.prompts import EIGHT, FORTY_EIGHT, FOUR, HUNDRED, SPEECHES, TWO_HUNDRED
from core.workload.request import Request


def _long_prompt() -> list[Request]:
    rows: list[tuple[str, int, float]] = [(speech, 40, 0) for speech in SPEECHES[1:5]]
    long = "\n\n".join(SPEECHES * 3)
    return requests_of(*rows, (long, 12, 8))


def _sixth_joins() -> list[Request]:
    return requests_of(*((text, 28, 0) for text in FOUR[:5]), (FORTY_EIGHT[6], 8, 6))


def _long_among_short(count: int = 32, seed: int = 5) -> list[Request]:
    """Short answers to short prompts, and every fourth prompt all the speeches: in nearly every step somebody joins."""
    draw = random.Random(seed)
    long = "\n\n".join(SPEECHES)
    rows = [(long if i % 4 == 3 else draw.choice(SPEECHES), draw.randint(4, 9), 0) for i in range(count)]
    return requests_of(*rows)


LONG_PROMPTS = (
    preset_of(
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
    preset_of(
        "long-prompt-chunked",
        "Long prompt, chunked",
        "The same long prompt in chunks: decodes go on in every step, and no step is slow.",
        BPE,
        _long_prompt(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=48,
    ),
    preset_of(
        "decode-first",
        "Decode first",
        "Five requests decode when a sixth joins, 8 tokens a step: each writes on, and the prompt gets the 3 that are left.",
        BPE,
        _sixth_joins(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=8,
    ),
    preset_of(
        "prefill-first",
        "Prefill first",
        "The same six, prefill first: the prompt takes all 8 tokens of each step, and the five stall until it is read.",
        BPE,
        _sixth_joins(),
        "continuous",
        max_num_seqs=6,
        max_num_batched_tokens=8,
        prefill_first=True,
    ),
    preset_of(
        "where-padding-costs",
        "Long prompts join short ones",
        "A prompt joins in nearly every step, every fourth a long one: packed it costs its tokens, padded it costs all rows.",
        BPE,
        _long_among_short(),
        "continuous",
        max_num_seqs=8,
        max_num_batched_tokens=256,
    ),
    preset_of(
        "budget-512",
        "303 of 512",
        "Three requests decode when prompts of 100 and 200 tokens arrive: one step of 303 tokens, 209 unused.",
        BPE,
        requests_of(*((text, 16, 0) for text in EIGHT), (HUNDRED, 8, 4), (TWO_HUNDRED, 8, 4)),
        "continuous",
        max_num_seqs=8,
        max_num_batched_tokens=512,
    ),
    preset_of(
        "chunk-7-7-6",
        "Chunks of 7, 7 and 6",
        "Three requests decode, so of a budget of 10 tokens 7 are left for a prompt of 20.",
        CHAR,
        requests_of(("Hark", 24, 0), ("Soft", 24, 0), ("Look", 24, 0), ("But soft! what light", 6, 6)),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=10,
    ),
)
