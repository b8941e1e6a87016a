"""The rules of another engine's steps, one by one, on small states counted by hand: each where it
just holds, and where it just does not.

The pool has nine blocks of four tokens. Whoever runs is a, b, c, … in lanes 0, 1, 2, …, in the
order of admission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.config import EngineConfig
from core.policy import POLICIES, RecordedPolicy
from core.trace.events import (
    KV,
    NOT_RECORDED,
    NOTHING_BINDS,
    UNRECORDED,
    Admitted,
    Arrived,
    BlockChange,
    Budget,
    Carried,
    Draft,
    Finished,
    FinishedRow,
    LaneReleased,
    LimitReached,
    Overrun,
    Pass,
    Preempted,
    PrefixHit,
    Resumed,
    Sampled,
    Segment,
    Stalled,
    StepEvent,
    Waiting,
)
from core.trace.header import EngineFacts, GroupFacts, Header, ModelFacts
from core.trace.inferred import inferred_by
from core.trace.rules import followable, resumption
from core.trace.rules.checker import Checker
from core.trace.rules.recorded import RecordedRules
from core.trace.run_state import RunState
from core.workload.request import Request, SamplingParams
from worlds.by_hand import computes, event

FIRST = POLICIES["continuous"]  # in order of arrival, and the newest gives way
PRIORITY = RecordedPolicy(name="priority", order_by="priority", victim="lowest priority")


def header(
    policy: Any = FIRST,
    *,
    chunked: bool = True,
    groups: tuple[GroupFacts, ...] = (),
    context: int | None = None,
    **engine: Any,
) -> Header:
    config = EngineConfig(policy, 3, 16, 4, 9, chunked)
    facts = {
        "config": config,
        "num_blocks": 9,
        "kv_groups": groups,
        "workload": "by hand",
        "arrival_unit": "s",
    }
    return Header(
        engine=EngineFacts(name="other", **engine), model=ModelFacts(context=context), **facts
    )


def state(*running: tuple[int, list[int]], waiting: str = "", tokens: int = 4) -> RunState:
    """running: how many tokens each has, and its blocks. waiting: their names, each with so many
    tokens.
    """
    names = "abcdefg"[: len(running)]
    return RunState(
        num_tokens={name: held for name, (held, _) in zip(names, running, strict=True)}
        | dict.fromkeys(waiting, tokens),
        waiting=deque(waiting),
        lanes=dict(enumerate(names)),
        tables={name: {0: list(blocks)} for name, (_, blocks) in zip(names, running, strict=True)},
    )


def forward(layout: str) -> Pass:
    return Pass(layout, 1, 1, 1, 0, 0.0, 0.0)


def says(found: str | None, fault: str | None) -> None:
    assert found is None if fault is None else found is not None and fault in found, found


# -- who gives way ---------------------------------------------------------------------------------

SPARE = "was preempted although"
KEEPS_ONE = replace(FIRST, watermark=0.1)  # a tenth of the nine blocks and the null block
RING = GroupFacts(kind="ring", window=6)
LARGE = GroupFacts(kind="full_attention", block_size=8)
PAIRS = GroupFacts(kind="full_attention", block_size=8, units=2)
STATES = GroupFacts(kind="mamba")


@pytest.mark.parametrize(
    ("of", "running", "computed", "fault"),
    [
        # a lacks one block for its ninth token
        pytest.param(
            header(),
            [(9, [0, 1]), (24, [2, 3, 4, 5, 6, 7])],
            (),
            SPARE,
            id="one is free and one needed",
        ),
        pytest.param(
            header(), [(9, [0, 1]), (28, [2, 3, 4, 5, 6, 7, 8])], (), None, id="none is free"
        ),
        pytest.param(
            header(KEEPS_ONE),
            [(9, [0, 1]), (24, [2, 3, 4, 5, 6, 7])],
            (),
            None,
            id="the one that is free is kept",
        ),
        pytest.param(
            header(KEEPS_ONE),
            [(9, [0, 1]), (20, [2, 3, 4, 5, 6])],
            (),
            SPARE,
            id="one of two is kept",
        ),
        pytest.param(
            header(),
            [(9, [0, 1]), (28, [0, 2, 3, 4, 5, 6, 7])],
            (),
            SPARE,
            id="a shared block is taken once",
        ),
        pytest.param(
            header(),
            [(9, [0, 1]), (20, [2, 3, 4, 5, 6, 7, 8])],
            (),
            None,
            id="blocks to spare are nobody else's",
        ),
        pytest.param(
            header(kv_connector="Nixl"),
            [(9, [0, 1]), (4, [2])],
            (),
            None,
            id="a connector may hold blocks",
        ),
        # speculation: a and b have all blocks for their own tokens
        pytest.param(
            header(num_spec_tokens=2),
            [(6, [0, 1]), (23, [2, 3, 4, 5, 6, 7])],
            (),
            None,
            id="blocks for two steps' drafts",
        ),
        pytest.param(
            header(num_spec_tokens=2),
            [(4, [0, 1]), (20, [2, 3, 4, 5, 6, 7])],
            (),
            SPARE,
            id="no blocks for a third step's",
        ),
        pytest.param(
            header(),
            [(8, [0, 1]), (28, [2, 3, 4, 5, 6, 7, 8])],
            [computes("a", 8, 1)],
            None,
            id="for a token in vain",
        ),
        # groups
        pytest.param(
            header(groups=(RING,)),
            [(20, [0, 1]), (20, [2, 3])],
            (),
            SPARE,
            id="a ring is never longer than its window",
        ),
        pytest.param(
            header(groups=(LARGE,)),
            [(9, [0]), (56, [1, 2, 3, 4, 5, 6, 7])],
            (),
            SPARE,
            id="larger blocks",
        ),
        pytest.param(
            header(groups=(LARGE,)),
            [(8, [0]), (8, [1])],
            (),
            SPARE,
            id="larger blocks that are full",
        ),
        pytest.param(
            header(groups=(PAIRS,)),
            [(9, [0]), (8, [1, 2, 3, 4, 5, 6, 7])],
            (),
            None,
            id="two blocks at once",
        ),
        pytest.param(
            header(groups=(STATES,)),
            [(4, [0]), (28, [1, 2, 3, 4, 5, 6, 7])],
            (),
            None,
            id="a state may take one more each",
        ),
        pytest.param(
            header(groups=(STATES,)),
            [(4, [0]), (24, [1, 2, 3, 4, 5, 6])],
            (),
            SPARE,
            id="a state takes no more than that",
        ),
        pytest.param(
            header(groups=(STATES,), num_spec_tokens=1),
            [(4, [0]), (12, [1, 2, 3])],
            (),
            None,
            id="a state for each draft",
        ),
        pytest.param(
            header(groups=(STATES,), num_spec_tokens=1),
            [(4, [0]), (8, [1, 2])],
            (),
            SPARE,
            id="a state for no more drafts",
        ),
    ],
)
def test_a_request_gives_way_only_for_want_of_blocks(of, running, computed, fault):
    newest = event(preempted=(Preempted("b", 4, 1),), segments=tuple(computed))
    says(RecordedRules(of).preemptions(newest, state(*running)), fault)


def test_an_engine_may_take_back_the_blocks_of_all():
    """As vLLM does where its prefix cache is reset; but not of all except one."""
    rules, running = RecordedRules(header()), state((4, [0]), (4, [1]), (4, [2]))
    gone = [Preempted(name, 4, lane) for lane, name in enumerate("abc")]
    says(rules.preemptions(event(preempted=tuple(gone)), running), None)
    says(rules.preemptions(event(preempted=tuple(gone[1:])), running), SPARE)


def test_drafts_that_no_header_announces_have_blocks_too():
    """Three in this step and three in the one before: with 3 tokens a may need three blocks, with 2
    only two; one is free.
    """
    rules, newest = RecordedRules(header()), event(preempted=(Preempted("b", 4, 1),))
    says(rules.numbering(event(0, drafts=(Draft("b", 3, 0),)), state()), None)
    full = (22, [1, 2, 3, 4, 5, 6, 7])
    says(rules.preemptions(newest, state((3, [0]), full)), None)
    says(rules.preemptions(newest, state((2, [0]), full)), SPARE)


# -- lanes and the queue ---------------------------------------------------------------------------

GAP = Resumed(1, 3, 3, (), (), (), ())


@pytest.mark.parametrize(
    ("before", "step", "resumed", "fault"),
    [
        (0, 1, None, None),
        (0, 2, None, "missing"),
        (0, 4, GAP, None),
        (1, 4, GAP, "missing"),  # step 1 is there, and said to be missing
        (0, 5, GAP, "missing"),  # step 4 is not there, and not said to be missing
    ],
)
def test_a_gap_is_as_long_as_it_says(before, step, resumed, fault):
    rules = RecordedRules(header())
    for number in range(before + 1):
        says(rules.numbering(event(number), state()), None)
    says(rules.numbering(event(step, resumed=resumed), state()), fault)


@pytest.mark.parametrize(
    ("lanes", "fault"),
    [
        ({"b": 1, "c": 0}, None),  # a has left, and c takes its lane
        ({"c": 0, "b": 1}, None),  # admitted again
        ({"a": 0, "c": 1}, None),
        ({"b": 1, "c": 2}, "lane that the header's rule"),
        ({"b": 0, "c": 1}, "lane that the header's rule"),  # b would have moved
        ({"b": 0}, "lane that the header's rule"),
    ],
)
def test_after_a_gap_who_was_there_has_its_lane_and_others_the_lowest(lanes, fault):
    known = state((4, [0]), (4, [1]))
    resumed = GAP._replace(running=tuple(Carried(name, lane, 4) for name, lane in lanes.items()))
    says(RecordedRules(header()).lanes_after(resumed, known), fault)


def test_after_a_gap_the_lane_of_who_had_finished_is_free():
    """a had ended before the gap, and its id came again in the gap, after b had taken lane 0."""
    known = state((4, [0]))
    known.finished["a"] = 0
    resumed = GAP._replace(running=(Carried("b", 0, 4), Carried("a", 1, 4)))
    says(RecordedRules(header()).lanes_after(resumed, known), None)


def test_who_is_passed_over_waits_for_something_that_nobody_recorded():
    second = (Admitted("d", 1, NOTHING_BINDS),)
    for why, fault in (
        (UNRECORDED, None),
        (LimitReached("budget", 0, 4, 16), "before another that came first"),
    ):
        told = event(admitted=second, waiting=Waiting(1, "c", why))
        says(RecordedRules(header()).admissions(told, state((4, [0]), waiting="cd")), fault)


LACKS = LimitReached("budget", 0, 4, 16)
NOT_HEAD = "said to be the head"


@pytest.mark.parametrize(
    ("of", "why", "told", "fault"),
    [
        pytest.param(header(), LACKS, {"head": "d"}, NOT_HEAD, id="the second by arrival"),
        pytest.param(
            header(kv_connector="Nixl"), LACKS, {"head": "d"}, None, id="held by a connector"
        ),
        pytest.param(
            header(RecordedPolicy(name="own", order_by="not recorded", victim="")),
            LACKS,
            {"head": "d"},
            None,
            id="in an order of its own",
        ),
        pytest.param(header(PRIORITY), LACKS, {"head": "c"}, None, id="who was next"),
        pytest.param(header(PRIORITY), LACKS, {"head": "d"}, NOT_HEAD, id="another who was there"),
        pytest.param(
            header(PRIORITY),
            UNRECORDED,
            {"head": "d"},
            None,
            id="who was next may have been passed over",
        ),
        pytest.param(
            header(PRIORITY), LACKS, {"head": "d", "resumed": GAP}, None, id="after a gap anybody"
        ),
        pytest.param(
            header(PRIORITY),
            LACKS,
            {"head": "d", "arrived": (Arrived("d", 0.0),)},
            None,
            id="a newcomer",
        ),
        pytest.param(
            header(PRIORITY),
            LACKS,
            {"head": "d", "preempted": (Preempted("d", 4, 0),)},
            None,
            id="who gave way",
        ),
        pytest.param(
            header(PRIORITY), LACKS, {"head": "d", "left": "c"}, None, id="who was next has joined"
        ),
        pytest.param(
            header(PRIORITY),
            LACKS,
            {"head": "c", "admitted": (Admitted("e", 1, NOTHING_BINDS),)},
            NOT_HEAD,
            id="another joined first",
        ),
        pytest.param(
            header(PRIORITY),
            LACKS,
            {
                "head": "c",
                "arrived": (Arrived("e", 0.0),),
                "admitted": (Admitted("e", 1, NOTHING_BINDS),),
            },
            None,
            id="a newcomer joined first",
        ),
    ],
)
def test_who_is_next_stays_next_until_it_joins_or_another_comes(of, why, told, fault):
    """c was next in the step before, for this reason."""
    rules, waiting = RecordedRules(of), "cd"
    says(rules.numbering(event(0), state()), None)
    says(rules.queue(event(0, waiting=Waiting(2, "c", why)), state(waiting=waiting)), None)
    facts = dict(told)
    head, left = facts.pop("head"), facts.pop("left", "")
    now = event(4 if "resumed" in facts else 1, waiting=Waiting(1, head, LACKS), **facts)
    says(rules.numbering(now, state()), None)
    says(
        rules.queue(now, state((4, [0]), waiting=waiting.replace(left, "") if left else waiting)),
        fault,
    )


# -- reasons ---------------------------------------------------------------------------------------

CHUNKS = replace(KEEPS_ONE, reserve="chunk")
BLOCKED = replace(FIRST, victim="blocked")
SLIDES = GroupFacts(kind="sliding_window", window=6)
GAVE_WAY = (Preempted("c", 4, 2),)
UNFIT, DOES_NOT_FOLLOW = "do not fit its limit", "does not follow"


@pytest.mark.parametrize(
    ("of", "running", "used", "left", "why", "fault"),
    [
        # c, with 12 tokens to compute, needs three blocks
        pytest.param(header(), 1, 6, 16, UNRECORDED, None, id="three blocks are free"),
        pytest.param(header(), 1, 7, 16, LimitReached("blocks", 2, 3, 9), None, id="two are free"),
        pytest.param(
            header(),
            1,
            7,
            16,
            LimitReached("blocks", 1, 3, 9),
            DOES_NOT_FOLLOW,
            id="one more is free than it says",
        ),
        pytest.param(
            header(KEEPS_ONE),
            1,
            6,
            16,
            LimitReached("blocks", 2, 3, 9),
            None,
            id="one of three is kept",
        ),
        pytest.param(
            header(KEEPS_ONE),
            0,
            6,
            16,
            LimitReached("blocks", 2, 3, 9),
            DOES_NOT_FOLLOW,
            id="none is kept where nobody runs",
        ),
        pytest.param(
            header(),
            1,
            7,
            4,
            LimitReached("blocks", 2, 3, 9),
            None,
            id="all of the prompt is reserved",
        ),
        pytest.param(
            header(CHUNKS),
            1,
            7,
            5,
            LimitReached("blocks", 1, 2, 9),
            None,
            id="one chunk is reserved",
        ),
        pytest.param(
            header(CHUNKS),
            1,
            7,
            4,
            LimitReached("blocks", 1, 3, 9),
            DOES_NOT_FOLLOW,
            id="one chunk is reserved, not all",
        ),
        pytest.param(
            header(groups=(replace(SLIDES, most_blocks=2),)),
            1,
            8,
            16,
            LimitReached("blocks", 1, 2, 9),
            None,
            id="a window never needs more than two",
        ),
        pytest.param(
            header(groups=(replace(SLIDES, most_blocks=2, units=2),)),
            1,
            6,
            16,
            LimitReached("blocks", 3, 4, 9),
            None,
            id="nor more than two of two units",
        ),
        pytest.param(
            header(groups=(replace(SLIDES, most_blocks=4),)),
            1,
            7,
            16,
            LimitReached("blocks", 2, 3, 9),
            None,
            id="a short prompt needs no more than its own",
        ),
        pytest.param(
            header(), 1, 6, 0, LimitReached("budget", 0, 12, 16), None, id="the budget is spent"
        ),
        pytest.param(
            header(),
            3,
            6,
            0,
            LimitReached("lanes", 0, 1, 3),
            None,
            id="lanes come before the budget",
        ),
        pytest.param(
            header(), 1, 6, 0, LimitReached("budget", 0, 12, 17), UNFIT, id="another budget"
        ),
    ],
)
def test_why_the_head_waits_follows_from_lanes_budget_and_blocks(
    of, running, used, left, why, fault
):
    budget = Budget(16, 0, 16 - left, left, why.limit)
    told = event(waiting=Waiting(1, "z", why), kv=KV(used, 9), budget=budget)
    says(
        RecordedRules(of).reasons(
            told, state(*[(4, [n]) for n in range(running)], waiting="z", tokens=12)
        ),
        fault,
    )


@pytest.mark.parametrize(
    ("of", "used", "left", "gave_way", "why", "fault"),
    [
        pytest.param(
            header(),
            9,
            8,
            GAVE_WAY,
            LimitReached("blocks", 0, 1, 9),
            None,
            id="no block, and another gave way",
        ),
        pytest.param(
            header(),
            9,
            8,
            (),
            LimitReached("blocks", 0, 1, 9),
            DOES_NOT_FOLLOW,
            id="no block, and nobody gave way",
        ),
        pytest.param(
            header(BLOCKED),
            9,
            8,
            (),
            LimitReached("blocks", 0, 1, 9),
            None,
            id="whoever lacks a block is skipped",
        ),
        pytest.param(
            header(),
            8,
            8,
            GAVE_WAY,
            LimitReached("blocks", 0, 1, 9),
            DOES_NOT_FOLLOW,
            id="a block is free",
        ),
        pytest.param(
            header(), 8, 0, (), LimitReached("budget", 0, 1, 16), None, id="the budget is spent"
        ),
        pytest.param(header(), 8, 8, (), UNRECORDED, None, id="not recorded"),
        pytest.param(
            header(), 9, 8, GAVE_WAY, LimitReached("blocks", 0, 1, 8), UNFIT, id="another pool"
        ),
    ],
)
def test_why_a_request_stalls_follows_from_budget_and_blocks(of, used, left, gave_way, why, fault):
    told = event(
        stalled=(Stalled("a", why),),
        preempted=gave_way,
        kv=KV(used, 9),
        budget=Budget(16, 16 - left, 0, left, "none"),
    )
    says(RecordedRules(of).reasons(told, state((9, [0, 1]))), fault)


@pytest.mark.parametrize(
    ("longest", "start", "length", "left", "why", "fault"),
    [
        (None, 0, 12, 4, NOTHING_BINDS, None),
        (None, 0, 8, 0, LimitReached("budget", 8, 12, 16), None),
        (None, 4, 8, 0, NOTHING_BINDS, None),  # the first four were found
        (None, 4, 4, 0, LimitReached("budget", 4, 8, 16), None),
        (None, 0, 8, 8, LimitReached("budget", 8, 12, 16), DOES_NOT_FOLLOW),
        (6, 0, 6, 10, LimitReached("chunk", 6, 12, 6), None),
        (
            6,
            0,
            5,
            11,
            LimitReached("chunk", 6, 12, 6),
            DOES_NOT_FOLLOW,
        ),  # cut shorter, for another reason
        (6, 0, 5, 11, UNRECORDED, None),
    ],
)
def test_why_a_first_chunk_is_cut_follows_from_its_length(longest, start, length, left, why, fault):
    told = event(
        admitted=(Admitted("a", 0, why),),
        segments=(computes("a", start, length),),
        budget=Budget(16, 0, 16 - left, left, "none"),
    )
    says(
        RecordedRules(header(long_prefill_token_threshold=longest)).reasons(
            told, state((12, [0, 1, 2]))
        ),
        fault,
    )


# -- what a pass may hold --------------------------------------------------------------------------

LONGEST = header(long_prefill_token_threshold=6)
SHORT = header(context=12)
WHOLE = header(chunked=False)


@pytest.mark.parametrize(
    ("of", "segment", "more", "fault"),
    [
        pytest.param(header(), None, {"passes": ()}, None, id="no pass"),
        pytest.param(
            header(),
            None,
            {"passes": (forward("padded"),)},
            "laid out",
            id="a pass of another layout",
        ),
        pytest.param(
            header(),
            None,
            {"passes": (forward("packed"), forward("packed"))},
            "more than one pass",
            id="two passes",
        ),
        pytest.param(
            SHORT, computes("a", 11, 1, "decode"), {}, None, id="the last position of the context"
        ),
        pytest.param(
            SHORT, computes("a", 12, 1, "decode"), {}, "context of 12", id="one position beyond it"
        ),
        pytest.param(
            SHORT,
            computes("a", 12, 1, "decode"),
            {"overrun": (Overrun("a", 1),)},
            None,
            id="one beyond it in vain",
        ),
        pytest.param(
            SHORT,
            computes("a", 11, 3, "decode"),
            {"drafts": (Draft("a", 2, 0),)},
            None,
            id="drafts beyond it",
        ),
        pytest.param(LONGEST, computes("a", 0, 6), {"waits": "z"}, None, id="the longest chunk"),
        pytest.param(
            LONGEST,
            computes("a", 0, 7),
            {"waits": "z"},
            "more than 6 tokens",
            id="a longer one while another waits",
        ),
        pytest.param(
            LONGEST,
            computes("a", 0, 7),
            {"runs": True},
            "more than 6 tokens",
            id="a longer one while another runs",
        ),
        pytest.param(LONGEST, computes("a", 0, 12), {}, None, id="a longer one alone"),
        pytest.param(
            LONGEST,
            computes("a", 6, 8),
            {"waits": "z", "drafts": (Draft("a", 2, 0),)},
            None,
            id="drafts behind the longest",
        ),
        pytest.param(WHOLE, computes("a", 4, 8), {}, None, id="the rest of a prompt"),
        pytest.param(WHOLE, computes("a", 0, 8), {}, "in chunks although", id="a part of a prompt"),
        pytest.param(
            WHOLE,
            computes("a", 0, 13),
            {"drafts": (Draft("a", 2, 0),)},
            "in chunks although",
            id="a part with drafts behind it",
        ),
        pytest.param(
            header(chunked=False, long_prefill_token_threshold=6),
            computes("a", 0, 6),
            {"waits": "z"},
            None,
            id="a part that is the longest",
        ),
    ],
)
def test_a_pass_holds_what_the_header_allows(of, segment, more, fault):
    """a has 12 tokens."""
    facts = {"passes": (forward("packed"),), "segments": (segment,) if segment else ()} | more
    beside = [(4, [3])] if facts.pop("runs", False) else []
    waits = facts.pop("waits", "")
    says(
        RecordedRules(of).chunks(event(**facts), state((12, [0, 1, 2]), *beside, waiting=waits)),
        fault,
    )


# -- what can be followed at all -------------------------------------------------------------------


def test_the_step_after_a_gap_is_none_of_those_that_are_missing():
    of = header()
    says(resumption.followable(event(4, resumed=GAP), state(), of), None)
    says(resumption.followable(event(3, resumed=GAP), state(), of), "cannot be missing")


def test_a_token_from_a_gap_is_in_the_vocabulary():
    of = header()
    beyond = replace(of, model=replace(of.model, vocab_size=9))
    for token, fault in ((8, None), (9, "beyond the vocabulary")):
        known = state((5, [0, 1]))
        resumed = GAP._replace(running=(Carried("a", 0, 4, (token,), ((0, 1),)),))
        says(resumption.oddity(resumed, known, beyond), fault)


def test_of_a_prompt_that_is_found_a_token_is_left_to_compute():
    for cached, fault in ((3, None), (4, "cannot be found")):
        newest = event(
            admitted=(Admitted("d", 0, NOTHING_BINDS),),
            kv=KV(0, 9, prefix_hits=(PrefixHit("d", cached),)),
        )
        says(followable.admissions(newest, state(waiting="d"), header()), fault)


def test_who_is_first_in_the_queue_waits_for_a_reason():
    known = state(waiting="d")
    known.arrived["d"] = 0
    for waiting, fault in (
        (Waiting(1, "d", NOTHING_BINDS), None),
        (Waiting(1, "d", None), "queue is impossible"),
        (Waiting(1, None, NOTHING_BINDS), "queue is impossible"),
    ):
        says(followable.queue(event(waiting=waiting), known, header()), fault)


@pytest.mark.parametrize(
    ("part", "facts", "fault"),
    [
        pytest.param(
            followable.arrivals,
            {"arrived": (Arrived("d", 0.0),) * 2},
            "cannot arrive",
            id="comes twice",
        ),
        pytest.param(
            followable.cancellations,
            {"finished": (Finished("a", "cancelled"),) * 2},
            "finishes twice",
            id="ends twice",
        ),
        pytest.param(
            followable.queue,
            {"waiting": Waiting(-1)},
            "queue is impossible",
            id="fewer than none wait",
        ),
        pytest.param(
            followable.blocks,
            {"kv": KV(1, 9, changes=(BlockChange("c", (0,), False),))},
            "is not running",
            id="who has ended gets a block",
        ),
        pytest.param(
            followable.passes,
            {
                "segments": (computes("a", 4, 2),),
                "passes": (forward("packed")._replace(width=2, tokens=2),),
                "drafts": (Draft("a", 1, 0),) * 2,
            },
            "cannot have been drafted",
            id="guesses are told twice",
        ),
        pytest.param(
            followable.passes,
            {
                "segments": (computes("a", 4, 1),),
                "passes": (forward("packed")._replace(finished_rows=(FinishedRow("b", 1),)),),
            },
            "unknown layout",
            id="a packed row has a row of who has ended",
        ),
        pytest.param(
            followable.preemptions,
            {"preempted": (Preempted("a", -1, 0),)},
            "was not running",
            id="fewer than no tokens are lost",
        ),
        pytest.param(
            followable.preemptions,
            {"preempted": (Preempted("a", 0, 0),)},
            None,
            id="no tokens are lost",
        ),
    ],
)
def test_what_no_step_can_tell_cannot_be_followed(part, facts, fault):
    known = state((4, [0]), (4, [1]))
    known.num_tokens["d"] = 4
    known.arrived |= {"a": 0, "b": 0, "c": 0}
    known.finished["b"] = 0
    says(part(event(**facts), known, header()), fault)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"arrived": (Arrived("a", 0.0),)}, "cannot have arrived"),
        ({"running": (Carried("a", 0, 4, (-1,)),)}, "cannot have the state"),
        ({"running": (Carried("a", 0, 4, (1,)),)}, None),
        ({"first": 3, "last": 2}, "cannot be missing"),
        ({"first": -1}, "cannot be missing"),
        ({"missing": 0}, "cannot be missing"),
        ({"missing": 4}, "cannot be missing"),
        ({"arrived": (Arrived("x", 0.0),)}, "cannot have arrived"),
        ({"arrived": (Arrived("d", 0.0),) * 2}, "there twice"),
        ({"ended": (Finished("a", "stop"),) * 2}, "there twice"),
        ({"running": (Carried("a", 0, 4), Carried("a", 1, 4))}, "there twice"),
        ({"running": ()}, "not those that can be there"),
        ({"waiting": (Carried("d", None, 0),)}, "not those that can be there"),
        ({"arrived": (Arrived("d", 0.0),), "waiting": (Carried("d", None, 0),)}, None),
        ({"running": (), "ended": (Finished("a", "bored"),)}, "cannot have ended as it says"),
        ({"running": (), "ended": (Finished("a", NOT_RECORDED),)}, None),
        ({"running": (), "waiting": (Carried("a", None, 0),)}, None),
        ({"running": (), "waiting": (Carried("a", 0, 4),)}, "not those that run"),
        ({"running": (Carried("a", None, 4),)}, "not those that run"),
        (
            {"arrived": (Arrived("d", 0.0),), "running": (Carried("a", 0, 4), Carried("d", 0, 4))},
            "not those that run",
        ),
        ({"running": (Carried("a", 3, 4),)}, "there is no lane 3"),
        ({"running": (Carried("a", 0, -1),)}, "cannot have the state"),
        ({"running": (Carried("a", 0, 4, (), ((0,), (1,))),)}, "cannot have the state"),
        ({"running": (Carried("a", 0, 4, (), ((9,),)),)}, "a block that the pool does not have"),
        ({"running": (Carried("a", 0, 4, (), ((8, None),)),)}, None),
    ],
)
def test_who_goes_on_after_a_gap_was_there_or_came_in_it(facts, fault):
    """a was in lane 0; d has not come yet, and nobody knows x."""
    known = state((4, [0]))
    known.arrived["a"], known.num_tokens["d"] = 0, 4
    resumed = GAP._replace(**({"running": (Carried("a", 0, 4),)} | facts))
    says(resumption.followable(event(4, resumed=resumed), known, header()), fault)


def test_after_a_gap_only_who_writes_on_has_no_more_positions_than_tokens_and_blocks_for_them():
    carried = GAP._replace(running=(Carried("a", 0, 8, (), ((0, 1),)),))
    known = state((4, [0, 1]))
    says(resumption.oddity(carried, known, header()), "more positions than it has tokens")
    known.finished["a"] = 0  # and is still computed
    says(resumption.oddity(carried, known, header()), None)
    long = GAP._replace(running=(Carried("a", 0, 20, (), ((0,),)),))
    known = state((20, [0]))
    says(resumption.oddity(long, known, header()), "too few blocks")
    says(resumption.oddity(long, known, header(groups=(STATES,))), None)


@pytest.mark.parametrize(
    ("of_a", "of_b", "shares", "fault"),
    [
        ((0, 1), (2, 3), False, None),
        ((0, 1), (0, 3), True, None),
        ((0, 1), (0, 3), False, "two owners"),
        ((0, 1), (3, 0), True, "two owners"),
        ((None, 1), (None, 3), False, None),
    ],
)
def test_after_a_gap_a_block_is_shared_by_prefixes_that_have_it_in_one_place(
    of_a, of_b, shares, fault
):
    of = header()
    of = replace(of, config=replace(of.config, prefix_caching=shares))
    both = (Carried("a", 0, 8, (), (of_a,)), Carried("b", 1, 8, (), (of_b,)))
    known = state((8, []), (8, []))
    says(resumption.oddity(GAP._replace(running=both), known, of), fault)


# -- rows for nobody -------------------------------------------------------------------------------


def at(step: int, positions: str, vain: str = "", used: int = 2, **facts: Any) -> StepEvent:
    """A step in which each of these names computes one position, its step's: a in lane 0, b in
    lane 1. vain: those that get no token for it. used: two blocks, or it is told wrongly.
    """
    prefill = 0 if step else len(positions)
    budget = Budget(16, len(positions) - prefill, prefill, 16 - len(positions), "none")
    return event(
        step,
        passes=(Pass("packed", 1, len(positions), len(positions), 0, 0.0, 0.0),),
        segments=tuple(
            Segment(0, name, "ab".index(name), "decode" if step else "prefill", step, 1, step + 1)
            for name in positions
        ),
        sampled=tuple(Sampled(0, name, 7, None, None) for name in positions if name not in vain),
        overrun=tuple(Overrun(name, 1) for name in vain),
        **{"kv": KV(used, 9), "budget": budget} | facts,
    )


def ends(when: str, name: str = "a") -> dict[str, Any]:
    """Its end as a step begins, or the end of its last row."""
    ended = (Finished(name, "cancelled"),) if when == "before" else ()
    kv = KV(1 if ended else 2, 9, (BlockChange(name, (), True),))
    return {"finished": ended, "released": (LaneReleased(name, 0, when),), "kv": kv}


STOPPED = {"finished": (Finished("a", "stop"),)}  # and holds its lane for a step
TOO_SOON = {"finished": (Finished("a", "length"),)}
GOES_ON, LEAVES = "lost a token but goes on", "leave their lanes after the passes"
WRONG = 3  # blocks that are told as used, of two: the rules go on from the events as they are
STALLED = {"stalled": (Stalled("a", UNRECORDED),)}
CARRIED = [Carried(name, lane, 3, (7,), ((lane,),)) for lane, name in enumerate("ab")]
UNSEEN = GAP._replace(first=2, last=2, missing=1, running=tuple(CARRIED))
ENDED = UNSEEN._replace(ended=(Finished("a", "stop"),))
TWO_TOKENS = UNSEEN._replace(running=(CARRIED[0]._replace(tokens=(7, 7)), CARRIED[1]))


def warnings_of(steps: Sequence[StepEvent], *absent: str) -> list[str]:
    """What is said of these steps after the one in which a and b join. absent: numbers that are not
    on record, besides parts of the times.
    """
    stated = {"inferred": inferred_by(FIRST), "absent": ("prepare", "sample", *absent)}
    checker, told = Checker(replace(header(), **stated)), list[str]()
    for name in "ab":
        asked = Request(name, prompt_token_ids=(4,), sampling=SamplingParams(max_new_tokens=9))
        assert checker.fault_of_request(asked, [4]) is None
    joined = {
        "arrived": tuple(Arrived(name, 0.0) for name in "ab"),
        "admitted": (Admitted("a", 0, NOTHING_BINDS), Admitted("b", 1, NOTHING_BINDS)),
        "kv": KV(2, 9, (BlockChange("a", (0,), False), BlockChange("b", (1,), False))),
    }
    for step in (at(0, "ab", **joined), *steps):
        assert checker.fault(step) is None
        told += [warning for warning in checker.warnings if "3 of 9 blocks" not in warning]
    return told


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        pytest.param([at(1, "ab", "a"), at(2, "b", **ends("before"))], None, id="is cancelled"),
        pytest.param([at(1, "ab", "a"), at(2, "ab")], GOES_ON, id="goes on"),
        pytest.param([at(1, "ab", "a"), at(2, "ab", "a")], None, id="was launched twice"),
        pytest.param([at(1, "ab", "a"), at(2, "b", **STALLED)], None, id="is in another batch"),
        pytest.param([at(1, "ab", "a", WRONG), at(2, "ab")], GOES_ON, id="goes on after a warning"),
        pytest.param([at(1, "ab", **STOPPED), at(2, "ab", "a", **ends("after"))], None, id="stops"),
        pytest.param([at(1, "ab", **STOPPED), at(2, "ab", "a")], LEAVES, id="stops and stays"),
        pytest.param(
            [at(1, "ab", **STOPPED), at(2, "ab", **ends("after"))],
            "request that had finished computes",
            id="stops and writes on",
        ),
        pytest.param(
            [at(1, "ab", "", WRONG, **STOPPED), at(2, "ab", "a", **ends("after"))],
            None,
            id="stops beside a warning",
        ),
        pytest.param(
            [at(1, "ab", "", WRONG, **STOPPED), at(2, "ab", "a")],
            LEAVES,
            id="stops beside a warning and stays",
        ),
        pytest.param([at(1, "ab", **ends("after"))], LEAVES, id="leaves and goes on"),
        pytest.param(
            [at(1, "ab", **TOO_SOON), at(2, "ab", "a", **ends("after"))],
            "has not come to its end",
            id="stops too soon",
        ),
        pytest.param(
            [at(1, "ab", "a"), at(3, "ab", resumed=TWO_TOKENS)], None, id="goes on after a gap"
        ),
        pytest.param(
            [at(1, "ab"), at(3, "ab", "a", resumed=ENDED, **ends("after"))],
            None,
            id="stops in a gap",
        ),
        pytest.param(
            [at(1, "ab"), at(3, "ab", "a", resumed=ENDED)], LEAVES, id="stops in a gap and stays"
        ),
    ],
)
def test_who_has_a_row_for_nobody_has_ended_or_is_cancelled(steps, fault):
    told = warnings_of(steps)
    assert len(told) <= 1
    says(told[0] if told else None, fault)


@pytest.mark.parametrize(
    ("t", "fault"),
    [
        (None, None),
        (-1e-5, None),  # rounding
        (-2e-5, "cannot have been cancelled"),
        (1e-6, "cannot have been cancelled"),
    ],
)
def test_a_client_leaves_after_it_came_and_before_the_step_that_finds_it_gone(t, fault):
    """It came at 0, where every step stands."""
    left = ends("before") | {"finished": (Finished("a", "cancelled", t),)}
    told = warnings_of([at(1, "ab"), at(2, "b", **left)])
    says(told[0] if told else None, fault)


def test_a_number_that_is_said_to_be_absent_is_on_no_token():
    one = at(1, "ab")
    numbered = one._replace(sampled=(one.sampled[0]._replace(logprob=-1.0), one.sampled[1]))
    assert not warnings_of([numbered])
    (told,) = warnings_of([numbered], "logprob")
    says(told, "Token 7 of request “a” has numbers although none were recorded")
