"""Checks what clients send, before the engine does: prompts, sampling parameters, nicknames.

A `RequestValidator` may be called from any thread, with a tokenizer that belongs to the caller.
Prompts are tokenized one at a time (`TokenizingQueue`), because tokenizers are not thread-safe.
"""

import asyncio
import heapq
import itertools
import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.engine.requests import validate_request
from core.errors import InvalidRequest, TooLong
from core.serving.limits import ServingLimits
from core.torch_engine.models.tokenizer import longest_token
from core.workload.chat import chat_ids, chat_text, has_template
from core.workload.request import Message, Request, SamplingParams

_IN_NICKNAMES = frozenset(" -_.'")
_BOT = re.compile(r"b[o0]t[\dl]*")  # without spaces and marks
_LIKE = str.maketrans("оοօߋвβᏴтτ", "oooobbbtt")  # letters of other scripts
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)  # invisible letters and marks


class CheckedPrompt(tuple[int, ...]):
    """Token ids that have passed the check. config: the limits under which they passed."""

    config: EngineConfig

    @classmethod
    def of(cls, ids: Sequence[int], config: EngineConfig) -> Self:
        """Ids that have passed the check under these limits."""
        made = cls(ids)
        made.config = config
        return made


class RequestValidator:
    """name: the name by which clients call the model. has_template: whether the model has a chat
    template. It only reads and refuses; it counts and keeps nothing.
    """

    def __init__(self, engine: EngineCore, limits: ServingLimits, name: str) -> None:
        self._model, self._limits, self._name = engine.model, limits, name
        self._longest = longest_token(engine.tokenizer)
        self.has_template = has_template(engine.tokenizer)

    def check(
        self,
        prompt: str | Sequence[int],
        sampling: SamplingParams,
        config: EngineConfig,
        tokenizer: Any,
    ) -> CheckedPrompt:
        """The prompt's token ids; raises InvalidRequest if this server would not run it.

        config: the engine's. tokenizer: used for a text, which may take a while. Prompts are
        checked only here; the engine's thread repeats the check only if limits have changed.
        """
        limits = self._limits
        if sampling.max_new_tokens > limits.max_new_tokens:
            raise InvalidRequest(
                f"At most {limits.max_new_tokens:,} new tokens are written, not"
                f" {sampling.max_new_tokens:,}.",
                param="max_tokens",
            )
        if len(sampling.stop) > limits.max_stop_strings or any(
            len(s) > limits.max_stop_characters for s in sampling.stop
        ):
            raise InvalidRequest(
                f"At most {limits.max_stop_strings} stop strings of at most"
                f" {limits.max_stop_characters} characters are taken.",
                param="stop",
            )
        if isinstance(prompt, str):
            self.check_bytes(prompt, sampling.max_new_tokens)
        else:
            self._check_tokens(len(prompt))
        given = (
            {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
        )
        try:
            ids = validate_request(
                Request("r", sampling=sampling, **given), self._model, tokenizer, config
            )
        except InvalidRequest as error:
            raise error.alone() from None
        self._check_tokens(len(ids))
        return CheckedPrompt.of(ids, config)

    def check_bytes(self, text: str, num_new: int = 1) -> None:
        """Raises InvalidRequest, without using the tokenizer, for a text that would have too many
        tokens even if all were the longest ones. num_new: the number of new tokens.
        """
        if self._longest is None:
            return
        # halves of surrogate pairs are refused later, by name
        size, context = len(text.encode(errors="replace")), self._model.context
        least = -(-size // self._longest)
        if context is not None and least + num_new > context:
            raise TooLong(
                f"At least {least} prompt tokens and {num_new} new ones exceed the model's context"
                f" of {context}.",
                param="prompt",
            )
        if least > self._limits.max_prompt_tokens:
            raise TooLong(
                f"The prompt has at least {least:,} tokens; at most"
                f" {self._limits.max_prompt_tokens:,} are taken.",
                param="prompt",
            )

    def _check_tokens(self, count: int) -> None:
        if count > self._limits.max_prompt_tokens:
            raise TooLong(
                f"The prompt has {count:,} tokens; at most {self._limits.max_prompt_tokens:,} are"
                " taken.",
                param="prompt",
            )

    def check_chat(self) -> None:
        """Raises InvalidRequest if the model has no chat template."""
        if not self.has_template:
            raise InvalidRequest(
                f"The model {self._name} has no chat template; use /v1/completions."
            )

    def chat(self, messages: Sequence[Message], tokenizer: Any) -> tuple[int, ...]:
        """The token ids of a conversation, by the model's template; raises InvalidRequest."""
        try:
            text = chat_text(tokenizer, messages)
            self.check_bytes(text)
            return chat_ids(tokenizer, text)
        except InvalidRequest as error:
            raise error.alone() from None

    def nickname(self, given: str | None) -> str | None:
        """The nickname as plain text of a few characters, None if nothing is left. Raises
        InvalidRequest for anything else, and for a bot's name.
        """
        words = unicodedata.normalize("NFC", given or "").strip().split(" ")
        name = " ".join(filter(None, words))
        most = self._limits.max_nickname_characters
        kinds = "".join(unicodedata.category(c)[0] for c in name)
        if (
            len(unicodedata.normalize("NFKC", name)) > most  # its displayed width
            or not all(
                kind in "LMN" or c in _IN_NICKNAMES for kind, c in zip(kinds, name, strict=True)
            )
            or _UNSEEN.search(name)
            or kinds.startswith("M")
            or "MMMM" in kinds  # no script stacks so many marks
        ):
            raise InvalidRequest(
                f"A name has at most {most} letters, digits, spaces and the characters - _ ."
                " and '.",
                param="nickname",
            )
        plain = unicodedata.normalize("NFKC", name).casefold().translate(_LIKE)
        if _BOT.fullmatch("".join(filter(str.isalnum, plain))):
            raise InvalidRequest("Only bots are called Bot: choose another name.", param="nickname")
        return name or None


T = TypeVar("T")


class TokenizingQueue:
    """A queue in which the shortest waiting text is next, so that long texts delay others by no
    more than the one being tokenized.

    tokenizer: used only here. Its thread lives while there is work.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        # size and number of each; a heap
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._lock, self._at_work = threading.Lock(), False

    async def run(self, size: int, work: Callable[[Any], T]) -> T:
        """The result of `work`, called with the tokenizer unless cancelled. size: of its text."""
        done: Future[T] = Future()

        def do() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(self._tokenizer))
                except BaseException as error:
                    done.set_exception(error)

        with self._lock:
            heapq.heappush(self._waiting, (size, next(self._numbers), do))
            begin, self._at_work = not self._at_work, True
        if begin:
            threading.Thread(target=self._work, name="inflight-tokenizing", daemon=True).start()
        return await asyncio.wrap_future(done)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._at_work = False
                    return
                _, _, do = heapq.heappop(self._waiting)
            do()
