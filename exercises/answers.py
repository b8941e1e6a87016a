"""Runs a learner's code on cases that others judge: it knows no right answer. A case is lines of Python, run one after the other in a fresh copy of the
learner's module; the value of each is told as JSON.

As a script it is the process of its own that `process.py` starts; the sandbox of a visitor's tab uses it in place. The standard library alone.

    {"values": [of each line that ran], "raised": what the next line, or the module before the first, raised, or None, "printed": [what the code printed in each]}

A value is JSON where it can be, and otherwise {"tuple": […]}, {"dict": [[key, value], …]} or {"is": its type, "repr": its text}.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import reprlib
import sys
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from importlib import util
from numbers import Integral
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

MODULE = "yours"  # the learner's module, for itself
MOST_VALUES = 100_000  # in one answer
MOST_PRINTED = 2_000  # characters
MEMORY = 2 << 30  # bytes of address space, where a process can be held to that
OURS = ("exercises", "inflight", "core", "visualizer")


class Answers:
    """source: of the learner's module. name: its file's, by which its lines are known."""

    def __init__(self, source: str | bytes, name: str) -> None:
        self.name = name
        self._source = source

    def to(self, lines: Sequence[str]) -> dict[str, Any]:
        """Run the lines, up to one that raises."""
        printed, values, said, scope = _Printed(), [], [], None
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                scope = self._scope()
                for line in lines:
                    values.append(_told(_run(line, scope)))
                    said.append(printed.taken())
                raised = None
            except KeyboardInterrupt:  # its time is over
                raise
            except BaseException as error:
                raised = self.raised(error, is_reading=scope is None)
        return {"values": values, "raised": raised, "printed": [*said, printed.taken()]}

    def raised(self, error: BaseException, is_reading: bool) -> dict[str, Any]:
        """What an exception of the learner's code says, and the line where it was. is_reading: no case has begun."""
        line = self.line_of(error.__traceback__)
        if isinstance(error, SyntaxError) and error.filename == self.name:
            line = error.lineno
        missing = (
            getattr(error, "name", None) if isinstance(error, (AttributeError, NameError)) else None
        )
        try:
            why = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())[
                :300
            ]
        except BaseException:
            why = ""
        missing = missing if isinstance(missing, str) else None
        return {
            "type": _name(error),
            "why": why,
            "line": line,
            "missing": missing,
            "is_reading": is_reading,
        }

    def line_of(self, at: TracebackType | FrameType | None) -> int | None:
        """The innermost line of the learner's code in a traceback, or above a frame."""
        found = None
        if isinstance(at, FrameType):
            while at is not None and at.f_code.co_filename != self.name:
                at = at.f_back
            return at.f_lineno if at is not None else None
        while at is not None:
            if at.tb_frame.f_code.co_filename == self.name:
                found = at.tb_lineno
            at = at.tb_next
        return found

    @cached_property
    def _code(self) -> CodeType:
        return compile(self._source, self.name, "exec", dont_inherit=True)

    def _scope(self) -> dict[str, Any]:
        """The names of the learner's module, executed anew: no case depends on those before."""
        module = ModuleType(MODULE)
        sys.modules[MODULE] = module  # where dataclasses looks its names up
        exec(self._code, vars(module))
        return vars(sys.modules["exercises.given"]) | vars(module)


def _run(line: str, scope: dict[str, Any]) -> Any:
    try:
        code = compile(line, "<case>", "eval", dont_inherit=True)
    except SyntaxError:
        return exec(compile(line, "<case>", "exec", dont_inherit=True), scope)
    return eval(code, scope)


class _Printed(io.TextIOBase):
    def __init__(self) -> None:
        self._text = ""

    def write(self, text: str) -> int:
        self._text += str(text)[: MOST_PRINTED - len(self._text)]
        return len(text)

    def taken(self) -> str:
        """What was written since the last time."""
        text, self._text = self._text, ""
        return text


# -- values as JSON ------------------------------------------------------------------------------------------------------


def _told(value: Any) -> Any:
    left = [MOST_VALUES]
    try:
        told = _encoded(value, left)
        json.dumps(told)
        return told
    except _TooLong:
        what = f"{_name(value)} of more than {MOST_VALUES:,} values"
    except RecursionError:
        what = f"{_name(value)} that contains itself"
    except ValueError:
        what = f"{_name(value)} with thousands of digits"
    return {"is": what, "repr": what}


class _TooLong(Exception):
    pass


def _encoded(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise _TooLong
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return _encoded(value.item(), left)
    if isinstance(value, str):
        return str.__str__(value)[:MOST_PRINTED]
    if isinstance(value, list):
        return [_encoded(item, left) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, left) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {
            "dict": [[_encoded(key, left), _encoded(item, left)] for key, item in dict.items(value)]
        }
    try:
        text = str(reprlib.repr(value) if len(repr(value)) > 300 else repr(value))
    except Exception:
        text = f"a {_name(value)}"
    return {"is": _name(value), "repr": text}


def _name(value: Any) -> str:
    return str(type.__getattribute__(type(value), "__name__"))[:100]


# -- in a process of its own ---------------------------------------------------------------------------------------------


def main() -> None:
    """Answer on the pipe that stdout was; what the learner's code prints never reaches it. The first line that comes says whose code it is."""
    asked, told = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    _hold_memory()
    offer(_given_beside())
    sys.meta_path.insert(0, _OnlyGiven())

    def say(what: dict[str, Any]) -> None:
        rest = json.dumps(what).encode() + b"\n"
        while rest:
            rest = rest[os.write(told, rest) :]

    say({"id": 0})
    who = json.loads(asked.readline())
    answers, main_thread = (
        Answers(who["source"].encode("latin-1"), who["name"]),
        threading.get_ident(),
    )

    is_read = threading.Event()

    def watch() -> None:
        if is_read.wait(who["reading"]):
            time.sleep(who["seconds"])
        say({"overdue": answers.line_of(sys._current_frames().get(main_thread))})
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    for line in asked:  # the first is no case: the file is read, with what it imports
        case = json.loads(line)
        say({"id": case["id"], **answers.to(case["lines"])})
        is_read.set()


def offer(given: ModuleType) -> None:
    """Let a learner's file import `exercises.given`, by its name in a clone and by that in a wheel."""
    for name in ("exercises", "inflight", "inflight.exercises"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules.setdefault(name, package)
    for name in ("exercises.given", "inflight.exercises.given"):
        sys.modules.setdefault(name, given)


def _given_beside() -> ModuleType:
    spec = util.spec_from_file_location(
        "exercises.given", os.path.join(os.path.dirname(os.path.abspath(__file__)), "given.py")
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules["exercises.given"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _OnlyGiven:
    """Refuses to import the engine and the solutions."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name.partition(".")[0] in OURS:
            raise ModuleNotFoundError(
                f"of Inflight only exercises.given can be imported here, not {name}", name=name
            )


def _hold_memory() -> None:
    with contextlib.suppress(
        ImportError, OSError, ValueError
    ):  # Windows has none of this, macOS part of it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    main()
