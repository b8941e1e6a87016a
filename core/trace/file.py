"""A trace file: JSON lines, written and read one at a time.

    header                          what ran, and how
    a line for a request            what was asked, before the step in which it arrives
    a line for a step               its event
    a line for a request            the texts of its tokens, after the step in which it ended; at
                                    the end where it did not
    end                             how many steps, and whether the run is complete

Every line ends with a checksum chained to the line before, so that a missing, moved or altered line
is found and named. Reading checks each line against the rules as it comes, without keeping it; of
a finished request only the id is kept. A file without its end, such as one whose writer was killed,
is read up to its last whole line, and `End` says so.
"""

import gzip
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InflightError, InvalidTrace, malformed, require, shown
from core.files import AmbiguousJson, open_file, read_json
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.rules.checker import Checker
from core.workload.request import Request, is_text

SCHEMA = 4
MAX_LINE_BYTES = 128 * 2**20
_FIELDS = {  # of every line but the header and the steps
    "request": frozenset({"kind", "asked", "tokens"}),
    "texts": frozenset({"kind", "request", "prompt", "output"}),
    "end": frozenset({"kind", "events", "complete"}),
}
_CRC = ',"crc":"%08x"}'
_CRC_LENGTH = len(_CRC % 0)
_SEALED = re.compile(rb',"crc":"[0-9a-f]{8}"}$')
_END = re.compile(rb'"kind"\s*:\s*"end"')
BREAKS_OFF = (
    "This file breaks off after its last step: the run was killed while it was written, or the file"
    " was cut."
)


class TokenizedRequest(NamedTuple):
    """A request of the workload, and its prompt as token ids."""

    request: Request
    prompt: list[int]


class TokenTexts(NamedTuple):
    """The piece of text for each token of a request, of its prompt or its output."""

    request: str
    prompt: list[str]
    output: list[str]


class End(NamedTuple):
    """The last line. complete: not cut short. is_written: False if the file has no such line."""

    complete: bool
    is_written: bool = True


class Seal:
    """Turns records into lines, each with a checksum of everything so far."""

    def __init__(self) -> None:
        self._crc = 0

    def line(self, data: dict[str, Any]) -> str:
        """A record as a line, without its line end, with the checksum of all lines up to it."""
        return self.again(
            json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)[:-1]
        )

    def again(self, body: str) -> str:
        """The line with this body, which is its text up to the checksum."""
        self._crc = zlib.crc32(body.encode(), self._crc)
        return body + _CRC % self._crc


def with_header(lines: Iterable[str], header: Header) -> Iterator[str]:
    """The lines of a trace under another header, with new checksums."""
    rest, seal = iter(lines), Seal()
    next(rest)
    yield seal.line(header_record(header))
    for line in rest:
        yield seal.again(line[:-_CRC_LENGTH])


def header_record(header: Header) -> dict[str, Any]:
    """The first line as plain data, to be sealed."""
    return {"kind": "header", "schema": SCHEMA, **header.to_json()}


class Records:
    """The lines of a run after its header, as plain data to be sealed, while the run goes on. Only
    unfinished requests are remembered.

    texts: returns a request's texts, and is called once for each. The line of a request comes
    before the step in which it arrives, in the order of submission.
    """

    def __init__(self, texts: Callable[[str], TokenTexts]) -> None:
        self._texts = texts
        self._to_come: deque[TokenizedRequest] = deque()
        # of those that have their line, in the order of submission
        self._unfinished: dict[str, None] = {}
        self._num_events = 0

    def request(self, one: TokenizedRequest) -> None:
        """Take a request that was submitted; its line comes when it arrives."""
        self._to_come.append(one)

    def step(self, event: StepEvent) -> Iterator[dict[str, Any]]:
        """The lines of requests up to the last one that arrives in this step, the step itself, and
        the texts of the requests that ended in it.
        """
        self._num_events += 1
        for arrived in event.newcomers:
            while arrived.request not in self._unfinished and self._to_come:
                yield self._next()
        yield event.to_json()
        for finished in event.ends:
            self._unfinished.pop(finished.request, None)
            yield self._of(finished.request)

    def end(self, complete: bool) -> Iterator[dict[str, Any]]:
        """The lines that are left, and the last line."""
        for request in self._unfinished:
            yield self._of(request)
        while self._to_come:
            request = self._to_come[0].request.id
            yield self._next()
            yield self._of(request)
        yield {"kind": "end", "events": self._num_events, "complete": complete}

    def _next(self) -> dict[str, Any]:
        request, prompt = self._to_come.popleft()
        self._unfinished[request.id] = None
        tokens = {"tokens": prompt} if request.prompt_token_ids is None else {}
        return {"kind": "request", "asked": request.to_json(), **tokens}

    def _of(self, request: str) -> dict[str, Any]:
        return {"kind": "texts", **self._texts(request)._asdict()}


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file without their ends; the file may be compressed by gzip. A last line that
    was not completely written is left out, unless the trace had ended before it.

    Raises InvalidTrace for a file that is not text and for a line that is too long.
    """
    number, before = 0, b""
    try:
        with open_file(path) as content:  # once: a pipe is read only once
            file = gzip.GzipFile(fileobj=content) if _is_gzip(content) else content
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise InvalidTrace(
                        f"this line is longer than the {MAX_LINE_BYTES >> 20} MiB that a line may"
                        " have.",
                        number,
                    )
                is_whole = line.endswith(b"\n") or number == 1 or _SEALED.search(line)
                if not is_whole and not _END.search(before):
                    return
                before = line
                try:
                    yield line.removesuffix(b"\n").decode()
                except UnicodeDecodeError:
                    raise InvalidTrace("this is not text: the trace is damaged.", number) from None
    except EOFError:  # a compressed file breaks off
        if not number:
            raise InvalidTrace("the file breaks off before the end of this line.", 1) from None
    except zlib.error:
        raise InvalidTrace(
            "it cannot be read: what is compressed in it is damaged.", file=path.name
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed by gzip. Raises InvalidTrace if it cannot be read."""
    try:
        with open_file(path) as content:
            return _is_gzip(content)
    except OSError as error:
        raise _unreadable(path, error) from None


def _is_gzip(content: BufferedReader) -> bool:
    return content.peek(2).startswith(b"\x1f\x8b")


def _unreadable(path: Path, error: OSError) -> InvalidTrace:
    return InvalidTrace(f"it cannot be read: {error.strerror or error}.", file=path.name)


class Reader:
    """Reads a trace line by line; every record is checked against all records before it.

    trusted: only checksums are checked, not the rules. header: that of the trace. Raises
    InvalidTrace naming the line at fault.
    """

    def __init__(self, lines: Iterable[str], trusted: bool = False) -> None:
        self._lines = iter(lines)
        self._number, self._crc, self._num_events = 0, 0, 0
        first = self._next()
        if first is None:
            raise InvalidTrace("the file is empty.", 1)
        if first.pop("kind", None) != "header":
            raise InvalidTrace("this is not the header of a trace.", 1)
        if (schema := first.pop("schema", None)) != SCHEMA or type(schema) is not int:
            raise InvalidTrace(
                f"the trace has schema {schema!r}; this version reads schema {SCHEMA}.", 1
            )
        if not is_text(json.dumps(first, ensure_ascii=False)):
            raise InvalidTrace("the header holds half of a character, which is no text.", 1)
        self.header = Header.from_json(first)
        self._checker = None if trusted else Checker(self.header)

    @property
    def line(self) -> int:
        """The number of the line read last, from 1."""
        return self._number

    def records(self) -> Iterator[TokenizedRequest | StepEvent | TokenTexts | End]:
        """The records after the header, in the order of the file."""
        while (data := self._next()) is not None:
            kind = data.get("kind")
            if unknown := data.keys() - _FIELDS.get(str(kind), data.keys()):
                raise InvalidTrace(
                    f"a line of kind {kind} has no field {shown(min(unknown))}.", self._number
                )
            if kind == "end":
                yield self._end(data)
                if self._next() is not None:
                    raise InvalidTrace("the trace goes on after its end.", self._number)
                return
            if kind == "texts":
                yield self._texts(data)
            elif kind == "request":
                yield self._asked(data)
            else:
                yield self._event(data)
        yield End(complete=False, is_written=False)

    def _asked(self, data: dict[str, Any]) -> TokenizedRequest:
        try:
            request = Request.from_json(data.get("asked"))
        except InflightError as error:
            raise InvalidTrace(str(error), self._number) from None
        prompt = data.get("tokens", request.prompt_token_ids and list(request.prompt_token_ids))
        if self._checker:
            self._refuse(self._checker.fault_of_request(request, prompt))
        return TokenizedRequest(request, prompt)  # type: ignore[arg-type]  # checked just now

    def _event(self, data: dict[str, Any]) -> StepEvent:
        try:
            event = StepEvent.from_json(data)
            fault = self._checker.fault(event) if self._checker else None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise InvalidTrace(f"this is not a step: {malformed(error)}.", self._number) from None
        self._refuse(fault)
        self._num_events += 1
        if self._checker and self.header.engine:
            return event._replace(warnings=self._checker.warnings)
        return event

    def _texts(self, data: dict[str, Any]) -> TokenTexts:
        pieces = TokenTexts(data.get("request"), data.get("prompt"), data.get("output"))  # type: ignore[arg-type]
        if self._checker:
            self._refuse(self._checker.fault_of_texts(*pieces))
        return pieces

    def _end(self, data: dict[str, Any]) -> End:
        if (said := data.get("events")) != self._num_events or type(said) is not int:
            raise InvalidTrace(
                f"the trace says it has {shown(said)} steps but holds {self._num_events}.",
                self._number,
            )
        if self._checker:
            self._refuse(self._checker.fault_at_end(data.get("complete")))
        return End(data["complete"])

    def _refuse(self, fault: str | None) -> None:
        if fault:
            raise InvalidTrace(fault, self._number)

    def _next(self) -> dict[str, Any] | None:
        line = next(self._lines, None)
        if line is None:
            return None
        self._number += 1
        self._crc, data = _parsed(line, self._crc, self._number)
        return data


def _parsed(line: str, crc: int, number: int) -> tuple[int, dict[str, Any]]:
    """The checksum of the line, for the next line's, and its data without it."""
    if require(line, str, "A line of a trace is text").endswith("}\r"):
        raise InvalidTrace(
            "this line ends with CR LF, as Windows writes it; a trace has LF alone: convert the"
            " file back.",
            number,
        )
    if not line.strip():
        raise InvalidTrace(
            "this line is empty: a trace has none, and nothing after its last line.", number
        )
    body, seal = line[:-_CRC_LENGTH], line[-_CRC_LENGTH:]
    try:
        data = read_json(line)
        crc = zlib.crc32(body.encode(), crc)
    except AmbiguousJson as error:
        raise InvalidTrace(f"{error}.", number) from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or "crc" not in data:
        is_raw = isinstance(data, dict) and "raw" in data
        raise InvalidTrace(
            "this is another engine's recording: `python -m inflight import` makes a trace of it."
            if number == 1 and is_raw
            else "this is no trace: its first line is not the header of one."
            if number == 1
            else "this is not a line of a trace, which is truncated or damaged.",
            number,
        )
    if seal != _CRC % crc:
        raise InvalidTrace(
            "the checksum does not match: this line was altered, or a line before it is missing or"
            " moved.",
            number,
        )
    del data["crc"]
    return crc, data
