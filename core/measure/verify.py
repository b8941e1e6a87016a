"""Verifies a trace, reading it line by line and never holding all of it. Its rules are checked, its decisions are taken again by the
scheduler, its texts are decoded again if the tokenizer is available, and on demand its tokens are computed again by the model.

`PROOFS` says of every fact in a trace how it is known. What is `sealed` is taken on trust: the checksum only shows that it was not altered by mistake.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from core.errors import InflightError, InvalidTrace, shown
from core.measure.replay import Replay
from core.policy import RecordedPolicy
from core.simulate.retimed import Retimed
from core.trace.detokenize import pieces, plain
from core.trace.events import UNRECORDED, Limit, StepEvent
from core.trace.file import BREAKS_OFF, Reader, TokenizedRequest, TokenTexts
from core.trace.header import Header, ModelFacts
from core.workload.request import Request
from core.workload.workload import Workload

if TYPE_CHECKING:
    from core.engine.engine import EngineCore

Proof = Literal["replayed", "bounded", "decoded", "rerun", "sealed"]

PROOFS: dict[str, tuple[Proof, str]] = {
    "header.policy, batching, config": ("replayed", "every decision of every step is taken again under them; a policy that makes the same decisions, and a limit, a switch or a block size that never mattered, cannot be told apart"),
    "header.num_blocks": ("bounded", "every block is handed out again, and the size shows if blocks ran short; otherwise it is taken on trust"),
    "header.workload, request.asked": ("replayed", "requests arrive, are served and end as it says; its name, and that they came while it ran, is taken on trust, as is then when they were due and in which unit"),
    "request.sampling": ("rerun", "temperature, seed, penalties and whatever else affects the choice of a token; lengths, stop strings and ignore_eos are replayed"),
    "request.tokens": ("bounded", "as requested if given as ids, and inside the vocabulary; a text is encoded again if the tokenizer is available"),
    "header.model": ("rerun", "type, sizes, windows and end tokens are those of the model of that name, which is taken on trust, as is how its attention was reached; without a rerun counts and windows agree with each other"),
    "header.execution": ("bounded", "graphs and overruns occur only where it allows them; the rest is taken on trust"),
    "header.leak": ("rerun", "whether requests read each other's keys shows in their tokens, which only the model can check"),
    "header.absent": ("bounded", "what another engine is said not to have recorded is absent; a run of ours lacks nothing"),
    "header.source, created, engine, kv_groups, inferred, device, device_name, threads, tensor_parallel, dtype, versions, notes, memory, cost": ("sealed", "nothing in a trace can prove them, except that counts are counts, a rank is one of its ranks, and only a simulated run has a cost"),
    "event.step": ("replayed", "steps are consecutive while there is work, and otherwise skip to the next arrival"),
    "event.t_start, t_end": ("bounded", "in order"),
    "event.timings": ("bounded", "not negative and together no longer than the step; without a device's clock preparing, forward and sampling make up the passes"),
    "event.arrived.request": ("replayed", "the requests that are due, in order; in a run whose requests came one by one, those that had not come yet"),
    "event.arrived.t": ("bounded", "the workload's if that counts seconds, otherwise between the step's start and its first pass; with a device's clock before the step's end"),
    "event.admitted, waiting, preempted, stalled": ("replayed", "with the limit that bound and its numbers"),
    "event.passes": ("replayed", "layout, rows, width, tokens, padding and rows of finished requests"),
    "event.passes.t_start, t_end": ("bounded", "in order, inside the step; those of a simulated run are computed again from the cost model in its header, which is taken on trust, if that is one of ours"),
    "event.passes.bucket": ("bounded", "the next power of two, and only where graphs are used"),
    "event.segments": ("replayed", "which request computes which positions in which lane and pass"),
    "event.sampled.pass_index, request": ("replayed", "the requests that have computed all their tokens"),
    "event.sampled.token_id": ("rerun", "inside the vocabulary; which one it is, only the model can check"),
    "event.sampled.logprob, margin": ("rerun", "a greedy token's agree with each other; their values, only the model can check"),
    "event.finished": ("replayed", "length, and end tokens if the header names them; cancellations and non-finite logits came from outside and are taken on trust"),
    "event.kv, budget": ("replayed", "every block by number, every hit by the tokens of the prompts, the split, and the limit that bound"),
    "event.resumed": ("bounded", "another engine's, from its recording: it fits the steps before it, and those after it fit it"),
    "event.warnings": ("bounded", "a run of ours has none; for another engine's steps they are determined again, whatever the file says"),
    "event.overrun, released, drafts": ("replayed", "which requests had stopped when the step was launched; which left which lane, before the passes or after them"),
    "texts": ("decoded", "one piece per token; decoded again if the tokenizer is available, also another engine's; otherwise taken on trust"),
    "end": ("replayed", "the steps are counted, and a complete run has ended; that a run was cut after its last request had ended is taken on trust"),
}  # fmt: skip

_ONLY_RERUN = ("request.sampling", "header.leak")  # nothing but a rerun can check them
_ROUNDED = (
    1e-3  # the most by which logits of one model may differ between machines and batches in float32
)
_ROUNDED_SHORT = 0.25  # and in 16 bits


@dataclass(frozen=True)
class Rerun:
    """What the model computed again. tokens: that are the model's, of which `ties` are not the best here, by less than `rounding` in their
    logits. parted: tokens in 16 bits that temperature or penalties chose and that are others here; under penalties with all after them. drawn:
    tokens by another engine's noise, which were not compared. has_probabilities: they were on record, and are the model's. facts: of the model,
    on record and the same here.
    """

    tokens: int
    ties: int
    parted: int
    drawn: int
    rounding: float
    has_probabilities: bool
    facts: tuple[str, ...]


@dataclass(frozen=True)
class CheckResult:
    """A valid trace, or what is left of one. breaks_off: the file ends before its end was written. not_replayed, not_decoded: why its decisions and its texts are taken on trust, None if they were proved.
    never_bound: limits that never bound, so that nothing shows how large they were. rerun: what the model computed again, None without
    a rerun. warnings: what breaks a rule of ours in another engine's run, each with its step. texts_as_ids: requests that have their
    tokens' ids in place of texts. unrecorded: steps with a reason that another engine did not record.
    is_retimed: the passes of a simulated run take what its cost model says.
    """

    header: Header
    complete: bool
    num_requests: int
    num_steps: int
    num_tokens: int
    not_replayed: str | None
    not_decoded: str | None
    never_bound: tuple[Limit, ...] = ()
    rerun: Rerun | None = None
    warnings: tuple[tuple[int, str], ...] = ()
    texts_as_ids: int = 0
    unrecorded: int = 0
    breaks_off: bool = False
    is_retimed: bool = False

    def proof_of(self, fact: str) -> Proof:
        """How a fact of `PROOFS` is known for this trace."""
        proof = PROOFS[fact][0]
        if self.rerun is None and fact in _ONLY_RERUN:
            return "sealed"
        if (proof == "replayed" and self.not_replayed) or (proof == "rerun" and self.rerun is None):
            return "bounded"
        return "sealed" if proof == "decoded" and self.not_decoded else proof


def verify(
    lines: Iterable[str],
    tokenizer: Callable[[str], Any | None] = lambda model: None,
    engine: Callable[[Header], EngineCore] | None = None,
) -> CheckResult:
    """Check a trace; raises InvalidTrace naming the line at fault.

    tokenizer: returns a model's tokenizer by name, None if it is not available. engine: makes an engine for the model of a header, before the
    rest is read; with it the requests run again, all arriving at once, and their tokens are compared.
    """
    with _uncollected():
        return _verify(Reader(lines), tokenizer, engine)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Runs without the garbage collector: records have no cycles, and it would scan the header again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _verify(
    reader: Reader,
    tokenizer: Callable[[str], Any | None],
    engine: Callable[[Header], EngineCore] | None,
) -> CheckResult:
    header = reader.header
    is_installed = not isinstance(header.policy, RecordedPolicy)
    replay = Replay(header) if header.engine is None and is_installed else None
    found = tokenizer(str(header.model.name))
    texts = _Texts(found, header) if found is not None and "prompts" not in header.absent else None
    again = _Rerun(engine(header), header) if engine else None
    bound, retimed = _Bound(header), Retimed.of(header)
    requests = steps = tokens = 0
    complete = breaks_off = False
    warnings: list[tuple[int, str]] = []
    for record in reader.records():
        if isinstance(record, StepEvent):
            warnings += [(record.step, warning) for warning in record.warnings]
            steps, tokens = steps + 1, tokens + len(record.tokens)
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
    return CheckResult(
        header,
        complete,
        requests,
        steps,
        tokens,
        None
        if replay
        else "another engine ran, whose scheduler is not ours"
        if header.engine
        else f"the policy {header.policy.name} is not installed here",
        None
        if texts
        else "the prompts were not recorded"
        if found is not None
        else "the model's tokenizer is not here",
        bound.never,
        again.run() if again else None,
        tuple(warnings),
        texts.as_ids if texts else 0,
        bound.unrecorded,
        breaks_off,
        retimed is not None,
    )


def _refuse(fault: str | None, line: int) -> None:
    if fault:
        raise InvalidTrace(fault, line)


class _Bound:
    """The limits that have bound some request, and in how many steps a reason is not recorded."""

    def __init__(self, header: Header) -> None:
        limits: tuple[Limit, ...] = ("lanes", "budget", "blocks")
        absent = {"budget": not header.policy.token_budget, "lanes": header.policy.one_lane}
        self.never = tuple([limit for limit in limits if not absent.get(limit)])
        self.unrecorded = 0

    def add(self, event: StepEvent) -> None:
        reasons = [
            event.waiting.why,
            *[s.why for s in event.stalled],
            *[a.why for a in event.admitted],
        ]
        self.unrecorded += UNRECORDED in reasons
        bound = {event.budget.binding, *[why.limit for why in reasons if why]} | (
            {"blocks"} if event.preempted else set()
        )
        self.never = tuple([limit for limit in self.never if limit not in bound])


class _Texts:
    """Decodes the texts again, and encodes the prompts that were given as texts."""

    def __init__(self, tokenizer: Any, header: Header) -> None:
        self._tokenizer, self._is_simulated = tokenizer, header.is_simulated
        self._may_be_ids = header.engine is not None or BREAKS_OFF in header.notes
        self.as_ids = 0  # requests that have ids in place of texts
        self._tokens: dict[
            str, tuple[Sequence[int], array[int]]
        ] = {}  # prompt and answer, until the texts come

    def fault_of_request(self, request: Request, prompt: Sequence[int]) -> str | None:
        self._tokens[request.id] = prompt, array("q")
        if request.prompt is not None and self._encoded(request.prompt) != prompt:
            return f"the tokens of request {request.id!r} are not those of its prompt."
        return None

    def _encoded(self, prompt: str) -> Sequence[int] | None:
        """None for a text that the tokenizer has no tokens for."""
        try:
            return list(self._tokenizer(prompt)["input_ids"])
        except Exception:  # the tokenizers library signals unknown characters by bare exceptions
            return None

    def add(self, event: StepEvent) -> None:
        for request, token in event.tokens:
            self._tokens[request][1].append(token)

    def fault(self, of_one: TokenTexts) -> str | None:
        prompt, output = self._tokens.pop(of_one.request)
        if pieces(self._tokenizer, prompt) == of_one.prompt and (
            (
                self._is_simulated and not any(of_one.output)
            )  # no model ran: there is nothing that the tokens say
            or pieces(self._tokenizer, output, context=prompt) == of_one.output
        ):
            return None
        ids = [
            plain(token) for token in (*prompt, *output)
        ]  # converted on a machine without the tokenizer
        if self._may_be_ids and ids == [*of_one.prompt, *of_one.output]:
            self.as_ids += 1
            return None
        return f"the texts of request {of_one.request!r} are not those of its tokens."


class _Written:
    """Each token of each request with its log-probability and margin, and how the requests ended."""

    def __init__(self) -> None:
        self.tokens: dict[str, array[int]] = {}
        self.facts: dict[str, list[tuple[float | None, float | None]]] = {}
        self.ends: dict[str, str] = {}

    def add(self, event: StepEvent) -> None:
        sampled = [(s.request, s.token_id, (s.logprob, s.margin)) for s in event.sampled]
        unseen = event.tokens[: len(event.tokens) - len(sampled)]
        for request, token, facts in [*((r, t, (None, None)) for r, t in unseen), *sampled]:
            self.tokens.setdefault(request, array("q")).append(token)
            self.facts.setdefault(request, []).append(facts)
        self.ends |= {f.request: f.finish_reason for f in event.ends}


class _Rerun:
    """Runs the requests again, all arriving at once, and compares the outputs with those on record.

    Requests share different batches than in the recording, which must not change a token: that is the engine's promise, tested here. If
    requests read each other's keys, batches do matter, so they arrive as recorded. Another engine is asked for less: its noise is not
    ours, and what ended its requests is not on record; its tokens are compared where the most probable one was taken.

    Where the best two logits are nearer than numbers are rounded, another machine may take the other: the request is then run on from the
    token on record. In 16 bits a draw near another may come out otherwise too, which no margin on record tells from a token that was exchanged:
    such tokens are counted. Raises InvalidTrace if the model is not the one that the header describes, InflightError if its requests cannot arrive as
    they did.
    """

    def __init__(self, engine: EngineCore, header: Header) -> None:
        self.asked: list[TokenizedRequest] = []
        self.on_record = _Written()
        self._engine, self._header, self._own = engine, header, header.engine is None
        self._rounding = _ROUNDED if header.dtype in ("float32", "float64") else _ROUNDED_SHORT
        self._facts = tuple(_same_facts(engine.trace.header, header))
        self._ties = self._parted = 0
        if header.leak and (
            header.is_interactive or header.is_asynchronous or not header.counts_steps
        ):
            raise InflightError(
                "Requests read each other's keys in this run: to be run again they would have to arrive in the same steps."
            )

    def run(self) -> Rerun:
        """Raises InvalidTrace for the first output that is not the model's."""
        record, to_run, drawn = self.on_record, list[tuple[Request, int]](), 0
        for request, prompt in self.asked:
            tokens = record.tokens.get(request.id, ())
            if not self._own and request.sampling.temperature > 0:
                drawn += len(tokens)
            elif tokens or (self._own and record.ends.get(request.id) == "error"):
                arrival, sampling = request.arrival if self._header.leak else 0, request.sampling
                if not self._own:
                    sampling = replace(
                        sampling, max_new_tokens=len(tokens), ignore_eos=True, stop=()
                    )
                to_run.append(
                    (
                        replace(
                            request,
                            prompt=None,
                            prompt_token_ids=tuple(prompt),
                            arrival=arrival,
                            sampling=sampling,
                        ),
                        0,
                    )
                )
        num_tokens = sum(len(record.tokens.get(request.id, ())) for request, _ in to_run)
        while to_run:
            here = _Written()
            for event in self._engine.stream(
                Workload([request for request, _ in to_run], name="rerun")
            ):
                here.add(event)
            to_run = [
                more for request, known in to_run if (more := self._compare(request, known, here))
            ]
        has_probabilities = any(
            fact != (None, None) for facts in record.facts.values() for fact in facts
        )
        return Rerun(
            num_tokens,
            self._ties,
            self._parted,
            drawn,
            self._rounding,
            has_probabilities,
            self._facts,
        )

    def _compare(self, asked: Request, known: int, here: _Written) -> tuple[Request, int] | None:
        """Compare a request's tokens from `known` on; returns what has still to be run, and from which token on."""
        request, record = asked.id, self.on_record
        tokens, ours = record.tokens.get(request, array("q")), here.tokens.get(request, array("q"))
        for position in range(known, len(tokens)):
            where = f"new token {position} of request {request!r}"
            if position - known >= len(ours):
                raise InvalidTrace(
                    f"{where} is {tokens[position]} on record, and the model writes none."
                )
            found, is_other = (
                here.facts[request][position - known],
                ours[position - known] != tokens[position],
            )
            may_part = is_other and self._may_part(asked, found[1])
            for mine, theirs in list(zip(found, record.facts[request][position], strict=True))[
                may_part:
            ]:  # not the other token's
                if theirs is not None and abs((mine or 0.0) - theirs) > self._rounding:
                    raise InvalidTrace(
                        f"the probability of {where} is not what the model gives it."
                    )
            if may_part and asked.sampling.looks_back:
                self._parted += (
                    len(tokens) - position
                )  # those after it depend on what was generated
                return None
            if may_part:
                self._parted += 1
                return self._from(asked, known, position + 1)
            if is_other:
                if not self._may_tie(asked, found[1]):
                    unless = (
                        "" if self._own else ", unless it was asked in a way that is not on record"
                    )
                    raise InvalidTrace(
                        f"{where} is {tokens[position]} on record, and the model writes {ours[position - known]}{unless}."
                    )
                self._ties += 1
                return self._from(asked, known, position + 1)
        ended, ends_here = record.ends.get(request), here.ends.get(request)
        if ended in ("length", "stop") and len(ours) > len(tokens) - known:
            raise InvalidTrace(
                f"request {request!r} ends after {len(tokens)} tokens on record, and the model goes on."
            )
        if ended == "error" and ends_here != "error" and self._own:
            raise InvalidTrace(
                f"the logits of request {request!r} were not finite on record, and the model's are."
            )
        return None

    def _may_tie(self, asked: Request, margin: float | None) -> bool:
        """Whether numbers rounded otherwise may have made another token the best."""
        sampling = asked.sampling
        return (
            not (sampling.temperature or sampling.looks_back or self._header.leak)
            and (margin or 0.0) <= self._rounding
        )

    def _may_part(self, asked: Request, margin: float | None) -> bool:
        """Whether rounding to 16 bits may have made another token the one that temperature or penalties choose."""
        sampling = asked.sampling
        is_near = bool(sampling.temperature) or (
            sampling.looks_back and (margin or 0.0) <= self._rounding
        )
        return is_near and self._own and not self._header.leak and self._rounding == _ROUNDED_SHORT

    def _from(self, asked: Request, known: int, position: int) -> tuple[Request, int] | None:
        """The rest of a request, whose tokens before `position` are those on record; None if no more are."""
        tokens, most = (
            self.on_record.tokens[asked.id],
            asked.sampling.max_new_tokens - (position - known),
        )
        if position == len(tokens):
            return None
        taken = tuple(tokens[known:position])
        prompt = (*(asked.prompt_token_ids or ()), *taken)
        return replace(
            asked, prompt_token_ids=prompt, sampling=replace(asked.sampling, max_new_tokens=most)
        ), position


def _same_facts(here: Header, on_record: Header) -> Iterator[str]:
    """The facts of the model that are on record and the same here; raises InvalidTrace for one that is not. How its attention was reached depends on the
    engine; another one lays out its cache as it likes, and may limit the context."""
    for name in (f.name for f in fields(ModelFacts)):
        is_shared = on_record.tensor_parallel > 1 and name in ("parameters", "kv_bytes_per_token")
        if (
            name in ("name", "plug", "more")
            or is_shared
            or (on_record.engine and name == "kv_bytes_per_token")
        ):
            continue
        recorded, found = getattr(on_record.model, name), getattr(here.model, name)
        if recorded is None and (on_record.engine or found is None):
            continue
        if recorded != found and not (
            on_record.engine and name == "context" and (found is None or recorded < found)
        ):
            raise InvalidTrace(
                f"the model's {name} is {shown(recorded)} on record, and {shown(found)} here.", 1
            )
        yield name
