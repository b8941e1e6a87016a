"""`python tests/mutants [WORDS …]`: make each fault of the list (or those whose name has these
words) in a copy of the sources and run its tests.

Exits with 1 if a fault survives, or if the tests fail without one. Each fault has a process of its
own, forked after the heavy imports, as many at a time as there are processors.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from itertools import groupby
from pathlib import Path

os.environ.update(
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    TRITON_INTERPRET="1",
    # a fault may take away what a browser's test waits for; the sources as they are wait no longer
    INFLIGHT_PATIENCE="30000",
)

import pytest
import torch
from faults import FAULTS, Fault

# what the tests import of other people's, read once and not by every process
for name in (
    "fastapi",
    "httpx",
    "hypothesis",
    "numba.core.decorators",
    "openai",
    "playwright.sync_api",
    "plotly.graph_objects",
    "starlette.testclient",
    "torch._dynamo.convert_frame",
    "transformers.activations",
    "transformers.generation",
):
    import_module(name)

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("assets/player", "assets/engine")  # those with faults
PATIENCE = 600  # seconds: a fault that makes a run endless is noticed by that


def compiled(folder: Path) -> None:
    """The sources and tests, compiled once for all faults: that takes longer than most tests."""
    for name in ("core", "visualizer", "tests", *COPIED):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
        )
        compileall.compile_dir(folder / name, quiet=1)


def copy(made: Path, folder: Path, fault: Fault | None) -> None:
    """The sources and tests, with the fault in them. made: by `compiled`."""
    for name in ("core", "visualizer", "tests"):
        shutil.copytree(made / name, folder / name, copy_function=os.link)
    for name in (
        "docs",
        "inflight.py",
        "README.md",
        "CONTRIBUTING.md",
        "pyproject.toml",
        "package.json",
    ):
        (folder / name).symlink_to(ROOT / name)
    # the page finds the sources beside the file itself, not beside a link to it
    shutil.copy(ROOT / "app.py", folder)
    (folder / "assets").mkdir()
    for asset in (ROOT / "assets").iterdir():
        if f"assets/{asset.name}" in COPIED:
            shutil.copytree(
                made / "assets" / asset.name, folder / "assets" / asset.name, copy_function=os.link
            )
        else:
            (folder / "assets" / asset.name).symlink_to(asset)
    if fault is not None:
        path = folder / fault.file
        source = path.read_text(encoding="utf-8")
        assert source.count(fault.old) == 1, (
            f"{fault.file} has {source.count(fault.old)} of {fault.old!r}"
        )
        path.unlink()  # a file of its own, no link to that of all
        path.write_text(source.replace(fault.old, fault.new), encoding="utf-8")


def start(folder: Path, tests: list[str]) -> int:
    """Run tests of a copy in a process forked from this one, those in JavaScript by Node; its
    id.
    """
    child = os.fork()
    if child:
        return child
    os.chdir(folder)
    sys.path[:0] = [str(folder), str(folder / "tests")]
    said = os.open("said", os.O_CREAT | os.O_WRONLY)
    os.dup2(said, 1), os.dup2(said, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["--hypothesis-seed=0", "--hypothesis-profile=default"]
    in_python, in_node = (
        [f"tests/{test}" for test in tests if test.endswith(".js") == node]
        for node in (False, True)
    )
    code = 4
    try:
        code = pytest.main([*options, *in_python]) if in_python else 0
        if not code and in_node:
            code = subprocess.run(["node", "--test", "--test-reporter=tap", *in_node]).returncode
    finally:
        os._exit(int(code))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [fault for fault in FAULTS if all(word in fault.what for word in options.words)]
    everything = sorted({test for fault in chosen for test in fault.tests})
    # None: the sources as they are, under which every test must pass; a file each, so that all
    # processors have something to do
    of_files = groupby(everything, key=lambda test: test.split("::")[0])
    waiting: list[tuple[Fault | None, list[str]]] = [(None, list(of)) for _, of in of_files]
    waiting += [(fault, list(fault.tests)) for fault in chosen]
    running: dict[int, tuple[Fault | None, list[str], Path, float]] = {}
    wrong = 0
    with tempfile.TemporaryDirectory() as top:
        compiled(made := Path(top) / "made")
        while waiting or running:
            while waiting and len(running) < 2 * (os.cpu_count() or 1):  # many wait for a browser
                fault, tests = waiting.pop(0)
                folder = Path(tempfile.mkdtemp(dir=top))
                copy(made, folder, fault)
                running[start(folder, tests)] = fault, tests, folder, time.monotonic()
            for late in [
                pid
                for pid, (fault, _, _, began) in running.items()
                if fault and time.monotonic() - began > PATIENCE
            ]:
                os.kill(late, signal.SIGKILL)
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                time.sleep(0.1)
                continue
            fault, tests, folder, began = running.pop(child)
            code = os.waitstatus_to_exitcode(status)
            said = (folder / "said").read_text(encoding="utf-8", errors="replace")
            if fault is None:
                good, word = (
                    code == 0,
                    ("all pass" if code == 0 else f"FAIL WITHOUT ANY FAULT\n{said[-3000:]}"),
                )
            elif code in (1, -signal.SIGKILL):
                failed = [
                    line.split(" - ")[0].split("::")[-1]
                    for line in said.splitlines()
                    if line.startswith(("FAILED", "ERROR"))
                ]
                failed += [
                    line.split(" - ", 1)[1]
                    for line in said.splitlines()
                    if line.startswith("not ok")
                ]
                good, word = True, f"noticed by {failed[0]}" if failed else "noticed: it never ends"
            else:
                good, word = (
                    False,
                    (
                        "SURVIVES"
                        if code == 0
                        else f"cannot be judged (pytest says {code})\n{said[-1500:]}"
                    ),
                )
            wrong += not good
            name = fault.what if fault else f"{tests[0].split('::')[0]} as it is"
            print(f"{name}: {word} ({time.monotonic() - began:.0f} s)", flush=True)
            shutil.rmtree(folder)
    print(f"{len(chosen)} faults, {wrong} of them or of the tests not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
