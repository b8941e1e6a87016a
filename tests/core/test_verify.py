"""`check` refuses a trace that lies under a good seal, fact by fact, and says what it had to
believe.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from core import Engine, EngineConfig, Trace, Workload
from core.cli import main
from core.cli.check import findings
from core.config import POLICIES
from core.errors import InvalidTrace
from core.proof.rerun import RerunResult
from core.proof.verify import PROOFS, verify
from core.recorders.texts import tokenizer_of
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.trace import file
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import listed
from visualizer.documents.catalogue import TRACES
from worlds.examples import tries
from worlds.forging import Rows, checked, refusal, rows_of, small_runs, steps
from worlds.small import MemoryModel, Words, memory_engine, memory_trace, request

DOCS = Path(__file__).parents[2] / "docs" / "checks.md"


def asked(rows: Rows, request: str) -> dict:
    """What a request asked for."""
    return next(
        r["asked"] for r in rows if r.get("kind") == "request" and r["asked"]["id"] == request
    )


def first(rows: Rows, name: str) -> dict:
    """The first step that has a record of this name."""
    return next(r for r in steps(rows) if r[name])


@pytest.fixture(scope="module")
def made() -> dict[str, Rows]:
    return small_runs()


@pytest.fixture
def copied(made: dict[str, Rows]) -> Callable[[str], Rows]:
    return lambda name: copy.deepcopy(made[name])


# -- what was run is believed ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_real_runs_hold_whatever_happens_in_them(policy: str) -> None:
    for seed in range(tries(12)):
        draw = random.Random(seed)
        engine = memory_engine(
            policy,
            Words(),
            max_num_seqs=draw.choice((1, 2, 3)),
            max_num_batched_tokens=draw.choice((5, 9, 32)),
            block_size=draw.choice((2, 4)),
            num_blocks=20,
            prefix_caching=POLICIES[policy].prefix_caching and draw.random() < 0.5,
            prefill_first=draw.random() < 0.3,
        )
        asked = [
            request(
                f"r{i}",
                draw.randint(1, 14),
                draw.randint(1, 8),
                draw.choice((0, 0, 1, 3, 7.5, 30)),
                ignore_eos=draw.random() < 0.5,
                stop=draw.choice(((), (), ("1 ", "3 "))),
            )
            for i in range(draw.randint(1, 9))
        ]
        for _ in engine.stream(Workload(asked)):
            if draw.random() < 0.15:
                engine.cancel(draw.choice(asked).id)
        trace = engine.trace
        found = verify(trace.lines())
        assert (
            found.not_replayed is None and found.num_steps == len(trace.events) and found.complete
        )


@pytest.mark.parametrize("num_tokens", [1, 2])
def test_a_stop_string_ends_a_request_in_the_pass_that_wrote_it(num_tokens: int) -> None:
    """Under `split` the first two tokens come in one step, and either may be the last."""
    written = memory_trace((5, 8), policy="split").outputs["r0"]
    stop = f"w{written[num_tokens - 1]} "
    trace = memory_engine("split", Words()).run(Workload([request("r0", 5, 8, stop=(stop,))]))
    assert trace.outputs["r0"] == written[:num_tokens]
    assert [len(event.passes) for event in trace] == [num_tokens]
    assert checked(rows_of(trace)).complete


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_a_request_cancelled_long_before_its_arrival_hides_no_other(policy: str) -> None:
    engine = memory_engine(policy, max_num_seqs=2, block_size=4)
    for event in engine.stream(
        Workload(
            [
                request("a", 3, 4),
                request("far", 3, 4, 90),
                request("b", 3, 4, 7),
                request("c", 3, 4, 30),
            ]
        )
    ):
        if event.step == 2:
            engine.cancel("far")
    found = checked(rows_of(engine.trace))
    assert found.complete and found.num_requests == 4


def test_an_idle_engine_goes_on_at_the_step_of_the_next_arrival_and_no_other() -> None:
    """An arrival within a step falls due in the next one; the steps between have no event, and none
    may be told.
    """
    trace = memory_trace((3, 2), (3, 2, 7.5), (2, 2, 20), max_num_seqs=2, block_size=4)
    begins = [event.step for event in trace.events if event.arrived]
    assert begins == [0, 8, 20] and checked(rows_of(trace)).complete
    for begin in begins[1:]:
        for by in (-1, 1):
            rows = rows_of(trace)
            for r in steps(rows):
                r["step"] += by if begin <= r["step"] < begin + 2 else 0
            refusal(rows)


@pytest.mark.parametrize(("is_idle", "leaves"), [(False, 2), (True, 20)])
def test_an_idle_engine_tells_a_step_between_only_for_a_request_that_leaves(
    is_idle: bool, leaves: int
) -> None:
    """Cancelled after step 1, `far` leaves in step 2; cancelled while the engine waits for it, in
    the step in which it would arrive.
    """
    engine = memory_engine(max_num_seqs=2, block_size=4)
    for event in engine.turns(
        Workload([request("a", 3, 2), request("far", 3, 2, 20), request("b", 3, 2, 30)])
    ):
        if event is None if is_idle else event is not None and event.step == 1:
            engine.cancel("far")
    rows = rows_of(engine.trace)
    assert [event["step"] for event in steps(rows)] == [0, 1, leaves, 30, 31] and checked(
        rows
    ).complete
    left = next(event for event in steps(rows) if event["step"] == leaves)
    for step, holds in ((2, True), (20, True), (21, False)):
        left["step"] = step
        if holds:
            assert checked(rows).complete
        else:
            assert "it cannot follow step 1" in refusal(rows)
    left["step"] = 2
    nothing = left | {
        "step": 5,
        "t_start": left["t_end"],
        "timings": [0.0] * 4,
        "arrived": [],
        "finished": [],
    }
    rows.insert(next(at for at, r in enumerate(rows) if r.get("step") == 30), nothing)
    rows[-1]["events"] += 1
    assert "it cannot follow step 2" in refusal(rows)


@pytest.mark.parametrize(("step", "holds"), [(1, False), (2, True), (15, True), (16, False)])
def test_an_idle_engine_leaves_out_no_more_steps_than_it_can_sleep(step: int, holds: bool) -> None:
    """Steps 0 and 1 are taken, and the next request comes after 200 s. The engine sleeps for at
    most a minute in one step, so three steps may be left out, and ten more.
    """
    two = [request("a", 1, 2), request("b", 1, 2, 200)]
    cost = Linear(0.010, 0.001, 1e-6, 100, most=Load(8, 10_000))
    rows = rows_of(SimulatedEngine(cost).run(Workload(two, arrival_unit="s")))
    assert [event["step"] for event in steps(rows)] == [0, 1, 3, 4] and checked(rows).complete
    for n, event in enumerate(steps(rows)[2:]):
        event["step"] = step + n
    if holds:
        assert checked(rows).complete
    else:
        refusal(rows)


def test_requests_that_come_one_by_one() -> None:
    engine = memory_engine(max_num_seqs=2)
    for i in range(4):
        engine.add_request(request(f"r{i}", 4, 5))
        engine.step()
    while engine.has_work:
        engine.step()
    rows = rows_of(engine.trace)
    assert checked(rows).num_steps == len(engine.trace.events)
    rows[0]["workload"]["arrival_unit"] = "s"
    assert "does not arrive at 0 s as the workload says" in refusal(rows)


@pytest.mark.parametrize(
    "name",
    ["gpt2-six", "kv-pressure", "shared-prefix", "padding-693", "nanogpt-chunked-4-arrivals"],
)
def test_recorded_runs_are_decided_and_decoded_again(name: str) -> None:
    found = verify(file.lines_of(TRACES / f"{name}.jsonl"), tokenizer_of)
    assert found.not_replayed is None and found.not_decoded is None
    # without a rerun
    assert {found.proof_of(fact) for fact in PROOFS} == {"replayed", "bounded", "decoded", "sealed"}


# -- forged by hand: each as it might be forged, all that would give it away at once made to agree -


def relabel(policy: str) -> Callable[[Rows], Any]:
    def forge(rows: Rows) -> None:
        rows[0].update(policy=policy, batching=POLICIES[policy].to_json())
        rows[0]["config"].update(policy=policy)
        limit = (
            rows[0]["config"]["max_num_batched_tokens"] if POLICIES[policy].token_budget else None
        )
        for r in steps(rows):
            used = r["budget"][1] + r["budget"][2]
            r["budget"][0], r["budget"][3] = limit, 0 if limit is None else limit - used

    return forge


def swap_outputs(rows: Rows) -> None:
    """Tokens of two requests, in steps in which both get one."""
    for r in steps(rows):
        if len(r["sampled"]) > 1:
            r["sampled"][0][2], r["sampled"][1][2] = r["sampled"][1][2], r["sampled"][0][2]


def erase_finished_rows(rows: Rows) -> None:
    for r in steps(rows):
        for forward in r["passes"]:
            forward[1] -= len(forward[7])
            forward[7] = []
            forward[4] = forward[1] * forward[2] - forward[3]


def pack(rows: Rows) -> None:
    """Padded passes told as packed ones: no padding."""
    for r in steps(rows):
        for forward in r["passes"]:
            forward[:5], forward[7] = ["packed", 1, forward[3], forward[3], 0], []


def ask_late(rows: Rows, request: str, steps: int) -> None:
    """A request that stands some steps after the one in which it was due, in which it does not
    arrive.
    """
    line = next(r for r in rows if r.get("kind") == "request" and r["asked"]["id"] == request)
    rows.remove(line)
    at = next(i for i, r in enumerate(rows) if r.get("step") == line["asked"]["arrival"] + steps)
    rows.insert(at, line)


def line_of(rows: Rows, kind: str, request: str) -> int:
    """Where a request's line of this kind stands."""
    return next(
        i
        for i, r in enumerate(rows)
        if r.get("kind") == kind and (r.get("request") or r["asked"]["id"]) == request
    )


def never_come(rows: Rows) -> None:
    """A request more, which a complete run did not serve."""
    ghost = copy.deepcopy(rows[line_of(rows, "request", "r0")])
    ghost["asked"].update(id="ghost", arrival=99)
    rows[-1:-1] = [ghost, {"kind": "texts", "request": "ghost", "prompt": ["x"] * 9, "output": []}]


def shift(rows: Rows, by: int) -> None:
    for r in steps(rows)[3:]:
        r["step"] += by


FORGED: dict[str, tuple[str, Callable[[Rows], Any]]] = {
    "a token beyond the vocabulary": (
        "continuous",
        lambda r: first(r, "sampled")["sampled"][0].__setitem__(2, 50),
    ),
    "a prompt beyond the vocabulary": (
        "continuous",
        lambda r: asked(r, "r0")["prompt_token_ids"].__setitem__(0, 10**9),
    ),
    "a prompt that is not the workload's": (
        "continuous",
        lambda r: r[1].update(tokens=[1, *asked(r, "r0")["prompt_token_ids"][1:]]),
    ),
    "negative timings": ("continuous", lambda r: steps(r)[2]["timings"].__setitem__(0, -1.0)),
    "timings of a billion seconds": (
        "continuous",
        lambda r: steps(r)[2]["timings"].__setitem__(2, 1e9),
    ),
    "timings that are not the passes'": (
        "continuous",
        lambda r: steps(r)[2].update(timings=[0, 0, 0, 0]),
    ),
    "passes that take no time": (
        "continuous",
        lambda r: [p.__setitem__(6, p[5]) for e in steps(r) for p in e["passes"]],
    ),
    "a part of a step not recorded": (
        "continuous",
        lambda r: steps(r)[2]["timings"].__setitem__(1, None),
    ),
    "a vocabulary that nobody knows": ("continuous", lambda r: r[0]["model"].pop("vocab_size")),
    "an arrival after the first pass": (
        "split",
        lambda r: first(r, "arrived")["arrived"][0].__setitem__(1, first(r, "arrived")["t_end"]),
    ),
    "an arrival long before its step": (
        "continuous",
        lambda r: steps(r)[1]["arrived"][0].__setitem__(1, 0.0),
    ),
    "a bucket of a billion": (
        "continuous",
        lambda r: [p.__setitem__(8, 10**9) for e in steps(r) for p in e["passes"]],
    ),
    "a bucket of one": (
        "continuous",
        lambda r: [p.__setitem__(8, 1) for e in steps(r) for p in e["passes"]],
    ),
    "finished rows erased": ("static", erase_finished_rows),
    "padded passes packed": ("static", pack),
    "a pass of another layout": (
        "continuous",
        lambda r: next(e for e in steps(r) if len(e["segments"]) == 1)["passes"][0].__setitem__(
            0, "padded"
        ),
    ),
    "a hit with caching off": ("prefixes", lambda r: r[0]["config"].update(prefix_caching=False)),
    "a hit between prompts that differ": (
        "prefixes",
        lambda r: asked(r, "r1")["prompt_token_ids"].__setitem__(0, 40),
    ),
    "chunks with chunking off": (
        "continuous",
        lambda r: r[0]["config"].update(chunked_prefill=False),
    ),
    "a limit that did not bind": (
        "continuous",
        lambda r: next(e for e in steps(r) if e["budget"][4] == "none")["budget"].__setitem__(
            4, "blocks"
        ),
    ),
    "a limit that the policy does not have": (
        "dynamic",
        lambda r: next(e for e in steps(r) if e["budget"][4] == "none")["budget"].__setitem__(
            4, "budget"
        ),
    ),
    "a reason with impossible numbers": (
        "continuous",
        lambda r: next(e for e in steps(r) if e["waiting"][0])["waiting"][2].__setitem__(1, 77),
    ),
    "a reason for an admission": (
        "continuous",
        lambda r: first(r, "admitted")["admitted"][0].__setitem__(2, ["budget", 1, 2, 8]),
    ),
    "windows of layers that there are not": (
        "continuous",
        lambda r: r[0]["model"].update(windows=[None, 4]),
    ),
    "another arrival in the workload": ("continuous", lambda r: asked(r, "r2").update(arrival=0)),
    "a later arrival in the workload": ("continuous", lambda r: asked(r, "r0").update(arrival=1)),
    "a request asked too late": ("continuous", lambda r: ask_late(r, "r2", 2)),
    "a request that never came": ("continuous", never_come),
    "texts before their tokens": (
        "continuous",
        lambda r: r.insert(line_of(r, "request", "r0") + 1, r.pop(line_of(r, "texts", "r0"))),
    ),
    "a word more about a request": (
        "continuous",
        lambda r: r[line_of(r, "request", "r0")].update(priority=1),
    ),
    "a word more about a text": (
        "continuous",
        lambda r: r[line_of(r, "texts", "r0")].update(language="en"),
    ),
    "a word more at the end": ("continuous", lambda r: r[-1].update(signed="me")),
    "a word more about a step": ("continuous", lambda r: steps(r)[2].update(note="true")),
    "texts told twice": ("continuous", lambda r: r.insert(-1, r[line_of(r, "texts", "r0")])),
    "a name given again": ("continuous", lambda r: r.insert(-1, r[line_of(r, "request", "r0")])),
    "more tokens asked for": (
        "continuous",
        lambda r: asked(r, "r0")["sampling"].update(max_new_tokens=6),
    ),
    "a stop of a request that ignores it": (
        "continuous",
        lambda r: first(r, "finished")["finished"][0].__setitem__(1, "stop"),
    ),
    "a gap of a hundred steps": ("continuous", lambda r: shift(r, 100)),
    "dynamic told as split": ("dynamic", relabel("split")),
    "split-chunked told as continuous": ("split-chunked", relabel("continuous")),
    "continuous told as split-chunked": ("continuous", relabel("split-chunked")),
    "static told as dynamic": ("static", relabel("dynamic")),
    "sequential told as static": ("sequential", relabel("static")),
    "a rule in words that the policy does not have": (
        "continuous",
        lambda r: r[0]["batching"].update(victim="whoever paid least"),
    ),
    "an order in words that the policy does not have": (
        "continuous",
        lambda r: r[0]["batching"].update(order_by="r0"),
    ),
    "fields of another policy": (
        "dynamic",
        lambda r: r[0].update(batching=POLICIES["static"].to_json()),
    ),
    "a larger pool than what ran short": (
        "preempted",
        lambda r: [
            r[0].update(num_blocks=900),
            r[0]["config"].update(num_blocks=900),
            *(e["kv"].__setitem__(1, 900) for e in steps(r)),
        ],
    ),
    "a share of the pool below nothing": (
        "continuous",
        lambda r: r[0]["batching"].update(watermark=-0.5),
    ),
    "other blocks": (
        "continuous",
        lambda r: first(r, "admitted")["kv"][2][0].__setitem__(1, [9, 10, 11]),
    ),
    "a preemption less lost": (
        "preempted",
        lambda r: first(r, "preempted")["preempted"][0].__setitem__(1, 1),
    ),
    "a probability above its margin": (
        "continuous",
        lambda r: first(r, "sampled")["sampled"][0].__setitem__(3, -9.0),
    ),
    **{
        f"a drawn token's probability of {odd} beside a margin of 9": (
            "continuous",
            lambda r, odd=odd: [
                asked(r, first(r, "sampled")["sampled"][0][1])["sampling"].update(temperature=0.5),
                first(r, "sampled")["sampled"][0].__setitem__(3, odd),
            ],
        )
        for odd in (-0.02, -8.9)  # less than the best has, and more than any other
    },
    "a margin without its probability": (
        "continuous",
        lambda r: first(r, "sampled")["sampled"][0].__setitem__(4, 0.0),
    ),
    "a request that never fits": ("continuous", lambda r: r[0]["model"].update(context=8)),
    "an end token passed over": (
        "continuous",
        lambda r: [
            asked(r, "r1")["sampling"].pop("ignore_eos"),
            r[0]["model"].update(
                eos_token_ids=[
                    first(r, "sampled")["sampled"][0][2],
                    *(s[2] for e in steps(r)[:4] for s in e["sampled"]),
                ]
            ),
        ],
    ),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_trace_is_refused(copied: Callable[[str], Rows], forgery: str) -> None:
    policy, forge = FORGED[forgery]
    rows = copied(policy)
    checked(rows)
    forge(rows)
    refusal(rows)


def test_an_end_by_length_is_not_told_as_a_stop(copied: Callable[[str], Rows]) -> None:
    rows = copied("continuous")
    rows[0]["model"]["eos_token_ids"] = []
    del asked(rows, "r1")["sampling"]["ignore_eos"]
    assert checked(rows).complete
    ended = next(end for event in steps(rows) for end in event["finished"] if end[0] == "r1")
    assert ended[1] == "length"
    ended[1] = "stop"
    assert "finished: " in refusal(rows)


def test_a_drawn_token_may_be_any_that_its_margin_leaves_room_for(copied: Any) -> None:
    """Of 50 tokens the best leads by 9: it has at least 1 / (1 + 49 e^-9), any other at most e^-9,
    and with top_k 1 only the best can be drawn.
    """
    rows = copied("continuous")
    token = first(rows, "sampled")["sampled"][0]
    sampling = asked(rows, token[1])["sampling"]
    sampling["temperature"] = 0.5
    for logprob in (-0.006, -9.001, -20.0):
        token[3] = logprob
        checked(rows)
    sampling["top_k"] = 1
    assert "cannot have that probability at that margin" in refusal(rows)


def test_texts_are_decoded_again() -> None:
    rows = rows_of(Trace.load(TRACES / "chunk-7-by-4.jsonl"))
    rows[-2]["output"][1] = " IF"
    assert checked(rows).not_decoded
    assert "texts of request 'r0' are not those of its tokens" in refusal(
        rows, tokenizer=tokenizer_of
    )


def test_tokens_and_margins_are_computed_again() -> None:
    def engine(header: Any) -> Any:
        return memory_engine(max_num_seqs=2, max_num_batched_tokens=6, block_size=4)

    rows = rows_of(
        memory_trace((5, 3), (9, 4), max_num_seqs=2, max_num_batched_tokens=6, block_size=4)
    )
    found = checked(rows, engine=engine)
    assert (
        found.rerun.tokens == 7
        and found.rerun.apart == 0
        and found.proof_of("event.sampled.token_id") == "rerun"
    )
    swapped = copy.deepcopy(rows)
    swap_outputs(swapped)
    assert swapped != rows and checked(swapped).rerun is None
    assert "and the model writes" in refusal(swapped, engine=engine)
    rows[-1]["complete"] = True
    sampled = first(rows, "sampled")["sampled"][0]
    sampled[3:] = [sampled[3] - 0.01, sampled[4] - 1]  # alone, each gives the other away
    checked(rows)
    assert "what the model gives it" in refusal(rows, engine=engine)


def test_a_graph_is_the_next_power_of_two(copied: Callable[[str], Rows]) -> None:
    rows = copied("continuous")
    rows[0]["execution"] = {
        "cuda_graphs": True,
        "min_graph_positions": 64,
        "max_graph_positions": 2048,
    }
    prompts = steps(rows)[0]["passes"][0]
    decodes = next(p for e in steps(rows) for p in e["passes"] if p[3] == len(e["segments"]) == 3)
    beside = next(e for e in steps(rows) if {1} < {s[5] for s in e["segments"]})["passes"][0]
    for forward, bucket in ((prompts, 64), (beside, 64), (decodes, 4)):
        for other in (forward[3], bucket - 1, bucket + 1, 2 * bucket):
            forward[8] = other
            assert "cannot have been a CUDA graph" in refusal(rows)
        forward[8] = bucket
        checked(rows)
    rows[0]["execution"]["cuda_graphs"] = False
    assert "cannot have been a CUDA graph" in refusal(rows)
    padded = copied("static")
    padded[0]["execution"] = {
        "cuda_graphs": True,
        "min_graph_positions": 64,
        "max_graph_positions": 2048,
    }
    decode = next(p for e in steps(padded) for p in e["passes"] if p[2] == 1 and p[1] > 1)
    decode[8] = decode[1]
    checked(padded)
    decode[8] = decode[1] + 1
    refusal(padded)


def test_the_model_and_the_leak_are_what_a_rerun_finds(copied: Callable[[str], Rows]) -> None:
    def engine(header: Any) -> Any:
        return memory_engine(max_num_seqs=3, max_num_batched_tokens=8, block_size=4, num_blocks=12)

    true = checked(copied("continuous"), engine=engine)
    assert (
        true.proof_of("header.model")
        == "rerun"
        != checked(copied("continuous")).proof_of("header.model")
    )
    for name, lie in (
        ("parameters", 10**12),
        ("type", "gpt5"),
        ("context", 10**9),
        ("windows", [4]),
        ("kv_bytes_per_token", 1),
    ):
        rows = copied("continuous")
        rows[0]["model"][name] = lie
        assert checked(rows).proof_of("header.leak") == "sealed"
        assert f"the model's {name} is" in refusal(rows, engine=engine)


def test_a_preemption_shows_how_large_the_pool_is() -> None:
    """Both grow into a second block at step 3, and there are three: r1 gives way. From then on it
    waits for a budget of 5, its 5 tokens being one chunk, of which 4 are left.
    """
    trace = memory_trace(
        (3, 8),
        (2, 8),
        max_num_seqs=2,
        max_num_batched_tokens=5,
        block_size=4,
        num_blocks=3,
        chunked_prefill=False,
    )
    assert [event.step for event in trace.events if event.preempted] == [3]
    assert {event.budget.binding for event in trace.events} == {"budget", "none"}
    assert checked(rows_of(trace)).never_bound == ("lanes", "budget")


def test_a_limit_is_proved_or_said_to_have_never_bound(made: dict[str, Rows]) -> None:
    """Whoever makes a limit larger, wherever it stands, is refused, or told that nothing shows how
    large it was.
    """

    def lanes(rows: Rows, more: int) -> None:
        rows[0]["config"]["max_num_seqs"] += more

    def budget(rows: Rows, more: int) -> None:
        rows[0]["config"]["max_num_batched_tokens"] += more
        for event in steps(rows):
            if event["budget"][0] is not None:
                event["budget"][0], event["budget"][3] = (
                    event["budget"][0] + more,
                    event["budget"][3] + more,
                )

    def blocks(rows: Rows, more: int) -> None:
        rows[0]["num_blocks"] += more
        rows[0]["config"]["num_blocks"] = rows[0]["num_blocks"]
        for event in steps(rows):
            event["kv"][1] += more

    outcomes = set()
    for name, true in made.items():
        policy = POLICIES[true[0]["policy"]]
        for enlarge in (lanes, budget, blocks):
            if (enlarge is lanes and policy.one_lane) or (
                enlarge is budget and not policy.token_budget
            ):
                continue  # the policy has no such limit
            rows = copy.deepcopy(true)
            enlarge(rows, 7)
            try:
                found = checked(rows)
            except InvalidTrace:
                outcomes.add("refused")
            else:
                outcomes.add("believed")
                assert enlarge.__name__ in found.never_bound, name
    assert outcomes == {"believed", "refused"}


@pytest.mark.parametrize(
    ("limit", "limits"),
    [
        ("budget", {"max_num_batched_tokens": 44, "num_blocks": 200, "chunked_prefill": False}),
        ("blocks", {"max_num_batched_tokens": 1000, "num_blocks": 13}),
    ],
)
def test_a_limit_that_bound_with_something_left_is_taken_on_trust(
    limit: str, limits: dict[str, Any]
) -> None:
    """Prompts of 40 wait where 4 tokens, or 2 blocks, are left: as they would with one more."""
    trace = memory_trace((40, 3), (40, 3), (40, 3), max_num_seqs=4, block_size=4, **limits)
    rows = rows_of(trace)
    assert limit in {event.budget.binding for event in trace.events}
    assert limit in checked(rows).never_bound
    rows[0]["config"]["max_num_batched_tokens" if limit == "budget" else "num_blocks"] += 1
    rows[0]["num_blocks"] += limit == "blocks"
    for event in steps(rows):
        event["budget"][0] += limit == "budget"
        event["budget"][3] += limit == "budget"
        event["kv"][1] += limit == "blocks"
        for why in [event["waiting"][2], *(a[2] for a in event["admitted"])]:
            if why and why[0] == limit:
                why[1], why[3] = why[1] + 1, why[3] + 1
    assert limit in checked(rows).never_bound


def test_an_end_from_outside_is_counted_and_taken_on_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request with 20 more tokens to come is cancelled where another ends by its length: no
    decision tells the two apart. One whose logits are not finite fails, and a rerun can say that.
    """
    full = memory_trace((5, 3), (9, 4), max_num_seqs=2, block_size=4)
    assert not checked(rows_of(full)).from_outside
    engine = memory_engine(max_num_seqs=2, block_size=4)
    for event in engine.stream(Workload([request("r0", 5, 23), request("r1", 9, 4)])):
        if event.step == 2:
            engine.cancel("r0")
    assert engine.trace.outputs == full.outputs
    engine.trace.save(tmp_path / "run.jsonl")
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path / "run.jsonl"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert not ended.value.code and told["valid"] and told["from_outside"] == {"cancelled": 1}
    ends = ("event.finished", "header.arrival_unit, request.asked")
    assert [told["proofs"][fact] for fact in ends] == ["bounded", "bounded"]
    found = checked(rows_of(engine.trace))
    assert any("1 cancelled, 0 failed" in line for line in findings(found))

    broken = memory_engine(model=MemoryModel(fails_after=8), max_num_seqs=2, block_size=4)
    failed = rows_of(broken.run(Workload([request("r0", 5, 9)])))
    assert checked(failed).from_outside == {"error": 1}
    assert not checked(failed, engine=lambda _: broken).from_outside


def test_where_a_run_came_from_and_what_it_was_called_is_taken_on_trust(
    copied: Callable[[str], Rows],
) -> None:
    rows = copied("continuous")
    rows[0]["source"], rows[0]["workload"]["name"] = "recorded", "another"
    found = checked(rows)
    assert (
        "Whether it ran live, the names of the workload and its requests" in [*findings(found)][-1]
    )
    (fact,) = [fact for fact in PROOFS if "source, workload" in fact]
    assert found.proof_of(fact) == "sealed"


@pytest.mark.parametrize("unit", ["step", "s"])
def test_a_client_that_is_said_to_have_left_was_served_no_longer(unit: Any) -> None:
    """It leaves in the third step; under the same workload it may not stay for the fourth."""
    clock = iter(range(10**6))
    engine = Engine(MemoryModel(), None, EngineConfig(), clock=lambda: next(clock) / 100)
    leaves = 2 if unit == "step" else 0.2
    asked_for = replace(request("r0", 5, 20), leaves_after=leaves)
    rows = rows_of(engine.run(Workload([asked_for], arrival_unit=unit, name="leaves")))
    assert checked(rows).from_outside == {"cancelled": 1}
    asked(rows, "r0")["leaves_after"] = leaves / 10
    assert "request 'r0' does not leave as the workload says" in refusal(rows)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_who_leaves_before_the_step_that_takes_it_up_comes_in_turn(one_by_one: bool) -> None:
    """The others that come in that step stand before and after it, and one more leaves in it."""
    engine = memory_engine(max_num_seqs=1, block_size=4)
    asked_for = [request("a", 3, 4), request("b", 3, 2, 1.5), request("c", 3, 2, 1.6)]
    asked_for += [request("d", 3, 2, 1.7), request("e", 3, 2)]
    leaves = {"c": 0.3, "d": 0.1, "e": 1.95}
    asked_for = [replace(r, leaves_after=leaves.get(r.id)) for r in asked_for]
    if one_by_one:
        for coming in asked_for:
            engine.add_request(coming)
        while engine.has_work:
            engine.step()
    trace = engine.trace if one_by_one else engine.run(Workload(asked_for))
    assert [a.request for a in trace[2].arrived] == ["b", "c", "d"]
    assert [f.request for f in trace[2].finished] == ["d", "c", "e"]
    rows = rows_of(trace)
    assert checked(rows).from_outside == {"cancelled": 3}
    asked(rows, "e")["leaves_after"] = 0.5
    assert "request 'e' does not leave as the workload says" in refusal(rows)


@pytest.mark.parametrize("cancelled", [False, True])
def test_who_is_cancelled_before_others_come_is_not_said_to_have_left_in_turn(
    cancelled: bool,
) -> None:
    """By the workload c would come after b, and leave, in the step in which it is cancelled."""
    engine = memory_engine(max_num_seqs=2, block_size=4)
    c = replace(request("c", 3, 2, 3.5), leaves_after=0.2)
    for event in engine.stream(Workload([request("a", 3, 8), request("b", 3, 2, 3.2), c])):
        if event.step == 3 and cancelled:
            engine.cancel("c")
    rows = rows_of(engine.trace)
    order = [["c"], ["b"]] if cancelled else [["b"], ["c"]]
    assert [a[:1] for a in steps(rows)[4]["arrived"]] == order
    assert checked(rows).from_outside == {"cancelled": 1}
    steps(rows)[4]["arrived"] = steps(rows)[4]["arrived"][1:]
    refusal(rows)


def test_what_a_header_says_beyond_this_version_is_named(copied: Callable[[str], Rows]) -> None:
    rows = copied("continuous")
    assert checked(rows).header.unknown == ()
    rows[0]["signed"] = rows[0]["model"]["trained_on"] = rows[0]["execution"] = {"by": "me"}
    found = checked(rows)
    assert found.header.unknown == ("signed", "model.trained_on", "execution.by")
    assert "Header: what this version does not know, such as 'signed', is" in str(
        [*findings(found)]
    )
    rows[0]["workload"]["requests"] = [asked(rows, "r0")]
    assert "requests, which have lines of their own" in refusal(rows)


def test_that_a_run_was_cut_is_taken_on_trust(copied: Callable[[str], Rows]) -> None:
    """No line is missing in either: the steps after these may have been left out."""
    rows = copied("continuous")
    assert checked(rows).proof_of("end") == "replayed"
    rows[-1]["complete"] = False
    found = checked(rows)
    assert found.proof_of("end") == "bounded"
    assert any(line.startswith("End: that the run was cut there") for line in findings(found))


# -- what is known, and how ------------------------------------------------------------------------


def test_the_docs_have_the_table() -> None:
    rows = [f"| {fact} | {proof} | {how} |" for fact, (proof, how) in PROOFS.items()]
    assert "\n".join(rows) in DOCS.read_text(encoding="utf-8")


def test_every_fact_of_a_trace_is_in_the_table(made: dict[str, Rows]) -> None:
    told = {word for fact in PROOFS for word in re.findall(r"\w+", fact)}
    assert set(StepEvent._fields) <= told
    assert {f.name for f in fields(Header)} - {"more", "arrival_unit"} <= told


def test_what_was_not_proved_is_not_said_to_be(copied: Callable[[str], Rows]) -> None:
    """A fact of each kind, of a run that was checked without the model, and what else is not known
    of it.
    """
    facts = ("event.step", "event.finished", "end", "event.timings", "texts")
    facts += ("event.sampled.token_id", "header.model", "header.leak", "request.sampling")
    found = replace(checked(copied("continuous")), not_decoded=None)
    known = ["replayed"] * 3 + ["bounded", "decoded", "bounded", "bounded", "sealed", "sealed"]
    again = RerunResult(0, 0, 0, 0, 0, 0.0, None, ("parameters",))
    for missing, otherwise in (
        ({}, {}),
        ({"not_replayed": "…"}, dict.fromkeys(facts[:3], "bounded")),
        ({"not_decoded": "…"}, {"texts": "sealed"}),
        ({"complete": False}, {"end": "bounded"}),
        ({"from_outside": {"error": 1}}, {"event.finished": "bounded"}),
        ({"rerun": again}, dict.fromkeys(facts[5:], "rerun")),
        (
            {"rerun": replace(again, facts=())},
            dict.fromkeys(facts[5:], "rerun") | {"header.model": "bounded"},
        ),
    ):
        told = {fact: replace(found, **missing).proof_of(fact) for fact in facts}
        assert told == dict(zip(facts, known, strict=True)) | otherwise


def test_a_policy_that_is_otherwise_than_the_installed_one_is_named() -> None:
    """A run under `stall` that calls itself `continuous`: its decisions are those of its fields."""
    trace = memory_trace((4, 3), (4, 3), policy="stall", num_blocks=3, block_size=4)
    rows = rows_of(trace)
    assert not checked(rows).header.unlike_installed
    rows[0]["policy"] = rows[0]["config"]["policy"] = "continuous"
    found = checked(rows)
    assert f"with another {listed(found.header.unlike_installed)} than" in next(findings(found))
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
