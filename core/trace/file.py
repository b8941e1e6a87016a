"""A trace on disk: JSON lines, written and read one at a time.

    header                          what ran, and how
    a line for a request            what was asked, before the step in which it arrives
    a line for a step               its event
    a line for a request            the texts of its tokens, after the step in which it ended; at the end where it did not
    end                             how many steps, and whether the run is complete

Every line ends with a checksum chained to the line before, so that a missing, moved or altered line is found and named. Reading checks
each line against the rules as it comes and keeps none; of finished requests it keeps only the ids.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InflightError, InvalidTrace, shown
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.rules import Checker
from core.workload.request import Request

SCHEMA = 4
MAX_LINE_BYTES = 128 * 2**20
_CRC = ',"crc":"%08x"}'
_CRC_LENGTH = len(_CRC % 0)


class TokenizedRequest(NamedTuple):
    """A request of the workload, and its prompt as token ids."""

    request: Request
    prompt: list[int]


class TokenTexts(NamedTuple):
    """One piece of text for each token of a request; joined they are its prompt or its output."""

    request: str
    prompt: list[str]
    output: list[str]


class End(NamedTuple):
    """The last line. complete: False for a run that was cut short."""

    complete: bool


def sealed(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines without their ends, each with its checksum."""
    crc = 0
    for data in records:
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)[:-1]
        crc = zlib.crc32(body.encode(), crc)
        yield body + _CRC % crc


def records(
    header: Header,
    asked: Mapping[str, TokenizedRequest],
    events: Iterable[StepEvent],
    texts: Callable[[str], TokenTexts],
    complete: bool,
) -> Iterator[dict[str, Any]]:
    """A trace as plain data, line by line, to be `sealed`. texts: returns a request's texts, called once for each."""
    yield {"kind": "header", "schema": SCHEMA, **header.to_json()}
    to_come, met, over = iter(asked.values()), set[str](), set[str]()

    def until(name: str) -> Iterator[dict[str, Any]]:
        """All up to this one, in their order."""
        while name not in met and (one := next(to_come, None)) is not None:
            met.add(one.request.id)
            tokens = {"tokens": one.prompt} if one.request.prompt_token_ids is None else {}
            yield {"kind": "request", "asked": one.request.to_json(), **tokens}

    count = 0
    for event in events:
        count += 1
        for arrived in event.newcomers:
            yield from until(arrived.request)
        yield event.to_json()
        for finished in event.ends:
            over.add(finished.request)
            yield {"kind": "texts", **texts(finished.request)._asdict()}
    for request in asked:
        if request not in over:
            yield from until(request)
            yield {"kind": "texts", **texts(request)._asdict()}
    yield {"kind": "end", "events": count, "complete": complete}


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends; raises InvalidTrace for what is no text and for a line too long to be one."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise InvalidTrace(f"this line is longer than the {MAX_LINE_BYTES >> 20} MiB that a line may have.", number)
                try:
                    yield line.removesuffix(b"\n").decode()
                except UnicodeDecodeError:
                    raise InvalidTrace("this is not text: the trace is damaged.", number) from None
    except OSError as error:
        raise InvalidTrace(f"{path.name} cannot be read: {error.strerror}.") from None


class Reader:
    """Reads a trace line by line; every record it yields has been checked against all records before it.

    trusted: only checksums are checked, not the rules. header: what ran. Raises InvalidTrace naming the line at fault.
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
            raise InvalidTrace(f"the trace has schema {schema!r}; this version reads schema {SCHEMA}.", 1)
        self.header = Header.from_json(first)
        self._checker = None if trusted else Checker(self.header)

    @property
    def line(self) -> int:
        """The number of the line read last, from 1."""
        return self._number

    def records(self) -> Iterator[TokenizedRequest | StepEvent | TokenTexts | End]:
        """In the order of the file."""
        while (data := self._next()) is not None:
            kind = data.get("kind")
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
        raise InvalidTrace("the trace is truncated: its last line is missing.", self._number + 1)

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
            raise InvalidTrace(f"this is not a step: {error}.", self._number) from None
        self._refuse(fault)
        self._num_events += 1
        return event._replace(warnings=self._checker.warnings) if self._checker and self.header.engine else event

    def _texts(self, data: dict[str, Any]) -> TokenTexts:
        pieces = TokenTexts(data.get("request"), data.get("prompt"), data.get("output"))  # type: ignore[arg-type]
        if self._checker:
            self._refuse(self._checker.fault_of_texts(*pieces))
        return pieces

    def _end(self, data: dict[str, Any]) -> End:
        if data.get("events") != self._num_events:
            raise InvalidTrace(f"the trace says it has {data.get('events')} steps but holds {self._num_events}.", self._number)
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
    """The line's checksum, to be chained, and its data without it."""
    if line.endswith("\r"):
        raise InvalidTrace(
            "this line ends with CR LF, as Windows writes it; a trace has LF alone: convert the file back.", number
        )
    if not line.strip():
        raise InvalidTrace("this line is empty: a trace has none, and nothing after its last line.", number)
    body, seal = line[:-_CRC_LENGTH], line[-_CRC_LENGTH:]
    try:
        data = _JSON.decode(line)
        crc = zlib.crc32(body.encode(), crc)
    except _Refused as error:
        raise InvalidTrace(f"{error}.", number) from None
    except (ValueError, RecursionError):
        raise InvalidTrace("this is not JSON: the trace is truncated or damaged.", number) from None
    if not isinstance(data, dict) or "crc" not in data:
        raise InvalidTrace("this is not a line of a trace.", number)
    if seal != _CRC % crc:
        raise InvalidTrace("the checksum does not match: this line was altered, or a line before it is missing or moved.", number)
    del data["crc"]
    return crc, data


class _Refused(ValueError):
    """JSON that another parser might read differently."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {shown(twice)} stands twice in one object")
    return data


def _no_number(name: str) -> float:
    raise _Refused(f"{name} is no number in JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)
