"""`python -m visualizer …`, and `inflight …` where it is installed: the engine's commands, and beside them those of the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from core.cli import COMMANDS, program
from core.cli import main as run_command
from core.cli.output import line, sentence

PROGRAM = "python -m visualizer"


def page(context: typer.Context) -> None:
    """Open the page; `page --help` lists what it takes."""
    from app import main as serve  # the page is what loads Gradio

    sys.exit(serve(context.args, f"{PROGRAM} page"))


def record(
    names: Annotated[list[str] | None, typer.Argument(help="Presets to record; all by default.")] = None,
    device: Annotated[str, typer.Option(help="Where to run them.")] = "cpu",
) -> None:
    """Run presets and write their traces to assets/traces, and the runs with a mistake made on purpose beside them."""
    from visualizer.documents.record import record as record_presets

    for name, path in record_presets(device=device, names=tuple(names or ())):
        line(f"{name}: {path.stat().st_size:,} bytes")


def record_comparisons(
    names: Annotated[list[str] | None, typer.Argument(help="Comparisons to record; all by default.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")] = 5,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of torch.", show_default="torch's own")] = None,
    device: Annotated[str, typer.Option(help="Where to run them.")] = "cpu",
) -> None:
    """Measure the comparisons that ship with the page, on a quiet machine, and write them to assets/comparisons."""
    from visualizer.documents.record_comparisons import record_comparisons as measure

    for name, folder in measure(names or (), repeats=repeats, threads=threads, device=device, say=sentence):
        line(f"{name}: {sum(file.stat().st_size for file in folder.iterdir()):,} bytes")


def record_engines(
    names: Annotated[list[str] | None, typer.Argument(help="Presets; all that engines are compared on by default.")] = None,
    python: Annotated[str | None, typer.Option(help="Of an environment with vLLM.", show_default="$INFLIGHT_VLLM_PYTHON")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")] = 5,
) -> None:
    """Record vLLM and transformers beside our engine on a quiet machine, and write the comparisons to assets/comparisons."""
    from visualizer.documents.record_engines import record_engines as measure

    for name, folder in measure(names or (), python=python, repeats=repeats, say=sentence):
        line(f"{name}: {sum(file.stat().st_size for file in folder.iterdir()):,} bytes")


def record_ranks(
    names: Annotated[list[str] | None, typer.Argument(help="Runs of several ranks; all by default.")] = None,
    python: Annotated[str | None, typer.Option(help="Of an environment with vLLM.", show_default="$INFLIGHT_VLLM_PYTHON")] = None,
) -> None:
    """Record vLLM's data-parallel ranks at work together, and write their traces to assets/traces."""
    from visualizer.documents.record_ranks import record_ranks as record

    for name, path in record(names or (), python=python):
        line(f"{name}: {path.name}, {path.stat().st_size:,} bytes")


def export_site(folder: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Write the recorded runs and comparisons as a site that needs no server."""
    from visualizer.page.site import export_site as export

    line(f"Open {export(folder)} in a browser; the folder needs no server.")


def load_test(
    url: Annotated[str, typer.Argument(help="The page that is measured; it runs already.")] = "http://127.0.0.1:7860",
    visitors: Annotated[
        list[int] | None, typer.Option(min=1, help="How many come; may be given again.", show_default="30, 100, 200")
    ] = None,
    within: Annotated[float, typer.Option(min=0.0, help="Seconds within which all of them come.")] = 10.0,
    browser: Annotated[bool, typer.Option("--browser", help="One real Chromium among them, timed until it has drawn.")] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start a page instead, and time what its first visitor, a real Chromium, waits for.")
    ] = False,
) -> None:
    """Let a class of visitors open the page and run a small preset; print what they waited for."""
    if cold:
        from visualizer.server import cold_start

        line(cold_start.HEADING)
        line(cold_start.measure().line())
        return
    from visualizer.server.load_test import HEADING, measure

    line(HEADING)
    for number in visitors or (30, 100, 200):
        line(measure(url, number, within, browser).line())


def exercises(context: typer.Context) -> None:
    """Check the exercises in code; `exercises --help` lists what it takes."""
    from exercises.__main__ import main as check

    sys.exit(check(context.args, f"{PROGRAM} exercises"))


commands = program(
    {
        **COMMANDS,
        "record": record,
        "record-comparisons": record_comparisons,
        "record-engines": record_engines,
        "record-ranks": record_ranks,
        "load-test": load_test,
        "export-site": export_site,
    }
)
for name, command in {"page": page, "exercises": exercises}.items():  # with options of their own
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    commands.command(name, short_help=command.__doc__, context_settings=settings, add_help_option=False)(command)


def main(args: list[str] | None = None) -> None:
    """Run a command and exit, as `core.cli.main` does."""
    run_command(args, commands, PROGRAM)


if __name__ == "__main__":
    main()
