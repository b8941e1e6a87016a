"""The rules that every recorded run obeys, checked event by event: a replay in ids and counts. Knows the events alone."""

from __future__ import annotations

import math
import types
from collections import Counter, deque
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from core.config import EngineConfig
from core.errors import InflightError, InvalidTrace
from core.trace.events import Segment, StepEvent
from core.workload.workload import Workload

_REASONS = ("length", "stop", "cancelled", "error")


class Checker:
    """Follows a run from its header on; `fault(event)` says in a sentence what a step contradicts, or returns None.

    Raises InvalidTrace for a header that cannot be followed.
    """

    def __init__(self, header: dict) -> None:
        try:
            self._config = EngineConfig.from_json(header["config"])
            workload = Workload.from_json(header["workload"])
        except InflightError as error:
            raise InvalidTrace(str(error), 1) from None
        prompts: dict[str, list[int]] = header["prompts"]
        if not all(isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids) for ids in prompts.values()):
            raise InvalidTrace("the prompts are not lists of token ids.", 1)
        if set(prompts) != {r.id for r in workload}:
            raise InvalidTrace("the prompts are not those of the workload's requests.", 1)
        if header["policy"] != self._config.policy:
            raise InvalidTrace("the policy is not that of the config.", 1)
        windows = header["model"].get("windows", [])
        if not isinstance(windows, list) or not all(w is None or (type(w) is int and w > 0) for w in windows):
            raise InvalidTrace("the model's windows are not lengths.", 1)
        self._num_blocks: int | None = header.get("num_blocks")
        self._prompts = prompts
        self._num_prompt = {request: len(ids) for request, ids in prompts.items()}
        self._num_tokens = dict(self._num_prompt)
        self._max_tokens = {r.id: self._num_prompt[r.id] + r.sampling.max_new_tokens for r in workload}
        self._order: dict[str, int] = {}  # by arrival
        self._line: deque[str] = deque()
        self._computed: dict[str, int] = {}  # running request -> positions in its cache
        self._lanes: dict[str, int] = {}  # a finished request keeps its lane until the barrier
        self._tables: dict[str, list[int]] = {}
        self._owners: Counter[int] = Counter()  # block -> requests that hold it
        self._held: dict[str, int] = {}  # of this step: request -> blocks while the passes ran
        self._released: list[str] = []  # of this step: requests that gave back their blocks
        self._finished: set[str] = set()
        self._asynchronous = bool(header.get("execution", {}).get("asynchronous"))
        self._due: list[str] = []  # finished requests that still hold their lanes, for no longer than the next step
        self._late: dict[
            str, int
        ] = {}  # finished in the step before -> positions in its cache: may have a row in this one, in vain
        self._in_vain: set[str] = set()  # of the step before: rows of requests that have not finished by then
        self._step, self._t = -1, 0.0

    def fault(self, event: StepEvent) -> str | None:
        """What is wrong with this step, given all steps before it."""
        rules = (self._shape, self._clock, self._arrivals, self._cancels, self._preemptions, self._admissions, self._waiting)
        for rule in (*rules, self._blocks, self._passes, self._samples, self._overruns, self._work, self._budget, self._ends):
            if fault := rule(event):
                return f"step {event.step}: {fault}."
        return None

    def fault_at_end(self, complete: object, texts: Any, outputs: dict[str, list[int]]) -> str | None:
        """What is wrong with the last line: a complete run has ended, and every token has its piece of text."""
        if type(complete) is not bool:
            return "the last line does not say whether the run is complete."
        if complete and (left := set(self._prompts) - self._finished):
            return f"the run is said to be complete, but request {min(left)!r} has not finished."
        for name, tokens in (("prompt", self._prompts), ("output", outputs)):
            of_all = texts.get(name) if isinstance(texts, dict) else None
            if not isinstance(of_all, dict) or set(of_all) != set(tokens):
                return "the texts are missing."
            for request, ids in tokens.items():
                pieces = of_all[request]
                if not isinstance(pieces, list) or len(pieces) != len(ids) or not all(isinstance(p, str) for p in pieces):
                    return f"the texts of request {request!r} do not match its tokens."
        return None

    # -- the rules, in the order of a step ---------------------------------------------------------------------------

    def _shape(self, event: StepEvent) -> str | None:
        hints = _hints(StepEvent)
        wrong = next((f.name for f in fields(event) if not _fits(getattr(event, f.name), hints[f.name])), None)
        return f"the values of {wrong} are of the wrong kind" if wrong else None

    def _clock(self, event: StepEvent) -> str | None:
        if event.step <= self._step:
            return f"it follows step {self._step}"
        times = [self._t, event.t_start, *(t for p in event.passes for t in (p.t_start, p.t_end)), event.t_end]
        if times != sorted(times):
            return "its times run backwards"
        self._step, self._t = event.step, event.t_end
        return None

    def _arrivals(self, event: StepEvent) -> str | None:
        for request, t in event.arrived:
            if request not in self._prompts or request in self._order:
                return f"request {request!r} cannot arrive"
            if not 0 <= t <= event.t_end:
                return f"request {request!r} arrives at a time that has not come"
            self._order[request] = len(self._order)
            self._line.append(request)
        return None

    def _cancels(self, event: StepEvent) -> str | None:
        """Cancellations come before everything else in their step."""
        cancelled = {request for request, reason in event.finished if reason == "cancelled"}
        if self._in_vain - cancelled:
            return f"request {min(self._in_vain)!r} lost a token but goes on"
        for request, reason in event.finished:
            if reason != "cancelled":
                continue
            if request in self._line:
                self._line.remove(request)
                self._finished.add(request)
            elif request in self._computed:
                for other in self._finish(request):
                    del self._lanes[other]
            else:
                return f"request {request!r} cannot be cancelled"
        return None

    def _preemptions(self, event: StepEvent) -> str | None:
        for request, lost, lane in event.preempted:
            if self._computed.get(request) != lost or self._lanes.get(request) != lane:
                return f"request {request!r} was not running as the preemption says"
            if request != max(self._computed, key=self._order.__getitem__):
                return f"request {request!r} was preempted but is not the newest"
            del self._computed[request], self._lanes[request]
            self._line.appendleft(request)
        return None

    def _admissions(self, event: StepEvent) -> str | None:
        hits = dict(event.kv.prefix_hits)
        if not set(hits) <= {a.request for a in event.admitted}:
            return "a prefix was found for a request that was not admitted"
        for request, lane, _ in event.admitted:
            if not self._line or self._line.popleft() != request:
                return f"request {request!r} was admitted out of turn"
            if lane in self._lanes.values():
                return f"lane {lane} is taken"
            if not 0 <= lane < self._config.num_lanes:
                return f"there is no lane {lane}"
            cached = hits.get(request, 0)
            if cached % self._config.block_size or not 0 <= cached < self._num_tokens[request]:
                return f"a prefix of {cached} tokens cannot be found for request {request!r}"
            self._computed[request], self._lanes[request] = cached, lane
        return None

    def _waiting(self, event: StepEvent) -> str | None:
        count, head, why = event.waiting
        if count != len(self._line) or head != (self._line[0] if self._line else None) or (why is None) != (head is None):
            return f"{len(self._line)} requests wait, not as it says"
        if why and why.limit == "lanes" and len(self._lanes) < self._config.num_lanes:
            return "the head of the line waits for a lane though one is free"
        return None

    def _blocks(self, event: StepEvent) -> str | None:
        used, total, changes, hits = event.kv
        if total != (total if self._num_blocks is None else self._num_blocks):
            return f"the pool does not have {total} blocks"
        shared = {request: cached // self._config.block_size for request, cached in hits}
        most = len(self._owners)
        self._released = []
        self._held = {request: len(table) for request, table in self._tables.items()}
        for request, added, released in changes:
            if any(not 0 <= b < total for b in added):
                return f"request {request!r} got a block that the pool does not have"
            may_share = shared.pop(request, 0)
            if any(self._owners[b] for b in added[may_share:]):
                return "a block has two owners"
            table = self._tables.setdefault(request, [])
            if added and request not in self._computed and request not in self._late:
                return f"request {request!r} got blocks but is not running"
            table.extend(added)
            self._owners.update(added)
            self._held[request] = len(table)
            if released:
                self._released.append(request)
                for block in self._tables.pop(request):
                    self._owners[block] -= 1
                    if not self._owners[block]:
                        del self._owners[block]
            most = max(most, len(self._owners))
        if any(shared.values()) or not len(self._owners) <= used <= min(most, total):
            return f"{used} of {total} blocks cannot be in use"
        return None

    def _passes(self, event: StepEvent) -> str | None:
        if {s.pass_index for s in event.segments} != set(range(len(event.passes))):
            return "segments and passes do not match"
        for index, forward in enumerate(event.passes):
            segments = [s for s in event.segments if s.pass_index == index]
            lengths = [s.length for s in segments]
            padded, over = forward.layout == "padded", forward.finished_rows
            rows, width = (len(segments) + len(over), max(lengths)) if padded else (1, sum(lengths))
            if forward.layout not in ("packed", "padded") or (over and not padded):
                return f"pass {index} has a layout that there is not"
            if (forward.rows, forward.width, forward.tokens, forward.padding) != (
                rows,
                width,
                sum(lengths),
                rows * width - sum(lengths),
            ):
                return f"the positions of pass {index} do not add up"
            lanes = [s.lane for s in segments]
            if lanes != sorted(set(lanes)):
                return f"pass {index} is not in lane order"
            if any(r.request not in self._finished or self._lanes.get(r.request) != r.lane for r in over):
                return f"pass {index} computes a finished row that has no lane"
            for segment in segments:
                if fault := self._segment(segment):
                    return fault
            if fault := self._tokens(event, index, segments):
                return fault
        return None

    def _segment(self, s: Segment) -> str | None:
        cached = self._computed.get(s.request, self._late.get(s.request))
        if cached is None or self._lanes.get(s.request) != s.lane:
            return f"request {s.request!r} does not hold lane {s.lane}"
        if s.length < 1 or s.kv_len != s.start + s.length or s.start != cached:
            return f"request {s.request!r} computes positions that do not follow its cache"
        num_tokens, late = self._num_tokens[s.request], s.request in self._late
        if s.kv_len > num_tokens and not late:
            return f"request {s.request!r} computes tokens that it does not have"
        decoding = s.length == 1 and (late or s.kv_len == num_tokens > self._num_prompt[s.request])
        if s.phase != ("decode" if decoding else "prefill"):
            return f"request {s.request!r} is not in the phase {s.phase!r}"
        if self._held.get(s.request, 0) * self._config.block_size < s.kv_len:
            return f"request {s.request!r} has too few blocks for {s.kv_len} positions"
        if s.request in self._computed:
            self._computed[s.request] = s.kv_len
        return None

    def _tokens(self, event: StepEvent, index: int, segments: list[Segment]) -> str | None:
        """Whoever computed all its tokens gets a new one, in packed order, unless its logits were not finite."""
        failed = {f.request for f in event.finished if f.finish_reason == "error"}
        overrun = {row.request for row in event.overrun}
        due = [
            s.request
            for s in segments
            if s.kv_len == self._num_tokens[s.request] and s.request not in failed and s.request not in overrun
        ]
        sampled = [s for s in event.sampled if s.pass_index == index]
        if [s.request for s in sampled] != due:
            return f"pass {index} samples for others than those whose tokens are computed"
        for s in sampled:
            if s.token_id < 0 or s.margin < 0 or s.logprob > 0:
                return f"token {s.token_id} of request {s.request!r} is not one that can be sampled"
            self._num_tokens[s.request] += 1
        return None

    def _samples(self, event: StepEvent) -> str | None:
        if any(not 0 <= s.pass_index < len(event.passes) for s in event.sampled):
            return "a token was sampled in no pass"
        return None

    def _overruns(self, event: StepEvent) -> str | None:
        """Rows in vain: of requests that had finished, or will turn out cancelled."""
        last = {s.request: s for s in event.segments}
        self._in_vain = set()
        for request, rows in event.overrun:
            if not self._asynchronous:
                return "only asynchronous execution computes rows in vain"
            if request not in last or last[request].length != rows:
                return f"request {request!r} has no row of {rows} positions in vain"
            if request not in self._late:
                self._in_vain.add(request)
        if {s.request for s in event.segments if s.request in self._late} - {row.request for row in event.overrun}:
            return "a request that had finished computes"
        return None

    def _work(self, event: StepEvent) -> str | None:
        computing = {s.request for s in event.segments} - set(self._late)
        stalled = [s.request for s in event.stalled if s.request not in self._late]
        if computing | set(stalled) != set(self._computed) or len(computing) + len(stalled) != len(self._computed):
            return "a running request neither computed nor stalled"
        return None

    def _budget(self, event: StepEvent) -> str | None:
        limit, decode, prefill, unused, _ = event.budget
        of_phase: Counter[str] = Counter()
        for s in event.segments:
            of_phase[s.phase] += s.length
        if (decode, prefill) != (of_phase["decode"], of_phase["prefill"]):
            return "the budget's split is not what was computed"
        if limit != (self._config.max_num_batched_tokens if self._config.batching.token_budget else None):
            return f"the budget is not {limit}"
        if limit is not None and (unused < 0 or decode + prefill + unused != limit):
            return f"{decode + prefill} tokens do not fit the budget of {limit}"
        return None

    def _ends(self, event: StepEvent) -> str | None:
        sampled = {s.request for s in event.sampled}
        late: dict[str, int] = {}
        leaving: list[str] = []
        for request, reason in event.finished:
            if reason == "cancelled":
                continue
            if request not in self._computed or reason not in _REASONS:
                return f"request {request!r} cannot finish by {reason!r}"
            full = self._num_tokens[request] == self._max_tokens[request]
            failed = self._computed[request] == self._num_tokens[request]
            if {"length": not full, "stop": request not in sampled, "error": not failed}[reason]:
                return f"request {request!r} has not come to its end by {reason!r}"
            late[request] = self._computed[request]
            leaving += self._finish(request)
        if beyond := [r for r in self._computed if self._num_tokens[r] >= self._max_tokens[r]]:
            return f"request {beyond[0]!r} goes on beyond its last token"
        lingering = [r for r in leaving if self._asynchronous and r in self._tables]
        for request in set(leaving + self._due) - set(lingering):
            del self._lanes[request]
        self._due, self._late = lingering, late if self._asynchronous else {}
        if set(self._released) & set(self._lanes) or not set(self._tables) <= set(self._lanes):
            return "blocks are given back when a lane falls free, and only then"
        return None

    def _finish(self, request: str) -> list[str]:
        """End a running request; those whose lanes fall free with it: itself, or at the barrier the whole wave."""
        del self._computed[request]
        self._finished.add(request)
        if self._config.batching.admission == "immediate":
            return [request]
        return [] if self._computed else list(self._lanes)


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


@cache
def _anatomy(hint: Any) -> tuple[Any, tuple]:
    return get_origin(hint), get_args(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what the annotation says; a finite float, where a whole number counts as one."""
    if hint is int or hint is str or hint is bool:
        return type(value) is hint
    if hint is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    origin, parts = _anatomy(hint)
    if origin is tuple:
        return type(value) is tuple and all([_fits(v, parts[0]) for v in value])
    if origin is Literal:
        return type(value) is str and value in parts
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if hint is types.NoneType:
        return value is None
    return type(value) is hint and all([_fits(v, h) for v, h in zip(value, _hints(hint).values(), strict=True)])  # type: ignore[arg-type]
