"""Token ids to text, piece by piece. A byte-level token is not text: its piece stays empty until the character is whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_REPLACEMENT = "\ufffd"
_CONTEXT = 6  # tokens decoded before the new one, so that tokenizers that look back (spaces, accents) see what they need


class Detokenizer:
    """Feeds on one sequence's ids; `tokenizer` is any transformers tokenizer, or None for models without one."""

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._read = 0  # ids whose text has been handed out

    def add(self, token_id: int) -> str:
        """The text that this token completes: its piece, often empty for a part of a character."""
        self._ids.append(token_id)
        if self._tokenizer is None:
            self._read = len(self._ids)
            return f"#{token_id} "
        start = max(0, self._read - _CONTEXT)
        before = self._decode(self._ids[start : self._read])
        now = self._decode(self._ids[start:])
        if now.endswith(_REPLACEMENT) and len(self._ids) - self._read < 4:  # a character has at most four bytes
            return ""
        self._read = len(self._ids)
        return now[len(before) :]

    def finish(self) -> str:
        """What was held back: a character that never became whole."""
        if self._read == len(self._ids):
            return ""
        start = max(0, self._read - _CONTEXT)
        text = self._decode(self._ids[start:])[len(self._decode(self._ids[start : self._read])) :]
        self._read = len(self._ids)
        return text

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def pieces(tokenizer: Any | None, token_ids: Iterable[int], context: Iterable[int] = ()) -> list[str]:
    """One piece of text for each token; joined they are the text. `context`: the tokens before them."""
    detokenizer = Detokenizer(tokenizer)
    for token in context:
        detokenizer.add(token)
    detokenizer.finish()
    result = [detokenizer.add(token) for token in token_ids]
    if result:
        result[-1] += detokenizer.finish()
    return result
