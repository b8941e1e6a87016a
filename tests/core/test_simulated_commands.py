"""Commands on a cost model: what is printed and saved beside the numbers, and how long requests may
be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from core import (
    EngineConfig,
    InflightError,
    Request,
    SamplingParams,
    Trace,
    Workload,
    compare_policies,
)
from core.account.metrics import metrics
from core.cli import app
from core.simulate.engine import SimulatedEngine
from core.simulate.roofline import Roofline
from core.simulate.totals import run_stream
from core.workload.datasets import read_dataset
from core.workload.workload import SavedWorkload
from visualizer.page.one_file import comparison_html

ROOT = Path(__file__).resolve().parents[2]


def _told(*args: str | Path) -> str:
    result = CliRunner().invoke(app, [*map(str, args)])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@pytest.fixture
def azure(tmp_path) -> Path:
    """Two requests as Azure publishes them, longer than our own models' context."""
    path = tmp_path / "azure.csv"
    rows = ("2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319600,8100,5")
    path.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)), encoding="utf-8")
    return path


def test_published_requests_keep_their_lengths_for_a_simulated_model(azure, tmp_path):
    work, run = tmp_path / "work.json", tmp_path / "run.jsonl"
    assert "% of those on record" in _told("workload", azure, "--out", work)
    assert "on record" not in _told("workload", azure, "--out", work, "--simulate", "h100:8b")
    assert [len(r.prompt_token_ids or ()) for r in SavedWorkload.load(work).workload] == [
        4808,
        8100,
    ]
    words = _told("run", "--workload", work, "--simulate", "H100:8B", "--out", run)
    assert (
        "Llama 3.1 8B (8.0 B parameters) · simulated h100" in words
        and "another tokenizer" not in words
    )
    assert "Nothing was measured" in words and "60 % of each peak number is reached" in words
    header = Trace.load(run).header
    assert header.model.name == "Llama 3.1 8B" and header.cost["assumptions"][0] in words
    assert "Nothing was measured" in _told("show", run)
    data = json.loads(_told("run", "--workload", work, "--simulate", "h100:8b", "--json"))
    assert data["header"]["cost"]["assumptions"] == list(header.cost["assumptions"])


def test_texts_are_split_by_another_tokenizer_which_is_said():
    assert "another tokenizer than that of GPT-2 124M" in _told(
        "run", "-p", "chunk-7-by-4", "--simulate", "l4:124m"
    )


@pytest.mark.slow
def test_policies_are_compared_on_a_cost_model_once_each(tmp_path):
    told = CliRunner().invoke(
        app,
        ["compare", "-p", "short-and-long", "--simulate", "h100x2:70b", "--traces", str(tmp_path)],
    )
    assert (
        told.exit_code == 0
        and told.stdout.startswith("SIMULATED")
        and "Measured" not in told.stdout
    )
    words = " ".join(told.stdout.split())
    assert (
        "shared by 2 cards" in words
        and "60 % of each peak" in words
        and "another tokenizer than that of Llama 3.1 70B" in words
    )
    saved = CliRunner().invoke(
        app, ["compare", "-p", "short-and-long", "--simulate", "h100x2:70b", "--json"]
    )
    data = json.loads(saved.stdout)
    assert data["source"] == "simulated" and data["repeats"] == 1 and data["warnings"] == []
    assert data["cost"]["name"] == "h100x2:70b"
    for name in ("static", "continuous"):
        trace = Trace.load(tmp_path / f"{name}.jsonl")
        assert data["policies"][name]["wall_s"]["median"] == pytest.approx(
            metrics(trace)["wall_s"], abs=1e-6
        )
    for more in (["--baseline", "article"], ["--html", str(tmp_path / "c.html")]):
        refused = CliRunner().invoke(
            app, ["compare", "-p", "short-and-long", "--simulate", "h100:8b", *more]
        )
        assert "simulat" in str(refused.exception) and isinstance(refused.exception, InflightError)
    assert not (tmp_path / "c.html").exists()


def _request(index: int) -> Request:
    sampling = SamplingParams(4 + 20 * (index % 3), ignore_eos=True)
    return Request(f"r{index}", prompt_token_ids=(1,) * 500, sampling=sampling)


@pytest.mark.slow
def test_policies_are_compared_in_python_on_simulated_time():
    engine = SimulatedEngine(Roofline.named("h100", "8b"), EngineConfig(max_num_seqs=4))
    found = compare_policies(engine, Workload([_request(i) for i in range(12)]))
    assert repr(found).startswith("<Comparison: simulated, static ")
    assert found.is_simulated and found.warnings == [] and found.verdict("continuous").median > 1
    for name, run in found.runs.items():
        assert run.trace is not None and found.walls[name] == [
            pytest.approx(metrics(run.trace)["wall_s"], abs=1e-6)
        ]
    with pytest.raises(InflightError, match="simulated"):
        comparison_html(found)


# -- streams ---------------------------------------------------------------------------------------


def _published(path: Path, count: int) -> Path:
    """Requests of 300 tokens, as Azure publishes them, a tenth of a second apart."""
    rows = (f"2023-11-16 18:17:{n // 10:02}.{n % 10}000000,300,5" for n in range(count))
    path.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_published_trace_runs_through_a_pipe_with_its_own_arrivals(tmp_path):
    inflight = f"{sys.executable} -m inflight"
    found = subprocess.run(
        f"{inflight} workload {_published(tmp_path / 'azure.csv', 40)} --simulate h100:8b --out -"
        f" | {inflight} run --workload - --simulate h100:8b --json --out {tmp_path / 'run.jsonl'}",
        shell=True,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    data = json.loads(found.stdout)
    assert (
        data["schema"] == "run-stream/1" and data["complete"] and "40 within 3.9 s" in found.stderr
    )
    assert data["totals"]["finished"] == 40 and 3.9 < data["totals"]["wall_s"] < 4.1
    trace = Trace.load(tmp_path / "run.jsonl")
    assert [request.arrival for request in trace.workload] == [n / 10 for n in range(40)]


def test_what_a_file_behind_standard_output_holds_stays(tmp_path):
    published = _published(tmp_path / "azure.csv", 3)
    command = f"{sys.executable} -m inflight workload {published} --simulate h100:8b --out -"
    said = tmp_path / "said"
    script = f"{{ echo first; {command}; echo last; }} > {said} 2>/dev/null"
    subprocess.run(script, shell=True, cwd=ROOT, check=True)
    first, *workload, last = said.read_text(encoding="utf-8").splitlines()
    assert (first, last) == ("first", "last")
    assert len(json.loads("\n".join(workload))["requests"]) == 3


@pytest.mark.slow
def test_a_large_workload_file_is_run_request_by_request_in_flat_memory(tmp_path, monkeypatch):
    """Six times as many requests take no more: each is forgotten when it is over."""
    monkeypatch.setattr("core.cli.options.MAX_FILE_BYTES", 10_000)
    monkeypatch.setattr("core.cli.run._WINDOW", 50)
    most = []
    for count in (100, 600):
        work = tmp_path / f"{count}.json"
        _told(
            "workload",
            _published(tmp_path / "a.csv", count),
            "--requests",
            str(count),
            "--simulate",
            "h100:8b",
            "--out",
            work,
        )
        tracemalloc.start()
        try:
            words = _told("run", "--workload", work, "--simulate", "h100:8b")
            most.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert f"{count} requests, {5 * count:,} tokens" in words and "Only totals" in words
    assert most[1] < 1.2 * most[0]
    result = CliRunner().invoke(
        app, ["run", "--workload", str(work), "--simulate", "h100:8b", "--steps"]
    )
    assert "--steps does nothing for a stream" in str(result.exception)


def test_a_stream_in_python(tmp_path):
    found = read_dataset(_published(tmp_path / "azure.csv", 40))
    engine = SimulatedEngine(Roofline.named("h100", "8b"), EngineConfig(), window=100)
    totals = run_stream(engine, found.requests(vocab_size=1000))
    assert totals.finished == 40 and len(engine.trace.asked) < 40
