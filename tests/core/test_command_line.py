"""What holds for every command: what it refuses before anything runs, and what it keeps when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from core import Trace, files
from core.cli import BENCHES, COMMANDS, app, main, output
from core.config import POLICIES
from core.measure import compare, load
from core.simulate import totals
from core.trace import file

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
TRACE = str(ROOT / "assets" / "traces" / "gpt2-six.jsonl")
RAW = str(DATA / "vllm-0.32.raw.jsonl.gz")
RUN = ("run", "-p", "chunk-7-by-4", "-m", "shakespeare-char")
SWEEP = ("bench", "load", "--simulate", "l4:1b", "--rate", "5", "--point-seconds", "1")
NAMES = [*((name,) for name in COMMANDS), *(("bench", name) for name in BENCHES)]


def call(*args: str) -> int:
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(list(args))
    return exit_.value.code or 0


def refusal(capsys, *args: str) -> str:
    """The sentence with which a command is refused."""
    assert call(*args) == 2
    captured = capsys.readouterr()
    assert not captured.out and len(captured.err.splitlines()) == 1, captured.err
    return captured.err


def command(name: tuple[str, ...]) -> Any:
    group = found = typer.main.get_command(app)
    for part in name:
        with group.make_context(part, [], resilient_parsing=True) as context:
            _, found, _ = group.resolve_command(context, [part])
        group = found
    return found


def taken(param: Any, value: str) -> list[str]:
    return [param.opts[0], value] if param.param_type_name == "option" else [value]


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_no_command_takes_an_empty_value_or_a_number_that_is_none(name, capsys):
    """An empty value is what a script gives whose variable is not set; without this `--simulate ""` ran the real model."""
    params = [p for p in command(name).params if not getattr(p, "is_flag", False)]
    for param in params:
        others = [text for p in params if p.required and p is not param for text in taken(p, "x")]
        for value in ["", " ", *(["nan", "inf"] if isinstance(param.default, float) else [])]:
            code = call(*name, *others, *taken(param, value))
            said = capsys.readouterr().err
            assert code == 2 and any(
                w in said for w in ("an empty value", "finite", "Input should be", "not one of")
            ), (
                param.name,
                value,
                said,
            )


@pytest.mark.parametrize(
    "args",
    [
        (*RUN, "--out"),
        ("compare", *RUN[1:], "--out"),
        ("compare", *RUN[1:], "--traces"),
        (*SWEEP, "--out"),
        ("bench", "speed", "--out"),
        ("bench", "gpu", "--out"),
        ("import", RAW, "--out"),
        ("workload", TRACE, "--out"),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    args, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "no folder" in refusal(capsys, *args, "nowhere/x")
    if "--traces" not in args:
        assert "it is a folder" in refusal(capsys, *args, str(tmp_path))
    assert not os.listdir(tmp_path)


def test_what_is_read_is_not_overwritten(capsys, tmp_path):
    (sizes := tmp_path / "sizes.jsonl").write_text('{"prompt_tokens": 9, "output_tokens": 4}\n')
    assert "it is what is read" in refusal(capsys, "workload", str(sizes), "--out", str(sizes))
    assert "it is what is read" in refusal(capsys, *RUN, "--simulate", TRACE, "--out", TRACE)


def test_what_cannot_be_saved_in_the_end_is_printed_nevertheless(capsys, tmp_path, monkeypatch):
    """The disk fills up while it runs."""
    out = tmp_path / "l.json"
    out.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, "replace", full)
    assert call(*SWEEP, "--out", str(out)) == 2
    captured = capsys.readouterr()
    assert (
        "SIMULATED" in captured.out
        and f"{out} cannot be written: No space left on device." in captured.err
    )
    assert out.read_text() == "old" and os.listdir(tmp_path) == ["l.json"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("show", TRACE, "--pass", "1", "--layer", "0"),
            "--pass and --layer do nothing without --step.",
        ),
        (("show", TRACE, "--step", "1", "--delays"), "--delays does nothing with --step."),
        ((*RUN, "--simulate", "h100:8b", "--device", "cpu"), "--device does nothing with h100:8b"),
        ((*RUN, "--steps", "--json"), "--steps does nothing with --json"),
        ((*SWEEP, "--model", "shakespeare-char"), "--model does nothing with --simulate"),
        (("bench", "load", "--requests", "5"), "--simulate"),
        (
            ("bench", "load", "--requests", "5", "--simulate", "l4:1b", "--slo", "ttft=1"),
            "--slo does nothing with --requests",
        ),
        (
            ("bench", "load", "--requests", "5", "--simulate", "l4:1b", "--burstiness", "2"),
            "does nothing without a rate",
        ),
        (
            (*SWEEP, "--lengths", TRACE, "--prompt-tokens", "5"),
            "--prompt-tokens does nothing with --lengths",
        ),
        (("import", RAW, "--out", "x", "--metrics", "x"), "--metrics belongs to --verify"),
        (("bench", "gpu", "--resume"), "give --out too"),
        (
            ("serve", "--api-key", "k", "--allow-host", "h"),
            "--allow-host does nothing with --api-key",
        ),
    ],
)
def test_an_option_that_does_nothing_is_refused(args, words, capsys):
    assert words in refusal(capsys, *args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((*RUN, "--slo", "ttft=inf"), "ttft_s is inf"),
        ((*RUN, "--slo", "ttft=nan"), "ttft_s is nan"),
        ((*RUN, "--slo", "tpot=-1"), "tpot_s is -1"),
        ((*RUN, "--slo", "ttft=1", "--slo", "ttft=2"), "a second one"),
        ((*SWEEP, "--prompt-tokens", "~1e9"), "is no length"),
        ((*SWEEP, "--output-tokens", "1-99999999"), "is no length"),
        ((*SWEEP, "--rate", "1e9"), "More than 100,000 requests"),
        ((*SWEEP, "--burstiness", "1e-9"), "More than 100,000 requests"),
        (("agree", RAW), "line 1: this is not a recorded workload: "),
    ],
)
def test_numbers_that_no_run_has_are_refused(args, words, capsys):
    assert words in refusal(capsys, *args)


def test_a_stream_of_a_file_has_its_arrivals(capsys, tmp_path):
    """The second comes when the first has long ended; it waits for nobody."""
    (sizes := tmp_path / "sizes.jsonl").write_text("".join(f"[10, 2, {at}]\n" for at in (0, 60)))
    stream = (
        "bench",
        "load",
        "--simulate",
        "l4:1b",
        "--lengths",
        str(sizes),
        "--rate",
        "0.1",
        "--requests",
    )
    assert call(*stream, "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["totals"]["wall_s"] > 10
    assert "the arrivals of 2 requests, fewer than 3" in refusal(capsys, *stream, "3")


def test_nothing_is_minus_zero():
    assert (
        output.percent(-1e-9) == "0.0 %"
        and output.seconds(-1e-9) == "0.0 ms"
        and output.number(-0.01) == "0.0"
    )
    assert output.percent(-0.2) == "-20.0 %"


@pytest.mark.parametrize("name", ["run", "compare", "serve", "bench load"])
def test_policies_are_listed_where_one_is_chosen(name, capsys):
    assert call(*name.split(), "--help") == 0
    assert ",".join(POLICIES) in "".join(
        capsys.readouterr().out.split()
    )  # lines break at hyphens too


@pytest.mark.parametrize(
    "content", ["junk\n", "junk", "", TRACE], ids=["lines", "no line", "folder", "a trace"]
)
def test_watching_what_is_no_recording_ends_with_a_sentence(content, capsys, tmp_path):
    path = tmp_path / "t.jsonl"
    if content == TRACE:
        path = Path(TRACE)
    elif content:
        path.write_text(content)
    else:
        path = tmp_path / "nowhere" / "t.jsonl"
    words = refusal(capsys, "watch", str(path))
    assert f"{path.name} is not a raw recording" in words or "There is no folder" in words


@pytest.mark.parametrize(
    "args", [("show",), ("check",), (*RUN, "--simulate")], ids=["show", "check", "run"]
)
def test_a_damaged_trace_is_named_in_the_sentence_about_it(args, capsys, tmp_path):
    (path := tmp_path / "odd.jsonl").write_text(
        Path(TRACE).read_text(encoding="utf-8").replace("step", "stop", 9), encoding="utf-8"
    )
    assert call(*args, str(path)) in (1, 2)
    assert capsys.readouterr().err.startswith("odd.jsonl, line ")


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def interrupting(monkeypatch, module: Any, name: str, at: int) -> None:
    """Ctrl-C in the call of that number."""
    calls, real = 0, getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, call)


def test_an_interrupted_comparison_keeps_the_rounds_that_are_whole(capsys, tmp_path, monkeypatch):
    interrupting(
        monkeypatch, compare, "turn_of", 8
    )  # two to warm up, two rounds of two, and half of the third
    out = tmp_path / "c.json"
    assert (
        call(
            "compare",
            *RUN[1:],
            "--repeats",
            "3",
            "--json",
            "-o",
            str(out),
            "--traces",
            str(tmp_path),
        )
        == 130
    )
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert (data["complete"], data["repeats"]) == (False, 2) and data == json.loads(
        out.read_text(encoding="utf-8")
    )
    assert "after 2 of 3 rounds" in captured.err and Trace.load(tmp_path / "static.jsonl").complete


def test_what_was_interrupted_before_anything_was_whole_says_so(capsys, monkeypatch):
    interrupting(monkeypatch, compare, "turn_of", 3)
    assert call("compare", *RUN[1:], "--repeats", "3") == 130
    captured = capsys.readouterr()
    assert captured.err.endswith("Interrupted.\n") and not captured.out


def test_an_interrupted_sweep_keeps_its_points(capsys, monkeypatch):
    interrupting(monkeypatch, load, "workload", 2)
    assert call(*SWEEP, "--json") == 130
    data = json.loads(capsys.readouterr().out)
    assert data["complete"] is False and [point["policy"] for point in data["points"]] == ["static"]


def test_an_interrupted_stream_keeps_its_totals(capsys, monkeypatch):
    interrupting(monkeypatch, totals.RunTotals, "add", 50)
    assert call("bench", "load", "--requests", "100", "--simulate", "l4:1b", "--json") == 130
    data = json.loads(capsys.readouterr().out)
    assert data["complete"] is False and data["totals"]["steps"] == 49


def test_an_interrupted_benchmark_keeps_those_before_it(capsys, monkeypatch):
    from core.cli import bench

    def interrupted(options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(bench.BENCHMARKS, "gpt2-six", interrupted)
    assert (
        call("bench", "speed", "static-step", "gpt2-six", "--quick", "--repeats", "1", "--json")
        == 130
    )
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert data["complete"] is False and [report["name"] for report in data["benchmarks"]] == [
        "static-step"
    ]
    assert "Interrupted in gpt2-six" in captured.err


def test_an_interrupted_check_says_how_far_it_came(capsys, monkeypatch):
    interrupting(monkeypatch, file.Checker, "fault", 40)
    assert call("check", TRACE) == 130
    captured = capsys.readouterr()
    assert "nothing is wrong in gpt2-six.jsonl up to line" in captured.err and not captured.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "begun"),
    [
        (("compare", *RUN[1:], "--repeats", "999"), "runs "),
        (("watch", "here.jsonl"), "here.jsonl is not there yet"),
    ],
    ids=["compare", "watch"],
)
def test_a_real_ctrl_c_leaves_no_traceback(args, begun, tmp_path):
    heard = partial(
        signal.signal, signal.SIGINT, signal.default_int_handler
    )  # whoever runs the tests may have it ignored
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "core", *args]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heard,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(begun):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(60) == 130 and "Interrupted" in rest and "Traceback" not in rest, rest
