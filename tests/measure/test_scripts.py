"""Every script that measures ourselves runs at its smallest, and says how it is called. Nothing is
timed here.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest
from typer.testing import CliRunner

from core.config import EngineConfig
from core.errors import InflightError
from core.torch_engine.engine import Engine
from measure import app_of, start
from measure.bench.synthetic import gpt2, requests
from measure.bookkeeping import recording_share
from measure.threads import CONDITIONS, WAYS, Waits

HERE = Path(__file__).resolve().parent
SCRIPTS = sorted(
    path.name for path in HERE.glob("*.py") if not path.name.startswith(("test_", "conftest", "__"))
)
RECORDED = "check of a recorded run"
SMALLEST = {
    "bookkeeping.py": ["--quick", "--json"],
    "threads.py": ["--quick", "--repeats", "1", "--json"],
    "serve.py": [
        "--requests",
        "3",
        "--rate",
        "0",
        "--model",
        "shakespeare-char",
        "--threads",
        "1",
        "--json",
    ],
    "viewers.py": [
        "--viewers",
        "2",
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--lanes",
        "2",
        "--model",
        "shakespeare-char",
        "--json",
    ],
}


@pytest.fixture
def called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`called("serve.py", "--json")`: the exit code of a script, and what it printed. It runs as
    Python would run it, but in this process, which has loaded torch already.
    """

    def call(script: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(HERE / script), *arguments])
        monkeypatch.setattr(sys, "path", sys.path.copy())
        monkeypatch.chdir(HERE.parent)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(HERE / script), run_name="__main__")
        return end.value.code or 0, *capsys.readouterr()

    return call


def test_the_package_and_docs_name_every_script():
    import measure

    for text in (
        measure.__doc__,
        (HERE.parents[1] / "docs" / "measured.md").read_text(encoding="utf-8"),
    ):
        assert [name for name in SCRIPTS if f"tests/measure/{name}" not in text] == []


# in one process, as each would load torch again
HELPS = """
import contextlib, io, json, runpy, sys
helps = {}
for path in sys.argv[1:]:
    sys.argv, told = [path, "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        helps[path] = [end.code or 0, told.getvalue()]
json.dump(helps, sys.stdout)
"""


@pytest.mark.slow
def test_every_script_has_help():
    paths = [str(HERE / script) for script in SCRIPTS]
    done = subprocess.run(
        [sys.executable, "-c", HELPS, *paths], capture_output=True, text=True, cwd=HERE.parent
    )
    helps = json.loads(done.stdout)
    assert list(helps) == paths
    for path, (code, told) in helps.items():
        assert code == 0 and "--help" in told, path


@pytest.mark.slow
@pytest.mark.parametrize("script", SMALLEST)
def test_it_runs_at_its_smallest(called, script):
    code, told, errors = called(script, *SMALLEST[script])
    assert code == 0, errors[-1500:]
    data = json.loads(told)
    if script == "bookkeeping.py":
        assert len(data["limits"]) == 5 and all(limit["value"] > 0 for limit in data["limits"])
    elif script == "threads.py":
        assert {way: set(of) for way, of in data["seconds"].items()} == {
            way: {c.name for c in CONDITIONS} for way in WAYS
        }
        assert (
            all(seconds > 0 for of in data["seconds"].values() for seconds in of.values())
            and data["best"] in WAYS
        )
    elif script == "serve.py":
        assert data["requests"] == 3 and data["differing_requests"] == 0
    else:
        assert data["viewers"] == 2 and data["messages_per_viewer_s"] > 0


@pytest.mark.slow
def test_starts_are_timed_in_rounds_after_one_that_does_not_count(monkeypatch, tmp_path, capsys):
    """Of half of its commands, since each loads torch; of the others, that they can be run."""
    every = start.commands(tmp_path)
    exec(start.LIBRARIES)
    assert capsys.readouterr().out == "imported\n" and Path(every.pop(RECORDED)[-1]).is_file()
    some = ["--version", "run to its first step"]
    assert [*every] == [*some, "torch and transformers alone"]
    commands = start.commands
    monkeypatch.setattr(
        start, "commands", lambda work: {name: commands(work)[name] for name in some}
    )
    ran = CliRunner().invoke(app_of(start.start), ["--repeats", "1", "--no-page", "--json"])
    here = json.loads(ran.stdout)["seconds"]["here"]
    assert [*here] == some and all(len(of) == 1 and of[0] > 0 for of in here.values())


@pytest.mark.slow
def test_a_refusal_is_a_sentence(called):
    code, _, errors = called("vllm_ranks.py", "magic", "--python", "python")
    assert code == 2 and errors.startswith("There is no run of several ranks called 'magic'")


def test_the_best_way_to_wait_is_the_one_that_fares_best_where_it_fares_worst():
    waits = Waits(
        {
            "a": {"quiet": 1.0, "beside": 9.0},
            "b": {"quiet": 1.5, "beside": 3.0},
            "c": {"quiet": 2.0, "beside": 3.0},
        }
    )
    assert [waits.worst(way) for way in "abc"] == [3.0, 1.5, 2.0] and waits.best == "b"


def test_recording_is_measured_where_events_are_made():
    config, workload = EngineConfig(max_num_seqs=2), requests([4, 5], [3, 3], 211)
    engine = Engine(gpt2(2, 64, 4, 211), None, config)
    own = engine.recorder
    share, trace = recording_share(engine, workload, perf_counter)
    assert 0 < share < 1 and trace.complete and engine.recorder is own
    run = engine.run
    engine.run = lambda workload: run(workload).events.pop()  # type: ignore[method-assign]
    with pytest.raises(InflightError, match="not known"):
        recording_share(engine, workload, perf_counter)


@pytest.mark.slow
def test_a_script_that_is_given_nothing_runs(called):
    """It has no commands among which to choose, so it does not print its help instead."""
    code, told, _ = called("fits.py")
    assert code == 0 and "ours, SmolLM2" in told and "Usage" not in told
