"""Converts the steps of a raw recording, each to one event. What was not recorded stays absent;
each inferred fact names its rule.

The events repeat what the engine recorded: requests, steps, rows in their real order, blocks and
tokens. Engines record neither lanes nor reasons, so these are inferred here and listed under
`inferred` in the header.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from core.errors import InvalidTrace
from core.recorders.groups import kv_groups
from core.recorders.raw import MissingSteps, Raw, Recording
from core.recorders.recorded_header import recorded_config
from core.trace.detokenize import LEFT_OUT, plain
from core.trace.events import (
    KV,
    NOT_RECORDED,
    SKIPPED,
    Admitted,
    Arrived,
    BeforeOrAfter,
    BlockChange,
    Budget,
    Carried,
    Draft,
    Finished,
    LaneReleased,
    Overrun,
    Pass,
    Preempted,
    PrefixHit,
    Resumed,
    Sampled,
    Segment,
    Stalled,
    StepEvent,
    Timings,
    Waiting,
)
from core.trace.file import TokenizedRequest
from core.trace.header import GroupFacts
from core.trace.inferred import lowest_free, why_admitted, why_stalled, why_waiting
from core.trace.run_state import RunState
from core.trace.trace import Texts
from core.workload.request import Request
from core.workload.workload import Workload

_ROUNDED = 0.1  # by which half precision may put a log-probability beyond the best
_FINISH_REASONS = {"length": "length", "stop": "stop", "repetition": "stop"}


@dataclass
class _Known:
    """Facts about a request that `RunState` does not hold.

    asked: what it asked for, as in a workload, without its arrival. place: the key by which the
    engine orders the queue, None if it is not recorded. has_arrived, is_over: whether the events so
    far say so. num_in_events: output tokens in the events.
    """

    prompt: list[int]
    asked: Raw
    place: tuple[int, float, str] | None = None
    output: list[int] = field(default_factory=list)
    has_arrived: bool = False
    num_in_events: int = 0
    is_over: bool = False

    @property
    def max_tokens(self) -> int:
        """The most tokens that it may get."""
        most: int = self.asked["sampling"]["max_new_tokens"]
        return most

    def is_asked_as(self, request: Request | None, longest: int) -> bool:
        """Whether a workload has this request as the steps have it, as far as they record it, cut
        to the longest that the engine computes.
        """
        if request is None or request.prompt_token_ids not in (None, tuple(self.prompt)):
            return False
        given = vars(request.sampling)
        most = max(1, min(given["max_new_tokens"], longest - len(self.prompt)))
        return self.asked["sampling"].items() <= (given | {"max_new_tokens": most}).items()


class Conversion:
    """Converts a recording's steps in order. start: time 0 of the events, on its clock."""

    def __init__(self, recording: Recording, start: float) -> None:
        self.recording, self._start = recording, start
        self._facts, self._config = recording.header, recorded_config(recording)
        self._groups = kv_groups(self._facts) or (GroupFacts(),)
        self._first_block = self._facts.get("first_block", 1)
        self._aborts = sorted(recording.aborts, key=lambda abort: abort["t"])
        self._run = RunState.of({}, self._config.policy.requeue)
        self._known: dict[str, _Known] = {}
        self._requests: list[Raw] = []
        self._changes: list[BlockChange] = []  # of the step, in the order in which they happened
        self._hits: list[PrefixHit] = []  # of the step
        self._lingering: list[str] = []  # ended, but computed once more in the next step
        self._number, self._t = 0, 0.0
        self._resumed: Resumed | None = None  # of the next step
        # the order of the queue in the snapshot before the next step, for engines whose ordering
        # rule needs facts that are not recorded
        self._order: list[str] = []
        self._knows_order = (
            self._config.policy.order_by == "arrival" or recording.has_priorities
        ) and not self._facts.get("kv_connector")
        self._margins = False  # whether logprobs are recorded
        self.num_without_prompt = 0
        """Requests whose prompt was no list of tokens, such as embeddings."""

    def begin_at(self, start: float) -> None:
        """Set another time 0; call it before the first event."""
        self._start = start

    @property
    def absent(self) -> tuple[str, ...]:
        """The facts about tokens that no step so far has."""
        return () if self._margins else ("logprob", "margin")

    @property
    def is_over(self) -> bool:
        """Whether every known request has finished."""
        return self._known.keys() <= self._run.finished.keys()

    def event(self, step: Raw, later: frozenset[str]) -> StepEvent:
        """The event of the next step. later: the requests that keep their lanes through the step
        after it, since an engine that schedules ahead may compute one more row for a request that
        has just ended. Raises InvalidTrace for a request that never arrived.

        The order of the lines matters: each reads the state that the ones before it left.
        """
        self._number, self._changes, self._hits = step["step"], [], []
        given = {s["request"]: s for s in step["segments"]}
        if len(given) < len(step["segments"]):
            raise InvalidTrace("a request computes twice in it")
        arrived = tuple(self._register(a) for a in step["arrived"])
        for come in arrived:
            self._run.arrive(self._number, come)
        # cancelled and preempted requests go before anyone joins: that frees their lanes
        cancelled, released = self._cancel(step)
        preempted = self._preempted(step)
        admitted = self._admitted(step, given)
        queue = self._queue()
        # blocks used while the passes run: after preempted requests gave theirs back
        used = self._blocks_used(step, given)
        # before the sampled tokens are counted, on which a segment's phase depends
        segments, overrun = self._computed(step, given)
        # rejected draft tokens take back positions that were computed
        sampled, drafts = self._sample(step, given, segments, {row.request for row in overrun})
        waiting, stalled = self._left_out(step, given, used)
        finished, left = self._ends(step, later)
        t_start, t_scheduled, t_output, t_end = self._times(step)
        resumed, self._resumed = self._resumed, None
        decode = sum(s.length for s in segments if s.phase == "decode")
        total = sum(s.length for s in segments)
        event = StepEvent(
            step=step["step"],
            t_start=t_start,
            t_end=t_end,
            timings=Timings(
                round(t_scheduled - t_start, 6), None, round(t_output - t_scheduled, 6), None
            ),
            arrived=arrived,
            admitted=admitted,
            waiting=waiting,
            preempted=preempted,
            stalled=stalled,
            passes=(
                Pass(
                    layout="packed",
                    rows=1,
                    width=total,
                    tokens=total,
                    padding=0,
                    t_start=t_scheduled,
                    t_end=t_output,
                ),
            )
            if segments
            else (),
            segments=segments,
            sampled=sampled,
            finished=(*cancelled, *finished),
            kv=KV(used, self._facts["num_blocks"], tuple(self._changes), tuple(self._hits)),
            budget=Budget(
                step["budget"],
                decode,
                total - decode,
                max(0, step["budget"] - total),
                waiting.why.limit if waiting.why else "none",
            ),
            overrun=overrun,
            released=(*released, *left),
            drafts=drafts,
            queue=queue,
            resumed=resumed,
        )
        self._note(event)
        return event

    def _note(self, event: StepEvent) -> None:
        for arrived in event.newcomers:
            self._known[arrived.request].has_arrived = True
        for request, _ in event.tokens:
            self._known[request].num_in_events += 1
        for finished in event.ends:
            self._known[finished.request].is_over = True

    def abort(self, aborts: list[Raw]) -> None:
        """Add requests that were cancelled by a client, as they become known."""
        self._aborts += aborts

    def forget_finished(self) -> None:
        """Forget requests that have ended and left their lanes, since a run may be endless."""
        for request in self._run.finished.keys() - set(self._run.lanes.values()):
            del self._known[request]
            self._run.forget(request)

    def take_requests(self) -> list[Raw]:
        """The requests since the last call, as JSON of a workload. For endless runs."""
        requests, self._requests = self._requests, []
        return requests

    # -- requests in and out -----------------------------------------------------------------------

    def _register(self, arrived: Raw) -> Arrived:
        """Make a request known: its prompt, its limit and its arrival."""
        request, t = arrived["request"], round(max(0.0, arrived["t"] - self._start), 6)
        prompt = arrived.get("prompt") or [0] * arrived["num_prompt"]
        self.num_without_prompt += "prompt" not in arrived
        self._known[request] = known = _Known(prompt, self._asked(arrived, prompt))
        self._run.num_tokens[request] = len(prompt)
        if "priority" in arrived:  # recorded with the arrival time, which breaks ties
            known.place = arrived["priority"], arrived["arrival_time"], request
        self._requests.append(known.asked | {"arrival": t})
        return Arrived(request, t)

    @property
    def _longest(self) -> int:
        return self._facts.get("max_model_len") or 2**30

    def _asked(self, row: Raw, prompt: list[int]) -> Raw:
        """What a request asks for, as in a workload, by an arrival or a snapshot."""
        room = self._longest - len(prompt)
        sampling = {"max_new_tokens": max(1, min(row.get("max_tokens") or room, room))}
        for name in ("temperature", "ignore_eos"):
            sampling |= {name: row[name]} if row.get(name) is not None else {}
        asked = {"id": row["request"], "prompt_token_ids": prompt, "sampling": sampling}
        return asked | ({"priority": row["priority"]} if "priority" in row else {})

    def _admitted(self, step: Raw, given: Raw) -> tuple[Admitted, ...]:
        """The requests that join a lane, in the order of their segments: vLLM names new requests
        first, then resumed ones. given: the segments of the step, by request. Raises InvalidTrace
        for a request that never arrived.
        """
        if unknown := given.keys() - self._known.keys():
            raise InvalidTrace(
                f"request {min(unknown)!r} runs in step {step['step']} but never arrived: an"
                " earlier part is missing."
            )
        order = {request: at for at, request in enumerate(given)}
        joining = sorted(step["admitted"], key=lambda a: order[a["request"]])
        budget, longest = self._budget(step), self._facts.get("long_prefill_token_threshold")
        admitted = []
        for request, cached in ((a["request"], a["cached"]) for a in joining):
            segment = given[request]
            left = segment["num_tokens"] - segment["start"]
            why = why_admitted(segment["length"], left, budget, longest)
            admitted.append(Admitted(request, lowest_free(self._run.lanes), why))
            self._run.admit(admitted[-1], cached)
            self._hits += [PrefixHit(request, cached)] if cached else []
        return tuple(admitted)

    def _queue(self) -> tuple[str, ...]:
        """The waiting requests, if the engine orders them not by arrival: by its own rule if the
        priorities are recorded, otherwise as in the snapshot, with newer requests at the end.
        """
        waiting = self._run.waiting
        if self._config.policy.order_by == "arrival":
            return ()
        places = {r: place for r in waiting if (place := self._known[r].place) is not None}
        if len(places) == len(waiting):
            ordered = sorted(waiting, key=places.__getitem__)
        else:
            at = {request: n for n, request in enumerate(self._order)}
            ordered = sorted(waiting, key=lambda r: at.get(r, len(at))) if at else list(waiting)
        self._order = []
        if ordered == list(waiting):
            return ()
        waiting.clear()
        waiting.extend(ordered)
        return tuple(ordered)

    def _preempted(self, step: Raw) -> tuple[Preempted, ...]:
        """The preempted requests, the newest first, as the engine chose; frees their blocks."""
        arrival = list(self._known)
        found = []
        for request, lost in sorted(step["preempted"], key=lambda p: -arrival.index(p[0])):
            found.append(Preempted(request, lost, self._lane(request)))
            self._changes.append(BlockChange(request, (), True))
            self._run.preempt(self._number, found[-1])
        return tuple(found)

    def _lane(self, request: str) -> int:
        """The lane that a request holds; raises KeyError if it has none."""
        if (lane := self._run.lane_of(request)) is None:
            raise KeyError(request)
        return lane

    def _cancel(self, step: Raw) -> tuple[list[Finished], list[LaneReleased]]:
        """Requests that clients cancelled before this step was scheduled."""
        finished, released = [], []
        while self._aborts and self._aborts[0]["t"] <= step["t_start"]:
            abort = self._aborts.pop(0)
            t = round(max(0.0, abort["t"] - self._start), 6)
            for request in abort["requests"]:
                if request not in self._known or request in self._run.finished:
                    continue
                finished.append(self._finish(request, "cancelled", t))
                if self._run.lane_of(request) is not None:
                    released.append(self._leave(request, "before"))
        return finished, released

    def _finish(self, request: str, reason: str, t: float | None = None) -> Finished:
        finished = Finished(request, reason, t)
        self._run.finish(self._number, finished)
        return finished

    def _leave(self, request: str, when: BeforeOrAfter) -> LaneReleased:
        left = LaneReleased(request, self._lane(request), when)
        self._changes.append(BlockChange(request, (), True))
        self._run.leave(self._number, left)
        return left

    def _ends(self, step: Raw, later: frozenset[str]) -> tuple[list[Finished], list[LaneReleased]]:
        """The requests that end in this step, and those that leave their lanes after it: the same,
        and any that ended earlier and were computed once more. later: see `event`.
        """
        finished = [
            self._finish(request, _finish_reason(reason))
            for request, reason in step.get("finished", ())
            if self._run.lane_of(request) is not None
        ]
        leaving = [*self._lingering, *(f.request for f in finished if f.request not in later)]
        self._lingering = [f.request for f in finished if f.request in later]
        return finished, [self._leave(request, "after") for request in leaving]

    # -- after steps that are missing --------------------------------------------------------------

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The prompts of the requests that have arrived so far."""
        return {r: known.prompt for r, known in self._known.items() if known.has_arrived}

    def resume(self, step: Raw, snapshot: Raw, missing: MissingSteps) -> None:
        """Continue with this step after missing ones. snapshot: the whole state before it."""
        self._undo_partial_step()
        self._resumed = self._resumption(step, snapshot, missing)
        for carried in self._resumed.carried:
            self._known[carried.request].output += carried.tokens
        self._run.resume(step["step"], self._resumed)

    def _undo_partial_step(self) -> None:
        """Undo what a damaged step has changed so far."""
        run, known = self._run, self._known
        unseen = {request for request, one in known.items() if not one.has_arrived}
        self._requests = [request for request in self._requests if request["id"] not in unseen]
        for request in unseen:
            del known[request]
            run.forget(request)
        for request, one in known.items():
            del one.output[one.num_in_events :]
            run.num_tokens[request] = len(one.prompt) + one.num_in_events
        over = {r for r, one in known.items() if one.is_over}
        run.finished = {r: step for r, step in run.finished.items() if r in over}

    def _resumption(self, step: Raw, snapshot: Raw, missing: MissingSteps) -> Resumed:
        """Requests from before the gap keep their lanes; others take the lowest free ones."""
        run, known = self._run, self._known
        rows = {row["request"]: row for row in snapshot["requests"]}
        over = {r: _finish_reason(row["finished"]) for r, row in rows.items() if "finished" in row}
        computing = {s["request"] for s in step["segments"]}
        running = [r for r in snapshot["running"] if r not in over or r in computing]
        waiting = [r for r in snapshot["waiting"] if r not in over]
        before = [request for request, one in known.items() if not one.is_over]
        lanes = {r: lane for r in running if r in known and (lane := run.lane_of(r)) is not None}
        free = (lane for lane in count() if lane not in lanes.values())
        lanes |= {r: next(free) for r in [r for r in running if r not in lanes]}
        seen = set(before)
        new = sorted(
            (rows[r] for r in (*running, *waiting) if r not in seen),
            key=lambda row: row["t"] or 0.0,
        )
        arrived = tuple(
            self._register(row | {"t": step["t_start"] if row["t"] is None else row["t"]})
            for row in new
        )
        self._lingering = [request for request in running if request in over]
        gone = [*self._lingering, *(r for r in before if r not in {*running, *waiting})]
        reasons = (
            {r: _finish_reason(reason) for r, reason in missing.reasons.items()}
            | dict.fromkeys(self._aborted_before(step["t_start"]), "cancelled")
            | over
        )
        return Resumed(
            first=missing.first,
            last=step["step"] - 1,
            missing=missing.missing,
            arrived=arrived,
            ended=tuple(Finished(request, reasons.get(request, NOT_RECORDED)) for request in gone),
            running=tuple(self._carried(rows[request], lanes[request]) for request in running),
            waiting=tuple(self._carried(rows[request], None) for request in waiting),
        )

    def _carried(self, row: Raw, lane: int | None) -> Carried:
        request, known = row["request"], self._known[row["request"]]
        tokens = tuple(row["output"][: known.max_tokens][len(known.output) :])
        was_preempted = lane is None and bool(row.get("preemptions"))
        tables = () if lane is None else tuple(self._own(row.get("blocks", ())))
        return Carried(
            request=request,
            lane=lane,
            computed=row["computed"],
            tokens=tokens,
            tables=tables,
            was_preempted=was_preempted,
        )

    def contradiction(self, snapshot: Raw, step: Raw) -> str | None:
        """How the snapshot before this step contradicts earlier steps, as a sentence, or None."""
        run = self._run
        gone = self._aborted_before(step["t_start"])
        rows = {row["request"]: row for row in snapshot["requests"] if "finished" not in row}
        queues = [
            ("run", set(snapshot["running"]), set(run.running)),
            ("wait", set(snapshot["waiting"]), set(run.waiting)),
        ]
        start = f"The snapshot before step {step['step']} does not agree with the steps before it: "
        for does, here, there in queues:
            if differ := (here & rows.keys()) ^ (there - gone):
                return f"{start}request {min(differ, key=str)} does not {does} in both."
        self._order = [r for r in snapshot["waiting"] if r in rows]
        mine = [r for r in run.waiting if r not in gone]
        moved = [r for r, own in zip(self._order, mine, strict=True) if r != own]
        if moved and self._knows_order:
            return f"{start}request {moved[0]} does not have the same place in the queue."
        for request, row in rows.items():
            known = self._known[request]
            tables = {g: list(t) for g, t in enumerate(self._own(row.get("blocks", ()))) if t}
            if self._asked(row, row.get("prompt") or known.prompt) != known.asked:
                return f"{start}request {request} does not ask for the same in both."
            if row["output"][: known.max_tokens] != known.output:
                return f"{start}request {request} does not have the same tokens in both."
            if request in run.computed and row["computed"] != run.computed[request]:
                return (
                    f"{start}request {request} has computed {row['computed']} positions, not"
                    f" {run.computed[request]}."
                )
            if request in run.computed and tables != run.tables.get(request):
                return f"{start}request {request} does not have the same blocks in both."
        return None

    # -- what was computed -------------------------------------------------------------------------

    def _blocks_used(self, step: Raw, given: Raw) -> int:
        """The number of blocks in use during the passes, after all changes of tables."""
        first, last = self._first_block, len(given)
        self._changes += [
            BlockChange(request, (), False, group, tuple(block - first for block in ids))
            for request, group, ids in step.get("left", ())
        ]
        # in the order of the segments: a request that shares a prefix is often named before the
        # request that computes it in this step
        order = {request: at for at, request in enumerate(given)}
        for request, tables, _ in sorted(step["blocks"], key=lambda b: order.get(b[0], last)):
            if request not in self._known:
                raise KeyError(request)
            self._changes += [
                BlockChange(request, added, False, group)
                for group, added in enumerate(self._own(tables))
                if added
            ]
        self._run.take_blocks(KV(0, 0, tuple(self._changes)))
        return len(self._run.used_blocks)

    def _own(self, tables: Iterable[list[int]]) -> list[tuple[int | None, ...]]:
        """Recorded block tables by group, with our block numbers: None for an empty block."""
        first = self._first_block
        return [tuple(None if b < first else b - first for b in table) for table in tables]

    def _computed(self, step: Raw, given: Raw) -> tuple[tuple[Segment, ...], tuple[Overrun, ...]]:
        """The segments in the order of their rows, and those computed in vain: of requests that had
        ended before, or that were cancelled before the output arrived.
        """
        rows = [request for request in step.get("row_order", given) if request in given]
        segments = tuple(self._segment(given[request]) for request in rows)
        over = self._run.finished.keys() | self._aborted_before(step.get("t_output", 0.0), False)
        return segments, tuple(Overrun(r, given[r]["length"]) for r in rows if r in over)

    def _aborted_before(self, t: float, inclusive: bool = True) -> set[str]:
        """Requests that clients cancelled before time t."""
        return {
            request
            for abort in self._aborts
            if abort["t"] < t or (inclusive and abort["t"] == t)
            for request in abort["requests"]
        }

    def _segment(self, given: Raw) -> Segment:
        request, start, length = given["request"], given["start"], given["length"]
        is_answer = (
            start >= len(self._known[request].prompt) and start + 1 >= self._run.num_tokens[request]
        )
        phase = "decode" if is_answer and length - given["draft"] == 1 else "prefill"
        return Segment(
            pass_index=0,
            request=request,
            lane=self._lane(request),
            phase=phase,
            start=start,
            length=length,
            kv_len=start + length,
        )

    def _sample(
        self, step: Raw, given: Raw, segments: tuple[Segment, ...], unread: set[str]
    ) -> tuple[tuple[Sampled, ...], tuple[Draft, ...]]:
        """Count computed positions and sampled tokens, and how many draft tokens were accepted.
        unread: requests whose output is discarded.
        """
        if stray := step.get("sampled", {}).keys() - given.keys():
            raise InvalidTrace(f"request {min(stray)!r} gets a token and computes nothing")
        sampled, drafts, refused = list[Sampled](), list[Draft](), list[Draft]()
        for request in (s.request for s in segments):
            drafted = given[request]["draft"]
            if request in unread:
                refused += [Draft(request, drafted, 0)] if drafted else []
                continue
            tokens, known = step.get("sampled", {}).get(request, []), self._known[request]
            tokens = tokens[: len(known.prompt) + known.max_tokens - self._run.num_tokens[request]]
            numbers = step.get("logprobs", {}).get(request, []) if len(tokens) == 1 else []
            logprob = margin = None
            if len(numbers) == 3:
                own, best, second = numbers
                if best > _ROUNDED or max(own, second) - best > _ROUNDED:
                    raise InvalidTrace("a token is more probable than the best can be")
                logprob, margin = min(own, 0.0), max(best - second, 0.0)
            self._margins |= margin is not None
            for token in tokens:
                sampled.append(Sampled(0, request, token, logprob, margin))
                self._run.sample(sampled[-1])
            known.output += tokens
            drafts += [Draft(request, drafted, max(0, len(tokens) - 1))] if drafted else []
        for segment in segments:
            self._run.compute(segment)
        for draft in (*drafts, *refused):
            self._run.reject(draft)
        return tuple(sampled), (*drafts, *refused)

    def _left_out(self, step: Raw, given: Raw, used: int) -> tuple[Waiting, tuple[Stalled, ...]]:
        """The queue, with its recorded length and head where they are recorded, and the requests
        that hold a lane but computed nothing. used: blocks in use while the passes ran.
        """
        facts, run, budget = self._facts, self._run, self._budget(step)
        lanes = facts["max_num_seqs"] - len(run.lanes), facts["max_num_seqs"]
        blocks = facts["num_blocks"] - used, facts["num_blocks"]
        gives_way = bool(step["preempted"]) or self._config.policy.victim == "blocked"
        why = why_stalled(budget, blocks, gives_way)
        stalled = tuple(Stalled(request, why) for request in run.running if request not in given)
        head = step.get("head")
        if head is None and run.waiting:
            head = run.waiting[0]
        length = step.get("waiting", len(run.waiting))
        if head is None:
            return Waiting(length), stalled
        why = why_waiting(
            run.num_tokens[head], lanes, budget, blocks, self._config, self._groups, not run.lanes
        )
        return Waiting(length, head, SKIPPED if step.get("skipped") else why), stalled

    def _budget(self, step: Raw) -> tuple[int, int]:
        """The unused part of the token budget, and the whole budget."""
        return max(0, step["budget"] - sum(s["length"] for s in step["segments"])), step["budget"]

    def _times(self, step: Raw) -> tuple[float, float, float, float]:
        """Times of start, schedule, output and end; a step starts after the last one ended."""
        times, began = list[float](), float(step["t_start"])
        for name in ("t_start", "t_scheduled", "t_output", "t_end"):
            self._t = max(self._t, round(step.get(name, began) - self._start, 6))
            times.append(self._t)
        return times[0], times[1], times[2], times[3]

    # -- the whole ---------------------------------------------------------------------------------

    def requests(self) -> dict[str, TokenizedRequest]:
        """The known requests, in the order of the recorded workload if there is one. Raises
        InvalidRequest, InvalidWorkload, or InvalidTrace if the workload has other requests than the
        steps.
        """
        if workload := self._facts.get("workload"):
            asked = {r.id: r for r in Workload.from_json(workload) if r.id in self._known}
            for request, known in self._known.items():
                if not known.is_asked_as(asked.get(request), self._longest):
                    raise InvalidTrace(
                        f"request {request!r} of {self.recording.name} is another one in its"
                        " workload than in its steps."
                    )
        else:
            asked = {data["id"]: Request.from_json(data) for data in self._requests}
        return {r: TokenizedRequest(one, self._known[r].prompt) for r, one in asked.items()}

    def plain_texts(self) -> Texts:
        """Token ids in place of texts, for recordings without a tokenizer."""
        shown = {
            request: [plain(LEFT_OUT if self.recording.is_hashed else i) for i in known.prompt]
            for request, known in self._known.items()
        }
        return Texts(
            shown,
            {request: list(map(plain, known.output)) for request, known in self._known.items()},
        )


def _finish_reason(recorded: str) -> str:
    """The engine's finish reason in our terms; "error" for any unknown one."""
    return _FINISH_REASONS.get(recorded.rpartition(".")[2].lower(), "error")
