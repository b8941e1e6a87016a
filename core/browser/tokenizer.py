"""The tokenizer of a model in a tab in plain Python, read from its tokenizer.json: it gives the
same ids and texts as the `tokenizers` library.

Two kinds are supported: byte-level BPE, if the patterns that split words depend only on the kinds
of characters, and one token per character.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from core.errors import UnsupportedModel
from core.workload.request import Message

# GPT-2's words: a contraction, letters, digits or other signs with one blank before them, blanks
_WORDS = r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS = r"\p{N}|[^\p{N}]+"
_ALIKE = {"L": "a", "N": "1", "Z": "\t"}  # by the first letter of a character's category


def _shadow(text: str) -> str:
    """The text with every non-ASCII character replaced by an ASCII one of the same kind, because
    `re` does not know the categories of Unicode.
    """
    if text.isascii():
        return text
    return "".join(
        c if c < "\x80" else "\t" if c == "\x85" else _ALIKE.get(unicodedata.category(c)[0], "!")
        for c in text
    )


def _for_shadows(pattern: str) -> re.Pattern[str]:
    """A pattern to be applied to the shadow of a text. Raises UnsupportedModel for one that depends
    on more than the kinds of characters.
    """
    made, inside = "", False
    for part in re.findall(r"\\[pP]\{\w+\}|\\.|.", pattern, re.DOTALL):
        inside = part == "[" or (inside and part != "]")
        kinds = {r"\p{L}": "A-Za-z", r"\p{N}": "0-9"}.get(part, part)
        if kinds.startswith((r"\p", r"\P")) or not part.isascii():
            raise UnsupportedModel(f"A tokenizer that cuts by {pattern} cannot be read here.")
        made += kinds if inside or kinds == part else f"[{kinds}]"
    return re.compile(made, re.ASCII)


def _pattern(step: Mapping[str, Any]) -> str | None:
    """The pattern by which one step before the merges splits a text; None if it does not split."""
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, **rest}:
            return _WORDS if rest.get("use_regex", True) else None
        case {"type": "Digits", "individual_digits": True}:
            return _DIGITS
        case {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }:
            return str(pattern)
    raise UnsupportedModel(f"A tokenizer with a step {step['type']} like that cannot be read here.")


def byte_characters() -> dict[int, str]:
    """The character for each byte: itself if it is printable, otherwise one from U+0100 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {
        byte: chr(256 + place) for place, byte in enumerate(unseen)
    }


class PlainTokenizer:
    """The methods of a tokenizer that an engine needs. made: the content of a tokenizer.json, as
    text or parsed. chat_text: writes conversations, if its model has messages. Raises
    UnsupportedModel for an unsupported kind.
    """

    unk_token = unk_token_id = None

    def __init__(
        self,
        made: str | Mapping[str, Any],
        chat_text: Callable[[Sequence[Message]], str] | None = None,
    ) -> None:
        data = json.loads(made) if isinstance(made, str) else made
        self.chat_text = chat_text
        kind, before, form = data["model"]["type"], data["pre_tokenizer"] or {}, data["normalizer"]
        steps = before.get("pretokenizers", [before] if before else [])
        self._by_bytes = kind == "BPE"
        if form not in (None, {"type": "NFC"}) or not (self._by_bytes or kind == "WordLevel"):
            raise UnsupportedModel(f"A tokenizer of the kind {kind} like that cannot be read here.")
        patterns = map(_pattern, steps) if self._by_bytes else ()
        self._cuts = [_for_shadows(pattern) for pattern in patterns if pattern]
        self._composes = form is not None
        self._whole_words = bool(data["model"].get("ignore_merges"))
        self._ids: dict[str, int] = data["model"]["vocab"]
        self._special = {t["content"]: t["id"] for t in data["added_tokens"]}
        merges = data["model"].get("merges", ())
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
        self._characters = byte_characters()
        self._byte_of = {c: byte for byte, c in self._characters.items()} if self._by_bytes else {}
        self._tokens = {i: token for token, i in (self._ids | self._special).items()}
        self._first = [
            self._special[part["SpecialToken"]["id"]]
            for part in (data.get("post_processor") or {}).get("single", ())
            if "SpecialToken" in part
        ]
        self._known: dict[str, list[int]] = {}  # ids of words met before
        self._specials = (
            re.compile(f"({'|'.join(re.escape(s) for s in sorted(self._special, reverse=True))})")
            if self._special
            else None
        )

    def __call__(
        self, text: str, add_special_tokens: bool = True, **_: Any
    ) -> dict[str, list[int]]:
        """`{"input_ids"}` of a text. A byte without a token is left out; with one token per
        character, an unknown character raises KeyError.
        """
        ids = [*self._first] if add_special_tokens else []
        for part in self._specials.split(text) if self._specials else (text,):
            if part in self._special:
                ids.append(self._special[part])
            elif self._by_bytes:
                for word in self._words(part):
                    ids += self._ids_of(word)
            else:
                ids += [self._ids[character] for character in part]
        return {"input_ids": ids}

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        """The text of token ids. Incomplete characters become U+FFFD; unknown ids are left out."""
        return b"".join(map(self._bytes, token_ids)).decode(errors="replace")

    def _bytes(self, token_id: int) -> bytes:
        token = self._tokens.get(token_id, "")
        try:
            return bytes(self._byte_of[character] for character in token)
        except KeyError:  # a special one, or a character's
            return token.encode()

    def _words(self, text: str) -> list[str]:
        words = [unicodedata.normalize("NFC", text) if self._composes else text]
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
            if self._whole_words and "".join(parts) in self._ids:
                parts = ["".join(parts)]
            self._merge(parts)
            self._known[word] = [self._ids[part] for part in parts if part]
        return self._known[word]

    def _merge(self, parts: list[str]) -> None:
        """Merge parts in place, each into the one before it, which leaves an empty one behind. A
        text without a blank is one word, so the time must not grow with its square.
        """
        after, before = [*range(1, len(parts)), -1], [*range(-1, len(parts) - 1)]
        due: list[tuple[int, int]] = []  # ranks of pairs and the places of their first parts

        def consider(at: int) -> None:
            if at >= 0 and after[at] >= 0:
                rank = self._ranks.get((parts[at], parts[after[at]]))
                if rank is not None:
                    heappush(due, (rank, at))

        for at in range(len(parts)):
            consider(at)
        while due:
            rank, at = heappop(due)
            gone = after[at]
            if gone < 0 or self._ranks.get((parts[at], parts[gone])) != rank:
                continue  # one of the pair has been merged with another part
            parts[at] += parts[gone]
            parts[gone] = ""
            after[at] = after[gone]
            if after[at] >= 0:
                before[after[at]] = at
            consider(before[at])
            consider(at)
