"""Saved traces and raw recordings that visitors open: put into the store by a reader of their own (see `apart`).

Several files at once are the parts of a recording, or the ranks of one engine; between two of them stands a separator that no JSON has. The
reader is this module as a program, with the store's folder and the files' names as its arguments.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import InvalidTrace
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.server.limits import Limits, Refused, check_upload
from visualizer.server.sandbox import answer, read_sandboxed
from visualizer.server.store import NotKept, Store

LINE_LENGTH = 2 * 2**20  # a step of a thousand requests has a tenth of it
UPLOADED = "uploaded"  # what the header of such a run says of its source
SEPARATOR = "\x1e"  # between two files
MOST = 256  # files
DEPTH = 24  # brackets within brackets; a trace has a handful
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")


def open_upload(data: bytes, store: Store, limits: Limits, names: Sequence[str] = ()) -> dict[str, Any]:
    """Put files into the store: `{"id", "url"}` of their run, or of the document of its ranks (`visualizer.documents.ranks`); raises InflightError
    with why they cannot be opened. names: of the files.
    """
    check_upload(len(data), limits)
    called = [name[:100].replace("\0", "").encode("utf-8", "replace").decode() for name in names[:MOST]]
    return store.adopt(read_sandboxed(__name__, data, str(store.folder), *called)["id"])


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


def _put(traces: Sequence[tuple[str, Trace]], refused: Sequence[str], store: Store) -> dict[str, Any]:
    """traces: with the names of their files. refused: what is said of those that could not be opened."""
    trace = traces[0][1]
    ranks = Ranks.of(traces, refused) if len(traces) > 1 or trace.header.engine is not None else None
    if ranks is not None and (ranks.count > 1 or refused):
        return store.put_ranks(ranks, UPLOADED)
    if refused:
        raise InvalidTrace(refused[0])
    return store.put(trace, UPLOADED)


def main() -> None:
    """The reader: see above."""
    from core.recorders.opening import open_texts

    def read(text: str) -> dict[str, Any]:
        texts = text.split(SEPARATOR)
        for one in texts:
            check_lines(one)
        names = sys.argv[2:] if len(sys.argv) == 2 + len(texts) else ["This file"] * len(texts)
        store = Store(Path(sys.argv[1]), quota=sys.maxsize)
        try:
            opened = open_texts(zip(names, texts, strict=True))
            return _put(opened.traces, opened.refused, store)
        except NotKept as error:
            return {"error": f"{error} The file itself may be fine."}

    answer(read, _load_tokenizers)


def _load_tokenizers(text: str) -> None:
    """Of the recordings' models, where they are on this machine: what is imported for one may take more memory than a reader is given."""
    from core.recorders.raw import is_raw
    from core.recorders.texts import model_folder, tokenizer_of

    for one in text.split(SEPARATOR):
        first = one.partition("\n")[0]
        model = json.loads(first).get("model") if is_raw(first) else None
        if isinstance(model, str) and (folder := model_folder(model)):
            tokenizer_of(str(folder))


if __name__ == "__main__":
    main()
