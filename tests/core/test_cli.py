"""The command line, end to end on the small built-in model: what it prints, what it saves, what it
refuses and how.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from core import Request, SamplingParams, Trace, Workload
from core.cli import COMMANDS, main, output
from core.cli.check import MOST_WARNINGS, _print_agreement, _print_result
from core.cli.import_ import _print
from core.cli.long import is_long, print_file
from core.cli.options import LIMITS, MOST_THREADS
from core.cli.report import (
    _parameters,
    _time,
    circumstances,
    goodput_lines,
    print_steps,
    print_summary,
    print_worst,
    step_row,
)
from core.cli.terminal import mask_lines
from core.config import POLICIES, EngineConfig
from core.files import written
from core.proof.verify import check
from core.trace.events import Carried, Finished, LimitReached, Preempted, Resumed, Stalled
from core.trace.file import BREAKS_OFF
from core.trace.header import EngineFacts, ExecutionFacts
from core.trace.phrases import letters
from core.workload.presets import PRESETS
from worlds.by_hand import event as event_of
from worlds.small import memory_trace
from worlds.visual import record, request

ROOT = Path(__file__).resolve().parents[2]


def call(*args: str) -> int:
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(list(args))
    return exit_.value.code or 0


@pytest.fixture(scope="module")
def three() -> Trace:
    """Prompts of 5, 5 and 7 tokens at 3 lanes; one of 10 joins in step 2."""
    plan = [
        request("r0", 5, 2),
        request("r1", 5, 8, first=20),
        request("r2", 7, 8, first=40),
        request("r3", 10, 4, first=60),
    ]
    return record(EngineConfig(max_num_seqs=3), *plan)


# -- help and lists --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert call(command, "--help") == 0
    assert "Usage: python -m inflight" in capsys.readouterr().out


def test_help_waits_for_no_torch():
    asks = (
        "import sys, core.cli\ntry: core.cli.main(['--help'])\nfinally: print(*({'torch',"
        " 'transformers', 'numpy'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    assert "Run a preset" in out and out.endswith("\n\n")


def test_the_list_of_commands_says_each_whole(capsys):
    call("--help")
    out = " ".join(capsys.readouterr().out.split())
    assert "the packed row and the mask of one of its steps." in out


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_limit_is_an_option(command, capsys):
    call(command, "--help")
    text = capsys.readouterr().out
    assert set(LIMITS) == set(EngineConfig().to_json()) - {"policy"}
    assert all("--" + name.replace("_", "-") in text for name in LIMITS)


def test_presets_and_models_as_text_and_as_json(capsys):
    assert call("presets") == 0
    text = capsys.readouterr().out
    assert all(name in text and preset.shows in text for name, preset in PRESETS.items())
    call("presets", "--json")
    assert [p["name"] for p in json.loads(capsys.readouterr().out)["presets"]] == list(PRESETS)
    call("models")
    assert "shakespeare-char" in capsys.readouterr().out
    call("models", "--json")
    char = next(
        m for m in json.loads(capsys.readouterr().out)["models"] if m["name"] == "shakespeare-char"
    )
    assert (char["type"], char["layers"]) == ("gpt2", 4) and char["parameters"] > 200_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nope", "No such command 'nope'."),
        ("show", "Missing argument 'trace'."),
        ("run --preset", "Option '--preset' requires an argument."),
        ("run --presett x", "No such option: --presett (Possible options: --preset)."),
        ("serve --port x", "Invalid value for '--port': Input should be a valid integer, not 'x'."),
        (
            "compare --repeats 0",
            "Invalid value for '--repeats': Input should be greater than or equal to 1, not '0'.",
        ),
        (
            f"run --preset gpt2-six --threads {MOST_THREADS + 1}",
            f"Invalid value for '--threads': Input should be less than or equal to {MOST_THREADS},"
            f" not '{MOST_THREADS + 1}'.",
        ),
        (
            "show --order x f",
            "Invalid value for '--order': 'x' is not one of 'request', 'cached-new'.",
        ),
        (
            "run --preset gpt2-six --device gpu",
            "There is no device 'gpu' here: name auto, cpu, cuda or mps.",
        ),
    ],
)
def test_what_is_wrong_with_a_command_is_one_sentence(capsys, words, sentence):
    assert call(*words.split()) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == sentence and "Usage" not in said


def test_what_there_is_one_of_is_singular(tmp_path, capsys):
    memory_trace((3, 1)).save(tmp_path / "one.jsonl")
    call("check", str(tmp_path / "one.jsonl"))
    assert "1 step, 1 token, 1 request." in capsys.readouterr().out
    call("show", str(tmp_path / "one.jsonl"))
    assert "1 step, 1 token in " in capsys.readouterr().out


# -- run, show, check ------------------------------------------------------------------------------


def test_run_prints_saves_and_the_trace_holds(tmp_path, capsys):
    out = tmp_path / "t.jsonl"
    assert (
        call(
            "run",
            "--preset",
            "chunk-7-7-6",
            "--model",
            "shakespeare-char",
            "--out",
            str(out),
            "--steps",
        )
        == 0
    )
    captured = capsys.readouterr()
    assert "chunk-7-7-6 · continuous, 4 lanes, budget 10 · shakespeare-char" in captured.out
    assert "lane occupancy" in captured.out and "D admitted to lane 3" in captured.out
    assert "Saved t.jsonl" in captured.err and "\x1b" not in captured.out + captured.err
    assert call("check", str(out)) == 0
    assert "is valid" in capsys.readouterr().out
    assert call("show", str(out)) == 0
    assert "chunk-7-7-6 · continuous" in capsys.readouterr().out


def test_what_is_given_overrides_what_the_preset_recommends(capsys):
    assert (
        call(
            "run",
            "-p",
            "chunk-7-by-4",
            "--max-num-batched-tokens",
            "3",
            "--no-prefill-first",
            "--slo",
            "ttft=9",
            "--json",
        )
        == 0
    )
    data = json.loads(capsys.readouterr().out)
    assert data["header"]["config"]["max_num_batched_tokens"] == 3 and data["complete"] is True
    assert data["requests"][0]["first_step"] == 0 and data["metrics"]["steps"] > 2
    assert data["metrics"]["goodput"]["met"] == 1
    assert data["requests"][0]["text"]


def test_one_good_request_in_twenty_seconds_is_not_none():
    slos = {"ttft_s": 0.5, "tpot_s": None, "e2e_s": 3.0}
    good = {"requests_per_s": 1 / 20, "met": 1, "share": 1 / 14, "slos": slos}
    assert goodput_lines({"goodput": good}) == [
        "goodput 0.05 requests/s: 1 met TTFT ≤ 0.5 s, E2E ≤ 3 s (7.1 %)"
    ]


def test_what_is_no_trace_is_refused_by_its_first_line_however_long_it_is(tmp_path, monkeypatch):
    """A small archive can hold gigabytes of lines."""
    monkeypatch.setattr("core.cli.long.lines_of", lambda path: iter(["", *[None] * 2]))
    assert not is_long(tmp_path / "bomb.jsonl.gz")


def test_a_simulated_run_shows_no_text(capsys):
    assert call("run", "-p", "chunk-7-by-4", "--simulate", "h100:8b") == 0
    out = capsys.readouterr().out
    assert "simulated: no text" in out and "endoftext" not in out and "8.0 B parameters" in out


def test_what_a_file_names_says_nothing_to_the_terminal(tmp_path, capsys):
    """Clearing the screen, another title, a line turned around, C1's own introducer, a line of its
    own.
    """
    hostile = "a\nforged\x1b[2J\x1b]0;title\x07\r\u202e\u2066\x9b31m\x00b"
    asked = {"name": hostile, "requests": [{"id": hostile, "prompt_token_ids": [1]}]}
    (tmp_path / "w.json").write_text(json.dumps(asked))
    out = tmp_path / "run.jsonl"
    for words in (
        ("run", "--workload", tmp_path / "w.json", "--simulate", "h100:8b", "--out", out),
        ("show", out),
        ("show", out, "--step", "0"),
        ("check", out),
        ("show", tmp_path / hostile.replace("\x00", "")),
    ):
        call(*map(str, words))
        said = capsys.readouterr()
        assert not set("\x1b\x07\r\u202e\u2066\x9b\x00") & set(said.out + said.err)
        assert r"\x1b[2J" in said.out + said.err or words[0] == "check"
        assert not [line for line in (said.out + said.err).split("\n") if line.startswith("forged")]


def test_run_takes_a_workload_file(tmp_path, capsys):
    path = tmp_path / "w.json"
    path.write_text(
        '{"name": "mine", "requests": [{"id": "a", "prompt": "O Romeo, ", "sampling":'
        ' {"max_new_tokens": 3}}]}'
    )
    assert call("run", "-w", str(path), "-m", "shakespeare-char", "--policy", "sequential") == 0
    assert "mine · sequential, 1 lane · shakespeare-char" in capsys.readouterr().out


def test_run_takes_what_the_editor_saved_with_its_settings_and_what_is_given_overrides_them(
    tmp_path, capsys
):
    path = tmp_path / "inflight-workload.json"
    workload = {
        "name": "mine",
        "requests": [{"id": "a", "prompt": "O Romeo, ", "sampling": {"max_new_tokens": 3}}],
    }
    saved = {
        "workload": workload,
        "config": {"policy": "static", "max_num_seqs": 2},
        "model": "shakespeare-char",
        "device": "cpu",
    }
    path.write_text(json.dumps(saved))
    assert call("run", "-w", str(path)) == 0
    assert "mine · static, 2 lanes · shakespeare-char" in capsys.readouterr().out
    assert call("run", "-w", str(path), "--policy", "continuous", "--max-num-seqs", "3") == 0
    assert "mine · continuous, 3 lanes" in capsys.readouterr().out


def test_a_file_that_breaks_off_is_checked_up_to_there_and_does_not_pass(tmp_path, capsys, three):
    lines = list(three.lines())
    cut = tmp_path / "cut.jsonl"
    cut.write_text("\n".join([*lines[:-4], lines[-4][:20]]), encoding="utf-8")
    assert call("check", str(cut)) == 1
    assert "cut.jsonl is valid as far as it goes" in capsys.readouterr().out
    whole = tmp_path / "whole.jsonl"
    three.save(whole)
    assert call("check", str(whole)) == 0


def test_ctrl_c_during_a_check_says_how_far_it_came(tmp_path, capsys, monkeypatch, three):
    def until_the_fifth(path: Path) -> Iterator[str]:
        yield from list(three.lines())[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr("core.cli.check.lines_of", until_the_fifth)
    three.save(saved := tmp_path / "t.jsonl")
    assert call("check", str(saved)) == 130
    # the last line that was read may not have been looked at
    assert "nothing is wrong in t.jsonl up to line 4" in capsys.readouterr().err


def test_those_who_stall_for_one_reason_are_named_together():
    budget, blocks = LimitReached("budget", 0, 1, 8), LimitReached("blocks", 0, 1, 9)
    stalled = tuple(Stalled(r, why) for r, why in (("r0", budget), ("r1", blocks), ("r2", budget)))
    names = {"r0": "A", "r1": "B", "r2": "C"}
    row = step_row(event_of(stalled=stalled), 3, names, {"r0": 0, "r1": 1, "r2": 2})
    assert row[-2] == "(A) (B) (C)"
    assert row[-1].count("stalled") == 2 and "A, C stalled: " in row[-1]


def test_thousands_have_their_comma_in_what_is_said_of_a_file(three, capsys):
    _print_result("t", replace(check(three), num_steps=1225, num_tokens=4573, num_requests=1000))
    assert "1,225 steps, 4,573 tokens, 1,000 requests." in capsys.readouterr().out
    counts = {"steps": 1225, "requests": 1000, "tokens": 4573, "preemptions": 1, "warnings": 2000}
    _print({"traces": [{"path": "t", "engine": "vLLM", "compared": [], **counts}]})
    said = "1,225 steps, 1,000 requests, 4,573 tokens, 1 preemption, 2,000 warnings."
    assert said in " ".join(capsys.readouterr().out.split())


def test_what_a_check_found_is_said_of_what_ran_and_how_far_it_was_looked_at(three, capsys):
    found, counts = check(three), "8 steps, 22 tokens, 4 requests"
    engine = replace(found.header, engine=EngineFacts(name="vLLM"))
    odd = tuple((n, "odd") for n in range(MOST_WARNINGS + 2))
    beyond = [*(f"step {n}: odd" for n in range(MOST_WARNINGS)), "… and 2 more warnings; --json"]
    claims = "It claims that vLLM ran. None of its decisions was taken again: whoever wrote the"
    for more, says in (
        ({}, [f"t is valid: {counts}."]),
        ({"complete": False}, [f"t is valid: {counts}; the run was cut short."]),
        (
            {"complete": False, "breaks_off": True},
            [f"t is valid as far as it goes: {counts}.", BREAKS_OFF],
        ),
        (
            {"not_replayed": "its policy is not installed here"},
            [
                f"t can be followed: {counts}.",
                "None of its decisions was taken again, as its policy is not installed here:",
            ],
        ),
        ({"header": engine}, [f"t can be followed: {counts}.", claims]),
        (
            {"header": engine, "warnings": odd},
            [f"t can be followed, but not all of it can be true: {counts}.", claims, *beyond],
        ),
    ):
        _print_result("t", replace(found, **more))
        lines = capsys.readouterr().out.splitlines()
        assert [line[: len(said)] for line, said in zip(lines, says, strict=False)] == says
    _print_agreement(
        {"identical": 1, "workloads": 1001, "steps": 2000, "first_differences": {"order": 1000}}
    )
    assert capsys.readouterr().out.splitlines() == [
        "1 of 1,001 workloads are decided alike in every step; the other engine took 2,000 steps.",
        "    1,000 differ first in: order",
    ]


def test_the_summary_of_a_run_tells_what_was_odd_how_it_ran_and_where_its_time_went(three, capsys):
    events = [
        event._replace(warnings=("odd",) if event.step in (2, 5) else ()) for event in three.events
    ]
    print_summary(replace(three, events=events, complete=False))
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "2 steps have warnings, first step 2; `check` lists them.",
        "This run was cut short.",
    ]
    execution = ExecutionFacts(attention="triton", cuda_graphs=True, asynchronous=True)
    assert circumstances(replace(three.header, execution=execution)) == [
        "executed with triton attention, CUDA graphs, asynchronous"
    ]
    parts = {"schedule": 0.25, "prepare": 0.5, "forward": 1.0, "sample": 0.1, "between": None}
    assert _time(parts, 2.0, asynchronous=False) == (
        "time: schedule 12.5 %, prepare 25.0 %, forward 50.0 %, sample 5.0 %, between not recorded"
    )
    assert _time(parts | {"between": 0.9}, 2.0, asynchronous=True) == (
        "device: forward 50.0 %, sample 5.0 %, waiting for the host 45.0 %;"
        " host beside it: schedule 12.5 %, prepare 25.0 %"
    )


@pytest.mark.parametrize(
    ("place", "code", "says"),
    [("full", 2, "What is printed: No space left on device.\n"), ("gone", 1, "")],
)
def test_what_cannot_be_printed_ends_a_command_without_a_traceback(place, code, says):
    """The disk is full, or whoever read the pipe has gone."""
    if place == "full":
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        read, out = os.pipe()
        os.close(read)
    command = [sys.executable, "-m", "core", "presets"]
    ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(out)
    assert (ended.returncode, ended.stderr) == (code, says)


def test_what_is_the_same_in_a_recording_and_its_trace_is_told_from_what_differs(capsys):
    facts = {"fact": "tokens", "means": "the tokens that each request gets", "count": 1225}
    counted = {"fact": "generation_tokens", "means": "generated tokens", "count": 1}
    first = "step 3: [1] on record, [2] in the trace"
    rows = [
        facts | {"differ": 0, "first": "", "apart": 0},
        facts | {"differ": 1000, "first": first, "apart": 0},
        counted | {"differ": 0, "first": "", "apart": 2},
    ]
    counts = dict.fromkeys(("steps", "requests", "tokens", "preemptions", "warnings"), 0)
    _print(
        {"traces": [{"path": None, "recording": "r", "engine": "e", "compared": rows, **counts}]}
    )
    assert capsys.readouterr().out.splitlines() == [
        "r: e, 0 steps, 0 requests, 0 tokens, 0 preemptions.",
        "    the tokens that each request gets: the same in 1,225",
        f"    the tokens that each request gets: differ in 1,000 of 1,225; {first}",
        "    generated tokens: the same, but for 2 last tokens of requests ended from outside",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda trace: list(trace.lines()), []),
        (lambda trace: list(replace(trace, complete=False).lines()), ["This run was cut short."]),
        (lambda trace: list(trace.lines())[:-1], ["This run was cut short.", BREAKS_OFF]),
    ],
    ids=["whole", "cut short", "broken off"],
)
def test_a_long_run_is_said_to_be_whole_cut_short_or_broken_off(
    tmp_path, capsys, three, change, says
):
    (path := tmp_path / "t.jsonl").write_text("".join(line + "\n" for line in change(three)))
    print_file(path, None)
    told = capsys.readouterr().out.splitlines()
    assert "4 requests, 22 tokens in 8 steps" in told[2]
    last = told.index("Only totals are shown, their percentiles to within one percent.")
    assert told[last + 1 :] == says


def test_whoever_stalls_after_steps_that_are_not_shown_has_its_lane():
    """One that was there before them, and not in the place of who held the lane then."""
    why = LimitReached("blocks", 0, 1, 9)
    gap = Resumed(3, 4, 2, (), (), (Carried("r1", 1, 5, (7,), ((),)),), ())
    event = event_of(stalled=(Stalled("r1", why),), resumed=gap)
    holders = {"r0": 1}
    row = step_row(event, 3, {"r0": "A", "r1": "B"}, holders)
    assert row[-2] == "· (B) ·" and holders == {"r1": 1}
    assert row[-1].startswith("Steps 3 and 4 are missing in this recording; B stalled: ")


def test_who_is_cancelled_is_not_said_to_have_finished():
    event = event_of(
        finished=(Finished("r0", "cancelled"),), preempted=(Preempted("r1", 1, 0),), released=()
    )
    row = step_row(event, 3, {"r0": "A", "r1": "B"}, {})
    assert row[-1] == "B preempted, 1 token lost; A ended (cancelled)"


@pytest.mark.parametrize("with_out", [True, False])
def test_ctrl_c_keeps_the_trace_so_far(tmp_path, capsys, monkeypatch, with_out):
    update, reported = output.ProgressReporter.update, []

    def interrupt(self, done, note=""):
        reported.append(done)
        if note.startswith("step 4"):
            raise KeyboardInterrupt
        update(self, done, note)

    monkeypatch.setattr(output.ProgressReporter, "update", interrupt)
    out = tmp_path / "t.jsonl"
    assert call("run", "-p", "nanogpt-chunked-3", *(["-o", str(out)] if with_out else [])) == 130
    captured = capsys.readouterr()
    saved = "; the trace so far is saved" if with_out else ""
    assert f"Interrupted after 5 steps{saved}.\n" in captured.err and "cut short" in captured.out
    assert out.exists() == with_out
    if with_out:
        trace = Trace.load(out)
        assert not trace.complete and len(trace.events) == 5
        tokens = [len(event.sampled) for event in trace.events]
        assert reported == list(itertools.accumulate(tokens)) and reported[-1] > 5
        assert call("check", str(out)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "before"),
    [
        (signal.SIGINT, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_IGN),  # as a shell starts what runs in its background
        (signal.SIGHUP, signal.SIG_DFL),
    ],
)
def test_an_order_to_end_a_process_of_its_own(tmp_path, order, before):
    out = tmp_path / "t.jsonl"
    long = Workload(
        [
            Request(
                "a",
                prompt="O Romeo, ",
                sampling=SamplingParams(max_new_tokens=1000, ignore_eos=True),
            )
        ]
    )
    long.save(tmp_path / "w.json")
    args = [sys.executable, "-m", "core", "run", "-w", str(tmp_path / "w.json"), "-o", str(out)]

    def heard():  # whoever runs the tests may have them ignored
        signal.signal(order, signal.SIG_DFL)
        signal.signal(signal.SIGINT, before)

    process = subprocess.Popen(
        args,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=heard,
    )
    for line in process.stderr:  # the first line of progress: it runs
        if line.startswith("tokens"):
            break
    process.send_signal(order)
    errors = process.stderr.read()
    assert process.wait(60) == 130, errors
    assert "Traceback" not in errors and not Trace.load(out).complete


def test_check_names_the_line_at_fault(tmp_path, capsys, three):
    path = tmp_path / "t.jsonl"
    three.save(path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    path.write_text("".join(lines), encoding="utf-8")
    assert call("check", str(path)) == 1
    assert "t.jsonl, line 4: " in capsys.readouterr().err
    assert call("check", str(path), "--json") == 1
    assert json.loads(capsys.readouterr().out)["line"] == 4
    assert call("show", str(path)) == 2
    assert "line 4" in capsys.readouterr().err


# -- the mask in letters ---------------------------------------------------------------------------

ARTICLE = """\
keys: BBBBBBBBBB CCCCCCCCCCCC | DDDDDDDDDD B C
D p0 .......... ............ | #......... . .
D p1 .......... ............ | ##........ . .
D p2 .......... ............ | ###....... . .
D p3 .......... ............ | ####...... . .
D p4 .......... ............ | #####..... . .
D p5 .......... ............ | ######.... . .
D p6 .......... ............ | #######... . .
D p7 .......... ............ | ########.. . .
D p8 .......... ............ | #########. . .
D p9 .......... ............ | ########## . .
B p10 ########## ............ | .......... # .
C p12 .......... ############ | .......... . #"""


@pytest.mark.slow
def test_the_mask_that_the_article_prints(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    assert call("run", "-p", "gpt2-masks", "-o", str(path)) == 0
    capsys.readouterr()
    assert call("show", str(path), "--step", "6", "--order", "cached-new") == 0
    text = capsys.readouterr().out
    assert "\n".join(line.strip() for line in text.splitlines()[-13:]) == ARTICLE
    assert "D = r3  lane 0  prefill(10)" in text and "B = r1  lane 1  decode(1)" in text
    assert "12 tokens computed, 22 cached; 3 requests packed into one row of shape [1, 12]" in text
    call("show", str(path), "--step", "6", "--json")
    data = json.loads(capsys.readouterr().out)
    assert (
        data["allowed"][-1].count("1") == 13
        and len(data["queries"]) == 12
        and len(data["keys"]) == 34
    )


def test_every_cell_drawn_is_the_mask(three):
    for event in three.events:
        for order in ("request", "cached-new"):
            mask = three.mask(event.step, 0, order)
            lines = [str(line) for line in mask_lines(three, event.step, 0, order, width=None)]
            drawn = [
                "".join(c for c in line[line.index("p") :].split(" ", 1)[1] if c in "#.")
                for line in lines[-len(mask.queries) :]
            ]
            assert drawn == ["".join("#" if cell else "." for cell in row) for row in mask.allowed]


def test_pads_and_finished_rows_are_shown():
    trace = record(
        EngineConfig(policy="static", max_num_seqs=3), request("r0", 2, 1), request("r1", 6, 3)
    )
    first = "\n".join(map(str, mask_lines(trace, 0)))
    assert "2 rows of shape [2, 6], 4 of 12 positions are padding" in first
    assert "A = r0  lane 0  prefill(2)   <pad>×4" in first and "A pad .. ......   ×4" in first
    second = "\n".join(map(str, mask_lines(trace, 1)))
    assert "A = r0  lane 0  finished, computed as padding until the wave ends" in second


def test_one_row_of_one_position_is_one():
    alone = record(EngineConfig(policy="static", max_num_seqs=1), request("r0", 1, 1))
    (said,) = [line for line in map(str, mask_lines(alone, 0)) if "shape" in line]
    assert said.endswith("1 row of shape [1, 1], 0 of 1 position is padding")


@pytest.mark.slow
def test_a_huge_mask_is_folded_to_the_width():
    trace = record(
        EngineConfig(max_num_seqs=64, max_num_batched_tokens=4096),
        *(request(f"r{i}", 60, 2) for i in range(40)),
        num_blocks=400,
    )
    for width in (60, 80, 200):
        lines = [str(line) for line in mask_lines(trace, 1, width=width)]
        masks = [
            line for line in lines if line.startswith((" keys:", "keys: A")) or " p60 " in line
        ]
        assert len(masks) > 2 and max(map(len, masks)) <= width
        assert "more requests are not drawn" in lines[-1]
    assert any("⋮" in str(line) for line in mask_lines(trace, 0, width=100))
    assert not any("…" in str(line) for line in mask_lines(trace, 1, width=None))


def test_keys_that_are_not_drawn_are_counted():
    trace = record(EngineConfig(max_num_seqs=2), request("r0", 9, 2), request("r1", 30, 2))
    for width in (30, 40, None):
        lines = [str(line) for line in mask_lines(trace, 1, width=width)]
        (header,) = [line for line in lines if line.startswith("keys: A")]
        drawn = len(re.findall("[AB]", header))
        said = f"… stands for folded keys, {41 - drawn} in all; --full draws every one"
        assert (lines[-1] == said, drawn < 41) == (width is not None, width is not None)


def test_one_request_for_which_there_is_no_room_is_one():
    four = [request(f"r{i}", 9, 2) for i in range(4)]
    trace = record(EngineConfig(max_num_seqs=4), *four, num_blocks=100)
    said = [str(mask_lines(trace, 1, width=width)[-1]) for width in range(12, 30)]
    assert "1 more request is not drawn (D); --full draws it" in said
    assert "2 more requests are not drawn (C, D); --full draws them" in said


def test_a_size_is_rounded_before_its_unit_is_chosen():
    sizes = (999_940_000, 999_950_000, 999_960_000)
    assert [_parameters(n) for n in sizes] == ["999.9 M", "1.0 B", "1.0 B"]


def test_a_time_is_rounded_before_its_unit_is_chosen():
    told = [output.seconds(value) for value in (None, 0.0, 0.01234, 0.99994, 0.99996, 61.5)]
    assert told == ["–", "0.0 ms", "12.3 ms", "999.9 ms", "1.00 s", "61.50 s"]


def test_memory_is_told_by_what_took_it(three):
    header = replace(three.header, memory={"weights": 2**30})
    assert circumstances(header) == ["memory: weights 1.00 GiB"]


def test_letters_go_on_after_z():
    trace = record(
        EngineConfig(max_num_seqs=40), *(request(f"r{i}", 1, 1) for i in range(30)), num_blocks=100
    )
    names = list(letters(trace).values())
    assert names[:2] == ["A", "B"] and names[25:28] == ["Z", "AA", "AB"] and len(set(names)) == 30


@pytest.mark.parametrize("policy", POLICIES)
def test_steps_in_a_line_each(policy, capsys):
    trace = record(
        EngineConfig(policy=policy, max_num_seqs=2),
        request("r0", 3, 1),
        request("r1", 2, 4),
        request("r2", 2, 2, arrival=1),
    )
    print_steps(trace)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(trace.events) + 2
    if policy == "static":
        assert "~A B" in lines[2]


# -- compare ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compare_as_json(tmp_path, capsys):
    out = tmp_path / "c.json"
    policies = [
        arg for name in ("static", "sequential", "continuous") for arg in ("--policy", name)
    ]
    args = [
        "compare",
        "-p",
        "nanogpt-chunked-3",
        *policies,
        "--repeats",
        "2",
        "--json",
        "-o",
        str(out),
        "--traces",
        str(tmp_path),
    ]
    assert call(*args) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["policies"]) == ["static", "sequential", "continuous"]
    assert (
        data["policies"]["static"]["wall_s"]["median"] > 0
        and len(data["policies"]["static"]["wall_s"]["runs"]) == 2
    )
    assert data["outputs_identical"] is True and data["environment"]["versions"]["torch"]
    assert json.loads(out.read_text(encoding="utf-8")) == data
    assert Trace.load(tmp_path / "static.jsonl").config.policy.name == "static"


@pytest.mark.slow
def test_outside_baselines_answer_the_same_greedy_requests(capsys):
    args = [
        "-p",
        "three-lengths",
        "-m",
        "shakespeare-char",
        "--policy",
        "continuous",
        "--baseline",
        "generate-waves",
        "--repeats",
        "1",
    ]
    assert call("compare", *args, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        list(data["policies"]) == ["continuous", "generate-waves"]
        and data["outputs_identical"] is True
    )
    assert call("compare", "-p", "three-lengths", "--baseline", "nix") == 2
    assert "no baseline 'nix'" in capsys.readouterr().err


def test_compare_as_a_table(capsys):
    assert call("compare", "-p", "chunk-7-by-4", "--repeats", "1") == 0
    text = capsys.readouterr().out
    assert (
        "Outputs: identical, token for token." in text
        and "faster than static" in text
        and "Measured on" in text
    )
    assert "single run" in text


def test_the_worst_gaps_are_whole_numbers_beside_words_that_are_cut(capsys):
    """Thirty requests wait for a wide prompt: more letters than a line has room for."""
    rows = [("659.1 ms", "27", "A B C D E F " * 20, "others' prompts 88.5 % " * 20)]
    for stretch, is_whole in ((("of", "why"), True), ((), False)):
        output.table(("gap", "step", "of", "why"), rows, stretch=stretch, right=("step",))
        assert ("659.1 ms    27  A B" in capsys.readouterr().out) is is_whole


def test_a_run_without_gaps_and_waits_has_no_table_of_them(capsys):
    for new, tables in ((1, ""), (2, "longest gaps")):
        print_worst(record(EngineConfig(max_num_seqs=1), request("r0", 4, new)))
        assert capsys.readouterr().out.strip()[: len("longest gaps")] == tables


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run"], "--preset NAME or --workload FILE"),
        (["run", "-p", "nix"], "no preset 'nix'"),
        (["run", "-p", "gpt2-six", "-w", "x.json"], "either"),
        (["run", "-p", "gpt2-six", "--policy", "nix"], "no policy 'nix'"),
        (["compare", "-p", "gpt2-six", "--policy", "static", "--policy", "nix"], "no policy 'nix'"),
        (["compare", "-p", "gpt2-six", "--policy", "static", "--policy", "static"], "once"),
        (["run", "-p", "gpt2-six", "-m", "nix"], "built in"),
        (["run", "-w", "nix.json"], "nix.json cannot be read"),
        (["run", "-p", "gpt2-six", "--max-num-batched-tokens", "2"], "budget of 2"),
        (["run", "-p", "gpt2-six", "--num-blocks", "1"], "KV pool"),
        (["run", "-p", "gpt2-six", "-o", "nix/t.jsonl"], "no folder"),
        (["run", "-p", "gpt2-six", "--slo", "ttft"], "is no SLO"),
        (["run", "-p", "gpt2-six", "--dtype", "int8"], "floating-point"),
        (["show", "nix.jsonl"], "no file"),
        (["check", "nix.jsonl"], "no file"),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_2(args, words, capsys):
    assert call(*args) == 2
    captured = capsys.readouterr()
    assert (
        words in captured.err and len(captured.err.strip().splitlines()) == 1 and not captured.out
    )


def test_a_step_or_pass_that_is_not_there(tmp_path, capsys, three):
    path = tmp_path / "t.jsonl"
    three.save(path)
    for args, words in (
        (["--step", "99"], "no step 99"),
        (["--step", "1", "--pass", "3"], "no pass 3"),
    ):
        assert call("show", str(path), *args) == 2
        captured = capsys.readouterr()
        assert words in captured.err and not captured.out


def test_progress_without_a_terminal_is_a_line_a_tenth_at_most_one_a_second(capsys):
    now = iter([0.0, 0.5, 2.0, 2.5, 5.0])
    work = output.ProgressReporter("tokens", 100, clock=lambda: next(now))
    with work:
        for done in (10, 20, 30, 31):
            work.update(done, f"at {done}")
    assert capsys.readouterr().err.splitlines() == ["tokens 20/100, at 20", "tokens 31/100, at 31"]


def test_a_file_is_read_with_each_mebibyte_reported(tmp_path, capsys, monkeypatch):
    """A file that is packed has no size of which a part could be told."""
    seconds = itertools.count()
    real = output.ProgressReporter
    monkeypatch.setattr(output, "ProgressReporter", partial(real, clock=lambda: next(seconds)))
    lines = ["x" * (2**19 - 1) + "\n"] * 8
    for name, said in (("a.jsonl", 4), ("a.jsonl.gz", 0)):
        with written(path := tmp_path / name) as file:
            file.writelines(lines)
        assert list(output.reading(iter(lines), path)) == lines
        assert capsys.readouterr().err.splitlines() == [
            f"a.jsonl, MiB read {mib}/4" for mib in range(1, said + 1)
        ]


def test_of_many_requests_forty_are_rows_and_the_others_are_counted(capsys):
    for many, left in ((40, None), (43, 3)):
        print_summary(memory_trace(*[(2, 1)] * many))
        said = capsys.readouterr().out.splitlines()
        rows = [line for line in said if re.fullmatch(r"\S+ r\d+ .*length.*", line)]
        assert len(rows) == 40
        assert [line for line in said if line.startswith("… and ")] == (
            [f"… and {left} more; --json has them all."] if left else []
        )
