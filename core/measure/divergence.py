"""Fork here: the first step at which two runs of the same requests decide differently, and why. Reads traces; times never count.

What is compared of a step, in the order in which it is decided: who is preempted, who is admitted and to which lane, who computes how
much, how the pass is laid out, which tokens come out, who finishes. Why somebody waits is reported, but waiting for another reason is no fork.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import InflightError
from core.trace.events import StepEvent
from core.trace.messages import english
from core.trace.phrases import reason, setting
from core.trace.trace import Trace


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
    """The first step that differs. aspect: what of it; before and after: that decision in each run, as a text of `core.trace.messages`.

    steps: how long each run is. same_tokens: whether the two runs wrote the same in the end.
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
        """Fork here, in words; `name` turns a request id into what is shown for it."""
        with_before = f"With {_listed([k.of(k.before) for k in self.knobs])} " if self.knobs else "In the first run "
        with_after = f"with {_listed([k.of(k.after) for k in self.knobs])} " if self.knobs else "in the second "
        who = f"{name(self.request)} " if self.request else ""
        before, after = english(self.before), english(self.after)
        return f"Fork at step {self.step}: {with_before[0].lower() + with_before[1:]}{who}{before}; {with_after}{who}{after}."

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["knobs"] = [{"name": k.name, "before": k.before, "after": k.after} for k in self.knobs]
        return {**data, "before": english(self.before), "after": english(self.after), "sentence": self.sentence()}


def divergence(before: Trace, after: Trace) -> Divergence | None:
    """Where two runs part, or None where every step decides the same; raises InflightError for runs of different requests."""
    if before.asked != after.asked:
        raise InflightError("These two runs were asked for different requests, so nothing can be said about where they part.")
    found = _first_difference(before, after)
    if found is None:
        return None
    step, aspect, request, first, second = found
    steps = (len(before.events), len(after.events))
    return Divergence(step, aspect, request, first, second, knobs(before, after), steps, before.outputs == after.outputs)


def knobs(before: Trace, after: Trace) -> tuple[Knob, ...]:
    """The limits that differ between two runs."""
    first, second = (trace.config.to_json() for trace in (before, after))
    return tuple(Knob(name, first[name], second[name]) for name in first if first[name] != second[name])


_Found = tuple[int, str, str | None, str, str]


def _first_difference(before: Trace, after: Trace) -> _Found | None:
    first, second = ({e.step: e for e in t.events} for t in (before, after))
    for step in sorted(first.keys() | second.keys()):
        a, b = first.get(step), second.get(step)
        if a is None or b is None:
            ended = [t.events[-1].step if t.events else -1 for t in (before, after)]
            words = ["has nothing left to do" if step > end else "computes nothing" for end in ended]
            done = [_work(e) if e is not None else words[i] for i, e in enumerate((a, b))]
            return step, "work", None, done[0], done[1]
        difference = _difference(a, b)
        if difference:
            return (step, *difference)
    return None


def _difference(a: StepEvent, b: StepEvent) -> tuple[str, str | None, str, str] | None:
    """aspect, request and both decisions in words; None where the two steps decide the same."""
    lost = _changed({p.request: p.tokens_lost for p in a.preempted}, {p.request: p.tokens_lost for p in b.preempted})
    if lost:
        return "preemption", lost, _preemption(a, lost), _preemption(b, lost)
    lanes = _changed({x.request: x.lane for x in a.admitted}, {x.request: x.lane for x in b.admitted})
    if lanes:
        return "admission", lanes, _admission(a, lanes), _admission(b, lanes)
    work = _changed(_segments(a), _segments(b))
    if work:
        return "work", work, _computes(a, work), _computes(b, work)
    if _layout(a) != _layout(b):
        return "layout", None, _layout(a), _layout(b)
    drawn = _changed({s.request: s.token_id for s in a.sampled}, {s.request: s.token_id for s in b.sampled})
    if drawn:
        return "token", drawn, _token(a, drawn), _token(b, drawn)
    ends = _changed(*({f.request: f.finish_reason for f in event.finished} for event in (a, b)))
    if ends:
        return "finish", ends, _ends(a, ends), _ends(b, ends)
    return None


def _ends(event: StepEvent, request: str) -> str:
    return "finishes" if request in {f.request for f in event.finished} else "goes on"


def _changed(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """The first request whose value differs or that only one of them has."""
    return next((request for request in [*a, *(r for r in b if r not in a)] if a.get(request) != b.get(request)), None)


def _segments(event: StepEvent) -> dict[str, tuple[Any, ...]]:
    work: dict[str, tuple[Any, ...]] = {}
    for s in event.segments:
        work[s.request] = (*work.get(s.request, ()), (s.pass_index, s.phase, s.start, s.length))
    return work


def _work(event: StepEvent) -> str:
    tokens = sum(p.tokens for p in event.passes)
    return f"computes {tokens:,} [token|tokens]"


def _preemption(event: StepEvent, request: str) -> str:
    lost = next((p.tokens_lost for p in event.preempted if p.request == request), None)
    return "goes on" if lost is None else f"is preempted and loses its cache of {lost:,} [token|tokens]"


def _admission(event: StepEvent, request: str) -> str:
    lane = next((a.lane for a in event.admitted if a.request == request), None)
    if lane is not None:
        return f"takes lane {lane}"
    why = event.waiting.why
    return f"waits: {reason(why)}" if why is not None else "is not admitted"


def _computes(event: StepEvent, request: str) -> str:
    mine = [s for s in event.segments if s.request == request]
    if not mine:
        stalled = next((s.why for s in event.stalled if s.request == request), None)
        return f"computes nothing: {reason(stalled)}" if stalled else "computes nothing"
    length = sum(s.length for s in mine)
    what = f"computes {length:,} [token|tokens]"
    return what if len(event.passes) < 2 else f"{what} in pass {mine[0].pass_index + 1} of {len(event.passes)}"


def _layout(event: StepEvent) -> str:
    """The passes in words."""
    tokens, padding = sum(p.tokens for p in event.passes), sum(p.padding for p in event.passes)
    passes = "one pass" if len(event.passes) == 1 else f"{len(event.passes)} passes"
    pads = f" and {padding:,} [pad|pads]" if padding else ", no padding"
    return f"{passes} of {tokens:,} [token|tokens]{pads}"


def _token(event: StepEvent, request: str) -> str:
    token = next((s.token_id for s in event.sampled if s.request == request), None)
    return "writes nothing" if token is None else f"writes token {token}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
