"""Scripts that measure this project itself, one a file; docs/measured.md has what they found.

    python tests/measure/speed.py            our speed beside other ways to serve the same requests
    python tests/measure/load.py             throughput against latency as the load grows
    python tests/measure/gpu.py              the CUDA path
    python tests/measure/bookkeeping.py      what scheduling, recording and storing a step cost
    python tests/measure/threads.py          how the threads of a run should wait for each other
    python tests/measure/serve.py            what serving over HTTP costs beside the same engine
                                             offline
    python tests/measure/viewers.py          what viewers of a live run cost its engine
    python tests/measure/visitors.py         what a class of visitors waits for
    python tests/measure/day.py              what the page holds after a day of visitors and
                                             misfortunes, and which calls were lost
    python tests/measure/start.py            how soon a command, the first step of a run and the
                                             page's first picture are there
    python tests/measure/engine_in_tab.py    how soon the engine in a browser's tab is ready, and
                                             its steps a second
    python tests/measure/passes_in_tab.py    passes of smollm2 in a browser's tab, of one commit or
                                             of two, beside torch
    python tests/measure/fits.py             how far a cost fitted to one recorded run is off for
                                             another; runs nothing
    python tests/measure/plans.py            how far predictions for settings that were not recorded
                                             are off
    python tests/measure/recorder_cost.py    what the recorder costs vLLM's engine thread; run it by
                                             the Python of a vLLM environment
    python tests/measure/record.py           the runs and the comparisons that ship with the page
    python tests/measure/record_engines.py   the comparisons with vLLM and transformers that ship
                                             with the page
    python tests/measure/record_gpu.py       the comparisons on a GPU
    python tests/measure/vllm_ranks.py       records vLLM's data-parallel ranks, whose traces ship
                                             with the page
    python tests/measure/vllm_traffic.py     records a vLLM server under HTTP traffic, with its own
                                             counters
    python tests/measure/press.py            presses at random on a page, and tells what goes wrong
    python tests/measure/size.py             how large the house is, as formatters print it
    python tests/measure/files.py            docs/files.md, what each file says of itself
    python tests/measure/told.py             tests/told, what is said and counted of runs, as text
    python tests/measure/take_screenshots.py README's pictures of the page

Each has `--help`. They want a quiet machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from core.cli import main
from core.cli.given import Command

Repeats = Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Tiny shapes: proves that everything runs; the numbers mean nothing."
    ),
]
Burstiness = Annotated[float, typer.Option(help="1 is Poisson; below 1 is burstier.")]
Seed = Annotated[int, typer.Option(help="Seed for arrivals and lengths.")]
Tokens = Annotated[str, typer.Option(help="N, LOW-HIGH or ~MEAN.")]


def app_of(command: Callable[..., Any]) -> typer.Typer:
    """A script's command, which refuses what those of the command line refuse."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(cls=Command)(command)
    return app


def script(command: Callable[..., Any]) -> None:
    """Run a script's command as the command line runs its own: a refusal is one sentence on stderr
    and exit code 2.
    """
    main(app=app_of(command), name=f"python {sys.argv[0]}")
