"""The grid, its rounds and its time limit, with a clock that counts; never a time of this
machine.
"""

from __future__ import annotations

import contextlib
import json

import pytest
import torch

from core.config import EngineConfig, Execution
from core.measure.cost_curve import CostCurve, decode_step, measuring_cost
from core.simulate.engine import SimulatedEngine
from core.simulate.roofline import Roofline
from core.torch_engine.engine import ModelExecutor
from worlds.families import world
from worlds.small import VOCAB_SIZE, MemoryModel
from worlds.turns import ended


class Clock:
    """Each reading is `tick` seconds later."""

    def __init__(self, tick: float = 0.001) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Indifferent(MemoryModel):
    """Takes the made-up requests, whose caches hold nothing."""

    lock = contextlib.nullcontext()

    def forward(self, batch, pool, backend=None):
        return torch.zeros(len(batch.sample_rows), VOCAB_SIZE)


def measuring(**options):
    executor = ModelExecutor(Indifferent(context=options.pop("context", 256)), Execution())
    return measuring_cost(executor, batches=(1, 4), contexts=(16, 64), **options)


def measure(**options):
    return ended(measuring(**options))


def test_points_count_tokens_and_the_kv_that_is_read():
    curve = measure(repeats=3, clock=Clock())
    assert [(p.tokens, p.kv_read) for p in curve.by_tokens] == [(1, 32), (4, 128)]
    assert [(p.tokens, p.kv_read) for p in curve.by_kv] == [(8, 128), (8, 512)]
    for point in (*curve.by_tokens, *curve.by_kv):
        # prepare, forward, sample: three ticks
        assert len(point.step_s) == 3 and point.median == pytest.approx(0.003)


def test_contexts_beyond_the_models_are_left_out():
    assert [p.kv_read for p in measure(context=40, repeats=1, clock=Clock()).by_kv] == [128]


def test_when_time_is_up_no_round_begins_but_every_point_has_a_measure():
    curve = measure(repeats=50, seconds=0.1, clock=Clock(0.05))
    assert {len(p.step_s) for p in (*curve.by_tokens, *curve.by_kv)} == {1}


def test_progress_is_told_and_may_stop_it():
    points = measuring(repeats=2, clock=Clock())
    assert [next(points) for _ in range(6)] == [(i, 12) for i in range(6)]
    points.close()
    assert next(points, None) is None


def test_plain_data():
    curve = measure(repeats=2, clock=Clock())
    data = json.loads(json.dumps(curve.to_json()))
    assert CostCurve.from_json(data).to_json() == data
    assert data["model"]["name"] == "memory" and data["device"] == "cpu"
    assert set(data["by_tokens"][0]) == {
        "tokens",
        "kv_read",
        "median_s",
        "min_s",
        "max_s",
        "runs_s",
    }


def test_requests_of_a_step_share_no_block():
    output = decode_step(5, 33)
    blocks = [b for s in output.scheduled for b in s.block_table.blocks]
    assert len(blocks) == len(set(blocks)) == 15
    assert all(s.kv_len == 33 and s.block_table.consecutive for s in output.scheduled)


def test_a_step_that_is_too_short_for_the_clock_is_measured_several_times_in_a_row():
    """A clock of whole milliseconds, and readings of a fifth of one."""
    fine = Clock(0.0002)
    curve = measure(repeats=3, clock=lambda: round(fine(), 3))
    for point in (*curve.by_tokens, *curve.by_kv):
        assert point.median == pytest.approx(0.0006, rel=0.1)


def test_it_drives_whatever_computes_passes():
    """A cost model, which has a clock of its own and is the same each time, and the buffers of a
    GPU.
    """
    engine = SimulatedEngine(Roofline.named("h100", "124m"))
    curve = ended(measuring_cost(engine.executor, batches=(1, 64), contexts=(16, 1024), repeats=2))
    assert all(
        max(p.step_s) == pytest.approx(min(p.step_s)) for p in (*curve.by_tokens, *curve.by_kv)
    )
    assert (
        curve.by_tokens[0].median < curve.by_tokens[1].median
        and curve.by_kv[0].median < curve.by_kv[1].median
    )
    assert curve.device.startswith("simulated")


def test_it_drives_the_runner_of_a_gpu():
    pytest.importorskip("triton")
    from worlds.paged import GATHERING, again, engine_on_buffers

    limits = EngineConfig(max_num_seqs=8, max_num_batched_tokens=8)
    engine = engine_on_buffers(
        world("llama").adapter, None, limits, capture=again, attention=GATHERING
    )
    curve = ended(measuring_cost(engine.executor, batches=(1, 8), contexts=(16, 32), repeats=1))
    assert all(p.median > 0 for p in (*curve.by_tokens, *curve.by_kv)) and curve.dtype == "float32"
