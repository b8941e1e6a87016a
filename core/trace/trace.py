"""A run on record: header, events, and the texts of its tokens. Save and load; derive outputs, texts and masks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.errors import InflightError
from core.trace import file
from core.trace.detokenize import pieces
from core.trace.events import StepEvent
from core.trace.mask import Mask, Order, mask_of

NOT_TAKEN = "✗"  # in place of a token that was guessed and turned out wrong


@dataclass(frozen=True)
class Texts:
    """One piece of text for each token of each request; joined they are its prompt or its output."""

    prompt: dict[str, list[str]]
    output: dict[str, list[str]]


@dataclass
class Trace:
    """What ran.

    header: plain data, which `core.trace.header` checks and types: model, device, dtype, policy, batching, config, workload, prompts
    (token ids by request), versions, when it was made and whether it is a recording. events: one `StepEvent` for every step in which
    something happened. complete: False for a run that was cut short. tokenizer: turns ids into text where no texts are on record.
    """

    header: dict[str, Any]
    events: list[StepEvent]
    complete: bool = True
    tokenizer: Any = field(default=None, repr=False)
    recorded_texts: Texts | None = field(default=None, repr=False)

    @property
    def config(self) -> EngineConfig:
        """The limits under which it ran."""
        return EngineConfig.from_json(self.header["config"])

    @property
    def is_asynchronous(self) -> bool:
        """Whether steps were launched before the ones before them had been read."""
        return bool((self.header.get("execution") or {}).get("asynchronous"))

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
        ends = {s.request: s.kv_len for s in segments}
        taken = {d.request: ends[d.request] - d.drafted + d.accepted for d in event.drafts if d.request in ends}

        def text(request: str, position: int) -> str:
            return self.token_text(request, position) if position < taken.get(request, position + 1) else NOT_TAKEN

        return mask_of(event.passes[pass_index], segments, text, window, order, self.header.get("leak") is True)

    @property
    def _steps(self) -> str:
        return f"{self.events[0].step} to {self.events[-1].step}" if self.events else "nowhere: it is empty"

    # -- disk --------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The trace as JSON lines, without line ends; see `core.trace.file`."""
        prompt, output = self.texts.prompt, self.texts.output
        return file.lines(self.header, self.events, lambda r: file.Pieces(r, prompt[r], output[r]), self.complete)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace; an existing file is replaced only once the new one is whole."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        with partial.open("w", encoding="utf-8", newline="\n") as out:
            for line in self.lines():
                out.write(line + "\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read and check a trace; raises InvalidTrace naming the line at fault."""
        return cls.from_lines(file.lines_of(Path(path)))

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Trace:
        """Inverse of `lines`; checks checksums, shape and consistency. Raises InvalidTrace naming the line at fault."""
        reader = file.Reader(lines)
        trace, texts = cls(reader.header, []), Texts({}, {})
        for record in reader.records():
            if isinstance(record, StepEvent):
                trace.events.append(record)
            elif isinstance(record, file.Asked):
                trace.prompts[record.request.id] = record.prompt
                trace.header["workload"]["requests"].append(record.request.to_json())
            elif isinstance(record, file.Pieces):
                texts.prompt[record.request], texts.output[record.request] = record.prompt, record.output
            else:
                trace.complete = record.complete
        trace.recorded_texts = Texts(*({r: side[r] for r in trace.prompts} for side in (texts.prompt, texts.output)))
        return trace
