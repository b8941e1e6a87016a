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
from core.recorders.texts import plain
from core.trace.detokenize import pieces
from core.trace.events import Limit, StepEvent
from core.trace.file import Reader, TokenizedRequest, TokenTexts
from core.trace.header import Header, ModelFacts
from core.workload.request import Request
from core.workload.workload import Workload

if TYPE_CHECKING:
    from core.engine.engine import EngineCore

Proof = Literal["replayed", "bounded", "decoded", "rerun", "sealed"]

PROOFS: dict[str, tuple[Proof, str]] = {
    "header.policy, batching, config": ("replayed", "every decision of every step is taken again under them; a policy that makes the same decisions, and a limit, a switch or a block size that never mattered, cannot be told apart"),
    "header.num_blocks": ("bounded", "every block is handed out again, and the size shows if blocks ran short; otherwise it is taken on trust"),
    "header.workload, request.asked": ("replayed", "requests arrive, are served and end as it says; its name, and that they came while it ran, is taken on trust"),
    "request.sampling": ("rerun", "temperature, seed, penalties and whatever else affects the choice of a token; lengths, stop strings and ignore_eos are replayed"),
    "request.tokens": ("bounded", "as requested if given as ids, and inside the vocabulary; a text is encoded again if the tokenizer is available"),
    "header.model": ("rerun", "type, sizes, windows and end tokens are those of the model of that name, which is taken on trust; without a rerun counts and windows agree with each other"),
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
    "event.passes.t_start, t_end": ("bounded", "in order, inside the step"),
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
_ROUNDED = 1e-3  # the most by which logits of one model may differ between machines and batches in float32
_ROUNDED_SHORT = 0.25  # and in 16 bits


@dataclass(frozen=True)
class CheckResult:
    """A valid trace. not_replayed, not_decoded: why its decisions and its texts are taken on trust, None if they were proved.
    never_bound: limits that never bound, so that nothing shows how large they were. rerun: how many tokens the model generated
    again, None without a rerun. warnings: what breaks a rule of ours in another engine's run, each with its step.
    """

    header: Header
    complete: bool
    num_requests: int
    num_steps: int
    num_tokens: int
    not_replayed: str | None
    not_decoded: str | None
    never_bound: tuple[Limit, ...] = ()
    rerun: int | None = None
    warnings: tuple[tuple[int, str], ...] = ()

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

    tokenizer: returns a model's tokenizer by name, None if it is not available. engine: makes an engine for the model of a header; with it the
    requests run again, all arriving at once, and their tokens are compared.
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


def _verify(reader: Reader, tokenizer: Callable[[str], Any | None], engine: Callable[[Header], EngineCore] | None) -> CheckResult:
    header = reader.header
    is_installed = not isinstance(header.policy, RecordedPolicy)
    replay = Replay(header) if header.engine is None and is_installed else None
    found = tokenizer(str(header.model.name))
    texts = _Texts(found, header) if found is not None and "prompts" not in header.absent else None
    written = _Written() if engine else None
    bound = _Bound(header)
    requests = steps = tokens = 0
    complete = False
    warnings: list[tuple[int, str]] = []
    for record in reader.records():
        if isinstance(record, StepEvent):
            warnings += [(record.step, warning) for warning in record.warnings]
            steps, tokens = steps + 1, tokens + len(record.tokens)
            _refuse(replay.fault(record) if replay else None, reader.line)
            bound.add(record)
            if texts is not None:
                texts.add(record)
            if written is not None:
                written.add(record)
        elif isinstance(record, TokenizedRequest):
            requests += 1
            _refuse(replay.fault_of_request(*record) if replay else None, reader.line)
            if texts is not None:
                _refuse(texts.fault_of_request(*record), reader.line)
            if written is not None:
                written.asked.append(record)
        elif isinstance(record, TokenTexts):
            if texts is not None:
                _refuse(texts.fault(record), reader.line)
        else:
            complete = record.complete
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
        None if texts else "the prompts were not recorded" if found is not None else "the model's tokenizer is not here",
        bound.never,
        _rerun(engine(header), header, written) if engine and written else None,
        tuple(warnings),
    )


def _refuse(fault: str | None, line: int) -> None:
    if fault:
        raise InvalidTrace(fault, line)


class _Bound:
    """The limits that have bound some request."""

    def __init__(self, header: Header) -> None:
        limits: tuple[Limit, ...] = ("lanes", "budget", "blocks")
        absent = {"budget": not header.policy.token_budget, "lanes": header.policy.one_lane}
        self.never = tuple([limit for limit in limits if not absent.get(limit)])

    def add(self, event: StepEvent) -> None:
        if not self.never:
            return
        reasons = [event.waiting.why, *[s.why for s in event.stalled], *[a.why for a in event.admitted]]
        bound = {event.budget.binding, *[why.limit for why in reasons if why]} | ({"blocks"} if event.preempted else set())
        self.never = tuple([limit for limit in self.never if limit not in bound])


class _Texts:
    """Decodes the texts again, and encodes the prompts that were given as texts."""

    def __init__(self, tokenizer: Any, header: Header) -> None:
        self._tokenizer, self._may_be_ids = tokenizer, header.engine is not None
        self._tokens: dict[str, tuple[Sequence[int], array[int]]] = {}  # prompt and answer, until the texts come

    def fault_of_request(self, request: Request, prompt: Sequence[int]) -> str | None:
        self._tokens[request.id] = prompt, array("q")
        if request.prompt is not None and list(self._tokenizer(request.prompt)["input_ids"]) != prompt:
            return f"the tokens of request {request.id!r} are not those of its prompt."
        return None

    def add(self, event: StepEvent) -> None:
        for request, token in event.tokens:
            self._tokens[request][1].append(token)

    def fault(self, of_one: TokenTexts) -> str | None:
        prompt, output = self._tokens.pop(of_one.request)
        if pieces(self._tokenizer, prompt) == of_one.prompt and pieces(self._tokenizer, output, context=prompt) == of_one.output:
            return None
        ids = [plain(token) for token in (*prompt, *output)]  # converted on a machine without the tokenizer
        if self._may_be_ids and ids == [*of_one.prompt, *of_one.output]:
            return None
        return f"the texts of request {of_one.request!r} are not those of its tokens."


class _Written:
    """What a rerun is compared with: all requests, and each token with its log-probability and margin."""

    def __init__(self) -> None:
        self.asked: list[TokenizedRequest] = []
        self.tokens: dict[str, array[int]] = {}
        self.facts: dict[str, list[tuple[float, float]]] = {}
        self.ended: set[str] = set()  # by themselves

    def add(self, event: StepEvent) -> None:
        for s in event.sampled:
            self.tokens.setdefault(s.request, array("q")).append(s.token_id)
            self.facts.setdefault(s.request, []).append((s.logprob or 0.0, s.margin or 0.0))
        self.ended |= {f.request for f in event.finished if f.finish_reason in ("length", "stop")}


def _compare_models(here: Header, on_record: Header) -> None:
    """Raises InvalidTrace if the model is not the one that the header describes. How its attention was reached depends on the engine."""
    for name in (f.name for f in fields(ModelFacts)):
        is_shared = on_record.tensor_parallel > 1 and name in ("parameters", "kv_bytes_per_token")
        if name in ("name", "plug", "more") or is_shared:
            continue
        recorded, found = getattr(on_record.model, name), getattr(here.model, name)
        if recorded is not None and recorded != found:
            raise InvalidTrace(f"the model's {name} is {shown(recorded)} on record, and {shown(found)} here.", 1)


def _rerun(engine: EngineCore, header: Header, written: _Written) -> int:
    """Run the requests again, all arriving at once, and compare the outputs; returns the number of tokens compared.

    Requests share different batches than in the recording, which must not change a token: that is the engine's promise, tested here. If
    requests read each other's keys, batches do matter, so they arrive as recorded.
    """
    _compare_models(engine.trace.header, header)
    if header.leak and (header.is_interactive or header.is_asynchronous or not header.counts_steps):
        raise InflightError(
            "Requests read each other's keys in this run: to be run again they would have to arrive in the same steps."
        )
    asked = [
        replace(request, prompt=None, prompt_token_ids=tuple(prompt), arrival=request.arrival if header.leak else 0)
        for request, prompt in written.asked
        if request.id in written.tokens
    ]
    again = _Written()
    for event in engine.stream(Workload(asked, name="rerun")):
        again.add(event)
    most = _ROUNDED if header.dtype in ("float32", "float64") else _ROUNDED_SHORT
    for request, tokens in written.tokens.items():
        if request in written.ended and len(again.tokens[request]) > len(tokens):
            raise InvalidTrace(f"request {request!r} ends after {len(tokens)} tokens on record, and the model goes on.")
        for position, token in enumerate(tokens):
            theirs = again.tokens[request]
            where = f"new token {position} of request {request!r}"
            if position >= len(theirs) or theirs[position] != token:
                other = theirs[position] if position < len(theirs) else "none"
                raise InvalidTrace(f"{where} is {token} on record, and the model writes {other}.")
            pairs = zip(written.facts[request][position], again.facts[request][position], strict=True)
            if any(abs(a - b) > most for a, b in pairs):
                raise InvalidTrace(f"the probability of {where} is not what the model gives it.")
    return sum(map(len, written.tokens.values()))
