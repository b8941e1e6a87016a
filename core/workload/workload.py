"""Lists of requests as plain data, written and read as JSON, alone or with the settings that the
page's editor saves. Presets are in `core.workload.presets`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from core.config import EngineConfig
from core.errors import InflightError, InvalidWorkload, require, shown
from core.files import open_file, path_of, read_json, written
from core.workload.request import Request, is_text

ArrivalUnit = Literal["step", "s"]
T = TypeVar("T")
MAX_FILE_BYTES = 64 * 2**20
SCHEMA = 1
INTERACTIVE = "interactive"  # the name of requests that come in while an engine runs


@dataclass(frozen=True)
class Workload:
    """Requests in the order given; `arrival_unit` says whether arrivals count steps or seconds.

    prompts: the token ids of requests that have run, by id. Raises InvalidWorkload for a duplicate
    request id or an unknown unit.
    """

    requests: tuple[Request, ...]
    name: str = "custom"
    arrival_unit: ArrivalUnit = "step"
    prompts: Mapping[str, Sequence[int]] = field(default_factory=dict, compare=False, repr=False)

    def __init__(
        self,
        requests: Iterable[Request],
        name: str = "custom",
        arrival_unit: ArrivalUnit = "step",
        prompts: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        require(requests, Iterable, "A workload holds a list of requests")
        ids = {} if prompts is None else require(prompts, Mapping, "Prompts are ids by request")
        object.__setattr__(self, "prompts", ids)
        object.__setattr__(self, "requests", tuple(requests))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arrival_unit", arrival_unit)
        if not is_text(name):
            raise InvalidWorkload(f"A workload's name must be text, not {shown(name)}.")
        if not isinstance(arrival_unit, str) or arrival_unit not in ("step", "s"):
            raise InvalidWorkload(f'arrival_unit must be "step" or "s", not {shown(arrival_unit)}.')
        seen: set[str] = set()
        for request in self.requests:
            if not isinstance(request, Request):
                raise InvalidWorkload(f"A workload holds requests, not {type(request).__name__}.")
            if request.id in seen:
                raise InvalidWorkload(f"Two requests are called {request.id!r}.")
            seen.add(request.id)

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def greedy(self) -> Workload:
        """The same requests at temperature 0."""
        requests = [
            replace(r, sampling=replace(r.sampling, temperature=0.0)) for r in self.requests
        ]
        return Workload(requests, self.name, self.arrival_unit, self.prompts)

    def without_texts(self) -> Workload:
        """The same requests for an engine without a tokenizer: those that have run have their token
        ids as prompts and no stop strings, which could not be found; the others are unchanged.
        """
        requests = [
            replace(
                request.of_tokens(self.prompts[request.id]),
                sampling=replace(request.sampling, stop=()),
            )
            if request.id in self.prompts
            else request
            for request in self.requests
        ]
        return Workload(requests, self.name, self.arrival_unit)

    def as_messages(self) -> Workload:
        """The same requests as users' messages to a model that ends its answers itself."""
        requests = [
            replace(
                request,
                prompt=None,
                messages=({"role": "user", "content": request.prompt},),
                sampling=replace(request.sampling, ignore_eos=False),
            )
            if request.prompt is not None
            else request
            for request in self.requests
        ]
        return Workload(requests, self.name, self.arrival_unit)

    def heading(self) -> dict[str, Any]:
        """`to_json` without the requests."""
        return {"schema": SCHEMA, "name": self.name, "arrival_unit": self.arrival_unit}

    def to_json(self) -> dict[str, Any]:
        """Plain data: the heading, and each request."""
        return {**self.heading(), "requests": [r.to_json() for r in self.requests]}

    @classmethod
    def from_json(cls, data: object) -> Workload:
        """Inverse of `to_json`; raises InvalidWorkload (or InvalidRequest) naming what is wrong."""
        if not isinstance(data, dict):
            raise InvalidWorkload("A workload must be a JSON object with a list of requests.")
        unknown = set(data) - {"schema", "name", "arrival_unit", "requests"}
        if unknown:
            raise InvalidWorkload(f"A workload has no field {shown(min(unknown, key=str))}.")
        schema = data.get("schema", SCHEMA)
        if schema != SCHEMA or type(schema) is not int:
            raise InvalidWorkload(
                f"This workload has schema {shown(schema)}; this version reads schema {SCHEMA}."
            )
        if not isinstance(data.get("requests"), list):
            raise InvalidWorkload("A workload needs a list of requests.")
        requests = [Request.from_json(r) for r in data["requests"]]
        return cls(requests, data.get("name", "custom"), data.get("arrival_unit", "step"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a workload file, which `load` and `stream` read: see `save_requests`."""
        save_requests(path, self.requests, self.name, self.arrival_unit)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Workload:
        """Read a workload file; see `from_file`."""
        return from_file(path_of(path), cls.from_json)

    @classmethod
    def stream(cls, path: str | os.PathLike[str]) -> Iterator[Request]:
        """The requests of a workload file of any size, or of a pipe, each read when it is drawn,
        for `run_stream`. The file has one request per line, as `save` writes it, with arrivals in
        seconds and in order. Raises InvalidWorkload at the first line that differs.
        """
        at, latest = path_of(path), 0.0
        with reading(at) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig")
            lines = enumerate(iter(lambda: text.readline(MAX_FILE_BYTES), ""), 1)
            _, first = next(lines, (1, ""))
            try:
                found = cls.from_json(read_json(first + "]}"))
            except (ValueError, RecursionError):
                raise InvalidWorkload(
                    f"{at.name} is not read request by request: that takes a file as `workload` and"
                    " `Workload.save` write it, a request a line."
                ) from None
            if found.arrival_unit != "s":
                raise InvalidWorkload(f"{at.name}: the arrivals of a stream are in seconds.")
            for number, line in lines:
                if line.startswith("]"):
                    return
                try:
                    request = Request.from_json(read_json(line.rstrip().removesuffix(",")))
                except (ValueError, RecursionError, InflightError) as error:
                    raise InvalidWorkload(f"{at.name}, line {number}: {error}") from None
                if request.arrival < latest:
                    raise InvalidWorkload(
                        f"{at.name}, line {number}: it arrives before the one above it, and a"
                        " stream is read in order."
                    )
                latest = request.arrival
                yield request
        raise InvalidWorkload(f"{at.name} breaks off: its last line is missing.")


def save_requests(
    path: str | os.PathLike[str],
    requests: Iterable[Request],
    name: str,
    arrival_unit: ArrivalUnit = "s",
) -> None:
    """Write a workload file, one request per line as drawn; raises InflightError."""
    heading = Workload([], name, arrival_unit).heading()
    with written(path) as out:
        out.write(json.dumps(heading, ensure_ascii=False)[:-1] + ', "requests": [')
        for n, request in enumerate(requests):
            line = json.dumps(request.to_json(), ensure_ascii=False, separators=(",", ":"))
            out.write(f"{',' if n else ''}\n{line}")
        out.write("\n]}\n")


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading. Raises InvalidWorkload naming the file if it cannot be read."""
    try:
        with open_file(path) as file:
            yield file
    except OSError as error:
        raise InvalidWorkload(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidWorkload(f"{path.name} is not text.") from None


def from_file(path: Path, read: Callable[[object], T]) -> T:
    """What `read` makes of the JSON in a file of at most 64 MiB; raises InvalidWorkload."""
    with reading(path) as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise InvalidWorkload(
            f"{path.name} is larger than the {MAX_FILE_BYTES >> 20} MiB that are read whole: `run`"
            " reads it request by request."
        )
    try:
        data = read_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidWorkload(f"{path.name} is not JSON: {error}.") from None
    try:
        return read(data)
    except InflightError as error:
        raise InvalidWorkload(f"{path.name}: {error}") from None


@dataclass(frozen=True)
class SavedWorkload:
    """Requests with the limits, model and device to run them with, as far as the file has them."""

    workload: Workload
    config: EngineConfig = field(default_factory=EngineConfig)
    model: str | None = None
    device: str | None = None

    @classmethod
    def load(cls, path: Path) -> SavedWorkload:
        """Read a file; raises InvalidWorkload naming it and what is wrong."""
        return from_file(path, cls.from_json)

    @classmethod
    def from_json(cls, data: object) -> SavedWorkload:
        """data: a workload's JSON, or `{"workload", "config", "model", "device"}`. Raises
        InvalidWorkload, InvalidRequest or InvalidConfig.
        """
        if not isinstance(data, dict) or "workload" not in data:
            return cls(Workload.from_json(data))
        if unknown := set(data) - {"workload", "config", "model", "device"}:
            raise InvalidWorkload(f"A saved workload has no field {shown(min(unknown, key=str))}.")
        return cls(
            Workload.from_json(data["workload"]),
            EngineConfig.from_json(data.get("config", {})),
            _text(data, "model"),
            _text(data, "device"),
        )


def _text(data: dict[str, Any], name: str) -> str | None:
    given = data.get(name)
    if given is not None and not isinstance(given, str):
        raise InvalidWorkload(f"{name} must be text, not {shown(given)}.")
    return given
