"""What holds for the benchmarks' commands as it does for those of the product: what they refuse
before anything runs, what they keep when they are interrupted, the JSON that the documents promise.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from core.config import POLICIES
from core.measure import load as sweeps
from measure import app_of
from measure import speed as speed_script
from measure.gpu import gpu
from measure.load import load
from measure.speed import speed
from worlds import commands
from worlds.commands import interrupting, refuses_empty_values
from worlds.documented import check, schemas

ROOT = Path(__file__).resolve().parents[2]
TRACE = str(ROOT / "assets" / "traces" / "gpt2-six.jsonl")
SWEEP = ("--simulate", "l4:1b", "--rate", "5", "--point-seconds", "1")
TEXT = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
)


def call(command: Callable[..., None], *args: str) -> int:
    return commands.call(*args, app=app_of(command))


def refusal(capsys, command: Callable[..., None], *args: str) -> str:
    return commands.refusal(capsys, *args, app=app_of(command))


@pytest.mark.parametrize("command", [speed, load, gpu])
def test_no_script_takes_an_empty_value_or_a_number_that_is_none(command, capsys):
    app = app_of(command)
    refuses_empty_values(capsys, typer.main.get_command(app), [], app)


@pytest.mark.parametrize(("command", "args"), [(load, SWEEP), (speed, ()), (gpu, ())])
def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    command, args, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "no folder" in refusal(capsys, command, *args, "--out", "nowhere/x")
    assert "it is a folder" in refusal(capsys, command, *args, "--out", str(tmp_path))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((*SWEEP, "--model", "shakespeare-char"), "--model does nothing with --simulate"),
        ((*SWEEP, "--policy", "static", "--policy", "static"), "each policy once"),
        (
            (*SWEEP, "--lengths", TRACE, "--prompt-tokens", "5"),
            "--prompt-tokens does nothing with --lengths",
        ),
        ((*SWEEP, "--prompt-tokens", "~1e9"), "is no length"),
        ((*SWEEP, "--output-tokens", "1-99999999"), "is no length"),
        ((*SWEEP, "--rate", "1e9"), "More than 100,000 requests"),
        ((*SWEEP, "--burstiness", "1e-9"), "More than 100,000 requests"),
    ],
)
def test_options_and_numbers_that_no_load_has_are_refused(args, words, capsys):
    assert words in refusal(capsys, load, *args)


def test_a_result_is_continued_only_where_it_is_kept(capsys):
    assert "give --out too" in refusal(capsys, gpu, "--resume")


def test_policies_are_listed_where_one_is_chosen(capsys):
    assert call(load, "--help") == 0
    # lines break at hyphens too
    assert ",".join(POLICIES) in "".join(capsys.readouterr().out.split())


def test_an_interrupted_sweep_keeps_its_points(capsys, monkeypatch):
    interrupting(monkeypatch, sweeps, "workload", 2)
    assert call(load, *SWEEP, "--json") == 130
    data = json.loads(capsys.readouterr().out)
    assert data["complete"] is False and [point["policy"] for point in data["points"]] == ["static"]


@pytest.mark.slow
def test_an_interrupted_benchmark_keeps_those_before_it(capsys, monkeypatch):
    def interrupted(options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(speed_script.BENCHMARKS, "gpt2-six", interrupted)
    assert call(speed, "static-step", "gpt2-six", "--quick", "--repeats", "1", "--json") == 130
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert data["complete"] is False and [report["name"] for report in data["benchmarks"]] == [
        "static-step"
    ]
    assert "Interrupted in gpt2-six" in captured.err


@pytest.mark.slow
def test_their_json_is_as_documented(capsys):
    def output(command: Callable[..., None], *args: str) -> Any:
        assert call(command, *args, "--json") == 0
        data = json.loads(capsys.readouterr().out)
        assert (
            next(iter(data)) == "schema" and f"| `schema` | string | `{data['schema']}` |" in TEXT
        )
        return data

    (times,) = schemas(SECTIONS["What `speed.py` runs and prints"])
    (points,) = schemas(SECTIONS["What `load.py` runs and prints"])
    check(output(speed, "static-step", "--quick", "--repeats", "1"), times)
    check(output(load, "--rate", "5", "--simulate", "l4:1b", "--point-seconds", "1"), points)


@pytest.mark.slow
def test_a_load_says_whose_arrivals_they_are_and_whose_capacity(capsys, tmp_path):
    def told(*args: str) -> tuple[str, Any]:
        assert call(load, "--simulate", "l4:1b", "--point-seconds", "1", *args) == 0
        words = capsys.readouterr().out
        assert call(load, "--simulate", "l4:1b", "--point-seconds", "1", *args, "--json") == 0
        return words, json.loads(capsys.readouterr().out)

    words, data = told("--rate", "5")
    assert "Gamma arrivals, burstiness 1" in words and "good req/s" not in words
    assert all("goodput" not in point["numbers"] for point in data["points"])
    words, data = told("--rate", "auto", "--slo", "ttft=1")
    assert "good req/s" in words and set(data["capacities"]) == {"static", "continuous"}
    assert max(point["rate"] for point in data["points"]) > 1.19 * max(data["capacities"].values())
    (sizes := tmp_path / "sizes.jsonl").write_text("[10, 2, 0]\n[10, 2, 6]\n")
    words, data = told("--rate", "5", "--lengths", str(sizes))
    assert "Arrivals as in the file" in words and data["burstiness"] is None
    lengths = ("--simulate", "l4:1b", "--lengths", str(sizes))
    assert "does nothing with the arrivals" in refusal(capsys, load, *lengths, "--burstiness", "2")


@pytest.mark.slow
def test_a_load_says_what_it_assumes(capsys):
    def told(*args: str) -> str:
        assert call(load, *args) == 0
        return " ".join(capsys.readouterr().out.split())

    short = ["--rate", "5", "--point-seconds", "1"]
    assert "Nothing was measured" in told("--simulate", "h100x8:70b", *short)
    longer = ["--rate", "0.1", "--point-seconds", "60"]
    words = told(
        *longer, "--simulate", "h100x8:70b", "--policy", "continuous", "--output-tokens", "500"
    )
    assert (
        "at most 60 s per point" in words
        and " cut" not in words
        and "Simulated capacity" not in words
    )
    assert "Simulated capacity" in told(
        "--simulate", "h100:8b", "--policy", "continuous", "--point-seconds", "1"
    )
    assert "a simulated one may take longer" in refusal(capsys, load, *longer)
    assert "h100x2:70b has room" in refusal(capsys, load, "--simulate", "h100:70b", "--rate", "5")
