"""The Compare tab's jobs: comparisons, equivalence and forks, one at a time so that times can be trusted.

A job's answer is `url` (a document, see `visualizer.documents.comparison`) or `result`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import POLICIES, EngineConfig
from core.trace.phrases import SETTINGS
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import preset_entry
from visualizer.documents.comparison import RECORDED, Shown, document, fork_document, lettered, load, recorded
from visualizer.server.jobs import Job
from visualizer.server.lent_gpu import COMPARISONS, is_lent
from visualizer.server.limits import Limits, Refused, Spec, check, offered_models
from visualizer.server.store import Store

if TYPE_CHECKING:
    from core.measure.rounds import Progress
    from core.models.cache import ModelCache
    from core.trace.trace import Trace

_COST_SECONDS = 4.0


class Measurement(Job):
    """A job of the Compare tab: the checked spec of a run. Each kind takes more fields from the spec; raises InflightError."""

    queue = "comparisons"
    store: Store

    def __init__(self, spec: dict[str, Any], limits: Limits, models: ModelCache, store: Store) -> None:
        super().__init__(_checked(spec, limits), limits, models, store)

    def run_to_end(self, config: EngineConfig) -> Trace:
        """Run to the end; can be stopped at every step."""
        engine = self.engine(config, self.spec.device)
        for _ in self.steps(engine, self.spec.workload):
            pass
        return engine.trace


class ComparisonJob(Measurement):
    """The same requests under several policies. spec: also "policies" and "repeats"."""

    noun = "comparison"

    def __init__(self, spec: dict[str, Any], limits: Limits, models: ModelCache, store: Store) -> None:
        super().__init__(spec, limits, models, store)
        policies, repeats = spec.get("policies"), spec.get("repeats", 3)
        if (
            not isinstance(policies, list)
            or not all(isinstance(p, str) and p in POLICIES for p in policies)
            or len(set(policies)) < len(policies)
        ):
            raise Refused(f"Choose policies by name, each once: {', '.join(POLICIES)}.")
        if not policies:
            raise Refused("Choose at least one policy.")
        if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= limits.repeats:
            raise Refused(f"Each policy can run 1 to {limits.repeats} times here.")
        self._configs, self._repeats = [self.spec.config.under(name) for name in policies], repeats

    def work(self) -> dict[str, Any]:
        from core.measure.compare import compare, engine_contender, environment
        from core.measure.cost_curve import cost_curve

        engines = [self.engine(config, self.spec.device) for config in self._configs]
        workload = self.spec.workload
        contenders = [engine_contender(engine, workload, partial(self.steps, engine)) for engine in engines]
        where = environment(engines[0].trace.header)
        result = compare(contenders, self._repeats, on_run=self._report)
        self.progress = {**self.progress, "index": self.progress["total"], "contender": ""}
        is_preset = workload.name in PRESETS and PRESETS[workload.name].workload == workload  # unchanged
        shown = Shown(
            result,
            workload.name if is_preset else "custom",
            where,
            title=PRESETS[workload.name].title if is_preset else "Your requests",
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            cost=cost_curve(engines[0].executor, repeats=3, seconds=_COST_SECONDS, on_point=self.check),
        )
        return {"url": self.store.keep_document(document(shown))}

    def _report(self, progress: Progress) -> None:
        self.check()
        self.progress = asdict(progress)


class EquivalenceJob(Measurement):
    """Each request alone and in a batch. spec: also "leak", whether requests may read each other's keys."""

    noun = "check"

    def __init__(self, spec: dict[str, Any], limits: Limits, models: ModelCache, store: Store) -> None:
        super().__init__(spec, limits, models, store)
        self._leak = spec.get("leak", False)
        if not isinstance(self._leak, bool):
            raise Refused("The leak is on or off.")

    def work(self) -> dict[str, Any]:
        from core.measure.equivalence import equivalence

        engine, steps = self.engine(self.spec.config, self.spec.device), 0
        self.steps(engine, self.spec.workload)  # refusals happen now

        def on_step(event: object) -> None:
            nonlocal steps
            steps += 1
            self.check()
            self.progress = {"step": steps}

        found = equivalence(
            engine.adapter, engine.tokenizer, self.spec.workload, self.spec.config, leak=self._leak, on_step=on_step
        )
        return {"result": lettered(found.to_json())}


class ForkJob(Measurement):
    """The same requests twice, one limit changed. spec: also "knob" and its "value"."""

    noun = "fork"

    def __init__(self, spec: dict[str, Any], limits: Limits, models: ModelCache, store: Store) -> None:
        super().__init__(spec, limits, models, store)
        turned = _turned(self.spec.config, spec.get("knob"), spec.get("value"))
        self._changed = _checked({**spec, "config": turned.to_json()}, limits)

    def work(self) -> dict[str, Any]:
        traces: list[Trace] = []
        for index, config in enumerate((self.spec.config, self._changed.config)):
            self.progress = {"index": index, "total": 2}
            traces.append(self.run_to_end(config))
        return {"url": self.store.keep_document(fork_document(*traces)), "runs": [self.store.keep(trace) for trace in traces]}


KINDS: dict[str, Callable[[dict[str, Any], Limits, Any, Store], Measurement]] = {
    "compare": ComparisonJob,
    "equivalence": EquivalenceJob,
    "fork": ForkJob,
}


def catalogue(limits: Limits, folder: Path = RECORDED, model: str = "") -> dict[str, Any]:
    """The choices on the Compare tab: recorded comparisons, presets, policies, models. model: the one that the page opens with."""
    return {
        "recorded": recorded(folder),
        "policies": [{"name": p.name, "shows": p.shows} for p in POLICIES.values()],
        "presets": [preset_entry(preset) for preset in PRESETS.values()],
        "most_repeats": limits.repeats,
        "offered": offered_models(limits, model),
        "note": COMPARISONS if is_lent() else "",
    }


def open_recorded(name: object, store: Store, folder: Path = RECORDED) -> str:
    """The address of a recorded comparison's document, written when first requested; raises InflightError for an unknown one."""
    if not isinstance(name, str) or name not in {entry["name"] for entry in recorded(folder)}:
        raise Refused("There is no such recorded comparison.")
    path = folder / name
    return store.once(("comparison", name), lambda: store.keep_document(document(load(path)), pinned=True))


def _checked(spec: dict[str, Any], limits: Limits) -> Spec:
    fields = {name: spec[name] for name in ("workload", "config", "model", "device", "dtype") if name in spec}
    return check(fields | {"device": "cpu"} if is_lent() else fields, limits)


def _turned(config: EngineConfig, knob: object, value: object) -> EngineConfig:
    """The config with one knob changed; raises Refused for an unknown knob."""
    if not isinstance(knob, str) or knob not in SETTINGS:
        raise Refused(f"One knob can be changed: {', '.join(SETTINGS)}.")
    if knob == "policy":
        if not isinstance(value, str) or value not in POLICIES:
            raise Refused(f"The policies are {', '.join(POLICIES)}.")
        return config.under(value)
    changed = EngineConfig.from_json({**config.to_json(), knob: value})
    if changed == config:
        raise Refused("That is what it was already: choose another value.")
    return changed
