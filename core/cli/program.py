"""A command line whose commands are imported when they are asked for: `--help` waits for no torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

Target = str | Callable[..., None]
"""A function, or where in this package it is: `module:function`."""


def program(commands: Mapping[str, Target], help: str, groups: Mapping[str, typer.Typer] | None = None) -> typer.Typer:
    """A command line of these commands, and below them of whole groups."""
    made = _typer(cls=_Late, help=help, no_args_is_help=True)
    for name, target in commands.items():
        function = _stub(target) if isinstance(target, str) else target
        made.command(name, short_help=_first_paragraph(function))(function)
    for name, group in (groups or {}).items():
        made.add_typer(group, name=name)
    return made


def _typer(**options: Any) -> typer.Typer:
    boxes = "rich" if sys.stdout.isatty() else None  # boxes are for terminals
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=boxes, **options)  # type: ignore[arg-type]


def _first_paragraph(function: Callable[..., None]) -> str:
    """What the list of commands says of one, whole: Typer would cut it after a line."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def _stub(target: str) -> Callable[..., None]:
    """Stands for a command in the list of them all, with its docstring."""
    module, _, function = target.partition(":")
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))

    def stub() -> None: ...

    stub.__doc__ = next(ast.get_docstring(n) for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
    stub.target = target  # type: ignore[attr-defined]
    return stub


class _Late(TyperGroup):
    """Puts the command in place of its stub once it is asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        target = getattr(getattr(command, "callback", None), "target", None)
        if name is not None and target is not None:
            module, _, function = target.partition(":")
            alone = _typer()
            alone.command(name)(getattr(import_module(f"{__package__}.{module}"), function))
            command = typer.main.get_command(alone)
        return name, command, rest
