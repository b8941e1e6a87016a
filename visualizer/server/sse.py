"""Server-sent events as they go over the wire, and the comment that keeps a silent stream open."""

from __future__ import annotations

import json
from typing import Any

KEEP_ALIVE = 15.0  # seconds of silence after which a reader is sent a comment, so that no proxy hangs up
COMMENT = b": still here\n\n"
_DATA = b"data: "


def encoded(message: dict[str, Any]) -> bytes:
    """A message as one event."""
    text = json.dumps(message, separators=(",", ":"))  # in ASCII: no character ends a line, all have a code
    return _DATA + text.encode("ascii") + b"\n\n"


def decoded(event: bytes) -> dict[str, Any]:
    """Inverse of `encoded`."""
    message: dict[str, Any] = json.loads(event[len(_DATA) :])
    return message
