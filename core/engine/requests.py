"""Checks of requests before they run: whether a request can run at all."""

from collections.abc import Sequence
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidRequest, TooLong
from core.trace.header import ModelFacts
from core.trace.messages import english
from core.workload.chat import chat_ids, chat_text, encoded
from core.workload.request import Request


def validate_request(
    request: Request, model: ModelFacts, tokenizer: Any | None, config: EngineConfig
) -> tuple[int, ...]:
    """The prompt's token ids. Raises InvalidRequest if this model cannot run the request under
    these limits, because of its characters, token ids or length.

    No other code checks a prompt: `Engine.add_request` takes ids that have passed this check.
    """
    ids = prompt_ids(request, tokenizer)
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
            english(
                f"{len(ids)} prompt [token|tokens] and {new} new [one|ones] exceed the model's"
                f" context of {context}."
            ),
            request.id,
            param="prompt",
        )
    budget = config.max_num_batched_tokens
    if config.policy.token_budget and not config.chunked_prefill and len(ids) > budget:
        raise TooLong(
            f"without chunked prefill a prompt of {len(ids)} tokens never fits the budget of"
            f" {budget}.",
            request.id,
            param="prompt",
        )
    if request.sampling.stop and tokenizer is None:
        raise InvalidRequest("stop strings need a tokenizer.", request.id, param="stop")
    return ids


def check_room(
    request: Request, prompt: Sequence[int], num_blocks: int, block_size: int, sized: str = ""
) -> None:
    """Raises TooLong for a request that needs more than the whole KV pool. prompt: its token ids.
    sized: a phrase that says how the size of the pool was chosen.
    """
    new = request.sampling.max_new_tokens
    if len(prompt) + new > num_blocks * block_size:
        raise TooLong(
            english(
                f"{len(prompt)} prompt [token|tokens] and {new} new [one|ones] exceed the whole KV"
                f" pool of {num_blocks} [block|blocks] of {block_size} [token|tokens]"
            )
            + f"{'; ' + sized if sized else ''}.",
            request.id,
            param="prompt",
        )


def prompt_ids(request: Request, tokenizer: Any | None) -> tuple[int, ...]:
    """The prompt's token ids: as given, or those of the text, or of the messages as the model's
    chat template writes them. Raises InvalidRequest if the tokenizer or the template refuses it.
    """
    if request.prompt_token_ids is not None:
        return tuple(request.prompt_token_ids)
    try:
        if tokenizer is None:
            why = "a text prompt needs a tokenizer; give prompt_token_ids."
            raise InvalidRequest(why, param="prompt")
        if request.prompt is not None:
            return _encode(request.prompt, tokenizer)
        return chat_ids(tokenizer, chat_text(tokenizer, request.messages or ()))
    except InvalidRequest as error:
        raise error.called(request.id) from None


def _encode(prompt: str, tokenizer: Any) -> tuple[int, ...]:
    ids = encoded(tokenizer, prompt)
    unknown = tokenizer.unk_token_id
    if ids is None or (unknown in ids and tokenizer.unk_token not in prompt):
        unknown_ones = _unknown_characters(tokenizer, prompt)
        raise InvalidRequest(f"the tokenizer cannot encode {unknown_ones}.", param="prompt")
    if not ids:
        raise InvalidRequest("the tokenizer turns the prompt into no tokens.", param="prompt")
    return ids


def _unknown_characters(tokenizer: Any, prompt: str) -> str:
    """The part of a prompt that the tokenizer cannot encode, in words."""

    def is_unknown(character: str) -> bool:
        ids = encoded(tokenizer, character)
        return not ids or tokenizer.unk_token_id in ids

    unknown = [c for c in dict.fromkeys(prompt) if is_unknown(c)]
    return "the characters " + " ".join(repr(c) for c in unknown[:5]) if unknown else "the prompt"
