"""The parts of the benchmark, in order of importance: each builds its model, measures, and hands back plain data. They share nothing."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from core.bench.gpu import baselines
from core.bench.gpu.accuracy import greedy_tokens, logits_error
from core.bench.gpu.runs import (
    DTYPE,
    PartContext,
    StandIn,
    decode_steps,
    engine_for,
    median_run,
    recording_by,
    recording_share,
    timed,
)
from core.bench.gpu.scale import ModelShape, Scale, lengths_of, weight_bytes_read
from core.config import Execution
from core.errors import first_sentence
from core.measure.baselines import jobs
from core.measure.metrics import metrics as metrics_of
from core.models.probe import probe

SWITCHES: dict[str, dict[str, Any]] = {
    "everything on": {},
    "no paged kernel": {"attention": "sdpa"},
    "no CUDA graphs": {"cuda_graphs": False},
    "not asynchronous": {"asynchronous": False},
    "no fused sampling": {"fused_sampling": False},
    "no fused norms": {"fused_norms": False},
}
"""The ablation: what differs from `Execution()`."""


@dataclass(frozen=True)
class BenchmarkPart:
    """expected_s: about what it takes on an H200; it is not begun with less time left."""

    name: str
    title: str
    expected_s: float
    run: Callable[[PartContext], dict[str, Any]]


def parts(scale: Scale) -> list[BenchmarkPart]:
    """All of them, the most important first."""
    main, (small, large) = scale.main.name, scale.decode
    return [
        BenchmarkPart("accuracy", f"Accuracy of the packed step, {main}", 45, _accuracy),
        BenchmarkPart(main, f"Whole run of {main}", 75, _whole),
        BenchmarkPart("transformers-continuous", f"transformers' continuous batching, {main}", 150, _continuous),
        BenchmarkPart(f"{small.name}-decode", f"Decode step of {small.name}", 25, lambda context: _decode(context, small)),
        BenchmarkPart(f"{large.name}-decode", f"Decode step of {large.name}", 50, lambda context: _decode(context, large)),
        BenchmarkPart("ablation", f"One switch off at a time, {main}", 60, _ablation),
        BenchmarkPart("generate-waves", f"generate in static waves, {main}", 60, _waves),
    ]


def _accuracy(context: PartContext) -> dict[str, Any]:
    scale = context.scale
    model, workload = context.model(scale.main, scale.accuracy_range), scale.accuracy_workload()
    exact = copy.deepcopy(model).float()
    greedy = greedy_tokens(exact, workload, scale)
    context.note(f"float32: {greedy['tokens']} greedy tokens, {greedy['different_requests']} requests differ")
    context.device.free()
    logits = logits_error(model, exact, workload, scale)
    sizes = "of size {logits_rms:.3g}, off by {packed_rms:.3g} packed and {alone_rms:.3g} alone".format_map(logits)
    context.note(f"bfloat16: {logits['tokens']} rows of logits {sizes}")
    return {"workload": lengths_of(workload), "greedy": greedy, "logits": logits}


def _whole(context: PartContext) -> dict[str, Any]:
    """All requests, each run beside one without events, then those that the others answer too."""
    scale, device = context.scale, context.device
    adapter, whole = probe(context.model(scale.main), scale.main.name), scale.workload()
    engine = engine_for(adapter, scale, whole)
    result: dict[str, Any] = {"parameters": adapter.num_parameters}
    slower: list[float] = []
    for key, workload in (("all", whole), ("compared", scale.workload(scale.compared))):
        timed(engine, workload, device, context.limit(scale.own_s))  # to warm up
        runs = []
        for number in range(scale.repeats):
            runs.append(timed(engine, workload, device, context.limit(scale.own_s)))
            context.note(f"{len(workload)} requests, run {number + 1}: {runs[-1].tok_s:,.0f} output tok/s")
            if workload is whole:
                with recording_by(engine, StandIn(engine.trace.events[0])):
                    without = timed(engine, workload, device, context.limit(scale.own_s))
                slower.append(runs[-1].seconds / without.seconds - 1)
        chosen = median_run(runs)
        metrics = metrics_of(chosen.trace)
        result[key] = {
            **chosen.to_json(),
            "runs_tok_s": [round(run.tok_s, 1) for run in runs],
            "time_s": metrics["time_s"],
            "metrics": {name: metrics[name] for name in ("steps", "passes", "ttft_s", "itl_s", "preemptions", "overrun_rows")},
            "workload": lengths_of(workload),
            "peak_bytes": device.peak_bytes(),
        }
    share, trace = recording_share(engine, scale.workload(scale.compared), device.clock)
    recording = {"slowdown": statistics.median(slower), "slowdowns": slower, "host_share": share, "steps": len(trace.events)}
    return {**result, "recording": recording}


def _decode(context: PartContext, shape: ModelShape) -> dict[str, Any]:
    """Decode steps of all lanes at the wanted context, against what this device's memory allows."""
    scale, device = context.scale, context.device
    bandwidth = device.copy_bandwidth(scale.copy_bytes)
    device.free()
    model = context.model(shape)
    weights, kv = weight_bytes_read(model), shape.kv_bytes(DTYPE)
    adapter, workload = probe(model, shape.name), scale.decode_workload(shape)
    run = timed(engine_for(adapter, scale, workload), workload, device, context.limit(scale.own_s))
    steps = decode_steps(run.trace.events, scale.lanes, weights, kv, bandwidth)
    context.note(
        f"a step of {1000 * steps.seconds:.2f} ms ({steps.steps} timed) against {1000 * steps.floor_s:.2f} ms: {weights / 1e9:.2f} GB of "
        f"weights and {kv * steps.lanes * steps.context / 1e9:.2f} GB of cache at the {bandwidth / 1e12:.2f} TB/s of a copy"
    )
    return {
        "parameters": adapter.num_parameters,
        "workload": lengths_of(workload),
        "bandwidth_bytes_s": bandwidth,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv,
        **asdict(steps),
        "run": run.to_json(),
        "peak_bytes": device.peak_bytes(),
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
            timed(engine, workload, device, context.limit(scale.ablated_s / 2))  # to warm up
            run = timed(engine, workload, device, context.limit(scale.ablated_s))
            rows.append({"name": name, "off": off, "error": None, **run.to_json()})
            context.note(f"{name}: {run.tok_s:,.1f} output tok/s")
        except Exception as error:  # a way to compute that this device or model does not allow
            rows.append({"name": name, "off": off, "error": first_sentence(error)})
            context.note(f"{name}: {rows[-1]['error']}")
    return {"workload": lengths_of(workload), "rows": rows}


def _continuous(context: PartContext) -> dict[str, Any]:
    scale = context.scale
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    probes = baselines.try_settings(context, model, jobs(scale.workload(scale.compared, scale.probe_tokens), None))
    return {
        "workload": lengths_of(workload),
        "probes": probes,
        **baselines.continuous(context, model, jobs(workload, None), probes),
    }


def _waves(context: PartContext) -> dict[str, Any]:
    scale = context.scale
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    baselines.waves(context, model, jobs(scale.workload(scale.compared, 4), None), context.limit(scale.probe_s))  # to warm up
    result = baselines.waves(context, model, jobs(workload, None), context.limit(scale.baseline_s))
    return {"workload": lengths_of(workload), **result}
