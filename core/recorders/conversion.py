"""Converts the steps of a raw recording, each to one event. What was not recorded stays absent; each inferred fact names its rule.

The events say what the engine recorded in our words: its requests, steps, rows in their real order, blocks and tokens. Engines record
neither lanes nor reasons, so these are worked out here and listed under `inferred` in the header.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from core.errors import InflightError, InvalidTrace
from core.recorders.gaps import Gap, State
from core.recorders.groups import kv_groups
from core.recorders.raw import Recording
from core.recorders.recorded_header import recorded_config
from core.trace.detokenize import LEFT_OUT, plain
from core.trace.events import (
    KV,
    NOT_RECORDED,
    UNRECORDED,
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
    Why,
)
from core.trace.file import TokenizedRequest
from core.trace.header import GroupFacts
from core.trace.inferred import lowest_free, why_admitted, why_stalled, why_waiting
from core.trace.run_state import RunState
from core.trace.trace import Texts
from core.workload.request import Request
from core.workload.workload import Workload

_FINISH_REASONS = {"length": "length", "stop": "stop", "repetition": "stop"}


@dataclass
class _Known:
    """Facts about a request that `RunState` does not hold.

    has_arrived, is_over: whether the events so far say so. num_in_events: how many tokens of its output they have.
    """

    prompt: list[int]
    max_tokens: int
    output: list[int] = field(default_factory=list)
    has_arrived: bool = False
    num_in_events: int = 0
    is_over: bool = False


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
"""What converting a damaged step may raise."""


def still_there(step: dict[str, Any], following: dict[str, Any]) -> frozenset[str]:
    """Requests that may keep their lanes and blocks through the following step although they have ended: those with a row in it and, if it was
    scheduled before this step's output was back, those that end in this step.
    """
    is_ahead = following["t_start"] < step.get("t_output", step["t_start"])
    ending = {request for request, _ in step.get("finished", ())} if is_ahead else set[str]()
    return frozenset({s["request"] for s in following["segments"]} | ending)


class Conversion:
    """Converts the steps of a recording in order. start: time 0 of the events, in seconds of the recording."""

    def __init__(self, recording: Recording, start: float) -> None:
        self.recording, self._start = recording, start
        self._facts, self._config = recording.header, recorded_config(recording)
        self._groups = kv_groups(self._facts) or (GroupFacts(),)
        self._first_block = self._facts.get("first_block", 1)
        self._aborts = sorted(recording.aborts, key=lambda abort: abort["t"])
        self._run = RunState.of({}, recording.requeues)
        self._known: dict[str, _Known] = {}
        self._requests: list[dict[str, Any]] = []
        self._changes: list[BlockChange] = []  # of the step, in the order in which they happened
        self._lingering: list[str] = []  # have ended, and are computed once more in the next step
        self._number, self._t = 0, 0.0
        self._resumed: Resumed | None = None  # of the next step
        self._margins = False  # whether logprobs are on record

    @property
    def absent(self) -> tuple[str, ...]:
        """Facts about tokens that no step so far has."""
        return () if self._margins else ("logprob", "margin")

    @property
    def is_over(self) -> bool:
        """Whether every request that is known has finished."""
        return self._known.keys() <= self._run.finished.keys()

    def event(self, step: dict[str, Any], later: frozenset[str]) -> StepEvent:
        """The next step. later: the requests that are `still_there` in the step after it, since an engine that schedules ahead may compute one more row
        for a request that has just ended. Raises InvalidTrace for a request that never arrived.
        """
        run, lingering, self._changes = self._run, self._lingering, []
        self._number = step["step"]
        arrived = tuple(self._arrive(a) for a in step["arrived"])
        cancelled, released = self._cancel(step)
        newest_first = sorted(step["preempted"], key=lambda p: -list(self._known).index(p[0]))
        preempted = tuple(self._preempt(request, lost) for request, lost in newest_first)
        given = {s["request"]: s for s in step["segments"]}
        if unknown := given.keys() - self._known.keys():
            raise InvalidTrace(
                f"request {min(unknown)!r} runs in step {step['step']} but never arrived: an earlier part is missing."
            )
        hits: list[PrefixHit] = []
        # In the order of their segments: vLLM names new requests first, then those that come back.
        scheduled = {request: at for at, request in enumerate(given)}
        joining = sorted(step["admitted"], key=lambda a: scheduled[a["request"]])
        admitted = tuple(self._admit(a, given[a["request"]], step, hits) for a in joining)
        self._changes += self._leaving(step)
        # In the same order: a request that shares a prefix is often named before the one that computes it in this step.
        for request, tables, _ in sorted(
            step["blocks"], key=lambda given: scheduled.get(given[0], len(scheduled))
        ):
            if request not in self._known:
                raise KeyError(request)
            for group, ids in enumerate(tables):
                added = tuple(
                    None if block < self._first_block else block - self._first_block
                    for block in ids
                )
                self._changes += [BlockChange(request, added, False, group)] if added else []
        run.take_blocks(KV(0, 0, tuple(self._changes)))
        used = len({block for request in run.tables for block in run.blocks_of(request)})
        rows = [request for request in step.get("row_order", given) if request in given]
        segments = tuple(self._segment(given[request]) for request in rows)
        aborted = {
            r for a in self._aborts if a["t"] < step.get("t_output", 0.0) for r in a["requests"]
        }
        overrun = tuple(
            Overrun(r, given[r]["length"]) for r in rows if r in run.finished or r in aborted
        )
        unread = {row.request for row in overrun}
        sampled, drafts = self._sample(step, [r for r in rows if r not in unread], given)
        drafts += tuple(
            Draft(r, given[r]["draft"], 0) for r in rows if r in unread and given[r]["draft"]
        )
        for segment in segments:
            run.compute(segment)
        for draft in drafts:
            run.reject(draft)
        waiting, stall_why = self._waiting(step, used)
        stalled = tuple(Stalled(r, stall_why) for r in run.running if r not in given)
        ended = [
            (r, reason) for r, reason in step.get("finished", ()) if run.lane_of(r) is not None
        ]
        finished = tuple(self._finish(r, _finish_reason(reason)) for r, reason in ended)
        self._lingering = [f.request for f in finished if f.request in later]
        leaving = [*lingering, *(f.request for f in finished if f.request not in later)]
        released += [self._leave(request, "after") for request in leaving]
        decode = sum(s.length for s in segments if s.phase == "decode")
        prefill = sum(s.length for s in segments if s.phase == "prefill")
        total = decode + prefill
        t_start, t_scheduled, t_output, t_end = self._times(step)
        resumed, self._resumed = self._resumed, None
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
            passes=(Pass("packed", 1, total, total, 0, t_scheduled, t_output),) if segments else (),
            segments=segments,
            sampled=sampled,
            finished=(*cancelled, *finished),
            kv=KV(used, self._facts["num_blocks"], tuple(self._changes), tuple(hits)),
            budget=Budget(
                step["budget"],
                decode,
                prefill,
                max(0, step["budget"] - total),
                waiting.why.limit if waiting.why else "none",
            ),
            overrun=overrun,
            released=tuple(released),
            drafts=drafts,
            resumed=resumed,
        )
        self._note(event)
        return event

    def _note(self, event: StepEvent) -> None:
        """Note what this event says about each request."""
        for arrived in event.newcomers:
            self._known[arrived.request].has_arrived = True
        for request, _ in event.tokens:
            self._known[request].num_in_events += 1
        for finished in event.ends:
            self._known[finished.request].is_over = True

    def abort(self, aborts: list[dict[str, Any]]) -> None:
        """Add requests that were ended from outside, as they become known."""
        self._aborts += aborts

    def forget_finished(self) -> None:
        """Forget requests that have ended and left their lanes, so that memory stays bounded in an endless run."""
        for request in self._run.finished.keys() - set(self._run.lanes.values()):
            del self._known[request]
            self._run.forget(request)

    def take_requests(self) -> list[dict[str, Any]]:
        """Requests that have arrived since the last call, as plain data of a workload: for an endless run."""
        requests, self._requests = self._requests, []
        return requests

    # -- requests in and out -----------------------------------------------------------------------------------------

    def _arrive(self, arrived: dict[str, Any]) -> Arrived:
        come = self._register(arrived)
        self._run.arrive(self._number, come)
        return come

    def _register(self, arrived: dict[str, Any]) -> Arrived:
        """Make a request known: its prompt, its limit and its arrival."""
        request, t = arrived["request"], round(max(0.0, arrived["t"] - self._start), 6)
        prompt = arrived.get("prompt") or [0] * arrived["num_prompt"]
        room = (self._facts.get("max_model_len") or 2**30) - len(prompt)
        most = max(1, min(arrived.get("max_tokens") or room, room))
        sampling = {"max_new_tokens": most, "temperature": arrived.get("temperature") or 0.0}
        sampling |= {"ignore_eos": True} if arrived.get("ignore_eos") else {}
        self._known[request] = _Known(prompt, most)
        self._run.num_tokens[request] = len(prompt)
        self._requests.append(
            {"id": request, "prompt_token_ids": prompt, "sampling": sampling, "arrival": t}
        )
        return Arrived(request, t)

    def _admit(
        self,
        admitted: dict[str, Any],
        segment: dict[str, Any],
        step: dict[str, Any],
        hits: list[PrefixHit],
    ) -> Admitted:
        request, cached, left = (
            admitted["request"],
            admitted["cached"],
            segment["num_tokens"] - segment["start"],
        )
        lane = lowest_free(self._run.lanes)
        budget, longest = self._budget(step), self._facts.get("long_prefill_token_threshold")
        joins = Admitted(request, lane, why_admitted(segment["length"], left, budget, longest))
        self._run.admit(joins, cached)
        if cached:
            hits.append(PrefixHit(request, cached))
        return joins

    def _preempt(self, request: str, lost: int) -> Preempted:
        preempted = Preempted(request, lost, self._lane(request))
        self._changes.append(BlockChange(request, (), True))
        self._run.preempt(self._number, preempted)
        return preempted

    def _lane(self, request: str) -> int:
        """The lane that a request holds; raises KeyError if it has none."""
        if (lane := self._run.lane_of(request)) is None:
            raise KeyError(request)
        return lane

    def _cancel(self, step: dict[str, Any]) -> tuple[list[Finished], list[LaneReleased]]:
        """Requests that were ended from outside before this step was scheduled."""
        finished, released = [], []
        while self._aborts and self._aborts[0]["t"] <= step["t_start"]:
            for request in self._aborts.pop(0)["requests"]:
                if request not in self._known or request in self._run.finished:
                    continue
                finished.append(self._finish(request, "cancelled"))
                if self._run.lane_of(request) is not None:
                    released.append(self._leave(request, "before"))
        return finished, released

    def _finish(self, request: str, reason: str) -> Finished:
        finished = Finished(request, reason)
        self._run.finish(self._number, finished)
        return finished

    def _leave(self, request: str, when: BeforeOrAfter) -> LaneReleased:
        left = LaneReleased(request, self._lane(request), when)
        self._changes.append(BlockChange(request, (), True))
        self._run.leave(self._number, left)
        return left

    def _leaving(self, step: dict[str, Any]) -> list[BlockChange]:
        """Blocks that left a table before this step's blocks joined; a block that leaves may join another table in the same step."""
        return [
            BlockChange(
                request, (), False, group, tuple(block - self._first_block for block in ids)
            )
            for request, group, ids in step.get("left", ())
        ]

    # -- after steps that are missing --------------------------------------------------------------------------------

    def resume(self, gap: Gap, step: dict[str, Any], snapshot: dict[str, Any] | None) -> bool:
        """Go on after a gap. Returns whether the state before this step is known, so that the next event goes on from it; otherwise the step is skipped.
        snapshot: the one before this step, if there is one.
        """
        state = gap.state_before(
            step,
            snapshot,
            self._aborts,
            {r: known.prompt for r, known in self._known.items() if known.has_arrived},
        )
        if state is None:
            gap.pass_over(step)
            return False
        self._undo_partial_step()
        self._resumed = self._resumption(gap, state, step)
        for carried in self._resumed.carried:
            self._known[carried.request].output += carried.tokens
        self._run.resume(step["step"], self._resumed)
        return True

    def _undo_partial_step(self) -> None:
        """Undo what part of a damaged step has changed."""
        run, known = self._run, self._known
        unseen = {request for request, one in known.items() if not one.has_arrived}
        self._requests = [request for request in self._requests if request["id"] not in unseen]
        for request in unseen:
            del known[request]
            run.forget(request)
        for request, one in known.items():
            del one.output[one.num_in_events :]
            run.num_tokens[request] = len(one.prompt) + one.num_in_events
        run.finished = {
            request: step
            for request, step in run.finished.items()
            if request in known and known[request].is_over
        }

    def _resumption(self, gap: Gap, state: State, step: dict[str, Any]) -> Resumed:
        """Requests from before the gap keep their lanes; others take the lowest free ones."""
        run, known, snapshot = self._run, self._known, state.snapshot
        rows = {row["request"]: row for row in snapshot["requests"]}
        over = {
            request: _finish_reason(row["finished"])
            for request, row in rows.items()
            if "finished" in row
        }
        computing = {s["request"] for s in step["segments"]}
        running = [r for r in snapshot["running"] if r not in over or r in computing]
        waiting = [r for r in snapshot["waiting"] if r not in over]
        before = [request for request, one in known.items() if not one.is_over]
        lanes = {r: lane for r in running if r in known and (lane := run.lane_of(r)) is not None}
        free = (lane for lane in count() if lane not in lanes.values())
        lanes |= {r: next(free) for r in [r for r in running if r not in lanes]}
        new = sorted(
            (rows[r] for r in {*running, *waiting} - set(before)), key=lambda row: row["t"] or 0.0
        )
        arrived = tuple(
            self._register(row | {"t": step["t_start"] if row["t"] is None else row["t"]})
            for row in new
        )
        self._lingering = [request for request in running if request in over]
        gone = [*self._lingering, *(r for r in before if r not in {*running, *waiting})]
        cancelled = {
            r for abort in self._aborts if abort["t"] <= step["t_start"] for r in abort["requests"]
        }
        reasons = (
            {r: _finish_reason(reason) for r, reason in gap.reasons.items()}
            | dict.fromkeys(cancelled, "cancelled")
            | over
        )
        return Resumed(
            gap.first,
            step["step"] - 1,
            gap.missing,
            state.source,
            arrived,
            tuple(Finished(request, reasons.get(request, NOT_RECORDED)) for request in gone),
            tuple(self._carried(rows[request], lanes[request]) for request in running),
            tuple(self._carried(rows[request], None) for request in waiting),
        )

    def _carried(self, row: dict[str, Any], lane: int | None) -> Carried:
        request, known = row["request"], self._known[row["request"]]
        tokens = tuple(row["output"][: known.max_tokens][len(known.output) :])
        was_preempted = lane is None and bool(row.get("preemptions"))
        return Carried(
            request,
            lane,
            row["computed"],
            tokens,
            () if lane is None else self._tables(row),
            was_preempted,
        )

    def _tables(self, row: dict[str, Any]) -> tuple[tuple[int | None, ...], ...]:
        """The block tables in a row of a snapshot, one for each KV cache group."""
        first = self._first_block
        return tuple(
            tuple(None if b < first else b - first for b in group)
            for group in row.get("blocks", ())
        )

    def contradiction(self, snapshot: dict[str, Any], step: dict[str, Any]) -> str | None:
        """How the snapshot before this step contradicts the steps so far, or None."""
        run = self._run
        gone = {
            r for abort in self._aborts if abort["t"] <= step["t_start"] for r in abort["requests"]
        }
        rows = {row["request"]: row for row in snapshot["requests"] if "finished" not in row}
        queues = [
            ("run", set(snapshot["running"]), set(run.running)),
            ("wait", set(snapshot["waiting"]), set(run.waiting)),
        ]
        start = f"The snapshot before step {step['step']} does not agree with the steps before it: "
        for does, here, there in queues:
            if differ := (here & rows.keys()) ^ (there - gone):
                return f"{start}{len(differ)} requests do not {does} in both."
        for request, row in rows.items():
            known, tables = (
                self._known[request],
                {g: list(table) for g, table in enumerate(self._tables(row)) if table},
            )
            if row["output"][: known.max_tokens] != known.output:
                return f"{start}request {request} does not have the same tokens in both."
            if request in run.computed and row["computed"] != run.computed[request]:
                return f"{start}request {request} has computed {row['computed']} positions, not {run.computed[request]}."
            if request in run.computed and tables != run.tables.get(request):
                return f"{start}request {request} does not have the same blocks in both."
        return None

    # -- what was computed -------------------------------------------------------------------------------------------

    def _segment(self, given: dict[str, Any]) -> Segment:
        request, start, length = given["request"], given["start"], given["length"]
        is_answer = (
            start >= len(self._known[request].prompt) and start + 1 >= self._run.num_tokens[request]
        )
        phase = "decode" if is_answer and length - given["draft"] == 1 else "prefill"
        return Segment(0, request, self._lane(request), phase, start, length, start + length)

    def _sample(
        self, step: dict[str, Any], rows: list[str], given: dict[str, Any]
    ) -> tuple[tuple[Sampled, ...], tuple[Draft, ...]]:
        sampled, drafts = [], []
        for request in rows:
            tokens, known = step.get("sampled", {}).get(request, []), self._known[request]
            tokens = tokens[: len(known.prompt) + known.max_tokens - self._run.num_tokens[request]]
            numbers = step.get("logprobs", {}).get(request, []) if len(tokens) == 1 else []
            logprob, margin = (
                (min(numbers[0], 0.0), max(numbers[1] - numbers[2], 0.0))
                if len(numbers) == 3
                else (None, None)
            )
            self._margins |= margin is not None
            for token in tokens:
                sampled.append(Sampled(0, request, token, logprob, margin))
                self._run.sample(sampled[-1])
            known.output += tokens
            if given[request]["draft"]:
                drafts.append(Draft(request, given[request]["draft"], max(0, len(tokens) - 1)))
        return tuple(sampled), tuple(drafts)

    def _waiting(self, step: dict[str, Any], used: int) -> tuple[Waiting, Why]:
        """The queue, with its recorded length and head where these are on record, and why a running request computes nothing."""
        facts, run, budget = self._facts, self._run, self._budget(step)
        lanes = facts["max_num_seqs"] - len(run.lanes), facts["max_num_seqs"]
        blocks = facts["num_blocks"] - used, facts["num_blocks"]
        stall_why = why_stalled(
            budget, blocks, bool(step["preempted"]) or self._config.policy.victim == "blocked"
        )
        head = (
            step.get("head")
            if step.get("head") in run.waiting
            else run.waiting[0]
            if run.waiting
            else None
        )
        length = step.get("waiting", len(run.waiting))
        if head is None:
            return Waiting(length), stall_why
        why = why_waiting(
            run.num_tokens[head], lanes, budget, blocks, self._config, self._groups, not run.lanes
        )
        return Waiting(length, head, UNRECORDED if step.get("skipped") else why), stall_why

    def _budget(self, step: dict[str, Any]) -> tuple[int, int]:
        """The unused part of the token budget, and the whole."""
        return max(0, step["budget"] - sum(s["length"] for s in step["segments"])), step["budget"]

    def _times(self, step: dict[str, Any]) -> tuple[float, float, float, float]:
        """Start, scheduled, output, end. A step that was scheduled while the step before was computed begins at that step's end."""
        times = []
        for name in ("t_start", "t_scheduled", "t_output", "t_end"):
            self._t = max(self._t, round(step.get(name, step["t_start"]) - self._start, 6))
            times.append(self._t)
        return times[0], times[1], times[2], times[3]

    # -- the whole ---------------------------------------------------------------------------------------------------

    def requests(self) -> dict[str, TokenizedRequest]:
        """The known requests, in the order of the recorded workload if there is one. Raises InvalidRequest or InvalidWorkload."""
        if workload := self._facts.get("workload"):
            requests = [r for r in Workload.from_json(workload) if r.id in self._known]
        else:
            requests = [Request.from_json(data) for data in self._requests]
        return {
            request.id: TokenizedRequest(request, self._known[request.id].prompt)
            for request in requests
        }

    def plain_texts(self) -> Texts:
        """Token ids in place of texts, for want of a tokenizer."""
        shown = {
            request: [plain(LEFT_OUT if self.recording.is_hashed else i) for i in known.prompt]
            for request, known in self._known.items()
        }
        return Texts(
            shown,
            {request: list(map(plain, known.output)) for request, known in self._known.items()},
        )


def _finish_reason(recorded: str) -> str:
    """The engine's finish reason in our words; "error" for any that we do not know."""
    return _FINISH_REASONS.get(recorded.rpartition(".")[2].lower(), "error")
