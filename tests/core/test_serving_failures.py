"""What a step that fails does, or a bug of ours, while an engine serves: those in it end with a sentence, and everybody else goes on."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import ExecutionFailed
from core.serving.engine import ServingEngine
from worlds.serving import Fragile, breaks, greedy, idle, serving, tokens, whole
from worlds.small import generate, memory_engine, request


@pytest.mark.parametrize("error", [ValueError("a bug of ours"), RuntimeError("CUDA error: device-side assert triggered")])
def test_a_step_that_fails_ends_those_in_it_and_nobody_else(error):
    async def around(made: ServingEngine):
        running = await made.submit((4, 5, 6), greedy(500))
        begun = aiter(running)
        await anext(begun)
        poison = await made.submit((49, 7), greedy(4))
        waiting = await made.submit((8, 9), greedy(6))
        with pytest.raises(ExecutionFailed, match="the server goes on"):
            await whole(poison)
        with pytest.raises(ExecutionFailed):
            while True:
                await anext(begun)
        pieces = await whole(waiting)
        later = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return pieces, later

    model = Fragile()
    model.error = error
    with serving(memory_engine(model=model, max_num_seqs=2)) as made:
        pieces, later = asyncio.run(around(made))
        assert made.num_step_failures == 1 and made.status == "ok"
    assert tokens(pieces) == generate(request("r", (8, 9), 6)) and tokens(later) == generate(request("r", (4, 5), 3))


def test_an_engine_that_cannot_be_made_ready_says_so_and_tries_again(monkeypatch):
    async def broken(made: ServingEngine):
        begin = made.engine.begin
        monkeypatch.setattr(made.engine, "begin", lambda *a, **o: (_ for _ in ()).throw(ExecutionFailed("No memory.")))
        with pytest.raises(ExecutionFailed):
            await whole(await made.submit((49,), greedy(2)))
        with pytest.raises(ExecutionFailed, match="No memory"):
            await made.submit((4,), greedy(2))
        assert made.status == "failed"
        monkeypatch.setattr(made.engine, "begin", begin)
        pieces = await whole(await made.submit((4,), greedy(2)))
        assert made.status == "ok"
        await idle(made)
        return pieces

    with serving(memory_engine(model=Fragile())) as made:
        assert tokens(asyncio.run(broken(made))) == generate(request("r", (4,), 2))


def test_a_bug_in_telling_what_happened_does_not_end_the_thread(monkeypatch):
    async def told_wrongly(made: ServingEngine):
        step = made.metrics.step
        monkeypatch.setattr(made.metrics, "step", lambda event: 1 / 0)
        with pytest.raises(ExecutionFailed):
            await whole(await made.submit((4, 5), greedy(9)))
        assert len(await whole(await made.submit((4, 5), greedy(1)))) == 1  # it had ended before the bug
        monkeypatch.setattr(made.metrics, "step", step)
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine()) as made:
        assert asyncio.run(told_wrongly(made)) == generate(request("r", (4, 5), 3))
        assert made.status == "ok" and made.num_step_failures == 2


def test_running_ahead_nothing_is_lost_or_said_twice_when_a_launch_fails():
    pytest.importorskip("triton", reason="the paged runner needs the package triton")
    from worlds.paged import PagedMemoryModel, paged_engine

    class Breaks(PagedMemoryModel):
        def forward(self, batch, pool, backend=None):
            if breaks(batch):
                raise ValueError("a bug of ours")
            return super().forward(batch, pool, backend)

    async def around(made: ServingEngine):
        streams = [await made.submit((4, 5), greedy(new)) for new in (1, 2, 3, 40)]
        outcomes = asyncio.gather(*map(whole, streams), return_exceptions=True)
        poison = await made.submit((49,), greedy(1))
        with pytest.raises(ExecutionFailed):
            await whole(poison)
        found = await outcomes
        await idle(made)
        return found

    with serving(paged_engine(model=Breaks(), max_num_seqs=8)) as made:
        for new, found in zip((1, 2, 3, 40), asyncio.run(around(made)), strict=True):
            assert isinstance(found, ExecutionFailed) or tokens(found) == generate(request("r", (4, 5), new))
