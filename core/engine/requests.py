"""Requests before they run: whether one can run at all, and those that were accepted but have not arrived yet."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidRequest, TooLong
from core.scheduler.state import RequestState
from core.trace.header import ModelFacts
from core.workload.request import Request


def validate_request(
    request: Request, model: ModelFacts, tokenizer: Any | None, config: EngineConfig
) -> tuple[int, ...]:
    """The prompt's token ids; raises InvalidRequest if this model cannot run it under these limits, by its characters, token ids or length.

    The one check of a prompt: `Engine.add_request` takes the ids of a request that has passed it.
    """
    ids = (
        _encode(request.id, request.prompt, tokenizer)
        if request.prompt is not None
        else request.prompt_token_ids or ()
    )
    vocab_size, context = model.vocab_size or 2**31, model.context
    outside = next((i for i in ids if not 0 <= i < vocab_size), None)
    if outside is not None:
        raise InvalidRequest(
            f"token id {outside} is outside the vocabulary of {vocab_size}.",
            request.id,
            param="prompt",
        )
    biased = next((i for i, _ in request.sampling.logit_bias if i >= vocab_size), None)
    if biased is not None:
        raise InvalidRequest(
            f"token id {biased} in logit_bias is outside the vocabulary of {vocab_size}.",
            request.id,
            param="logit_bias",
        )
    new = request.sampling.max_new_tokens
    if context is not None and len(ids) + new > context:
        raise TooLong(
            f"{len(ids)} prompt tokens and {new} new ones exceed the model's context of {context}.",
            request.id,
            param="prompt",
        )
    budget = config.max_num_batched_tokens
    if config.policy.token_budget and not config.chunked_prefill and len(ids) > budget:
        raise TooLong(
            f"without chunked prefill a prompt of {len(ids)} tokens never fits the budget of {budget}.",
            request.id,
            param="prompt",
        )
    if request.sampling.stop and tokenizer is None:
        raise InvalidRequest("stop strings need a tokenizer.", request.id, param="stop")
    return ids


def check_room(
    request: Request, prompt: Sequence[int], num_blocks: int, block_size: int, sized: str = ""
) -> None:
    """Raises TooLong for a request that needs more than the whole KV pool. prompt: its token ids. sized: how the pool came by its size, in words."""
    new = request.sampling.max_new_tokens
    if len(prompt) + new > num_blocks * block_size:
        raise TooLong(
            f"{len(prompt)} prompt tokens and {new} new ones exceed the whole KV pool of {num_blocks} blocks of {block_size} tokens"
            f"{'; ' + sized if sized else ''}.",
            request.id,
            param="prompt",
        )


def _encode(request: str, prompt: str, tokenizer: Any) -> tuple[int, ...]:
    if tokenizer is None:
        raise InvalidRequest(
            "a text prompt needs a tokenizer; give prompt_token_ids.", request, param="prompt"
        )
    try:
        ids: tuple[int, ...] | None = tuple(tokenizer(prompt)["input_ids"])
    except Exception:  # the tokenizers library signals unknown characters by bare exceptions
        ids = None
    unknown = tokenizer.unk_token_id
    if ids is None or (unknown in ids and tokenizer.unk_token not in prompt):
        raise InvalidRequest(
            f"the tokenizer cannot encode {_unknown_characters(tokenizer, prompt)}.",
            request,
            param="prompt",
        )
    if not ids:
        raise InvalidRequest(
            "the tokenizer turns the prompt into no tokens.", request, param="prompt"
        )
    return ids


def _unknown_characters(tokenizer: Any, prompt: str) -> str:
    """The part of a prompt that the tokenizer cannot encode, in words."""

    def is_unknown(character: str) -> bool:
        try:
            ids = tokenizer(character)["input_ids"]
        except Exception:
            return True
        return not ids or tokenizer.unk_token_id in ids

    unknown = [c for c in dict.fromkeys(prompt) if is_unknown(c)]
    return "the characters " + " ".join(repr(c) for c in unknown[:5]) if unknown else "the prompt"


class Pending:
    """Arrivals count in the unit of the run, steps or seconds."""

    def __init__(self) -> None:
        self._states: list[
            tuple[float, int, RequestState]
        ] = []  # a heap: by arrival, then by order

    def __bool__(self) -> bool:
        return bool(self._states)

    @property
    def next_arrival(self) -> float:
        """When the next request arrives; there must be one."""
        return self._states[0][0]

    def add(self, state: RequestState) -> None:
        """Take in a request that has not arrived."""
        heappush(self._states, (state.request.arrival, state.arrival_index, state))

    def take_due(self, now: float) -> list[RequestState]:
        """Take out the requests whose arrival has come, in order."""
        due = []
        while self._states and self._states[0][0] <= now:
            due.append(heappop(self._states)[2])
        return due

    def withdraw(self, state: RequestState) -> bool:
        """Take out a request before its arrival; False if it has arrived."""
        left = [entry for entry in self._states if entry[2] is not state]
        if len(left) == len(self._states):
            return False
        heapify(left)
        self._states = left
        return True
