"""On a real GPU: the same tokens, graphs that replay, steps that follow one another without a gap,
and failures that are survived.
"""

from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device here", allow_module_level=True)
pytest.importorskip("triton", reason="the paged kernel needs the package triton")

import copy
from functools import cache

from core import Engine, EngineConfig, Request, SamplingParams, Workload
from core.config import POLICIES, Execution
from core.errors import ExecutionFailed, InflightError
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe
from worlds.families import BY_NAME, FAMILIES, RUNS, requests, world
from worlds.small import checker_of

CUDA = torch.device("cuda")
ATTENDING = [f.name for f in FAMILIES if f.plug == "attention"]
SWITCHES = [
    {},
    {"cuda_graphs": False},
    {"asynchronous": False},
    {"fused_sampling": False},
    {"fused_norms": False},
    {"fused_rotary": False},
    {"attention": "sdpa"},
]


@cache
def on_gpu(name: str) -> ModelAdapter:
    return probe(copy.deepcopy(world(name).model).to(CUDA), name)


@cache
def alone(name: str) -> dict[str, list[int]]:
    """What `generate` makes of each request on the same device."""
    outputs = {}
    for request in world(name).requests:
        ids = torch.tensor([request.prompt_token_ids], device=CUDA)
        new = request.sampling.max_new_tokens
        out = on_gpu(name).model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new
        )
        outputs[request.id] = out[0, ids.shape[1] :].tolist()
    return outputs


def run(name: str, limits: dict, **execution):
    engine = Engine(on_gpu(name), None, EngineConfig(**limits), execution=Execution(**execution))
    return engine.run(Workload(list(world(name).requests), name="families"))


def faults(trace) -> list[str]:
    checker = checker_of(trace)
    return [fault for event in trace.events if (fault := checker.fault(event))]


@pytest.mark.parametrize("name", ATTENDING)
@pytest.mark.parametrize("how", RUNS)
def test_tokens_are_those_of_generate(name, how):
    trace = run(name, RUNS[how])
    assert trace.outputs == alone(name)
    assert faults(trace) == []
    assert trace.header.is_asynchronous == (not how.startswith("split"))
    assert trace.header.execution.attention == "triton"


@pytest.mark.parametrize("execution", SWITCHES, ids=str)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_switch_changes_a_token(policy, execution):
    trace = run(
        "llama",
        {"policy": policy, "max_num_seqs": 3, "max_num_batched_tokens": 8, "block_size": 4},
        **execution,
    )
    assert trace.outputs == alone("llama")
    assert faults(trace) == []


def test_passes_of_few_tokens_are_graphs():
    trace = run("llama", RUNS["chunked"])
    assert trace.header.execution.cuda_graphs and not trace.header.notes
    assert all(p.bucket for e in trace.events for p in e.passes)


def test_a_model_that_waits_for_the_device_falls_back_and_says_so_once():
    adapter = probe(copy.deepcopy(world("llama").model).to(CUDA), "waits")
    adapter.model.model.layers[0].register_forward_pre_hook(
        lambda module, args: None if args[0].sum().item() > -1e9 else args
    )
    engine = Engine(adapter, None, EngineConfig(**RUNS["chunked"]))
    for _ in range(2):
        trace = engine.run(Workload(list(world("llama").requests), name="families"))
        assert trace.outputs == alone("llama")
        assert len(trace.header.notes) == 1 and "cannot be captured" in trace.header.notes[0]
        assert trace.header.execution.cuda_graphs is False
    assert torch.rand(2, device=CUDA).isfinite().all(), "random numbers are still to be had"


def test_times_are_the_devices_and_memory_is_on_record():
    trace = run("llama", RUNS["chunked"])
    ends = [t for e in trace.events for p in e.passes for t in (p.t_start, p.t_end)]
    assert ends == sorted(ends) and all(e.timings.forward > 0 for e in trace.events)
    memory = trace.header.memory
    assert memory["peak"] >= memory["weights"] + memory["kv_pool"] > 0


def test_sampled_text_is_that_of_the_request_alone():
    asked = [
        Request(
            r.id,
            prompt_token_ids=r.prompt_token_ids,
            sampling=SamplingParams(12, temperature=0.9, seed=i, ignore_eos=True),
        )
        for i, r in enumerate(requests())
    ]
    together = (
        Engine(on_gpu("llama"), None, EngineConfig(max_num_seqs=4))
        .run(Workload(asked, name="all"))
        .outputs
    )
    for request in asked:
        assert (
            Engine(on_gpu("llama"), None).run(Workload([request], name="one")).outputs[request.id]
            == together[request.id]
        )


def test_the_pool_is_as_large_as_the_longest_request_in_every_lane_or_what_is_free():
    engine = Engine(on_gpu("llama"), None, EngineConfig(max_num_seqs=3, block_size=4))
    trace = engine.run(Workload(list(world("llama").requests), name="families"))
    assert trace.header.num_blocks == 3 * -(-max(17 + 12, 3 + 16) // 4)
    tight = Engine(
        on_gpu("llama"),
        None,
        EngineConfig(max_num_seqs=3),
        execution=Execution(gpu_memory_utilization=1e-9),
    )
    with pytest.raises(
        InflightError,
        match=r"exceed the whole KV pool of 1 block of 16 tokens; 0\.00 GiB are left for it: of ",
    ):
        tight.run(Workload(list(world("llama").requests), name="families"))


def test_running_out_of_memory_is_told_and_survived():
    # a pool of all of it: weights take some
    total = torch.cuda.get_device_properties(CUDA).total_memory
    blocks = total // (on_gpu("llama").kv_bytes_per_token * 16)
    engine = Engine(on_gpu("llama"), None, EngineConfig(num_blocks=blocks, max_num_seqs=3))
    with pytest.raises(
        ExecutionFailed,
        match=r"^The KV pool and its passes could not be prepared: the GPU ran out of memory",
    ):
        engine.run(Workload(list(world("llama").requests), name="families"))
    assert run("llama", RUNS["packed"]).outputs == alone("llama")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_and_stays_close(dtype):
    adapter = probe(copy.deepcopy(BY_NAME["llama"].build()).to(CUDA, dtype), "half")
    trace = Engine(adapter, None, EngineConfig(**RUNS["chunked"])).run(
        Workload(list(world("llama").requests), name="families")
    )
    assert trace.complete and faults(trace) == []
    first = {request: ids[0] for request, ids in trace.outputs.items()}
    same = sum(first[request] == ids[0] for request, ids in alone("llama").items())
    assert same >= len(first) - 1
