"""Commands on a cost model: what is printed and saved beside the numbers, and how long requests may
be.
"""

from __future__ import annotations

import json
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
from core.workload.workload import SavedWorkload
from visualizer.page.one_file import comparison_html


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
