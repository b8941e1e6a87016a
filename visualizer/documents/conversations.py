"""Which tokens of a prompt are what somebody said, and which the model's chat template added."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from core.workload.request import Message


def said(pieces: Sequence[str], messages: Sequence[Message]) -> list[str | None]:
    """The pieces of a prompt's tokens, None for those of the template. Each message is looked for
    after its role, from the beginning of a token on; where one is not found, because the template
    changed it, all pieces are returned.
    """
    text, starts = "".join(pieces), list(accumulate(map(len, pieces), initial=0))
    shown: list[str | None] = [None] * len(pieces)
    at = 0
    for message in messages:
        if not (content := message["content"].strip()):
            continue
        role = text.find(message["role"], starts[at])
        first = at if role < 0 else bisect_left(starts, role + len(message["role"]))
        # where a template has another word for the role, this one may stand in the content
        found = _found(pieces, first, content) or _found(pieces, at, content)
        if found is None:
            return list(pieces)
        shown[found.start : found.stop] = pieces[found.start : found.stop]
        at = found.stop
    return shown


def _found(pieces: Sequence[str], first: int, content: str) -> range | None:
    """The tokens, from the first one on, that begin with this text."""
    for start in range(first, len(pieces)):
        if pieces[start].isspace():
            continue
        text = ""
        for end in range(start, len(pieces)):
            text = (text + pieces[end]).lstrip()
            if text.startswith(content):
                return range(start, end + 1)
            if not content.startswith(text):
                break
    return None
