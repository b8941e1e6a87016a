"""What a client sees of an answer: its text without special tokens, cut at a stop string. Decodes nothing: it is handed pieces of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class ClientText:
    """Feeds on one answer's pieces. special: the texts of special tokens. Text that may be the beginning of a stop string is held back until that
    is decided.
    """

    def __init__(self, stop: Sequence[str], special: Mapping[int, str]) -> None:
        self._stop, self._special = tuple(stop), special
        self._held, self._over = "", False

    def add(self, token_id: int, piece: str) -> str:
        """The text that may be shown now. piece: what the token adds to the answer."""
        return self._show(piece.removesuffix(self._special.get(token_id, "")))

    def finish(self, rest: str) -> str:
        """What was held back. rest: what follows the last piece."""
        text = self._show(rest)
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
