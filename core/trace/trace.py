"""A recorded run: its header, requests, events and texts, and what is derived from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from types import NoneType
from typing import Any, overload

from core import page
from core.config import EngineConfig
from core.errors import InflightError, InvalidTrace, require, shown
from core.files import path_of, written
from core.page import OnPage, Page
from core.trace import file
from core.trace.detokenize import pieces, plain
from core.trace.divergence import Divergence, divergence
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.mask import Mask, Order, mask_of
from core.trace.messages import english
from core.trace.run_state import Frame, RunState
from core.workload.workload import Workload

NOT_USED = "✗"  # in place of a proposed token that was rejected
NO_TEXT = "—"  # in place of a token of a simulated run, which no model chose


@dataclass(frozen=True)
class Texts:
    """The piece of text for each token of each request; joined they are its prompt or output.

    The pieces of a simulated run's output are empty, since its tokens mean nothing.
    """

    prompt: dict[str, list[str]]
    output: dict[str, list[str]]


@dataclass(repr=False)
class Trace(OnPage):
    """A recorded run.

    asked: the requests by id, in the order of submission. events: one `StepEvent` for every step in
    which something happened. complete: False for a run that was cut short. tokenizer: turns ids
    into text if no texts were recorded.
    """

    header: Header
    asked: dict[str, file.TokenizedRequest]
    events: list[StepEvent]
    complete: bool = True
    tokenizer: Any = None
    recorded_texts: Texts | None = None

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.events)

    def __iter__(self) -> Iterator[StepEvent]:
        return iter(self.events)

    @overload
    def __getitem__(self, place: int) -> StepEvent: ...
    @overload
    def __getitem__(self, place: slice) -> list[StepEvent]: ...
    def __getitem__(self, place: int | slice) -> StepEvent | list[StepEvent]:
        """The event at an index, or the events of a slice, as in a list. `event` takes the number
        of a step, which differs from the index after a step in which nothing ran.
        """
        if isinstance(place, int) and not -len(self) <= place < len(self):
            raise IndexError(f"This trace has no event {place}; it has {len(self):,}.")
        return self.events[place]

    def __repr__(self) -> str:
        new = sum(len(event.sampled) for event in self.events)
        counts = english(
            f"{len(self.asked):,} [request|requests], {len(self.events):,} [step|steps], {new:,}"
            " new [token|tokens]"
        )
        how = "simulated, " if self.header.is_simulated else ""
        cut = "" if self.complete else ", cut short"
        return (
            f"<Trace of {self.header.workload} under {self.header.policy.name}: {how}{counts}{cut}>"
        )

    @property
    def config(self) -> EngineConfig:
        """The limits under which it ran."""
        return self.header.config

    @property
    def workload(self) -> Workload:
        """The requests, with the token ids of their prompts."""
        requests, header = [one.request for one in self.asked.values()], self.header
        return Workload(requests, header.workload, header.arrival_unit, self.prompts)

    def as_run(self) -> Workload:
        """The requests as they came and went, for another run: prompts as token ids, arrivals in
        seconds, and for each request as many new tokens as it got, however it ended. A request that
        got none leaves when its client left, or when the record ends. If arrivals were not planned
        in seconds, all requests of a step arrive with the first of them.
        """
        is_planned = self.header.engine is None and self.header.arrival_unit == "s"
        arrived = {
            a.request: a.t if is_planned else min(a.t for a in event.newcomers)
            for event in self.events
            for a in event.newcomers
        }
        ended = {
            f.request: event.t_start if f.t is None else f.t
            for event in self.events
            for f in event.ends
        }
        tokens, end = self.outputs, self.events[-1].t_end if self.events else 0.0
        requests = []
        for request, t in arrived.items():
            one, got = self.asked[request], len(tokens[request])
            stayed = max(ended.get(request, end) - t, 1e-6)
            asks = one.request.sampling
            sampling = asks.to_length(got or asks.max_new_tokens)
            asked, leaves = one.request.of_tokens(one.prompt), None if got else stayed
            requests.append(replace(asked, sampling=sampling, arrival=t, leaves_after=leaves))
        return Workload(requests, self.header.workload, "s")

    @property
    def prompts(self) -> dict[str, list[int]]:
        """Prompt token ids by request."""
        return {request: one.prompt for request, one in self.asked.items()}

    @property
    def prompt_lengths(self) -> dict[str, int]:
        """Tokens of each prompt, by request."""
        return {request: len(one.prompt) for request, one in self.asked.items()}

    def about(self) -> dict[str, Any]:
        """The header as plain data together with all requests, for a page or a printout."""
        return {**self.header.to_json(), "workload": self.workload.to_json()}

    @property
    def outputs(self) -> dict[str, list[int]]:
        """Generated token ids by request."""
        outputs: dict[str, list[int]] = {request: [] for request in self.asked}
        for event in self.events:
            for request, token in event.tokens:
                outputs[request].append(token)
        return outputs

    @cached_property
    def texts(self) -> Texts:
        """The pieces of text of all tokens, as recorded, or decoded now."""
        found = self.recorded_texts
        if found is None:
            found = self.decoded(self.tokenizer)
        if not self.header.is_simulated:
            return found
        return Texts(found.prompt, {r: [""] * len(made_up) for r, made_up in found.output.items()})

    def decoded(self, tokenizer: Any) -> Texts:
        """The pieces of text of all tokens, decoded by this tokenizer."""
        prompts, outputs = self.prompts, self.outputs
        return Texts(
            {r: pieces(tokenizer, ids) for r, ids in prompts.items()},
            {r: pieces(tokenizer, outputs[r], context=ids) for r, ids in prompts.items()},
        )

    def text(self, request: str) -> str:
        """The answer to a request as one reads it, without the token by which the model ended it;
        `texts` has every token. Empty if simulated. Raises InflightError for an unknown request.
        """
        return self._answers[self._known(request)]

    def _known(self, request: str) -> str:
        if require(request, str, "A request has an id") not in self.asked:
            raise InflightError(f"This trace has no request {request!r}.")
        return request

    @cached_property
    def _answers(self) -> dict[str, str]:
        written, ends = self.outputs, self.header.model.eos_token_ids or ()
        finished = [ended for event in self.events for ended in event.finished]
        stopped = {ended.request for ended in finished if ended.finish_reason == "stop"}
        answers = {r: "".join(pieces) for r, pieces in self.texts.output.items()}
        for request in stopped:
            if written[request] and written[request][-1] in ends:
                answers[request] = "".join(self.texts.output[request][:-1])
        return answers

    def token_text(self, request: str, position: int) -> str:
        """The text of a token by its position in prompt and output; `NO_TEXT` if it is simulated.
        Raises InflightError if there is no such request or token.
        """
        prompt, output = self.texts.prompt[self._known(request)], self.texts.output[request]
        if position not in range(len(prompt) + len(output)):
            raise InflightError(f"Request {request!r} has no token {shown(position)}.")
        if position < len(prompt):
            return prompt[position]
        return NO_TEXT if self.header.is_simulated else output[position - len(prompt)]

    def event(self, step: int) -> StepEvent:
        """The event of a step; raises InflightError if nothing ran in it."""
        require(step, Integral, "A step is given by its number")
        for event in self.events:
            if event.step == step:
                return event
        steps = "nowhere: it is empty"
        if self.events:
            steps = f"{self.events[0].step} to {self.events[-1].step}"
        raise InflightError(f"This trace has no step {shown(step)}; its steps go from {steps}.")

    def states(self) -> Iterator[tuple[StepEvent, RunState]]:
        """Each event with the state while its passes run; the state object is reused."""
        state = RunState.of(self.prompt_lengths, self.header.policy.requeue)
        for event in self.events:
            state.begin(event)
            yield event, state
            state.end(event)

    def frames(self) -> Iterator[Frame]:
        """The state while the passes of each step ran, step by step."""
        return (state.frame(event) for event, state in self.states())

    def mask(
        self, step: int, pass_index: int = 0, order: Order = "request", layer: int | None = None
    ) -> Mask:
        """Who could attend to whom in a pass of a step.

        order: "request" groups keys by request (cached, then new); "cached-new" puts all cached
        keys first. layer: matters for models whose layers differ in their sliding window; by
        default the widest. Raises InflightError for a step, pass, order or layer that there is not.
        """
        event = self.event(step)
        require(pass_index, int, "A pass has a number")
        require(layer, (int, NoneType), "A layer has a number")
        if not 0 <= pass_index < len(event.passes):
            has = english(f"Step {step} has {len(event.passes)} [pass|passes]")
            raise InflightError(f"{has}, so there is no pass {shown(pass_index)}.")
        windows = self.header.model.windows or (None,) * (self.header.model.layers or 1)
        if layer is None:
            window = None if None in windows else max(w for w in windows if w is not None)
        elif not 0 <= layer < len(windows):
            has = english(f"The model has {len(windows)} [layer|layers]")
            raise InflightError(f"{has}, so there is no layer {shown(layer)}.")
        else:
            window = windows[layer]
        segments = [s for s in event.segments if s.pass_index == pass_index]
        ends = {s.request: s.kv_len for s in segments}
        taken = {
            d.request: ends[d.request] - d.drafted + d.accepted
            for d in event.drafts
            if d.request in ends
        }

        def text(request: str, position: int) -> str:
            if position >= taken.get(request, position + 1):
                return NOT_USED
            return self.token_text(request, position)

        return mask_of(event.passes[pass_index], segments, text, window, order, self.header.leak)

    def diff(self, other: Trace) -> Divergence | None:
        """The first decision in which another run of the same requests differs from this one, and
        the limits that differ; None if every step decides the same. Printed, it is a sentence.
        Raises InflightError for runs of different requests.
        """
        require_trace(other)
        return divergence(self, other)

    def show(self, step: int | None = None) -> Page:
        """The page of this run, opened at a step, for a notebook's cell or to be saved as a file.
        Raises InflightError if nothing ran in that step.
        """
        return Page(self, {} if step is None else {"step": self.event(step).step})

    def plot(self, view: str = "lanes", step: int | None = None) -> Any:
        """A Plotly figure in the page's colours, to show, to change, or to save by its
        `write_html`, or by its `write_image` where the package kaleido is installed.

        view: "lanes" or "kv", what each lane computed and the KV blocks in use, over steps; or
        "mask", the packed row of a step and who could attend to whom. Raises InflightError for
        another view, and for a step that there is not.
        """
        return page.provided(page.plot)(self, view, step)

    def animate(
        self, path: str | os.PathLike[str], steps: slice = slice(None), seconds: float = 0.5
    ) -> None:
        """Write the lanes as they fill, step by step, each with its sentence: a .gif, or an .mp4
        where the program ffmpeg is installed.

        steps: which of them, as in `trace[10:60]`. seconds: how long each is shown. Raises
        InflightError for another kind of file, for none of its steps or too many, and where it
        cannot be written.
        """
        page.provided(page.animate)(self, path_of(path), steps, seconds)

    # -- disk --------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The trace as JSON lines, without line ends; see `core.trace.file`."""
        prompt, output = self.texts.prompt, self.texts.output
        seal = file.Seal()
        records = file.Records(lambda r: file.TokenTexts(r, prompt[r], output[r]))
        yield seal.line(file.header_record(self.header))
        for one in self.asked.values():
            records.request(one)
        for event in self.events:
            yield from map(seal.line, records.step(event))
        yield from map(seal.line, records.end(self.complete))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace, replacing a file once the new one is whole. Raises InflightError."""
        with written(path) as out:
            for line in self.lines():
                out.write(line + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: bool = False) -> Trace:
        """Read and check a trace, compressed by gzip or not. Raises InvalidTrace naming the file
        and the line at fault. trusted: see `from_lines`.

        A file that breaks off, such as that of a run that was killed, is read up to its last whole
        step: `complete` is then False, and the header has a note.
        """
        at = path_of(path)
        try:
            return cls.from_lines(file.lines_of(at), trusted)
        except InvalidTrace as error:
            raise error.in_file(at.name) from None

    @classmethod
    def from_lines(cls, lines: Iterable[str], trusted: bool = False) -> Trace:
        """Inverse of `lines`; checks checksums, shape and consistency. Raises InvalidTrace naming
        the line at fault.

        trusted: only checksums are verified, for traces that were checked before, such as those
        that ship with the page.
        """
        reader = file.Reader(require(lines, Iterable, "A trace is read from its lines"), trusted)
        trace, texts = cls(reader.header, {}, []), Texts({}, {})
        for record in reader.records():
            if isinstance(record, StepEvent):
                trace.events.append(record)
            elif isinstance(record, file.TokenizedRequest):
                trace.asked[record.request.id] = record
            elif isinstance(record, file.TokenTexts):
                texts.prompt[record.request] = record.prompt
                texts.output[record.request] = record.output
            else:
                trace.complete = record.complete
                if not record.is_written:
                    trace._break_off(texts)
        trace.recorded_texts = Texts(
            *({r: side[r] for r in trace.asked} for side in (texts.prompt, texts.output))
        )
        return trace

    def _break_off(self, texts: Texts) -> None:
        """Note that the file has no end; ids replace the texts of unfinished requests."""
        self.header = replace(self.header, notes=(*self.header.notes, file.BREAKS_OFF))
        outputs = self.outputs
        for request, ids in self.prompts.items():
            if request not in texts.prompt:
                texts.prompt[request] = [*map(plain, ids)]
                texts.output[request] = [*map(plain, outputs[request])]


def require_trace(trace: Trace) -> None:
    """Raises InflightError for anything but a trace, such as the path of one."""
    require(trace, Trace, "This is asked of a Trace, such as Trace.load(path)")
