"""The parts of the benchmark, in order of importance: each builds its model, measures, and hands back plain data. They share nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from core.bench.gpu import accuracy, others
from core.bench.gpu.device import Device
from core.bench.gpu.runs import Timed, decode_steps, engine_for, median_run, recording_share, timed, unrecorded
from core.bench.gpu.scale import Scale, lengths_of
from core.bench.gpu.shapes import Shape, weight_bytes_read
from core.config import Execution
from core.errors import first_sentence
from core.measure.baselines import jobs
from core.measure.metrics import metrics as metrics_of
from core.models.adapter import ModelAdapter
from core.models.probe import probe
from core.workload.workload import Workload

DTYPE = torch.bfloat16

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
class World:
    """What a part runs in. left: seconds until the whole benchmark must end. note: told of what is worth a line on the way."""

    scale: Scale
    device: Device
    left: Callable[[], float]
    note: Callable[[str], None]

    def limit(self, seconds: float) -> float:
        """At most so long, and no longer than is left."""
        return max(1.0, min(seconds, self.left()))

    def model(self, shape: Shape, initializer_range: float = 0.02) -> Any:
        return shape.build(self.device.torch, DTYPE, self.scale.context, initializer_range=initializer_range)


@dataclass(frozen=True)
class Part:
    """expected_s: about what it takes on an H200; it is not begun with less time left."""

    name: str
    title: str
    expected_s: float
    run: Callable[[World], dict[str, Any]]


def parts(scale: Scale) -> list[Part]:
    """All of them, the most important first."""
    main = scale.main.name

    def decode(index: int, expected_s: float) -> Part:
        shape = scale.decode[index]
        return Part(f"{shape.name}-decode", f"Decode step of {shape.name}", expected_s, lambda world: _decode(world, shape))

    return [
        Part("accuracy", f"Accuracy of the packed step, {main}", 45, _accuracy),
        Part(main, f"Whole run of {main}", 75, _whole),
        Part("transformers-continuous", f"transformers' continuous batching, {main}", 150, _continuous),
        decode(0, 25),
        decode(1, 50),
        Part("ablation", f"One switch off at a time, {main}", 60, _ablation),
        Part("generate-waves", f"generate in static waves, {main}", 60, _waves),
    ]


# -- this engine -------------------------------------------------------------------------------------------------------


def _accuracy(world: World) -> dict[str, Any]:
    scale = world.scale
    model, workload = world.model(scale.main, scale.accuracy_range), scale.accuracy_workload()
    exact = accuracy.float32_of(model)
    world.note("  greedy tokens in float32")
    greedy = accuracy.greedy(exact, workload, scale)
    world.device.free()
    world.note("  logits in bfloat16")
    logits = accuracy.logits_error(model, exact, workload, scale, world.device)
    return {"workload": lengths_of(workload), "greedy": greedy, "logits": logits}


def _whole(world: World) -> dict[str, Any]:
    """All requests, each run beside one without events, then those that the others answer too."""
    scale, device = world.scale, world.device
    model = world.model(scale.main)
    adapter = probe(model, scale.main.name)
    whole = scale.workload()
    engine = engine_for(adapter, scale, whole)
    result: dict[str, Any] = {"parameters": adapter.num_parameters}
    for key, workload in (("all", whole), ("compared", scale.workload(scale.compared))):
        world.note(f"  {len(workload)} requests, to warm up")
        timed(engine, workload, device, world.limit(scale.own_s))
        runs, slower = [], []
        for number in range(scale.repeats):
            runs.append(timed(engine, workload, device, world.limit(scale.own_s)))
            world.note(f"  {len(workload)} requests, run {number + 1}: {runs[-1].tok_s:,.0f} output tok/s")
            if workload is whole:
                with unrecorded(engine):
                    without = timed(engine, workload, device, world.limit(scale.own_s))
                slower.append(runs[-1].seconds / without.seconds - 1)
        result[key] = {**_run(runs), "workload": lengths_of(workload), "peak_bytes": device.peak_bytes()}
        if slower:
            result["recording"] = {"slowdown": statistics.median(slower), "slowdowns": slower}
    share, trace = recording_share(engine, scale.workload(scale.compared), device.clock)
    return {**result, "recording": {**result["recording"], "host_share": share, "steps": len(trace.events)}}


def _run(runs: list[Timed]) -> dict[str, Any]:
    """The run of median speed, and what its events say."""
    chosen = median_run(runs)
    metrics = metrics_of(chosen.trace)
    return {
        **chosen.to_json(),
        "runs_tok_s": [round(run.tok_s, 1) for run in runs],
        "idle": chosen.idle,
        "time_s": metrics["time_s"],
        "metrics": {name: metrics[name] for name in ("steps", "passes", "ttft_s", "itl_s", "preemptions", "overrun_rows")},
        **chosen.computed,
    }


def _decode(world: World, shape: Shape) -> dict[str, Any]:
    """Decode steps of all lanes at the wanted context, against what this device's memory allows."""
    scale, device = world.scale, world.device
    bandwidth = device.copy_bandwidth(scale.copy_bytes)
    device.free()
    world.note(f"  a copy moves {bandwidth / 1e12:.2f} TB/s")
    model = world.model(shape)
    weights, kv = weight_bytes_read(model), shape.kv_bytes(DTYPE)
    adapter, workload = probe(model, shape.name), scale.decode_workload(shape)
    run = timed(engine_for(adapter, scale, workload), workload, device, world.limit(scale.own_s))
    steps = decode_steps(run.trace.events, scale.lanes, weights, kv, bandwidth)
    return {
        "parameters": adapter.num_parameters,
        "workload": lengths_of(workload),
        "bandwidth_bytes_s": bandwidth,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv,
        **asdict(steps),
        "idle": run.idle,
        "run": {**run.to_json(), **run.computed},
        "peak_bytes": device.peak_bytes(),
    }


def _ablation(world: World) -> dict[str, Any]:
    """The same requests with each switch off in turn."""
    scale, device = world.scale, world.device
    adapter = probe(world.model(scale.main), scale.main.name)
    workload = scale.workload(scale.compared, scale.ablated_tokens)
    rows = []
    for name, changes in SWITCHES.items():
        device.free()
        try:
            row = _without(world, adapter, workload, Execution(**changes))
        except Exception as error:  # a way to compute that this device or model does not allow
            row = {"error": first_sentence(error)}
            if not device.answers():
                raise
        rows.append({"name": name, "off": changes, "error": None, **row})
        world.note(f"  {name}: {row.get('error') or str(row['output_tok_s']) + ' output tok/s'}")
    return {"workload": lengths_of(workload), "rows": rows}


def _without(world: World, adapter: ModelAdapter, workload: Workload, execution: Execution) -> dict[str, Any]:
    scale, device = world.scale, world.device
    engine = engine_for(adapter, scale, workload, execution)
    timed(engine, workload, device, world.limit(scale.ablated_s / 2))  # to warm up
    run = timed(engine, workload, device, world.limit(scale.ablated_s))
    return {**run.to_json(), "idle": run.idle, **run.computed}


# -- the others --------------------------------------------------------------------------------------------------------


def _continuous(world: World) -> dict[str, Any]:
    scale = world.scale
    model, workload = world.model(scale.main), scale.workload(scale.compared)
    work, short = jobs(workload, None), jobs(scale.workload(scale.compared, scale.probe_tokens), None)
    probes = others.probe(
        model, short, scale.lanes, scale.budget, world.device, scale.probe_s, world.limit(scale.probes_s), world.note
    )
    limit_s = world.limit(scale.baseline_s)
    result = others.continuous(model, work, scale.lanes, scale.budget, world.device, limit_s, probes)
    return {"workload": lengths_of(workload), "probes": probes, **result}


def _waves(world: World) -> dict[str, Any]:
    scale = world.scale
    model, workload = world.model(scale.main), scale.workload(scale.compared)
    short = jobs(scale.workload(scale.compared, 4), None)
    others.waves(model, short, scale.lanes, world.device, world.limit(scale.probe_s))  # to warm up
    result = others.waves(model, jobs(workload, None), scale.lanes, world.device, world.limit(scale.baseline_s))
    return {"workload": lengths_of(workload), **result}
