"""What starting costs, told by what is imported, not by how long it takes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import _cannot_listen, main
from visualizer.jobs.limits import HERE
from visualizer.server import api
from visualizer.server.store import Store

ROOT = Path(__file__).parents[2]
HEAVY = {
    "numpy",
    "torch",
    "transformers",
    "huggingface_hub",
    "gradio",
    "plotly",
    "fastapi",
    "uvicorn",
    "pandas",
}
TRACE = str(ROOT / "assets" / "traces" / "one-request.jsonl")


def said(code: str) -> list[str]:
    """What a process of its own prints last."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("program", ["core.__main__", "visualizer.__main__", "app"])
def test_a_help_text_loads_nothing_that_computes_or_serves(program):
    code = f"""
import sys
from {program} import main
try: main(["--help"])
except SystemExit: pass
print("loaded", *sorted({HEAVY!r} & sys.modules.keys()))"""
    assert said(code) == ["loaded"]


def heavy_modules(*arguments: str) -> set[str]:
    """What `python -m inflight …` imports of them, as Python itself reports it, by the program's
    end.
    """
    command = [sys.executable, "-X", "importtime", "-m", "inflight", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout and "leaked" not in done.stderr, done.stderr[-1500:]
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "core.errors" in imported
    return HEAVY & imported


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("show", TRACE),
        ("check", TRACE),
        ("run", "--preset", "one-joins-two", "--simulate", "h100:8b"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_computes_nothing_on_a_model_loads_nothing_that_computes_or_serves(arguments):
    assert heavy_modules(*arguments) == set()


@pytest.mark.slow  # a process of its own loads torch
def test_a_run_loads_nothing_that_serves(tmp_path):
    (workload := tmp_path / "one-step.json").write_text(
        json.dumps(
            {"requests": [{"id": "a", "prompt": "O Romeo, ", "sampling": {"max_new_tokens": 1}}]}
        )
    )
    found = heavy_modules("run", "--workload", str(workload), "--device", "cpu")
    assert found == {"numpy", "torch", "transformers", "huggingface_hub"}


def test_only_a_process_that_is_ours_is_no_longer_searched():
    code = """
import gc
from core.start import own_process, gc_frozen
states = []
for _ in range(2):
    with gc_frozen():
        states.append(gc.isenabled())
    states.append(gc.isenabled())
    states.append(gc.get_freeze_count() > 1000)
    own_process()
gc.unfreeze()
gc.disable()
with gc_frozen():
    pass
print(*states, gc.isenabled(), gc.get_freeze_count())"""
    assert said(code) == ["True", "True", "False", "False", "True", "True", "False", "0"]


@pytest.mark.slow
def test_the_page_imports_gradio_without_the_stubs_that_it_writes(tmp_path):
    """Without `skip_stubs` there would be a `mine.pyi`."""
    (tmp_path / "mine.py").write_text("import gradio\n\n\nclass Mine(gradio.HTML):\n    pass\n")
    code = f"""
import sys
from visualizer.page.stubs import skip_stubs
skip_stubs()
sys.path.insert(0, {str(tmp_path)!r})
import mine
print(mine.Mine("x").value)"""
    assert said(code) == ["x"] and not list(tmp_path.glob("*.pyi"))


@pytest.mark.parametrize(("files", "expected"), [(0, 1.0), (3, 1.0 + 3 * 0.9), (100, 5.0)])
def test_a_run_is_prepared_for_once_the_page_has_its_files(files, expected, tmp_path, monkeypatch):
    """A second after the latest of them, five after the first at the latest. files: asked for, each
    0.9 seconds after the one before.
    """
    now, loaded, later = 0.0, [], iter(range(files))

    class Clock:
        monotonic = staticmethod(lambda: now)

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            if next(later, None) is None:
                now += seconds
            else:
                now += 0.9
                server.warm_up()

    class Thread:
        def __init__(self, target, **_):
            self.start = target

    server = api.Server(
        Store(tmp_path, 2**20), HERE, models=SimpleNamespace(get=lambda *asked: None)
    )
    monkeypatch.setattr(api, "time", Clock)
    monkeypatch.setattr(api, "threading", SimpleNamespace(Thread=Thread))
    monkeypatch.setattr(api, "load_libraries", lambda: loaded.append(now))
    server.warm_up()
    server.warm_up()
    assert loaded == [pytest.approx(expected, abs=0.9 if files == 100 else 1e-6)]


@pytest.mark.slow  # a process of its own loads torch
def test_two_visitors_may_be_the_first_to_need_a_model(tmp_path):
    """transformers replaces its own module while it is imported: who came meanwhile, by another
    way, found nothing in the old one.
    """
    code = f"""
import sys, threading, time
from pathlib import Path
from visualizer.jobs.limits import HERE
from visualizer.server.api import Server
from visualizer.server.store import Store
server = Server(Store(Path({str(tmp_path)!r}), 2**28), HERE)
first = threading.Thread(target=server._models.get, args=("shakespeare-char", "cpu"))
first.start()
while "transformers" not in sys.modules:
    time.sleep(0.001)
run = next(e["id"] for e in server.catalogue if e["name"] == "short-and-long")
answer = server.attention(run, 0, 0, 0, 0)
first.join()
print(*answer)"""
    assert said(code) == ["segments"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process has")
def test_large_blocks_go_back_to_the_system():
    """Those that lie between small ones which stay, after larger ones had been freed: as in a page
    of many hours.
    """

    def left(setting: str) -> float:
        """The share that a process keeps of 60 blocks of 2 MiB after it has freed them."""
        code = f"""
from pathlib import Path
from core.start import return_large_blocks
{setting}
def held(): return int(Path("/proc/self/statm").read_text().split()[1])
for _ in range(2): bytearray(30 * 2**20)
before, large, small = held(), [], []
for _ in range(60): large.append(bytearray(2**21)), small.append(bytearray(4000))
most = held()
large.clear()
print((held() - before) / (most - before))"""
        return float(said(code)[0])

    if left("") < 0.5:
        pytest.skip("this C library returns them by itself")
    assert left("return_large_blocks()") < 0.1


_A_SERVER_THAT_ENDS = """
import sys, threading
from pathlib import Path
from types import SimpleNamespace as Made
from visualizer import ui
thread = threading.Thread(target=lambda: None)
thread.start()
page = Made(store=Made(folder=Path(sys.argv[1])), jobs=Made(stop=lambda seconds: None))
ui._serve_until_interrupted(page, None, Made(), thread)
"""


@pytest.mark.slow
def test_a_page_whose_server_has_ended_ends_with_a_sentence(tmp_path):
    (folder := tmp_path / "store").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _A_SERVER_THAT_ENDS, str(folder)], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("The page's server has ended because of a bug: start it again.\n")
    assert not folder.exists()


def test_why_a_page_cannot_be_served_at_an_address_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert _cannot_listen("127.0.0.1", port) == (
            f"Port {port} is taken: choose another with --port."
        )
    assert _cannot_listen("127.0.0.1", port) == ""
    for none in (-1, 0, 65_536):
        assert _cannot_listen("127.0.0.1", none) == (
            f"Port {none} does not exist: choose one from 1 to 65535."
        )
    assert _cannot_listen("", port).startswith("Name an address to listen on: 127.0.0.1 for")
    said = _cannot_listen("nobody.invalid", port)
    assert said.startswith(f"Cannot listen on nobody.invalid:{port}: ") and said[-1] == "."


def test_whether_visitors_share_an_engine_is_not_guessed(monkeypatch, capsys):
    for given in ("no", "false", "2", " "):
        monkeypatch.setenv("INFLIGHT_LIVE", given)
        assert main(["--port", "0"]) == 2
        assert capsys.readouterr().err.startswith("INFLIGHT_LIVE must be 1 or 0: ")
    for given in ("", "0", "1"):
        monkeypatch.setenv("INFLIGHT_LIVE", given)
        assert main(["--port", "0"]) == 2
        assert capsys.readouterr().err.startswith("Port 0 does not exist")
