"""Places in runs: those that lessons name by what happens there, and those at which a saved page
opens.
"""

from __future__ import annotations

import pytest

from core.errors import InflightError
from core.trace.events import (
    KV,
    NOTHING_BINDS,
    Admitted,
    Arrived,
    Budget,
    Finished,
    Pass,
    Preempted,
    PrefixHit,
    Waiting,
)
from core.trace.trace import Trace
from visualizer.documents.places import checked_place
from visualizer.lessons.document import recorded
from visualizer.lessons.places import Place
from worlds.by_hand import computes, event


def joins(names: str) -> tuple[Admitted, ...]:
    return tuple(Admitted(name, 0, NOTHING_BINDS) for name in names)


def decodes(names: str, in_pass: int = 0):
    return [computes(name, 8, 1, "decode", in_pass) for name in names]


def short_of(limit: str) -> Budget:
    return Budget(16, 0, 0, 0, limit)


ONE = (Pass("packed", 1, 1, 1, 0, 0.0, 0.0),)
RUN = [
    event(
        0,
        arrived=tuple(Arrived(name, 0.0) for name in "abcde"),
        admitted=joins("ab"),
        passes=ONE,
        segments=(computes("a", 0, 4), computes("b", 0, 4)),
        waiting=Waiting(1),
    ),
    event(
        1,
        admitted=joins("c"),
        passes=ONE * 2,
        segments=(computes("c", 4, 2), *decodes("ab", 1)),
        waiting=Waiting(2),
        kv=KV(0, 9, (), (PrefixHit("c", 4),)),
    ),
    event(
        2,
        passes=ONE * 2,
        segments=(*decodes("b"), computes("c", 6, 2, in_pass=1), *decodes("a", 1)),
        budget=short_of("budget"),
    ),
    event(
        5,
        admitted=joins("de"),
        passes=ONE,
        segments=(computes("d", 0, 2), computes("e", 0, 2), *decodes("abc")),
        waiting=Waiting(1),
        budget=short_of("budget"),
    ),
    event(
        6,
        preempted=(Preempted("e", 2, 0),),
        passes=ONE,
        segments=(*decodes("abcd"),),
        budget=short_of("blocks"),
    ),
    event(
        7,
        admitted=joins("e"),
        passes=ONE,
        segments=(computes("e", 0, 3), *decodes("abcd")),
        finished=(Finished("a", "length"),),
        waiting=Waiting(1),
        budget=short_of("lanes"),
    ),
    event(8, passes=ONE, segments=(*decodes("bcde"),), finished=(Finished("e", "length"),)),
]


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ("start", 0),
        ("end", 8),
        ("after start", 1),
        ("after after after start", 5),
        ("before preempts", 5),
        ("after before preempts", 6),
        ("hits", 1),
        ("several_wait", 1),
        ("mixes", 2),  # in step 1 prompts and answers have a pass each
        ("mixes(2)", 5),
        ("mixes(3)", 7),
        ("chunks", 2),  # what step 1 goes on from was found
        ("chunks(2)", None),  # what continues an answer is no chunk
        ("two_join", 5),  # in step 0 nobody writes yet
        ("short_of_budget", 5),  # in step 2 nobody waits
        ("short_of_blocks", 6),
        ("preempts", 6),
        ("short_of_lanes", 7),
        ("admits(E)", 5),
        ("ends(A)", 7),
        ("ends(E)", 8),
        ("last_chunk(C)", 2),
        ("last_chunk(E)", 7),
        ("before start", None),
        ("after end", None),
        ("mixes(4)", None),
        ("admits(F)", None),
    ],
)
def test_a_rule_finds_the_step_in_which_it_holds(rule, step):
    trace = Trace(recorded()("one-request").header, {}, RUN)
    if step is None:
        with pytest.raises(InflightError, match="has no step"):
            Place("a run", rule).step(trace)
    else:
        assert Place("a run", rule).step(trace) == step


def took(step: int, start: float, end: float) -> dict:
    return {"step": step, "t_start": start, "t_end": end}


ALONE = {"events": [took(0, 1.0, 2.0), took(1, 2.0, 3.0)]}
TOGETHER = {  # rank 0 from 3 s to 5 s on the common clock, rank 1 from 2.5 s to 4.5 s
    "ranks": [
        {"rank": 0, "offset": 2.0, "replay": ALONE},
        {"rank": 1, "offset": 0.5, "replay": {"events": [took(7, 2.0, 4.0)]}},
        {"rank": 2, "offset": 0.0, "replay": {"events": []}},
    ]
}


@pytest.mark.parametrize(
    ("document", "asked", "place"),
    [
        (ALONE, {}, {}),
        (ALONE, {"step": 0}, {"step": 0}),
        (ALONE, {"step": 2}, "This run has no step 2."),
        (ALONE, {"at": 0.5}, {"at": 1.0}),
        (ALONE, {"rank": 0}, "There is no rank 0 here."),
        ({"events": []}, {"step": 3}, {}),
        (TOGETHER, {"step": 7}, {"step": 7}),
        (TOGETHER, {"step": 7, "rank": 1}, {"step": 7, "rank": 1}),
        (TOGETHER, {"step": 7, "rank": 0}, "This run has no step 7."),
        (TOGETHER, {"rank": 3}, "There is no rank 3 here."),
        (TOGETHER, {"step": 7, "rank": 2}, {"rank": 2}),
        (TOGETHER, {"at": 2.75}, {"at": 2.75}),
        (TOGETHER, {"at": 2.0}, {"at": 2.5}),
        (TOGETHER, {"at": 9.0}, {"at": 5.0}),
        (TOGETHER, {"rank": 0, "at": 0.0}, {"rank": 0, "at": 3.0}),
        (TOGETHER, {"rank": 1, "at": 9.0}, {"rank": 1, "at": 4.5}),
    ],
)
def test_a_page_opens_where_there_is_something(document, asked, place):
    if isinstance(place, str):
        with pytest.raises(InflightError, match=f"^{place}$"):
            checked_place(document, **asked)
    else:
        assert checked_place(document, **asked) == place
