"""Runs a learner's code on cases that are judged elsewhere, so the code never sees a right answer.
A case is a list of lines of Python, which run one after the other in a fresh copy of the learner's
module; the value of each is returned as JSON.

`process.py` starts this file as a script in a process of its own; the sandbox of a browser tab
imports it. It needs the standard library alone.

    {"values": [of each line that ran], "raised": what the next line, or the module before the
    first, raised, or None, "printed": [what the code printed in each]}

A value is JSON where it can be, and otherwise {"tuple": […]}, {"dict": [[key, value], …]} or {"is":
its type, "repr": its text}.
"""

import ast
import contextlib
import importlib
import io
import json
import os
import reprlib
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

MODULE = "yours"  # the name of the learner's module
FILE = f"{MODULE}.py"  # and in tracebacks
GIVEN = ("RequestProgress", "Chunk")  # created once, since creating a dataclass takes a millisecond
MOST_VALUES = 100_000  # in one answer
MOST_PRINTED = 2_000  # characters
MEMORY = 2 << 30  # bytes of address space, where the system can limit it
OURS = ("inflight", "core", "visualizer")


def executed(code: CodeType, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The names of the learner's module, executed anew. known: names that it begins with."""
    module = ModuleType(MODULE)
    vars(module).update(known or {})
    sys.modules[MODULE] = module  # dataclasses looks names up there
    exec(code, vars(module))
    return vars(module)


def line_of(at: TracebackType | FrameType | None) -> int | None:
    """The innermost line of the learner's code in a traceback, or above a frame."""
    if isinstance(at, FrameType):
        while at is not None and at.f_code.co_filename != FILE:
            at = at.f_back
        return None if at is None else at.f_lineno
    found = None
    while at is not None:
        found = at.tb_lineno if at.tb_frame.f_code.co_filename == FILE else found
        at = at.tb_next
    return found


class StudentsAnswers:
    """source: of the learner's module."""

    def __init__(self, source: str | bytes) -> None:
        self.source = source
        self._given: dict[str, Any] = {}

    @cached_property
    def _code(self) -> CodeType:
        """The code without the classes that exist already."""
        tree = ast.parse(self.source, FILE)
        tree.body = [node for node in tree.body if getattr(node, "name", "") not in self._given]
        return compile(tree, FILE, "exec", dont_inherit=True)

    def _scope(self) -> dict[str, Any]:
        if self._given:
            return executed(self._code, self._given)
        scope = executed(self._code)
        self._given = {name: scope[name] for name in GIVEN if isinstance(scope.get(name), type)}
        if self._given:
            del self._code
        return scope

    def to(self, lines: Sequence[str]) -> dict[str, Any]:
        """Run the lines until one raises."""
        printed, values, said, scope, raised = Printed(), [], [], None, None
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                scope = self._scope()
                for line in lines:
                    values.append(_told(_run(line, scope)))
                    said.append(printed.taken())
            except KeyboardInterrupt:  # time is up
                raise
            except BaseException as error:
                raised = _raised(error) | {"is_reading": scope is None}
        return {"values": values, "raised": raised, "printed": [*said, printed.taken()]}


def _run(line: str, scope: dict[str, Any]) -> Any:
    try:
        code = compile(line, "<case>", "eval", dont_inherit=True)
    except SyntaxError:
        return exec(compile(line, "<case>", "exec", dont_inherit=True), scope)
    return eval(code, scope)


def _raised(error: BaseException) -> dict[str, Any]:
    """An exception's message, the learner's line, and a missing name if that was the cause."""
    line, why = line_of(error.__traceback__), ""
    with contextlib.suppress(BaseException):
        why = str(error.msg if isinstance(error, SyntaxError) else error)
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line = error.lineno
    missing = error.name if isinstance(error, (AttributeError, NameError)) else None
    return {
        "type": _name(error),
        "why": " ".join(why.split())[:300],
        "line": line,
        "missing": missing if isinstance(missing, str) else None,
    }


class Printed(io.TextIOBase):
    """Collects what code prints: the beginning, and "…" for the rest."""

    def __init__(self) -> None:
        self._text = ""

    def write(self, text: str) -> int:
        self._text += str(text)[: MOST_PRINTED + 1 - len(self._text)]
        return len(text)

    def taken(self) -> str:
        """What was printed since the last call."""
        text, self._text = self._text, ""
        return text if len(text) <= MOST_PRINTED else f"{text[:MOST_PRINTED]} …"


# -- values as JSON --------------------------------------------------------------------------------


def _told(value: Any) -> Any:
    left = [MOST_VALUES]
    try:
        told = _encoded(value, left)
        json.dumps(told)
        return told
    except OverflowError:
        what = f"{_name(value)} of more than {MOST_VALUES:,} values"
    except RecursionError:
        what = f"{_name(value)} that contains itself"
    except ValueError:
        what = f"{_name(value)} with thousands of digits"
    return {"is": what, "repr": what}


def _encoded(value: Any, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise OverflowError
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
        return {"dict": [[_encoded(part, left) for part in pair] for pair in dict.items(value)]}
    try:
        text = str(reprlib.repr(value) if len(repr(value)) > 300 else repr(value))
    except Exception:
        text = f"a {_name(value)}"
    return {"is": _name(value), "repr": text}


def _name(value: Any) -> str:
    return str(type.__getattribute__(type(value), "__name__"))[:100]


# -- in a process of its own -----------------------------------------------------------------------


def main() -> None:
    """Answer on the pipe that was stdout; prints of the learner's code never reach it. The first
    line gives the code and the settings from `process.py`.
    """
    asked, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    _hold_memory()

    def say(what: dict[str, Any]) -> None:
        out.write(json.dumps(what).encode() + b"\n")
        out.flush()

    say({"id": 0})
    who = json.loads(asked.readline())
    is_read, learner = threading.Event(), threading.get_ident()

    def watch() -> None:
        if is_read.wait(who["reading"]):
            time.sleep(who["seconds"])
        say({"overdue": line_of(sys._current_frames().get(learner))})
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    kind, source = StudentsAnswers, who["source"].encode("latin-1")
    if who["module"]:
        sys.path.insert(0, who["root"])
        kind = importlib.import_module(who["module"]).PolicyAnswers
    else:
        sys.meta_path.insert(0, _NothingOfOurs())
    answers = kind(source)
    for line in asked:  # the first line is no case: it executes the file and its imports
        case = json.loads(line)
        say({"id": case["id"], **answers.to(case["lines"])})
        is_read.set()


class _NothingOfOurs:
    """Refuses to import the engine, which has the right answers; code can undo that."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name.partition(".")[0] in OURS:
            raise ModuleNotFoundError(
                f"of Inflight nothing can be imported here, not {name}", name=name
            )


def _hold_memory() -> None:
    # Windows supports none of this, macOS only a part
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    main()
