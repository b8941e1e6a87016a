"""Token ids to text, piece by piece; a token in the middle of a character has an empty piece."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from core.errors import InflightError

LEFT_OUT = -1  # in place of an id that was not recorded
_REPLACEMENT = "\ufffd"
# tokens decoded at a time: the new one, and the ones before it that affect how it decodes (spaces,
# accents, bytes)
_WINDOW = 10
_OWN = [
    "transformers.tokenization_utils_base",
    "transformers.tokenization_utils_tokenizers",
]  # modules of the methods not overridden
_PATIENCE = 3  # tokens that a character's bytes may stay incomplete: it has at most four


def plain(token_id: int) -> str:
    """The text shown for a token if its text is not known."""
    return "·" if token_id == LEFT_OUT else f"⟨{token_id}⟩"


def _decoder(tokenizer: Any | None) -> Callable[[list[int]], str]:
    """The tokenizer's function from ids to text. Where transformers adds nothing to the Rust core's
    decoding, the core is called directly: transformers takes three times as long.
    """
    if tokenizer is None:
        return lambda ids: ""
    if not callable(getattr(tokenizer, "decode", None)):
        raise InflightError(
            f"Texts are decoded by a tokenizer of transformers, not {type(tokenizer).__name__}."
        )
    modules = [
        getattr(getattr(type(tokenizer), name, None), "__module__", None)
        for name in ("decode", "_decode")
    ]
    if modules == _OWN:
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)
    return partial(tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)


class Detokenizer:
    """Decodes the ids of one sequence as they come. tokenizer: any transformers tokenizer, or None
    for a model without one.

    context: the ids before the sequence; they are ignored if they end inside a character.
    """

    def __init__(self, tokenizer: Any | None, context: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._text_of = _decoder(tokenizer)
        self._ids = list(context)[1 - _WINDOW :] if tokenizer is not None else []
        if self._decode(self._ids).endswith(_REPLACEMENT):
            self._ids = []
        self._held = 0  # characters at the end of the text that were not returned yet
        self._patience = _PATIENCE

    def add(self, token_id: int) -> str:
        """The text that this token completes; empty in the middle of a character."""
        if self._tokenizer is None:
            return f"#{token_id} "
        handed_out = len(self._decode(self._ids)) - self._held
        self._ids.append(token_id)
        text = self._decode(self._ids)[handed_out:]
        del self._ids[: 1 - _WINDOW]
        if not text.endswith(_REPLACEMENT):
            self._held, self._patience = 0, _PATIENCE
            return text
        # An incomplete character decodes to one replacement character or one per byte; invalid
        # bytes stay replaced.
        self._held = len(text) - len(text.rstrip(_REPLACEMENT)) if self._patience else 1
        self._patience = max(0, self._patience - 1)
        return text[: len(text) - self._held]

    def finish(self) -> str:
        """The text held back: a character that was never completed."""
        text = self._decode(self._ids)
        text, self._held = text[len(text) - self._held :], 0
        return text

    def _decode(self, ids: list[int]) -> str:
        return self._text_of(ids) if ids else ""


class AnswerText:
    """The text of one answer, decoded once, and whether it contains one of the `stop` strings."""

    def __init__(
        self, tokenizer: Any | None, stop: tuple[str, ...] = (), context: Iterable[int] = ()
    ) -> None:
        self._detokenizer, self._stop = Detokenizer(tokenizer, context), stop
        # characters before a piece that may belong to a stop string ending in it
        self._reach = max(map(len, stop), default=1) - 1
        self._tail = ""
        self.is_stopped = False

    def add(self, token_id: int) -> str:
        """The text that this token completes."""
        piece = self._detokenizer.add(token_id)
        if self._stop:
            text = self._tail + piece
            self._tail = text[len(text) - self._reach :] if self._reach < len(text) else text
            self.is_stopped = self.is_stopped or any(s in text for s in self._stop)
        return piece

    def finish(self) -> str:
        """The text held back: a character that was never completed."""
        return self._detokenizer.finish()


def pieces(
    tokenizer: Any | None, token_ids: Iterable[int], context: Iterable[int] = ()
) -> list[str]:
    """The piece of text for each token. context: the ids before the first token."""
    detokenizer = Detokenizer(tokenizer, context)
    result = [detokenizer.add(token) for token in token_ids]
    if result:
        result[-1] += detokenizer.finish()
    return result
