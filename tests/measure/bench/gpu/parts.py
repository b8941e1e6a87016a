"""The parts of the benchmark, in order of importance: each builds its model, measures, and returns
plain data. They share nothing.

On a CPU, where tests run, time is the host's.
"""

from __future__ import annotations

import copy
import gc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from transformers import PreTrainedModel

from core.account.metrics import metrics, wall_s
from core.collector import gc_off
from core.config import EngineConfig, Execution
from core.engine.recorder import TraceRecorder
from core.engine.runner import SamplingRow, observing
from core.errors import InflightError, first_sentence
from core.measure.baselines import baseline_requests
from core.measure.baselines.generate import generate_serial, generate_waves
from core.measure.baselines.records import BaselineRun, Work
from core.measure.baselines.transformers_continuous import Variant, ready
from core.measure.compare import first_differences, nearest_to_median
from core.measure.rounds import RunResult
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.workload import Workload
from measure.bench.gpu.scale import (
    Device,
    ModelShape,
    PartContext,
    Scale,
    lengths_of,
    weight_bytes_read,
)

SWITCHES: dict[str, dict[str, Any]] = {
    "everything on": {},
    "no paged kernel": {"attention": "sdpa"},
    "no CUDA graphs": {"cuda_graphs": False},
    "not asynchronous": {"asynchronous": False},
    "no fused sampling": {"fused_sampling": False},
    "no fused norms": {"fused_norms": False},
    "no fused rotary embedding": {"fused_rotary": False},
}
"""The ablation: what differs from `Execution()`."""
ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager")
MODES = ((False, False), (True, False), (True, True), (False, True))  # CUDA graphs, running ahead


@dataclass(frozen=True)
class BenchmarkPart:
    """expected_s: roughly its duration on an H200; it is not started with less time left."""

    name: str
    title: str
    expected_s: float
    run: Callable[[PartContext], dict[str, Any]]


def benchmark_parts(scale: Scale) -> list[BenchmarkPart]:
    """All of them, the most important first."""
    main, (small, large) = scale.main.name, scale.decode
    return [
        BenchmarkPart("accuracy", f"Accuracy of the packed step, {main}", 30, _accuracy),
        BenchmarkPart(main, f"Whole run of {main}", 95, _whole),
        BenchmarkPart(
            "transformers-continuous",
            f"transformers' continuous batching, {main}",
            150,
            _continuous,
        ),
        BenchmarkPart(
            f"{small.name}-decode",
            f"Decode step of {small.name}",
            25,
            lambda context: _decode(context, small),
        ),
        BenchmarkPart(
            f"{large.name}-decode",
            f"Decode step of {large.name}",
            50,
            lambda context: _decode(context, large),
        ),
        BenchmarkPart("ablation", f"One switch off at a time, {main}", 60, _ablation),
        BenchmarkPart("generate-waves", f"generate in static waves, {main}", 60, _waves),
    ]


def speed(seconds: float, outputs: Mapping[str, Sequence[int]], cut: bool) -> dict[str, Any]:
    """The speed of a run. cut: its time was up before every token was generated."""
    tokens = sum(map(len, outputs.values()))
    return {
        "seconds": round(seconds, 4),
        "output_tokens": tokens,
        "output_tok_s": round(tokens / seconds, 1),
        "cut": cut,
    }


# -- runs of this engine ---------------------------------------------------------------------------


def engine_for(
    adapter: ModelAdapter, scale: Scale, workload: Workload, execution: Execution | None = None
) -> Engine:
    """An engine with room for all lanes of this workload."""
    config = EngineConfig(
        max_num_seqs=scale.lanes,
        max_num_batched_tokens=scale.budget,
        block_size=scale.block_size,
        num_blocks=scale.num_blocks(workload),
    )
    return Engine(adapter, None, config, execution=execution)


@dataclass(frozen=True)
class TimedRun:
    """A run from its first request to its last token; its trace is incomplete if its time was up
    before.
    """

    seconds: float
    trace: Trace

    def to_json(self) -> dict[str, Any]:
        """Its speed, how long the device was idle, and how passes were computed according to the
        trace.

        idle: the share of its time in which no pass ran; None on a GPU whose passes were timed by
        the host, one after another.
        """
        header, events = self.trace.header, self.trace.events
        by_host = header.device.startswith("cuda") and header.execution is None
        busy = sum(forward.t_end - forward.t_start for event in events for forward in event.passes)
        computed = {name: header.to_json().get(name) for name in ("execution", "memory", "notes")}
        idle = None if by_host else 1 - busy / wall_s(self.trace)
        return {
            **speed(self.seconds, self.trace.outputs, not self.trace.complete),
            "idle": idle,
            **computed,
        }


def timed(
    engine: Engine, workload: Workload, device: Device, limit_s: float = math.inf
) -> TimedRun:
    """Run a workload and time it."""
    gc.collect()
    started = device.now()
    steps = engine.stream(workload)
    with gc_off():  # as in `Engine.run`
        for _ in steps:
            if device.clock() - started > limit_s and engine.has_work:
                break
    steps.close()
    return TimedRun(device.now() - started, engine.trace)


class NoEvents(TraceRecorder):
    """Reuses an event instead of creating one for each step: the time a run saves is the cost of
    recording.
    """

    def __init__(self, event: StepEvent) -> None:
        self._event = event

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        """Hand out one event, made beforehand, for every step."""
        return super().record(lambda: self._event)


def decode_steps(
    events: Sequence[StepEvent], lanes: int, weight_bytes: int, kv_bytes: int, bandwidth: float
) -> dict[str, float]:
    """Decode steps of all lanes. weight_bytes: read by a step. kv_bytes: of one token. bandwidth:
    bytes a second.

    steps, lanes. context: tokens in a request's cache, the new one included; a mean. seconds: of a
    pass, a median. floor_s: the median of what reading weights and cache takes at this bandwidth;
    share: the median of floor over time, step by step. Raises ValueError if there was no such step.
    """
    steps = [
        e
        for e in events
        if len(e.passes) == 1
        and len(e.segments) >= lanes
        and all(s.phase == "decode" for s in e.segments)
    ]
    if not steps:
        raise ValueError(
            f"there was no step in which {lanes} requests decoded and none was prefilled"
        )
    tokens = [sum(s.kv_len for s in e.segments) for e in steps]
    # the resolution of a trace
    times = [max(e.passes[0].t_end - e.passes[0].t_start, 1e-6) for e in steps]
    floors = [(weight_bytes + kv_bytes * count) / bandwidth for count in tokens]
    return {
        "steps": len(steps),
        "lanes": lanes,
        "context": statistics.mean(tokens) / lanes,
        "seconds": statistics.median(times),
        "floor_s": statistics.median(floors),
        "share": statistics.median(floor / time for floor, time in zip(floors, times, strict=True)),
    }


# -- accuracy --------------------------------------------------------------------------------------


def _accuracy(context: PartContext) -> dict[str, Any]:
    """How close the packed step is to the model itself: greedy tokens in float32, logits in
    bfloat16.

    The weights are those of the bfloat16 model in both, so that only arithmetic differs. In
    bfloat16 the packed step is compared with `model(...)` in bfloat16 on each request alone: both
    err from the same float32 logits.
    """
    scale = context.scale
    workload = scale.workload(scale.accuracy_requests, scale.accuracy_tokens)
    model = context.model(scale.main, scale.accuracy_range)
    exact = copy.deepcopy(model).float()
    alone = generate_serial(exact, baseline_requests(workload, None)).result
    differences = first_differences(
        RunResult.of(_packed(exact, workload, scale)), alone, "generate"
    )
    tokens = sum(map(len, alone.outputs.values()))
    greedy = {
        "requests": len(workload),
        "tokens": tokens,
        "different_requests": len(differences),
        "differences": differences,
    }
    context.note(f"float32: {tokens} greedy tokens, {len(differences)} requests differ")
    context.device.free()
    logits = logits_error(model, exact, workload, scale)
    sizes = "of size {logits_rms:.3g}, off by {packed_rms:.3g} packed and {alone_rms:.3g} alone"
    sizes = sizes.format_map(logits)
    context.note(f"bfloat16: {logits['tokens']} rows of logits {sizes}")
    return {"workload": lengths_of(workload), "greedy": greedy, "logits": logits}


def logits_error(
    model: PreTrainedModel, exact: PreTrainedModel, workload: Workload, scale: Scale
) -> dict[str, Any]:
    """Errors from the logits of `exact`, the model in float32: of the packed step, of the model on
    each request alone; root mean squares.

    Raises InflightError if the engine shows no logits.
    """
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            kept.setdefault(row.request, []).append(own.clone())  # later passes reuse the buffer

    with observing(keep):
        outputs = _packed(model, workload, scale).outputs
    found: list[list[torch.Tensor]] = []  # of each request: packed, alone, exact
    for request in workload:
        written = outputs[request.id]
        rows = kept.get(request.id, [])[: len(written)]  # a row beyond the end is overrun
        if len(rows) != len(written):
            raise InflightError(
                f"The engine showed the logits of {len(rows)} of the {len(written)} tokens of"
                f" {request.id}."
            )
        ids = torch.tensor(
            [[*(request.prompt_token_ids or ()), *written[:-1]]], device=model.device
        )
        with torch.inference_mode():  # all at once and without a cache
            whole = [
                one(input_ids=ids, use_cache=False, logits_to_keep=len(written)).logits[0]
                for one in (model, exact)
            ]
        found.append([logits.float() for logits in (torch.stack(rows), *whole)])
    # [tokens, vocabulary]
    ours, theirs, exactly = (torch.cat(logits) for logits in zip(*found, strict=True))
    return {
        "tokens": len(ours),
        "packed_rms": _rms(ours - exactly),
        "alone_rms": _rms(theirs - exactly),
        "logits_rms": _rms(exactly),
        "ratio": _rms(ours - exactly) / _rms(theirs - exactly),
    }


def _packed(model: PreTrainedModel, workload: Workload, scale: Scale) -> Trace:
    """All requests at once, with prompt chunks beside decodes."""
    smaller = replace(scale, lanes=len(workload), budget=scale.accuracy_budget)
    return engine_for(probe(model), smaller, workload).run(workload)


def _rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())


# -- this engine -----------------------------------------------------------------------------------


def _whole(context: PartContext) -> dict[str, Any]:
    """All requests, each run beside one without events, then those that the other contenders
    answer, too.
    """
    scale, device = context.scale, context.device
    adapter, whole = probe(context.model(scale.main), scale.main.name), scale.workload()
    engine = engine_for(adapter, scale, whole)
    result: dict[str, Any] = {"parameters": adapter.num_parameters}
    slower: list[float] = []
    for key, workload in (("all", whole), ("compared", scale.workload(scale.compared))):
        timed(engine, workload, device, context.limit(scale.own_s))  # to warm up
        runs = []
        for number in range(scale.repeats):
            # which of the two is first alternates, as a device slows down while it warms up
            if workload is whole and number % 2:
                bare = _bare(engine, workload, context)
            runs.append(timed(engine, workload, device, context.limit(scale.own_s)))
            context.note(
                f"{len(workload)} requests, run {number + 1}:"
                f" {runs[-1].to_json()['output_tok_s']:,.0f} output tok/s"
            )
            if workload is whole:
                if not number % 2:
                    bare = _bare(engine, workload, context)
                slower.append(runs[-1].seconds / bare - 1)
        chosen = runs[nearest_to_median([run.seconds for run in runs])]
        result[key] = {
            **chosen.to_json(),
            "runs_tok_s": [run.to_json()["output_tok_s"] for run in runs],
            "metrics": metrics(chosen.trace),
            "workload": lengths_of(workload),
        }
    return {**result, "recording": {"slowdown": statistics.median(slower), "slowdowns": slower}}


def _bare(engine: Engine, workload: Workload, context: PartContext) -> float:
    """The seconds of a run without events, after one with them."""
    own, engine.recorder = engine.recorder, NoEvents(engine.trace.events[0])
    try:
        return timed(engine, workload, context.device, context.limit(context.scale.own_s)).seconds
    finally:
        engine.recorder = own


def _decode(context: PartContext, shape: ModelShape) -> dict[str, Any]:
    """Decode steps of all lanes at the wanted context, against what this device's memory allows."""
    scale, device = context.scale, context.device
    bandwidth = device.copy_bandwidth(scale.copy_bytes)
    device.free()
    adapter, workload = probe(context.model(shape), shape.name), scale.decode_workload(shape)
    weights, kv = weight_bytes_read(adapter.model), adapter.kv_bytes_per_token
    run = timed(engine_for(adapter, scale, workload), workload, device, context.limit(scale.own_s))
    steps = decode_steps(run.trace.events, scale.lanes, weights, kv, bandwidth)
    context.note(
        f"a step of {1000 * steps['seconds']:.2f} ms ({steps['steps']} timed) against"
        f" {1000 * steps['floor_s']:.2f} ms at the {bandwidth / 1e12:.2f} TB/s of a copy"
    )
    return {
        "parameters": adapter.num_parameters,
        "workload": lengths_of(workload),
        "bandwidth_bytes_s": bandwidth,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv,
        **steps,
        "run": run.to_json(),
    }


def _ablation(context: PartContext) -> dict[str, Any]:
    """The same requests with each switch off in turn."""
    scale, device = context.scale, context.device
    adapter = probe(context.model(scale.main), scale.main.name)
    workload = scale.workload(scale.compared, scale.ablated_tokens)
    rows: list[dict[str, Any]] = []
    for name, off in SWITCHES.items():
        device.free()
        try:
            engine = engine_for(adapter, scale, workload, Execution(**off))
            timed(engine, workload, device, context.limit(scale.ablated_s))  # to warm up
            found = {
                "error": None,
                **timed(engine, workload, device, context.limit(scale.ablated_s)).to_json(),
            }
            context.note(f"{name}: {found['output_tok_s']:,.1f} output tok/s")
        except Exception as error:  # not possible on this device or with this model
            found = {"error": first_sentence(error)}
            context.note(f"{name}: {found['error']}")
        rows.append({"name": name, "off": off, **found})
    return {"workload": lengths_of(workload), "rows": rows}


# -- transformers ----------------------------------------------------------------------------------


def _waves(context: PartContext) -> dict[str, Any]:
    """`model.generate` on left-padded waves; only requested tokens are counted, not those that a
    wave computes for nothing.
    """
    scale, device = context.scale, context.device
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    # the first to warm up
    for most_tokens, limit_s in ((4, scale.probe_s), (None, scale.baseline_s)):
        work = baseline_requests(scale.workload(scale.compared, most_tokens), None)
        device.free()
        with gc_off():
            run = generate_waves(model, work, scale.lanes, device.clock, context.limit(limit_s))
    about = {"lanes": scale.lanes, "attention": model.config._attn_implementation}
    return {"workload": lengths_of(workload), **_counted(run), **about}


def _continuous(context: PartContext) -> dict[str, Any]:
    scale = context.scale
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    probes = try_settings(
        context, model, baseline_requests(scale.workload(scale.compared, scale.probe_tokens), None)
    )
    return {
        "workload": lengths_of(workload),
        "probes": probes,
        **continuous(context, model, baseline_requests(workload, None), probes),
    }


def try_settings(context: PartContext, model: PreTrainedModel, work: Work) -> list[dict[str, Any]]:
    """Every setting on the same short answers.

    Every attention first plainly; one that does not run this way is not tried with graphs or
    running ahead.
    """
    end = context.device.clock() + context.limit(context.scale.probes_s)
    tried: dict[Variant, dict[str, Any]] = {}
    for mode, attention in product(MODES, ATTENTIONS):
        plain = tried.get(Variant(attention))
        if plain is None or plain["error"] is None:
            limit_s = min(context.scale.probe_s, end - context.device.clock())
            tried[Variant(attention, *mode)] = _run(
                context, model, work, Variant(attention, *mode), limit_s
            )
    return list(tried.values())


def continuous(
    context: PartContext, model: PreTrainedModel, work: Work, tried: list[dict[str, Any]]
) -> dict[str, Any]:
    """All requests under the best setting, or the next best if that fails. Raises InflightError if
    none runs.
    """
    end = context.device.clock() + context.limit(context.scale.baseline_s)
    failed: list[dict[str, Any]] = []
    for found in sorted((t for t in tried if t["step_s"] is not None), key=lambda t: t["step_s"]):
        variant = Variant(*(found["settings"][name] for name in Variant._fields))
        run = _run(context, model, work, variant, max(1.0, end - context.device.clock()))
        if run["error"] is None:
            return {**run, "failed": failed}
        failed.append(run)
    raise InflightError("transformers' continuous batching ran in none of its settings.")


def _run(
    context: PartContext, model: PreTrainedModel, work: Work, variant: Variant, limit_s: float
) -> dict[str, Any]:
    """One run from a clean device, or why there is none. step_s: the median gap between two tokens
    of a request, None if it was cut.
    """
    scale, device = context.scale, context.device
    found: dict[str, Any] = {"settings": variant._asdict(), "error": None, "step_s": None}
    device.free()
    try:
        if limit_s <= 0:
            raise InflightError("not tried, the time for trying was up")
        with ready(model, work, scale.lanes, scale.budget, device.clock, variant, limit_s) as start:
            with gc_off():
                run = start()
            found |= _counted(run)
            found["settings"] |= run.about
        found["step_s"] = None if run.cut else run.metrics()["itl_s"]["p50"]
        outcome = (
            f"cut after {limit_s:.0f} s" if run.cut else f"{1000 * found['step_s']:.2f} ms a step"
        )
    except Exception as error:  # a setting that this model, device or version cannot run
        found["error"] = first_sentence(error)
        outcome = f"does not run: {found['error']}"
    graphs, steps = (
        "graphs" if variant.use_cuda_graph else "no graphs",
        "running ahead" if variant.use_async_batching else "step by step",
    )
    context.note(f"{variant.attention}, {graphs}, {steps}, {outcome}")
    return found


def _counted(run: BaselineRun) -> dict[str, Any]:
    return {**speed(run.wall_s, run.outputs, run.cut), "steps": run.steps}
