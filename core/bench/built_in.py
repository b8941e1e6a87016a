"""The shipped claim: `gpt2-six` on the built-in model at 3 lanes, continuous against static batching and against `generate`'s waves.

And the cost of one padded decode step beside one step of `generate` on the same batch: no policy is slow to make another look fast.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

import torch
from transformers.utils import logging

from core.bench.worlds import greedy, requests
from core.config import EngineConfig
from core.engine.engine import Engine
from core.measure.baselines import generate_waves, jobs
from core.measure.rounds import Bar, Contender, Measured, Options, Report, race
from core.models import load as models
from core.models.adapter import ModelAdapter
from core.models.probe import probe
from core.workload.presets import preset

SIX = "gpt2-six"
SIX_TITLE = "The GPT-2 article's six requests on the built-in model, 3 lanes"
STATIC = "static-step"
STATIC_TITLE = "One static decode step beside one step of generate on the same left-padded batch"
AIM = 2.5


def run_six(options: Options) -> Report:
    """Whole runs."""
    adapter, tokenizer = _load()
    chosen = preset("gpt2-six")
    workload = greedy(chosen.workload)
    if options.quick:
        workload = type(workload)(
            [replace(r, sampling=replace(r.sampling, max_new_tokens=4)) for r in workload], name=workload.name
        )
    lanes, work = chosen.config.max_num_seqs, jobs(workload, tokenizer)
    engines = {name: Engine(adapter, tokenizer, replace(chosen.config, policy=name)) for name in ("continuous", "static")}

    def ours(name: str) -> Contender:
        return Contender(name, lambda: Measured(None, engines[name].run(workload).outputs), {"lanes": lanes})

    waves = Contender(
        "generate-waves", lambda: Measured(None, generate_waves(adapter.model, work, lanes).outputs), {"lanes": lanes}
    )
    bars = (Bar("continuous", "static", 1.6), Bar("continuous", "generate-waves", 1.7))
    report = race(SIX, SIX_TITLE, [ours("continuous"), ours("static"), waves], bars, options)
    report.about["aim"] = f"{AIM}× against generate-waves"
    report.about["article"] = "61.80 s against 9.54 s (6.5×) for the article's own pair, on an Apple GPU with another model"
    return report


def run_static(options: Options) -> Report:
    """Medians of the steps after the prompts'; as many answers of one length as fit a wave."""
    adapter, _ = _load()
    rows, new = (8, 48) if not options.quick else (3, 6)
    workload = requests([6 + 5 * i for i in range(rows)], [new] * rows, adapter.vocab_size)
    work = jobs(workload, None)
    engine = Engine(adapter, None, EngineConfig(policy="static", max_num_seqs=rows))

    def static() -> Measured:
        trace = engine.run(workload)
        starts = [event.t_start for event in trace.events]
        return Measured(_median_gap(starts[1:]), trace.outputs)

    def generate() -> Measured:
        run = generate_waves(adapter.model, work, rows)
        assert run.token_times is not None
        return Measured(_median_gap(run.token_times["r0"]), run.outputs)

    contenders = [Contender("static", static, {"rows": rows, "steps": new}), Contender("generate", generate)]
    return race(STATIC, STATIC_TITLE, contenders, (Bar("static", "generate", 1.0),), options)


def _median_gap(times: list[float]) -> float:
    return statistics.median(b - a for a, b in pairwise(times))


def _load() -> tuple[ModelAdapter, object]:
    logging.disable_progress_bar()
    name = models.BUILTIN_MODELS[0]
    model, tokenizer = models.load(name, torch.device("cpu"), torch.float32)
    return probe(model, name), tokenizer
