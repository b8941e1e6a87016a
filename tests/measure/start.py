"""`python tests/measure/start.py`: what one waits for at the start, counted from the start of a
process of its own: a command, a run's first step, and the page, which a browser, open already, asks
as soon as it listens.

Measured are this installation and, with `--beside`, another one: the two take turns round by round.
What is read from the disk has been read before, in a round that does not count.
"""

from __future__ import annotations

import asyncio
import json as json_module
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.cli.options import Json
from core.cli.output import ProgressReporter, finish, print_line, seconds, table
from core.config import ASSETS
from core.errors import InflightError
from core.measure.rounds import load_average
from measure import script
from measure.visitors import chromium

LONGEST = 120.0  # seconds
ONE_STEP = {"requests": [{"id": "a", "prompt": "O Romeo, ", "sampling": {"max_new_tokens": 1}}]}
LIBRARIES = (
    "import torch; from transformers import AutoConfig, AutoTokenizer, PreTrainedModel;"
    " print('imported')"
)
_PAINT = """() => { const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return paint && performance.timeOrigin + paint.startTime; }"""
_PICTURE = "() => window.inflight && inflight.run && performance.timeOrigin + performance.now()"


def commands(workload: Path) -> dict[str, list[str]]:
    """Arguments of Python, by what one waits for: the first line that is printed. workload: of a
    run that is over with its first step.
    """
    return {
        "--version": ["-m", "inflight", "--version"],
        "check of a recorded run": [
            "-m",
            "inflight",
            "check",
            str(ASSETS / "traces" / "gpt2-six.jsonl"),
        ],
        "run to its first step": [
            "-m",
            "inflight",
            "run",
            "--workload",
            str(workload),
            "--device",
            "cpu",
        ],
        "torch and transformers alone": ["-c", LIBRARIES],
    }


def measure_command(folder: Path, arguments: list[str]) -> float:
    """Seconds from the start of a process to its first line; raises InflightError if it fails."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        waited = time.perf_counter() - started
        process.stdout.read()
    if process.returncode:
        raise InflightError(f"{' '.join(arguments)} ended with {process.returncode} in {folder}.")
    return waited


def measure_page(folder: Path) -> dict[str, float]:
    """One start of the page and one visit, in seconds from the start of the process: until it
    answers, something can be seen, and the first recorded run is drawn. Raises InflightError where
    it does not start, or no browser can be driven.
    """
    return asyncio.run(_visit(folder))


async def _visit(folder: Path) -> dict[str, float]:
    async with chromium() as browser:
        visitor = await browser.new_page()
        with _page(folder) as (process, port):
            started = time.time()
            await asyncio.to_thread(_until_it_listens, process, port)
            await visitor.goto(
                f"http://127.0.0.1:{port}", wait_until="commit", timeout=1000 * LONGEST
            )
            waited = {"page: first answer": time.time() - started}
            for name, shown in (("page: first paint", _PAINT), ("page: first picture", _PICTURE)):
                found = await visitor.wait_for_function(
                    shown, polling="raf", timeout=1000 * LONGEST
                )
                waited[name] = await found.json_value() / 1000 - started
    return waited


@contextmanager
def _page(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A page that has just been started, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "app", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process, port
    finally:
        process.terminate()
        process.communicate()


def _until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None:
                raise InflightError(
                    f"The page does not start; it ended with {process.returncode}."
                ) from None
            time.sleep(0.01)
    raise InflightError(f"The page does not listen after {LONGEST:.0f} seconds.")


def start(
    beside: Annotated[
        Path | None,
        typer.Option(
            help="A folder with another version of this project, measured in turn with this one."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, after one that does not count.")] = 5,
    page: Annotated[bool, typer.Option(help="Start the page as well; needs a browser.")] = True,
    json: Json = False,
) -> None:
    """Time how soon commands, a run's first step and the page's first picture are there, from
    nothing. Wants a quiet machine.
    """
    folders = {"here": ASSETS.parent} | ({"beside": beside.resolve()} if beside else {})
    taken: dict[str, dict[str, list[float]]] = {where: defaultdict(list) for where in folders}
    with tempfile.TemporaryDirectory() as own, ProgressReporter("rounds", repeats + 1) as work:
        (workload := Path(own) / "one-step.json").write_text(json_module.dumps(ONE_STEP))
        for done in range(repeats + 1):
            for where in folders if done % 2 else reversed(folders):
                work.update(done, where)
                waited = {
                    name: measure_command(folders[where], line)
                    for name, line in commands(workload).items()
                }
                waited |= measure_page(folders[where]) if page else {}
                for name, value in waited.items() if done else ():
                    taken[where][name].append(value)
    finish({"seconds": taken, "load_average": load_average()}, _print, json)


def _print(data: dict[str, Any]) -> None:
    here, beside = data["seconds"]["here"], data["seconds"].get("beside")
    columns = ("here", *(("beside", "here ÷ beside (range)") if beside else ()))
    rows = []
    for name, values in here.items():
        row = [name, seconds(statistics.median(values))]
        if beside:
            ratios = [own / other for own, other in zip(values, beside[name], strict=True)]
            row += [
                seconds(statistics.median(beside[name])),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
            ]
        rows.append(row)
    table(("from nothing to", *columns), rows, right=columns)
    print_line(
        "Medians; the ratio is the median of those within each round. Load average at the end:"
        f" {data['load_average']}."
    )


if __name__ == "__main__":
    script(start)
