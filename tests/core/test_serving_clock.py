"""The clock of an engine that serves, by hand: a clock that moves only when told, and a model whose
passes take ten milliseconds and begin one after their step.
"""

from __future__ import annotations

import asyncio

import pytest

from core import Engine, EngineConfig
from core.account.metrics import metrics
from core.account.request_times import request_times
from core.serving.engine import ServingEngine
from core.serving.limits import ServingLimits
from core.serving.stream import TokenStream
from core.torch_engine.eager import ModelRunner
from worlds.clock import Clock
from worlds.serving import between_two_steps, checked, greedy, serving, whole
from worlds.small import MemoryModel

BEFORE, PASS, PREPARING = 0.001, 0.01, 3.0  # seconds
STEP = BEFORE + PASS


class Late(ModelRunner):
    """Its passes begin a while after their step."""

    clock: Clock

    def launch(self, output, params):
        self.clock.advance(BEFORE)
        return super().launch(output, params)


class Timed(MemoryModel):
    """Its passes, and making its pool, take their time on a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, batch, pool, backend=None):
        self.clock.advance(PASS)
        return super().forward(batch, pool, backend)

    def runner(self, num_blocks: int) -> ModelRunner:
        self.clock.advance(PREPARING)
        return Late(self, num_blocks, 16, clock=self.clock)


def test_times_are_counted_from_each_arrival_on_the_clock_of_its_run():
    """The server stands idle for five seconds. `a` comes then, `b` a second later, both while the
    engine is away until second seven; `c` comes once there is no room for a longer record: half a
    second later it begins a new run, and with it a new clock.
    """
    clock = Clock()
    model = Timed(clock)
    engine = Engine(
        model,
        None,
        EngineConfig(num_blocks=64),
        runner=model.runner,
        clock=clock,
        sleep=clock.advance,
    )

    async def ask(made: ServingEngine) -> list[TokenStream]:
        begun = clock.now  # of the run, once everything is ready
        with between_two_steps(made):
            asking = []
            for name, at in (("a", 5.0), ("b", 6.0)):
                clock.now = begun + at
                asking.append(asyncio.create_task(made.submit((4, 5, 6), greedy(2), id=name)))
                await asyncio.sleep(0)
            clock.now = begun + 7.0
        streams = list(await asyncio.gather(*asking))
        await asyncio.gather(*map(whole, streams))
        with between_two_steps(made):
            coming = asyncio.create_task(made.submit((4,), greedy(1), id="c"))
            await asyncio.sleep(0)
            clock.advance(0.5)
        streams.append(await coming)
        await whole(streams[-1])
        return streams

    with serving(engine, ServingLimits(kept_tokens=60)) as made:
        a, b, c = (stream.times.to_json() for stream in asyncio.run(ask(made)))
        (first, _), (second, _) = made.sessions
        runs = [made.session(first), made.session(second)]
    waited = {"a": 2.0, "b": 1.0, "c": 0.5}  # until the step in which it joins
    for (name, until), times in zip(waited.items(), (a, b, c), strict=True):
        ends = until + (1 if name == "c" else 2) * STEP
        told = {"queue_s": until + BEFORE, "ttft_s": until + STEP, "e2e_s": ends}
        assert times == pytest.approx(told), name
        if name != "c":  # whose run knows nothing of the time before it
            assert request_times(runs[0])[name].to_json().items() >= times.items()
    assert [(r, t) for e in runs[0].events for r, t in e.arrived] == [("a", 5.0), ("b", 6.0)]
    assert [e.t_start for e in runs[0].events] == pytest.approx([7.0, 7.0 + STEP])
    assert [(r, t) for e in runs[1].events for r, t in e.arrived] == [("c", 0.0)]
    # Nobody was there before the first arrival: that time is not the run's.
    assert [metrics(run)["wall_s"] for run in runs] == pytest.approx([2.0 + 2 * STEP, STEP])
    for run in runs:
        checked(run)
