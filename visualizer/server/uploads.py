"""Saved traces and raw recordings that visitors open: put into the store by a reader of their own (see `apart`).

The reader is this module as a program, with the store's folder as its argument.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from visualizer.server.apart import answer, read_apart
from visualizer.server.limits import Limits, Refused, check_upload
from visualizer.server.store import NotKept, Store

LINE_LENGTH = 2 * 2**20  # a step of a thousand requests has a tenth of it
DEPTH = 24  # brackets within brackets; a trace has a handful
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")


def open_upload(data: bytes, store: Store, limits: Limits) -> dict[str, Any]:
    """Put a saved trace into the store: `{"id", "url"}`; raises InflightError with why it cannot be opened."""
    check_upload(len(data), limits)
    return store.adopt(read_apart(__name__, data, str(store.folder))["id"])


def check_lines(text: str) -> None:
    """Raises Refused for a line that no trace has, before anything is parsed: too long, or too deep."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LENGTH:
            raise Refused(f"line {number}: a line of a trace has at most {LINE_LENGTH >> 20} MiB.")
        if line.count("[") + line.count("{") <= DEPTH:
            continue
        deep = 0
        for bracket in _BRACKET.findall(_STRING.sub("", line)):  # those of a text are words
            deep += 1 if bracket in "[{" else -1
            if deep > DEPTH:
                raise Refused(f"line {number}: this is no line of a trace, but brackets within brackets.")


def main() -> None:
    """The reader: see above."""
    from core.recorders.convert import open_text
    from core.recorders.raw import is_raw
    from core.recorders.texts import import_tokenizers

    def read(text: str) -> dict[str, Any]:
        check_lines(text)
        try:
            return {"id": Store(Path(sys.argv[1]), quota=sys.maxsize).put(open_text(text), source="uploaded")["id"]}
        except NotKept as error:
            return {"error": f"{error} The file itself may be fine."}

    answer(read, lambda text: is_raw(text.partition("\n")[0]) and import_tokenizers())


if __name__ == "__main__":
    main()
