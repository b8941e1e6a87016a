"""Where each request's time went: parts that add up in every run, cases computed by hand, and what
is not claimed.
"""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import Request, SamplingParams, Trace, Workload
from core.account.delays import NAMES, SHARE_NAMES, TIME_SHARES, Gap, delays
from core.account.metrics import wall_s
from core.account.pass_sizes import PassSizes, median_low
from core.account.request_times import request_times
from core.config import ASSETS, POLICIES, EngineConfig
from core.policy import LimitReached
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.trace.events import NOTHING_BINDS, Admitted, Carried, Resumed, Segment, Stalled
from core.trace.phrases import queued_by
from core.trace.run_state import RunState
from visualizer.words.delays import gap_sentence, wait_sentence
from visualizer.words.vocabulary import plain
from worlds.delays import adds_up
from worlds.examples import examples
from worlds.hiccups import far_steps
from worlds.visual import record, request

SHIPPED = [
    *sorted((ASSETS / "traces").rglob("*.jsonl")),
    *sorted((ASSETS / "comparisons").rglob("*.jsonl.gz")),
]


def parts(delay) -> dict[str, int]:
    """The parts that are not 0, in microseconds."""
    return {name: us for name, us in zip(NAMES, delay.us, strict=True) if us}


def steps(delay) -> dict[str, int]:
    return {name: n for name, n in zip(NAMES, delay.steps, strict=True) if n}


def taking(trace: Trace, milliseconds: dict[int, float]) -> Trace:
    """The run with some steps' passes as long as that; steps still begin every ten milliseconds,
    later ones when the one before has ended.
    """
    events, now = [], 0.0
    for event in trace.events:
        start = max(now, event.t_start)
        passes, at = [], start
        for forward in event.passes:
            end = at + milliseconds.get(event.step, 1.0) / 1e3
            passes.append(forward._replace(t_start=round(at, 6), t_end=round(end, 6)))
            at = end
        now = at + 0.001
        arrived = tuple(a._replace(t=round(start, 6)) for a in event.arrived)
        events.append(
            event._replace(
                t_start=round(start, 6), t_end=round(now, 6), passes=tuple(passes), arrived=arrived
            )
        )
    return replace(trace, events=events)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_parts_of_every_shipped_run_add_up(path):
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8")
    ) as lines:
        adds_up(Trace.from_lines((line.rstrip("\n") for line in lines), trusted=True))


@given(
    policy=st.sampled_from(list(POLICIES)) | st.just("priority-first"),
    lanes=st.integers(1, 4),
    budget=st.integers(4, 20),
    blocks=st.integers(16, 40),
    asked=st.lists(
        st.tuples(
            st.integers(1, 30),
            st.integers(1, 12),
            st.integers(0, 10),
            st.integers(-1, 1),
            st.none() | st.integers(1, 12),
        ),
        min_size=1,
        max_size=8,
    ),
    costs=st.tuples(*[st.floats(1e-5, 1e-2)] * 3),
)
@examples(60)
def test_the_parts_of_simulated_runs_add_up(policy, lanes, budget, blocks, asked, costs):
    config = EngineConfig(
        policy,
        max_num_seqs=lanes,
        max_num_batched_tokens=max(budget, lanes),
        block_size=4,
        num_blocks=blocks,
    )
    if not config.chunked_prefill or not POLICIES[policy].token_budget:
        config = replace(config, max_num_batched_tokens=64)
    requests = [
        Request(
            f"r{i}",
            prompt_token_ids=(1,) * prompt,
            sampling=SamplingParams(new, ignore_eos=True),
            arrival=at,
            priority=priority,
            leaves_after=leaves,
        )
        for i, (prompt, new, at, priority, leaves) in enumerate(asked)
    ]
    cost = Linear(costs[0], costs[1], costs[2] / 1e4, 100, Load(8, 10_000))
    adds_up(SimulatedEngine(cost, config).run(Workload(requests)))


def test_a_long_prompt_beside_decodes_by_hand():
    """A decodes alone in 1 ms a step; in step 3 B's prompt shares its pass, which takes 40 ms: 39
    of them are B's.
    """
    trace = taking(
        record(EngineConfig(max_num_seqs=2), request("a", 4, 6), request("b", 30, 2, arrival=3)),
        {3: 40.0},
    )
    a, b = adds_up(trace).requests
    # Steps 0, 1, 2 begin at 0, 10, 20 ms, 3 at 30; 4 at 71 (40 ms of pass, 1 ms after it), 5 at 73.
    # A's last token comes at 74 ms.
    assert a.whole_us == 74_000
    assert parts(a) == {"prefill": 1_000, "decode": 5_000, "others": 39_000, "between": 29_000}
    assert steps(a) == {"prefill": 1, "decode": 4, "others": 1}
    assert parts(b) == {"prefill": 40_000, "decode": 1_000, "between": 1_000} and steps(b) == {
        "prefill": 1,
        "decode": 1,
    }
    worst = delays(trace).gaps[0]
    assert (worst.request, worst.token, worst.since, worst.step, worst.whole_us) == (
        "a",
        4,
        2,
        3,
        49_000,
    )
    assert (
        worst.cause == "others"
        and worst.prompts == (("b", 30),)
        and worst.together
        and not worst.uncompared
    )


def test_without_a_pass_to_compare_with_nothing_is_claimed():
    """A never decodes without a prompt beside it: its pass is its own, and said to be not
    compared.
    """
    trace = taking(
        record(EngineConfig(max_num_seqs=2), request("a", 4, 2), request("b", 30, 1, arrival=1)),
        {1: 40.0},
    )
    a, _ = adds_up(trace).requests
    assert (
        parts(a) == {"prefill": 1_000, "decode": 40_000, "between": 9_000}
        and a.uncompared_us == 40_000
    )
    (gap,) = delays(trace).gaps
    assert (
        gap.cause is None and gap.uncompared and gap.prompts == (("b", 30),) and gap.times is None
    )
    assert gap.to_json()["times"] is None and gap._replace(times=1.006).to_json()["times"] == 1.01


def test_decodes_are_compared_with_as_many_rows_or_the_nearest_number_within_twice():
    """Six requests decode together beside a prompt; alone only one ever does, which is no pass of
    like size.
    """
    six = [request(f"r{i}", 2, 3) for i in range(6)]
    found = adds_up(
        taking(
            record(EngineConfig(max_num_seqs=8), *six, request("late", 20, 8, arrival=2)), {2: 20.0}
        )
    )
    assert parts(found.requests[0])["others"] == 19_000  # step 1: six rows, 1 ms
    two = [request(f"r{i}", 2, 2) for i in range(6)]
    found = adds_up(
        taking(
            record(EngineConfig(max_num_seqs=8), *two, request("late", 20, 8, arrival=1)), {1: 20.0}
        )
    )
    assert "others" not in parts(found.requests[0]) and found.requests[0].uncompared_us == 20_000


def test_of_two_numbers_of_decodes_as_near_the_larger_one_is_compared_with():
    """Four decode for two steps, of 4 ms, then two for three steps, of 1 ms."""
    four = [request(f"r{i}", 2, 3 if i < 2 else 6) for i in range(4)]
    trace = taking(record(EngineConfig(max_num_seqs=8), *four), {1: 4.0, 2: 4.0})
    sizes = PassSizes(trace.events)
    assert [sizes.like(rows) for rows in (2, 3, 4, 8, 9)] == [1_000, 4_000, 4_000, 4_000, None]


def test_a_pass_is_compared_with_others_of_its_kind_and_at_most_twice_its_size():
    """Four prompts of two tokens, four decodes for two steps, of 8 and 4 ms, then one decode for
    two, of 2 and 1 ms.
    """
    four = [request(f"r{i}", 2, 5 if i == 0 else 3) for i in range(4)]
    milliseconds = {1: 8.0, 2: 4.0, 3: 2.0}
    events = taking(record(EngineConfig(max_num_seqs=4), *four), milliseconds).events
    sizes = PassSizes(events)
    assert [sizes.times(0, event) for event in events] == [None, 2.0, 0.5, 2.0, 0.5]
    # of four rows alone: fewer than half as many and more than twice as many are of no like size
    sizes = PassSizes(events[:3])
    assert [sizes.like(rows) for rows in (1, 2, 3, 8, 9)] == [None, 4_000, 4_000, 4_000, None]


def test_a_row_of_who_has_finished_counts_for_the_size_of_a_pass():
    """One goes on alone for three steps, of 3 ms, in passes of two rows all the same."""
    config = EngineConfig(policy="static", max_num_seqs=2)
    trace = record(config, request("a", 3, 2), request("b", 3, 5))
    sizes = PassSizes(taking(trace, dict.fromkeys((2, 3, 4), 3.0)).events)
    assert sizes.like(2) == 3_000


def test_a_slow_pass_without_a_prompt_is_nobodys_fault():
    """The control: nobody joins, and a step takes 50 times as long. It stays decoding, and the
    record has no cause.
    """
    trace = taking(
        record(EngineConfig(max_num_seqs=2), request("a", 4, 9), request("b", 4, 9)), {5: 50.0}
    )
    found = adds_up(trace)
    assert all("others" not in parts(d) for d in found.requests)
    assert (found.gaps[0].step, found.gaps[0].cause, found.gaps[0].times, found.gaps[0].beside) == (
        5,
        None,
        50.0,
        ("b",),
    )
    assert all(gap.times == 1.0 for gap in found.gaps[1:])


def test_waits_are_split_by_the_limit_of_each_step():
    """One lane: B waits from step 1 until A's last step (5) is over, and C behind B."""
    trace = record(
        EngineConfig(max_num_seqs=1),
        request("a", 3, 6),
        request("b", 3, 2, arrival=1),
        request("c", 3, 1, arrival=2),
    )
    a, b, c = adds_up(trace).requests
    assert a.queued_us == {} or set(a.queued_us) == {"none"}
    assert b.queued_us == {"lanes": 50_000} and b.queued_steps == {"lanes": 5} and b.first_step == 6
    assert c.queued_us == {"lanes": 60_000} and [d.request for d in delays(trace).waits] == [
        "c",
        "b",
    ]
    unknown = replace(
        trace, events=[e._replace(waiting=e.waiting._replace(why=None)) for e in trace.events]
    )
    assert adds_up(unknown).requests[1].queued_us == {"unrecorded": 50_000}
    blocks = [
        e._replace(waiting=e.waiting._replace(why=LimitReached("blocks", 1, 2, 9)))
        if e.step < 3
        else e
        for e in trace.events
    ]
    assert adds_up(replace(trace, events=blocks)).requests[1].queued_us == {
        "blocks": 20_000,
        "lanes": 30_000,
    }


def test_a_preempted_request_waits_and_computes_again():
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=10, block_size=2, num_blocks=13)
    trace = record(config, request("r0", 5, 20), request("r1", 6, 15), request("r2", 7, 9, 1))
    found = adds_up(trace)
    lost = {p.request for e in trace.events for p in e.preempted}
    assert lost == {d.request for d in found.requests if "preempted" in parts(d)} != set()
    assert lost == {d.request for d in found.requests if "again" in steps(d)}
    # away in as many steps as it holds no lane for, between its first pass and its last
    for d in found.requests:
        away = [e.step for e in trace.events if d.first_step < e.step <= trace.events[-1].step]
        held = {s.request: None for e in trace.events for s in e.segments}
        assert d.request in held and steps(d).get("preempted", 0) <= len(away)
    # all but their newest token, which had not been computed yet
    again = [(gap.request, gap.again) for gap in found.gaps if gap.cause == "preempted"]
    assert again[:2] == [("r2", 9), ("r1", 12)]


def test_a_gap_of_two_tells_what_is_computed_again_of_both():
    """C and D give way in step 1, and step 12 computes four and three of their positions again."""
    config = EngineConfig(
        "priority-first", max_num_seqs=4, max_num_batched_tokens=64, block_size=2, num_blocks=12
    )
    asked = [("a", 7, 12), ("b", 7, 9), ("c", 3, 10), ("d", 2, 9)]
    gaps = delays(record(config, *(request(*row) for row in asked))).gaps
    gap = next(g for g in gaps if g.beside and g.again)
    assert (gap.request, gap.beside, gap.since, gap.step, gap.again) == ("c", ("d",), 1, 12, 7)
    assert not gap.uncompared  # of a pass that computes again nothing is claimed
    assert "they are preempted, away for" in plain(gap_sentence(gap))
    assert "and 7 tokens are computed again" in plain(gap_sentence(gap))


def test_who_computes_nothing_in_a_step_is_stalled():
    config = EngineConfig(
        "stall", max_num_seqs=3, max_num_batched_tokens=10, block_size=2, num_blocks=13
    )
    trace = record(config, request("r0", 5, 20), request("r1", 6, 15), request("r2", 7, 9, 1))
    counted = {r: sum(s.request == r for e in trace.events for s in e.stalled) for r in trace.asked}
    assert {
        d.request: steps(d).get("stalled", 0) for d in adds_up(trace).requests
    } == counted and any(counted.values())


def test_prompts_in_a_pass_of_their_own_count_whole():
    """Policy split: B's prompt is computed in a pass before the decode pass, while A holds its
    lane.
    """
    trace = record(
        EngineConfig("split", max_num_seqs=2), request("a", 4, 6), request("b", 30, 2, arrival=3)
    )
    a, _ = adds_up(trace).requests
    assert parts(a)["others"] == 1_000 and steps(a)["others"] == 1 and a.uncompared_us == 0
    (gap,) = (gap for gap in delays(trace).gaps if (gap.request, gap.step) == ("a", 3))
    assert gap.prompts == (("b", 30),) and not gap.together and not gap.uncompared


def test_a_request_that_ends_before_others_prompts_are_computed_owes_them_nothing():
    """As in the test above, but A ends in a decode pass that comes first."""
    trace = record(
        EngineConfig("split", max_num_seqs=2), request("a", 4, 5), request("b", 30, 2, arrival=3)
    )
    both = trace.events[3]
    decode, prompt = both.passes[1], both.passes[0]
    swapped = both._replace(
        passes=tuple(
            one._replace(t_start=at.t_start, t_end=at.t_end)
            for one, at in ((decode, both.passes[0]), (prompt, both.passes[1]))
        ),
        segments=tuple(s._replace(pass_index=1 - s.pass_index) for s in both.segments),
        sampled=tuple(s._replace(pass_index=1 - s.pass_index) for s in both.sampled),
    )
    for event, expected in ((both, {"decode": 2, "others": 1}), (swapped, {"decode": 3})):
        events = [*trace.events[:3], event, *trace.events[4:]]
        assert steps(delays(replace(trace, events=events)).requests[0]) == {
            "prefill": 1,
            **expected,
        }


def test_who_waits_no_longer_than_a_step_takes_has_not_waited():
    trace = record(EngineConfig(max_num_seqs=2), request("a", 4, 6), request("b", 3, 2, arrival=3))
    fourth = trace.events[3]
    for us, waits in ((9_000, []), (9_001, ["b"])):
        came = fourth.arrived[0]._replace(t=round(fourth.passes[0].t_start - us / 1e6, 6))
        events = [*trace.events[:3], fourth._replace(arrived=(came,)), *trace.events[4:]]
        assert [d.request for d in delays(replace(trace, events=events)).waits] == waits


def test_a_run_that_was_cut_is_followed_to_its_end():
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 6), request("b", 3, 2, arrival=1))
    cut = replace(trace, events=trace.events[:4], complete=False)
    a, b = adds_up(cut).requests
    assert (
        a.reason is b.reason is None
        and b.queued_us == {"lanes": 29_000}
        and steps(b) == {"queued": 3}
    )
    assert (
        plain(wait_sentence(b))
        == "b waits 29.0 ms and its first pass is not on record: no lane is free."
    )
    two = b._replace(queued_us={"lanes": 20_000, "budget": 9_000})
    assert plain(wait_sentence(two)).endswith(
        ": no lane is free (20.0 ms), the token budget is spent (9.00 ms)."
    )


def test_nothing_is_claimed_of_steps_that_are_not_shown():
    """One lane, A in it and B behind; steps 3 and 4 are missing, and A goes on in step 5."""
    trace = record(
        EngineConfig(max_num_seqs=1),
        request("a", 3, 8),
        request("b", 3, 2, arrival=1),
        request("c", 3, 2, arrival=9),
    )
    state = RunState.of(trace.prompt_lengths)
    for event in trace.events[:5]:
        state.begin(event)
        state.end(event)
    carried = {r: Carried(r, lane, n, tables=((),)) for r, lane, n in [("a", 0, 7), ("b", None, 0)]}
    resumed = Resumed(3, 4, 2, (), (), (carried["a"],), (carried["b"],))
    events = [*trace.events[:3], trace.events[5]._replace(resumed=resumed), *trace.events[6:]]
    a, b, c = delays(replace(trace, events=events)).requests
    assert (a.reason, a.whole_us, a.whole_steps) == (None, 29_000, 3) and sum(a.us) == a.whole_us
    assert (b.reason, b.queued_us, b.whole_steps) == (None, {"lanes": 19_000}, 2)
    assert " and its first pass is not on record: " in plain(wait_sentence(b))  # the run goes on
    assert c.reason == "length" and sum(c.us) == c.whole_us


def test_a_run_begins_with_whoever_came_before_its_first_step():
    trace = record(EngineConfig(max_num_seqs=1), request("a", 4, 2))
    first = trace.events[0]
    came = first.arrived[0]._replace(t=first.t_start - 0.5)
    early = replace(trace, events=[first._replace(arrived=(came,)), *trace.events[1:]])
    assert wall_s(early) == pytest.approx(wall_s(trace) + 0.5)


def test_a_limit_is_named_from_a_fiftieth_of_a_wait_on_and_the_longest_first():
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 3), request("b", 3, 2))
    b = delays(trace).requests[1]
    whole = b.us[NAMES.index("queued")]
    for least, named in ((whole // 50, False), (whole // 50 + 1, True)):
        told = b._replace(queued_us={"budget": least, "lanes": whole - least})
        said = plain(wait_sentence(told))
        assert ("the token budget is spent" in said) == named
        assert said.split(": ")[1].startswith("no lane is free")


def test_every_part_and_limit_has_its_words():
    assert set(TIME_SHARES) == set(SHARE_NAMES) and queued_by("lanes") != queued_by(
        "unrecorded"
    ) != queued_by("none")


def test_a_quarter_of_a_gap_is_its_cause_and_less_is_none():
    for others, cause in ((250, "others"), (249, None)):
        us = tuple({"decode": 1000 - others, "others": others}.get(name, 0) for name in NAMES)
        assert Gap("a", 2, 0, 1000, us, 0, 1).cause == cause
    assert Gap("a", 2, 0, 0, (0,) * len(NAMES), 0, 1).cause is None


def _stalled(event) -> set[str]:
    return {stalled.request for stalled in event.stalled}


def test_of_the_limits_that_stalled_it_in_a_gap_the_first_is_told():
    config = EngineConfig(
        "stall", max_num_seqs=3, max_num_batched_tokens=10, block_size=2, num_blocks=13
    )
    trace = record(config, request("r0", 5, 20), request("r1", 6, 15), request("r2", 7, 9, 1))
    last = LimitReached("budget", 0, 1, 10)
    gap, stalled = max(
        (
            (gap, [e for e in trace.events[gap.since + 1 : gap.step] if gap.request in _stalled(e)])
            for gap in delays(trace).gaps
        ),
        key=lambda found: len(found[1]),
    )
    assert len(stalled) > 1
    events = [
        e._replace(stalled=tuple(s._replace(why=last) for s in e.stalled))
        if e is stalled[-1]
        else e
        for e in trace.events
    ]
    told = {g.step: g.why for g in delays(replace(trace, events=events)).gaps}
    assert told[gap.step].limit == "blocks"


def test_a_limit_that_stalls_it_in_another_gap_is_not_told():
    trace = record(EngineConfig(max_num_seqs=1), request("a", 4, 6))
    lacks = LimitReached("blocks", 0, 1, 9)
    stalled = trace.events[3]._replace(stalled=(Stalled("a", lacks),))
    gaps = delays(replace(trace, events=[*trace.events[:3], stalled, *trace.events[4:]])).gaps
    told = {gap.step: gap.why for gap in gaps}
    assert [told[step] for step in (1, 2, 3, 5)] == [None, None, lacks, None]


def test_of_an_even_number_the_smaller_in_the_middle_is_the_median_and_five_times_it_is_not_far():
    assert [median_low([1, 2]), median_low([1, 2, 3])] == [1, 2]
    trace = record(EngineConfig(max_num_seqs=1), request("a", 4, 9))
    # a step is a millisecond longer than its pass, and the other decodes take 1 ms
    assert far_steps(taking(trace, {5: 4.0}).events) == []
    assert far_steps(taking(trace, {5: 4.001}).events) == [(5, pytest.approx(5.001))]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_thrown_away_in_steps_that_are_not_shown_is_computed_again(is_known):
    """A has 5 positions after three steps, and gives way in one that is missing: of the 7 that it
    then reads five are computed again. If all before is missing, its first pass is not known.
    """
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 8))
    carried = Carried("a", None, 0, tuple(trace.outputs["a"][3:5]), ((),), was_preempted=True)
    came = () if is_known else (trace.events[0].arrived[0],)
    back = trace.events[5]._replace(
        resumed=Resumed(3 if is_known else 0, 4, 2, came, (), (), (carried,)),
        admitted=(Admitted("a", 0, NOTHING_BINDS),),
        segments=(Segment(0, "a", 0, "prefill", 0, 7, 7),),
    )
    events = [*(trace.events[:3] if is_known else ()), back]
    mine = request_times(replace(trace, events=events))["a"]
    assert mine.num_recomputed == (5 if is_known else 0)
    assert (mine.is_unseen, mine.first_pass is None) == (not is_known, not is_known)
