"""What the Compare tab asks of the server: comparisons, equivalence and forks, run one at a time so that times can be believed.

A task is asked for by kind and spec; its answer is a stream of deltas `{"task", "progress"}` that ends with `{"done": true}` and
either `url` (a document, see `visualizer.documents.comparison`), `result` or `error`, one sentence. Knows nothing of Gradio.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from core.config import POLICIES, EngineConfig
from core.engine.engine import Engine
from core.errors import InflightError
from core.measure.compare import compare, config_for, engine_contender
from core.measure.cost_curve import cost_curve
from core.measure.divergence import divergence
from core.measure.environment import environment
from core.measure.equivalence import equivalence
from core.measure.rounds import Progress
from core.models.cache import Models
from core.trace.events import StepEvent
from core.trace.phrases import SETTINGS, letters
from core.trace.trace import Trace
from core.workload.presets import PRESETS, preset
from core.workload.workload import Workload
from visualizer.charts.contenders import hues
from visualizer.documents.comparison import Shown, document, lettered, race_replay
from visualizer.documents.comparison_files import RECORDED, load, recorded
from visualizer.documents.replay import write
from visualizer.server.lent_gpu import COMPARISONS, is_lent
from visualizer.server.limits import Limits, Refused, Spec, check, check_tokens
from visualizer.words import findings

KINDS = ("compare", "equivalence", "fork")
KNOBS = (
    "policy",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "num_blocks",
    "chunked_prefill",
    "prefix_caching",
    "prefill_first",
)
_PERIOD, _ALIVE, _REST = 0.1, 1.0, 5.0
_KEPT_DOCUMENTS = 64
_COST_SECONDS = 4.0
log = logging.getLogger("inflight")


class Stopped(Exception):
    """Raised inside a task that its visitor cancelled or left."""


class Task:
    """One task and its thread. `tick` is called at every step of every engine: the place where it can be stopped."""

    def __init__(self, seconds: float) -> None:
        self.id = secrets.token_urlsafe(12)
        self.progress: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self._cancelled, self.ended = threading.Event(), threading.Event()
        self._seconds, self._deadline = seconds, float("inf")
        self.is_started = False

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def tick(self, *_: Any) -> None:
        if self._cancelled.is_set():
            raise Stopped
        if time.monotonic() > self._deadline:
            raise Refused(
                f"This was stopped after {self._seconds:,.0f} seconds, the longest that this page works on one question."
            )

    def sleep(self, seconds: float) -> None:
        """How an engine waits for the next arrival: not beyond a cancellation."""
        if self._cancelled.wait(seconds):
            raise Stopped

    def start(self, work: Callable[[Task], dict]) -> None:
        """Do the work in a thread of its own; its answer is in `answer` once `ended` is set."""
        self.is_started, self._deadline = True, time.monotonic() + self._seconds

        def body() -> None:
            try:
                self.answer = work(self)
            except Stopped:
                self.answer = {"error": "Cancelled."}
            except InflightError as error:
                self.answer = {"error": str(error)}
            except Exception as error:  # a bug or a machine out of memory: this task fails, the server goes on
                log.exception("task %s failed", self.id)
                self.answer = {"error": f"This failed inside the engine: {type(error).__name__}."}
            finally:
                self.ended.set()

        threading.Thread(target=body, name=f"task-{self.id}", daemon=True).start()


class Tasks:
    """All tasks of a server: one at a time, a line for the others, one for each visitor.

    folder: where documents are kept; url: the address under which one is served.
    """

    def __init__(
        self, folder: Path, url: Callable[[Path], str], limits: Limits, models: Models | None = None, comparisons: Path = RECORDED
    ) -> None:
        self._folder, self._url, self._limits = folder, url, limits
        self._models, self._recorded = models or Models(), comparisons
        self._line: dict[str, Task] = {}  # by visitor, in order of arrival; the first is at work
        self._kept: dict[str, Path] = {}  # documents of recorded comparisons
        self._lock = threading.Lock()

    # -- on record ---------------------------------------------------------------------------------------------------

    def catalogue(self) -> dict[str, Any]:
        """What can be opened and asked for here."""
        return {
            "recorded": recorded(self._recorded),
            "policies": [{"name": p.name, "shows": p.shows} for p in POLICIES.values()],
            "presets": [_preset(name) for name in PRESETS],
            "knobs": [{"name": name, "title": SETTINGS[name]} for name in KNOBS],
            "most_repeats": self.most_repeats,
            "note": COMPARISONS if is_lent() else "",
        }

    def open(self, name: str) -> dict:
        """The address of a recorded comparison's document, made when it is first asked for; or why not."""
        if name not in {entry["name"] for entry in recorded(self._recorded)}:
            return {"error": "There is no such comparison on record."}
        try:
            with self._lock:
                if name not in self._kept:
                    self._kept[name] = write(self._folder, document(load(self._recorded / name)))
            return {"url": self._url(self._kept[name])}
        except InflightError as error:
            return {"error": str(error)}

    @property
    def most_repeats(self) -> int:
        return 9 if self._limits.any_model else 3

    # -- tasks -------------------------------------------------------------------------------------------------------

    async def stream(self, kind: str, spec: object, visitor: str) -> AsyncIterator[dict]:
        """Do a task and stream its deltas. Every refusal is one delta with `error` and `done`."""
        try:
            task, work = self._enter(kind, spec, visitor)
        except InflightError as error:
            yield {"task": "", "done": True, "error": str(error)}
            return
        try:
            while (ahead := list(self._line).index(visitor)) and not task.is_cancelled:
                yield {"task": task.id, "progress": {"ahead": ahead}}
                await asyncio.sleep(_ALIVE / 2)
            task.start(work)
            told, last = None, 0.0
            while not task.ended.is_set():
                now = time.monotonic()
                if task.progress != told or now - last > _ALIVE:
                    told, last = dict(task.progress), now
                    yield {"task": task.id, "progress": told}
                await asyncio.sleep(_PERIOD)
            yield {"task": task.id, "done": True, **task.answer}
        finally:
            task.cancel()
            try:
                if task.is_started:
                    await asyncio.to_thread(task.ended.wait, _REST)  # the next in line starts on a machine at rest
            finally:
                self._line.pop(visitor, None)

    def cancel(self, task: str) -> dict:
        """Cancel a task by its id, which only its visitor knows."""
        found = next((t for t in self._line.values() if t.id == task), None)
        if found is not None:
            found.cancel()
        return {"cancelled": found is not None}

    def _enter(self, kind: object, spec: object, visitor: str) -> tuple[Task, Callable[[Task], dict]]:
        if kind not in KINDS or not isinstance(spec, dict):
            raise Refused(f"This page can {', '.join(KINDS)}; that is asked for by name, with a spec.")
        if visitor in self._line:
            raise Refused("Your last question is still being worked on: cancel it or wait for its end.")
        if len(self._line) >= 1 + self._limits.line // 4:
            raise Refused("Too many visitors compare just now: try again in a minute. The recorded comparisons play on.")
        work = {"compare": self._compare, "equivalence": self._equivalence, "fork": self._fork}[str(kind)](spec)
        task = self._line[visitor] = Task(self._limits.seconds)
        return task, work

    def _store(self, made: dict[str, Any]) -> str:
        """The address of a document; of those that visitors made only the newest stay."""
        path = write(self._folder, made)
        made_here = set(self._folder.glob("*.json")) - set(self._kept.values())
        for old in sorted(made_here, key=lambda p: p.stat().st_mtime)[:-_KEPT_DOCUMENTS]:
            old.unlink(missing_ok=True)
        return self._url(path)

    def _checked(self, spec: dict) -> Spec:
        asked = {name: spec[name] for name in ("workload", "config", "model", "device") if name in spec}
        return check(asked | {"device": "cpu"} if is_lent() else asked, self._limits)

    def _compare(self, spec: dict) -> Callable[[Task], dict]:
        asked, policies, repeats = self._checked(spec), spec.get("policies"), spec.get("repeats", 3)
        if not isinstance(policies, list) or not all(p in POLICIES for p in policies) or len(set(policies)) < len(policies):
            raise Refused(f"Choose policies by name, each once: {', '.join(POLICIES)}.")
        if not policies:
            raise Refused("Choose at least one policy.")
        if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= self.most_repeats:
            raise Refused(f"Each policy can run 1 to {self.most_repeats} times here.")
        configs = [config_for(name, asked.config) for name in policies]

        def work(task: Task) -> dict:
            adapter, tokenizer = self._models.get(asked.model, asked.device)
            engines = [Engine(adapter, tokenizer, config, sleep=task.sleep) for config in configs]
            contenders = [engine_contender(e, asked.workload, partial(_watched, e, task, self._limits)) for e in engines]

            def on_run(progress: Progress) -> None:
                task.tick()
                task.progress = asdict(progress)

            where = environment(engines[0].trace.header)
            result = compare(contenders, repeats, on_run=on_run)
            task.progress = {**task.progress, "index": task.progress["total"], "contender": ""}
            shown = Shown(
                result,
                asked.workload.name if _is_preset(asked.workload) else "custom",
                where,
                title=PRESETS[asked.workload.name].title if _is_preset(asked.workload) else "Your requests",
                created=_now(),
                cost=cost_curve(adapter, repeats=3, seconds=_COST_SECONDS, on_point=task.tick),
            )
            return {"url": self._store(document(shown))}

        return work

    def _equivalence(self, spec: dict) -> Callable[[Task], dict]:
        asked, leak = self._checked(spec), spec.get("leak", False)
        if not isinstance(leak, bool):
            raise Refused("The leak is on or off.")

        def work(task: Task) -> dict:
            adapter, tokenizer = self._models.get(asked.model, asked.device)
            check_tokens(_lengths(adapter, tokenizer, asked), asked.workload, self._limits)
            steps = 0

            def on_step(event: object) -> None:
                nonlocal steps
                steps += 1
                task.tick()
                task.progress = {"step": steps}

            found = equivalence(adapter, tokenizer, asked.workload, asked.config, leak=leak, on_step=on_step)
            return {"result": {**lettered(found.to_json()), "says": findings.equivalence(found)}}

        return work

    def _fork(self, spec: dict) -> Callable[[Task], dict]:
        asked = self._checked(spec)
        changed = self._checked({**spec, "config": _turned(asked.config, spec.get("knob"), spec.get("value")).to_json()})

        def work(task: Task) -> dict:
            adapter, tokenizer = self._models.get(asked.model, asked.device)
            traces = []
            for index, config in enumerate((asked.config, changed.config)):
                task.progress = {"index": index, "total": 2}
                engine = Engine(adapter, tokenizer, config, sleep=task.sleep)
                for _ in _watched(engine, task, self._limits, asked.workload):
                    pass
                traces.append(engine.trace)
            return {"url": self._store(fork_document(*traces))}

        return work


def fork_document(before: Trace, after: Trace) -> dict[str, Any]:
    """Two runs of the same requests that race step by step, and where they part."""
    found = divergence(before, after)
    names_of = letters(before)
    knob = found.knobs[0] if found and found.knobs else None
    names = [knob.of(knob.before), knob.of(knob.after)] if knob else ["as it was", "changed"]
    says = findings.fork(found, (len(before.events), len(after.events)))
    if found is not None:
        says[0] = found.sentence(lambda r: names_of.get(r, r))
    return {
        "schema": 1,
        "kind": "fork",
        "name": before.header["workload"]["name"],
        "title": before.header["workload"]["name"],
        "source": "live",
        "names": names,
        "hues": hues(names),
        "about": {names[0]: "as it was", names[1]: "one limit changed"},
        "fork": found.to_json() if found else None,
        "says": {"fork": says},
        "runs": {name: race_replay(trace) for name, trace in zip(names, (before, after), strict=True)},
    }


def _watched(engine: Engine, task: Task, limits: Limits, workload: Workload) -> Iterator[StepEvent]:
    """The steps of an engine that is set up now and can be stopped at each of them."""
    steps = engine.stream(workload)
    check_tokens(engine.trace.prompts, workload, limits)

    def watched() -> Iterator[StepEvent]:
        for count, event in enumerate(steps, 1):
            task.tick()
            if count > limits.steps:
                raise Refused(f"A run was stopped after {limits.steps:,} steps, the most that this page runs.")
            yield event

    return watched()


def _turned(config: EngineConfig, knob: object, value: object) -> EngineConfig:
    """The config with one knob changed; raises Refused for what is no knob."""
    if knob not in KNOBS:
        raise Refused(f"One knob can be changed: {', '.join(KNOBS)}.")
    if knob == "policy":
        if value not in POLICIES:
            raise Refused(f"The policies are {', '.join(POLICIES)}.")
        return config_for(str(value), config)
    changed = EngineConfig.from_json({**config.to_json(), str(knob): value})
    if changed == config:
        raise Refused("That is what it was already: choose another value.")
    return changed


def _lengths(adapter: Any, tokenizer: Any, asked: Spec) -> dict[str, list[int]]:
    """Prompts as tokens, by an engine that is asked to check them and nothing more."""
    engine = Engine(adapter, tokenizer, asked.config)
    engine.stream(asked.workload).close()  # type: ignore[attr-defined]
    return engine.trace.prompts


def _preset(name: str) -> dict:
    found = preset(name)
    spec = {"workload": found.workload.to_json(), "config": found.config.to_json(), "model": found.model, "device": "auto"}
    return {"name": name, "title": found.title, "shows": found.shows, "spec": spec}


def _is_preset(workload: Workload) -> bool:
    """Whether these are a preset's requests, not some that were made from them."""
    return workload.name in PRESETS and PRESETS[workload.name].workload == workload


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
