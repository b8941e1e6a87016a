"""Verifies a trace, read line by line. Its rules are checked, its decisions are made again by the
scheduler, its texts are decoded again if the tokenizer is available, and on demand its tokens are
computed again by the model.

This file says of every fact in a trace how it is known. A `sealed` fact is taken on trust: the
checksum only shows that it was not altered by mistake.
"""

import os
import tomllib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from core.collector import gc_off
from core.config import ASSETS
from core.engine.engine import EngineCore
from core.engine.requests import prompt_ids
from core.errors import InflightError, InvalidRequest, InvalidTrace, shown
from core.files import path_of
from core.policy import RecordedPolicy
from core.proof.replay import Replay
from core.proof.rerun import ModelRerun, RerunResult
from core.simulate.cost import Cost
from core.simulate.engine import hardware_of
from core.simulate.fitted import Linear, measured
from core.simulate.roofline import Roofline
from core.trace.detokenize import pieces, plain
from core.trace.events import SKIPPED, UNRECORDED, Limit, StepEvent
from core.trace.file import BREAKS_OFF, Reader, TokenizedRequest, TokenTexts, lines_of
from core.trace.header import Header
from core.trace.messages import english, listed
from core.trace.trace import Trace
from core.workload.request import Request

Proof = Literal["replayed", "bounded", "decoded", "rerun", "sealed"]

_TABLES = tomllib.loads((ASSETS / "checks.toml").read_text(encoding="utf-8"))

PROOFS: dict[str, tuple[Proof, str]] = {
    fact: (row["proof"], row["how"]) for fact, row in _TABLES["proofs"].items()
}
"""For each fact how it is known, and what exactly is known about it."""

OTHERS: dict[str, tuple[str, str]] = {
    fact: (row["enforced"], row.get("believed", "")) for fact, row in _TABLES["others"].items()
}
"""For each fact of another engine's run what is enforced, by a refusal or a warning, and what is
taken on trust, if anything.
"""


_ROUNDED = 3e-6  # seconds: times in a trace are in whole microseconds


class Retimed:
    """Checks the times of a simulated run against its cost model, event by event."""

    def __init__(self, cost: Cost, is_interactive: bool) -> None:
        self._cost, self._is_interactive = cost, is_interactive
        self._now, self._there = 0.0, 0  # the clock, and the number of requests

    @classmethod
    def of(cls, header: Header) -> Self | None:
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


_ONLY_RERUN = ("request.sampling", "header.leak")  # nothing but a rerun can check them
# not replayed of a request that was ended from outside
_UNTIL_ITS_END = ("header.arrival_unit, request.asked", "event.finished")


@dataclass(frozen=True, repr=False)
class CheckResult:
    """A valid trace, or the valid part of one. breaks_off: the file ends before its end was
    written. not_replayed, not_decoded: why its decisions and its texts are taken on trust, None if
    they were proved. never_bound: limits that never bound with nothing left, so that nothing shows
    how large they were. rerun: what the model computed again, None without a rerun. warnings: where
    another engine's run breaks a rule of ours, each with its step. texts_as_ids: requests with
    token ids in place of texts. unrecorded: steps with a reason that another engine did not record.
    is_retimed: the passes of a simulated run take the time that its cost model gives. skipped:
    steps in which another engine is said to have skipped the head of its queue, whatever the limits
    were. from_outside: by reason, how many requests were ended by something that is not recorded,
    so on trust.
    """

    header: Header
    complete: bool
    num_requests: int
    num_steps: int
    num_tokens: int
    not_replayed: str | None
    not_decoded: str | None
    never_bound: tuple[Limit, ...] = ()
    rerun: RerunResult | None = None
    warnings: tuple[tuple[int, str], ...] = ()
    texts_as_ids: int = 0
    unrecorded: int = 0
    breaks_off: bool = False
    is_retimed: bool = False
    skipped: int = 0
    from_outside: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join(findings(self))

    def proof_of(self, fact: str) -> Proof:
        """How a fact of `PROOFS` is known for this trace."""
        if not isinstance(fact, str) or fact not in PROOFS:
            raise InflightError(f"There is no fact {shown(fact)}; there are {', '.join(PROOFS)}.")
        proof = PROOFS[fact][0]
        if self.rerun is None and fact in _ONLY_RERUN:
            return "sealed"
        # of a model that processes shared, the weights of one may be all that was counted
        is_part = self.rerun and not self.header.engine and "parameters" not in self.rerun.facts
        if (
            (fact == "header.model" and is_part)
            or (proof == "replayed" and self.not_replayed)
            or (proof == "rerun" and self.rerun is None)
            or (fact in _UNTIL_ITS_END and self.from_outside)
            or (fact == "end" and not self.complete)
        ):
            return "bounded"
        return "sealed" if proof == "decoded" and self.not_decoded else proof


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


# -- in sentences ----------------------------------------------------------------------------------


def findings(found: CheckResult) -> Iterator[str]:
    """Sentences on what was proved, what was bounded, and what is taken on trust."""
    header = found.header
    if found.not_replayed:
        odd = (
            english(f"; {len(found.warnings):,} [time|times] they were not, see above")
            if found.warnings
            else ""
        )
        yield (
            f"Decisions: not taken again, as {found.not_replayed}; the rules that hold for every"
            f" policy were followed{odd}."
        )
    else:
        last = (
            " but those of the last step" if header.is_asynchronous and not found.complete else ""
        )
        unlike = header.unlike_installed
        told = f", with another {listed(unlike)} than the installed one" if unlike else ""
        yield (
            f"Decisions: all{last} taken again by the scheduler under the policy"
            f" {header.policy.name}{told}, and the same; what would not change them does not show,"
            " such as another policy, switch or block size, an arrival between the same steps, or a"
            " priority where the policy has none."
        )
    if found.never_bound:
        yield (
            "Limits that never bound with nothing left, so their sizes are taken on trust:"
            f" {', '.join(found.never_bound)}."
        )
    if found.from_outside:
        cancelled, failed = (found.from_outside.get(why, 0) for why in ("cancelled", "error"))
        yield (
            f"Ends from outside: {cancelled:,} cancelled, {failed:,} failed. That these requests"
            " ended so, what more they had asked for, and so who had their lanes and blocks from"
            " then on, is taken on trust."
        )
    if not found.complete:
        yield "End: that the run was cut there, and what came after it, is taken on trust."
    if unknown := header.unknown:
        yield (
            f"Header: what this version does not know, such as {shown(unknown[0])}, is taken on"
            " trust."
        )
    if header.engine:
        yield from _of_another(found)
        return
    if header.is_interactive:
        yield (
            "Arrivals: in order; when they came is taken on trust, as requests came while it ran."
        )
    part = "part of the device's" if header.is_asynchronous else "part"
    yield (
        "Times: those that the cost model in the header gives, computed again; its numbers are"
        " taken on trust."
        if found.is_retimed
        else f"Times: in order, and no {part} longer than the whole; their values are taken on"
        " trust."
    )
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(header)
    yield _texts(found)
    yield (
        "Whether it ran live, the names of the workload and its requests, whether a prompt was a"
        " text, machine, memory, number format, how passes were computed, versions, notes and"
        " dates: taken on trust."
    )


def _of_another(found: CheckResult) -> Iterator[str]:
    """Sentences on what is taken on trust in another engine's run."""
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(found.header)[:1]
    yield _texts(found)
    if found.unrecorded:
        yield english(
            f"In {found.unrecorded:,} of {found.num_steps:,} [step|steps] why a request waits,"
            " stalls or is cut is not recorded."
        )
    if found.skipped:
        yield english(
            f"In {found.skipped:,} of {found.num_steps:,} [step|steps] the engine is said to"
            " have skipped the first who waits, whatever the limits: taken on trust."
        )
    yield "Nothing in the file can prove the rest, which is taken on trust:"
    yield from (f"    {fact}: {believed}" for fact, (_, believed) in OTHERS.items() if believed)


def _rerun(again: RerunResult) -> Iterator[str]:
    probabilities = (
        "whose probabilities are not on record"
        if again.apart is None
        else f"with probabilities and margins at most {again.apart:.2g} from those on record"
    )
    yield (
        f"Tokens: {again.tokens:,} written again by the model, {probabilities}; a difference of"
        f" {again.rounding} in a logit may be rounding, and is taken on trust."
    )
    yield (
        "Sampling: it gives these tokens; what made no difference to them, such as a stop string"
        " that never occurs, is taken on trust."
    )
    if again.ties:
        yield english(
            f"Of these {again.ties:,} [is|are] not the one that is best here, but behind it by no"
            " more than that, and the request was run on from the one on record."
        )
    if again.parted:
        yield english(
            f"Of these {again.parted:,} [was|were] chosen otherwise here by temperature or"
            " penalties, as may happen in 16 bits, or [follows|follow] such a choice: taken on"
            " trust."
        )
    if again.drawn:
        yield english(
            f"{again.drawn:,} more [was|were] drawn by another engine's noise, which is not ours:"
            " taken on trust."
        )
    if again.facts:
        yield f"Model: the same {', '.join(again.facts)} as on record."
    else:
        yield "Model: nothing of it is on record but its name."


def _not_rerun(header: Header) -> list[str]:
    inside = "" if header.model.vocab_size is None else "inside the vocabulary; "
    if header.is_simulated:
        return [
            f"Tokens: {inside}made up, as no model ran.",
            "Model: its facts, as none ran: taken on trust.",
        ]
    return [
        (
            f"Tokens: {inside}which they are, how probable they were, and the sampling that chose"
            " them, is taken on trust (--rerun runs the model again)."
        ),
        (
            "Model: that it ran, its facts, and whether requests read each other's keys: taken on"
            " trust."
        ),
    ]


def _texts(found: CheckResult) -> str:
    if found.not_decoded:
        return f"Texts: taken on trust, as {found.not_decoded}."
    if found.texts_as_ids == found.num_requests > 0:
        return (
            "Texts: none on record; in their place are the ids of the tokens, and they are the"
            " same."
        )
    if found.header.is_simulated:
        return (
            "Texts: those of the prompts, decoded again from their tokens, and the same; made-up"
            " tokens have none."
        )
    decoded = "Texts: decoded again from the tokens, and the same"
    if not found.texts_as_ids:
        return f"{decoded}."
    count = f"{found.texts_as_ids:,} of {found.num_requests:,}"
    return f"{decoded}; {count} requests have the ids of their tokens in place of texts."
