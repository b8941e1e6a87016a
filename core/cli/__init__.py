"""The command line: `python -m core run | serve | compare | bench | show | presets | models | check | agree | import | watch | workload`.

A command is a function in a module of this package, imported when it is asked for; `bench` has commands of its own. A refusal is one sentence on stderr and exit code 2.
"""

from __future__ import annotations

import os
import sys

import typer

from core.cli.output import sentence
from core.cli.program import Target
from core.cli.program import program as program_of
from core.errors import InflightError
from core.models.tensor_parallel import is_first, world_size

COMMANDS: dict[str, Target] = {
    "run": "run:run",
    "serve": "serve:serve",
    "compare": "compare:compare",
    "show": "show:show",
    "presets": "lists:presets",
    "models": "lists:models",
    "check": "check:check",
    "agree": "agree:agree",
    "import": "import_:import_",
    "watch": "watch:watch",
    "workload": "workload:workload",
}
BENCHES: dict[str, Target] = {
    "speed": "bench:speed",
    "load": "bench_load:load",
    "gpu": "bench:gpu",
}

PROGRAM = "python -m core"


def program(commands: dict[str, Target]) -> typer.Typer:
    """A command line of these commands, and of the benchmarks."""
    benches = program_of(BENCHES, "Measure speed, behaviour under load, or a GPU.")
    about = "Inflight: continuous batching and its older relatives on a real model, every step on record."
    return program_of(commands, about, {"bench": benches})


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
