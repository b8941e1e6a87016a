"""Ranks of one engine on one clock: where each lies, by the best clock that all have, and a
sentence for whatever is wrong with them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest

from core.errors import InvalidTrace
from core.trace.ranks import Ranks
from worlds.ranks import ranks, records, text
from worlds.small import memory_trace

LATER = 60 * 10**9  # ns


def first_arrival(rank: int) -> float:
    return min(a["t"] for step in records(rank)[1:] for a in step["arrived"])


def clock(rank: int) -> dict:
    return records(rank)[0]["clock"]


def test_two_ranks_of_a_machine_lie_as_its_clock_says():
    """By hand: a rank's zero is its first arrival, so many seconds into a recording that began at
    so many nanoseconds.
    """
    zeros = [clock(rank)["monotonic_ns"] / 1e9 + first_arrival(rank) for rank in (0, 1)]
    found = ranks(text(1), text(0))
    assert found.alignment == "machine" and found.count == 2 and found.faults == ()
    assert [rank.number for rank in found.ranks] == [0, 1]
    assert [rank.offset for rank in found.ranks] == pytest.approx(
        [zero - min(zeros) for zero in zeros], abs=1e-6
    )
    for rank, found_rank in enumerate(found.ranks):
        steps = records(rank)[1:]
        start = clock(rank)["monotonic_ns"] / 1e9 - min(zeros)
        assert found_rank.span == pytest.approx(
            (start + steps[0]["t_start"], start + steps[-1]["t_end"]), abs=2e-6
        )


def test_ranks_that_do_not_know_how_many_there_are_are_counted():
    (rank,) = ranks(text(1)).ranks
    trace = rank.trace
    trace.header = replace(trace.header, engine=replace(trace.header.engine, ranks=None))
    found = Ranks.of([("1.jsonl", trace)])
    assert found.count == 2 and found.faults == ("Of 2 ranks, rank 0 is not among these files.",)


def test_another_machine_is_aligned_by_wall_clock():
    away = clock(1) | {"boot": "elsewhere", "monotonic_ns": 5}
    found = ranks(text(0), text(1, clock=away))
    zeros = [clock(rank)["wall_ns"] / 1e9 + first_arrival(rank) for rank in (0, 1)]
    assert found.alignment == "wall" and found.faults == ()
    assert [rank.offset for rank in found.ranks] == pytest.approx(
        [zero - min(zeros) for zero in zeros], abs=1e-5
    )


@pytest.mark.parametrize("fact", ["boot", "monotonic_ns"])
def test_a_machine_that_names_no_boot_or_no_time_since_is_not_taken_for_the_same(fact):
    traces = [rank.trace for rank in ranks(text(0), text(1)).ranks]
    for trace in traces:
        engine = trace.header.engine
        known = replace(engine, clock=replace(engine.clock, **{fact: None}))
        trace.header = replace(trace.header, engine=known)
    assert Ranks.of(("a rank", trace) for trace in traces).alignment == "wall"


def test_of_no_ranks_nothing_can_be_opened():
    with pytest.raises(InvalidTrace, match=r"^there is no recording to open\.$"):
        Ranks.of([])


def test_recordings_without_a_clock_are_aligned_to_the_second_or_not_at_all():
    old = ranks(text(0, drop=("clock",)), text(1, drop=("clock",)))
    began = [
        datetime.fromisoformat(records(rank)[0]["created"]).timestamp() + first_arrival(rank)
        for rank in (0, 1)
    ]
    assert old.alignment == "second"
    assert [rank.offset for rank in old.ranks] == pytest.approx(
        [zero - min(began) for zero in began], abs=1e-5
    )
    assert ranks(text(0), text(1, drop=("clock",))).alignment == "second"  # the best that both have
    none = ranks(*(text(rank, drop=("clock", "created")) for rank in (0, 1)))
    assert none.alignment == "first step"
    assert none.ranks[0].span[0] == pytest.approx(none.ranks[1].span[0]) and none.faults == ()
    assert min(rank.offset for rank in none.ranks) == 0.0 < max(rank.offset for rank in none.ranks)


def test_what_is_wrong_is_said_and_the_rest_opens():
    assert ranks(text(1)).faults == ("Of 2 ranks, rank 0 is not among these files.",)
    assert ranks(text(0, ranks=4), text(1, ranks=4)).faults == (
        "Of 4 ranks, ranks 2, 3 are not among these files.",
    )
    for count, absent in ((10, "ranks 2, 3, 4, 5, 6, 7, 8, 9 are"), (11, "9 are")):
        assert ranks(text(0, ranks=count), text(1, ranks=count)).faults == (
            f"Of {count} ranks, {absent} not among these files.",
        )
    assert ranks(text(0), text(1, version="0.30.0")).faults == (
        "Rank 1 is of vLLM 0.30.0, rank 0 of vLLM 0.32.0.",
    )
    assert ranks(text(0, drop=("version", "vllm")), text(1)).faults == (
        "Rank 1 is of vLLM 0.32.0, rank 0 of vLLM.",
    )
    late = clock(1) | {of: clock(1)[of] + LATER for of in ("monotonic_ns", "wall_ns")}
    (parted,) = ranks(text(0), text(1, clock=late)).faults
    assert parted.startswith("Rank 0 had ended 5") and parted.endswith(
        "s before rank 1 began: these may be two runs."
    )


OTHERS = " than rank 0: these may be ranks of two engines."


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (text(1), None),
        (
            text(1, max_num_batched_tokens=65),
            "Rank 1 has another “max_num_batched_tokens”" + OTHERS,
        ),
        (text(1, dtype="bfloat16"), "Rank 1 has another “dtype”" + OTHERS),
        (text(1, async_scheduling=True), "Rank 1 has another “async”" + OTHERS),
        (text(1, vocab_size=4096), "Rank 1 has another “vocab_size”" + OTHERS),
        (
            text(1, clock=clock(1) | {"wall_ns": clock(1)["wall_ns"] + 10**9}),
            "The clocks of rank 1 and rank 0 differ by 1.0 s: they were set, or are not of one"
            " machine.",
        ),
        (text(1, clock=clock(1) | {"wall_ns": clock(1)["wall_ns"] + 10**8}), None),
        (
            text(0, rank=1),
            f"{sum(len(step['arrived']) for step in records(0)[1:])} requests are in more than one"
            " rank: these may be copies of one recording.",
        ),
    ],
)
def test_ranks_that_contradict_each_other_are_doubted(other: str, says: str | None):
    assert ranks(text(0), other).faults == (() if says is None else (says,))


def test_ranks_that_disagree_on_their_number_are_doubted():
    absent = "Of 5 ranks, ranks 2, 3, 4 are not among these files."
    said = "Rank 0 is said to be one of 3, and there are 5."
    assert ranks(text(0, ranks=3), text(1, ranks=5)).faults == (absent, said)
    assert ranks(text(0, ranks=5), text(1, ranks=5)).faults == (absent,)


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (text(1, clock={"monotonic_ns": "x", "wall_ns": 1}), "damaged"),
        (text(1, ranks="x"), "wrong kind"),
        (
            "".join(text(1).splitlines(keepends=True)[:1] + text(1).splitlines(keepends=True)[20:]),
            "raw.jsonl, and there is no snapshot",
        ),
        ("this is no recording\n", "line 1"),
    ],
    ids=["clock", "ranks", "beginning", "text"],
)
def test_a_rank_that_cannot_be_opened_is_told_of_and_the_others_open(damaged, why):
    opened = ranks(text(0), damaged)
    assert [rank.number for rank in opened.ranks] == [0]
    refused, *missing = opened.faults
    assert refused.startswith("1.raw.jsonl cannot be opened: ") and why in refused
    # who it is, a header says
    assert missing == (["Of 2 ranks, rank 1 is not among these files."] if why != "line 1" else [])
    with pytest.raises(InvalidTrace, match=why):
        ranks(damaged)


def test_a_clock_that_runs_backwards_and_a_file_that_breaks_off_are_told_of_their_rank():
    header, *steps = records(1)
    for step in steps[20:]:
        for name in ("t_start", "t_scheduled", "t_output", "t_end"):
            step[name] -= 5
    back = ranks(text(0), "".join(json.dumps(record) + "\n" for record in (header, *steps)))
    assert back.faults == (
        "Rank 1: The clock of this recording runs backwards, so its times cannot be trusted.",
    )
    alone = ranks("".join(json.dumps(record) + "\n" for record in (header, *steps)))
    missing = "Of 2 ranks, rank 0 is not among these files."
    assert alone.faults == (missing, *back.faults) and alone.ranks[0].number == 1
    cut = ranks(text(0), text(1)[:-9])
    assert (
        cut.faults[0].startswith("Rank 1: 1.raw.jsonl breaks off in line ")
        and not cut.ranks[1].trace.complete
    )
    assert all(len(found.ranks) == 2 and found.alignment == "machine" for found in (back, cut))


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ((text(0), text(0, pid=1)), "two recordings of rank 0; open one at a time"),
        ((text(0), text(1, model="another")), "recordings of two engines: their model differs"),
        ((text(0), text(1, engine="other")), "recordings of two engines: their name differs"),
        ((text(0), "\n".join(memory_trace((3,)).lines()) + "\n"), "is a run of this engine"),
        (
            (text(0), text(1, clock={"monotonic_ns": 1, "wall_ns": 2**63})),
            "a time that no clock shows",
        ),
        ((text(0), text(1, rank=[])), "does not say which rank"),
        ((text(0), text(1, rank=-1)), "does not say which rank"),
    ],
)
def test_what_does_not_belong_together_is_refused(files, sentence):
    with pytest.raises(InvalidTrace, match=sentence):
        ranks(*files)


def test_parts_of_a_rank_are_put_together():
    header, *steps = records(1)
    first = "".join(json.dumps(record) + "\n" for record in ({**header, "part": 1}, *steps[:15]))
    second = "".join(json.dumps(record) + "\n" for record in ({**header, "part": 2}, *steps[15:]))
    whole, parted = ranks(text(1)), ranks(first, second)
    assert parted.ranks[0].trace.events == whole.ranks[0].trace.events
