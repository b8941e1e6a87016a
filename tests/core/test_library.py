"""What people import: one name, its surface, what its values look like in a shell, and what they become elsewhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import inflight
from core import Workload, compare_policies, page
from core.config import EngineConfig
from core.errors import InflightError
from core.measure.rounds import Progress
from core.trace.trace import Trace
from inflight import metrics
from visualizer.documents.catalogue import TRACES
from worlds.small import memory_engine, memory_trace, requests

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.load(TRACES / "short-and-long.jsonl")


def test_importing_it_loads_neither_torch_nor_a_page():
    words = "import inflight, sys; print(sorted({'torch', 'transformers', 'gradio', 'visualizer.page'} & set(sys.modules)), inflight.EngineConfig)"
    said = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert said == f"[] {EngineConfig}\n"


def test_every_public_name_is_there_and_says_what_it_is():
    assert {*inflight.__all__, "__version__"} == set(dir(inflight))
    for name in inflight.__all__:
        assert getattr(inflight, name).__doc__, name
    assert all(
        name in inflight.__doc__
        for name in ("metrics", "delays", "compare_policies", "show", "InflightError")
    )
    with pytest.raises(AttributeError, match="nonsense"):
        _ = inflight.nonsense


def test_all_that_is_public_says_what_it_is():
    """Functions, classes, their methods and properties, in all of core; what overrides a method may leave the words to it."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    parsed = [
        ast.parse(path.read_text(encoding="utf-8"), path.name)
        for path in sorted((ROOT / "core").rglob("*.py"))
    ]
    classes = {
        node.name: node
        for module in parsed
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    }

    def above(node: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef]:
        for base in getattr(node, "bases", ()):
            if isinstance(base, ast.Name) and (found := classes.get(base.id)) not in (None, node):
                yield from (found, *above(found))

    def silent(node: ast.Module | ast.ClassDef) -> Iterator[str]:
        inherited = {
            one.name for base in above(node) for one in base.body if isinstance(one, kinds)
        }
        for child in node.body:
            if isinstance(child, kinds) and not child.name.startswith("_"):
                is_setter = any(
                    isinstance(mark, ast.Attribute) and mark.attr == "setter"
                    for mark in child.decorator_list
                )
                if not (ast.get_docstring(child) or is_setter or child.name in inherited):
                    yield child.name
                if isinstance(child, ast.ClassDef):
                    yield from (f"{child.name}.{name}" for name in silent(child))

    assert [name for module in parsed for name in silent(module)] == [] and len(classes) > 100


def test_a_run_is_a_line_in_a_shell(trace):
    assert (
        repr(trace)
        == "<Trace of short-and-long under continuous: 12 requests, 40 steps, 141 new tokens>"
    )


def test_tables_have_a_row_for_each_step_request_and_segment(trace):
    steps, requests, segments = trace.to_pandas()
    found = metrics(trace)
    assert (len(steps), len(requests)) == (found["steps"], found["requests"])
    assert steps.new_tokens.sum() == requests.output_tokens.sum() == found["output_tokens"]
    assert (
        segments.length.sum()
        == steps.decode_tokens.sum() + steps.prefill_tokens.sum()
        == found["positions"]["tokens"]
    )
    assert segments.groupby("step").request.nunique().tolist() == steps.running.tolist()
    assert requests.ttft_s.max() == pytest.approx(found["ttft_s"]["max"])
    parts = [name for name in requests if name.endswith("_us") and name != "whole_us"]
    assert len(parts) == 8 and requests[parts].sum(axis=1).tolist() == requests.whole_us.tolist()


def test_the_columns_of_a_step_are_those_of_what_ran():
    """Two lanes. r2 and r3 come in step 1 and wait; in steps 2 and 3 one joins each, and its prompt of three pads the token of r0."""
    trace = memory_trace(
        (5, 4), (3, 2), (3, 1, 1), (3, 1, 1), policy="dynamic", max_num_seqs=2, block_size=4
    )
    steps = trace.to_pandas().steps
    columns = [
        "arrived",
        "admitted",
        "running",
        "waiting",
        "finished",
        "passes",
        "decode_tokens",
        "prefill_tokens",
        "padding",
        "new_tokens",
    ]
    assert steps[columns].to_numpy().tolist() == [
        [2, 2, 2, 0, 0, 1, 0, 8, 2, 2],
        [2, 0, 2, 2, 1, 1, 2, 0, 0, 2],
        [0, 1, 2, 1, 1, 1, 1, 3, 2, 2],
        [0, 1, 2, 0, 2, 1, 1, 3, 2, 2],
    ]
    assert steps.kv_blocks.tolist() == [3, 3, 3, 3]
    split = memory_trace((5, 2), policy="split", max_num_seqs=1, block_size=4).to_pandas()
    assert (
        split.steps.running.tolist() == [1] and len(split.segments) == 2
    )  # its prefill, and its first decode, in one step
    times = [(event.timings.schedule, event.timings.forward) for event in trace.events]
    assert list(zip(steps.schedule_s, steps.forward_s, strict=True)) == times


def test_policies_are_compared_round_by_round_on_one_engine():
    seen: list[Progress] = []
    workload = Workload(requests((4, 3), (3, 2)))
    found = compare_policies(
        memory_engine(max_num_seqs=1),
        workload,
        ("dynamic", "static"),
        repeats=2,
        on_run=seen.append,
    )
    assert [(p.contender, p.round) for p in seen[:2]] == [("dynamic", 0), ("static", 0)] and len(
        seen
    ) == 6
    assert {name: run.trace.header.config.policy.name for name, run in found.runs.items()} == {
        "dynamic": "dynamic",
        "static": "static",
    }
    assert (
        all(run.trace.header.config.max_num_seqs == 1 for run in found.runs.values())
        and found.outputs_identical
    )
    assert all(len(walls) == 2 for walls in found.walls.values())


def test_a_page_is_refused_in_a_sentence(trace, tmp_path, monkeypatch):
    with pytest.raises(
        InflightError, match=r"^This trace has no step 999; its steps go from 0 to 39\.$"
    ):
        trace.show(step=999)
    monkeypatch.setattr(page, "draw", None)
    assert trace._repr_html_() is None
    with pytest.raises(InflightError, match="`import inflight` brings what does"):
        trace.save_html(tmp_path / "run.html")
    assert not (tmp_path / "run.html").exists()
