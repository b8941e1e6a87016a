"""The shipped claim: `gpt2-six` on the built-in model at 3 lanes, continuous against static batching and against `generate`, in waves and one by one.

And the cost of one padded decode step beside one step of `generate` on the same batch: no policy is slow to make another look fast.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise

import torch
from transformers.utils import logging

from core.assets import DEFAULT_MODEL
from core.bench.report import Bar, Options, Report, race
from core.bench.worlds import greedy, requests
from core.config import EngineConfig
from core.engine.engine import Engine
from core.measure import baselines
from core.measure.baselines.generate import generate_waves
from core.measure.baselines.job import BaselineRun
from core.measure.compare import engine_contender
from core.measure.rounds import Contender, Run
from core.models import load as models
from core.models.adapter import ModelAdapter
from core.models.probe import probe
from core.trace.trace import Trace
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
    lanes, work = chosen.config.max_num_seqs, baselines.jobs(workload, tokenizer)
    ours = [
        engine_contender(Engine(adapter, tokenizer, replace(chosen.config, policy=name)), workload)
        for name in ("continuous", "static")
    ]
    theirs = [baselines.contender(name, adapter.model, work, lanes) for name in ("generate-waves", "generate-serial")]
    bars = (Bar("continuous", "static", 1.6), Bar("continuous", "generate-waves", 1.7))
    report = race(SIX, SIX_TITLE, [*ours, *theirs], bars, options)
    report.about["aim"] = f"{AIM}× against generate-waves"
    report.about["article"] = "61.80 s against 9.54 s (6.5×) for the article's own pair, on an Apple GPU with another model"
    return report


def run_static(options: Options) -> Report:
    """Medians of the steps after the prompts'; as many answers of one length as fit a wave."""
    adapter, _ = _load()
    rows, new = (8, 48) if not options.quick else (3, 6)
    workload = requests([6 + 5 * i for i in range(rows)], [new] * rows, adapter.vocab_size)
    work = baselines.jobs(workload, None)
    engine = Engine(adapter, None, EngineConfig(policy="static", max_num_seqs=rows))

    def of_static(trace: Trace) -> Run:
        return Run(trace.outputs, seconds=_median_gap([event.t_start for event in trace.events][1:]))

    def of_generate(run: BaselineRun) -> Run:
        assert run.token_times is not None
        return Run(run.outputs, seconds=_median_gap(run.token_times["r0"]))

    contenders = [
        Contender.of("static", lambda: engine.run(workload), of_static, {"rows": rows, "steps": new}),
        Contender.of("generate", lambda: generate_waves(adapter.model, work, rows), of_generate),
    ]
    return race(STATIC, STATIC_TITLE, contenders, (Bar("static", "generate", 1.0),), options)


def _median_gap(times: list[float]) -> float:
    return statistics.median(b - a for a, b in pairwise(times))


def _load() -> tuple[ModelAdapter, object]:
    logging.disable_progress_bar()
    name = DEFAULT_MODEL
    model, tokenizer = models.load(name, torch.device("cpu"), torch.float32)
    return probe(model, name), tokenizer
