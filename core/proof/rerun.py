"""Computes the tokens of a trace again with its model, and compares them with the record."""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from core.engine.engine import EngineCore
from core.engine.runner import SamplingRow, observing
from core.errors import InflightError, InvalidTrace, shown
from core.trace.events import StepEvent
from core.trace.file import TokenizedRequest
from core.trace.header import Header, ModelFacts
from core.workload.request import Request
from core.workload.workload import Workload

# the most by which logits of a model may differ between machines and batches in float32
_ROUNDED = 1e-3
_ROUNDED_SHORT = 0.25  # and in 16 bits


@dataclass(frozen=True)
class RerunResult:
    """What the model computed again. tokens: how many are the model's; `ties` of them are not the
    best here, but less than `rounding` behind it in their logits. parted: tokens in 16 bits, chosen
    with temperature or penalties, that differ here; with penalties also all later ones. drawn:
    tokens drawn with another engine's noise, which were not compared. failed: requests that ended
    by an error after tokens that parted, so that the error cannot be confirmed. apart: the most by
    which a recorded log-probability or margin differs from the model's, which is less than
    `rounding`; None if none are recorded. facts: those of the model that are the same here.
    """

    tokens: int
    ties: int
    parted: int
    drawn: int
    failed: int
    rounding: float
    apart: float | None
    facts: tuple[str, ...]


class _WrittenTokens:
    """Each request's tokens with log-probability and margin, and how it ended."""

    def __init__(self) -> None:
        self.tokens: dict[str, array[int]] = {}
        self.facts: dict[str, list[tuple[float | None, float | None]]] = {}
        self.ends: dict[str, str] = {}

    def add(self, event: StepEvent) -> None:
        unseen = [(None, None)] * (len(event.tokens) - len(event.sampled))
        known = [(s.logprob, s.margin) for s in event.sampled]
        for (request, token), facts in zip(event.tokens, [*unseen, *known], strict=True):
            self.tokens.setdefault(request, array("q")).append(token)
            self.facts.setdefault(request, []).append(facts)
        self.ends |= {f.request: f.finish_reason for f in event.ends}


class ModelRerun:
    """Runs the requests again, all arriving at once, and compares the outputs with the record.

    Batches differ from those of the recording, which must not change a token: this tests the
    engine's promise. If requests read each other's keys, batches do matter, so requests arrive as
    recorded. For another engine less can be compared: its noise is different, and the reasons for
    ends are not recorded; so only tokens that were the most probable are compared. Another machine
    may choose a token that is behind the best by no more than rounding: the request then continues
    from the recorded token. In 16 bits a draw close to another may also differ, and no recorded
    margin tells this from an exchanged token: such tokens are counted. Raises InvalidTrace if the
    model is not the one of the header, and InflightError if its requests cannot arrive as they did.
    """

    def __init__(self, engine: EngineCore, header: Header) -> None:
        self.asked: list[TokenizedRequest] = []
        self.on_record = _WrittenTokens()
        self._engine, self._header, self._own = engine, header, header.engine is None
        # another engine may have computed in a format that we do not know
        is_whole = header.dtype not in ("float16", "bfloat16")
        is_whole &= self._own or header.dtype in ("float32", "float64")
        self._rounding = _ROUNDED if is_whole else _ROUNDED_SHORT
        self._facts = tuple(_same_facts(engine.trace.header, header))
        # by request and new token: how far the logit of the one on record is behind the best
        self._behind: dict[tuple[str, int], float] = {}
        self._num_prompt: dict[str, int] = {}
        self._ties = self._parted = self._failed = 0
        self._apart: float | None = None
        if header.leak and (
            header.is_interactive or header.is_asynchronous or not header.counts_steps
        ):
            raise InflightError(
                "Requests read each other's keys in this run: to be run again they would have to"
                " arrive in the same steps."
            )

    def run(self) -> RerunResult:
        """Raises InvalidTrace for the first output that is not the model's."""
        record, to_run, drawn = self.on_record, list[tuple[Request, int]](), 0
        for request, prompt in self.asked:
            self._num_prompt[request.id] = len(prompt)
            tokens = record.tokens.get(request.id, ())
            if not self._own and request.sampling.temperature > 0:
                drawn += len(tokens)
            elif tokens or (self._own and record.ends.get(request.id) == "error"):
                again = request.of_tokens(prompt)
                if not self._header.leak:  # here it may wait longer than its client would
                    again = replace(again, arrival=0, leaves_after=None)
                if not self._own:
                    again = replace(again, sampling=request.sampling.to_length(len(tokens)))
                to_run.append((again, 0))
        num_tokens = sum(len(record.tokens.get(request.id, ())) for request, _ in to_run)
        while to_run:
            here = _WrittenTokens()
            workload = Workload([request for request, _ in to_run], name="rerun")
            with observing(self._observe):
                for event in self._engine.stream(workload):
                    here.add(event)
            to_run = [
                more for request, known in to_run if (more := self._compare(request, known, here))
            ]
        return RerunResult(
            tokens=num_tokens,
            ties=self._ties,
            parted=self._parted,
            drawn=drawn,
            failed=self._failed,
            rounding=self._rounding,
            apart=self._apart,
            facts=self._facts,
        )

    def _observe(self, rows: Sequence[SamplingRow], logits: Any) -> None:
        """Keep how far recorded tokens are behind, if nothing but these logits chooses them."""
        for row, own in zip(rows, logits, strict=True):
            tokens = self.on_record.tokens.get(row.request, ())
            position = row.position - self._num_prompt[row.request]
            is_drawn = row.params.temperature or row.params.looks_back or self._header.leak
            if not is_drawn and position < len(tokens):
                scores, token = own.detach().float().clone(), tokens[position]
                for biased, bias in row.params.logit_bias:
                    scores[biased] += bias
                self._behind[row.request, position] = (
                    float(scores.max() - scores[token]) if token < len(scores) else math.inf
                )

    def _compare(
        self, asked: Request, known: int, here: _WrittenTokens
    ) -> tuple[Request, int] | None:
        """Compare a request's tokens from `known` on; returns what to run next, and from where."""
        request, record = asked.id, self.on_record
        tokens, ours = record.tokens.get(request, array("q")), here.tokens.get(request, array("q"))
        for position in range(known, len(tokens)):
            where = f"new token {position} of request {request!r}"
            if position - known >= len(ours):
                raise InvalidTrace(
                    f"{where} is {tokens[position]} on record, and the model writes none."
                )
            found = here.facts[request][position - known]
            is_other = ours[position - known] != tokens[position]
            may_part = is_other and self._may_part(asked, found[1])
            pairs = list(zip(found, record.facts[request][position], strict=True))
            for mine, theirs in pairs[may_part:]:  # not the other token's
                if theirs is None:
                    continue
                self._apart = max(self._apart or 0.0, abs((mine or 0.0) - theirs))
                if self._apart > self._rounding:
                    raise InvalidTrace(
                        f"the probability of {where} is not what the model gives it."
                    )
            if may_part and asked.sampling.looks_back:
                # those after it depend on what was generated
                self._parted += len(tokens) - position
                self._failed += record.ends.get(request) == "error"
                return None
            if may_part:
                self._parted += 1
                return self._from(asked, known, position + 1)
            if is_other:
                # where numbers are rounded otherwise, it may have been the best
                if not self._behind.get((request, position), math.inf) <= self._rounding:
                    unless = (
                        "" if self._own else ", unless it was asked in a way that is not on record"
                    )
                    raise InvalidTrace(
                        f"{where} is {tokens[position]} on record, and the model writes"
                        f" {ours[position - known]}{unless}."
                    )
                self._ties += 1
                return self._from(asked, known, position + 1)
        ended, ends_here = record.ends.get(request), here.ends.get(request)
        # whoever was run on does not see a stop string that began before
        sees_stop = not (known and asked.sampling.stop)
        if ended in ("length", "stop") and sees_stop and len(ours) > len(tokens) - known:
            raise InvalidTrace(
                f"request {request!r} ends after {len(tokens)} tokens on record, and the model"
                " goes on."
            )
        if ended == "error" and ends_here != "error" and self._own:
            raise InvalidTrace(
                f"the logits of request {request!r} were not finite on record, and the model's are."
            )
        return None

    def _may_part(self, asked: Request, margin: float | None) -> bool:
        """Whether rounding to 16 bits may have changed a choice by temperature or penalties."""
        sampling = asked.sampling
        is_near = bool(sampling.temperature) or (
            sampling.looks_back and (margin or 0.0) <= self._rounding
        )
        return is_near and self._own and not self._header.leak and self._rounding == _ROUNDED_SHORT

    def _from(self, asked: Request, known: int, position: int) -> tuple[Request, int] | None:
        """The rest of a request, from `position` on, after the recorded tokens; None if empty."""
        tokens = self.on_record.tokens[asked.id]
        most = asked.sampling.max_new_tokens - (position - known)
        if position == len(tokens) and self.on_record.ends.get(asked.id) != "error":
            return None  # how it ended, the scheduler has decided again
        taken = tuple(tokens[known:position])
        prompt = (*(asked.prompt_token_ids or ()), *taken)
        sampling = replace(asked.sampling, max_new_tokens=most)
        return replace(asked, prompt_token_ids=prompt, sampling=sampling), position


def _same_facts(here: Header, on_record: Header) -> Iterator[str]:
    """The recorded facts of the model that are the same here; raises InvalidTrace for one that is
    not. How attention is connected depends on the engine; another engine may lay out its cache
    differently and limit the context.
    """
    for name in (f.name for f in fields(ModelFacts)):
        if name in ("name", "plug", "more") or (on_record.engine and name == "kv_bytes_per_token"):
            continue
        recorded, found = getattr(on_record.model, name), getattr(here.model, name)
        if name == "kv_bytes_per_token":
            recorded *= on_record.tensor_parallel  # the heads are divided evenly
        if (
            name == "parameters"
            and recorded
            and recorded < found <= recorded * on_record.tensor_parallel
        ):
            continue  # those of one process
        if recorded is None and (on_record.engine or found is None):
            continue
        if recorded != found and not (
            on_record.engine and name == "context" and (found is None or recorded < found)
        ):
            raise InvalidTrace(
                f"the model's {name} is {shown(recorded)} on record, and {shown(found)} here.", 1
            )
        yield name
