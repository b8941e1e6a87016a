"""Small runs on which one thing can be seen: those that the lessons and the comparisons use."""

from __future__ import annotations

from core.workload.presets.preset import BPE, Preset, entry, requests, token_ids
from core.workload.request import Request

_VERSES = (  # six short requests, on which the lessons show one policy after the other
    ("To be, or not to be", 4),
    ("O Romeo, Romeo! wherefore art thou", 12),
    ("Now is the winter", 7),
    ("But soft, what light through yonder window breaks?", 6),
    ("Speak, speak.", 9),
    ("Good night, good night!", 5),
)


def _verses() -> list[Request]:
    return requests(*((text, new, 0) for text, new in _VERSES))


LESSONS: tuple[Preset, ...] = (
    entry(
        "equal-lengths",
        "Equal lengths",
        "Of eight equal requests none ends early, so nothing is won; a token budget of 16, unknown to static, costs steps.",
        BPE,
        requests(*((token_ids(48, i), 24, 0) for i in range(8))),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=16,
    ),
    entry(
        "one-request",
        "One request",
        "One prompt, one token after another: the cache grows by one position a step.",
        BPE,
        requests(("To be, or not", 12, 0)),
        "continuous",
        max_num_seqs=1,
        max_num_batched_tokens=64,
        block_size=4,
    ),
    entry(
        "verses-sequential",
        "Verses, one at a time",
        "Six short requests, each alone: five wait while one runs.",
        BPE,
        _verses(),
        "sequential",
    ),
    entry(
        "verses-static",
        "Verses, static",
        "The same six in waves of three: a wave lasts as long as its longest request, and every pass is padded.",
        BPE,
        _verses(),
        "static",
        max_num_seqs=3,
    ),
    entry(
        "verses-dynamic",
        "Verses, dynamic",
        "The same six: a lane is refilled at once, and each joining prompt pads the rows beside it.",
        BPE,
        _verses(),
        "dynamic",
        max_num_seqs=3,
    ),
    entry(
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
    entry(
        "prefix-too-short",
        "A prefix shorter than a block",
        "Prompts that begin alike for fewer tokens than a block holds share nothing: the prefix cache is never hit.",
        BPE,
        requests(*((f"ROMEO:\n{text}", new, 2 * i) for i, (text, new) in enumerate(_VERSES[:4]))),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=16,
        num_blocks=32,
        prefix_caching=True,
    ),
    entry(
        "three-short",
        "One joins two, packed",
        "Two requests decode when a third joins: small enough to paint its mask by hand.",
        BPE,
        requests(("Why?", 7, 0), ("Speak", 6, 0), ("O Romeo", 3, 2)),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=32,
        block_size=4,
    ),
)
