"""The Python side of a browser tab's worker (assets/engine/worker.js): models, and JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from core.browser.chat import written
from core.browser.executor import BrowserExecutor, BrowserModel
from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_MODELS, EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError
from core.torch_engine.models.gguf import GgufFile
from core.torch_engine.models.gguf_for_tab import PackedGguf
from core.torch_engine.models.tokenizer import ModelDescription, describe_model
from core.torch_engine.models.weight_files import BadWeights
from visualizer.browser.answers import Answers, ComputedJob, NotLoaded
from visualizer.browser.time_limit import TimeLimit
from visualizer.jobs.offers import packed_facts
from visualizer.write.code import overdue


class Tab:
    """machine: facts about the browser for the header of traces as JSON, "device_name" and
    "versions". stepped: only in a sandbox; called when the next step of a timed run begins, which
    resets the time limit.
    """

    def __init__(self, machine: str, stepped: Callable[[], None] | None = None) -> None:
        self._machine = json.loads(machine)
        self._machine["versions"] = {
            "python": platform.python_version(),
            **self._machine["versions"],
        }
        self._models: dict[str, tuple[BrowserModel, Any]] = {}
        self._opened: dict[str, PackedGguf] = {}
        self._answers = Answers(
            self._engine,
            lambda model, *which: self._loaded(model)[0].attention(*which),
            self._between,
            self._describe,
        )
        self._stepped, self._limit = stepped, TimeLimit()

    def open(self, name: str, read: Callable[[int, int], Any]) -> str:
        """Inspect a visitor's GGUF file: facts for a form as JSON, or `{"error": one sentence}`.
        read: gives an array of bytes from an offset and a length.
        """
        try:
            packed = PackedGguf(GgufFile(lambda at, size: read(at, size).to_bytes()), name)
        except BadWeights as error:
            return json.dumps({"error": f"“{name}” cannot be computed in a tab: {error}."})
        self._opened[name] = packed
        self._answers.offer(name)
        facts = packed_facts(packed.header, packed.size)
        return json.dumps({**facts, "has_chat_template": packed.chat_text is not None})

    def opened(self, name: str) -> PackedGguf:
        return self._opened[name]

    def close(self, name: str) -> None:
        """Forget such a file and its model; a run that uses the model keeps it."""
        self._opened.pop(name, None)
        self._models.pop(name, None)

    def add(self, name: str, model: BrowserModel) -> None:
        if name in self._opened:
            packed = self._opened[name]
            tokenizer: Any = PlainTokenizer(packed.tokenizer, packed.chat_text)
        elif model.tokenizer:
            between = partial(written, json.loads(model.between))
            tokenizer = PlainTokenizer(model.tokenizer, between)
        else:
            tokenizer = describe_model(name).tokenizer
        self._models[name] = model, tokenizer

    def call(self, name: str, arguments: str) -> str:
        return json.dumps(self._answers.call(name, json.loads(arguments)))

    def document(self, url: str) -> str | None:
        """See `Answers.document`; None if there is nothing at the address."""
        try:
            return self._answers.document(url)
        except InflightError:
            return None

    def begin(self, kind: str, spec: str) -> TabJob:
        """See `Answers.begin`; a refusal becomes the only delta of the job."""
        try:
            return TabJob(self._answers.begin(kind, json.loads(spec)), self._limit)
        except InflightError as error:
            return TabJob(iter([{"done": True, "error": str(error)}]), self._limit)

    def _between(self) -> None:
        if self._stepped is not None:
            self._limit.begin()
            self._stepped()

    def _engine(
        self,
        model: str,
        config: EngineConfig,
        leaks: bool,
        sleep: Callable[[float], None] = time.sleep,
    ) -> EngineCore:
        executor, tokenizer = self._loaded(model, leaks)
        return EngineCore(executor, tokenizer, config, sleep=sleep)

    def _describe(self, model: str) -> ModelDescription:
        if model in BUILTIN_MODELS:
            return describe_model(model)
        executor, tokenizer = self._loaded(model)
        facts = executor.model
        return ModelDescription(facts.vocab_size or 0, facts.context, tokenizer, facts.layers)

    def _loaded(self, model: str, leaks: bool = False) -> tuple[BrowserExecutor, Any]:
        if model not in self._models:
            raise NotLoaded(model)
        computes, tokenizer = self._models[model]
        return BrowserExecutor(computes, self._machine, leaks), tokenizer


class TabJob:
    """A job that the worker advances turn by turn."""

    def __init__(self, deltas: Iterator[dict[str, Any] | None], limit: TimeLimit) -> None:
        self._deltas, self._limit = deltas, limit

    def turn(self, seconds: float) -> str:
        """Continue for this many seconds, but at least to the next pause and at most to the next
        delta; returns the new deltas as JSON.
        """
        self._limit.begin()
        until = time.perf_counter() + seconds
        for delta in self._deltas:
            if delta is not None:
                return json.dumps([delta])  # at once, since the next may take seconds
            if time.perf_counter() >= until:
                break
        return "[]"

    def overdue(self) -> str:
        """The last deltas, as JSON, of a job whose turn exceeded the time limit."""
        error = overdue(self._limit.line)
        last: dict[str, Any] = {"done": True, "error": str(error)}
        if isinstance(self._deltas, ComputedJob):
            last = self._deltas.failed(error)
        return json.dumps([last])

    def stop(self) -> None:
        if isinstance(self._deltas, ComputedJob):
            self._deltas.stop()
