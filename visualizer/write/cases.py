"""Checks functions and classes case by case, from the smallest on, to the first that is wrong.

    cases ─ lines of Python ─→ ask: the learner's code, wherever that runs ─ values ─→ the case
    judges them

The judging process never runs the learner's code, so nothing that the code prints, patches or ends
can change a verdict.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

from core.config import ASSETS
from core.trace.trace import Trace
from visualizer.write.answers import StudentsAnswers
from visualizer.write.code import Fault, told

CHANGED = "It changed what it was given: the lists belong to the caller and must stay as they are."
NOTHING = "It returned `None`: is a `return` missing?"
AGAIN = "Asked the same once more, it answers differently."
NOT_WRITTEN = "Not written yet: line {line_number}."
UNREADABLE = "The file cannot be read: {why}"
UNREADABLE_LINE = "The file cannot be read, line {line_number}: {why}"
LACKS = "There is no {name} in the file."
LACKS_PART = "What it made has no {name}."
RAISED = "It raised {why}"
RAISED_LINE = "Line {line_number} raised {why}"
PART = "It answered a part of what it was asked."
NO_CASE = (NOT_WRITTEN, LACKS, UNREADABLE, UNREADABLE_LINE)  # faults of the file, whatever the case


@cache
def sentences() -> dict[str, str]:
    """The messages for wrong answers, by name."""
    return tomllib.loads((ASSETS / "write" / "wrong.toml").read_text(encoding="utf-8"))


def wrong(name: str, /, **holes: object) -> Fault:
    """The message of that name in `assets/write/wrong.toml`, as a fault."""
    return Fault(sentences()[name], **holes)


# -- replies ---------------------------------------------------------------------------------------


class Odd(NamedTuple):
    """A value other than a number, text, True, False, None, or a list, tuple or dict of these."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


def typed(value: object) -> str:
    """The name of a value's type."""
    return value.type if isinstance(value, Odd) else type(value).__name__


def named(value: object) -> str:
    """A value for a sentence: None, True, 3; for any other value its type."""
    return repr(value) if value is None or isinstance(value, (bool, int)) else typed(value)


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Raised(NamedTuple):
    """An exception. line: in the learner's file, None if it did not pass through that. missing: the
    name that is undefined, if that was the cause. is_reading: whether the file was being executed.
    """

    type: str
    why: str
    line: int | None
    missing: str | None
    is_reading: bool

    def fault(self) -> Fault:
        why = f"{self.type}: {self.why}" if self.why else self.type
        if self.is_reading:
            return Fault(UNREADABLE if self.line is None else UNREADABLE_LINE, self.line, why=why)
        if self.line is None and self.missing:
            return Fault(LACKS if self.type == "NameError" else LACKS_PART, name=self.missing)
        if self.type == "NotImplementedError" and self.line is not None:
            return Fault(NOT_WRITTEN, self.line)
        return Fault(RAISED if self.line is None else RAISED_LINE, self.line, why=why)


class Reply(NamedTuple):
    """values: of each line that ran. printed: by each line, and by the next if that raised. ended:
    why this code can answer no more, if so.
    """

    values: Sequence[Any] = ()
    raised: Raised | None = None
    printed: Sequence[str] = ()
    ended: Fault | None = None

    @classmethod
    def of(cls, text: str | bytes) -> Reply:
        """A reply from JSON (`answers.py`); raises ValueError if it is not valid."""
        odd = partial(Odd, "float")
        try:
            told = json.loads(text, object_hook=_value, parse_float=odd, parse_constant=odd)
            raised = told["raised"] and Raised(**told["raised"])
            kinds = (str, str, int | None, str | None, bool)
            if raised and not all(map(isinstance, raised, kinds)):
                raise ValueError("an exception that is none")
            return cls(list(told["values"]), raised, list(map(str, told["printed"])))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None


def _value(told: dict[str, Any]) -> Any:
    match told:
        case {"tuple": [*items]}:
            return tuple(items)
        case {"dict": [*pairs]}:
            found = [(_key(key), value) for key, value in pairs]
            if len(dict(found)) == len(found):
                return dict(found)
            # texts of a kind of their own, which say that they are not the same
            shown = ", ".join(f"{key!r}: {value!r}" for key, value in found)
            return Odd("dict that has a key twice", f"{{{shown}}}")
        case {"is": str(name), "repr": str(text)}:
            return Odd(name, text)
    return told


def _key(key: Any) -> Any:
    """The key of a dict; a key that is not text cannot be a request's id."""
    return key if isinstance(key, (str, Odd)) else Odd(type(key).__name__, repr(key))


Ask = Callable[[Sequence[str]], Reply]


def here(source: str | bytes) -> Ask:
    """Runs a file's code in this Python, a sandbox, whose time limit is KeyboardInterrupt."""
    answers = StudentsAnswers(source)

    def ask(lines: Sequence[str]) -> Reply:
        try:
            return Reply.of(json.dumps(answers.to(lines)))
        except KeyboardInterrupt as error:
            return Reply(ended=told(error))

    return ask


# -- cases -----------------------------------------------------------------------------------------


class Where(NamedTuple):
    """The step of a run in which the engine decided a case. event: its index in the trace."""

    trace: Trace
    event: int


@dataclass(frozen=True)
class Case:
    """Lines of Python, which a learner can run as well. judge: finds what is wrong with the values
    of the first lines, all of them or fewer, and at which line. due: the right value of each line,
    as Python code, if there is only one. asked: the line that puts the question. where: None if the
    case is from no run. smaller: the same case with something left out.
    """

    lines: Sequence[str]
    due: Sequence[str | None]
    asked: int
    judge: Callable[[Sequence[Any]], tuple[int, Fault] | None]
    where: Where | None = None
    smaller: Callable[[], Iterable[Case]] = tuple


def called(
    given: Sequence[str],
    call: str,
    lists: dict[str, list[Any]],
    expected: Any,
    judge: Callable[[Any], Fault | None],
    where: Where | None = None,
) -> Case:
    """A case that calls one function twice with what `given` makes. lists: the arguments that must
    not be changed. judge: finds what is wrong with the result.
    """
    asked, due = len(given), repr(expected)
    kept = repr(tuple(lists.values())) if len(lists) > 1 else repr(*lists.values())

    def judged(values: Sequence[Any]) -> tuple[int, Fault] | None:
        found = values[asked:]
        if found and found[0] is None:
            return asked, Fault(NOTHING)
        if found and (fault := judge(found[0])):
            return asked, fault
        if len(found) > 1 and repr(found[1]) != kept:
            return asked + 1, Fault(CHANGED)
        return (asked + 2, Fault(AGAIN)) if len(found) > 2 and judge(found[2]) else None

    lines = (*given, call, ", ".join(lists), call)
    return Case(lines, (*[None] * asked, due, kept, due), asked, judged, where)


# -- the check -------------------------------------------------------------------------------------


class Result(NamedTuple):
    """right, of: the number of right answers before the first wrong one, and of all cases. fault:
    what is wrong with the first wrong answer, with the lines that show it, and, if known, the right
    value and the given one. trace: for a scheduler, the first run in which it differs, up to that
    step; the last run, if it differs in none.
    """

    right: int
    of: int
    fault: Fault | None = None
    lines: Sequence[str] = ()
    expected: str | None = None
    got: str | None = None
    printed: str = ""
    trace: Trace | None = None

    @property
    def is_right(self) -> bool:
        return self.fault is None


def checking(cases: Sequence[Case], ask: Ask) -> Generator[int, None, Result]:
    """Yields, after every answer, the number of right cases so far. ask: answers a case's lines;
    after a reply with `ended` it is not called again.
    """
    for count, case in enumerate(cases):
        reply = ask(case.lines)
        if found := _wrong(case, reply):
            trace = None
            if not reply.ended:
                case, reply, found = yield from _smallest(case, reply, found, ask, count)
                trace = yield from _differs(cases, ask, count)
            at, fault = found
            printed = "".join(reply.printed[: at + 1])
            if fault.says in NO_CASE:
                return Result(count, len(cases), fault, printed=printed)
            if trace is not None and not trace.complete:
                fault.step = trace.events[-1].step
            got = repr(reply.values[at]) if at < len(reply.values) else None
            due = fault.expected or case.due[at]
            lines = case.lines[: at + 1]
            return Result(
                right=count,
                of=len(cases),
                fault=fault,
                lines=lines,
                expected=due,
                got=got,
                printed=printed,
                trace=trace,
            )
        yield count + 1
    last = next((case.where.trace for case in reversed(cases) if case.where), None)
    return Result(len(cases), len(cases), trace=last)


def _wrong(case: Case, reply: Reply) -> tuple[int, Fault] | None:
    """What is wrong with a reply, and at which line, or None."""
    at = len(reply.values)
    if reply.ended:
        return case.asked, reply.ended
    if found := case.judge(reply.values):
        return found
    if reply.raised and at < len(case.lines):
        return at, reply.raised.fault()
    return (at, Fault(PART)) if at < len(case.lines) else None


_Found = tuple[Case, Reply, tuple[int, Fault]]


def _smallest(
    case: Case, reply: Reply, found: tuple[int, Fault], ask: Ask, count: int
) -> Generator[int, None, _Found]:
    """A case with the same fault from which nothing more can be left out."""
    for smaller in case.smaller():
        again = ask(smaller.lines)
        yield count
        if again.ended:
            break
        other = _wrong(smaller, again)
        if other is not None and other[1].says == found[1].says:
            return (yield from _smallest(smaller, again, other, ask, count))
    return case, reply, found


def _differs(cases: Sequence[Case], ask: Ask, count: int) -> Generator[int, None, Trace | None]:
    """The first run in which an answer differs from the engine's, up to that step."""
    last = None
    for case in cases:
        if case.where is None:
            continue
        last, number = case.where
        reply = ask(case.lines)
        yield count
        if reply.ended:
            return None
        if found := _wrong(case, reply):
            upto = dataclasses.replace(last, events=last.events[: number + 1], complete=False)
            note = f"Step {last.events[number].step} is where the exercise differs: {found[1]}"
            upto.header = dataclasses.replace(upto.header, notes=(note,))
            return upto
    return last
