"""Forged at random under a good seal: every field of every record, wherever it stands."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Iterator
from typing import Any, get_origin, get_type_hints

import pytest

from core.config import POLICIES
from core.errors import InvalidTrace
from core.trace.events import StepEvent
from worlds.examples import tries
from worlds.forging import Rows, checked, refusal, small_runs

BELIEVED = {"token_id", "logprob", "margin"}  # refused where they are absurd, and by a rerun


@pytest.fixture(scope="module")
def made() -> dict[str, Rows]:
    return small_runs()


def places(value: Any, path: tuple, name: str) -> Iterator[tuple[tuple, str]]:
    """Every plain value inside a record: the way to it, which is the same in the file, and the name
    of its field.
    """
    if isinstance(value, tuple):
        names = getattr(value, "_fields", (name,) * len(value))
        for index, (inner, its_name) in enumerate(zip(value, names, strict=True)):
            yield from places(inner, (*path, index), its_name)
    else:
        yield path, name


def another(value: Any, name: str, draw: random.Random) -> Any:
    """Another value of the kind; for what is bounded and not replayed an absurd one."""
    if name in BELIEVED:
        return {"token_id": 50, "logprob": 0.5, "margin": -1.0}[name]
    if name == "bucket" or value is None:
        return 10**9
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-1, 1, 2, 10**9))
    if isinstance(value, float):
        return draw.choice((-1.0, value + 1e9))
    words = [
        "packed",
        "padded",
        "prefill",
        "decode",
        "before",
        "after",
        "length",
        "stop",
        "none",
        "lanes",
        "budget",
        "blocks",
        "r0",
        "r1",
        "nobody",
    ]
    return draw.choice([w for w in words if w != value])


def with_a_row_of_its_own(true: Rows, draw: random.Random) -> tuple[Rows, dict[str, Any]]:
    """A trace that differs in one step, and that step."""
    rows = list(true)
    at = draw.choice([index for index, row in enumerate(rows) if "step" in row])
    rows[at] = copy.deepcopy(rows[at])
    return rows, rows[at]


@pytest.mark.parametrize("policy", [*POLICIES, "prefixes", "preempted"])
def test_no_field_of_any_event_can_be_forged(made: dict[str, Rows], policy: str) -> None:
    """But for the tokens and their probabilities, which a rerun proves, and small changes of
    times.
    """
    draw, seen = random.Random(7), set()
    for _ in range(tries(120)):
        rows, row = with_a_row_of_its_own(made[policy], draw)
        facts = StepEvent.from_json(row).to_json()
        path, name = draw.choice(
            [place for field, value in facts.items() for place in places(value, (field,), field)]
        )
        *way, last = path
        holder = functools.reduce(lambda inner, key: inner[key], way, row)
        before, holder[last] = holder[last], another(holder[last], name, draw)
        seen.add(name)
        try:
            checked(rows)
        except InvalidTrace:
            continue
        pytest.fail(f"step {row['step']}, {path} ({name}): {holder[last]!r} for {before!r}")
    assert len(seen) > 10


def test_no_record_can_be_dropped_doubled_or_moved(made: dict[str, Rows]) -> None:
    draw = random.Random(3)
    lists = [name for name, kind in get_type_hints(StepEvent).items() if get_origin(kind) is tuple]
    for _ in range(tries(200)):
        rows, row = with_a_row_of_its_own(draw.choice(list(made.values())), draw)
        name = draw.choice([n for n in lists if row.get(n)])
        index = draw.randrange(len(row[name]))
        deed = draw.choice(("drop", "double", "swap"))
        if deed == "drop":
            del row[name][index]
        elif deed == "double":
            row[name].insert(index, row[name][index])
        elif len(row[name]) > 1:
            other = (index + 1) % len(row[name])
            row[name][index], row[name][other] = row[name][other], row[name][index]
        else:
            continue
        refusal(rows)
