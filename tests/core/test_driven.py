"""Other engines driven step by step: each request comes at its step, and what transformers did
under pressure is told as it was.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import replace

import pytest

from core import Engine, EngineConfig, Request, SamplingParams, Workload
from core.recorders.follow import Follower, Update
from core.torch_engine.models.load import load_adapter
from core.trace.divergence import divergence
from core.trace.events import StepEvent
from core.workload.presets import PRESETS
from engines.contenders import transformers_batching
from engines.task import BLOCK_SIZE, EngineTask, drive

SAMPLING = SamplingParams(4, ignore_eos=True)


def test_a_request_comes_before_its_step_and_idle_steps_pass():
    """Against our own engine: the same requests before the same steps, a pause included."""
    requests = [
        Request(f"r{i}", prompt_token_ids=(7, 8), sampling=SAMPLING, arrival=at)
        for i, at in enumerate((0, 0, 2, 9, 9.5))
    ]
    left, came, steps = {}, [], []

    def step() -> None:
        steps.append(sorted(left))
        for name in list(left):
            left[name] -= 1
            if not left[name]:
                del left[name]

    drive(
        Workload(requests),
        lambda r: (came.append((len(steps), r.id)), left.update({r.id: 4})),
        step,
        lambda: bool(left),
    )
    adapter, tokenizer = load_adapter("shakespeare-bpe", "cpu", "float32")
    ours = Engine(adapter, tokenizer, EngineConfig(max_num_seqs=5)).run(Workload(requests))
    assert steps == [sorted({s.request for s in e.segments}) for e in ours.events]
    assert came == [(at, a.request) for at, e in enumerate(ours.events) for a in e.arrived]


def test_a_preset_keeps_its_tokens_in_larger_blocks():
    _, tokenizer = load_adapter("shakespeare-bpe", "cpu", "float32")
    preset = PRESETS["kv-pressure"]
    asked = EngineTask.of(preset, tokenizer)
    assert (
        asked.config.num_blocks * BLOCK_SIZE == preset.config.num_blocks * preset.config.block_size
    )
    assert all(r.sampling.temperature == 0 for r in asked.workload)
    assert EngineTask.from_json(asked.to_json()) == asked
    unlimited = EngineTask.of(PRESETS["long-prompt-chunked"], tokenizer)
    assert (
        unlimited.config.num_blocks * BLOCK_SIZE
        >= unlimited.longest * unlimited.config.max_num_seqs
    )


@pytest.mark.slow
def test_transformers_is_recorded_when_its_cache_is_full(tmp_path, monkeypatch):
    """Requests that lack a block stall, give their cache up and come back: told as preemptions, not
    as ends; the texts are ours. Who follows it meanwhile sees the same.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    adapter, tokenizer = load_adapter("shakespeare-bpe", "cpu", "float32")
    preset = PRESETS["kv-pressure"]
    requests = [
        replace(r, sampling=replace(r.sampling, max_new_tokens=24))
        for r in list(preset.workload)[:4]
    ]
    asked = EngineTask.of(
        replace(preset, workload=Workload(requests), config=replace(preset.config, num_blocks=13)),
        tokenizer,
    )
    contender = transformers_batching(asked, adapter.model, adapter.eos_token_ids)
    seen: list[Update] = []
    with contender.ready() as start:
        (folder,) = tmp_path.iterdir()
        follower = Follower(folder)

        def follow() -> None:
            while not follower.is_over:
                seen.extend(follower.poll())
                time.sleep(0.01)

        watching = threading.Thread(target=follow, daemon=True)
        watching.start()
        run = contender.read(start())
        watching.join(60)
    trace = run.trace
    assert [n.segments for n in seen if isinstance(n, StepEvent)] == [
        e.segments for e in trace.events
    ]
    assert trace.complete and run.seconds > 0
    assert sum(len(e.preempted) for e in trace.events) > 0 and any(e.stalled for e in trace.events)
    assert [f.finish_reason for e in trace.events for f in e.finished] == ["length"] * 4
    ours = Engine(adapter, tokenizer, asked.config).run(asked.workload)
    assert ours.outputs == trace.outputs
    parting = divergence(ours, trace)
    # its rule is another: who lacks a block stalls first
    assert parting is not None and parting.same_tokens
