"""Verifies a trace, read line by line. Its rules are checked, its decisions are made again by the
scheduler, its texts are decoded again if the tokenizer is available, and on demand its tokens are
computed again by the model.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.collector import gc_off
from core.engine.engine import EngineCore
from core.engine.requests import prompt_ids
from core.errors import InflightError, InvalidRequest, InvalidTrace, shown
from core.files import path_of
from core.policy import RecordedPolicy
from core.proof.findings import CheckResult
from core.proof.replay import Replay
from core.proof.rerun import ModelRerun
from core.simulate.cost import Cost
from core.simulate.engine import hardware_of
from core.simulate.fitted import Linear, measured
from core.simulate.roofline import Roofline
from core.trace.detokenize import pieces, plain
from core.trace.events import SKIPPED, UNRECORDED, Limit, StepEvent
from core.trace.file import BREAKS_OFF, Reader, TokenizedRequest, TokenTexts, lines_of
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.request import Request

_ROUNDED = 3e-6  # seconds: times in a trace are in whole microseconds


class Retimed:
    """Checks the times of a simulated run against its cost model, event by event."""

    def __init__(self, cost: Cost, is_interactive: bool) -> None:
        self._cost, self._is_interactive = cost, is_interactive
        self._now, self._there = 0.0, 0  # the clock, and the number of requests

    @classmethod
    def of(cls, header: Header) -> Retimed | None:
        """None for a measured run, and for one whose cost model is not the current one."""
        cost = _rebuilt(header.cost or {})
        return None if cost is None else cls(cost, header.is_interactive)

    def fault_of_header(self, header: Header) -> str | None:
        """How the header's model and hardware differ from those of the cost model, or how that
        contradicts itself, or None.
        """
        if isinstance(self._cost, Linear) and not self._cost.is_one_fit:
            return "its cost model contradicts itself."
        sizes = {
            "parameters": self._cost.deployment.parameters or 0,
            "kv_bytes_per_token": self._cost.kv_bytes_per_token,
        }
        for of, facts in ((header, hardware_of(self._cost)), (header.model, sizes)):
            for name, known in facts.items():
                if (recorded := getattr(of, name)) != known:
                    return (
                        f"the {name} is {shown(recorded)}, and its cost model has {shown(known)}."
                    )
        return None

    def fault(self, event: StepEvent) -> str | None:
        """What is wrong with the times of a step, or None."""
        for one in measured([event], self._cost.kv_bytes_per_token):
            said = self._cost.seconds(one.load)
            if abs(one.seconds - said) > _ROUNDED:
                return (
                    f"a pass of step {event.step} takes {one.seconds:.6f} s, and its cost model"
                    f" says {said:.6f} s."
                )
        return self._fault_of_clock(event)

    def _fault_of_clock(self, event: StepEvent) -> str | None:
        """A simulated clock moves with passes only and, without requests, to an arrival."""
        came = [] if self._there else [max(self._now, arrived.t) for arrived in event.arrived]
        if self._is_interactive:  # some may have come in behind the one to whom it had moved
            came = sorted(came, key=lambda t: abs(t - event.t_start))[:1]
        begins = min(came, default=self._now)
        ends = (begins, event.t_start, *[p.t_end for p in event.passes])
        starts = (event.t_start, *[p.t_start for p in event.passes], event.t_end)
        self._now, self._there = event.t_end, self._there + len(event.arrived) - len(event.finished)
        if any(abs(start - end) > _ROUNDED for start, end in zip(starts, ends, strict=True)):
            return f"step {event.step} begins or goes on when a simulated clock does not."
        return None


def _rebuilt(cost: Mapping[str, Any]) -> Cost | None:
    """A cost model from its description in a header."""
    try:
        return Linear.from_json(cost) if cost.get("kind") == "fitted" else Roofline.from_json(cost)
    except InflightError:
        return None


def check(run: Trace | str | os.PathLike[str]) -> CheckResult:
    """Verify a trace, or a file with one, as the command `check` does: the rules, and all decisions
    and texts, which are made again. Raises InvalidTrace naming the line at fault.
    """
    from core.recorders.texts import tokenizer_of  # loads what reads a model's files

    lines = run.lines() if isinstance(run, Trace) else lines_of(path_of(run))
    return verify(lines, tokenizer_of)


def verify(
    lines: Iterable[str],
    tokenizer: Callable[[str], Any | None] = lambda model: None,
    engine: Callable[[Header], EngineCore] | None = None,
) -> CheckResult:
    """Check a trace; raises InvalidTrace naming the line at fault.

    tokenizer: returns a model's tokenizer by name, None if it is not available. engine: makes an
    engine for the model of a header, before the rest is read; then the requests run again, all
    arriving at once, and their tokens are compared; its tokenizer serves where `tokenizer` has
    none.
    """
    with gc_off():
        return _verify(Reader(lines), tokenizer, engine)


def _verify(
    reader: Reader,
    tokenizer: Callable[[str], Any | None],
    engine: Callable[[Header], EngineCore] | None,
) -> CheckResult:
    header = reader.header
    not_replayed = not_decoded = None
    if header.engine:
        not_replayed = "another engine ran, whose scheduler is not ours"
    elif isinstance(header.policy, RecordedPolicy):
        not_replayed = f"the policy {header.policy.name} is not installed here"
    replay = None if not_replayed else Replay(header)
    found, own = tokenizer(str(header.model.name)), engine(header) if engine else None
    if found is None and own is not None:
        found = own.tokenizer  # the hub's, which is in no folder here
    if found is None:
        not_decoded = "the model's tokenizer is neither built in nor in a folder of that name"
    elif "prompts" in header.absent:
        not_decoded = "the prompts were not recorded"
    texts = None if not_decoded else _TextChecker(found, header)
    again = ModelRerun(own, header) if own else None
    bound, retimed = _Bound(header), Retimed.of(header)
    _refuse(retimed.fault_of_header(header) if retimed else None, reader.line)
    requests = steps = tokens = 0
    ended = Counter[str]()
    complete = breaks_off = False
    warnings: list[tuple[int, str]] = []
    for record in reader.records():
        if isinstance(record, StepEvent):
            warnings += [(record.step, warning) for warning in record.warnings]
            steps, tokens = steps + 1, tokens + len(record.tokens)
            ended.update(f.finish_reason for f in record.ends)
            _refuse(replay.fault(record) if replay else None, reader.line)
            _refuse(retimed.fault(record) if retimed else None, reader.line)
            bound.add(record)
            if texts is not None:
                texts.add(record)
            if again is not None:
                again.on_record.add(record)
        elif isinstance(record, TokenizedRequest):
            requests += 1
            _refuse(replay.fault_of_request(*record) if replay else None, reader.line)
            if texts is not None:
                _refuse(texts.fault_of_request(*record), reader.line)
            if again is not None:
                again.asked.append(record)
        elif isinstance(record, TokenTexts):
            if texts is not None:
                _refuse(texts.fault(record), reader.line)
        else:
            complete, breaks_off = record.complete, not record.is_written
            _refuse(replay.fault_at_end(complete) if replay else None, reader.line)
    rerun = again.run() if again else None
    if rerun is not None and header.engine is None:
        ended["error"] = rerun.failed  # the model shows whether logits were finite
    return CheckResult(
        header=header,
        complete=complete,
        num_requests=requests,
        num_steps=steps,
        num_tokens=tokens,
        not_replayed=not_replayed,
        not_decoded=not_decoded,
        never_bound=bound.never,
        rerun=rerun,
        warnings=tuple(warnings),
        texts_as_ids=texts.as_ids if texts else 0,
        unrecorded=bound.unrecorded,
        breaks_off=breaks_off,
        is_retimed=retimed is not None,
        skipped=bound.skipped,
        from_outside={reason: ended[reason] for reason in ("cancelled", "error") if ended[reason]},
    )


def _refuse(fault: str | None, line: int) -> None:
    if fault:
        raise InvalidTrace(fault, line)


class _Bound:
    """The limits that never bound a request with nothing left, so that nothing proves their size;
    and in how many steps a reason is not recorded, or a head was skipped.
    """

    def __init__(self, header: Header) -> None:
        limits: tuple[Limit, ...] = ("lanes", "budget", "blocks")
        absent = {"budget": not header.policy.token_budget, "lanes": header.policy.one_lane}
        self.never = tuple([limit for limit in limits if not absent.get(limit)])
        self.unrecorded = self.skipped = 0

    def add(self, event: StepEvent) -> None:
        reasons = [s.why for s in event.stalled] + [a.why for a in event.admitted]
        reasons += [event.waiting.why] if event.waiting.why else []
        self.unrecorded += UNRECORDED in reasons
        self.skipped += SKIPPED in reasons
        held = {why.limit for why in reasons} | {event.budget.binding}
        bound = {why.limit for why in reasons if not why.have}
        bound |= {"blocks"} if event.preempted else set()
        bound |= held & {"budget"} if event.budget.unused == 0 else set()
        self.never = tuple([limit for limit in self.never if limit not in bound])


class _TextChecker:
    """Decodes the texts again, and encodes the prompts that were given as texts."""

    def __init__(self, tokenizer: Any, header: Header) -> None:
        self._tokenizer, self._is_simulated = tokenizer, header.is_simulated
        self._may_be_ids = header.engine is not None or BREAKS_OFF in header.notes
        self.as_ids = 0  # requests that have ids in place of texts
        # prompt and answer, until the texts come
        self._tokens: dict[str, tuple[Sequence[int], array[int]]] = {}

    def fault_of_request(self, request: Request, prompt: Sequence[int]) -> str | None:
        self._tokens[request.id] = prompt, array("q")
        if request.has_text and self._encoded(request) != tuple(prompt):
            return f"the tokens of request {request.id!r} are not those of its prompt."
        return None

    def _encoded(self, request: Request) -> tuple[int, ...] | None:
        """The token ids of a prompt, None if tokenizer or chat template refuse it."""
        try:
            return prompt_ids(request, self._tokenizer)
        except InvalidRequest:
            return None

    def add(self, event: StepEvent) -> None:
        for request, token in event.tokens:
            self._tokens[request][1].append(token)

    def fault(self, of_one: TokenTexts) -> str | None:
        prompt, output = self._tokens.pop(of_one.request)
        if pieces(self._tokenizer, prompt) == of_one.prompt and (
            self._is_simulated  # no model ran: there is nothing that the tokens say
            or pieces(self._tokenizer, output, context=prompt) == of_one.output
        ):
            return None
        # converted on a machine without the tokenizer
        ids = [plain(token) for token in (*prompt, *output)]
        if self._may_be_ids and ids == [*of_one.prompt, *of_one.output]:
            self.as_ids += 1
            return None
        return f"the texts of request {of_one.request!r} are not those of its tokens."
