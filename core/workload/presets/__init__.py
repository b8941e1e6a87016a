"""Named workloads, each with the model, policy and limits it is best seen with. Data; everything runs offline on built-in models.

`nanogpt-*` come from the articles on NanoGPT, `gpt2-*` from the one on GPT-2, the numbers in `padding-693`, `one-joins-two`,
`chunk-7-by-4`, `budget-512`, `three-lengths` and `chunk-7-7-6` from the articles' own examples.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from core.config import EngineConfig
from core.errors import InvalidWorkload
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

CHAR, BPE = "shakespeare-char", "shakespeare-bpe"
_READABLE = 0.7  # temperature: greedy text of so small a model falls into loops


@dataclass(frozen=True)
class Preset:
    """title and shows: a heading and a sentence for people; the rest is what runs."""

    name: str
    title: str
    shows: str
    model: str
    config: EngineConfig
    workload: Workload


def preset(name: str) -> Preset:
    """A preset by name; raises InvalidWorkload for an unknown one."""
    if name not in PRESETS:
        raise InvalidWorkload(f"There is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name]


def _requests(*rows: tuple[str | Sequence[int], int, float]) -> list[Request]:
    """Requests r0, r1, … from (prompt text or token ids, new tokens, arrival)."""
    requests = []
    for index, (prompt, new, arrival) in enumerate(rows):
        sampling = SamplingParams(max_new_tokens=new, temperature=_READABLE, seed=index, ignore_eos=True)
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
        requests.append(Request(f"r{index}", **given, sampling=sampling, arrival=arrival))
    return requests


def _ids(length: int, seed: int) -> tuple[int, ...]:
    """Token ids that count, not mean: lower-case letters of the character model, common tokens of the other."""
    draw = random.Random(seed)
    return tuple(draw.randrange(39, 65) for _ in range(length))


_ROMEO, _TO_BE, _HENRY = "O Romeo, ", "To be or ", "KING HENRY:\n"
_WINTER = "Now is the winter of our d"
_CHUNKED_4 = (("Hello", 10), ("O Romeo, O Romeo!", 8), (_WINTER, 6), ("Why?", 12))

_GPT2_SIX = (
    ("The capital of France is", 6),
    ("Today's weather is so", 50),
    ("In machine learning, a transformer is", 300),
    ("Once upon a time in a land far away,", 30),
    ("Quantum computing differs from classical computing because", 180),
    ("The history of the Roman Empire began", 45),
)

_SPEECHES = (
    "ROMEO:\nBut soft, what light through yonder window breaks?",
    "KING RICHARD:\nNow is the winter",
    "JULIET:\nO Romeo,",
    "HAMLET:\nTo be, or not to be: that is the question",
    "First Citizen:\nBefore we proceed any further, hear me speak.",
    "LADY ANNE:\nWhy",
    "All:\nSpeak, speak.",
    "DUKE OF YORK:\nMy lord, I will not",
    "NURSE:\nMadam, your mother craves a word with you.",
    "FRIAR LAURENCE:\nThese violent delights have violent ends",
    "Second Murderer:\nWhat shall we do?",
    "QUEEN MARGARET:\nAnd thou",
)

_SCENE = (
    "ACT I. Scene: a street in Verona. Enter the Prince with his train, and the people of both houses. "
    "PRINCE:\nRebellious subjects, enemies to peace, profaners of this neighbour-stained steel, will they not hear? "
)


def _short_and_long() -> list[Request]:
    new = (10, 18, 9, 14, 6, 21, 8, 12, 7, 16, 9, 11)
    arrivals = (0, 0, 0, 2, 5, 8, 11, 12, 16, 20, 24, 28)
    return _requests(*zip(_SPEECHES, new, arrivals, strict=True))


def _kv_pressure() -> list[Request]:
    new = (44, 40, 36, 40, 30, 28)
    return _requests(*((speech, n, i) for i, (speech, n) in enumerate(zip(_SPEECHES, new, strict=False))))


def _long_prompt() -> list[Request]:
    rows: list[tuple[str, int, float]] = [(speech, 40, 0) for speech in _SPEECHES[1:5]]
    long = "\n\n".join(_SPEECHES * 3)
    return _requests(*rows, (long, 12, 8))


def _shared_prefix() -> list[Request]:
    endings = ("CAPULET:\n", "MONTAGUE:\n", "BENVOLIO:\n", "TYBALT:\n", "LADY CAPULET:\n")
    return _requests(*((_SCENE + ending, 14, 3 * i) for i, ending in enumerate(endings)))


def _overtaken() -> list[Request]:
    """Two short requests, then a long prompt, then eleven speeches, one a step."""
    rows: list[tuple[str, int, float]] = [(_SPEECHES[2], 12, 0), (_SPEECHES[5], 12, 0), ("\n\n".join(_SPEECHES[:8]), 10, 1)]
    return _requests(*rows, *((_SPEECHES[i * 5 % 12], 8 + i * 5 % 7, 2 + i) for i in range(1, 12)))


def _poisson(count: int = 32, rate: float = 0.3, seed: int = 7) -> list[Request]:
    """Poisson arrivals at `rate` a step; prompts of one to three speeches, lengths from a long-tailed draw."""
    draw = random.Random(seed)
    rows, at = [], 0.0
    for _ in range(count):
        prompt = "\n\n".join(draw.choices(_SPEECHES, k=draw.choice((1, 1, 1, 2, 3))))
        rows.append((prompt, min(60, 4 + int(draw.expovariate(1 / 14))), int(at)))
        at += draw.expovariate(rate)
    return _requests(*rows)


_VERSES = (  # six short requests, on which the lessons show one policy after the other
    ("To be, or not to be", 4),
    ("O Romeo, Romeo! wherefore art thou", 12),
    ("Now is the winter", 7),
    ("But soft, what light through yonder window breaks?", 6),
    ("Speak, speak.", 9),
    ("Good night, good night!", 5),
)


def _verses() -> list[Request]:
    return _requests(*((text, new, 0) for text, new in _VERSES))


def _long_among_short(count: int = 32, seed: int = 5) -> list[Request]:
    """Short answers to short prompts, and every fourth prompt all the speeches: in nearly every step somebody joins."""
    draw = random.Random(seed)
    long = "\n\n".join(_SPEECHES)
    rows = [(long if i % 4 == 3 else draw.choice(_SPEECHES), draw.randint(4, 9), 0) for i in range(count)]
    return _requests(*rows)


def _preset(name: str, title: str, shows: str, model: str, requests: list[Request], policy: str, **limits) -> Preset:
    return Preset(name, title, shows, model, EngineConfig(policy=policy, **limits), Workload(requests, name=name))


PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        _preset(
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
        _preset(
            "gpt2-six",
            "Six prompts, three lanes",
            "The GPT-2 article's six requests: 300 steps here, 480 with static batching.",
            BPE,
            _requests(*((text, new, 0) for text, new in _GPT2_SIX)),
            "continuous",
            max_num_seqs=3,
            max_num_batched_tokens=256,
        ),
        _preset(
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
        _preset(
            "long-prompt-chunked",
            "Long prompt, chunked",
            "The same long prompt in chunks: decodes go on in every step, and no step is slow.",
            BPE,
            _long_prompt(),
            "continuous",
            max_num_seqs=6,
            max_num_batched_tokens=48,
        ),
        _preset(
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
        _preset(
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
        _preset(
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
        _preset(
            "shortest-first",
            "Shortest first",
            "Eight short prompts overtake a long one, then it is next: the median first token comes 10 steps sooner.",
            BPE,
            _overtaken(),
            "shortest-first",
            max_num_seqs=2,
            max_num_batched_tokens=12,
        ),
        _preset(
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
        _preset(
            "where-padding-costs",
            "Long prompts join short ones",
            "A prompt joins in nearly every step, every fourth a long one: packed it costs its tokens, padded it costs all rows.",
            BPE,
            _long_among_short(),
            "continuous",
            max_num_seqs=8,
            max_num_batched_tokens=256,
        ),
        _preset(
            "nanogpt-arrivals",
            "NanoGPT: arrivals",
            "The NanoGPT loop: a prefill pass for each joining request, then one padded decode pass.",
            CHAR,
            _requests((_ROMEO, 17, 0), (_TO_BE, 22, 0), (_HENRY, 15, 3)),
            "split",
            max_num_seqs=4,
        ),
        _preset(
            "nanogpt-chunked-1",
            "NanoGPT: budget to spare",
            "A budget of 32 tokens is more than any prompt needs: nothing is cut.",
            CHAR,
            _requests((_ROMEO, 17, 0), (_TO_BE, 22, 0), (_HENRY, 15, 0)),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=32,
        ),
        _preset(
            "nanogpt-chunked-2",
            "NanoGPT: one prompt in chunks",
            "A prompt of 20 tokens and a budget of 8: chunks of 8, 8 and 4.",
            CHAR,
            _requests(("KING RICHARD THE THI", 5, 0)),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=8,
        ),
        _preset(
            "nanogpt-chunked-3",
            "NanoGPT: decoding goes on",
            "While one prompt is read in chunks, the other request decodes in every step.",
            CHAR,
            _requests(("Hello", 15, 0), ("Now is the winter of", 5, 1)),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=8,
        ),
        _preset(
            "nanogpt-chunked-4",
            "NanoGPT: four at once",
            "Four prompts, one prefilling at a time, within a budget of 10 tokens a step.",
            CHAR,
            _requests(*((text, new, 0) for text, new in _CHUNKED_4)),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=10,
        ),
        _preset(
            "nanogpt-chunked-4-arrivals",
            "NanoGPT: four, one after the other",
            "The same four prompts, arriving at steps 0, 2, 5 and 8.",
            CHAR,
            _requests(*((text, new, at) for (text, new), at in zip(_CHUNKED_4, (0, 2, 5, 8), strict=True))),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=10,
        ),
        _preset(
            "chunk-7-7-6",
            "Chunks of 7, 7 and 6",
            "Three requests decode, so of a budget of 10 tokens 7 are left for a prompt of 20.",
            CHAR,
            _requests(("Hark", 24, 0), ("Soft", 24, 0), ("Look", 24, 0), (_ids(20, 1), 6, 6)),
            "split-chunked",
            max_num_seqs=4,
            max_num_batched_tokens=10,
        ),
        _preset(
            "gpt2-masks",
            "The article's masks",
            "Prompts of 5, 5 and 7 tokens, then one of 10: the two masks that the GPT-2 article prints.",
            BPE,
            _requests((_ids(5, 1), 6, 0), (_ids(5, 2), 50, 0), (_ids(7, 3), 300, 0), (_ids(10, 4), 30, 0)),
            "continuous",
            max_num_seqs=3,
            max_num_batched_tokens=256,
        ),
        _preset(
            "padding-693",
            "693 pads",
            "Seven requests decode when a prompt of 100 tokens joins: every other row is padded to 100.",
            BPE,
            _requests(*((_ids(4, i), 12, 0) for i in range(7)), (_ids(100, 7), 6, 4)),
            "dynamic",
            max_num_seqs=8,
            max_num_batched_tokens=512,
        ),
        _preset(
            "one-joins-two",
            "One joins two",
            "Two requests decode when a prompt of 10 tokens joins: 18 of 30 positions are padding.",
            BPE,
            _requests((_ids(5, 1), 12, 0), (_ids(6, 2), 12, 0), (_ids(10, 3), 6, 4)),
            "dynamic",
            max_num_seqs=3,
        ),
        _preset(
            "chunk-7-by-4",
            "Seven tokens by four",
            "A prompt of 7 tokens and a budget of 4: two chunks, 4 and 3.",
            BPE,
            _requests((_ids(7, 1), 5, 0)),
            "continuous",
            max_num_seqs=1,
            max_num_batched_tokens=4,
        ),
        _preset(
            "budget-512",
            "303 of 512",
            "Three requests decode when prompts of 100 and 200 tokens arrive: one step of 303 tokens, 209 unused.",
            BPE,
            _requests((_ids(8, 1), 16, 0), (_ids(8, 2), 16, 0), (_ids(8, 3), 16, 0), (_ids(100, 4), 8, 4), (_ids(200, 5), 8, 4)),
            "continuous",
            max_num_seqs=8,
            max_num_batched_tokens=512,
        ),
        _preset(
            "three-lengths",
            "Twenty, fifteen, twenty-five",
            "Three answers of 20, 15 and 25 tokens: 25 steps together, 60 one after the other.",
            BPE,
            _requests((_SPEECHES[2], 20, 0), (_SPEECHES[5], 15, 0), (_SPEECHES[6], 25, 0)),
            "continuous",
            max_num_seqs=3,
        ),
        _preset(
            "equal-lengths",
            "Equal lengths",
            "Of eight equal requests none ends early, so nothing is won; a token budget of 16, unknown to static, costs steps.",
            BPE,
            _requests(*((_ids(48, i), 24, 0) for i in range(8))),
            "continuous",
            max_num_seqs=4,
            max_num_batched_tokens=16,
        ),
        _preset(
            "one-request",
            "One request",
            "One prompt, one token after another: the cache grows by one position a step.",
            BPE,
            _requests(("To be, or not", 12, 0)),
            "continuous",
            max_num_seqs=1,
            max_num_batched_tokens=64,
            block_size=4,
        ),
        _preset(
            "verses-sequential",
            "Verses, one at a time",
            "Six short requests, each alone: five wait while one runs.",
            BPE,
            _verses(),
            "sequential",
        ),
        _preset(
            "verses-static",
            "Verses, static",
            "The same six in waves of three: a wave lasts as long as its longest request, and every pass is padded.",
            BPE,
            _verses(),
            "static",
            max_num_seqs=3,
        ),
        _preset(
            "verses-dynamic",
            "Verses, dynamic",
            "The same six: a lane is refilled at once, and each joining prompt pads the rows beside it.",
            BPE,
            _verses(),
            "dynamic",
            max_num_seqs=3,
        ),
        _preset(
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
        _preset(
            "prefix-too-short",
            "A prefix shorter than a block",
            "Prompts that begin alike for fewer tokens than a block holds share nothing: the prefix cache is never hit.",
            BPE,
            _requests(*((f"ROMEO:\n{text}", new, 2 * i) for i, (text, new) in enumerate(_VERSES[:4]))),
            "continuous",
            max_num_seqs=4,
            max_num_batched_tokens=64,
            block_size=16,
            num_blocks=32,
            prefix_caching=True,
        ),
        _preset(
            "three-short",
            "One joins two, packed",
            "Two requests decode when a third joins: small enough to paint its mask by hand.",
            BPE,
            _requests(("Why?", 7, 0), ("Speak", 6, 0), ("O Romeo", 3, 2)),
            "continuous",
            max_num_seqs=3,
            max_num_batched_tokens=32,
            block_size=4,
        ),
    )
}
