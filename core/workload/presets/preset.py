"""What a preset is, and how one is written down. Knows no preset."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from core.config import EngineConfig
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

CHAR, BPE = "shakespeare-char", "shakespeare-bpe"
_READABLE = 0.7  # temperature: greedy text of so small a model falls into loops

SPEECHES = (
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


@dataclass(frozen=True)
class Preset:
    """title and shows: a heading and a sentence for people; the rest is what runs."""

    name: str
    title: str
    shows: str
    model: str
    config: EngineConfig
    workload: Workload


def entry(name: str, title: str, shows: str, model: str, requests: list[Request], policy: str, **limits) -> Preset:
    """An entry of the table. limits: fields of `EngineConfig`."""
    return Preset(name, title, shows, model, EngineConfig(policy=policy, **limits), Workload(requests, name=name))


def requests(*rows: tuple[str | Sequence[int], int, float]) -> list[Request]:
    """Requests r0, r1, … from (prompt text or token ids, new tokens, arrival)."""
    made = []
    for index, (prompt, new, arrival) in enumerate(rows):
        sampling = SamplingParams(max_new_tokens=new, temperature=_READABLE, seed=index, ignore_eos=True)
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
        made.append(Request(f"r{index}", **given, sampling=sampling, arrival=arrival))
    return made


def token_ids(length: int, seed: int) -> tuple[int, ...]:
    """Token ids of which only the number matters: lower-case letters of the character model, common tokens of the other."""
    draw = random.Random(seed)
    return tuple(draw.randrange(39, 65) for _ in range(length))
