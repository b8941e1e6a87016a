"""A run written to a file while it continues; if it breaks off, the file has every step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from core.engine.recorder import TraceRecorder
from core.errors import InflightError, require
from core.files import written
from core.trace.detokenize import pieces
from core.trace.events import StepEvent
from core.trace.file import (
    Records,
    Seal,
    TokenizedRequest,
    TokenTexts,
    header_record,
    lines_of,
    with_header,
)
from core.trace.header import Header
from core.workload.request import Request

if TYPE_CHECKING:
    from core.engine.engine import EngineCore

_FLUSH_S = 1.0  # the most that a killed run loses


@contextmanager
def writing(engine: EngineCore, path: str | os.PathLike[str]) -> Iterator[None]:
    """Write the engine's one run inside the block to a file, step by step, as
    `engine.trace.save(path)` would write it afterwards.

    How much of the run stays in memory is up to the engine's recorder. The file takes its place
    when the block ends, also after an exception if there has been a step; until then its name ends
    with the process id and `.partial`. Raises InflightError if it cannot be written, and for a
    block without a run or with a second one.
    """
    from core.engine.engine import EngineCore  # which need not be loaded to read a file

    require(engine, EngineCore, "The run of an engine is written")
    kept, failure = engine.recorder, None
    with written(path) as out, _Interrupts() as interrupts:
        engine.recorder = writer = Writer(out, kept, interrupts)
        try:
            yield
        except BaseException as error:
            if not writer.has_steps:
                raise
            failure = error
        finally:
            engine.recorder = kept
        if not writer.has_begun:
            raise InflightError(f"{path} is not written: nothing ran.")
        with interrupts.deferred():
            writer.close()
    if writer.is_header_old and Path(path).is_file():
        with written(path) as out:
            for line in with_header(lines_of(Path(path)), writer.trace.header):
                out.write(line + "\n")
    if failure is not None:
        raise failure


class Writer(TraceRecorder):
    """Writes one run as it goes; another recorder decides what to keep of it in memory."""

    def __init__(self, out: TextIO, kept: TraceRecorder, interrupts: _Interrupts) -> None:
        self._out, self._kept, self._interrupts = out, kept, interrupts
        self._seal, self._records = Seal(), Records(self._texts)
        self._unfinished: dict[str, tuple[Sequence[int], list[int]]] = {}  # prompt and answer
        self._header: Header | None = None  # as written
        self._tokenizer: Any | None = None
        self._flushed = time.monotonic()
        self.has_begun = self.has_steps = False

    @property
    def is_header_old(self) -> bool:
        """Whether the header has changed since it was written."""
        return self._header != self.trace.header

    def begin(self, header: Header, tokenizer: Any | None) -> None:
        if self.has_begun:
            raise InflightError("A file holds one run, and this one has begun.")
        self.has_begun = True
        self._tokenizer = tokenizer
        self._kept.begin(header, tokenizer)
        self.trace = self._kept.trace

    def knows(self, request: str) -> bool:
        return self._kept.knows(request)

    def request(self, request: Request, prompt: Sequence[int]) -> None:
        with self._interrupts.deferred():
            self._kept.request(request, prompt)
            self._unfinished[request.id] = prompt, []
            self._records.request(TokenizedRequest(request, list(prompt)))

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        with self._interrupts.deferred():
            made = self._kept.record(event)
            for request, token in made.tokens:
                self._unfinished[request][1].append(token)
            self._write(self._records.step(made))
            self.has_steps = True
        if (now := time.monotonic()) - self._flushed >= _FLUSH_S:
            self._flushed = now
            self._out.flush()
        return made

    def close(self) -> None:
        """Write the end of the file, for the run as far as it has come."""
        self._write(self._records.end(self.trace.complete))

    def _write(self, records: Iterable[dict[str, Any]]) -> None:
        if self._header is None:
            self._header = self.trace.header
            self._out.write(self._seal.line(header_record(self._header)) + "\n")
        for data in records:
            self._out.write(self._seal.line(data) + "\n")

    def _texts(self, request: str) -> TokenTexts:
        prompt, answer = self._unfinished.pop(request)
        is_simulated = self.trace.header.is_simulated  # then tokens are made up, and say nothing
        said = (
            [""] * len(answer) if is_simulated else pieces(self._tokenizer, answer, context=prompt)
        )
        return TokenTexts(request, pieces(self._tokenizer, prompt), said)


class _Interrupts:
    """Defers Ctrl-C while a step is written, since it would tear the file between two lines. Only
    the main thread is ever interrupted.
    """

    def __init__(self) -> None:
        self._deferred = self._came = False

    def __enter__(self) -> _Interrupts:
        self._before = signal.getsignal(signal.SIGINT)
        self._is_ours = (
            callable(self._before) and threading.current_thread() is threading.main_thread()
        )
        if self._is_ours:
            signal.signal(signal.SIGINT, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
            if self._came:
                self._came = False
                signal.raise_signal(signal.SIGINT)

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self._deferred:
            self._came = True
        elif callable(self._before):
            self._before(number, frame)
