"""The rules that every recorded run obeys, checked event by event. Knows the events alone."""

from __future__ import annotations

from core.config import EngineConfig
from core.errors import InflightError, InvalidTrace
from core.events import Segment, StepEvent


class Checker:
    """Replays a trace in ids and counts; `fault(event)` says in a sentence what a step contradicts, or returns None."""

    def __init__(self, header: dict) -> None:
        try:
            self._config = EngineConfig.from_json(header["config"])
        except InflightError as error:
            raise InvalidTrace(str(error), 1) from None
        prompts = header["prompts"]
        if not all(isinstance(ids, list) and ids and all(type(i) is int for i in ids) for ids in prompts.values()):
            raise InvalidTrace("the prompts are not lists of token ids.", 1)
        self._prompts: dict[str, list[int]] = prompts
        self._num_tokens = {request: len(ids) for request, ids in prompts.items()}
        self._computed: dict[str, int] = {}  # running request -> positions in its cache
        self._lane: dict[str, int] = {}
        self._tables: dict[str, list[int]] = {}
        self._finished: set[str] = set()
        self._step, self._t = -1, 0.0

    def fault(self, event: StepEvent) -> str | None:
        """What is wrong with this step, given all steps before it."""
        for rule in (self._clock, self._admissions, self._blocks, self._passes, self._samples, self._ends):
            if fault := rule(event):
                return f"step {event.step}: {fault}."
        return None

    def fault_of_texts(self, prompt: dict, output: dict, outputs: dict[str, list[int]]) -> str | None:
        """Every token needs its piece of text."""
        for request, ids in self._prompts.items():
            for texts, tokens in ((prompt, ids), (output, outputs[request])):
                pieces = texts.get(request)
                if not isinstance(pieces, list) or len(pieces) != len(tokens) or not all(isinstance(p, str) for p in pieces):
                    return f"the texts of request {request!r} do not match its tokens."
        return None

    def _clock(self, event: StepEvent) -> str | None:
        if event.step <= self._step:
            return f"it follows step {self._step}"
        if not self._t <= event.t_start <= event.t_end:
            return "its times run backwards"
        self._step, self._t = event.step, event.t_end
        return None

    def _admissions(self, event: StepEvent) -> str | None:
        for request, lost, lane in event.preempted:
            if self._computed.pop(request, None) != lost or self._lane.pop(request, None) != lane:
                return f"request {request!r} was not running as the preemption says"
        hits = dict(event.kv.prefix_hits)
        for request, lane, _ in event.admitted:
            if request not in self._prompts or request in self._finished or request in self._computed:
                return f"request {request!r} cannot be admitted"
            if lane in self._lane.values():
                return f"lane {lane} is taken"
            if not 0 <= lane < self._config.num_lanes:
                return f"there is no lane {lane}"
            self._computed[request], self._lane[request] = hits.get(request, 0), lane
        return None

    def _blocks(self, event: StepEvent) -> str | None:
        if not 0 <= event.kv.used <= event.kv.total:
            return f"{event.kv.used} of {event.kv.total} blocks cannot be in use"
        preempted = {p.request for p in event.preempted}
        for request, added, released in event.kv.changes:
            if released and request in preempted:
                self._tables.pop(request, None)
            if any(not 0 <= b < event.kv.total for b in added):
                return f"request {request!r} got a block that the pool does not have"
            self._tables.setdefault(request, []).extend(added)
            if released and request in preempted:
                del self._tables[request]
        if not self._config.prefix_caching:
            owned = [b for table in self._tables.values() for b in table]
            if len(owned) != len(set(owned)):
                return "a block has two owners"
        return None

    def _passes(self, event: StepEvent) -> str | None:
        scheduled = 0
        by_pass: dict[int, list[Segment]] = {}
        for segment in event.segments:
            by_pass.setdefault(segment.pass_index, []).append(segment)
        if set(by_pass) != set(range(len(event.passes))):
            return "segments and passes do not match"
        for index, forward in enumerate(event.passes):
            segments = by_pass[index]
            tokens = sum(s.length for s in segments)
            scheduled += tokens
            if forward.tokens != tokens or forward.rows * forward.width != tokens + forward.padding:
                return f"the positions of pass {index} do not add up"
            lanes = [s.lane for s in segments]
            if lanes != sorted(set(lanes)):
                return f"pass {index} is not in lane order"
            for s in segments:
                if self._lane.get(s.request) != s.lane:
                    return f"request {s.request!r} does not hold lane {s.lane}"
                if s.length < 1 or s.kv_len != s.start + s.length or s.start != self._computed[s.request]:
                    return f"request {s.request!r} computes positions that do not follow its cache"
                if s.kv_len > self._num_tokens[s.request]:
                    return f"request {s.request!r} computes tokens that it does not have"
                if len(self._tables.get(s.request, ())) * self._config.block_size < s.kv_len:
                    return f"request {s.request!r} has too few blocks for {s.kv_len} positions"
                self._computed[s.request] = s.kv_len
            for request, _, token_id, *_ in ((x.request, x.pass_index, x.token_id) for x in event.sampled if x.pass_index == index):
                if self._computed.get(request) != self._num_tokens[request]:
                    return f"request {request!r} samples before its tokens are computed"
                if type(token_id) is not int or token_id < 0:
                    return f"{token_id!r} is not a token id"
                self._num_tokens[request] += 1
        budget = event.budget
        if budget.decode + budget.prefill != scheduled:
            return "the budget's split is not what was computed"
        if budget.limit is not None and (scheduled > budget.limit or budget.unused != budget.limit - scheduled):
            return f"{scheduled} tokens do not fit the budget of {budget.limit}"
        return None

    def _samples(self, event: StepEvent) -> str | None:
        if any(not 0 <= s.pass_index < len(event.passes) for s in event.sampled):
            return "a token was sampled in no pass"
        return None

    def _ends(self, event: StepEvent) -> str | None:
        for request, reason in event.finished:
            if request not in self._prompts or request in self._finished:
                return f"request {request!r} cannot finish"
            if reason not in ("length", "stop", "cancelled", "error"):
                return f"{reason!r} is no reason to finish"
            self._finished.add(request)
        preempted = {p.request for p in event.preempted}
        for request, _, released in event.kv.changes:
            if released and request not in preempted:
                if request not in self._finished:
                    return f"request {request!r} gave up its blocks while running"
                self._tables.pop(request, None)
                self._computed.pop(request, None)
                self._lane.pop(request, None)
        return None
