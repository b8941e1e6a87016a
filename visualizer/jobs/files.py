"""Opens files of visitors, given as text: saved traces, raw recordings, and published workloads of
real services as requests for the editor.

Several files at once are the parts of a recording, or the ranks of one engine; between them stands
a separator that JSON cannot contain.
"""

import io
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from core.errors import InflightError, InvalidTrace
from core.recorders.convert import open_texts
from core.torch_engine.models.tokenizer import MOST_CONTEXT, ModelDescription
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from core.workload.datasets import dataset_of
from visualizer.documents.replay import UPLOADED
from visualizer.jobs.limits import Limits, Refused, checked_model

LINE_LENGTH = 2 * 2**20  # a step of a thousand requests takes a tenth of this
SEPARATOR = "\x1e"  # between two files
MOST = 256  # files at once
REQUESTS = 24  # taken from the start of a published workload: as many as one can follow by eye
ARRIVE_WITHIN = 20.0  # seconds; longer recordings are sped up
DEPTH = 24  # levels of nested brackets; a trace has a handful
TOO_LARGE = "it takes more memory to read than this page has for a file."
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")
log = logging.getLogger("inflight")


class Keeper(Protocol):
    """Stores opened runs; both methods return `{"id", "url"}`. source: see `replay`."""

    def put(self, trace: Trace, source: str | None = None) -> dict[str, Any]: ...
    def put_ranks(self, ranks: Ranks, source: str | None = None) -> dict[str, Any]: ...


def open_files(
    text: str, names: Sequence[str], store: Keeper, tokenizer: Any = None
) -> dict[str, Any]:
    """Put files into the store; returns `{"id", "url"}` of their run, or of the document of their
    ranks. Raises InflightError if they cannot be opened. names: of the files. tokenizer: for
    recordings, by default that of their model.
    """
    texts = text.split(SEPARATOR)
    if len(texts) > MOST:
        raise Refused(f"{len(texts):,} files are too many; {MOST} are the most.")
    for one in texts:
        check_lines(one)
    called = names if len(names) == len(texts) else ["This file"] * len(texts)
    opened = open_texts(zip(called, texts, strict=True), tokenizer)
    trace = opened.traces[0][1]
    if len(opened.traces) > 1 or trace.header.engine is not None:
        ranks = Ranks.of(opened.traces, opened.refused)
        if ranks.count > 1 or opened.refused:
            return store.put_ranks(ranks, UPLOADED)
    if opened.refused:
        raise InvalidTrace(opened.refused[0])
    return store.put(trace, UPLOADED)


class Wanted(NamedTuple):
    """How a workload file is to be read. name: the file's, for messages. model: the requests must
    fit its vocabulary and context. requests: the most to take. output, total: the most new tokens
    of a request, and tokens altogether. block: the longest shared prefix.
    """

    name: str
    model: str
    requests: int
    output: int
    total: int
    block: int

    @classmethod
    def within(cls, limits: Limits, name: str, model: str) -> Self:
        """Raises Refused for a model that may not be run here."""
        model, _ = checked_model(model, "auto", limits)
        total = min(limits.total_tokens, limits.total_characters)
        return cls(
            name[:80] or "This file",
            model,
            min(REQUESTS, limits.requests),
            limits.new_tokens,
            total,
            limits.block_size,
        )


def read_workload(text: str, wanted: Wanted, model: ModelDescription) -> dict[str, Any]:
    """A published workload as `{"workload", "block_size", "says"}`; raises InflightError if it
    cannot be opened. block_size: of shared prefixes, or None.
    """
    found = dataset_of(
        io.StringIO(text.removeprefix("\ufeff")), wanted.name, model.count, wanted.requests
    )
    found = found.within(model.context or MOST_CONTEXT, wanted.output, wanted.total, wanted.block)
    speed = max(1.0, found.span / ARRIVE_WITHIN)
    return {
        "workload": found.workload(model.vocab_size, speed).to_json(),
        "block_size": found.block_tokens if found.hash_ids else None,
        "says": found.sentences(speed),
    }


def answer_to(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a file's reader, or `{"error"}` with the reason why there is none."""
    try:
        return read()
    except InflightError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": TOO_LARGE}
    except RecursionError:
        return {"error": "its brackets are nested too deeply."}
    except Exception:  # a file made to break its reader
        log.exception("a file broke its reader")
        return {"error": "it contradicts itself."}


def check_lines(text: str) -> None:
    """Raises Refused, before parsing, for a line that is too long or too deeply nested."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LENGTH:
            raise Refused(f"line {number}: a line of a trace has at most {LINE_LENGTH >> 20} MiB.")
        if line.count("[") + line.count("{") <= DEPTH:
            continue
        deep = 0
        for bracket in _BRACKET.findall(_STRING.sub("", line)):  # brackets in strings do not count
            deep += 1 if bracket in "[{" else -1
            if deep > DEPTH:
                raise Refused(
                    f"line {number}: this is not a line of a trace: its brackets are nested too"
                    " deeply."
                )
