"""One decode step of many requests: ours, transformers' continuous batching, the article's way.

Every contender has answered the same prompts when the stopwatch starts, and is timed over its own next steps: schedule, forward,
sample, record. Contexts grow alike.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from core.bench.report import Bar, Options, Report, race
from core.bench.worlds import gpt2, requests
from core.config import EngineConfig
from core.engine.engine import Engine
from core.measure.baselines import jobs
from core.measure.baselines.article import article_rows, article_step
from core.measure.baselines.transformers_continuous import TransformersContinuous
from core.measure.rounds import Contender, Run

NAME = "decode-step"
TITLE = "One decode step, GPT-2 shape of 4 layers × 768, 32 requests of context 200 to 600"
BARS = (Bar("inflight", "transformers-continuous", 3.5), Bar("inflight", "article", 6.0))


def run(options: Options) -> Report:
    """See the module."""
    layers, width, heads, vocab, count, low, high, steps = (4, 768, 12, 50257, 32, 200, 600, 4)
    if options.quick:
        layers, width, heads, vocab, count, low, high, steps = (2, 64, 4, 211, 4, 10, 30, 2)
    model = gpt2(layers, width, heads, vocab)
    prompts = [low + (high - low) * i // (count - 1) for i in range(count)]
    new = steps * (options.repeats + 1) + 8
    workload = requests(prompts, [new] * count, vocab)
    work = jobs(workload, None)

    options.on_run("prompts, inflight")
    engine = Engine(model, None, EngineConfig(max_num_seqs=count, max_num_batched_tokens=1024))
    events = engine.stream(workload)
    while len(next(events).sampled) < count:
        pass

    options.on_run("prompts, transformers-continuous")
    theirs = TransformersContinuous(
        copy.deepcopy(model), work, count, 1024
    )  # while it is open its model attends to paged caches alone
    theirs.submit()
    while len(outputs := theirs.outputs) < count or min(map(len, outputs.values())) < 1:
        theirs.step()

    options.on_run("prompts, article")
    rows = article_rows(work)
    for row in rows:  # a prompt at a time: one dense mask over all prompts would take gigabytes
        article_step(model, [row])

    def stepping(name: str, step: Callable[[], Any], about: dict[str, Any] | None = None) -> Contender:
        def steps_of_a_turn() -> float:
            started = options.clock()
            for _ in range(steps):
                step()
            return (options.clock() - started) / steps

        return Contender.of(name, steps_of_a_turn, lambda seconds: Run({}, seconds=seconds), about)

    contenders = [
        stepping("inflight", lambda: next(events), {"steps a run": steps, "requests": count, "vocabulary": vocab}),
        stepping("transformers-continuous", theirs.step),
        stepping("article", lambda: article_step(model, rows)),
    ]
    report = race(NAME, TITLE, contenders, BARS, options)
    ours, other, article = engine.trace.outputs, theirs.outputs, {row.job.request: row.output for row in rows}
    report.outputs_identical = all(_agree(ours[r], other[r]) and _agree(ours[r], article[r]) for r in ours)
    events.close()  # type: ignore[attr-defined]
    theirs.close()
    return report


def _agree(a: list[int], b: list[int]) -> bool:
    """As far as both got."""
    length = min(len(a), len(b))
    return length > 0 and a[:length] == b[:length]
