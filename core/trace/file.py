"""A trace on disk: JSON lines, written and read one at a time.

    header                          what ran
    one line a step                 its event
    one line a request              the texts of its tokens
    end                             how many steps, and whether the run is complete

Every line ends with a checksum chained to the line before, so that a missing, moved or altered line is found and named. Reading checks
the lines against the rules as they come and keeps none of them. Files of schema 1, whose texts all stand in the last line, open too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InvalidTrace, shown
from core.trace.events import StepEvent
from core.trace.rules import Checker
from core.trace.upgrade import FromSchema1

SCHEMA = 2
MAX_LINE_BYTES = 128 * 2**20
_CRC = ',"crc":"%08x"}'
_CRC_LENGTH = len(_CRC % 0)


class Pieces(NamedTuple):
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


def lines(header: dict[str, Any], events: Iterable[StepEvent], texts: Iterable[Pieces], complete: bool) -> Iterator[str]:
    """A trace as JSON lines, without line ends."""

    def records() -> Iterator[dict[str, Any]]:
        count = 0
        yield {"kind": "header", "schema": SCHEMA, **header}
        for event in events:
            count += 1
            yield event.to_json()
        for of_one in texts:
            yield {"kind": "texts", **of_one._asdict()}
        yield {"kind": "end", "events": count, "complete": complete}

    return sealed(records())


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
    """Reads a trace line by line; every record that it hands out has been checked against all before it.

    header: plain data. checker: what the rules know so far. Raises InvalidTrace naming the line at fault.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._number, self._crc, self._num_events = 0, 0, 0
        first = self._next()
        if first is None:
            raise InvalidTrace("the file is empty.", 1)
        if first.pop("kind", None) != "header":
            raise InvalidTrace("this is not the header of a trace.", 1)
        schema = first.pop("schema", None)
        if type(schema) is not int or not 1 <= schema <= SCHEMA:
            raise InvalidTrace(f"the trace has schema {schema!r}; this version reads schemas 1 to {SCHEMA}.", 1)
        self._upgrade = FromSchema1() if schema == 1 else None
        self.header = first if self._upgrade is None else self._upgrade.header(first)
        self.checker = Checker(self.header)

    @property
    def line(self) -> int:
        """The number of the line read last, from 1."""
        return self._number

    def records(self) -> Iterator[StepEvent | Pieces | End]:
        """Events, then texts, then the end."""
        texts_have_begun = False
        while (data := self._next()) is not None:
            kind = data.get("kind")
            if kind == "end":
                if self._upgrade is not None:
                    yield from self._texts_of_schema_1(data.pop("texts", None))
                yield self._end(data)
                if self._next() is not None:
                    raise InvalidTrace("the trace goes on after its end.", self._number)
                return
            if kind == "texts" and self._upgrade is None:
                texts_have_begun = True
                yield self._texts(data)
            elif texts_have_begun:
                raise InvalidTrace("a step stands among the texts.", self._number)
            else:
                yield self._event(data)
        raise InvalidTrace("the trace is truncated: its last line is missing.", self._number + 1)

    def _event(self, data: dict[str, Any]) -> StepEvent:
        try:
            event = StepEvent.from_json(data)
            if self._upgrade is not None:
                event = self._upgrade.event(event)
            fault = self.checker.fault(event)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise InvalidTrace(f"this is not a step: {error}.", self._number) from None
        self._refuse(fault)
        self._num_events += 1
        return event

    def _texts(self, data: dict[str, Any]) -> Pieces:
        pieces = Pieces(data.get("request"), data.get("prompt"), data.get("output"))  # type: ignore[arg-type]
        self._refuse(self.checker.fault_of_pieces(*pieces))
        return pieces

    def _texts_of_schema_1(self, texts: Any) -> Iterator[Pieces]:
        prompts, outputs = (texts.get(side) if isinstance(texts, dict) else None for side in ("prompt", "output"))
        if not isinstance(prompts, dict) or not isinstance(outputs, dict):
            raise InvalidTrace("the texts are missing.", self._number)
        for request in prompts | outputs:
            yield self._texts({"request": request, "prompt": prompts.get(request), "output": outputs.get(request)})

    def _end(self, data: dict[str, Any]) -> End:
        if data.get("events") != self._num_events:
            raise InvalidTrace(f"the trace says it has {data.get('events')} steps but holds {self._num_events}.", self._number)
        self._refuse(self.checker.fault_at_end(data.get("complete")))
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
        data = json.loads(line, object_pairs_hook=_once, parse_constant=_no_number)
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
    """JSON that another reader might read in another way."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {shown(twice)} stands twice in one object")
    return data


def _no_number(name: str) -> float:
    raise _Refused(f"{name} is no number in JSON")
