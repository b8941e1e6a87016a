"""`python -m inflight …`, or `inflight …`: the engine's commands, and those of the page."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core.cli import COMMANDS, PROGRAM, program
from core.cli import main as run_command
from core.cli.options import Html, Json
from core.cli.output import (
    INTERRUPTED,
    ProgressReporter,
    finish,
    print_json,
    print_line,
    print_note,
)
from core.config import SMOLLM2
from core.errors import InflightError, UnsupportedModel
from core.files import require_file, require_writable, written
from core.start import own_process
from core.torch_engine.models.names import is_fetched


def page(context: typer.Context) -> None:
    """Open the page; `page --help` lists its options."""
    from app import main as serve  # only the page loads Gradio

    sys.exit(serve(context.args, f"{PROGRAM} page"))


def export_site(
    folder: Annotated[Path, typer.Argument(help="Folder to write it to.")],
    url: Annotated[
        str,
        typer.Option(
            help="Where it will be served: link previews need the whole address of their picture."
        ),
    ] = "",
    engine: Annotated[
        bool,
        typer.Option("--engine", help="With the engine, which then runs in each visitor's tab."),
    ] = False,
    pyodide: Annotated[
        Path | None, typer.Option(help="Folder of the npm package pyodide, instead of fetching it.")
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="The documents to bring along: build/docs, after `make docs`."),
    ] = None,
    json: Json = False,
) -> None:
    """Write the recorded runs and comparisons as a static site."""
    from core.browser.pyodide import fetch_pyodide, find_pyodide
    from visualizer.page.engine_files import EngineFiles
    from visualizer.page.site import export_site as export

    files = None
    if engine or pyodide:
        found = find_pyodide(pyodide) if pyodide else fetch_pyodide()
        files = EngineFiles(found, _smollm2())
    with ProgressReporter(f"Writing {folder}"):
        first = export(folder, url=url, engine=files, docs=docs)

    def print_it(_: object) -> None:
        if files is None:
            print_line(f"Open {first} in a browser; the folder needs no server.")
        else:
            print_line(
                f"Any server of files can serve {folder}, `python -m http.server -d {folder}` for"
                " one: the engine runs in its visitors' tabs."
            )

    finish(
        {
            "schema": "export-site/1",
            "folder": str(folder),
            "first": str(first),
            "engine": files is not None,
        },
        print_it,
        json,
    )


def _smollm2() -> Path | None:
    """The file with which tabs run it, where it was fetched; a note where that cannot be had."""
    if not is_fetched():
        return None
    from core.torch_engine.models import smollm2
    from core.torch_engine.models.watch import ProgressBar

    try:
        with ProgressBar(SMOLLM2) as bar:
            return smollm2.packed(bar)
    except UnsupportedModel as error:
        print_note(f"{error} The site is written without it.")
        return None


def grade(
    file: Annotated[Path, typer.Argument(help="The Python file with the answers.")],
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="Tasks of Write by name; the four exercises by default."),
    ] = None,
    start: Annotated[
        bool,
        typer.Option("--start", help="Write the file with what the tasks begin with, no grade."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Which random cases are asked.")] = 0,
    lang: Annotated[Literal["en", "de"], typer.Option(help="The language of the verdicts.")] = "en",
    html: Html = None,
    json: Json = False,
) -> None:
    """Grade a file for tasks of Write, each in a process of its own.

    Exit code 1 if one was not solved. docs/grading.md has the JSON, and what a file can do.
    """
    from visualizer.words.language import speaking, t
    from visualizer.write.grade import BY_DEFAULT, as_json, graded
    from visualizer.write.tasks import starting

    names = list(dict.fromkeys(tasks or BY_DEFAULT))
    if start:
        _write_new(file, starting(names))
        print_line(f"Write your answers in {file}, then run `python -m inflight grade {file}`.")
        return
    require_writable(html, read=[require_file(file)])
    source, found = file.read_bytes(), []
    with speaking(lang):
        try:
            for one in graded(names, source, seed):
                found.append(one)
                if not json:
                    for line in one.said().splitlines():
                        print_line(line)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        if json:
            print_json(as_json(str(file), source, seed, found))
        elif any(one.result.lines for one in found):
            see = "To see a case for yourself, paste its lines into `python -i {file}`."
            print_line(t(see, file=str(file)))
    if html is not None:
        drawn = (one.result for one in reversed(found) if one.result.trace is not None)
        _draw(html, next(drawn, None))
    if not all(one.result.is_right for one in found):
        raise typer.Exit(1)


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise InflightError(f"There is a file {path} already.")
    with written(path) as out:
        out.write(text)


def _draw(path: Path, result: Any) -> None:
    """The run of a result as a page."""
    from visualizer.documents.replay import replay
    from visualizer.page.bundle import standalone_html

    if result is None or result.trace is None:
        print_note(f"{path} was not written: there was no run.")
        return
    with written(path) as out:
        out.write(standalone_html(replay(result.trace)))
    is_unseen = result.lines and result.trace.complete
    more = ": no run comes to the last case above, so it is a whole one" if is_unseen else ""
    print_note(f"Open {path} in a browser{more}.")


commands = program({**COMMANDS, "export-site": export_site, "grade": grade})
# it parses its own options
commands.command(
    "page",
    short_help=page.__doc__,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)(page)


def main(args: list[str] | None = None, name: str = PROGRAM) -> None:
    """Run a command and exit, as `core.cli.main` does. name: how this program is called."""
    run_command(args, commands, name)


def start() -> None:
    """`main` in a process that does nothing else."""
    own_process()
    main()


if __name__ == "__main__":
    start()
