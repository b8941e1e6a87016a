"""Real models through the buffers of a GPU, on a CPU: exact tokens in every layout, and passes that
a graph can hold.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

pytest.importorskip(
    "triton", reason="the paged runner needs the package triton, which this platform does not have"
)

from core import Engine, EngineConfig, Trace, Workload
from core.config import Execution
from core.errors import InvalidConfig
from core.torch_engine.gpu.runner import CudaClock
from worlds.families import FAMILIES, RUNS, world
from worlds.paged import GATHERING, again, engine_on_buffers, paged_engine, traced
from worlds.small import requests as small_requests

ATTENDING = [f.name for f in FAMILIES if f.plug == "attention"]
QUICK = ("llama", "gemma2", "gpt_oss", "deepseek_v3")


def run(name: str, limits: dict, most_new: int = 100, **kwargs) -> Trace:
    """most_new: of a request's new tokens. In a thread, whose stack is empty: Python 3.11 maps
    memory at every call that crosses the end of a piece of its stack, which takes longer than
    interpreting a kernel if a loop happens to stand there.
    """
    w = world(name)
    engine = engine_on_buffers(w.adapter, None, EngineConfig(**limits), **kwargs)
    samplings = [
        replace(r.sampling, max_new_tokens=min(most_new, r.sampling.max_new_tokens))
        for r in w.requests
    ]
    requests = [
        replace(r, sampling=sampling) for r, sampling in zip(w.requests, samplings, strict=True)
    ]
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(engine.run, Workload(requests, name="families")).result()


# Another family runs that is like each of these in all that is interpreted, in heads, window, norms
# and rotary embeddings: gpt2 for opt, llama for qwen2 and its mixtures of experts and for mixtral,
# mistral for phi3, gptj for codegen. All families are replayed on the buffers below.
ALIKE = ("opt", "qwen2", "mixtral", "qwen2_moe", "phi3", "codegen")
KERNEL_RUNS = dict.fromkeys(
    [(name, "chunked") for name in ATTENDING if name not in ALIKE]
    + [(name, "preempting") for name in QUICK]
    + [("llama", how) for how in RUNS]
)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(
            name, how, marks=() if (name, how) == ("gemma2", "chunked") else pytest.mark.slow
        )
        for name, how in KERNEL_RUNS
    ],
)
def test_the_kernel_says_the_tokens_of_generate(name, how):
    """Interpreted: in chunks the first tokens alone."""
    most = 3 if how == "chunked" else 100
    expected = {request: tokens[:most] for request, tokens in world(name).expected.items()}
    assert run(name, RUNS[how], most, fused=True).outputs == expected


@pytest.mark.parametrize("how", RUNS)
def test_so_does_every_layout_in_buckets(how):
    trace = run("llama", RUNS[how], capture=again, attention=GATHERING)
    assert trace.outputs == world("llama").expected
    buckets = [p.bucket for e in trace.events for p in e.passes]
    assert any(buckets) and all(
        b is None or b >= p.rows * p.width
        for e in trace.events
        for p in e.passes
        for b in [p.bucket]
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(f, marks=() if f == "llama" else pytest.mark.slow) for f in ATTENDING],
)
def test_a_graph_of_a_pass_holds_all_that_a_pass_depends_on(name):
    """Operations alone, replayed over new buffers, say the same tokens: nothing waits for the
    device or remembers a number.
    """
    trace = run(name, RUNS["chunked"], capture=traced, attention=GATHERING)
    assert trace.outputs == world(name).expected
    assert all(p.bucket for e in trace.events for p in e.passes)
    assert not trace.header.notes


def test_a_devices_times_are_added_up_and_none_is_before_it_was_recorded(monkeypatch):
    """Milliseconds of the device, and what the host's clock says: first three times, as the clock
    is set, then once at each mark.
    """
    device, host = iter([0, 1000, 1500, 1600, 1850]), iter([10.0, 10.5, 12.0, 11.2, 12.2, 20, 20])
    waited = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(device)

        def synchronize(self):
            waited.append(self.at)

        def elapsed_time(self, later):
            return later.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = CudaClock(lambda: next(host))
    marks = [clock.mark() for _ in range(4)]
    clock.wait(marks[3])
    assert waited == [0, 1850]
    assert [clock.time(mark) for mark in marks] == [12.0, 12.5, 20.0, 20.25]


def test_no_graph_is_captured_while_a_request_waits():
    """Of 1, 2, 4 and 8 tokens of five decodes, and of 64, 128 and 256 that hold prompts."""
    captured = []

    def capture(function):
        captured.append(function)
        return again(function)

    limits = {"max_num_seqs": 5, "max_num_batched_tokens": 200, "num_blocks": 64}
    engine = paged_engine(capture=capture, **limits)
    engine.begin()
    assert not captured
    engine._runner().prepare(200)
    assert len(captured) == 7
    trace = engine.run(Workload(small_requests(*(([7] * (40 * n + 1), 2 + n) for n in range(5)))))
    assert len(captured) == 7
    buckets = [p.bucket for event in trace.events for p in event.passes]
    # 200 positions twice, three decodes with a rest of 8, then 3, 2, 2, 1 and 1 decodes
    assert buckets == [256, 256, 64, 4, 2, 2, 1, 1]


@pytest.mark.slow
def test_a_pad_token_is_not_looked_for():
    """It would wait for the device in every pass."""
    config = world("gpt2").model.config
    config.pad_token_id = 7
    try:
        assert not run("gpt2", RUNS["chunked"], capture=traced, attention=GATHERING).header.notes
        assert config.pad_token_id == 7
    finally:
        config.pad_token_id = None


def test_a_model_that_waits_for_the_device_is_computed_anew_and_says_so_once():
    layer = world("llama").model.model.layers[0]
    hook = layer.register_forward_pre_hook(
        lambda module, args: None if args[0].sum().item() > -1e9 else args
    )
    try:
        trace = run("llama", RUNS["chunked"], capture=traced, attention=GATHERING)
    finally:
        hook.remove()
    assert trace.outputs == world("llama").expected
    assert not any(p.bucket for e in trace.events for p in e.passes)
    (note,) = trace.header.notes
    assert note.startswith("Without CUDA graphs: this model's pass cannot be captured (")
    execution = trace.header.execution
    assert execution.cuda_graphs is False
    assert (execution.min_graph_positions, execution.max_graph_positions) == (None, None)


def test_what_changes_between_passes_outside_the_buffers_would_show():
    """The negative control: a replay that reads a stale number gives other tokens."""

    def stale(function):
        logits = function().clone()
        return lambda: logits

    assert (
        run("llama", RUNS["chunked"], capture=stale, attention=GATHERING).outputs
        != world("llama").expected
    )


def test_what_cannot_be_had_is_refused_in_a_sentence(monkeypatch):
    w = world("falcon")
    with pytest.raises(
        InvalidConfig,
        match=(
            r"^The paged kernel is not available: falcon computes attention itself, through its"
            r" cache\.$"
        ),
    ):
        Engine(w.adapter, None, execution=Execution("triton"))
    with pytest.raises(
        InvalidConfig,
        match=r"^Asynchronous execution needs the paged kernel, which is not in use: ",
    ):
        Engine(w.adapter, None, execution=Execution(asynchronous=True))
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(
        InvalidConfig, match=r"^The paged kernel is not available: it runs on CUDA, not on cpu \("
    ):
        Engine(world("llama").adapter, None, execution=Execution("triton"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InvalidConfig,
        match=r"^The paged kernel is not available: the package triton is not installed\.$",
    ):
        Engine(world("llama").adapter, None, execution=Execution("triton"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"attention": "flash"}, "There is no attention 'flash'"),
        ({"cuda_graphs": 1}, "cuda_graphs must be true or false"),
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization must be above 0"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization must be above 0"),
    ],
)
def test_options_out_of_range(options, match):
    assert Execution(gpu_memory_utilization=1).gpu_memory_utilization == 1  # all of it
    with pytest.raises(InvalidConfig, match=match):
        Execution(**options)
