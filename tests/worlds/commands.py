"""Commands called in this process: exit codes, refusals, empty values, Ctrl-C at a given moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import typer

from core.cli import app, main


def command(name: str, app: typer.Typer = app) -> Any:
    """A command with its parameters."""
    group: Any = typer.main.get_command(app)
    with group.make_context(name, [], resilient_parsing=True) as context:
        return group.resolve_command(context, [name])[1]


def call(*args: str, app: typer.Typer = app) -> int:
    """Run a command; its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(list(args), app=app)
    return exit_.value.code or 0


def refusal(capsys, *args: str, app: typer.Typer = app) -> str:
    """The sentence with which a command is refused."""
    assert call(*args, app=app) == 2
    captured = capsys.readouterr()
    assert not captured.out and len(captured.err.splitlines()) == 1, captured.err
    return captured.err


def taken(param: Any, value: str) -> list[str]:
    return [param.opts[0], value] if param.param_type_name == "option" else [value]


def refuses_empty_values(capsys, command: Any, name: Sequence[str], app: typer.Typer = app) -> None:
    """An empty value is what a script gives whose variable is not set; without this `--simulate ""`
    ran the real model.
    """
    params = [p for p in command.params if not getattr(p, "is_flag", False)]
    for param in params:
        others = [text for p in params if p.required and p is not param for text in taken(p, "x")]
        for value in ["", " ", *(["nan", "inf"] if isinstance(param.default, float) else [])]:
            code = call(*name, *others, *taken(param, value), app=app)
            said = capsys.readouterr().err
            assert code == 2 and any(
                w in said for w in ("an empty value", "finite", "Input should be", "not one of")
            ), (param.name, value, said)


def interrupting(monkeypatch, module: Any, name: str, at: int) -> None:
    """Ctrl-C in the call of that number."""
    calls, real = 0, getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, call)
