"""Server-sent events as a reader takes them in."""

from __future__ import annotations

import json
from typing import Any


def messages_in(piece: bytes | str) -> list[dict[str, Any]]:
    """All messages in a piece of a stream: each event's data is an array of them."""
    text = piece.decode() if isinstance(piece, bytes) else piece
    return [
        message
        for line in text.splitlines()
        if line.startswith("data: ")
        for message in json.loads(line[6:])
    ]
