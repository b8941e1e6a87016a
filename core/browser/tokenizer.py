"""The tokenizer of a model of the tab in plain Python, read from its tokenizer.json: the same ids
and texts as the `tokenizers` library gives.

Two kinds are known: byte-level BPE, digits one by one before it or not, and one token a character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

from core.browser.chat import Between, written
from core.errors import UnsupportedModel

# GPT-2's words: a contraction, letters, digits or other signs with one blank before them, blanks.
# Looked for in a text's shadow, see `_shadow`.
_WORDS = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)
_DIGITS = re.compile("[0-9]|[^0-9]+", re.ASCII)
# what a text is cut by, one after the other: by the kind of the model and of the steps before it
_CUTS: dict[tuple[str, ...], tuple[re.Pattern[str], ...]] = {
    ("BPE", "ByteLevel"): (_WORDS,),
    ("BPE", "Digits", "ByteLevel"): (_DIGITS, _WORDS),
    ("WordLevel", "Split"): (),
}
_ALIKE = {"L": "a", "N": "1", "Z": "\t"}  # by the first letter of a character's category


def _shadow(text: str) -> str:
    """The text with an ASCII character of the same kind for every other one: `re` knows no
    categories of Unicode.
    """
    if text.isascii():
        return text
    return "".join(
        c if c < "\x80" else "\t" if c == "\x85" else _ALIKE.get(unicodedata.category(c)[0], "!")
        for c in text
    )


def byte_characters() -> dict[int, str]:
    """The character that stands for each byte: itself if it can be seen, otherwise one from 256
    on.
    """
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {
        byte: chr(256 + place) for place, byte in enumerate(unseen)
    }


class PlainTokenizer:
    """What an engine asks of a tokenizer. text: of a tokenizer.json. between: how its model's chat
    template writes, see `core.browser.chat`, where it has one. Raises UnsupportedModel for a kind
    that is not known.
    """

    unk_token = unk_token_id = None

    def __init__(self, text: str, between: Between | None = None) -> None:
        self.chat_text = partial(written, between) if between else None
        data = json.loads(text)
        kind, before = data["model"]["type"], data["pre_tokenizer"] or {}
        steps = [step["type"] for step in before.get("pretokenizers", [before] if before else [])]
        if (kind, *steps) not in _CUTS or data["normalizer"]:
            raise UnsupportedModel(
                f"A tokenizer of the kind {kind} with {' and '.join(steps) or 'no'} steps before it"
                " cannot be read here."
            )
        self._cuts = _CUTS[(kind, *steps)]
        self._ids: dict[str, int] = data["model"]["vocab"]
        self._special = {t["content"]: t["id"] for t in data["added_tokens"]}
        self._by_bytes = kind == "BPE"
        merges = data["model"].get("merges", ())
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self._characters = byte_characters()
        bytes_of = (
            {character: byte for byte, character in self._characters.items()}
            if self._by_bytes
            else {}
        )
        self._bytes = {
            i: bytes(bytes_of[c] for c in token) if bytes_of else token.encode()
            for token, i in (self._ids | self._special).items()
        }
        self._known: dict[str, list[int]] = {}  # ids of words met before
        self._specials = (
            re.compile(f"({'|'.join(re.escape(s) for s in sorted(self._special, reverse=True))})")
            if self._special
            else None
        )

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """`{"input_ids"}` of a text. A byte that has no token is left out; where characters have
        tokens, one without raises KeyError.
        """
        ids: list[int] = []
        for part in self._specials.split(text) if self._specials else (text,):
            if part in self._special:
                ids.append(self._special[part])
            elif self._by_bytes:
                for word in self._words(part):
                    ids += self._ids_of(word)
            else:
                ids += [self._ids[character] for character in part]
        return {"input_ids": ids}

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text of some ids; bytes that make no character become U+FFFD, and an id that is no
        token is left out.
        """
        special = self._special.values() if skip_special_tokens else ()
        return b"".join([self._bytes.get(i, b"") for i in token_ids if i not in special]).decode(
            errors="replace"
        )

    def _words(self, text: str) -> list[str]:
        words = [text]
        for cut in self._cuts:
            words = [
                word[found.start() : found.end()]
                for word in words
                for found in cut.finditer(_shadow(word))
            ]
        return words

    def _ids_of(self, word: str) -> list[int]:
        """The ids of a word: its bytes, merged pair by pair, the earliest learned pair first."""
        if word not in self._known:
            characters = (self._characters[byte] for byte in word.encode())
            parts = [character for character in characters if character in self._ids]
            while len(parts) > 1:
                pairs = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(parts)]
                rank = min(pairs)
                if rank == len(self._ranks):
                    break
                at = pairs.index(rank)
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            self._known[word] = [self._ids[part] for part in parts]
        return self._known[word]
