"""Mixed requests from start to end: ours, transformers' continuous batching, `generate` one by one; and a larger model."""

from __future__ import annotations

from collections.abc import Sequence

from core.bench.report import Bar, Options, Report, race
from core.bench.worlds import gpt2, mixed
from core.config import EngineConfig
from core.engine.engine import Engine
from core.measure import baselines
from core.measure.compare import engine_contender

MIXED = "end-to-end"
MIXED_TITLE = "32 mixed requests from start to end, GPT-2 shape of 4 layers × 768"
LARGER = "gpt2-124m"
LARGER_TITLE = "8 requests on the 124 M-parameter GPT-2 shape"
BUDGET = 256


def run_mixed(options: Options) -> Report:
    """32 requests, prompts of 20 to 200 tokens, answers of 10 to 60."""
    model, count, prompts, new = (
        (gpt2(2, 64, 4, 211), 6, (5, 20), (4, 8)) if options.quick else (gpt2(4, 768), 32, (20, 200), (10, 60))
    )
    bars = (Bar("inflight", "transformers-continuous", 1.7), Bar("inflight", "generate-serial", 3.3))
    return _race(MIXED, MIXED_TITLE, model, count, prompts, new, bars, options)


def run_larger(options: Options) -> Report:
    """8 requests, prompts of 20 to 120 tokens, answers of 10 to 30: the weights dominate, and so the differences nearly vanish."""
    model, count, prompts, new = (
        (gpt2(2, 64, 4, 211), 3, (5, 20), (4, 8)) if options.quick else (gpt2(12, 768), 8, (20, 120), (10, 30))
    )
    return _race(LARGER, LARGER_TITLE, model, count, prompts, new, (Bar("inflight", "transformers-continuous", 1.0),), options)


def _race(name: str, title: str, model, count: int, prompts, new, bars: Sequence[Bar], options: Options) -> Report:
    workload = mixed(count, model.config.vocab_size, prompts, new)
    work = baselines.jobs(workload, None)
    engine = Engine(model, None, EngineConfig(max_num_seqs=count, max_num_batched_tokens=BUDGET))
    others = [baselines.contender(name, model, work, count, BUDGET) for name in dict.fromkeys(bar.than for bar in bars)]
    return race(name, title, [engine_contender(engine, workload, name="inflight"), *others], bars, options)
