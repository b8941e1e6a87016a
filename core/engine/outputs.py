"""Who reads an engine's tokens as text while it takes its steps: for stop strings alone, or for everybody who is served. Knows no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from core.trace.detokenize import AnswerText
from core.workload.request import Request


class Outputs(Protocol):
    """An engine hands each token over once, in the step that draws it."""

    def __len__(self) -> int:
        """Answers that are read; without any, no token is handed over."""

    def begin(self, request: Request, prompt: Sequence[int]) -> None:
        """A request was queued. prompt: its token ids."""

    def add(self, request: str, token_id: int) -> bool:
        """A token was drawn; whether the request's text now contains one of its stop strings, which ends it."""

    def end(self, request: str) -> None:
        """A request has finished, and the step is on record."""

    def clear(self) -> None:
        """All work is dropped."""


class StopStrings:
    """Decodes the answers of requests that have stop strings: an engine itself needs no other text."""

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[str, AnswerText] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def begin(self, request: Request, prompt: Sequence[int]) -> None:
        if request.sampling.stop:
            self._texts[request.id] = AnswerText(self._tokenizer, request.sampling.stop, prompt)

    def add(self, request: str, token_id: int) -> bool:
        text = self._texts.get(request)
        if text is None:
            return False
        text.add(token_id)
        return text.is_stopped

    def end(self, request: str) -> None:
        self._texts.pop(request, None)

    def clear(self) -> None:
        self._texts.clear()
