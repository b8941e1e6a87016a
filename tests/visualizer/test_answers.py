"""The page's answers without a server: the same ones, from the same code, with the standard library
alone.
"""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.browser.executor import BrowserExecutor
from core.engine.engine import EngineCore
from core.errors import InflightError
from core.proof.mistakes import leaky_engine
from core.torch_engine.engine import Engine
from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.tokenizer import describe_model
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.browser import kept
from visualizer.browser.answers import Answers
from visualizer.browser.tab import Tab, TabJob
from visualizer.browser.time_limit import TimeLimit
from visualizer.documents.catalogue import TRACES
from visualizer.jobs.offers import preset_entry
from visualizer.page.step import PLOTLY
from visualizer.write.answers import FILE, executed
from worlds.gguf_files import write
from worlds.node_model import node_model
from worlds.pyodide import unpacked
from worlds.visitors import Visits, gather, spec

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import gzip, importlib.abc, json, sys

class NothingElse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in ("core", "visualizer") and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not of the standard library")

sys.meta_path.insert(0, NothingElse())

import core
from visualizer.browser import kept
from visualizer.browser.answers import Answers

for package in (core, sys.modules.get("core.simulate")):  # a simulated engine stands in for a model, and is not of the tab
    if package is not None:
        package.__path__.append(f"{sys.argv[4]}/{package.__name__.replace('.', '/')}")
from core.simulate.roofline import Roofline
from core.simulate.engine import SimulatedEngine

class Letters:  # a tokenizer in plain Python
    unk_token_id, unk_token = None, None

    def __call__(self, text, **options):
        return {"input_ids": [ord(letter) % 128 for letter in text]}

    def decode(self, ids, **options):
        return "".join(map(chr, ids))

answers = Answers(lambda model, config, leaks, sleep: SimulatedEngine(Roofline.named("h100", "124m"), config, Letters(), vocab_size=128))
spec = next(p for p in answers.call("state")["presets"] if p["name"] == "kv-pressure")["spec"]
found = {}
for kind, more in {"run": {}, "leak": {}, "fork": {"knob": "policy", "value": "static"}, "compare": {"policies": ["static", "continuous"], "repeats": 1}}.items():
    deltas = [delta for delta in answers.begin(kind, spec | more) if delta is not None]
    found[kind] = answers.document(deltas[-1]["url"])
run = deltas[-1]["id"] if "id" in deltas[-1] else answers.call("upload", [open(sys.argv[1]).read(), ["run.jsonl"]])["id"]
for kind in ("jsonl", "perfetto", "html", "plotly"):
    found[kind] = answers.document(answers.call("export", [kind, run, 2])["url"])
opened = answers.call("upload", [gzip.open(sys.argv[2], "rt").read(), ["vllm.jsonl"]])
found["recording"] = answers.document(opened["url"])
found["goals"] = answers.call("lesson_check", ["paged-kv", run, "de"])
found["dataset"] = answers.call("dataset", [sys.argv[3], "trace.csv", "shakespeare-bpe"])
print(json.dumps(found))
"""  # noqa: E501


@pytest.fixture
def answers(models: ModelCache) -> Answers:
    def engine(model, config, leaks, sleep):
        loaded = models.get(model, "cpu")
        return (
            leaky_engine(*loaded, config, sleep) if leaks else Engine(*loaded, config, sleep=sleep)
        )

    return Answers(engine)


def done(going) -> list[dict]:
    """All deltas of a job, as its page takes them in."""
    return [json.loads(json.dumps(delta)) for delta in going if delta is not None]


def told(deltas: list[dict]) -> dict:
    """What a run's deltas say together, however they were cut; times and addresses aside."""
    events = [event for delta in deltas for event in delta.get("events", ())]
    return {
        "header": [d["header"]["workload"] for d in deltas if "header" in d],
        "records": [d["records"] for d in deltas if "records" in d],
        "sampled": [event["sampled"] for event in events],
        "captions": [caption for delta in deltas for caption in delta.get("captions", ())],
        "letters": {k: v for delta in deltas for k, v in delta.get("letters", {}).items()},
        "last": sorted(set(deltas[-1]) - {"job"}),
    }


@pytest.mark.slow
def test_everything_is_answered_by_what_a_tab_gets(tmp_path):
    """From the sources that it gets, with the standard library alone."""
    unpacked(tmp_path)
    trace, raw = TRACES / "kv-pressure.jsonl", ROOT / "tests" / "data" / "vllm-0.32.raw.jsonl.gz"
    rows = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,20,8\n2023-11-16"
        " 18:17:04.0319600,30,9\n"
    )
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ALONE}",
        trace,
        raw,
        rows,
        ROOT,
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [json.loads(found[kind])["kind"] for kind in ("fork", "compare")] == [
        "fork",
        "comparison",
    ]
    assert json.loads(found["leak"])["complete"] and found["jsonl"] == trace.read_text()
    assert (
        "traceEvents" in json.loads(found["perfetto"])
        and "</html>" in found["html"]
        and PLOTLY in found["plotly"]
    )
    recorded = json.loads(found["recording"])
    assert recorded["header"]["source"] == "uploaded" and not any(
        "⟨" in t for ts in recorded["texts"]["prompt"].values() for t in ts
    )
    assert found["goals"].get("goals"), found["goals"]
    assert len(found["dataset"]["workload"]["requests"]) == 2


def test_a_run_is_told_as_a_server_tells_it(answers: Answers, models: ModelCache):
    (there,) = gather(Visits(models), (spec(), "me"))
    assert told(done(answers.begin("run", spec()))) == told(there)


def test_a_run_is_kept_whole(answers: Answers):
    *_, last = done(answers.begin("run", preset_entry(PRESETS["kv-pressure"])["spec"]))
    assert last["done"] and last["id"].startswith("tab-")
    kept, shipped = (
        json.loads(answers.document(last["url"])),
        Trace.load(TRACES / "kv-pressure.jsonl"),
    )
    assert (
        kept["texts"]["output"] == shipped.texts.output
        and kept["complete"]
        and "de" in kept["translations"]
    )


def test_the_latest_runs_are_kept_and_the_rest_is_gone(answers: Answers, monkeypatch):
    asked = spec()
    asked["workload"]["name"] = "lines\u2028of\x85text"
    runs = [done(answers.begin("run", asked))[-1] for _ in range(2)]
    assert all(json.loads(answers.document(run["url"]))["complete"] for run in runs)
    monkeypatch.setattr(kept, "_MOST", 1)
    *_, last = done(answers.begin("run", spec()))
    assert json.loads(answers.document(last["url"]))["complete"]
    assert answers.call("export", ["jsonl", runs[0]["id"]]) == {"error": kept.GONE}
    with pytest.raises(InflightError, match="no longer in this tab"):
        answers.document(runs[1]["url"])


def test_a_stopped_run_keeps_what_it_has(answers: Answers):
    going = answers.begin("run", spec(new=100))
    for delta in going:
        if delta and delta.get("events"):
            going.stop()
            last = delta
        last = delta or last
    assert last["stopped"].startswith("The run was cancelled after ") and last["url"]
    assert not json.loads(answers.document(last["url"]))["complete"]


def test_a_run_that_waits_for_an_arrival_gives_way(answers: Answers):
    late = spec()
    late["workload"]["arrival_unit"] = "s"
    late["workload"]["requests"] = late["workload"]["requests"][:2]
    late["workload"]["requests"][1]["arrival"] = 60
    going, idle = answers.begin("run", late), 0
    for delta in going:
        idle = 0 if delta else idle + 1
        if idle == 20:
            going.stop()
        last = delta
    assert last["stopped"].startswith("The run was cancelled after ")


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("run", {"workload": {"requests": []}}, "add a request"),
        ("run", spec() | {"model": "gpt2"}, "This page runs its own models only"),
        ("fork", spec() | {"knob": "lanes", "value": 3}, "One knob can be changed"),
        ("equivalence", spec(), "takes a page with a server"),
    ],
)
def test_what_is_not_accepted_is_refused_at_once(answers: Answers, kind, asked, words):
    with pytest.raises(Exception, match=words):
        answers.begin(kind, asked)


def test_a_request_that_the_model_cannot_read_is_named(answers: Answers):
    *_, last = done(answers.begin("run", spec("日本語")))
    assert last["error"].startswith("Request A: the tokenizer cannot encode")


def test_a_run_of_a_tab_says_which_python_and_which_pyodide_ran_it():
    versions = {"python": platform.python_version(), "pyodide": "314.0"}
    tab = Tab(json.dumps({"device_name": "Firefox", "versions": {"pyodide": "314.0"}}))
    assert tab._machine == {"device_name": "Firefox", "versions": versions}


def test_a_model_that_is_not_in_the_tab_yet_is_asked_for():
    tab = Tab(json.dumps({"device_name": "Node", "versions": {}}))
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,12,4\n"

    def dataset(model: str) -> dict:
        return json.loads(tab.call("dataset", json.dumps([rows, "azure.csv", model])))

    assert dataset("smollm2") == {"needs": "smollm2"}
    assert "This page runs its own models only" in dataset("gpt2")["error"]
    assert len(dataset("shakespeare-bpe")["workload"]["requests"]) == 1


class Piece(bytes):
    """Of a file, as JavaScript gives it."""

    def to_bytes(self) -> bytes:
        return self


def test_a_workload_is_opened_for_a_file_of_ones_own_before_it_was_run(tmp_path):
    tab = Tab(json.dumps({"device_name": "Node", "versions": {}}))
    content = Path(write(tmp_path / "mine.gguf")).read_bytes()
    tab.open("mine.gguf", lambda at, size: Piece(content[at : at + size]))
    asked = json.dumps(["TIMESTAMP,ContextTokens,GeneratedTokens\n", "azure.csv", "mine.gguf"])
    assert json.loads(tab.call("dataset", asked)) == {"needs": "mine.gguf"}


def test_a_file_that_was_closed_is_gone_with_its_model(tmp_path):
    tab = Tab(json.dumps({"device_name": "Node", "versions": {}}))
    content = Path(write(tmp_path / "mine.gguf")).read_bytes()
    tab.open("mine.gguf", lambda at, size: Piece(content[at : at + size]))
    facts = {"vocab_size": 8, "context": 64, "layers": 1, "eos_token_ids": [], "windows": [None]}
    tab.add("mine.gguf", SimpleNamespace(facts=json.dumps(facts), threads=1))
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,12,4\n"

    def dataset() -> dict:
        return json.loads(tab.call("dataset", json.dumps([rows, "azure.csv", "mine.gguf"])))

    assert len(dataset()["workload"]["requests"]) == 1
    tab.close("mine.gguf")
    assert dataset() == {"needs": "mine.gguf"}
    with pytest.raises(KeyError):
        tab.opened("mine.gguf")


@pytest.mark.slow
def test_work_on_the_model_of_a_tab(tmp_path):
    """With its real JavaScript and WebAssembly: engines with pools of different sizes take turns,
    and write the same tokens.
    """
    with node_model("shakespeare-char", tmp_path) as model:
        tokenizer = describe_model("shakespeare-char").tokenizer
        machine = {"device_name": "Node, WebAssembly", "versions": {"pyodide": "none"}}

        def engine(name, config, leaks, sleep):
            return EngineCore(
                BrowserExecutor(model, machine, leaks), tokenizer, config, sleep=sleep
            )

        def weights(name, *which):
            return BrowserExecutor(model, machine).attention(*which)

        answers = Answers(engine, weights)
        asked = spec() | {"policies": ["sequential", "continuous"], "repeats": 1}
        found = json.loads(answers.document(done(answers.begin("compare", asked))[-1]["url"]))
        assert found["data"]["outputs_identical"] and found["says"]["where"].startswith(
            "Node, WebAssembly (cpu), 1 thread"
        )
        assert {figure["name"] for figure in found["figures"]} >= {"total_time", "cost_curve"}
        *_, forked = done(
            answers.begin("fork", spec() | {"knob": "max_num_batched_tokens", "value": 4})
        )
        assert json.loads(answers.document(forked["url"]))["kind"] == "fork"
        first, *_ = answers.call("attention", [forked["runs"][0]["id"], 0, 0, 0, 0])["segments"]
        assert all(abs(sum(row) - 1) < 0.01 for row in first["weights"])
        assert (
            "no head 99"
            in answers.call("attention", [forked["runs"][0]["id"], 0, 0, 0, 99])["error"]
        )
        *_, leaked = done(answers.begin("leak", spec()))
        assert json.loads(answers.document(leaked["url"]))["header"]["leak"]


def test_each_turn_of_a_tab_has_its_full_time_again():
    """Time that was up is told with the line that was running, and not to the next turn."""
    before = signal.getsignal(signal.SIGINT)
    limit = TimeLimit()
    code = compile("import signal\nsignal.raise_signal(signal.SIGINT)", FILE, "exec")

    def overdue() -> Iterator[dict[str, Any]]:
        yield {"scope": len(executed(code))}

    try:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                TabJob(overdue(), limit).turn(1)
            assert limit.line == 2
            assert TabJob(iter([{"done": True}]), limit).turn(1) == '[{"done": true}]'
            assert limit.line is None
        # so has each step of a run that is timed in a sandbox
        begun: list[int | None] = []
        tab = Tab(
            json.dumps({"device_name": "Node", "versions": {}}),
            lambda: begun.append(tab._limit.line),
        )
        with pytest.raises(KeyboardInterrupt):
            TabJob(overdue(), tab._limit).turn(1)
        assert tab._limit.line == 2
        tab._answers.between()
        assert begun == [None]
    finally:
        signal.signal(signal.SIGINT, before)
