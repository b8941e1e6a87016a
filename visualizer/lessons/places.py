"""Places in recorded runs: a run's name and a rule that finds a step in it, so that a run recorded anew still shows what was meant.

Knows traces alone; composes no words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from core.config import EngineConfig
from core.errors import InflightError
from core.trace.events import Segment, StepEvent
from core.trace.mask import Mask
from core.trace.phrases import letters
from core.trace.run_state import Frame
from core.trace.trace import Trace

Rule = Callable[[Trace], int]


class Place(NamedTuple):
    """A step of a recorded run, by the run's name and the rule that finds the step."""

    run: str
    rule: Rule


@dataclass(frozen=True)
class At:
    """A step of a trace, and what facts are computed from."""

    trace: Trace
    step: int

    @cached_property
    def event(self) -> StepEvent:
        return self.trace.event(self.step)

    @cached_property
    def frame(self) -> Frame:
        return next(found for found in self.trace.frames() if found.step == self.step)

    @cached_property
    def mask(self) -> Mask:
        """Who may look at whom in the step's first pass."""
        return self.trace.mask(self.step)

    @cached_property
    def config(self) -> EngineConfig:
        return self.trace.config

    @cached_property
    def letters(self) -> dict[str, str]:
        return letters(self.trace)

    def request(self, letter: str) -> str:
        """A request by its letter; raises InflightError if there is none."""
        for request, its in self.letters.items():
            if its == letter:
                return request
        raise InflightError(f"This run has no request {letter}.")

    def of(self, phase: str) -> list[Segment]:
        """The step's segments of a phase, prefill or decode."""
        return [s for s in self.event.segments if s.phase == phase]


def first(test: Callable[[StepEvent], object], number: int = 0) -> Rule:
    """The step of the first event that passes the test, or of one that comes `number` such events later."""
    return lambda trace: _found(trace, (e.step for e in trace.events if test(e)), number)


def before(rule: Rule) -> Rule:
    """The step before another."""
    return lambda trace: _neighbour(trace, rule(trace), -1)


def after(rule: Rule) -> Rule:
    """The step after another."""
    return lambda trace: _neighbour(trace, rule(trace), 1)


def start(trace: Trace) -> int:
    return trace.events[0].step


def end(trace: Trace) -> int:
    return trace.events[-1].step


def admits(letter: str) -> Rule:
    """The step that first admits a request."""
    return lambda trace: _found(
        trace, (e.step for e in trace.events if any(letters(trace)[a.request] == letter for a in e.admitted)), 0
    )


def ends(letter: str) -> Rule:
    """The step with which a request finishes."""
    return lambda trace: _found(
        trace, (e.step for e in trace.events if any(letters(trace)[f.request] == letter for f in e.finished)), 0
    )


def last_chunk(letter: str) -> Rule:
    """The step that reads the last of a request's prompt."""

    def rule(trace: Trace) -> int:
        reads = [
            e.step for e in trace.events if any(letters(trace)[s.request] == letter and s.phase == "prefill" for s in e.segments)
        ]
        return _found(trace, iter(reads), len(reads) - 1)

    return rule


def mixes(event: StepEvent) -> bool:
    """Whether prompts and decodes are computed in one pass."""
    return any({s.phase for s in event.segments if s.pass_index == i} == {"prefill", "decode"} for i in range(len(event.passes)))


def chunks(event: StepEvent) -> bool:
    """Whether a prompt goes on that an earlier step began."""
    return any(s.phase == "prefill" and s.start for s in event.segments) and not event.kv.prefix_hits


def _found(trace: Trace, steps: Iterator[int], number: int) -> int:
    for count, step in enumerate(steps):
        if count == number:
            return step
    raise InflightError(f"The run {trace.header.workload} has no such step.")


def _neighbour(trace: Trace, step: int, by: int) -> int:
    steps = [e.step for e in trace.events]
    index = steps.index(step) + by
    if not 0 <= index < len(steps):
        raise InflightError(f"The run {trace.header.workload} has no step beside step {step}.")
    return steps[index]
