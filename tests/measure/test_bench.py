"""The method of the benchmarks, with a fake clock; every benchmark runs on small shapes. Nothing is
timed here.
"""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from core.cli import app
from core.errors import InflightError
from core.measure.rounds import Contender, RunResult
from measure import app_of
from measure.bench.piped import PipedProcess
from measure.bench.report import Limit, Options, Ratio, Report, SpeedBar, race
from measure.bench.speed import BENCHMARKS, WITH_VLLM
from measure.load import load
from measure.speed import speed
from worlds.clock import Clock


def _contender(name: str, clock: Clock, costs, log: list[str], outputs=None) -> Contender:
    turns = iter(costs)

    def start() -> RunResult:
        log.append(name)
        clock.now += next(turns)
        return RunResult(outputs or {})

    return Contender.of(name, start, lambda run: run)


@pytest.mark.slow
def test_contenders_take_turns_and_ratios_are_taken_round_by_round():
    clock, log = Clock(), []
    contenders = [
        _contender("a", clock, (9, 1, 2, 4), log),
        _contender("b", clock, (9, 3, 3, 16), log),
    ]
    report = race("x", "X", contenders, [SpeedBar("a", "b", 3.0)], Options(repeats=3, clock=clock))
    assert log == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert report.times == {"a": [1, 2, 4], "b": [3, 3, 16]} and report.outputs_identical is None
    (ratio,) = report.ratios
    assert ratio.runs == (3, 1.5, 4) and ratio.median == 3 and ratio.met


def test_own_seconds_replace_the_stopwatch():
    clock = Clock()
    report = race(
        "x",
        "X",
        [Contender.of("a", lambda: RunResult({}, seconds=0.25), lambda run: run)],
        [],
        Options(repeats=2, clock=clock),
    )
    assert report.times == {"a": [0.25, 0.25]}


@pytest.mark.parametrize(
    "other, same", [({"r0": [1, 2]}, True), ({"r0": [1, 3]}, False), (None, True)]
)
def test_outputs_are_compared(other, same):
    clock, log = Clock(), []
    contenders = [
        _contender("a", clock, (1, 1), log, {"r0": (1, 2)}),
        _contender("b", clock, (1, 1), log, other),
    ]
    assert race("x", "X", contenders, [], Options(repeats=1, clock=clock)).outputs_identical is same


@pytest.mark.slow
def test_a_report_names_bars_met_and_missed():
    clock, log = Clock(), []
    contenders = [
        _contender(name, clock, cost, log)
        for name, cost in (("a", (1, 1)), ("b", (1, 2)), ("c", (1, 5)))
    ]
    report = race("x", "X", contenders, [SpeedBar("a", "b", 2.5)], Options(repeats=1, clock=clock))
    assert [(r.than, r.median, r.met) for r in report.ratios] == [
        ("b", 2.0, False),
        ("c", 5.0, None),
    ]
    assert not report.met and report.to_json()["ratios"][0]["at_least"] == 2.5
    quick = [_contender(name, clock, cost, log) for name, cost in (("a", (1, 1)), ("b", (1, 2)))]
    assert race(
        "x", "X", quick, [SpeedBar("a", "b", 2.5)], Options(repeats=1, quick=True, clock=clock)
    ).met
    assert (
        Limit("l", 150.0, "µs", 150).met
        and not Limit("l", 151.0, "µs", 150).met
        and Limit("l", 1, "").met is None
    )
    assert (
        not Report("x", "X", limits=[Limit("l", 2, "", 1)]).met
        and Report("x", "X", ratios=[Ratio("a", "b", (1.0,), None)]).met
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in WITH_VLLM])
def test_every_benchmark_runs(name, users_models, monkeypatch):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)
    report = BENCHMARKS[name](Options(repeats=1, quick=True))
    assert report.name == name and (report.ratios or report.limits)
    assert report.outputs_identical is not False
    json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.slow
def test_outputs_that_differ_are_counted():
    clock, log = Clock(), []
    wrote = {
        "a": {"r0": (1, 2), "r1": (3,), "r2": (4,)},
        "b": {"r0": (1, 9), "r1": (3,), "r2": (4,)},
    }
    contenders = [
        _contender(name, clock, (1, 1, 1), log, outputs) for name, outputs in wrote.items()
    ]
    report = race("x", "X", contenders, [], Options(repeats=2, clock=clock))
    assert report.outputs_same == {"b": (2, 3)} and report.outputs_identical is False


ANSWERS = """
import sys, time
for line in sys.stdin:
    if "leave" in line: sys.exit("I have had enough.")
    if "wait" in line: time.sleep(600)
    sys.stderr.write("loud\\n")
    print('{"heard": %s}' % line.strip(), flush=True)
"""


def test_a_process_is_kept_and_asked_over_a_pipe():
    with PipedProcess("It", (sys.executable, "-c", ANSWERS), {}) as process:
        folder = process.folder
        assert [process.ask([number], 60) for number in (1, 2)] == [{"heard": [1]}, {"heard": [2]}]
        assert folder.is_dir()
        with pytest.raises(InflightError, match=r"It ended: I have had enough\."):
            process.ask("leave", 60)
    assert not folder.exists()
    with (
        PipedProcess("It", (sys.executable, "-c", ANSWERS), {}) as process,
        pytest.raises(InflightError, match="did not answer"),
    ):
        process.ask("wait", 0.2)
    with pytest.raises(InflightError, match="cannot be run"):
        PipedProcess("It", ("/nowhere/python",), {})


@pytest.mark.slow
def test_without_vllm_its_pairs_are_left_out_in_one_line(monkeypatch):
    monkeypatch.delenv("INFLIGHT_VLLM_PYTHON", raising=False)
    some = {name: BENCHMARKS[name] for name in ("static-step", "vllm-mixed")}
    monkeypatch.setattr("measure.speed.BENCHMARKS", some)
    result = CliRunner().invoke(app_of(speed), ["--quick", "--repeats", "1", "--json"])
    assert result.exit_code == 0 and [
        b["name"] for b in json.loads(result.stdout)["benchmarks"]
    ] == ["static-step"]
    assert "Left out: vllm-mixed, " in " ".join(result.stderr.split())
    refused = CliRunner().invoke(app_of(speed), ["vllm-mixed", "--quick"])
    assert isinstance(refused.exception, InflightError) and "INFLIGHT_VLLM_PYTHON" in str(
        refused.exception
    )


@pytest.mark.slow
def test_the_command(tmp_path):
    out = tmp_path / "bench.json"
    result = CliRunner().invoke(
        app_of(speed),
        ["static-step", "--quick", "--repeats", "1", "--json", "--out", str(out)],
    )
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data == json.loads(out.read_text()) and data["benchmarks"][0]["name"] == "static-step"
    assert data["environment"]["versions"]["torch"]


def test_the_command_simulates_load():
    points = [
        "--rate",
        "5",
        "--rate",
        "20",
        "--simulate",
        "l4:1b",
        "--point-seconds",
        "2",
        "--slo",
        "ttft=0.5",
        "--json",
    ]
    data = json.loads(CliRunner().invoke(app_of(load), points).stdout)
    assert (
        data["source"] == "simulated"
        and len(data["points"]) == 4
        and data["beyond"] == {"static": None, "continuous": None}
    )
    assert (
        data["cost"]["name"] == "l4:1b" and "Nothing was measured" in data["cost"]["assumptions"][0]
    )


@pytest.mark.parametrize(
    "args",
    [
        (speed, "magic"),
        (load, "--rate", "fast"),
        (load, "--simulate", "magic"),
        (load, "--rate", "1", "--policy", "magic"),
    ],
)
def test_the_commands_refuse(args):
    command, *rest = args
    result = CliRunner().invoke(app_of(command), rest)
    assert isinstance(result.exception, InflightError)


def test_a_simulated_run_says_how_good_its_fit_is_and_what_lies_beyond(tmp_path):
    trace = tmp_path / "measured.jsonl"
    assert (
        CliRunner()
        .invoke(app, ["run", "--preset", "nanogpt-arrivals", "--out", str(trace)])
        .exit_code
        == 0
    )
    result = CliRunner().invoke(
        app,
        [
            "run",
            "--preset",
            "chunk-7-7-6",
            "--max-num-batched-tokens",
            "64",
            "--simulate",
            str(trace),
        ],
    )
    assert result.exit_code == 0
    words = " ".join(result.output.split())
    assert "The fit is off by " in words and " that it had not seen" in words
    assert " of the simulated passes lie beyond what was measured " in words
