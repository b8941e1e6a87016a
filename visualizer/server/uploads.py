"""Saved traces and raw recordings that visitors open: put into the store by a reader of their own (see `apart`).

The reader is this module as a program, with the store's folder as its argument.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from visualizer.server.apart import answer, read_apart
from visualizer.server.limits import Limits, Refused, check_upload
from visualizer.server.store import NotKept, Store

LINE_BYTES = 2 * 2**20  # a step of a thousand requests has a tenth of it
DEPTH = 24  # brackets within brackets; a trace has a handful


def open_upload(text: object, store: Store, limits: Limits) -> dict[str, Any]:
    """Put a saved trace into the store: `{"id", "url"}`; raises InflightError with why it cannot be opened."""
    if not isinstance(text, str):
        raise Refused("A saved trace is a text file.")
    data = text.encode("utf-8", "surrogatepass")
    check_upload(len(data), limits)
    check_lines(data)
    return store.adopt(read_apart(__name__, data, str(store.folder))["id"])


def check_lines(data: bytes) -> None:
    """Raises Refused for a line that no trace has, before anything is parsed: too long, or too deep."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LINE_BYTES:
            raise Refused(f"line {number}: a line of a trace has at most {LINE_BYTES >> 20} MiB.")
        deep = most = 0
        if line.count(b"[") + line.count(b"{") > DEPTH:
            for byte in line:
                deep += (byte in b"[{") - (byte in b"]}")
                most = max(most, deep)
                if most > DEPTH:
                    raise Refused(f"line {number}: this is no line of a trace, but brackets within brackets.")


def main() -> None:
    """The reader: see above."""
    from core.recorders.convert import open_text
    from core.recorders.raw import is_raw
    from core.recorders.texts import import_tokenizers

    def read(text: str) -> dict[str, Any]:
        try:
            return {"id": Store(Path(sys.argv[1]), quota=sys.maxsize).put(open_text(text), source="uploaded")["id"]}
        except NotKept as error:
            return {"error": f"{error} The file itself may be fine."}

    answer(read, lambda text: is_raw(text.partition("\n")[0]) and import_tokenizers())


if __name__ == "__main__":
    main()
