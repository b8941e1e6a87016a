"""Readers that turn tokens into text as they come: for stop strings, or for clients."""

from collections.abc import Sequence
from typing import Any, Protocol

from core.trace.detokenize import AnswerText
from core.workload.request import Request


class Outputs(Protocol):
    """A reader of tokens: the engine passes each on once, in the step that samples it."""

    def __len__(self) -> int:
        """The number of answers being read; if 0, no tokens are passed on."""

    def begin(self, request: Request, prompt: Sequence[int]) -> None:
        """A request was queued. prompt: its token ids."""

    def add(self, request: str, token_id: int) -> bool:
        """A token was sampled; returns whether one of the request's stop strings now ends it."""

    def end(self, request: str) -> None:
        """A request has finished, and its step is recorded."""

    def clear(self) -> None:
        """All requests were dropped."""


class StopStrings:
    """Decodes the answers of requests with stop strings, the only text that an engine needs.
    Without a tokenizer it decodes nothing.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[str, AnswerText] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def begin(self, request: Request, prompt: Sequence[int]) -> None:
        """See `Outputs`: a request without stop strings is not read."""
        if request.sampling.stop and self._tokenizer is not None:
            self._texts[request.id] = AnswerText(self._tokenizer, request.sampling.stop, prompt)

    def add(self, request: str, token_id: int) -> bool:
        """See `Outputs`."""
        text = self._texts.get(request)
        if text is None:
            return False
        text.add(token_id)
        return text.is_stopped

    def end(self, request: str) -> None:
        """See `Outputs`."""
        self._texts.pop(request, None)

    def clear(self) -> None:
        """See `Outputs`."""
        self._texts.clear()
