"""transformers' ways to serve the same requests: continuous batching in the best of its settings that runs, and `generate`'s waves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from transformers import PreTrainedModel

from core.bench.gpu.runs import PartContext, speed
from core.errors import InflightError, first_sentence
from core.measure.baselines.generate import generate_waves
from core.measure.baselines.job import Job
from core.measure.baselines.transformers_continuous import TransformersContinuous, Variant, continuous_settings

ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager")
MODES = ((False, False), (True, False), (True, True), (False, True))  # CUDA graphs, running ahead


def try_settings(context: PartContext, model: PreTrainedModel, work: Sequence[Job]) -> list[dict[str, Any]]:
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
    context: PartContext, model: PreTrainedModel, work: Sequence[Job], tried: Sequence[Mapping[str, Any]]
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


def _run(context: PartContext, model: PreTrainedModel, work: Sequence[Job], limit_s: float, variant: Variant) -> dict[str, Any]:
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
        lost = [job.request for job in work if job.request not in results or results[job.request].error]
        if lost and not cut:
            raise InflightError(f"It lost request {lost[0]}.")
        measured = speed(seconds, sum(map(len, driver.outputs.values())), cut)
        step_s = round(statistics.median(times), 6) if times else None
        return {**measured, "steps": driver.steps, "step_s": step_s, "peak_bytes": device.peak_bytes()}
    finally:
        driver.close()


def waves(context: PartContext, model: PreTrainedModel, work: Sequence[Job], limit_s: float) -> dict[str, Any]:
    """`model.generate` on left-padded waves; the tokens counted are those asked for, not those that a wave computes for nothing."""
    device, lanes = context.device, context.scale.lanes
    device.free()
    run = generate_waves(model, work, lanes, device.clock, limit_s)
    measured = speed(run.wall_s, sum(map(len, run.outputs.values())), bool(run.about.get("cut")))
    about = {"steps": run.steps, "lanes": lanes, "attention": model.config._attn_implementation}
    return {**measured, **about, "peak_bytes": device.peak_bytes()}


def label(variant: Variant) -> str:
    graphs = "graphs" if variant.use_cuda_graph else "no graphs"
    return f"{variant.attention}, {graphs}, {'running ahead' if variant.use_async_batching else 'step by step'}"
