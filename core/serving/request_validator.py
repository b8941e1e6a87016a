"""Checks what clients send before it reaches the engine: prompts, sampling, nicknames, and how many requests each client may have in progress.

Everything here may be called from any thread.
"""

from __future__ import annotations

import copy
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.engine.requests import validate_request
from core.errors import InvalidRequest, TooManyRequests
from core.models.tokenizer import chat_ids
from core.serving.limits import ServingLimits
from core.workload.request import Request, SamplingParams

_IN_NICKNAMES = frozenset(" -_.'")
_BOT = re.compile(r"bot\d*")  # without spaces and marks
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)  # invisible letters and marks


class CheckedPrompt(tuple[int, ...]):
    """Token ids that have passed the check. config: the limits under which they did."""

    config: EngineConfig

    @classmethod
    def of(cls, ids: Sequence[int], config: EngineConfig) -> CheckedPrompt:
        made = cls(ids)
        made.config = config
        return made


class RequestValidator:
    """name: what clients call the model."""

    def __init__(self, engine: EngineCore, limits: ServingLimits, name: str) -> None:
        self._model, self._limits, self._name = engine.model, limits, name
        self._tokenizer, self._encoding = copy.deepcopy(engine.tokenizer), threading.Lock()  # tokenizers are not thread-safe
        self._under_way: Counter[str] = Counter()  # by client
        self._counting = threading.Lock()

    def check(self, prompt: str | Sequence[int], sampling: SamplingParams, config: EngineConfig) -> CheckedPrompt:
        """The prompt's token ids; raises InvalidRequest if this server would not run it. May take a while: not for an event loop.

        config: the engine's. Prompts are checked only here: the engine's thread repeats it only if its limits have changed since.
        """
        limits = self._limits
        if isinstance(prompt, str) and len(prompt) > 64 * limits.max_prompt_tokens:  # not worth tokenizing
            raise InvalidRequest(
                f"The prompt has {len(prompt):,} characters; at most {limits.max_prompt_tokens:,} tokens are taken."
            )
        if sampling.max_new_tokens > limits.max_new_tokens:
            raise InvalidRequest(f"At most {limits.max_new_tokens:,} new tokens are written, not {sampling.max_new_tokens:,}.")
        if len(sampling.stop) > limits.max_stop_strings or any(len(s) > limits.max_stop_characters for s in sampling.stop):
            raise InvalidRequest(
                f"At most {limits.max_stop_strings} stop strings of at most {limits.max_stop_characters} characters are taken."
            )
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
        try:
            request = Request("r", sampling=sampling, **given)
            with self._encoding:
                ids = validate_request(request, self._model, self._tokenizer, config)
        except InvalidRequest as error:
            raise InvalidRequest(as_sentence(error.message)) from None
        if len(ids) > limits.max_prompt_tokens:
            raise InvalidRequest(f"The prompt has {len(ids):,} tokens; at most {limits.max_prompt_tokens:,} are taken.")
        return CheckedPrompt.of(ids, config)

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """A conversation as the model's own template writes it; raises InvalidRequest if the model has none or it does not accept the messages."""
        if self._tokenizer is None or not self._tokenizer.chat_template:
            raise InvalidRequest(f"The model {self._name} has no chat template; use /v1/completions.")
        with self._encoding:
            return chat_ids(self._tokenizer, messages)

    def nickname(self, given: str | None) -> str | None:
        """The nickname as plain text of a few characters, None if nothing is left; raises InvalidRequest for anything else, and for a bot's."""
        name = " ".join(unicodedata.normalize("NFC", given or "").split(" ")).strip()
        most = self._limits.max_nickname_characters
        kinds = "".join(unicodedata.category(c)[0] for c in name)
        if (
            len(unicodedata.normalize("NFKC", name)) > most  # its displayed width
            or not all(kind in "LMN" or c in _IN_NICKNAMES for kind, c in zip(kinds, name, strict=True))
            or _UNSEEN.search(name)
            or kinds.startswith("M")
            or "MMMM" in kinds  # no script stacks so many marks
        ):
            raise InvalidRequest(f"A nickname has at most {most} letters, digits, spaces and the characters - _ . and '.")
        if _BOT.fullmatch("".join(c for c in unicodedata.normalize("NFKC", name).casefold() if c.isalnum())):
            raise InvalidRequest("Only bots are called Bot: choose another name.")
        return name or None

    @contextmanager
    def tokenizer(self) -> Iterator[Any]:
        """The tokenizer, locked for the caller."""
        with self._encoding:
            yield self._tokenizer

    # -- places ------------------------------------------------------------------------------------------------------

    @property
    def num_under_way(self) -> int:
        return self._under_way.total()

    def acquire_slot(self, client: str) -> None:
        """Raises TooManyRequests if there is none."""
        limits = self._limits
        with self._counting:
            if self._under_way.total() >= limits.max_requests:
                raise TooManyRequests(f"{limits.max_requests:,} requests are in progress, which is this server's limit.")
            if self._under_way[client] >= limits.max_requests_per_client:
                raise TooManyRequests(
                    f"{limits.max_requests_per_client:,} of your requests are in progress, which is the limit per client."
                )
            self._under_way[client] += 1

    def release_slot(self, client: str) -> None:
        with self._counting:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]


def as_sentence(message: str) -> str:
    return message[:1].upper() + message[1:]
