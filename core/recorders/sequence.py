"""The steps of a recording in order, each converted to its event. After missing steps the run goes
on at the next snapshot of the engine's whole state, and nothing in between is guessed. Used both
for a recording that is read as a whole and for one that is followed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from core.errors import InflightError
from core.recorders.conversion import Conversion
from core.recorders.raw import MissingSteps, Raw
from core.trace.events import StepEvent

DAMAGE = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    InflightError,
)
"""The exceptions that converting a damaged step may raise."""


class Lost(NamedTuple):
    """No step can be shown from `first` until the next snapshot. error: what is wrong with that
    step, or None if the steps up to `last` are not on record.
    """

    first: int
    last: int
    error: Exception | None = None

    def in_words(self, name: str) -> str:
        """What is wrong in the recording of this name, without a full stop."""
        if self.error is not None:
            return f"Step {self.first} is damaged in {name}"
        if self.first == self.last:
            return f"Step {self.first} is missing in {name}"
        return f"Steps {self.first} to {self.last} are missing in {name}"


class Contradiction(NamedTuple):
    """A snapshot that does not agree with the steps before it."""

    sentence: str


class EventSequence:
    """Takes steps in order and returns their events, each one once the step after it is known,
    because an engine that schedules ahead may compute a row for a request that has just ended.

    missing: the steps that cannot be shown, while the state is not known.
    """

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.missing: MissingSteps | None = None
        self._ended: MissingSteps | None = None  # those that ended with the step taken last
        self._pending: Raw | None = None  # the latest step, which waits for the next one
        self._last = -1  # the number of the step that was taken last

    def take(self, step: Raw, snapshot: Raw | None) -> Iterator[StepEvent | Lost | Contradiction]:
        """Take the next step. snapshot: of the state before it, if there is one."""
        number, expected, before = step["step"], self._last + 1, self._pending
        later = frozenset[str]()
        if before and number == expected:
            with suppress(*DAMAGE):  # damage of this step is reported below
                later = still_there(before, step)
        yield from self.settle(later)
        self._last = number
        if self.missing is None and number != expected:
            self.missing = MissingSteps(expected)
            yield Lost(expected, number - 1)
        try:
            if self.missing is None:
                self._ended = None
                if snapshot and (odd := self.conversion.contradiction(snapshot, step)):
                    yield Contradiction(odd)
            elif not self._goes_on(self.missing, step, snapshot):
                return
        except DAMAGE as error:
            yield self._lose(step, error)
        else:
            self._pending = step

    def settle(self, later: frozenset[str] = frozenset()) -> Iterator[StepEvent | Lost]:
        """The event of the waiting step, if any. later: requests `still_there` after it."""
        if (step := self._pending) is None:
            return
        self._pending = None
        try:
            yield self.conversion.event(step, later)
        except DAMAGE as error:
            yield self._lose(step, error)

    def restart(self, conversion: Conversion, step: int, error: Exception) -> Lost:
        """Discard the latest event, which breaks the rules; wait for the next snapshot."""
        self.conversion = conversion
        return self._lose({"step": step}, error)

    def _goes_on(self, missing: MissingSteps, step: Raw, snapshot: Raw | None) -> bool:
        """Resume here if a snapshot has the state before this step; returns whether."""
        missing.reach(step)
        state = snapshot and missing.with_prompts(snapshot, self.conversion.prompts)
        if not state:
            missing.pass_over(step)
            return False
        self.conversion.resume(step, state, missing)
        self.missing, self._ended = None, missing
        return True

    def _lose(self, step: Raw, error: Exception) -> Lost:
        self.missing = self.missing or self._ended or MissingSteps(step["step"])
        self._ended = None
        self.missing.is_damaged(step)
        return Lost(step["step"], step["step"], error)


def still_there(step: Raw, following: Raw) -> frozenset[str]:
    """Requests that may keep their lanes and blocks through the following step although they have
    ended: those with a row in it and, if it was scheduled before this output, those that end in it.
    """
    is_ahead = following["t_start"] < step.get("t_output", step["t_start"])
    ending = {request for request, _ in step.get("finished", ())} if is_ahead else set[str]()
    return frozenset({s["request"] for s in following["segments"]} | ending)
