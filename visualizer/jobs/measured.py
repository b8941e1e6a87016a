"""The work of the Compare tab: comparisons and forks, each made from a run's spec and a few further
fields. The answer is `url`, the address of a document (see `visualizer.documents.comparison`).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from core.config import POLICIES, EngineConfig
from core.engine.engine import EngineCore
from core.measure.compare import comparing, engine_contender, environment
from core.measure.cost_curve import measuring_cost
from core.trace.events import StepEvent
from core.trace.phrases import SETTINGS
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from core.workload.workload import Workload
from visualizer.charts.theme import HUES
from visualizer.documents.comparison import Shown, document, fork_document
from visualizer.jobs.limits import Limits, Refused, TimeIsUp, check
from visualizer.jobs.planned import PlanJob, SettingJob
from visualizer.jobs.work import Going, Host, Work

_COST_SECONDS = 4.0


class Compare(Work):
    """The same requests under several policies. spec: also "policies" and "repeats". If time runs
    out, the answer has the complete rounds and says how many these are.
    """

    noun = "comparison"
    period = 0.5

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(check(spec, limits), limits)
        policies, repeats = spec.get("policies"), spec.get("repeats", 3)
        if (
            not isinstance(policies, list)
            or not all(isinstance(p, str) and p in POLICIES for p in policies)
            or len(set(policies)) < len(policies)
        ):
            raise Refused(f"Choose policies by name, each once: {', '.join(POLICIES)}.")
        if not policies:
            raise Refused("Choose at least one policy.")
        if len(policies) > len(HUES):  # each contender has its own hue
            raise Refused(f"At most {len(HUES)} policies can be compared at once.")
        if type(repeats) is not int or not 1 <= repeats <= limits.repeats:
            raise Refused(f"Each policy can run 1 to {limits.repeats} times here.")
        self._configs, self._repeats = [self.spec.config.under(name) for name in policies], repeats
        self._timed_run: _TimedRun | None = None

    def so_far(self) -> dict[str, Any]:
        """The progress; during a turn also that of the current run."""
        # read in this order: a run is set after the progress of its turn
        run, progress = self._timed_run, self.progress
        return progress | run.so_far() if run is not None and run.turn is progress else progress

    def run(self, host: Host) -> Going:
        engines = [host.engine(self.spec, config) for config in self._configs]
        workload = self.spec.workload
        contenders = [
            engine_contender(engine, workload, partial(self._timed, host, engine))
            for engine in engines
        ]
        where = environment(engines[0].trace.header)
        turns = comparing(contenders, self._repeats, until=TimeIsUp)
        result = yield from self.followed(turns, asdict)
        rounds = len(result.walls[result.baseline])
        cost = None
        if rounds == self._repeats:  # there is time left
            self.progress = {**self.progress, "index": self.progress["total"], "contender": ""}
            with suppress(TimeIsUp):
                cost = yield from measuring_cost(
                    engines[0].executor, repeats=3, seconds=_COST_SECONDS
                )
        # an edited preset no longer counts as one
        is_preset = workload.name in PRESETS and PRESETS[workload.name].workload == workload
        shown = Shown(
            result,
            workload.name if is_preset else "custom",
            where,
            title=PRESETS[workload.name].title if is_preset else "Your requests",
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            cost=cost,
        )
        return {"url": host.keep_document(document(shown)), "rounds": rounds}

    def _timed(self, host: Host, engine: EngineCore, workload: Workload) -> Iterator[StepEvent]:
        steps = self.steps(engine, workload)
        self._timed_run = _TimedRun(self.progress, engine.trace)

        def taken() -> Iterator[StepEvent]:
            for event in steps:
                host.between()
                if event is not None:
                    yield event

        return taken()


class _TimedRun:
    """A run that is being timed, as seen from another thread: counts what has been added to its
    trace since the last look. turn: the progress when the run began.
    """

    def __init__(self, turn: dict[str, Any], trace: Trace) -> None:
        self.turn, self._trace = turn, trace
        self._steps = self._ended = self._tokens = 0

    def so_far(self) -> dict[str, Any]:
        """The number of ended requests, of all requests, and of sampled tokens."""
        new = self._trace.events[self._steps :]
        self._steps += len(new)
        self._ended += sum(len(event.finished) for event in new)
        self._tokens += sum(len(event.sampled) for event in new)
        return {"ended": self._ended, "requests": len(self._trace.asked), "tokens": self._tokens}


class Fork(Work):
    """The same requests twice, with one setting changed. spec: also "knob" and its "value"."""

    noun = "fork"

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(check(spec, limits), limits)
        turned = _turned(self.spec.config, spec.get("knob"), spec.get("value"))
        checked = check({**spec, "config": turned.to_json()}, limits)
        self._configs = (self.spec.config, checked.config)

    def run(self, host: Host) -> Going:
        traces: list[Trace] = []
        for index, config in enumerate(self._configs):
            self.progress = {"index": index, "total": len(self._configs)}
            engine = host.engine(self.spec, config)
            for _ in self.steps(engine, self.spec.workload):
                yield
            traces.append(engine.trace)
        return {
            "url": host.keep_document(fork_document(*traces)),
            "runs": [host.keep(trace) for trace in traces],
        }


def _turned(config: EngineConfig, knob: object, value: object) -> EngineConfig:
    """The config with one knob changed; raises Refused for an unknown knob."""
    if not isinstance(knob, str) or knob not in SETTINGS:
        raise Refused(f"One knob can be changed: {', '.join(SETTINGS)}.")
    if knob == "policy":
        if not isinstance(value, str) or value not in POLICIES:
            raise Refused(f"The policies are {', '.join(POLICIES)}.")
        changed = config.under(value)
    else:
        changed = EngineConfig.from_json({**config.to_json(), knob: value})
    if changed == config:
        raise Refused("That is what it was already: choose another value.")
    return changed


KINDS: Mapping[str, Callable[[dict[str, Any], Limits], Work]] = {
    "compare": Compare,
    "fork": Fork,
    "plan": PlanJob,
    "simulate": SettingJob,
}
"""The kinds of work that the server and a tab can do, by the names that a page sends."""
