"""Tokens as OpenAI's clients are told them: each with its text and its bytes, and under names that
no two of them share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from core.browser.tokenizer import byte_characters

_REPLACEMENT = "\ufffd"
_BYTE_OF = {character: byte for byte, character in byte_characters().items()}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TokenNames:
    """tokenizer: a transformers tokenizer, or None: tokens then have ids alone."""

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer

    def bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for, also where they are only a part of a character; joined
        they are those of the text. None without a tokenizer.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            return None
        text: str = tokenizer.decode([token_id])
        if _REPLACEMENT in text:
            piece = tokenizer.convert_ids_to_tokens(token_id)
            if byte := _BYTE.fullmatch(piece):
                return bytes([int(byte[1], 16)])
            if all(character in _BYTE_OF for character in piece):
                return bytes(_BYTE_OF[character] for character in piece)
            return text.encode()
        return str(tokenizer.decode([token_id, token_id]))[
            len(text) :
        ].encode()  # the first of a text may lose the space before it

    def name(self, token_id: int) -> str:
        """The token's text. Where it has none of its own: its bytes, as OpenAI writes them, or its
        id, as vLLM does.
        """
        own = self.bytes(token_id)
        if own is None:
            return f"token_id:{token_id}"
        try:
            return own.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in own)

    def distinct(self, token_ids: Iterable[int]) -> dict[int, str]:
        """The names of several tokens; of those with one name, the first has it and the others are
        called by their ids.
        """
        names: dict[int, str] = {}
        for token_id in dict.fromkeys(token_ids):
            name = self.name(token_id)
            names[token_id] = f"token_id:{token_id}" if name in names.values() else name
        return names
