"""The articles' numbers, from real runs of the presets on the built-in models."""

import re
from dataclasses import replace
from functools import cache
from statistics import median

import pytest

from core import Engine, Trace
from core.workload.presets import PRESETS, preset
from visualizer.documents.catalogue import TRACES


@cache
def engine_for(model: str, dtype: str = "auto") -> Engine:
    return Engine.from_pretrained(model, dtype=dtype)


@cache
def run(name: str, **overrides) -> Trace:
    p = preset(name)
    loaded = engine_for(p.model, p.dtype)
    return Engine(loaded.adapter, loaded.tokenizer, replace(p.config, **overrides)).run(p.workload)


def finishes(trace: Trace) -> list[int]:
    """Finishing step of r0, r1, …"""
    steps = {f.request: event.step for event in trace.events for f in event.finished}
    return [steps[f"r{i}"] for i in range(len(steps))]


def chunks(trace: Trace, request: str) -> list[int]:
    return [
        s.length
        for event in trace.events
        for s in event.segments
        if s.request == request and s.phase == "prefill"
    ]


def num_steps(trace: Trace) -> int:
    return trace.events[-1].step + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nanogpt-arrivals", [15, 20, 16]),
        ("nanogpt-chunked-1", [15, 21, 15]),
        ("nanogpt-chunked-3", [13, 6]),
        ("nanogpt-chunked-4", [8, 8, 10, 17]),
        ("nanogpt-chunked-4-arrivals", [8, 9, 12, 19]),
        ("gpt2-six", [5, 49, 299, 35, 215, 94]),
        ("three-lengths", [19, 14, 24]),
    ],
)
def test_finishing_steps(name, expected):
    assert finishes(run(name)) == expected


@pytest.mark.parametrize(
    ("name", "request_id", "expected"),
    [
        ("nanogpt-chunked-2", "r0", [8, 8, 4]),
        ("chunk-7-7-6", "r3", [7, 7, 6]),
        ("chunk-7-by-4", "r0", [4, 3]),
    ],
)
def test_chunks(name, request_id, expected):
    assert chunks(run(name), request_id) == expected


def test_decoding_goes_on_while_a_prompt_is_read_in_chunks():
    trace = run("nanogpt-chunked-3")
    reading = [
        event
        for event in trace.events
        if any(s.request == "r1" and s.phase == "prefill" for s in event.segments)
    ]
    assert len(reading) == 3
    assert all(
        any(s.request == "r0" and s.phase == "decode" for s in event.segments) for event in reading
    )


@pytest.mark.slow
def test_gpt2_six_continuous_refills_lanes_at_once():
    trace = run("gpt2-six")
    first = {a.request: event.step for event in trace.events for a in event.admitted}
    assert [first[r] for r in ("r3", "r4", "r5")] == [6, 36, 50]
    assert num_steps(trace) == 300


@pytest.mark.slow
def test_gpt2_six_static_waits_for_the_longest_of_each_wave():
    trace = run("gpt2-six", policy="static")
    useful = sum(len(event.segments) for event in trace.events)
    assert num_steps(trace) == 480
    assert (useful, num_steps(trace) * 3) == (611, 1440)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chunk-7-7-6", [4, 4, 4, 20]),
        ("gpt2-masks", [5, 5, 7, 10]),
        ("padding-693", [*[4] * 7, 100]),
        ("one-joins-two", [5, 6, 10]),
        ("chunk-7-by-4", [7]),
        ("budget-512", [8, 8, 8, 100, 200]),
        ("equal-lengths", [48] * 8),
        ("decode-first", [*[4] * 5, 48]),
    ],
)
def test_prompts_are_words_of_just_so_many_tokens(name, expected):
    tokenizer = engine_for(preset(name).model).tokenizer
    assert [len(tokenizer(r.prompt)["input_ids"]) for r in preset(name).workload] == expected


def test_every_prompt_is_words():
    assert all(
        re.search(r"[A-Za-z]{2,}", text)
        for p in PRESETS.values()
        for r in p.workload
        for text in (m["content"] for m in r.messages or [{"content": r.prompt or ""}])
    )


def test_dropping_finished_rows_saves_positions_and_no_step():
    kept, dropped = run("verses-static"), run("verses-dropped")
    assert kept.outputs == dropped.outputs and num_steps(kept) == num_steps(dropped)
    assert finishes(kept) == finishes(dropped)
    joined = [{a.request: e.step for e in t.events for a in e.admitted} for t in (kept, dropped)]
    assert joined[0] == joined[1]
    assert not any(p.finished_rows for e in dropped.events for p in e.passes)
    positions = [sum(p.rows * p.width for e in t.events for p in e.passes) for t in (kept, dropped)]
    rows = sum(len(p.finished_rows) * p.width for e in kept.events for p in e.passes)
    assert rows and positions[0] - positions[1] == rows
    held = [sum(e.kv.used for e in t.events) for t in (kept, dropped)]
    assert held[1] < held[0]


@pytest.mark.slow
def test_prefill_first_trades_the_stall_of_those_who_decode_for_the_first_token():
    decode, prefill = run("decode-first"), run("prefill-first")
    joins = next(e.step for e in decode.events if any(a.request == "r5" for a in e.admitted))
    first = [
        next(e.step for e in t.events if any(s.request == "r5" for s in e.sampled))
        for t in (decode, prefill)
    ]
    assert chunks(decode, "r5") == [3] * 16 and chunks(prefill, "r5") == [8] * 6
    assert [step - joins for step in first] == [15, 5]
    stalls = [[e.step for e in t.events if e.stalled] for t in (decode, prefill)]
    assert (
        not stalls[0]
        and stalls[1][-6:] == list(range(joins, joins + 6))
        and decode.outputs == prefill.outputs
    )


def test_padding_693():
    assert max(p.padding for event in run("padding-693").events for p in event.passes) == 693
    assert (
        sum(
            p.padding
            for event in run("padding-693", policy="continuous").events
            for p in event.passes
        )
        == 0
    )


def test_one_joins_two():
    joining = [p for event in run("one-joins-two").events for p in event.passes if p.width == 10]
    assert [(p.rows * p.width, p.padding) for p in joining] == [(30, 18)]


def test_budget_512():
    assert [
        (e.budget.decode + e.budget.prefill, e.budget.unused)
        for e in run("budget-512").events
        if e.budget.prefill > 99
    ] == [(303, 209)]


def test_three_lengths_one_after_the_other():
    trace = run("three-lengths", policy="sequential")
    assert finishes(trace) == [19, 34, 59]


@pytest.mark.slow
def test_a_long_prompt_stalls_a_step_only_without_chunking():
    whole, chunked = run("long-prompt-arrives"), run("long-prompt-chunked")
    assert max(p.tokens for e in whole.events for p in e.passes) > 400
    assert (
        max(p.tokens for e in chunked.events for p in e.passes)
        == chunked.config.max_num_batched_tokens
    )
    # Each of the four decodes in every step until it ends, long prompt or not.
    for trace in (whole, chunked):
        for request in ("r0", "r1", "r2", "r3"):
            steps = [e.step for e in trace.events if any(s.request == request for s in e.sampled)]
            assert steps == list(range(steps[0], steps[0] + 40))


def test_kv_pressure_preempts_and_changes_no_token():
    tight, roomy = run("kv-pressure"), run("kv-pressure", num_blocks=None)
    assert sum(len(e.preempted) for e in tight.events) >= 3
    assert not any(e.preempted for e in roomy.events)
    assert tight.outputs == roomy.outputs


@pytest.mark.slow
def test_each_preemption_rule_has_its_price():
    newest, stall = run("kv-pressure"), run("kv-pressure-stall")
    assert newest.outputs == stall.outputs

    def price(trace: Trace) -> tuple[int, int, int, int]:
        preempted = [p for e in trace.events for p in e.preempted]
        stalled = sum(s.why.limit == "blocks" for e in trace.events for s in e.stalled)
        return num_steps(trace), len(preempted), sum(p.tokens_lost for p in preempted), stalled

    assert price(newest) == (60, 4, 101, 0) and price(stall) == (65, 3, 88, 41)


@pytest.mark.slow
def test_shortest_first_serves_most_sooner_and_one_later():
    def first_tokens(trace: Trace) -> dict[str, int]:
        arrived = {a.request: e.step for e in trace.events for a in e.arrived}
        tokens: dict[str, int] = {}
        for event in trace.events:
            for s in event.sampled:
                tokens.setdefault(s.request, event.step - arrived[s.request])
        return tokens

    shortest, as_they_come = run("shortest-first"), run("shortest-first", policy="continuous")
    assert (
        median(first_tokens(shortest).values()),
        median(first_tokens(as_they_come).values()),
    ) == (26, 36.5)
    order = [a.request for e in shortest.events for a in e.admitted]
    assert len([r for r in order[: order.index("r2")] if r not in ("r0", "r1")]) == 8
    assert first_tokens(shortest)["r2"] > first_tokens(as_they_come)["r2"]
    assert shortest.outputs == as_they_come.outputs


def test_shared_prefix_is_found_and_changes_no_token():
    shared, alone = run("shared-prefix"), run("shared-prefix", prefix_caching=False)
    assert len([h for e in shared.events for h in e.kv.prefix_hits]) == 4
    assert not any(e.kv.prefix_hits for e in alone.events)
    assert shared.outputs == alone.outputs


@pytest.mark.slow
def test_poisson_32_is_mixed():
    trace = run("poisson-32")
    assert len(trace.prompts) == 32
    assert len({len(p) for p in trace.prompts.values()}) > 5
    assert any(e.budget.decode and e.budget.prefill for e in trace.events)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_to_its_end_and_its_trace_checks(name):
    """Who is asked by messages ends the answer itself; a prompt goes on as long as was asked. The
    runs are the recorded ones, which `test_recorded_traces` has the engine do again.
    """
    trace = Trace.load(TRACES / f"{name}.jsonl")
    written = {r: len(ids) for r, ids in trace.outputs.items()}
    assert len(written) == len(preset(name).workload)
    for r in preset(name).workload:
        most = r.sampling.max_new_tokens
        assert written[r.id] < most if r.messages else written[r.id] == most


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_explains_itself(name):
    p = preset(name)
    assert p.title and p.shows.endswith(".") and len(p.shows) <= 120


def matrix(mask) -> list[str]:
    return ["".join("#" if cell else "." for cell in row) for row in mask.allowed]


def triangle(size: int, before: int, after: int) -> list[str]:
    return ["." * before + "#" * (i + 1) + "." * (size - i - 1) + "." * after for i in range(size)]


@pytest.mark.slow
def test_the_two_masks_that_the_gpt2_article_prints():
    trace = run("gpt2-masks")
    first = trace.mask(0, order="cached-new")
    assert matrix(first) == triangle(5, 0, 12) + triangle(5, 5, 7) + triangle(7, 10, 0)
    sixth = trace.mask(6, order="cached-new")
    cached = "." * 22  # r1's 10 and r2's 12 cached keys
    assert matrix(sixth) == [
        *(cached + row for row in triangle(10, 0, 2)),
        "#" * 10 + "." * 22 + "#" + ".",
        "." * 10 + "#" * 12 + "." * 11 + "#",
    ]
    assert [p.request for p in sixth.queries] == ["r3"] * 10 + ["r1", "r2"]
