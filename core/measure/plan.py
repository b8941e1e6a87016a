"""What a recorded run would have been under other settings: its requests, as they came and went,
are simulated under each with a cost fitted to the run.

The recorded setting is simulated as well; its error shows how far the others can be trusted.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from core import page
from core.account.metrics import distribution, wall_s
from core.account.request_times import RequestTimes, SLOs, request_times
from core.collector import gc_off
from core.config import ASSETS, EngineConfig, PolicyOrName
from core.errors import InflightError, InvalidConfig, require
from core.files import written
from core.policy import POLICIES, RecordedPolicy
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear, fit
from core.trace.messages import english
from core.trace.trace import Texts, Trace, require_trace

LARGE = 0.25
"""The error of the recorded setting's E2E, at p50 or p99, beyond which settings are not ranked."""
MOST_SETTINGS = 64
_T = TypeVar("_T")
_Made = TypeVar("_Made")
Say = Callable[..., str]
"""Translates an English sentence with its numbers; {names} in it are passed by keyword."""
_TIMES = ("ttft_s", "e2e_s", "queue_s")
_SHARES = ("p50", "p99")


def _plainly(text: str, **names: str) -> str:
    return english(text).format(**names)


@dataclass(frozen=True)
class Point:
    """One setting. numbers: those of `numbers_of`, None if it cannot run these requests. refused:
    why it cannot. beyond: a sentence if passes lay beyond what was measured. requests: their times.
    """

    config: EngineConfig
    numbers: dict[str, Any] | None = None
    refused: str | None = None
    beyond: str | None = None
    requests: dict[str, RequestTimes] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the requests."""
        return {
            "config": self.config.to_json(),
            "numbers": self.numbers,
            "refused": self.refused,
            "beyond": self.beyond,
        }


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of a plan. measured: the recorded run. again: its setting, simulated. points: the
    other settings, best first if they are ranked, otherwise as requested. slos: the limits of a
    good request. notes: how a simulated run differs. trace: the recorded run.
    """

    measured: Point
    again: Point
    points: tuple[Point, ...]
    cost: Linear
    slos: SLOs
    notes: tuple[str, ...]
    trace: Trace

    def __repr__(self) -> str:
        return f"<Plan of {len(self.points)} settings: {self.verdict}>"

    @property
    def errors(self) -> dict[str, float | None]:
        """The recorded setting's relative errors by number; above 0: simulated too large."""
        ours, theirs = self.again.numbers or {}, self.measured.numbers or {}
        pairs = {
            f"{name} {share}": (ours[name][share], theirs[name][share])
            for name in ("ttft_s", "itl_s", "e2e_s")
            for share in _SHARES
        } | {"output_tok_s": (ours["output_tok_s"], theirs["output_tok_s"])}
        return {
            name: mine / real - 1 if mine is not None and real else None
            for name, (mine, real) in pairs.items()
        }

    @property
    def is_ranked(self) -> bool:
        """Whether the recorded setting is simulated well enough to rank others."""
        return all(abs(self.errors[f"e2e_s {share}"] or 0.0) <= LARGE for share in _SHARES)

    @property
    def verdict(self) -> str:
        """The result of the plan in a sentence or two."""
        return self.told()

    def told(self, say: Say = _plainly) -> str:
        """`verdict` in the language of `say`."""
        middle, last = (abs(self.errors[f"e2e_s {share}"] or 0.0) for share in _SHARES)
        own = say(
            "The setting that was recorded is simulated with an E2E off by"
            f" {100 * middle:.0f} % at p50 and {100 * last:.0f} % at p99."
        )
        if not self.is_ranked:
            return f"{own} {say('That is too much to rank others by.')}"
        can = [point for point in (self.again, *self.points) if point.numbers]
        best = min(can, key=self._rank)
        near = [point for point in can if self._is_near(point, best)]
        if self.again in near:
            return f"{own} {say('No other is better than it by more than that.')}"
        by = "goodput is highest" if self.has_slos else "E2E at p50 is lowest"
        found = say(f"By this, {by} with {{setting}}.", setting=self.name_of(best.config, say))
        others = len(near) - 1
        beside = say(f"{others} more [is|are] within that error of it.") if others else ""
        return f"{own} {found} {beside}".rstrip()

    def name_of(self, config: EngineConfig, say: Say = _plainly) -> str:
        """The name of a setting: how it differs from the recorded one."""
        require(config, EngineConfig, "A setting is an EngineConfig")
        own = self.again.config
        parts = [
            words
            for name, words in (
                ("policy", config.policy.name),
                ("max_num_seqs", say(f"{config.max_num_seqs:,} [lane|lanes]")),
                ("max_num_batched_tokens", say(f"budget {config.max_num_batched_tokens:,}")),
                ("num_blocks", say(f"{config.num_blocks or 0:,} [block|blocks]")),
            )
            if getattr(config, name) != getattr(own, name)
        ]
        return ", ".join(parts) or say("as recorded")

    def run(self, point: Point) -> Trace:
        """The simulated run of a setting. Raises InflightError if it cannot run the requests."""
        chosen = require(point, Point, "A setting is one of the plan's points")
        return _ended(simulating(self.trace, self.cost, chosen.config))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema": "plan/1",
            "measured": self.measured.to_json(),
            "recorded_setting": self.again.to_json(),
            "errors": self.errors,
            "is_ranked": self.is_ranked,
            "verdict": self.verdict,
            "settings": [{"name": self.name_of(p.config), **p.to_json()} for p in self.points],
            "slos": asdict(self.slos),
            "notes": list(self.notes),
            "cost": self.cost.to_json(),
        }

    def plot(self) -> Any:
        """A Plotly figure: throughput against TTFT and ITL, each point a setting."""
        return page.provided(page.plot)(self, "frontier", None)

    def save_html(self, path: str | Path, pages: str | Path | None = None) -> None:
        """Write `plot` as one file, which opens from disk. pages: the folder with the runs of its
        points, named 0.html and so on; a click on a point then opens its run. Raises InflightError
        if it cannot be written.
        """
        script = None
        if pages is not None:
            folder = quote(Path(os.path.relpath(pages, Path(path).parent)).as_posix())
            script = (ASSETS / "plan" / "points.js").read_text(encoding="utf-8")
            script = script.replace("FOLDER", json.dumps(folder))
        with written(path) as file:
            file.write(self.plot().to_html(include_plotlyjs=True, post_script=script))

    @property
    def has_slos(self) -> bool:
        """Whether any limit is stated, so that there is a goodput."""
        return self.slos != SLOs()

    def _rank(self, point: Point) -> float:
        """A sort key: the smaller, the better; settings that cannot run come last."""
        if point.numbers is None:
            return float("inf")
        if self.has_slos:
            return -float(point.numbers["goodput"]["requests_per_s"] or 0.0)
        return float(point.numbers["e2e_s"]["p50"] or float("inf"))

    def _is_near(self, point: Point, best: Point) -> bool:
        """Whether a setting is as good as the best, within the error of E2E at p50."""
        error, least = abs(self.errors["e2e_s p50"] or 0.0), abs(self._rank(best))
        return abs(abs(self._rank(point)) - least) <= error * least


def plan(
    trace: Trace,
    *,
    lanes: Iterable[int] = (),
    budgets: Iterable[int] = (),
    blocks: Iterable[int] = (),
    policies: Sequence[PolicyOrName] = (),
    slos: SLOs | None = None,
    on_point: Callable[[str], object] = lambda name: None,
) -> Plan:
    """Simulate the requests of a measured run under every combination of these settings; a limit
    for which no values are given stays as recorded.

    slos: limits of a good request. on_point: called with the name of each setting before it is
    simulated. Raises InflightError for a run to which no cost can be fitted, for one in which no
    request ended, and for too many settings.
    """
    require(on_point, Callable, "What is told of each setting is a function")
    turns = planning(trace, lanes, budgets, blocks, policies, slos)
    return _ended(turns, lambda name: name is not None and on_point(name))


def _ended(
    turns: Generator[_T, None, _Made], each: Callable[[_T], object] = lambda _: None
) -> _Made:
    """Run a generator to its end; returns its result. each: called with every value."""
    with gc_off():
        while True:
            try:
                each(next(turns))
            except StopIteration as end:
                return end.value


def planning(
    trace: Trace,
    lanes: Iterable[int],
    budgets: Iterable[int],
    blocks: Iterable[int],
    policies: Sequence[PolicyOrName],
    slos: SLOs | None = None,
) -> Generator[str | None, None, Plan]:
    """`plan` as a generator: yields the name of each setting first, and None after each step."""
    require_trace(trace)
    for given in (lanes, budgets, blocks):
        require(given, Iterable, "What is to be tried of a limit is a list")
    require(policies, (list, tuple), "Policies to be tried are a list of names or policies")
    limits = require(SLOs() if slos is None else slos, SLOs, "Limits are SLOs, as SLOs(ttft_s=1)")
    recorded, notes = _setting(trace)
    axes: dict[str, tuple[Any, ...]] = {
        "policy": tuple(policies) or (recorded.policy,),
        "max_num_seqs": tuple(lanes) or (recorded.max_num_seqs,),
        "max_num_batched_tokens": tuple(budgets) or (recorded.max_num_batched_tokens,),
        "num_blocks": tuple(blocks) or (recorded.num_blocks,),
    }
    if (total := math.prod(map(len, axes.values()))) > MOST_SETTINGS:
        raise InflightError(f"{total:,} settings are too many; {MOST_SETTINGS} are the most.")
    for name, axis in axes.items():
        for value in axis:  # a value that is invalid by itself is an error, not a contradiction
            EngineConfig.from_json({"prefill_first": True, name: value})
    settings, contradictions = [], Counter[str]()
    for values in product(*axes.values()):
        try:
            settings.append(recorded.under(**dict(zip(axes, values, strict=True))))
        except InvalidConfig as error:
            contradictions[str(error)] += 1
    if not settings:
        raise InvalidConfig(next(iter(contradictions)))
    notes += [
        english(f"{count:,} [setting is|settings are] left out: {why}")
        for why, count in contradictions.items()
    ]
    times = request_times(trace)
    done = frozenset(request for request, one in times.items() if one.is_done and not one.is_cut)
    if not done:
        raise InflightError("No request of this run ended by itself, so there is nothing to plan.")
    yield "as recorded"
    cost = fit(trace)
    measured = Point(recorded, numbers_of(trace, done, limits), requests=times)
    workload = trace.as_run()
    is_ours = trace.header.engine is None

    def simulated(config: EngineConfig) -> Generator[None, None, Point]:
        try:
            engine = SimulatedEngine(cost, config)
            for _ in engine.stream(workload):
                yield
            found = engine.trace
        except InflightError as error:
            return Point(config, refused=str(error))
        found = found if is_ours else _as_recorded(found)
        numbers = numbers_of(found, done, limits)
        return Point(config, numbers, None, engine.beyond, request_times(found))

    again = yield from simulated(recorded)
    if again.numbers is None:
        raise InflightError(f"The recorded setting cannot be simulated: {again.refused}")
    made = Plan(
        measured=measured,
        again=again,
        points=(),
        cost=cost,
        slos=limits,
        notes=tuple(notes),
        trace=trace,
    )
    points: dict[str, Point] = {}
    for config in settings:
        name = made.name_of(config)
        if config == recorded or name in points:
            continue
        yield name
        points[name] = yield from simulated(config)
    ranked = sorted(points.values(), key=made._rank) if made.is_ranked else points.values()
    return replace(made, points=tuple(ranked))


def simulating(trace: Trace, cost: Linear, config: EngineConfig) -> Generator[None, None, Trace]:
    """Simulate the requests of a recorded run under a setting, step by step, timed as in `plan`.
    Returns the trace, in which prompts have their recorded texts.
    """
    engine = SimulatedEngine(cost, config)
    for _ in engine.stream(trace.as_run()):
        yield
    made = engine.trace if trace.header.engine is None else _as_recorded(engine.trace)
    empty = {request: [""] * len(ids) for request, ids in made.outputs.items()}
    made.recorded_texts = Texts({request: trace.texts.prompt[request] for request in empty}, empty)
    return made


def numbers_of(trace: Trace, requests: frozenset[str], slos: SLOs) -> dict[str, Any]:
    """A run in numbers. Those about requests count only the given ones, which ended by themselves
    in the recorded run: it is unknown how long the others would have stayed.
    """
    times = [one for request, one in request_times(trace).items() if request in requests]
    wall, met = wall_s(trace), sum(one.meets(slos) for one in times)
    tokens = sum(len(event.sampled) for event in trace.events)
    found: dict[str, Any] = {
        name: distribution(value for one in times if (value := getattr(one, name)) is not None)
        for name in _TIMES
    }
    return found | {
        "itl_s": distribution(gap for one in times for gap in one.itl_s),
        "goodput": {"met": met, "share": met / len(times), "requests_per_s": met / wall},
        "output_tok_s": tokens / wall,
        "preemptions": sum(len(event.preempted) for event in trace.events),
        "most_waiting": max((event.waiting.count for event in trace.events), default=0),
        "steps": len(trace.events),
        "wall_s": wall,
    }


def _setting(trace: Trace) -> tuple[EngineConfig, list[str]]:
    """The recorded setting as it can be simulated, and sentences on how that differs."""
    header, config = trace.header, trace.config
    notes = []
    if isinstance(config.policy, RecordedPolicy):
        notes.append(
            f"By what the policy “{config.policy.name}” orders requests is not on record: simulated"
            " first come, first served."
        )
        old = config.policy
        policy = replace(POLICIES["continuous"], reserve=old.reserve, watermark=old.watermark)
        config = replace(config, policy=policy)
    if config.prefix_caching and "prompts" in header.absent:
        notes.append("Prompts are not on record: no prefix is found in a simulated run.")
        config = replace(config, prefix_caching=False)
    engine = header.engine
    if engine is not None and engine.long_prefill_token_threshold:
        notes.append("A simulated run has no limit to the chunks of long prompts but the budget.")
    if any(event.drafts for event in trace.events):
        notes.append("A simulated run drafts no tokens: a request gets one a pass.")
    if any(group.window for group in header.groups):
        notes.append("In a simulated run no block leaves a request as its window passes.")
    if any(event.resumed is not None for event in trace.events):
        notes.append("Some steps are not on record: what came and went in them is left out.")
    return config, notes


def _as_recorded(trace: Trace) -> Trace:
    """The trace with every request counted from the start of the step that takes it up, as
    recorders of other engines count: there it has already waited for the step before.
    """
    taken = {a.request: event.t_start for event in trace.events for a in event.arrived}
    asked = {}
    for name, one in trace.asked.items():
        now, leaves = taken[name], one.request.leaves_after
        if leaves is not None:  # at the moment at which it did, or at once
            leaves = max(1e-6, one.request.arrival + leaves - now)
        asked[name] = one._replace(request=replace(one.request, arrival=now, leaves_after=leaves))
    events = [
        event._replace(arrived=tuple([a._replace(t=event.t_start) for a in event.arrived]))
        for event in trace.events
    ]
    return replace(trace, asked=asked, events=events)
