"""The command line: `python -m inflight run | serve | compare | show | presets | models | check |
agree | import | watch | collect | workload | fit | plan`.

A command is a function in a module of this package, imported when it is used, so that `--help` does
not wait for torch. A refusal is one sentence on stderr and exit code 2.
"""

import ast
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from core import __version__
from core.cli.given import Command
from core.cli.output import INTERRUPTED, loading, open_streams, print_line, print_note
from core.errors import InflightError, shown
from core.start import gc_frozen
from core.torch_engine.models.tensor_parallel import is_first, world_size

Target = str | Callable[..., None]
"""A command: a function, or its place in this package as `module:function`."""

COMMANDS: dict[str, Target] = {
    "run": "run:run",
    "serve": "serve:serve",
    "compare": "compare:compare",
    "show": "show:show",
    "presets": "lists:presets",
    "models": "lists:models",
    "check": "check:check",
    "agree": "check:agree",
    "import": "import_:import_",
    "watch": "watch:watch",
    "collect": "collect:collect",
    "workload": "workload:workload",
    "fit": "fit:fit",
    "plan": "plan:plan",
}
PROGRAM = "python -m inflight"


def program(commands: Mapping[str, Target]) -> typer.Typer:
    """A command line with these commands."""
    about = (
        "Inflight: continuous batching and the policies before it on a real model, with every step"
        " recorded."
    )
    made = _group(commands, about)
    made.callback(help=about)(_options)
    return made


def _say_version(wanted: bool) -> None:
    if wanted:
        print_line(f"inflight {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_say_version),
    ] = False,
) -> None: ...


def _group(commands: Mapping[str, Target], help: str) -> typer.Typer:
    made = _typer(cls=_LazyGroup, help=help, no_args_is_help=True)
    for name, target in commands.items():
        function = _stub(target) if isinstance(target, str) else target
        made.command(name, cls=Command, short_help=_first_paragraph(function))(function)
    return made


def _typer(**options: Any) -> typer.Typer:
    boxes = "rich" if sys.stdout and sys.stdout.isatty() else None  # boxes are for terminals
    plain: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False}
    return typer.Typer(rich_markup_mode=boxes, **plain, **options)  # type: ignore[arg-type]


def _first_paragraph(function: Callable[..., None]) -> str:
    """A command's entry in the list of commands, which Typer would cut after one line."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


@cache  # two programs list the same commands
def _stub(target: str) -> Callable[..., None]:
    """A placeholder with the docstring of a command, which lists it without importing it."""
    module, _, function = target.partition(":")
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))

    def stub() -> None: ...

    stub.__doc__ = next(
        ast.get_docstring(n)
        for n in tree.body
        if isinstance(n, ast.FunctionDef) and n.name == function
    )
    stub.target = target  # type: ignore[attr-defined]
    return stub


class _LazyGroup(TyperGroup):
    """A group that replaces a stub by its command when it is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        target = getattr(getattr(command, "callback", None), "target", None)
        if name is not None and target is not None:
            module, _, function = target.partition(":")
            alone = _typer()
            with loading("Loading"), gc_frozen():
                target = getattr(import_module(f"{__package__}.{module}"), function)
            alone.command(name, cls=Command)(target)
            command = typer.main.get_command(alone)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_note("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None


app = program(COMMANDS)


def main(args: list[str] | None = None, app: typer.Typer = app, name: str = PROGRAM) -> None:
    """Run a command of `app` and exit: 0 done, 1 a check failed, 2 refused, 130 interrupted."""
    open_streams()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            os.getcwd()
        except FileNotFoundError:  # torch would end the process
            raise InflightError(
                "The folder in which this was started is gone: choose another."
            ) from None
        if world_size() > 1:
            _share(sys.argv[1:] if args is None else args)
        try:
            given = sys.argv[1:] if args is None else args
            if not given and app.info.no_args_is_help:
                given = ["--help"]
            code = app(given, prog_name=name, standalone_mode=False)
        finally:
            sys.stdout.flush()  # what fails here is said here
        sys.exit(code or 0)
    except _UsageError as error:
        print_note(_sentence(error))
        sys.exit(2)
    except InflightError as error:
        print_note(str(error))
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more can be written there
        if error.errno == errno.EPIPE:
            sys.exit(1)  # whoever read the output has gone
        what = error.filename or ("What is printed" if error.errno in _OF_WRITING else None)
        print_note(": ".join(filter(None, (what, f"{error.strerror or error}."))))
        sys.exit(2)


_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


# Typer's own, or click's where Typer is older
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _sentence(error: Any) -> str:
    """What is wrong with the options, without Typer's lines around it."""
    text = error.format_message()
    if hasattr(error.__cause__, "errors"):
        given = shown(error.__cause__.errors()[0]["input"])
        text = text.replace("Value error, ", "").partition(", unable")[0].rstrip(".")
        text += "" if given in text else f", not {given}"
    return f"{text.rstrip('.')}."


def _share(args: list[str]) -> None:
    """Under torchrun only the first process prints, and `run` is the only command."""
    if not is_first():
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if args[:1] != ["run"]:
        raise InflightError("Under torchrun only the command run is available.")
