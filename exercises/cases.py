"""What is asked of an answer: lines of Python that a learner can run as well, and who judges the values that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from core.trace.trace import Trace
from exercises.replies import Fault, fault

CHANGED = "It changed what it was given: the lists belong to the caller and must stay as they are."
NOTHING = "It returned `None`: is a `return` missing?"
AGAIN = "It answers otherwise when asked once more for the same."


class Where(NamedTuple):
    """The step of a run in which the engine decided a case. event: which it is in the trace."""

    trace: Trace
    event: int


class Case(Protocol):
    """where: None for a case that no run came to. asked: the index of the line that puts the question."""

    @property
    def lines(self) -> Sequence[str]: ...
    @property
    def where(self) -> Where | None: ...
    @property
    def asked(self) -> int: ...

    def judge(self, values: Sequence[Any]) -> Fault | None:
        """What is wrong with the values of the first lines, be they all or not."""
        ...

    def due(self, at: int) -> str | None:
        """What a line must give, as Python writes it, where that is one value."""
        ...

    def smaller(self) -> Iterator[Case]:
        """The same case with something left out."""
        ...


@dataclass(frozen=True)
class Call:
    """One function, called with what `given` makes: lists, which must be the same afterwards. expected: what it must return. wrong: what is wrong with
    what it returned, told in words of the task.
    """

    given: tuple[str, ...]
    call: str
    lists: tuple[str, list[Any]]  # the names of those given, and what they are
    expected: Any
    wrong: Callable[[Any], Fault | None]
    where: Where | None = None

    @property
    def lines(self) -> Sequence[str]:
        return (*self.given, self.call, self.lists[0], self.call)

    @property
    def asked(self) -> int:
        return len(self.given)

    def judge(self, values: Sequence[Any]) -> Fault | None:
        at = self.asked
        if len(values) <= at:
            return None
        called, *after = values[at:]
        if called is None:
            return fault(NOTHING, at, self.expected)
        if found := self.wrong(called):
            return replace(found, at=at, expected=repr(self.expected))
        if after and repr(after[0]) != self.due(at + 1):
            return Fault(CHANGED, at + 1, self.due(at + 1))
        if len(after) > 1 and self.wrong(after[1]):
            return fault(AGAIN, at + 2, self.expected)
        return None

    def due(self, at: int) -> str | None:
        if at == self.asked + 1:
            return repr(tuple(self.lists[1]) if len(self.lists[1]) > 1 else self.lists[1][0])
        return repr(self.expected) if at >= self.asked else None

    def smaller(self) -> Iterator[Case]:
        """None: the cases are asked from the smallest on."""
        return iter(())
