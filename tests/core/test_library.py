"""What people import: one name, its surface, what its values look like in a shell, and what they
become elsewhere.
"""

from __future__ import annotations

import ast
import html
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

import core
import inflight
from core import Workload, compare_policies, page
from core.account.metrics import wall_s
from core.config import EngineConfig
from core.errors import InflightError
from core.measure.rounds import Progress
from core.trace.trace import Trace
from inflight import metrics, tables
from visualizer.documents.catalogue import TRACES
from worlds.small import MemoryModel, memory_engine, memory_trace, requests

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.load(TRACES / "short-and-long.jsonl")


def test_importing_it_loads_neither_torch_nor_a_page():
    words = (
        "import inflight, sys; print(sorted({'torch', 'transformers', 'gradio', 'visualizer.page'}"
        " & set(sys.modules)), inflight.EngineConfig)"
    )
    said = subprocess.run(
        [sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert said == f"[] {EngineConfig}\n"


def test_every_public_name_is_there_and_says_what_it_is():
    assert {*core.__all__, "__version__"} == set(dir(inflight))
    assert {"check", "import_recording", "compare", "sweep_load"} < set(dir(inflight))
    for name in core.__all__:
        assert getattr(inflight, name).__doc__, name
    assert all(
        name in inflight.__doc__
        for name in ("metrics", "delays", "compare_policies", "show", "InflightError")
    )
    with pytest.raises(AttributeError, match="module 'inflight' has no attribute 'nonsense'"):
        _ = inflight.nonsense


def test_a_star_takes_no_name_that_is_not_ours():
    taken: dict[str, object] = {}
    exec("from inflight import *", taken)
    assert set(taken) == {"__builtins__"}


def test_help_is_a_page():
    printed = pydoc.render_doc(inflight, renderer=pydoc.plaintext)
    assert inflight.__doc__.splitlines()[0] in printed and len(printed.splitlines()) < 150


def test_a_trace_is_a_list_of_its_steps(trace):
    """Its gap: nothing runs between the first request and one that comes in step 9."""
    assert (len(trace), list(trace)) == (40, trace.events)
    assert trace[3] is trace.event(3) and trace[-1] is trace.events[-1]
    assert [event.step for event in trace[10:13]] == [10, 11, 12]
    apart = memory_trace((2, 1), (2, 1, 9))
    assert [event.step for event in apart] == [0, 9] and apart[1].step == 9
    with pytest.raises(IndexError, match=r"^This trace has no event 2; it has 2\.$"):
        apart[2]


def test_a_mask_is_written_out_where_it_is_small(trace):
    small = memory_trace((2, 2), (3, 1)).mask(step=0)
    assert repr(small) == (
        "<Mask of 5 queries by 5 keys: 9 of 25 pairs may attend>\n#....\n##...\n..#..\n..##.\n..###"
    )
    large = memory_trace((31, 1), (30, 1)).mask(step=0)
    assert repr(large) == "<Mask of 61 queries by 61 keys: 961 of 3,721 pairs may attend>"
    with pytest.raises(
        InflightError,
        match=r"^Keys have no order 'x'; they are ordered by 'request' or 'cached-new'\.$",
    ):
        trace.mask(step=0, order="x")
    with pytest.raises(InflightError, match=r"^Step 6 has 1 pass, so there is no pass 1\.$"):
        trace.mask(step=6, pass_index=1)


def test_a_trace_is_checked_as_it_is_or_as_a_file(trace, tmp_path):
    assert inflight.check(trace).num_steps == 40
    path = tmp_path / "wrong.jsonl"
    event = trace.events[5]
    wrong = replace(trace, events=[*trace.events])
    wrong.events[5] = event._replace(budget=event.budget._replace(binding="blocks"))
    wrong.save(path)
    for run in (trace, TRACES / "short-and-long.jsonl"):
        found = inflight.check(run)
        assert found.num_tokens == 141 and found.not_replayed is found.not_decoded is None
    with pytest.raises(inflight.InvalidTrace):
        inflight.check(path)


def test_a_recording_is_imported_in_all_its_parts():
    parts = [ROOT / f"tests/data/vllm-0.32-two-ranks.rank{rank}.raw.jsonl.gz" for rank in (0, 1)]
    assert inflight.import_recording(str(parts[0])).header.engine
    with pytest.raises(InflightError, match="several ranks; import one at a time"):
        inflight.import_recording(*parts)


@pytest.mark.slow
def test_all_that_is_public_says_what_it_is():
    """Functions, classes, their methods and properties, in all of core; what overrides a method may
    leave the words to it.
    """
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
    steps, requests, segments = tables(trace)
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
    """Two lanes. r2 and r3 come in step 1 and wait; in steps 2 and 3 one joins each, and its prompt
    of three pads the token of r0.
    """
    trace = memory_trace(
        (5, 4), (3, 2), (3, 1, 1), (3, 1, 1), policy="dynamic", max_num_seqs=2, block_size=4
    )
    steps = tables(trace).steps
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
    split = tables(memory_trace((5, 2), policy="split", max_num_seqs=1, block_size=4))
    # its prefill, and its first decode, in one step
    assert split.steps.running.tolist() == [1] and len(split.segments) == 2
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


COST, RUNS = inflight.Roofline.named("h100", "8b"), "An engine runs a Workload, such as"
TWO, ARRAY = Workload(requests((4, 3), (3, 2))), numpy.zeros(2)
SHORT = Trace.load(TRACES / "short-and-long.jsonl")
CALLS = {
    "a list for a workload": (lambda: simulated().run([]), RUNS),
    "a preset for a workload": (lambda: simulated().stream(inflight.preset("gpt2-six")), RUNS),
    "a name for a workload": (lambda: simulated().turns("gpt2-six"), RUNS),
    "a list to be compared": (lambda: compare_policies(simulated(), []), RUNS),
    "a dict for a request": (lambda: simulated().add_request({"id": "a"}), "takes a Request"),
    "requests to cancel": (lambda: simulated().cancel(["a"]), "by its id"),
    "a number for limits": (lambda: simulated().begin("s", "x", 5), "are an EngineConfig"),
    "a unit of no workload": (
        lambda: simulated().begin("min"),
        'must be "step" or "s", not \'min\'',
    ),
    "a number for a name": (lambda: simulated().begin("s", 5), "name must be text, not 5"),
    "a word for policies to be tried": (
        lambda: inflight.plan(SHORT, policies="static"),
        "Policies to be tried are a list",
    ),
    "a name for limits": (lambda: inflight.SimulatedEngine(COST, "static"), "are an EngineConfig"),
    "a name for a cost": (lambda: inflight.SimulatedEngine("h100"), "needs a cost, such as"),
    "a name for a model": (lambda: inflight.Engine("shakespeare-bpe"), "Engine.from_pretrained"),
    "a path for a name": (lambda: inflight.Engine.from_pretrained(ROOT), "as text, not"),
    "a name for an engine": (lambda: compare_policies("x", Workload([])), "on an engine, not str"),
    "a word for policies": (lambda: compare_policies(simulated(), Workload([]), "x"), "as a list"),
    "a path for a trace": (lambda: metrics("run.jsonl"), "of a Trace, such as Trace.load"),
    "a path to be told of": (lambda: inflight.delays("run.jsonl"), "of a Trace, such as"),
    "a path as tables": (lambda: tables("run.jsonl"), "of a Trace, such as"),
    "a path to be fitted": (lambda: inflight.fit("run.jsonl"), "of a Trace, such as"),
    "a number for SLOs": (lambda: metrics(memory_trace((2, 1)), 0.2), "such as SLOs"),
    "words in SLOs": (lambda: inflight.SLOs(ttft_s="fast"), "a number of seconds above 0, not str"),
    "a trace for a path": (lambda: Trace.load(memory_trace((2, 1))), "by its path, not Trace"),
    "no path": (lambda: memory_trace((2, 1)).save(None), "by its path, not None"),
    "no file": (lambda: Workload.load(None), "by its path, not None"),
    "a word among requests": (lambda: Workload(["a"]), "holds requests, not str"),
    "a preset's requests": (lambda: Workload(inflight.preset("gpt2-six")), "a list of requests"),
    "a list of presets": (lambda: inflight.preset(["gpt2-six"]), "a name, not list"),
    "a number for a stream": (lambda: inflight.run_stream(simulated(), 5), "yields requests"),
    "a stream of words": (lambda: inflight.run_stream(simulated(), ["a"]), "requests, not str"),
    "a stream for nobody": (lambda: inflight.run_stream("x", []), "engine runs a stream"),
    "a file of nobody's": (lambda: inflight.writing("x", "run.jsonl").__enter__(), "engine is"),
    "a number for a policy": (lambda: inflight.register_policy(3, inflight.Policy), "name is a"),
    "a name for a policy": (lambda: inflight.register_policy("x", "static"), "class of it"),
    "a number for a card": (lambda: inflight.Roofline.named(3, "8b"), "is a name, not int"),
    "a share in words": (lambda: inflight.Roofline("h100", "8b", reached="all"), "not str"),
    "a list for a request's id": (lambda: memory_trace((2, 1)).text([]), "an id, not list"),
    "a word for a pass": (lambda: memory_trace((2, 1)).mask(0, "0"), "a number, not str"),
    "a word for a layer": (lambda: memory_trace((2, 1)).mask(0, layer="0"), "a number, not str"),
    "an order that is none": (lambda: memory_trace((2, 1)).mask(0, order="x"), "have no order 'x'"),
    "a number for lines": (lambda: Trace.from_lines(3), "from its lines, not int"),
    "a number among lines": (lambda: Trace.from_lines([3]), "is text, not int"),
    "a number to be checked": (lambda: inflight.check(3), "by its path, not int"),
    "a name with a NUL": (lambda: Trace.load("a\0b"), r"No file can be named 'a\\x00b'"),
    "half a character": (lambda: memory_trace((2, 1)).save("\ud800"), "No file can be named"),
    "paths to be compared": (lambda: inflight.compare("a", "b"), "of a Trace, such as"),
    "a path to part from": (lambda: memory_trace((2, 1)).diff("a"), "of a Trace, such as"),
    "a path to be timed": (lambda: inflight.request_times("run.jsonl"), "of a Trace, such as"),
    "a list for a view": (lambda: memory_trace((2, 1)).plot([]), r"There is no view \[\]"),
    "a number for a film": (lambda: memory_trace((2, 1)).animate(3), "by its path, not int"),
    "a path for a tokenizer": (
        lambda: memory_trace((2, 1)).decoded("bpe"),
        "transformers, not str",
    ),
    "a request that is unknown": (lambda: memory_trace((2, 1)).token_text("z", 0), "no request 'z"),
    "a token before the first": (lambda: memory_trace((2, 1)).token_text("r0", -1), "no token -1"),
    "a token after the last": (lambda: memory_trace((2, 1)).token_text("r0", 3), "no token 3"),
    "nobody to compare": (lambda: compared().verdict("z"), "'z' was not compared; a, b were"),
    "nobody to compare with": (lambda: compared().verdict("a", "z"), "'z' was not compared"),
    "numbers for names": (lambda: compared(names=5), "Names of traces are a list, not int"),
    "a list for a name": (lambda: compared(names=[[], "b"]), "is text, not list"),
    "a number for a recording": (lambda: inflight.import_recording(5), "by its path, not int"),
    "a recording with a NUL": (lambda: inflight.import_recording("a\0"), "No file can be named"),
    "no lanes to plan": (lambda: inflight.plan(memory_trace((2, 1)), lanes=None), "a list, not"),
    "a number for rates": (lambda: inflight.Sweep(rates=5), "The rates are a list, not int"),
    "a rate without an end": (lambda: inflight.Sweep(rates=[10**5000]), "above 0, not a int"),
    "no seconds": (lambda: inflight.Sweep(seconds=None), "above 0 seconds, not None"),
    "no engines": (lambda: inflight.sweep_load(None, inflight.Sweep()), "engines by name, not"),
    "no engine": (lambda: inflight.sweep_load({"a": None}, inflight.Sweep()), "on engines, not"),
    "no sweep": (lambda: inflight.sweep_load({"a": simulated()}, None), "is a Sweep, such as"),
    "bytes for a length": (
        lambda: inflight.Lengths(b"5"),
        "A length is text, as '16-96', not bytes",
    ),
    "a long length": (lambda: inflight.Lengths("9" * 5000), r"^'9+\.\.\.9+' is no length"),
    "no size": (lambda: inflight.Roofline.named("h100", None), "is a name, not None"),
    "no data sheet": (lambda: inflight.Roofline.from_json(None), "no cost by data sheet"),
    "more cards than fit": (lambda: inflight.Roofline("h100", "8b", cards=10**5000), "by a int of"),
    "a dict for an execution": (
        lambda: inflight.Engine(MemoryModel(), execution={}),
        "an Execution says, not dict",
    ),
    "a number to be told of steps": (
        lambda: simulated().run(Workload([]), 5),
        "is a function, not",
    ),
    "no limits to be checked": (lambda: simulated().check_config(None), "are an EngineConfig"),
    "a step for a film": (lambda: memory_trace((2, 1)).animate("x.gif", 5), "a slice, not int"),
    "no time for a film": (
        lambda: memory_trace((2, 1)).animate("x.gif", seconds=None),
        "60 seconds, not None",
    ),
    "a class that is no policy": (lambda: inflight.register_policy("x", int), "class of it, not"),
    "no limits as data": (lambda: EngineConfig.from_json(None), "is an object, not None"),
    "a number for prompts": (lambda: Workload([], prompts=5), "ids by request, not int"),
    "no repeats": (lambda: compare_policies(memory_engine(), TWO, repeats=None), "not None"),
    "half a repeat": (lambda: compare_policies(memory_engine(), TWO, repeats=1.5), "not 1.5"),
    "a number told of runs": (lambda: compare_policies(simulated(), TWO, on_run=3), "not int"),
    "a number told of settings": (
        lambda: inflight.plan(memory_trace((2, 1)), on_point=3),
        "told of each setting is a function, not int",
    ),
    "a number for a setting": (
        lambda: inflight.plan(SHORT).run(3),
        "is one of the plan's points, not int",
    ),
    "a number to be named": (lambda: inflight.plan(SHORT).name_of(3), "an EngineConfig, not int"),
    "no tokens of a prompt": (
        lambda: inflight.Request("a", prompt="x").of_tokens(None),
        "of tokens are a list, not None",
    ),
    "words as bounds of a film": (
        lambda: memory_trace((2, 1)).animate("x.gif", slice("a", "b")),
        "No steps can be chosen by slice",
    ),
    "a film that stands": (
        lambda: memory_trace((2, 1)).animate("x.gif", slice(0, 1, 0)),
        "chosen by slice.0, 1, 0",
    ),
    "no vocabulary": (lambda: inflight.SimulatedEngine(COST, vocab_size=0), "from 1 to .*, not 0"),
    "a context in words": (lambda: inflight.SimulatedEngine(COST, max_model_len="x"), "not 'x'"),
    "a window before all": (lambda: inflight.SimulatedEngine(COST, window=-1), "not -1"),
    "a number for a model's name": (lambda: inflight.SimulatedEngine(COST, name=3), "a name, not"),
    "a device that is no name": (
        lambda: inflight.Engine.from_pretrained("shakespeare-char", device=object()),
        "is named, as .*, not object",
    ),
    "a fact that is none": (lambda: inflight.check(memory_trace((2, 1))).proof_of("x"), "'x'; th"),
    # of which no two can be compared without saying which
    "numbers for a step": (lambda: memory_trace((2, 1)).event(ARRAY), "its number, not ndarray"),
    "numbers for a view": (lambda: memory_trace((2, 1)).plot(ARRAY), "There is no view"),
    "numbers for an order": (lambda: memory_trace((2, 1)).mask(0, order=ARRAY), "no order"),
    "numbers for one compared": (lambda: compared().verdict(ARRAY), "was not compared"),
    "numbers for attention": (lambda: inflight.Execution(attention=ARRAY), "no attention"),
    "numbers for a unit": (lambda: Workload([], arrival_unit=ARRAY), "must be .step. or"),
    "numbers for prompts": (lambda: Workload([], prompts=ARRAY), "ids by request, not ndarray"),
    "numbers for limits": (lambda: simulated().begin(config=ARRAY), "are an EngineConfig"),
    "numbers for a policy": (lambda: inflight.SimulatedEngine(COST, policy=ARRAY), "policy"),
    "JSON that is no trace": (lambda: Trace.from_lines(["{", "}"]), "line 1: this is no trace"),
}


def compared(names=("a", "b")) -> inflight.Comparison:
    return inflight.compare(memory_trace((2, 1)), memory_trace((2, 1)), names=names)


def simulated() -> inflight.SimulatedEngine:
    return inflight.SimulatedEngine(COST, EngineConfig(max_num_seqs=2))


@pytest.mark.parametrize("call", CALLS)
def test_what_is_of_the_wrong_kind_is_refused_in_a_sentence(call):
    wrong, sentence = CALLS[call]
    with pytest.raises(InflightError, match=sentence) as refused:
        wrong()
    assert str(refused.value).endswith(".")


def test_traces_are_compared_by_the_times_they_have():
    """A clock that ticks once for each reading: the times are those of the traces, not of now."""
    one, other = (memory_trace((4, 3), (3, 2), max_num_seqs=lanes) for lanes in (2, 1))
    found = inflight.compare(one, other, names=["two", "one"])
    assert found.walls == {
        "two": [round(wall_s(one), 6)],
        "one": [round(wall_s(other), 6)],
    }
    assert found.medians["one"]["steps"] == 5 and found.outputs_identical
    steps = {name: times.finish_step for name, times in found.requests["r1"].items()}
    assert steps == {"two": 1, "one": 4}
    for traces, names, refusal in (
        ((one, other), (), "called alike"),
        ((one, other), ["x"], "2 traces need as many names, not 1"),
        ((one, memory_trace((9, 3))), (), "different requests"),
    ):
        with pytest.raises(InflightError, match=refusal):
            inflight.compare(*traces, names=names)


def test_two_traces_part_in_a_sentence():
    two, one = (memory_trace((4, 3), (3, 2), max_num_seqs=lanes) for lanes in (2, 1))
    found = two.diff(one)
    assert str(found) == (
        "Fork at step 0: with 2 lanes r1 takes lane 1; with 1 lane r1 waits: the only lane is"
        " taken."
    )
    assert (found.step, found.request, two.diff(two)) == (0, "r1", None)


def test_a_page_in_a_cell_is_as_high_as_was_asked_and_holds_the_run_as_a_text(trace):
    cell = page.Page(trace, {}, height=300)._repr_html_()
    assert "height:300px" in cell and "height:820px" in trace.show()._repr_html_()
    (inside,) = re.findall(r'srcdoc="([^"]*)"', cell)
    assert html.unescape(inside) == page.Page(trace, {}).html(in_cell=True)


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
