"""What holds for every command: what it refuses before anything runs, and what it keeps when it is
interrupted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from core import Request, SamplingParams, Trace, Workload, files
from core.cli import COMMANDS, output
from core.config import POLICIES
from core.measure import compare
from core.trace import file
from worlds.collecting import free_port
from worlds.commands import call, command, interrupting, refusal, refuses_empty_values

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
TRACE = str(ROOT / "assets" / "traces" / "gpt2-six.jsonl")
RAW = str(DATA / "vllm-0.32.raw.jsonl.gz")
RUN = ("run", "-p", "chunk-7-by-4", "-m", "shakespeare-char")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_an_empty_value_or_a_number_that_is_none(name, capsys):
    refuses_empty_values(capsys, command(name), [name])


@pytest.mark.parametrize(
    "args",
    [
        (*RUN, "--out"),
        ("compare", *RUN[1:], "--out"),
        ("compare", *RUN[1:], "--traces"),
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


@pytest.mark.parametrize(
    "args",
    [
        ("workload", "READ", "--out", "READ"),
        ("run", "--workload", "READ", "--out", "READ"),
        ("run", "--workload", "READ", "--html", "READ"),
        (*RUN, "--simulate", "READ", "--out", "READ"),
        ("compare", "--workload", "READ", "--out", "READ"),
        ("compare", *RUN[1:], "--simulate", "READ", "--out", "READ"),
        ("compare", *RUN[1:], "--simulate", "READ", "--traces", "FOLDER"),
        ("show", "READ", "--html", "READ"),
        ("import", "READ", "--out", "READ"),
        ("fit", "READ", "--out", "READ"),
        ("plan", "READ", "--out", "READ"),
        ("plan", "READ", "--html", "READ"),
    ],
    ids=" ".join,
)
def test_what_is_read_is_not_overwritten(args, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("core.page.draw", object())  # as where the page is installed
    (read := tmp_path / "static.jsonl").write_text("of somebody's own")
    places = {"READ": str(read), "FOLDER": str(tmp_path)}
    said = refusal(capsys, *(places.get(arg, arg) for arg in args))
    assert said == f"{read} cannot be written: it is what is read.\n"
    assert read.read_text() == "of somebody's own" and os.listdir(tmp_path) == ["static.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_workload_comes_through_a_pipe(command, name, tmp_path):
    asked_for = Request("a", prompt_token_ids=(1, 2), sampling=SamplingParams(3))
    Workload([asked_for], arrival_unit="s").save(path := tmp_path / "w.json")
    asked = (command, "--workload", name, "--simulate", "h100:8b")
    said = subprocess.run(
        [sys.executable, "-m", "core", *asked],
        input=path.read_text(),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert said.returncode == 0 and "Nothing was measured" in said.stdout, said.stderr


def test_a_policy_is_looked_for_before_a_file_is_named_after_it(capsys, tmp_path):
    asked = ("compare", *RUN[1:], "--policy", "a/b", "--traces", str(tmp_path))
    assert "no policy 'a/b'" in refusal(capsys, *asked)


def test_what_cannot_be_saved_in_the_end_is_printed_nevertheless(capsys, tmp_path, monkeypatch):
    """The disk fills up while it runs."""
    out = tmp_path / "l.json"
    out.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, "replace", full)
    assert call("compare", *RUN[1:], "--simulate", "l4:1b", "--out", str(out)) == 2
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
        (
            (*RUN, "--policy", "static", "--max-num-batched-tokens", "8", "--prefill-first"),
            "--max-num-batched-tokens and --prefill-first do nothing under static.",
        ),
        (
            ("serve", "--policy", "static", "--no-chunked-prefill"),
            "chunked-prefill does nothing under static.",
        ),
        (
            (*RUN, "--policy", "sequential", "--max-num-seqs", "5"),
            "--max-num-seqs does nothing under sequential.",
        ),
        (("import", RAW, "--out", "x", "--metrics", "x"), "--metrics belongs to --verify"),
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
        (("agree", RAW), "line 1: this is not a recorded workload: "),
    ],
)
def test_numbers_that_no_run_has_are_refused(args, words, capsys):
    assert words in refusal(capsys, *args)


SIZES = "SIZES"  # a file of the sizes of requests that arrive together
MADE_UP = "MADE_UP"  # a simulated run


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("show", TRACE, "--step", "1", "--layer", "4"),
            "The model has 4 layers, so there is no layer 4.",
        ),
        (
            ("show", TRACE, "--step", "0"),
            "The mask of step 0 has 28 × 28 cells; at most 100 are drawn here.",
        ),
        (("show", TRACE, "--html", "page.html"), "`python -m core` makes no pages;"),
        (("check", MADE_UP, "--rerun"), "A simulated run has no model to run again."),
        (("workload", SIZES, "--out", "w", "--speed", "0"), "The speed must be above 0, not 0."),
        (
            ("workload", SIZES, "--out", "w", "--speed", "2"),
            "--speed does nothing with SIZES, whose requests arrive all at once.",
        ),
        (("workload", SIZES, "--out", "-", "--json"), "--json does nothing where the workload"),
        (("import", RAW, "--verify", "--metrics", SIZES), "SIZES has no counters of vLLM."),
        (
            ("import", RAW, "--verify", "--metrics", "nowhere"),
            "nowhere cannot be read: No such file or directory.",
        ),
        (
            ("compare", *RUN[1:], "--simulate", "h100:8b", "--baseline", "article"),
            "give --baseline or --simulate.",
        ),
        (
            ("compare", *RUN[1:], "--simulate", "h100:8b", "--repeats", "3"),
            "--repeats does nothing with --simulate",
        ),
        (("compare", *RUN[1:], "--baseline", "none"), "There is no baseline 'none'; the baselines"),
        (("compare", *RUN[1:], "--traces", "nowhere"), "There is no folder nowhere."),
        (("collect", "--out", "odd", "--port", "0"), "odd/.token holds no token: Is a directory."),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else None,
)
def test_what_a_command_cannot_do_is_refused(args, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("core.cli.terminal.MOST_CELLS", 100)
    monkeypatch.setattr("core.page.draw", None)  # where only the command line is installed
    Path(SIZES).write_text('{"prompt_tokens": 9, "output_tokens": 4}\n', encoding="utf-8")
    Path("odd/.token").mkdir(parents=True)
    if MADE_UP in args:
        assert call(*RUN, "--simulate", "h100:8b", "--out", MADE_UP) == 0
        capsys.readouterr()
    assert words in refusal(capsys, *args)
    assert not {"w", "page.html"} & set(os.listdir())


def test_nothing_is_minus_zero():
    assert (
        output.percent(-1e-9) == "0.0 %"
        and output.seconds(-1e-9) == "0.0 ms"
        and output.number(-0.01) == "0.0"
    )
    assert output.percent(-0.2) == "-20.0 %"


@pytest.mark.parametrize("name", ["run", "compare", "serve"])
def test_policies_are_listed_where_one_is_chosen(name, capsys):
    assert call(name, "--help") == 0
    # lines break at hyphens too
    assert ",".join(POLICIES) in "".join(capsys.readouterr().out.split())


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
    (tmp_path / "circle").symlink_to("circle")
    astray = refusal(capsys, "watch", str(tmp_path / "circle" / "t.jsonl"))
    assert astray.startswith("There is no folder")
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


# -- serve -----------------------------------------------------------------------------------------


def test_every_option_of_serve_reaches_the_server(capsys, monkeypatch):
    """All but listening is done: what would listen keeps what it is given."""
    given = []
    monkeypatch.setattr("core.serving.server.serve", lambda *parts: given.append(parts))
    serve = ("serve", "--model", "shakespeare-char", "--device", "cpu", "--host", "0.0.0.0")
    assert call(*serve, "--api-key=secret") == 0
    said = capsys.readouterr().err
    assert "Anyone who can reach" not in said and "teacher" not in said
    counts = {"requests": 11, "requests-per-client": 7, "prompt-tokens": 60, "new-tokens": 50}
    options = [f"--max-{name}={count}" for name, count in counts.items()]
    options += ["--drain-seconds=4", "--policy=static", "--max-num-seqs=3", "--num-blocks=40"]
    options += ["--port=1234", "--cors-origin=https://page.org", "--allow-host=public.org"]
    assert call(*serve, *options, "--show-texts", "--teacher") == 0
    said = capsys.readouterr().err
    assert "Anyone who can reach 0.0.0.0 can use this server: give --api-key" in said
    (token,) = re.findall("^The teacher's token, for .* of /control: (.{16,})$", said, re.M)
    page = {"origin": "https://page.org", "host": "public.org"}
    key, right = {"authorization": "Bearer secret"}, {"x-teacher-token": token}
    told = []
    for serving, app, host, port, ready in given:
        limits, config, hidden = serving.limits, serving.engine.config, serving.event_log.hidden
        tokens = (limits.max_prompt_tokens, limits.max_new_tokens)
        serving.start()
        ask = TestClient(app).get
        controls = [ask("/control", headers=key | which) for which in ({}, right)]
        models = [ask("/v1/models", headers=which) for which in ({}, key, key | page)]
        serving.close()
        ready("http://here:1234")
        assert "Serving shakespeare-char at http://here:1234" in capsys.readouterr().err
        told.append(
            (
                (limits.max_requests, limits.max_requests_per_client, *tokens, limits.drain_s),
                (config.policy.name, config.max_num_seqs, config.num_blocks),
                (hidden.texts, hidden.nicknames, host, port),
                [answer.status_code for answer in (*controls, *models)],
            )
        )
    assert told == [
        (
            (1024, 1024, 16_384, 4096, 30),
            ("continuous", 16, None),
            (True, True, "0.0.0.0", 8000),
            [404, 404, 401, 200, 403],
        ),
        (
            (11, 7, 60, 50, 4),
            ("static", 3, 40),
            (False, False, "0.0.0.0", 1234),
            [403, 200, 200, 200, 200],
        ),
    ]


# -- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_comparison_keeps_the_rounds_that_are_whole(capsys, tmp_path, monkeypatch):
    # two to warm up, two rounds of two, and half of the third
    interrupting(monkeypatch, compare, "turn_of", 8)
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


def test_an_interrupted_check_says_how_far_it_came(capsys, monkeypatch):
    interrupting(monkeypatch, file.Checker, "fault", 40)
    assert call("check", TRACE) == 130
    captured = capsys.readouterr()
    assert "nothing is wrong in gpt2-six.jsonl up to line" in captured.err and not captured.out


def test_ctrl_c_ends_the_process_only_while_something_loads():
    """After that, a run that it interrupts is saved."""
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with output.loading("A model"):
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(KeyError), output.loading("A model"):
            raise KeyError
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ours = signal.SIG_IGN  # of whoever started the command: not changed
        signal.signal(signal.SIGINT, ours)
        with output.loading("A model"):
            assert signal.getsignal(signal.SIGINT) is ours
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, own)


@pytest.mark.slow
def test_a_real_ctrl_c_leaves_no_traceback(tmp_path):
    """In a process of its own, as that of a run in test_cli.py."""
    # whoever runs the tests may have it ignored
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "core", "watch", "here.jsonl"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heard,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("here.jsonl is not there yet"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(60) == 130 and "Interrupted" in rest and "Traceback" not in rest, rest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        (["-m", "inflight", "run"], "rich"),
        (["-c", "from inflight import _start; _start()", "run"], "rich"),  # as it is installed
        (["app.py", "--port", "{port}"], "core.errors"),
    ],
)
def test_ctrl_c_while_it_starts_leaves_no_traceback(program, loaded):
    """Interrupted when it has imported what it needs first; the rest takes longer."""
    heard = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *(word.format(port=free_port()) for word in program)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )
    assert process.stderr is not None
    assert any(line.split()[-1] == loaded for line in process.stderr)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(60) in (130, -signal.SIGINT) and "Traceback" not in rest, rest[-1500:]


def test_a_number_of_hundreds_of_digits_is_not_said_whole(capsys):
    for options in (["--step", "9" * 300], ["--step", "1", "--pass", "9" * 300]):
        said = refusal(capsys, "show", TRACE, *options)
        assert "there is no pass 99999" in said or "has no step 99999" in said
        assert len(said) < 200


def test_an_option_that_takes_one_value_is_not_given_twice(capsys):
    """The last one won, in silence."""
    said = refusal(capsys, *RUN, "--max-num-seqs", "2", "--max-num-seqs", "3")
    assert said == "--max-num-seqs is given 2 times: give it once.\n"
    said = refusal(capsys, *RUN, "--chunked-prefill", "--no-chunked-prefill")
    assert said == "--chunked-prefill is given 2 times: give it once.\n"


@pytest.mark.slow
def test_a_folder_that_is_gone_is_told(tmp_path):
    for gone in (True, False):
        (tmp_path / "here").mkdir()
        ended = subprocess.run(
            [sys.executable, "-m", "inflight", "presets"],
            cwd=tmp_path / "here",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=partial(os.rmdir, tmp_path / "here") if gone else None,
            capture_output=True,
            text=True,
        )
        said = "The folder in which this was started is gone: choose another.\n"
        assert (ended.returncode, ended.stderr) == ((2, said) if gone else (0, ""))
