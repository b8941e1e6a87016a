"""Turns token ids into the text that a client sees, without special tokens and cut at a stop string. Knows no request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.trace.detokenize import Detokenizer


class ClientText:
    """Feeds on one answer's ids. context: the prompt's ids. Text that may be the beginning of a stop string is held back until that is decided."""

    def __init__(self, tokenizer: Any | None, stop: Sequence[str] = (), context: Sequence[int] = ()) -> None:
        self._detokenizer, self._stop = Detokenizer(tokenizer, context), tuple(stop)
        self._special = frozenset(tokenizer.all_special_ids if tokenizer is not None else ())
        self._held, self._over = "", False

    def add(self, token_id: int) -> str:
        """The text that may be shown now."""
        if token_id in self._special:
            return ""
        return self._show(self._detokenizer.add(token_id))

    def finish(self) -> str:
        """What was held back."""
        text = self._show(self._detokenizer.finish())
        text, self._held = text + self._held, ""
        return text

    def _show(self, piece: str) -> str:
        if self._over:
            return ""
        text = self._held + piece
        found = [at for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            self._held, self._over = "", True
            return text[: min(found)]
        held = max((_overlap(text, s) for s in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that `stop` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
