"""Checks an answer case by case, from the smallest on, to the first that is wrong.

    cases ─ lines of Python ─→ ask: the learner's code, wherever that runs ─ values ─→ the case judges them

Who judges never runs the learner's code, so nothing that it prints, patches or ends changes a verdict.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, NamedTuple

from core.trace.trace import Trace
from exercises import given
from exercises.answers import Answers, offer
from exercises.cases import Case
from exercises.masks import mask
from exercises.pools import blocks
from exercises.replies import Ask, Fault, Reply
from exercises.schedulers import continuous, static

EXERCISES: dict[str, Callable[[int], Sequence[Any]]] = {
    "static": static,
    "continuous": continuous,
    "mask": mask,
    "blocks": blocks,
}


class Result(NamedTuple):
    """right, of: cases answered rightly, up to the first that was not, and all there are. fault: what is wrong with that one, with the lines to see it by and
    what they gave, if they gave anything. trace: of a scheduler, the run in which it differs first, up to that step; the last run, whole, if it differs in none.
    """

    right: int
    of: int
    fault: Fault | None = None
    lines: Sequence[str] = ()
    got: str | None = None
    printed: str = ""
    trace: Trace | None = None

    @property
    def is_right(self) -> bool:
        return self.fault is None


def here(source: str | bytes, name: str) -> Ask:
    """Runs a file's code in this Python, which has to be one that it may harm: a sandbox. Nothing here stops a loop without end."""
    answers = Answers(source, name)
    offer(given)
    return lambda lines: Reply.of(json.loads(json.dumps(answers.to(lines))))


@cache
def cases_of(name: str, seed: int) -> Sequence[Case]:
    return EXERCISES[name](seed)


def checking(name: str, ask: Ask, seed: int = 0) -> Generator[int, None, Result]:
    """Yields, after every answer, the number of cases that were right so far. ask: answers a case's lines; after a reply with `ended` it is asked no more."""
    cases = cases_of(name, seed)
    for count, case in enumerate(cases):
        reply = ask(case.lines)
        if fault := _fault(case, reply):
            trace = None
            if not reply.ended:
                case, reply, fault = yield from _smallest(case, reply, fault, ask, count)
                trace = yield from _differs(cases, ask, count)
            at = fault.at
            got = repr(reply.values[at]) if at < len(reply.values) else None
            printed = "".join(reply.printed[: at + 1])
            if fault.says in NO_CASE:
                return Result(count, len(cases), fault, printed=printed)
            return Result(count, len(cases), fault, case.lines[: at + 1], got, printed, trace)
        yield count + 1
    last = next((case.where.trace for case in reversed(cases) if case.where), None)
    return Result(len(cases), len(cases), trace=last)


NOT_WRITTEN = "Not written yet: line {line}."
UNREADABLE = "The file cannot be read: {why}"
UNREADABLE_LINE = "The file cannot be read, line {line}: {why}"
LACKS = "There is no {name} in the file."
NO_CASE = (NOT_WRITTEN, LACKS, UNREADABLE, UNREADABLE_LINE)  # of the file, whatever the case


def _fault(case: Case, reply: Reply) -> Fault | None:
    """What is wrong with a reply."""
    at = len(reply.values)
    if reply.ended:
        return dataclasses.replace(reply.ended, at=case.asked)
    if found := case.judge(reply.values):
        return found
    if (raised := reply.raised) is None:
        return (
            None if at >= len(case.lines) else Fault("It answered a part of what it was asked.", at)
        )
    holes = {"why": f"{raised.type}: {raised.why}" if raised.why else raised.type}
    if raised.line is not None:
        holes["line"] = str(raised.line)
    if raised.is_reading:
        return Fault(
            UNREADABLE if raised.line is None else UNREADABLE_LINE,
            at,
            line=raised.line,
            holes=holes,
        )
    if raised.type == "NotImplementedError" and raised.line is not None:
        return Fault(NOT_WRITTEN, at, line=raised.line, holes=holes)
    if raised.line is None and raised.missing:
        says = LACKS if raised.type == "NameError" else "What it made has no {name}."
        return Fault(says, at, holes={"name": raised.missing})
    says = "It raised {why}" if raised.line is None else "Line {line} raised {why}"
    return Fault(says, at, case.due(at), raised.line, holes)


def _smallest(
    case: Case, reply: Reply, fault: Fault, ask: Ask, count: int
) -> Generator[int, None, tuple[Case, Reply, Fault]]:
    """A case with the same fault from which nothing can be left out."""
    for smaller in case.smaller():
        found = ask(smaller.lines)
        yield count
        if found.ended:
            break
        other = _fault(smaller, found)
        if other is not None and other.says == fault.says:
            return (yield from _smallest(smaller, found, other, ask, count))
    return case, reply, fault


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
        if found := _fault(case, reply):
            upto = dataclasses.replace(last, events=last.events[: number + 1], complete=False)
            note = f"Step {last.events[number].step} is where the exercise differs: {found}"
            upto.header = dataclasses.replace(upto.header, notes=(note,))
            return upto
    return last
