"""The parts of the benchmark, in order of importance: each builds its model, measures, and hands back plain data. They share nothing."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from transformers import PreTrainedModel

from core.bench.gpu.runs import (
    DTYPE,
    PartContext,
    decode_steps,
    engine_for,
    median_run,
    no_events_made,
    recording_share,
    speed,
    timed,
)
from core.bench.gpu.scale import ModelShape, Scale, lengths_of, weight_bytes_read
from core.config import Execution
from core.engine.runner import SamplingRow, observing
from core.errors import InflightError, first_sentence
from core.measure.baselines import baseline_requests
from core.measure.baselines.generate import generate_serial, generate_waves
from core.measure.baselines.records import BaselineRequest
from core.measure.baselines.transformers_continuous import TransformersContinuous, Variant, continuous_settings
from core.measure.compare import first_differences
from core.measure.metrics import metrics as metrics_of
from core.measure.rounds import RunResult
from core.models.probe import probe
from core.trace.trace import Trace
from core.workload.workload import Workload

SWITCHES: dict[str, dict[str, Any]] = {
    "everything on": {},
    "no paged kernel": {"attention": "sdpa"},
    "no CUDA graphs": {"cuda_graphs": False},
    "not asynchronous": {"asynchronous": False},
    "no fused sampling": {"fused_sampling": False},
    "no fused norms": {"fused_norms": False},
}
"""The ablation: what differs from `Execution()`."""
ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager")
MODES = ((False, False), (True, False), (True, True), (False, True))  # CUDA graphs, running ahead


@dataclass(frozen=True)
class BenchmarkPart:
    """expected_s: about what it takes on an H200; it is not begun with less time left."""

    name: str
    title: str
    expected_s: float
    run: Callable[[PartContext], dict[str, Any]]


def benchmark_parts(scale: Scale) -> list[BenchmarkPart]:
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


# -- accuracy ----------------------------------------------------------------------------------------------------------


def _accuracy(context: PartContext) -> dict[str, Any]:
    """How near the packed step stays to the model itself: greedy tokens in float32, logits in bfloat16.

    The weights are those of the bfloat16 model in both, so that what differs is arithmetic alone. In bfloat16 the packed step is held
    against what `model(...)` in bfloat16 makes of each request alone: both err from the same float32 logits.
    """
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


def greedy_tokens(model: PreTrainedModel, workload: Workload, scale: Scale) -> dict[str, Any]:
    """Whether packed requests get the tokens that `generate` gives each alone: how many do not, and where they part."""
    trace = _packed(model, workload, scale)
    alone = generate_serial(model, baseline_requests(workload, None))
    differences = first_differences(RunResult.of(trace), RunResult(alone.outputs, {}), "generate")
    return {
        "requests": len(workload),
        "tokens": sum(map(len, alone.outputs.values())),
        "different_requests": len(differences),
        "differences": differences,
    }


def logits_error(model: PreTrainedModel, exact: PreTrainedModel, workload: Workload, scale: Scale) -> dict[str, Any]:
    """Errors from the logits of `exact`, the model in float32: of the packed step, of the model on each request alone; root mean squares.

    Raises InflightError if the engine shows no logits.
    """
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            kept.setdefault(row.request, []).append(own.clone())  # the buffer belongs to the pass

    with observing(keep):
        outputs = _packed(model, workload, scale).outputs
    found: list[list[torch.Tensor]] = []  # of each request: packed, alone, exact
    for request in workload:
        written = outputs[request.id]
        rows = kept.get(request.id, [])[: len(written)]  # a row beyond the end is overrun
        if len(rows) != len(written):
            raise InflightError(f"The engine showed the logits of {len(rows)} of the {len(written)} tokens of {request.id}.")
        ids = torch.tensor([[*(request.prompt_token_ids or ()), *written[:-1]]], device=model.device)
        with torch.inference_mode():  # all at once and without a cache
            whole = [one(input_ids=ids, use_cache=False, logits_to_keep=len(written)).logits[0] for one in (model, exact)]
        found.append([logits.float() for logits in (torch.stack(rows), *whole)])
    ours, theirs, exactly = (torch.cat(logits) for logits in zip(*found, strict=True))  # [tokens, vocabulary]
    return {
        "tokens": len(ours),
        "packed_rms": _rms(ours - exactly),
        "alone_rms": _rms(theirs - exactly),
        "logits_rms": _rms(exactly),
        "packed_max": float((ours - exactly).abs().max()),
        "alone_max": float((theirs - exactly).abs().max()),
        "same_best_token": int((ours.argmax(-1) == exactly.argmax(-1)).sum()),
        "ratio": _rms(ours - exactly) / _rms(theirs - exactly),
    }


def _packed(model: PreTrainedModel, workload: Workload, scale: Scale) -> Trace:
    """All at once, prompts in chunks beside decodes."""
    smaller = replace(scale, lanes=len(workload), budget=scale.accuracy_budget)
    return engine_for(probe(model), smaller, workload).run(workload)


def _rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())


# -- this engine -------------------------------------------------------------------------------------------------------


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
                with no_events_made(engine):
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
        f"a step of {1000 * steps['seconds']:.2f} ms ({steps['steps']} timed) against {1000 * steps['floor_s']:.2f} ms: "
        f"{weights / 1e9:.2f} GB of weights and {kv * scale.lanes * steps['context'] / 1e9:.2f} GB of cache at the "
        f"{bandwidth / 1e12:.2f} TB/s of a copy"
    )
    return {
        "parameters": adapter.num_parameters,
        "workload": lengths_of(workload),
        "bandwidth_bytes_s": bandwidth,
        "weight_bytes": weights,
        "kv_bytes_per_token": kv,
        **steps,
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


# -- transformers ------------------------------------------------------------------------------------------------------


def _continuous(context: PartContext) -> dict[str, Any]:
    scale = context.scale
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    probes = try_settings(context, model, baseline_requests(scale.workload(scale.compared, scale.probe_tokens), None))
    return {
        "workload": lengths_of(workload),
        "probes": probes,
        **continuous(context, model, baseline_requests(workload, None), probes),
    }


def _waves(context: PartContext) -> dict[str, Any]:
    """`model.generate` on left-padded waves; the tokens counted are those asked for, not those that a wave computes for nothing."""
    scale, device = context.scale, context.device
    model, workload = context.model(scale.main), scale.workload(scale.compared)
    for most_tokens, limit_s in ((4, scale.probe_s), (None, scale.baseline_s)):  # the first to warm up
        work = baseline_requests(scale.workload(scale.compared, most_tokens), None)
        device.free()
        run = generate_waves(model, work, scale.lanes, device.clock, context.limit(limit_s))
    measured = speed(run.wall_s, sum(map(len, run.outputs.values())), bool(run.about.get("cut")))
    about = {"steps": run.steps, "lanes": scale.lanes, "attention": model.config._attn_implementation}
    return {"workload": lengths_of(workload), **measured, **about, "peak_bytes": device.peak_bytes()}


def try_settings(context: PartContext, model: PreTrainedModel, work: Sequence[BaselineRequest]) -> list[dict[str, Any]]:
    """Every setting on the same short answers: the seconds of a step in which all requests decode, a median, or why there is none.

    Every attention first plainly; one that does not run so is not tried with graphs or running ahead.
    """
    end = context.device.clock() + context.limit(context.scale.probes_s)
    tried: list[dict[str, Any]] = []
    missing: set[str] = set()
    for mode, attention in product(MODES, ATTENTIONS):
        if attention in missing:
            continue
        variant, limit_s, step_s = Variant(attention, *mode), min(context.scale.probe_s, end - context.device.clock()), None
        try:
            if limit_s <= 0:
                raise InflightError("not tried, the time for trying was up")
            step_s = _run(context, model, work, limit_s, variant)["step_s"]
            error = None if step_s is not None else f"no step in which all requests decode within {limit_s:.0f} s"
        except Exception as failure:  # a setting that this model, device or version cannot run
            error = first_sentence(failure)
            missing |= {attention} if mode == MODES[0] else set()
        tried.append({**variant._asdict(), "step_s": step_s, "error": error})
        context.note(f"{label(variant)}: {f'{1000 * step_s:.2f} ms a step' if step_s is not None else f'does not run: {error}'}")
    return tried


def continuous(
    context: PartContext, model: PreTrainedModel, work: Sequence[BaselineRequest], tried: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """All of it under the best setting; under the next best if that one fails after all. Raises InflightError if none runs.

    A run that is not done when its time is up is cut.
    """
    end = context.device.clock() + context.limit(context.scale.baseline_s)
    failed: list[dict[str, Any]] = []
    for setting in sorted((t for t in tried if t["step_s"] is not None), key=lambda t: t["step_s"]):
        variant = Variant(*(setting[name] for name in Variant._fields))
        try:
            result = _run(context, model, work, max(1.0, end - context.device.clock()), variant)
        except Exception as error:
            failed.append({**variant._asdict(), "error": first_sentence(error)})
            context.note(f"{label(variant)}: failed in the whole run: {failed[-1]['error']}")
            continue
        context.note(f"chosen: {label(variant)}")
        chosen = {**variant._asdict(), **continuous_settings(work, context.scale.lanes, context.scale.budget, variant)}
        return {"chosen": chosen, **result, "failed": failed}
    raise InflightError("transformers' continuous batching ran in none of its settings.")


def _run(
    context: PartContext, model: PreTrainedModel, work: Sequence[BaselineRequest], limit_s: float, variant: Variant
) -> dict[str, Any]:
    """One run from a clean device. step_s: the median of the steps in which all requests decode, None without one."""
    device, times, cut = context.device, [], False
    device.free()
    driver = TransformersContinuous(model, work, context.scale.lanes, context.scale.budget, variant)
    try:
        before = started = device.now()
        driver.submit()
        while driver.step() and not cut:
            now = device.clock()
            if driver.all_decode:
                times.append(now - before)
            before, cut = now, now - started > limit_s
        seconds = device.now() - started
        results = driver.finished()
        lost = [request.id for request in work if request.id not in results or results[request.id].error]
        if lost and not cut:
            raise InflightError(f"It lost request {lost[0]}.")
        measured = speed(seconds, sum(map(len, driver.outputs.values())), cut)
        step_s = round(statistics.median(times), 6) if times else None
        return {**measured, "steps": driver.steps, "step_s": step_s, "peak_bytes": device.peak_bytes()}
    finally:
        driver.close()


def label(variant: Variant) -> str:
    graphs = "graphs" if variant.use_cuda_graph else "no graphs"
    return f"{variant.attention}, {graphs}, {'running ahead' if variant.use_async_batching else 'step by step'}"
