"""Recordings of a real vLLM under HTTP traffic: every one opens whole, each step is as its raw line
says, and the totals are those of vLLM's own counters and of its clients. A line or a counter that
says something else is found. None has a warning, but for the blocks of those whose recorder did not
say which blocks leave a window.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.recorders.compare import STEP_FACTS, compare_steps, compare_totals
from core.recorders.convert import checked_trace
from core.recorders.follow import Follower
from core.recorders.raw import read_raw
from core.trace.events import StepEvent
from core.trace.trace import Trace

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm-http"
NAMES = sorted(path.name.removesuffix(".raw.jsonl.gz") for path in DATA.glob("*.raw.jsonl.gz"))
SILENT = ("hybrid", "sliding-window")  # on which blocks leave a window
CLIENTS = json.loads((DATA / "clients.json").read_text())
Lines = list[dict[str, Any]]


def raw_of(name: str) -> Path:
    return DATA / f"{name}.raw.jsonl.gz"


def lines_of(name: str) -> Lines:
    return [json.loads(line) for line in gzip.decompress(raw_of(name).read_bytes()).splitlines()]


def written(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {name: checked_trace(read_raw([raw_of(name)])[0]) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_as_its_line_says_and_no_rule_is_broken(
    traces: dict[str, Trace], name: str
) -> None:
    trace = traces[name]
    warned = [event.warnings for event in trace.events if event.warnings]
    assert trace.complete and bool(warned) == (name in SILENT)
    found = compare_steps([raw_of(name)], trace) + compare_totals(
        DATA / f"{name}.metrics.txt", [trace]
    )
    every = STEP_FACTS.keys() - {"queue"}  # which only snapshots have
    assert {compared.fact for compared in found} >= every
    assert [c.fact for c in found if c.differ] == (["blocks"] if name in SILENT else [])
    assert (
        min(compared.count for compared in found if compared.fact in every)
        == len(trace.events)
        > 300
    )


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_clients_were_told_what_the_trace_says(traces: dict[str, Trace], name: str) -> None:
    """Of every client that stayed to the end: as many tokens, and an end by itself or, where its
    front end found a stop string, from outside.
    """
    trace = traces[name]
    ends = {f.request: f.finish_reason for event in trace.events for f in event.finished}
    told = 0
    for client, (kind, reasons, tokens) in CLIENTS[name].items():
        mine = [request for request in trace.asked if request.startswith(client)]
        if tokens is None or not mine:
            continue
        told += 1
        assert sum(len(trace.outputs[request]) for request in mine) == tokens, (client, kind)
        assert {ends[request] for request in mine} <= {*reasons, "cancelled"} and (
            "stop" in reasons or "cancelled" not in {ends[r] for r in mine}
        )
    assert told > 15


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[dict[str, Any]], Any]]] = {
    "positions": (
        lambda s: s["segments"],
        lambda s: s["segments"][0].update(length=s["segments"][0]["length"] + 1),
    ),
    "tokens": (
        lambda s: s.get("sampled"),
        lambda s: s["sampled"].update({next(iter(s["sampled"])): [7, 7]}),
    ),
    "waiting": (lambda s: s["waiting"] > 1, lambda s: s.update(waiting=s["waiting"] - 1)),
    "head": (lambda s: s["waiting"] > 1, lambda s: s.update(head="somebody else")),
    "preempted": (lambda s: s["preempted"], lambda s: s["preempted"][0].__setitem__(1, 1)),
    "blocks": (lambda s: s["segments"], lambda s: s.update(blocks_free=s["blocks_free"] - 1)),
}


@pytest.mark.parametrize("fact", TAMPERED)
def test_a_line_that_says_something_else_is_found(
    traces: dict[str, Trace], tmp_path: Path, fact: str
) -> None:
    has, tamper = TAMPERED[fact]
    lines = lines_of("priority-pressure")
    steps = [line for line in lines if line["kind"] == "step" and line["step"] > 40 and has(line)]
    tamper(steps[0])
    found = compare_steps([written(tmp_path / "run.raw.jsonl", lines)], traces["priority-pressure"])
    assert [(c.fact, c.differ) for c in found if c.differ] == [(fact, 1)]
    assert next(c for c in found if c.differ).first.startswith(f"step {steps[0]['step']}: ")


def test_a_step_that_the_trace_does_not_have_is_found(
    traces: dict[str, Trace], tmp_path: Path
) -> None:
    trace = traces["long-prefill"]
    short = Trace(trace.header, trace.asked, trace.events[:-1])
    found = {c.fact: c for c in compare_steps([raw_of("long-prefill")], short)}
    assert found["shown"].differ == 1 and found["shown"].first.startswith(
        f"step {len(trace.events) - 1}: "
    )


@pytest.mark.parametrize("name", ["true-async", "reset-running"])
def test_a_recording_that_is_followed_shows_the_same(
    traces: dict[str, Trace], tmp_path: Path, name: str
) -> None:
    lines = [line for line in lines_of(name) if line["kind"] != "end"] + [
        {"kind": "end", "dropped": 0}
    ]
    follower = Follower(written(tmp_path / "run.raw.jsonl", lines))
    updates = follower.poll()
    while follower.has_more:
        updates += follower.poll()
    assert follower.is_over
    found = [event for event in updates if isinstance(event, StepEvent)]
    assert [(e.finished, e.released, e.waiting, e.kv, e.warnings) for e in found] == [
        (e.finished, e.released, e.waiting, e.kv, e.warnings) for e in traces[name].events
    ]


def test_a_counter_that_says_something_else_is_found(
    traces: dict[str, Trace], tmp_path: Path
) -> None:
    metrics = tmp_path / "metrics.txt"
    text = (DATA / "priority-pressure.metrics.txt").read_text()
    for counter in ("generation_tokens", "num_preemptions", "prefix_cache_hits"):
        lines = [
            f"{line[:-2]}1.0" if line.startswith(f"vllm:{counter}_total") else line
            for line in text.splitlines()
        ]
        metrics.write_text("\n".join(lines))
        assert [
            c.fact for c in compare_totals(metrics, [traces["priority-pressure"]]) if c.differ
        ] == [counter]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["import", *map(str, arguments)])
    shown = capsys.readouterr()
    return int(done.value.code or 0), shown.out, shown.err


@pytest.mark.slow
def test_the_command_says_what_differs_and_ends_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = DATA / "long-prefill.metrics.txt"
    code, out, _ = run(capsys, raw_of("long-prefill"), "--verify", "--metrics", metrics)
    assert (
        code == 0
        and "KV blocks in use: the same in 725" in out
        and "generated tokens: the same\n" in out
    )
    wrong = tmp_path / "metrics.txt"
    wrong.write_text(
        metrics.read_text()
        .replace("generation_tokens_total", "x")
        .replace("vllm:num_preemptions_total", "vllm:num_preemptions_total")
    )
    wrong.write_text(wrong.read_text() + 'vllm:generation_tokens_total{engine="0"} 3.0\n')
    code, out, _ = run(capsys, raw_of("long-prefill"), "--verify", "--metrics", wrong)
    assert code == 1 and "generated tokens: differ in 1 of 1; in all: 3 on record" in out
    code, out, _ = run(
        capsys, raw_of("long-prefill"), "--verify", "--json", "--out", tmp_path / "run.jsonl"
    )
    (row,) = json.loads(out)["traces"]
    assert (
        code == 0
        and {c["differ"] for c in row["compared"]} == {0}
        and Trace.load(tmp_path / "run.jsonl").complete
    )


@pytest.mark.parametrize("missing", [range(50, 63), range(225, 227)])
def test_totals_are_not_compared_where_steps_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: range
) -> None:
    """Whoever came and went in them is in vLLM's counters and nowhere else; also where no snapshot
    comes after them.
    """
    whole = gzip.decompress((DATA.parent / "vllm-0.32-snapshots.raw.jsonl.gz").read_bytes())
    lines = [json.loads(line) for line in whole.splitlines()]
    rest = [line for line in lines if line["kind"] != "step" or line["step"] not in missing]
    raw, metrics = written(tmp_path / "run.raw.jsonl", rest), tmp_path / "metrics.txt"
    metrics.write_text('vllm:generation_tokens_total{engine="0"} 900.0\n')
    _, out, said = run(capsys, raw, "--verify", "--metrics", metrics)
    assert "generated tokens" not in out
    assert "The totals are not compared, as steps are missing in this recording." in said


def test_an_import_that_is_refused_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "run.jsonl"
    out.parent.mkdir()
    broken = written(
        tmp_path / "broken.raw.jsonl",
        [{**lines_of("async")[0], "block_size": 0}, *lines_of("async")[1:]],
    )
    code, _, said = run(capsys, broken, "--out", out)
    assert code == 2 and "block_size" in said and list(out.parent.iterdir()) == []
    out.write_text("what was there before")
    assert run(capsys, broken, "--out", out)[0] == 2 and out.read_text() == "what was there before"
    assert run(capsys, raw_of("async"))[2].startswith("--out says where")


def test_a_header_claims_no_rule_that_the_engine_was_not_run_with(traces: dict[str, Trace]) -> None:
    priority, usual = traces["priority-pressure"].header.policy, traces["async"].header.policy
    assert (priority.name, priority.order_by, priority.victim) == (
        "priority",
        "priority",
        "lowest priority",
    )
    assert (usual.name, usual.order_by, usual.victim, usual.reserve) == (
        "continuous",
        "arrival",
        "newest",
        "prompt",
    )
    lines = lines_of("async")
    own = ruled_of([{**lines[0], "scheduler": "MyScheduler"}, *lines[1:]])
    assert own.header.policy.order_by == "not recorded" and not own.events[5].warnings


def ruled_of(lines: Lines) -> Trace:
    from core.recorders.raw import Recording

    steps, aborts = ([line for line in lines if line["kind"] == kind] for kind in ("step", "abort"))
    return checked_trace(Recording("x", lines[0], steps, aborts))


@pytest.mark.slow
def test_what_holds_a_chunk_is_the_threshold_on_record_or_is_not_recorded(
    traces: dict[str, Trace],
) -> None:
    def limits(trace: Trace) -> set[str]:
        return {admitted.why.limit for event in trace.events for admitted in event.admitted}

    # an older recorder did not say the threshold
    assert limits(traces["long-prefill"]) == {"none", "unrecorded"}
    lines = lines_of("long-prefill")
    told = ruled_of([{**lines[0], "long_prefill_token_threshold": 32}, *lines[1:]])
    assert limits(told) == {"none", "chunk"} and not any(event.warnings for event in told.events)
    false = ruled_of([{**lines[0], "long_prefill_token_threshold": 31}, *lines[1:]])
    assert limits(false) == {"none", "unrecorded"}


def test_a_head_that_was_skipped_is_said_to_be(
    traces: dict[str, Trace],
) -> None:
    lines = lines_of("priority-pressure")
    at = next(
        line for line in lines if line["kind"] == "step" and line["waiting"] and line["step"] > 40
    )
    event = traces["priority-pressure"].event(at["step"])
    assert event.waiting.why is not None and event.waiting.why.limit == "blocks"
    at["skipped"] = True
    again = ruled_of(lines).event(at["step"])
    assert (
        again.waiting.why is not None
        and again.waiting.why.limit == again.budget.binding == "skipped"
        and not again.warnings
    )


def test_whoever_is_preempted_and_joins_again_in_one_step_begins_a_table_anew(
    traces: dict[str, Trace],
) -> None:
    both = [
        e
        for e in traces["reset-running"].events
        if {p.request for p in e.preempted} & {a.request for a in e.admitted}
    ]
    assert len(both) == 2
    assert all(
        len(set(blocks)) <= event.kv.used
        for event in both
        for blocks in [[b for c in event.kv.changes for b in c.added]]
    )


def test_whoever_ends_while_the_next_step_is_under_way_keeps_its_blocks_through_it(
    traces: dict[str, Trace],
) -> None:
    """With two steps in flight: some end without a row in the next step, and leave only after
    it.
    """
    trace, late = traces["true-async"], 0
    for event, following in zip(trace.events, trace.events[1:], strict=False):
        ended, rows = (
            {f.request for f in event.finished if f.when == "after"},
            {s.request for s in following.segments},
        )
        late += len(
            ended & {left.request for left in following.released if left.when == "after"} - rows
        )
    assert late > 10
