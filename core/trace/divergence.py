"""The first step at which two runs of the same requests decide differently.

Decisions are compared in the order in which they are made: who is preempted, who is admitted and to
which lane, who computes how much, how the pass is laid out, which tokens are sampled, who finishes.
The reason why a request waits is reported, but a different reason alone is no divergence. Times are
never compared.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import InflightError
from core.trace.events import Ran, StepEvent
from core.trace.messages import english, listed
from core.trace.phrases import reason, setting


@dataclass(frozen=True)
class Knob:
    """A limit that differs between the two runs."""

    name: str
    before: Any
    after: Any

    def of(self, value: Any) -> str:
        """The limit at a value, in words."""
        return english(setting(self.name, value))


@dataclass(frozen=True)
class Divergence:
    """The first step that differs. aspect: the kind of decision. before, after: that decision in
    each run, as a text of `core.trace.messages`.

    steps: how long each run is. same_tokens: whether the two runs generated the same tokens.
    """

    step: int
    aspect: str
    request: str | None
    before: str
    after: str
    knobs: tuple[Knob, ...]
    steps: tuple[int, int]
    same_tokens: bool

    def sentence(self, name: Callable[[str], str] = str) -> str:
        """The fork in words; `name` turns a request id into the name to show."""
        which = ("in the first run", "in the second")
        if self.knobs:
            limits = ([k.of(k.before) for k in self.knobs], [k.of(k.after) for k in self.knobs])
            which = (f"with {listed(limits[0])}", f"with {listed(limits[1])}")
        who = f" {name(self.request)}" if self.request else ""
        return (
            f"Fork at step {self.step}: {which[0]}{who} {english(self.before)};"
            f" {which[1]}{who} {english(self.after)}."
        )

    __str__ = sentence

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the sentence in words."""
        return {
            **asdict(self),
            "knobs": [asdict(knob) for knob in self.knobs],
            "before": english(self.before),
            "after": english(self.after),
            "sentence": self.sentence(),
        }


def divergence(before: Ran, after: Ran) -> Divergence | None:
    """Where two runs diverge, or None. Raises InflightError for different requests."""
    if before.asked != after.asked:
        raise InflightError(
            "These two runs were asked for different requests, so nothing can be said about where"
            " they part."
        )
    found = _first_difference(before, after)
    if found is None:
        return None
    step, aspect, request, first, second = found
    if aspect == "admission":
        first, second = _unlimited(first, before, second), _unlimited(second, after, first)
    steps, is_same = (len(before.events), len(after.events)), before.outputs == after.outputs
    return Divergence(
        step=step,
        aspect=aspect,
        request=request,
        before=first,
        after=second,
        knobs=knobs(before, after),
        steps=steps,
        same_tokens=is_same,
    )


def knobs(before: Ran, after: Ran) -> tuple[Knob, ...]:
    """The limits that differ between two runs."""
    first, second = before.config.to_json(), after.config.to_json()
    return tuple(Knob(n, value, second[n]) for n, value in first.items() if value != second[n])


_Found = tuple[int, str, str | None, str, str]
# of a request in a step: pass, phase, start, length
_Segments = tuple[tuple[int, str, int, int], ...]


def _first_difference(before: Ran, after: Ran) -> _Found | None:
    first, second = ({e.step: e for e in t.events} for t in (before, after))
    for step in sorted(first.keys() | second.keys()):
        a, b = first.get(step), second.get(step)
        if a is None or b is None:
            return step, "work", None, _work(a, before, step), _work(b, after, step)
        difference = _difference(a, b)
        if difference:
            return (step, *difference)
    return None


def _difference(a: StepEvent, b: StepEvent) -> tuple[str, str | None, str, str] | None:
    """The aspect, the request and both decisions in words; None if they are the same."""
    for aspect, (facts, words) in _ASPECTS.items():
        first, second = facts(a), facts(b)
        for request in (*first, *second):
            one, other = first.get(request), second.get(request)
            if one != other:
                return aspect, request, words(a, request, one), words(b, request, other)
    return None


def _segments(event: StepEvent) -> dict[str | None, _Segments]:
    work: dict[str | None, _Segments] = {}
    for s in event.segments:
        work[s.request] = (*work.get(s.request, ()), (s.pass_index, s.phase, s.start, s.length))
    return work


def _work(event: StepEvent | None, run: Ran, step: int) -> str:
    if event is not None:
        return f"computes {sum(p.tokens for p in event.passes):,} [token|tokens]"
    is_over = not run.events or step > run.events[-1].step
    return "has nothing left to do" if is_over else "computes nothing"


def _preemption(event: StepEvent, request: str | None, lost: int | None) -> str:
    if lost is None:
        return "goes on"
    return f"is preempted and loses its cache of {lost:,} [token|tokens]"


_TAKES = "takes lane"


def _admission(event: StepEvent, request: str | None, lane: int | None) -> str:
    if lane is not None:
        return f"{_TAKES} {lane}"
    why = event.waiting.why
    return f"waits: {reason(why)}" if why is not None else "is not admitted"


def _unlimited(decided: str, trace: Ran, otherwise: str) -> str:
    """An admission in words; says so if the other run waits for a budget that this one lacks."""
    policy = trace.config.policy
    if policy.token_budget or not decided.startswith(_TAKES) or "budget" not in otherwise:
        return decided
    barrier = ", only the barrier between waves" if policy.admission == "barrier" else ""
    return f"{decided}: this policy has no token budget{barrier}"


def _computes(event: StepEvent, request: str | None, work: _Segments | None) -> str:
    if not work:
        stalled = next((s.why for s in event.stalled if s.request == request), None)
        return f"computes nothing: {reason(stalled)}" if stalled else "computes nothing"
    what = f"computes {sum(length for *_, length in work):,} [token|tokens]"
    passes = len(event.passes)
    return what if passes < 2 else f"{what} in pass {work[0][0] + 1} of {passes}"


def _layout(event: StepEvent) -> str:
    tokens, padding = sum(p.tokens for p in event.passes), sum(p.padding for p in event.passes)
    passes = "one pass" if len(event.passes) == 1 else f"{len(event.passes)} passes"
    pads = f" and {padding:,} [pad|pads]" if padding else ", no padding"
    return f"{passes} of {tokens:,} [token|tokens]{pads}"


_Facts = Callable[[StepEvent], dict[str | None, Any]]
_ASPECTS: dict[str, tuple[_Facts, Callable[[StepEvent, str | None, Any], str]]] = {
    "preemption": (lambda e: {p.request: p.tokens_lost for p in e.preempted}, _preemption),
    "admission": (lambda e: {a.request: a.lane for a in e.admitted}, _admission),
    "work": (_segments, _computes),
    "layout": (lambda e: {None: _layout(e)}, lambda event, request, layout: layout),
    "token": (
        lambda e: {s.request: s.token_id for s in e.sampled},
        lambda event, request, token: (
            "writes nothing" if token is None else f"writes token {token}"
        ),
    ),
    "finish": (
        lambda e: {f.request: f.finish_reason for f in e.finished},
        lambda event, request, why: "goes on" if why is None else "finishes",
    ),
}
"""For each aspect of a step, in the order of decisions: the facts by request, and a function that
puts one of them into words.
"""
