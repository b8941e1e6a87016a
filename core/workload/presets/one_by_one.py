"""The same short requests under one policy after the other, as the lessons go through them."""

from __future__ import annotations

from core.workload.presets.preset import BPE, preset_of, requests_of
from core.workload.presets.prompts import VERSES
from core.workload.request import Request


def _verses() -> list[Request]:
    return requests_of(*((text, new, 0) for text, new in VERSES))


ONE_BY_ONE = (
    preset_of(
        "verses-sequential",
        "Verses, one at a time",
        "Six short requests, each alone: five wait while one runs.",
        BPE,
        _verses(),
        "sequential",
    ),
    preset_of(
        "verses-static",
        "Verses, static",
        "The same six in waves of three: a wave lasts as long as its longest request, and every pass is padded.",
        BPE,
        _verses(),
        "static",
        max_num_seqs=3,
    ),
    preset_of(
        "verses-dropped",
        "Verses, finished rows dropped",
        "The same waves without the rows that have finished: fewer positions, as many steps, and nobody joins sooner.",
        BPE,
        _verses(),
        "static-dropped",
        max_num_seqs=3,
    ),
    preset_of(
        "verses-dynamic",
        "Verses, dynamic",
        "The same six: a lane is refilled at once, and each joining prompt pads the rows beside it.",
        BPE,
        _verses(),
        "dynamic",
        max_num_seqs=3,
    ),
    preset_of(
        "verses-continuous",
        "Verses, continuous",
        "The same six in one packed row a step: no lane waits for another, and nothing is padded.",
        BPE,
        _verses(),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=32,
        block_size=4,
    ),
    preset_of(
        "one-request",
        "One request",
        "One prompt, one token after another: the cache grows by one position a step.",
        BPE,
        requests_of(("To be, or not", 12, 0)),
        "continuous",
        max_num_seqs=1,
        max_num_batched_tokens=64,
        block_size=4,
    ),
    preset_of(
        "three-short",
        "One joins two, packed",
        "Two requests decode when a third joins: small enough to paint its mask by hand.",
        BPE,
        requests_of(("Why?", 7, 0), ("Speak", 6, 0), ("O Romeo", 3, 2)),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=32,
        block_size=4,
    ),
)
