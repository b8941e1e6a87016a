"""An endless run for the browser: deltas as in a recorded run, and beginnings for new viewers.

A beginning is {"records", "header", "begin": {"step", "requests": […], "letters": {…}},
"texts": {"prompt", "said", "output"}}; a delta is {"events", "captions", "translations", "letters",
"texts", "hues", "asked", "ended"}.

"ended" summarises each finished request, unless it ran in steps that are not shown: {"waited_s",
"tokens", "steps", "others"}: the seconds until it was first computed, None if it never was, the
tokens that it wrote, the steps in which it held a lane, and how many other requests held one at the
same time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.serving.event_log import without_tokens
from core.trace.events import RECORDS, Resumed, StepEvent
from core.trace.header import Header
from core.workload.request import Message
from visualizer.charts.theme import Hues
from visualizer.documents.replay import Deltas, Texts

HIDDEN = "•"  # replaces every token's text


@dataclass
class Life:
    """A request as a new viewer needs to know it. Steps are numbers, times are seconds of the run.

    waits: [first step, last step or None, preempted], and once more the first step if the wait
    began in steps that are not shown. laneSpans: [lane, first step, last step or None]. computed:
    when its first pass began. is_unseen: that was in steps that are not shown. has_gap: it ran in
    such steps. token: when its first token came. steps: how many steps it held a lane. others: the
    requests that held one at the same time.
    """

    by: str
    max_new_tokens: int | None
    is_bot: bool = False
    letter: str = ""
    hue: int = -1
    arrived: float = 0.0
    waits: list[list[Any]] = field(default_factory=list)
    lane_spans: list[list[Any]] = field(default_factory=list)
    computed: float | None = None
    is_unseen: bool = False
    has_gap: bool = False
    token: float | None = None
    generated: int = 0
    reason: str | None = None  # set once it has finished, though it may still hold its lane
    prompt: list[str] = field(default_factory=list)
    said: list[str | None] | None = None
    output: list[str] = field(default_factory=list)
    steps: int = 0
    others: set[str] = field(default_factory=set)

    @property
    def is_gone(self) -> bool:
        return self.reason is not None and not self.holds_lane

    @property
    def is_waiting(self) -> bool:
        return bool(self.waits) and self.waits[-1][1] is None

    @property
    def holds_lane(self) -> bool:
        return bool(self.lane_spans) and self.lane_spans[-1][2] is None

    @property
    def asked(self) -> dict[str, Any]:
        return {"by": self.by, "maxNew": self.max_new_tokens, "isBot": self.is_bot}

    @property
    def ended(self) -> dict[str, Any]:
        waited = None if self.computed is None else round(self.computed - self.arrived, 6)
        return {
            "waited_s": waited,
            "tokens": self.generated,
            "steps": self.steps,
            "others": len(self.others),
        }


_AS_THEY_ARE = ("letter", "hue", "arrived", "computed", "token", "generated", "reason")


class LiveRun:
    """One run, fed in order. header: of the trace. `meet` announces each request before it arrives.
    number: of the run. letters: see `Captioner`.
    """

    def __init__(
        self, header: Header, tokenizer: Any, number: int = 0, letters: Iterator[int] | None = None
    ) -> None:
        self._number, self._num_groups = number, len(header.groups)
        self._header = replace(header, source="live").to_json()
        del self._header["workload"]
        self._deltas = Deltas(header, tokenizer, letters)
        self._hues = Hues()
        self._lives: dict[str, Life] = {}
        self._step = 0  # the next one

    def meet(
        self,
        request: str,
        prompt: Sequence[int],
        max_new_tokens: int | None,
        by: str = "",
        is_bot: bool = False,
        messages: Sequence[Message] | None = None,
    ) -> None:
        """Announce a request that will arrive. prompt: its token ids; by: the nickname of the
        client or of the bot; messages: those that the prompt was made from.
        """
        self._deltas.meet(request, prompt, max_new_tokens, messages)
        self._lives[request] = Life(by, max_new_tokens, is_bot)

    def delta(
        self, events: Sequence[StepEvent], texts: Sequence[Texts | None] = ()
    ) -> dict[str, Any]:
        """The delta of these events. texts: see `Deltas.delta`."""
        delta = self._deltas.delta(events, texts)
        hues: dict[str, int] = {}
        ended: dict[str, dict[str, Any]] = {}
        for event in events:
            hues |= self._hues.deal(event)
            self._follow(event)
            ended |= {
                f.request: life.ended
                for f in event.finished
                if (life := self._lives[f.request]).steps and not life.has_gap
            }
        for request, letter in delta["letters"].items():
            life = self._lives[request]
            life.letter, life.prompt = letter, delta["texts"]["prompt"][request]
            life.said = delta["texts"]["said"].get(request)
        for request, pieces in delta["texts"]["output"].items():
            self._lives[request].output += pieces
        for request, hue in hues.items():
            self._lives[request].hue = hue
        asked = {request: self._lives[request].asked for request in delta["letters"]}
        self._lives = {request: life for request, life in self._lives.items() if not life.is_gone}
        return {**delta, "hues": hues, "asked": asked, "ended": ended}

    def beginning(self) -> dict[str, Any]:
        """A beginning: the current state, for a new viewer, without finished requests."""
        self._deltas.keep(self._lives.keys())
        state = self._deltas.state
        here = {
            request: self._lives[request] for request in state.arrived if request in self._lives
        }
        return {
            "records": RECORDS,
            "header": self._header,
            "begin": {
                "run": self._number,
                "step": self._step,
                "queue": list(state.waiting),
                "requests": [
                    {
                        "id": request,
                        "waits": [list(wait) for wait in life.waits],
                        "laneSpans": [list(span) for span in life.lane_spans],
                        "isUnseen": life.is_unseen,
                        "kvLen": state.computed.get(request, 0),
                        "tables": [
                            list(state.tables.get(request, {}).get(group, ()))
                            for group in range(self._num_groups)
                        ],
                        **{name: getattr(life, name) for name in _AS_THEY_ARE},
                    }
                    for request, life in here.items()
                ],
            },
            "letters": self._deltas.letters,
            "asked": {request: life.asked for request, life in here.items()},
            "texts": {
                "prompt": {request: life.prompt for request, life in here.items()},
                "said": {r: life.said for r, life in here.items() if life.said is not None},
                "output": {request: list(life.output) for request, life in here.items()},
            },
        }

    def _resume(self, step: int, resumed: Resumed) -> None:
        """Continue after steps that are not shown, whose times are unknown."""
        lives = self._lives
        for arrived in resumed.arrived:
            lives[arrived.request].arrived = arrived.t
        for finished in resumed.ended:
            lives[finished.request].reason = finished.finish_reason
        lanes = {carried.request: carried.lane for carried in resumed.running}
        still = {carried.request for carried in resumed.waiting if not carried.was_preempted}
        for request, life in lives.items():
            if life.is_waiting and request not in still:
                life.waits[-1][1] = step - 1
            if (
                life.lane_spans
                and life.lane_spans[-1][2] is None
                and life.lane_spans[-1][0] != lanes.get(request)
            ):
                life.lane_spans[-1][2] = step - 1
        for carried in resumed.carried:
            life = lives[carried.request]
            has_run = carried.lane is not None or carried.was_preempted
            life.is_unseen |= life.computed is None and has_run
            life.has_gap |= has_run
            life.generated += len(carried.tokens)
            if carried.lane is None:
                if not life.is_waiting:
                    life.waits.append([step, None, carried.was_preempted, step])
                continue
            if not life.waits:
                life.waits.append([step, step - 1, False])
            if not life.lane_spans or life.lane_spans[-1][2] is not None:
                life.lane_spans.append([carried.lane, step, None])

    def _follow(self, event: StepEvent) -> None:
        step, lives = event.step, self._lives
        self._step = step + 1
        if event.resumed is not None:
            self._resume(step, event.resumed)
        for arrived in event.arrived:
            lives[arrived.request].arrived = arrived.t
            lives[arrived.request].waits.append([step, None, False])
        for finished in event.finished:
            lives[finished.request].reason = finished.finish_reason
        for left in event.released:
            if left.when == "before":
                lives[left.request].lane_spans[-1][2] = step - 1
        for preempted in event.preempted:
            lives[preempted.request].lane_spans[-1][2] = step - 1
            lives[preempted.request].waits.append([step, None, True])
        for admitted in event.admitted:
            lives[admitted.request].waits[-1][1] = step - 1
            lives[admitted.request].lane_spans.append([admitted.lane, step, None])
        for segment in event.segments:
            life = lives[segment.request]
            if life.computed is None and not life.is_unseen:
                life.computed = event.passes[segment.pass_index].t_start
        for sampled in event.sampled:
            life = lives[sampled.request]
            if not life.generated:
                life.token = event.passes[sampled.pass_index].t_end
            life.generated += 1
        self._meet_in_lanes(event)
        for left in event.released:
            if left.when == "after":
                lives[left.request].lane_spans[-1][2] = step

    def _meet_in_lanes(self, event: StepEvent) -> None:
        """Count a step for each request in a lane, and note which are in lanes together."""
        until_now = {finished.request for finished in event.finished}
        here = {
            r: life
            for r, life in self._lives.items()
            if life.holds_lane and (life.reason is None or r in until_now)
        }
        for life in here.values():
            life.steps += 1
        for new in here.keys() & {admitted.request for admitted in event.admitted}:
            for other in here.keys() - {new}:
                here[new].others.add(other)
                here[other].others.add(new)


def shown(message: dict[str, Any], texts: bool, nicknames: bool) -> dict[str, Any]:
    """A beginning or a delta, without texts or nicknames if these are hidden."""
    if not texts and "texts" in message:
        veiled = {
            side: {request: [HIDDEN] * len(pieces) for request, pieces in by_request.items()}
            for side, by_request in message["texts"].items()
        }
        events = [_without_tokens(event) for event in message.get("events", ())]
        message = {**message, "texts": veiled, **({"events": events} if events else {})}
    if not nicknames and "asked" in message:
        named = {
            request: {**asked, "by": asked["by"] if asked["isBot"] else ""}
            for request, asked in message["asked"].items()
        }
        message = {**message, "asked": named}
    return message


def _without_tokens(event: dict[str, Any]) -> dict[str, Any]:
    """An event without token ids, including those from steps that are not shown."""
    event = {**event, "sampled": without_tokens(event["sampled"])}
    if resumed := event.get("resumed"):
        hidden: Any = (None,)
        running, waiting = (
            tuple(c._replace(tokens=hidden * len(c.tokens)) for c in there)
            for there in (resumed.running, resumed.waiting)
        )
        event["resumed"] = resumed._replace(running=running, waiting=waiting)
    return event
