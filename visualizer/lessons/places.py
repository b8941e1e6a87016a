"""Places in recorded runs: the name of a run and a rule that finds a step, so that lessons survive
a new recording of the run.

    start, end              the run's first step and its last
    mixes, preempts, …      the first step with this property; mixes(3): the third
    admits(B), ends(B), …   the first step with this property of request B
    after ends(B)           the step after another; before: the one before it
"""

from collections.abc import Callable
from typing import NamedTuple, Self

from core.errors import InflightError
from core.trace.events import StepEvent
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.lessons.facts import At, parts_at, recorded_run


class Place(NamedTuple):
    """A step of a recorded run, by the run's name and the rule that finds the step."""

    run: str
    rule: str

    @classmethod
    def of(cls, text: str) -> Self:
        """A place from its text, as in `brief-static ends(B)`."""
        run, _, rule = text.partition(" ")
        return cls(run, rule)

    def at(self, traces: Callable[[str], Trace]) -> At:
        """The place in the recorded run; raises InflightError if there is none."""
        trace = traces(self.run)
        return At(trace, self.step(trace))

    def step(self, trace: Trace) -> int:
        """The step that the rule finds in the run; raises InflightError if there is none."""
        *moves, name = self.rule.split()
        steps = [e.step for e in trace.events]
        try:
            index = steps.index(_found(trace, name)) + moves.count("after") - moves.count("before")
            return steps[index if index >= 0 else len(steps)]
        except LookupError:
            raise InflightError(
                f"The run {trace.header.workload} has no step {self.rule!r}."
            ) from None


def _found(trace: Trace, rule: str) -> int:
    name, _, given = rule.rstrip(")").partition("(")
    if name in _OF_RUN:
        return _OF_RUN[name](trace)
    if name in _OF_STEP:
        return [e.step for e in trace.events if _OF_STEP[name](e)][int(given or 1) - 1]
    which = -1 if name.startswith("last") else 0
    return [
        e.step for e in trace.events if given in {letters(trace)[r] for r in _OF_REQUEST[name](e)}
    ][which]


_OF_RUN: dict[str, Callable[[Trace], int]] = {
    "start": lambda trace: trace.events[0].step,
    "end": lambda trace: trace.events[-1].step,
    # where a token differs from each request's own run
    "parts": lambda trace: parts_at(recorded_run("greedy-alone-bf16"), trace),
}
_OF_STEP: dict[str, Callable[[StepEvent], object]] = {
    # in one pass
    "mixes": lambda e: any(_phases(e, i) == {"prefill", "decode"} for i in range(len(e.passes))),
    # continues a prompt
    "chunks": (
        lambda e: any(s.phase == "prefill" and s.start for s in e.segments) and not e.kv.prefix_hits
    ),
    "two_join": lambda e: len(e.admitted) > 1 and any(s.phase == "decode" for s in e.segments),
    "several_wait": lambda e: e.waiting.count > 1,
    "preempts": lambda e: e.preempted,
    "hits": lambda e: e.kv.prefix_hits,
    "short_of_lanes": lambda e: e.budget.binding == "lanes",
    "short_of_blocks": lambda e: e.budget.binding == "blocks",
    "short_of_budget": lambda e: e.budget.binding == "budget" and e.waiting.count,
}
_OF_REQUEST: dict[str, Callable[[StepEvent], list[str]]] = {
    "admits": lambda e: [a.request for a in e.admitted],
    "ends": lambda e: [f.request for f in e.finished],
    # the last step that reads its prompt
    "last_chunk": lambda e: [s.request for s in e.segments if s.phase == "prefill"],
}


def _phases(event: StepEvent, index: int) -> set[str]:
    return {s.phase for s in event.segments if s.pass_index == index}
