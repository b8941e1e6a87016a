"""A run on record: header, events, and the texts of its tokens. Save, load, check; derive outputs, masks and metrics.

On disk a trace is JSON lines: the header, one line a step, and a last line with the texts. Every line ends with a checksum chained to
the line before, so that a missing, moved or altered line is found and named.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace
from core.trace.detokenize import pieces
from core.trace.events import StepEvent
from core.trace.mask import Mask, Order, mask_of
from core.trace.rules import Checker

SCHEMA = 1
_CRC = ',"crc":"%08x"}'
_CRC_LENGTH = len(_CRC % 0)


@dataclass(frozen=True)
class Texts:
    """One piece of text for each token of each request; joined they are its prompt or its output."""

    prompt: dict[str, list[str]]
    output: dict[str, list[str]]


@dataclass
class Trace:
    """What ran.

    header: plain data: model, device, dtype, policy, config, workload, prompts (token ids by request), versions, when it was made and
        whether it is a recording. events: one `StepEvent` for every step in which something happened. complete: False for a run
        that was cut short. tokenizer: turns ids into text where no texts are on record.
    """

    header: dict
    events: list[StepEvent]
    complete: bool = True
    tokenizer: Any = field(default=None, repr=False)
    recorded_texts: Texts | None = field(default=None, repr=False)

    @property
    def prompts(self) -> dict[str, list[int]]:
        """Prompt token ids by request."""
        return self.header["prompts"]

    @property
    def outputs(self) -> dict[str, list[int]]:
        """Generated token ids by request."""
        outputs: dict[str, list[int]] = {request: [] for request in self.prompts}
        for event in self.events:
            for sampled in event.sampled:
                outputs[sampled.request].append(sampled.token_id)
        return outputs

    @cached_property
    def texts(self) -> Texts:
        """The pieces of all tokens: on record, or decoded now."""
        if self.recorded_texts is not None:
            return self.recorded_texts
        outputs = self.outputs
        return Texts(
            {r: pieces(self.tokenizer, ids) for r, ids in self.prompts.items()},
            {r: pieces(self.tokenizer, outputs[r], context=ids) for r, ids in self.prompts.items()},
        )

    def text(self, request: str) -> str:
        """The generated text of a request; raises InflightError if there is no such request."""
        if request not in self.prompts:
            raise InflightError(f"This trace has no request {request!r}.")
        return "".join(self.texts.output[request])

    def token_text(self, request: str, position: int) -> str:
        """The text of one token by its position in prompt + output."""
        prompt = self.texts.prompt[request]
        return prompt[position] if position < len(prompt) else self.texts.output[request][position - len(prompt)]

    def event(self, step: int) -> StepEvent:
        """The event of a step; raises InflightError if nothing ran in it."""
        for event in self.events:
            if event.step == step:
                return event
        raise InflightError(f"This trace has no step {step}; its steps go from {self._steps}.")

    def mask(self, step: int, pass_index: int = 0, order: Order = "request", layer: int | None = None) -> Mask:
        """Who could attend to whom in a pass of a step.

        order: "request" groups keys by request (cached, then new); "cached-new" puts all cached keys first. layer: matters for models
        whose layers differ in their sliding window; by default the widest.
        """
        event = self.event(step)
        if not 0 <= pass_index < len(event.passes):
            raise InflightError(f"Step {step} has {len(event.passes)} passes, so there is no pass {pass_index}.")
        windows = self.header["model"].get("windows") or [None]
        if layer is None:
            window = None if None in windows else max(windows)
        elif not 0 <= layer < len(windows):
            raise InflightError(f"The model has {len(windows)} layers, so there is no layer {layer}.")
        else:
            window = windows[layer]
        segments = [s for s in event.segments if s.pass_index == pass_index]
        return mask_of(event.passes[pass_index], segments, self.token_text, window, order)

    @property
    def _steps(self) -> str:
        return f"{self.events[0].step} to {self.events[-1].step}" if self.events else "nowhere: it is empty"

    # -- disk --------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The trace as JSON lines, without line ends."""
        texts = {"prompt": self.texts.prompt, "output": self.texts.output}
        end = {"kind": "end", "events": len(self.events), "complete": self.complete, "texts": texts}
        crc = 0
        for data in ({"kind": "header", "schema": SCHEMA, **self.header}, *(e.to_json() for e in self.events), end):
            body = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)[:-1]
            crc = zlib.crc32(body.encode(), crc)
            yield body + _CRC % crc

    def save(self, path: str | os.PathLike) -> None:
        """Write the trace; an existing file is replaced only once the new one is whole."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for line in self.lines():
                file.write(line + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Trace:
        """Read and check a trace; raises InvalidTrace naming the line at fault."""
        try:
            with Path(path).open("rb") as file:
                return cls.from_lines(_decoded(file))
        except OSError as error:
            raise InvalidTrace(f"{Path(path).name} cannot be read: {error.strerror}.") from None

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Trace:
        """Inverse of `lines`; checks checksums, shape and consistency. Raises InvalidTrace naming the line at fault."""
        numbered = enumerate(lines, 1)
        number, first = next(numbered, (1, None))
        if first is None:
            raise InvalidTrace("the file is empty.", 1)
        crc, data = _parse(first.removesuffix("\n"), 0, number)
        header = _header(data)
        checker = Checker(header)
        end: dict | None = None
        events: list[StepEvent] = []
        for number, line in numbered:
            crc, data = _parse(line.removesuffix("\n"), crc, number)
            if end is not None:
                raise InvalidTrace("the trace goes on after its end.", number)
            elif data.get("kind") == "end":
                end = data
            else:
                try:
                    event = StepEvent.from_json(data)
                    fault = checker.fault(event)
                except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
                    raise InvalidTrace(f"this is not a step: {error}.", number) from None
                if fault:
                    raise InvalidTrace(fault, number)
                events.append(event)
        if end is None:
            raise InvalidTrace("the trace is truncated: its last line is missing.", number + 1)
        if end.get("events") != len(events):
            raise InvalidTrace(f"the trace says it has {end.get('events')} steps but holds {len(events)}.", number)
        trace = cls(header, events, end.get("complete") is True)
        fault = checker.fault_at_end(end.get("complete"), end.get("texts"), trace.outputs)
        if fault:
            raise InvalidTrace(fault, number)
        trace.recorded_texts = Texts(end["texts"]["prompt"], end["texts"]["output"])
        return trace


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise InvalidTrace("this is not text: the trace is damaged.", number) from None


def _parse(line: str, crc: int, number: int) -> tuple[int, dict]:
    body, seal = line[:-_CRC_LENGTH], line[-_CRC_LENGTH:]
    try:
        data = json.loads(line)
        crc = zlib.crc32(body.encode(), crc)
    except (ValueError, RecursionError):
        raise InvalidTrace("this is not JSON: the trace is truncated or damaged.", number) from None
    if not isinstance(data, dict) or "crc" not in data:
        raise InvalidTrace("this is not a line of a trace.", number)
    if seal != _CRC % crc:
        raise InvalidTrace("the checksum does not match: this line was altered, or a line before it is missing or moved.", number)
    del data["crc"]
    return crc, data


def _header(data: dict) -> dict:
    if data.pop("kind", None) != "header":
        raise InvalidTrace("this is not the header of a trace.", 1)
    schema = data.pop("schema", None)
    if schema != SCHEMA:
        raise InvalidTrace(f"the trace has schema {schema!r}; this version reads schema {SCHEMA}.", 1)
    for name, kind in (("model", dict), ("config", dict), ("workload", dict), ("prompts", dict), ("policy", str)):
        if not isinstance(data.get(name), kind):
            raise InvalidTrace(f"the header has no {name}.", 1)
    return data
