"""`bench speed`: our engine beside other ways to serve the same requests, every contender in turn,
ratios taken pair by pair. All of them compute in this process, except vLLM, which is kept alive in
one of its own and told when its turn has come.

A benchmark is a function `run(options) -> Report`, listed in `BENCHMARKS`.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from transformers.utils import logging

from core.config import DEFAULT_MODEL, SMOLLM2, EngineConfig
from core.engine.requests import prompt_ids
from core.measure import baselines
from core.measure.baselines.article import Row, article_step
from core.measure.baselines.generate import generate_waves
from core.measure.baselines.records import BaselineRun
from core.measure.baselines.transformers_continuous import TransformersContinuous
from core.measure.compare import engine_contender
from core.measure.rounds import Contender, RunResult
from core.torch_engine.cpu.modules import product_type
from core.torch_engine.engine import Engine
from core.torch_engine.models import load as models
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe
from core.trace.trace import Trace
from core.workload.presets import preset
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from measure.bench.floor import FLOOR, Floor
from measure.bench.report import Options, Report, SpeedBar, race
from measure.bench.synthetic import gpt2, greedy, llama, mixed, requests
from measure.bench.vllm import vllm_contender

# -- one decode step -------------------------------------------------------------------------------


def decode_step(options: Options) -> Report:
    """One decode step of many requests: ours, transformers' continuous batching, the article's way.

    Every contender has answered the same prompts when the stopwatch starts, and is timed over its
    own next steps: schedule, forward, sample, record. Contexts grow alike.
    """
    layers, width, heads, vocab, count, low, high, steps = (4, 768, 12, 50257, 32, 200, 600, 4)
    if options.quick:
        layers, width, heads, vocab, count, low, high, steps = (2, 64, 4, 211, 4, 10, 30, 2)
    model = gpt2(layers, width, heads, vocab)
    prompts = [low + (high - low) * i // (count - 1) for i in range(count)]
    new = steps * (options.repeats + 1) + 8
    workload = requests(prompts, [new] * count, vocab)
    work = baselines.baseline_requests(workload, None)

    options.on_run("prompts, inflight")
    engine = Engine(model, None, EngineConfig(max_num_seqs=count, max_num_batched_tokens=1024))
    events = engine.stream(workload)
    while len(next(events).sampled) < count:
        pass

    options.on_run("prompts, transformers-continuous")
    # its model attends only to paged caches
    theirs = TransformersContinuous(copy.deepcopy(model), work, count, 1024)
    theirs.submit()
    while len(outputs := theirs.outputs) < count or min(map(len, outputs.values())) < 1:
        theirs.step()

    options.on_run("prompts, article")
    rows = [Row(request, list(request.prompt)) for request in work]
    for row in rows:  # a prompt at a time: one dense mask over all prompts would take gigabytes
        article_step(model, [row])

    def stepping(
        name: str, step: Callable[[], Any], about: dict[str, Any] | None = None
    ) -> Contender:
        def steps_of_a_turn() -> float:
            started = options.clock()
            for _ in range(steps):
                step()
            return (options.clock() - started) / steps

        return Contender.of(
            name, steps_of_a_turn, lambda seconds: RunResult({}, seconds=seconds), about
        )

    contenders = [
        stepping(
            "inflight",
            lambda: next(events),
            {"steps a run": steps, "requests": count, "vocabulary": vocab},
        ),
        stepping("transformers-continuous", theirs.step),
        stepping("article", lambda: article_step(model, rows)),
    ]
    title = "One decode step, GPT-2 shape of 4 layers × 768, 32 requests of context 200 to 600"
    bars = (
        SpeedBar("inflight", "transformers-continuous", 3.5),
        SpeedBar("inflight", "article", 6.0),
    )
    report = race("decode-step", title, contenders, bars, options)
    ours, other, article = (
        engine.trace.outputs,
        theirs.outputs,
        {row.request.id: row.output for row in rows},
    )
    report.outputs_identical = all(
        _agree(ours[r], other[r]) and _agree(ours[r], article[r]) for r in ours
    )
    events.close()
    theirs.close()
    return report


def _agree(a: list[int], b: list[int]) -> bool:
    """Whether two outputs agree as far as both go."""
    length = min(len(a), len(b))
    return length > 0 and a[:length] == b[:length]


def static_step(options: Options) -> Report:
    """The cost of one padded decode step beside one step of `generate` on the same batch: no policy
    is slowed down to make another look fast.

    Medians of the steps after the prompts; one wave of answers of the same length.
    """
    adapter, _ = _loaded(DEFAULT_MODEL)
    rows, new = (8, 48) if not options.quick else (3, 6)
    workload = requests([6 + 5 * i for i in range(rows)], [new] * rows, adapter.vocab_size)
    work = baselines.baseline_requests(workload, None)
    engine = Engine(adapter, None, EngineConfig(policy="static", max_num_seqs=rows))

    def of_static(trace: Trace) -> RunResult:
        return RunResult(
            trace.outputs, seconds=_median_gap([event.t_start for event in trace.events][1:])
        )

    def of_generate(run: BaselineRun) -> RunResult:
        assert run.token_times is not None
        return RunResult(run.outputs, seconds=_median_gap(run.token_times["r0"]))

    contenders = [
        Contender.of(
            "static", lambda: engine.run(workload), of_static, {"rows": rows, "steps": new}
        ),
        Contender.of("generate", lambda: generate_waves(adapter.model, work, rows), of_generate),
    ]
    title = "One static decode step beside one step of generate on the same left-padded batch"
    return race("static-step", title, contenders, (SpeedBar("static", "generate", 1.0),), options)


def _median_gap(times: list[float]) -> float:
    return statistics.median(b - a for a, b in pairwise(times))


# -- from start to end -----------------------------------------------------------------------------


def end_to_end(options: Options) -> Report:
    """32 requests, prompts of 20 to 200 tokens, answers of 10 to 60."""
    shape = (
        (gpt2(2, 64, 4, 211), 6, (5, 20), (4, 8))
        if options.quick
        else (gpt2(4, 768), 32, (20, 200), (10, 60))
    )
    title = "32 mixed requests from start to end, GPT-2 shape of 4 layers × 768"
    bars = (
        SpeedBar("inflight", "transformers-continuous", 1.7),
        SpeedBar("inflight", "generate-serial", 3.3),
    )
    return _mixed_requests("end-to-end", title, *shape, bars, options)


def gpt2_124m(options: Options) -> Report:
    """8 requests, prompts of 20 to 120 tokens, answers of 10 to 30: the weights dominate, so the
    differences nearly vanish.
    """
    shape = (
        (gpt2(2, 64, 4, 211), 3, (5, 20), (4, 8))
        if options.quick
        else (gpt2(12, 768), 8, (20, 120), (10, 30))
    )
    title = "8 requests on the 124 M-parameter GPT-2 shape"
    return _mixed_requests(
        "gpt2-124m", title, *shape, (SpeedBar("inflight", "transformers-continuous", 1.0),), options
    )


def _mixed_requests(
    name: str,
    title: str,
    model,
    count: int,
    prompts,
    new,
    bars: Sequence[SpeedBar],
    options: Options,
) -> Report:
    workload, budget = mixed(count, model.config.vocab_size, prompts, new), 256
    work = baselines.baseline_requests(workload, None)
    engine = Engine(model, None, EngineConfig(max_num_seqs=count, max_num_batched_tokens=budget))
    others = [
        baselines.contender(name, model, work, count, budget)
        for name in dict.fromkeys(bar.than for bar in bars)
    ]
    return _race_with_floor(
        name,
        title,
        engine,
        [engine_contender(engine, workload, name="inflight"), *others],
        bars,
        options,
    )


def chats(options: Options) -> Report:
    """The 32 chats of the presets on SmolLM2, which ends each answer itself."""
    adapter, tokenizer = _loaded(SMOLLM2)
    workload = _chats(options)
    work = baselines.baseline_requests(workload, tokenizer, adapter.eos_token_ids)
    engine = Engine(adapter, tokenizer, _CHATS)
    lanes, budget = _CHATS.max_num_seqs, _CHATS.max_num_batched_tokens
    bars = (
        SpeedBar("inflight", "transformers-continuous", 1.5),
        SpeedBar("inflight", "generate-waves", 1.5),
    )
    others = [baselines.contender(bar.than, adapter.model, work, lanes, budget) for bar in bars]
    ours = engine_contender(engine, workload, name="inflight")
    return _race_with_floor("chats", _OF_CHATS, engine, [ours, *others], bars, options)


_CHATS = EngineConfig(max_num_seqs=16, max_num_batched_tokens=512)
_OF_CHATS = "32 chats on SmolLM2, 16 lanes, ended by the model"


def _chats(options: Options) -> Workload:
    names = ("six-questions", "sixteen-questions", "shared-system-prompt", "chat-under-pressure")
    asked = [request for name in names for request in preset(name).workload]
    most = 4 if options.quick else 160
    return Workload(
        Request(f"r{index}", messages=request.messages, sampling=SamplingParams(most))
        for index, request in enumerate(asked[:3] if options.quick else asked)
    )


def gpt2_six(options: Options) -> Report:
    """Whole runs of the GPT-2 article's six requests: continuous against static batching and
    against `generate`, in waves and one by one.
    """
    adapter, tokenizer = _loaded(DEFAULT_MODEL)
    chosen = preset("gpt2-six")
    workload = greedy(chosen.workload, most_tokens=4 if options.quick else None)
    lanes, work = chosen.config.max_num_seqs, baselines.baseline_requests(workload, tokenizer)
    ours = [
        engine_contender(Engine(adapter, tokenizer, replace(chosen.config, policy=name)), workload)
        for name in ("continuous", "static")
    ]
    theirs = [
        baselines.contender(name, adapter.model, work, lanes)
        for name in ("generate-waves", "generate-serial")
    ]
    title = "The GPT-2 article's six requests on the built-in model, 3 lanes"
    bars = (SpeedBar("continuous", "static", 1.6), SpeedBar("continuous", "generate-waves", 1.7))
    report = race("gpt2-six", title, [*ours, *theirs], bars, options)
    report.about["aim"] = "2.5× against generate-waves"
    report.about["article"] = (
        "61.80 s against 9.54 s (6.5×) for the article's own pair, on an Apple GPU with another"
        " model"
    )
    return report


# -- beside vLLM -----------------------------------------------------------------------------------


def vllm_mixed(options: Options, dtype: torch.dtype) -> Report:
    """The 32 requests of `end-to-end`, beside vLLM."""
    shape = (
        (gpt2(2, 128, 4, 211), 4, (5, 20), (4, 8))
        if options.quick
        else (gpt2(4, 768), 32, (20, 200), (10, 60))
    )
    return _beside_vllm(
        "vllm-mixed",
        "32 mixed requests from start to end, GPT-2 shape of 4 layers × 768",
        *shape,
        dtype,
        options,
    )


def vllm_decodes(options: Options, dtype: torch.dtype) -> Report:
    """16 requests that decode 64 tokens each on a Llama of 150 M, beside vLLM."""
    shape = (
        (llama(2, 128, 4, 2, 256, 211), 4, (5, 20), (8, 8))
        if options.quick
        else (llama(), 16, (16, 64), (64, 64))
    )
    return _beside_vllm(
        "vllm-decodes",
        "16 requests that decode side by side, Llama shape of 150 M parameters",
        *shape,
        dtype,
        options,
    )


_SHORT = {torch.float32: "", torch.bfloat16: "-bf16", torch.float16: "-fp16"}


def vllm_chats(options: Options, dtype: torch.dtype) -> Report:
    """The 32 chats of `chats`, beside vLLM."""
    adapter, tokenizer = _loaded(SMOLLM2)
    workload = Workload(
        replace(request, messages=None, prompt_token_ids=prompt_ids(request, tokenizer))
        for request in _chats(options)
    )
    return _workload_beside_vllm(
        "vllm-chats", _OF_CHATS, adapter.model, workload, _CHATS, dtype, options
    )


def vllm_prompts(options: Options, dtype: torch.dtype) -> Report:
    """Eight prompts of 2,000 tokens on SmolLM2, with 16 new tokens each, beside vLLM."""
    model = _loaded(SMOLLM2)[0].model
    count, size, new = (2, 40, 2) if options.quick else (8, 2000, 16)
    workload = mixed(count, model.config.vocab_size, (size, size), (new, new))
    title = "8 prompts of 2,000 tokens on SmolLM2, 16 lanes"
    return _workload_beside_vllm("vllm-prompts", title, model, workload, _CHATS, dtype, options)


def _beside_vllm(
    name: str, title: str, model, count: int, prompts, new, dtype: torch.dtype, options: Options
) -> Report:
    workload = mixed(count, model.config.vocab_size, prompts, new)
    config = EngineConfig(max_num_seqs=count)
    return _workload_beside_vllm(name, title, model, workload, config, dtype, options)


def _workload_beside_vllm(
    name: str,
    title: str,
    model: Any,
    workload: Workload,
    config: EngineConfig,
    dtype: torch.dtype,
    options: Options,
) -> Report:
    """In 16 bits our float32 runs too, for its time alone: what two number formats write may
    differ. There is a bar where the CPU multiplies such numbers.
    """
    half = dtype != torch.float32
    wide = (
        [_time_alone("inflight-float32", Engine(copy.deepcopy(model), None, config), workload)]
        if half
        else []
    )
    model = model.to(dtype)
    engine = Engine(model, None, config)
    native = product_type(dtype) == dtype
    bars = [
        SpeedBar("inflight", "vllm", 1.0),
        *(SpeedBar("inflight", other.name, 1.6 if native else None) for other in wide),
    ]
    options.on_run("starting vllm")
    work = baselines.baseline_requests(workload, None, engine.adapter.eos_token_ids)
    with vllm_contender(model, config, work) as vllm:
        contenders = [engine_contender(engine, workload, name="inflight"), vllm, *wide]
        called = str(dtype).removeprefix("torch.")
        return _race_with_floor(
            f"{name}{_SHORT[dtype]}", f"{title}, {called}", engine, contenders, bars, options
        )


def _race_with_floor(
    name: str,
    title: str,
    engine: Engine,
    contenders: list[Contender],
    bars: Sequence[SpeedBar],
    options: Options,
) -> Report:
    """A race in which the floor of this engine's runs, those of the first contender, takes its
    turn, too.
    """
    floor = Floor(engine, options.clock)
    share = SpeedBar(
        contenders[0].name, FLOOR, 0.8 if engine.adapter.dtype == torch.float32 else None
    )
    report = race(name, title, [*contenders, floor.contender], [*bars, share], options)
    report.about[FLOOR] = floor.about()
    return report


def _time_alone(name: str, engine: Engine, workload: Workload) -> Contender:
    """An engine whose outputs are not compared."""
    return replace(engine_contender(engine, workload, name=name), read=lambda trace: RunResult({}))


def _loaded(name: str) -> tuple[ModelAdapter, object]:
    logging.disable_progress_bar()
    model, tokenizer = models.load(name, torch.device("cpu"), torch.float32)
    return probe(model, name), tokenizer


BENCHMARKS: dict[str, Callable[[Options], Report]] = {
    "decode-step": decode_step,
    "end-to-end": end_to_end,
    "gpt2-124m": gpt2_124m,
    "static-step": static_step,
    "gpt2-six": gpt2_six,
    "chats": chats,
    **{f"vllm-mixed{short}": partial(vllm_mixed, dtype=dtype) for dtype, short in _SHORT.items()},
    **{
        f"vllm-decodes{short}": partial(vllm_decodes, dtype=dtype)
        for dtype, short in _SHORT.items()
    },
    **{f"vllm-chats{short}": partial(vllm_chats, dtype=dtype) for dtype, short in _SHORT.items()},
    **{
        f"vllm-prompts{short}": partial(vllm_prompts, dtype=dtype)
        for dtype, short in _SHORT.items()
    },
}
WITH_VLLM = tuple(name for name in BENCHMARKS if name.startswith("vllm-"))
"""Those that need `measure.bench.vllm.vllm_python`."""
