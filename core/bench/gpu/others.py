"""transformers' ways to serve the same requests: continuous batching in the best of its settings that runs, and `generate`'s waves."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from transformers import PreTrainedModel

from core.bench.gpu.device import Device
from core.errors import InflightError, first_sentence
from core.measure.baselines.generate import generate_waves
from core.measure.baselines.job import Job
from core.measure.baselines.transformers_continuous import TransformersContinuous, Variant, continuous_settings

ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager")
MODES = ((False, False), (True, False), (True, True), (False, True))  # CUDA graphs, running ahead


def probe(
    model: PreTrainedModel,
    work: Sequence[Job],
    lanes: int,
    budget: int,
    device: Device,
    each_s: float,
    all_s: float,
    note: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Every setting on the same short answers: the seconds of a step in which all requests decode, a median, or why there is none.

    each_s, all_s: seconds for one setting and for all of them. Raises InflightError if the device is lost.
    """
    missing = {attention: _missing(model, attention) for attention in ATTENTIONS}
    end = device.clock() + all_s
    found: list[dict[str, Any]] = []
    for mode, attention in product(MODES, ATTENTIONS):  # every attention once, then its variations
        if missing[attention] and mode != MODES[0]:
            continue
        variant, limit_s = Variant(attention, *mode), min(each_s, end - device.clock())
        if missing[attention]:
            step_s, error = None, missing[attention]
        elif limit_s <= 0:
            step_s, error = None, "not tried, the time for trying was up"
        else:
            step_s, error = _probe_one(model, work, lanes, budget, device, limit_s, variant)
        found.append({**variant._asdict(), "step_s": step_s, "error": error})
        shown = f"every setting of {attention}" if missing[attention] else label(variant)
        note(f"  {shown}: {f'{1000 * step_s:.2f} ms a step' if step_s is not None else f'does not run: {error}'}")
        if error and not device.answers():
            raise InflightError(f"The device stopped answering after {label(variant)}: {error}.")
    return found


def _missing(model: PreTrainedModel, attention: str) -> str | None:
    """Why this attention cannot be had here."""
    if not attention.startswith("flash"):
        return None
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(attention)
    except Exception as error:
        return first_sentence(error)
    finally:
        model.set_attn_implementation(before)
    return None


def _probe_one(
    model: PreTrainedModel, work: Sequence[Job], lanes: int, budget: int, device: Device, limit_s: float, variant: Variant
) -> tuple[float | None, str | None]:
    driver, times = None, []
    started = device.now()
    try:
        driver = TransformersContinuous(model, work, lanes, budget, variant)
        driver.submit()
        before = device.clock()
        while driver.step() and before - started < limit_s:
            now = device.clock()
            if driver.all_decode:
                times.append(now - before)
            before = now
    except Exception as error:  # a setting that this model, device or version cannot run
        return None, first_sentence(error)
    finally:
        if driver is not None:
            driver.close()
        del driver
        device.free()
    if not times:
        return None, f"no step in which all requests decode within {limit_s:.0f} s"
    return round(statistics.median(times), 6), None


def continuous(
    model: PreTrainedModel,
    work: Sequence[Job],
    lanes: int,
    budget: int,
    device: Device,
    limit_s: float,
    probes: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """All of it under the best setting; under the next best if that one fails after all. Raises InflightError if none runs.

    limit_s: seconds for all attempts; a run that is not done by then is cut.
    """
    end = device.clock() + limit_s
    able = sorted((p for p in probes if p["step_s"] is not None), key=lambda p: p["step_s"])
    failed: list[dict[str, Any]] = []
    for chosen in able:
        variant = Variant(*(chosen[name] for name in Variant._fields))
        device.free()
        try:
            left = max(1.0, end - device.clock())
            return {**_continuous(model, work, lanes, budget, device, left, variant), "failed": failed}
        except Exception as error:
            failed.append({**variant._asdict(), "error": first_sentence(error)})
            if not device.answers():
                break
    raise InflightError("transformers' continuous batching ran in none of its settings.")


def _continuous(
    model: PreTrainedModel, work: Sequence[Job], lanes: int, budget: int, device: Device, limit_s: float, variant: Variant
) -> dict[str, Any]:
    driver = TransformersContinuous(model, work, lanes, budget, variant)
    try:
        started, cut = device.now(), False
        driver.submit()
        while driver.step() and not cut:
            cut = device.clock() - started > limit_s
        seconds = device.now() - started
        results = driver.finished()
        if not cut:
            lost = [job.request for job in work if job.request not in results or results[job.request].error]
            if lost:
                raise InflightError(f"It lost request {lost[0]}.")
        tokens, steps, peak = sum(map(len, driver.outputs.values())), driver.steps, device.peak_bytes()
    finally:
        driver.close()
    return {
        "chosen": {**variant._asdict(), **continuous_settings(work, lanes, budget, variant)},
        **_speed(seconds, tokens, cut),
        "steps": steps,
        "peak_bytes": peak,
    }


def waves(model: PreTrainedModel, work: Sequence[Job], lanes: int, device: Device, limit_s: float) -> dict[str, Any]:
    """`model.generate` on left-padded waves; the tokens counted are those asked for, not those that a wave computes for nothing."""
    device.free()
    run = generate_waves(model, work, lanes, device.clock, limit_s)
    tokens = sum(map(len, run.outputs.values()))
    return {
        **_speed(run.wall_s, tokens, bool(run.about.get("cut"))),
        "steps": run.steps,
        "lanes": lanes,
        "attention": model.config._attn_implementation,
        "peak_bytes": device.peak_bytes(),
    }


def _speed(seconds: float, tokens: int, cut: bool) -> dict[str, Any]:
    return {"seconds": round(seconds, 4), "output_tokens": tokens, "output_tok_s": round(tokens / seconds, 1), "cut": cut}


def label(variant: Variant) -> str:
    graphs = "graphs" if variant.use_cuda_graph else "no graphs"
    return f"{variant.attention}, {graphs}, {'running ahead' if variant.use_async_batching else 'step by step'}"
