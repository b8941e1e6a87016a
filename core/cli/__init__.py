"""The command line: `python -m core run | serve | compare | bench | show | presets | models | check | import | watch | workload`.

A command is a function in a module of this package, registered below by name; `bench` has commands of its own. A refusal is one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import typer

from core.cli.bench import COMMANDS as BENCHES
from core.cli.check import check
from core.cli.compare import compare
from core.cli.import_ import import_
from core.cli.lists import models, presets
from core.cli.output import sentence
from core.cli.run import run
from core.cli.serve import serve
from core.cli.show import show
from core.cli.watch import watch
from core.cli.workload import workload
from core.errors import InflightError
from core.models.tensor_parallel import is_first, world_size

COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "serve": serve,
    "compare": compare,
    "show": show,
    "presets": presets,
    "models": models,
    "check": check,
    "import": import_,
    "watch": watch,
    "workload": workload,
}

PROGRAM = "python -m core"


def program(commands: dict[str, Callable[..., None]]) -> typer.Typer:
    """A command line of these commands."""
    made = typer.Typer(
        help="Inflight: continuous batching and its older relatives on a real model, every step on record.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,  # boxes are for terminals
    )
    for name, command in commands.items():
        made.command(name)(command)
    benches = typer.Typer(help="Measure: speed, load, or a GPU.", no_args_is_help=True)
    for name, measure in BENCHES.items():
        benches.command(name)(measure)
    made.add_typer(benches, name="bench")
    return made


app = program(COMMANDS)


def main(args: list[str] | None = None, app: typer.Typer = app, name: str = PROGRAM) -> None:
    """Run a command of `app` and exit: 0 done, 1 a trace that does not hold, 2 refused, 130 interrupted."""
    try:
        if world_size() > 1:
            _share(sys.argv[1:] if args is None else args)
        app(args, prog_name=name)
    except InflightError as error:
        sentence(str(error))
        sys.exit(2)
    except OSError as error:
        sentence(f"{error.filename}: {error.strerror}." if error.filename else f"{error}.")
        sys.exit(2)


def _share(args: list[str]) -> None:
    """Under torchrun the first process speaks for all, and only `run` does the same in each of them."""
    if not is_first():
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  for as long as the process lives
    if args[:1] != ["run"]:
        raise InflightError("Under torchrun there is the command run, and no other.")
