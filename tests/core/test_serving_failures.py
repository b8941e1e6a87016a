"""What a step that fails does, or a bug of ours, while an engine serves: those in it end with a
sentence, and everybody else goes on.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from core import Engine, SamplingParams, Workload
from core.config import EngineConfig
from core.errors import ExecutionFailed, InvalidRequest, Unavailable
from core.serving.engine import ServingEngine
from core.serving.http.app import create_app
from core.serving.server import serve
from core.torch_engine.cpu.threads import CORE_SHARES
from worlds.serving import (
    Fragile,
    between_two_steps,
    breaks,
    checked,
    greedy,
    idle,
    serving,
    tokens,
    whole,
)
from worlds.small import generate, memory_engine, request


class Panic(BaseException):
    """As of a library in Rust: no Exception."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug of ours"),
        RuntimeError("CUDA error: device-side assert triggered"),
        Panic("retry-limit-in-match over"),
    ],
)
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
    assert tokens(pieces) == generate(request("r", (8, 9), 6)) and tokens(later) == generate(
        request("r", (4, 5), 3)
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_held", [False, True])
def test_a_second_request_of_the_same_id_ends_alone(is_held):
    async def twice(made: ServingEngine):
        other = await made.submit((8, 9), greedy(900))
        begun = aiter(other)
        pieces = [await anext(begun)]
        if is_held:
            made.change(EngineConfig(max_num_seqs=3), "barrier")
        first = await made.submit((4, 5, 6), greedy(9), id="same")
        with pytest.raises(InvalidRequest, match="id is in progress|already a request"):
            await made.submit((4, 5, 6), greedy(9), id="same")
        pieces += [piece async for piece in begun]
        pieces_of_first = await whole(first)
        await idle(made)
        return pieces_of_first, pieces

    with serving(memory_engine(max_num_seqs=2)) as made:
        first, other = asyncio.run(twice(made))
        assert made.num_step_failures == 0
    assert tokens(first) == generate(request("r", (4, 5, 6), 9)) and tokens(other) == generate(
        request("r", (8, 9), 900)
    )


def test_a_place_is_free_again_whatever_happens_on_the_way_to_the_engine():
    async def on_the_way(made: ServingEngine):
        for wrong in (
            {"nickname": "a\nb"},
            {"prompt": (4, 99)},
            {"sampling": greedy(10**6)},
            {"prompt": ""},
        ):
            with pytest.raises(InvalidRequest):
                await made.submit(**{"prompt": (4, 5), "sampling": greedy(2), **wrong})
        with pytest.raises(KeyError), made.receive("me", 5):
            raise KeyError("a bug of ours")
        assert made.num_requests == 0
        with made.receive("me", 3) as call:
            kept = await call.submit(await call.check((4, 5), greedy(3000)), greedy(3000))
            assert made.num_requests == 3
        assert made.num_requests == 1
        kept.cancel()
        await whole(kept)
        await idle(made)
        with made.receive("me") as late:
            await asyncio.to_thread(made.close)
            with pytest.raises(Unavailable, match="closed"):
                await late.submit(await late.check((4, 5), greedy(3)), greedy(3))
        assert made.num_requests == 0

    with serving(memory_engine()) as made:
        asyncio.run(on_the_way(made))


def test_an_engine_that_cannot_be_made_ready_says_so_and_tries_again(monkeypatch):
    async def broken(made: ServingEngine):
        begin = made.engine.begin
        monkeypatch.setattr(
            made.engine,
            "begin",
            lambda *a, **o: (_ for _ in ()).throw(ExecutionFailed("No memory.")),
        )
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
        # it had ended before the bug
        assert len(await whole(await made.submit((4, 5), greedy(1)))) == 1
        monkeypatch.setattr(made.metrics, "step", step)
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine()) as made:
        assert asyncio.run(told_wrongly(made)) == generate(request("r", (4, 5), 3))
        assert made.status == "ok" and made.num_step_failures == 2


def test_who_waits_is_told_though_counting_the_end_fails_too(monkeypatch):
    """They were never told, and the thread ended."""

    async def fails_twice(made: ServingEngine):
        with monkeypatch.context() as broken:
            broken.setattr(made.metrics, "finished", lambda *a: 1 / 0)
            begun = aiter(await made.submit((4, 5), greedy(2000)))
            await anext(begun)
            other = await made.submit((6, 7), greedy(2000))
            waits = await made.submit((8, 9), greedy(3))
            broken.setattr(made.metrics, "step", lambda event: 1 / 0)
            for stream in (begun, aiter(other)):
                with pytest.raises(ExecutionFailed, match="the server goes on"):
                    while True:
                        await anext(stream)
            waits.cancel()
            with suppress(ExecutionFailed):
                await whole(waits)
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine(max_num_seqs=2)) as made:
        ends = asyncio.run(asyncio.wait_for(fails_twice(made), 60))
        assert ends == generate(request("r", (4, 5), 3)) and made.status == "ok"


@pytest.mark.parametrize("times", [1, 3])
def test_a_bug_between_two_steps_ends_the_request_that_met_it(monkeypatch, times):
    """The thread ended, and with it the server. times: how often it fails, also as those that wait
    are queued again.
    """

    async def queued_wrongly(made: ServingEngine):
        begun = aiter(await made.submit((4, 5), greedy(2000)))
        await anext(begun)
        waits = await made.submit((8, 9), greedy(3))
        add, left = made.event_log.add, [times]

        def adds(entry):
            if entry.get("kind") == "request" and left[0]:
                left[0] -= 1
                raise ValueError("a bug of ours")
            add(entry)

        monkeypatch.setattr(made.event_log, "add", adds)
        with pytest.raises(ExecutionFailed, match="the server goes on"):
            await whole(await made.submit((4, 5), greedy(9)))
        with pytest.raises(ExecutionFailed):
            while True:
                await anext(begun)
        with suppress(ExecutionFailed):
            assert tokens(await whole(waits)) == generate(request("r", (8, 9), 3)) and times == 1
        monkeypatch.setattr(made.event_log, "add", add)
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine(max_num_seqs=1)) as made:
        ends = asyncio.run(asyncio.wait_for(queued_wrongly(made), 60))
        assert ends == generate(request("r", (4, 5), 3)) and made.status == "ok"


def test_a_bug_between_two_steps_does_not_put_off_the_next_run():
    """Nobody is left by whose step it would begin, and whoever came was held for it."""

    async def while_limits_are_pending(made: ServingEngine):
        made.set_pace(0)
        begun = await made.submit((4, 5), greedy(2000))
        made.step(1)
        await anext(aiter(begun))
        made.change(EngineConfig(max_num_seqs=2), "barrier")
        held = await made.submit((8, 9), greedy(3))
        made._thread.send(lambda: 1 / 0)
        made.set_pace(None)
        with pytest.raises(ExecutionFailed, match="the server goes on"):
            await whole(begun)
        pieces = await whole(held)
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine(max_num_seqs=1)) as made:
        ends = asyncio.run(asyncio.wait_for(while_limits_are_pending(made), 10))
        assert ends == generate(request("r", (8, 9), 3)) and made.engine.config.max_num_seqs == 2


@pytest.mark.parametrize("what", ["begin", "add_request"])
def test_a_panic_as_the_next_run_begins_leaves_nobody_without_an_answer(monkeypatch, what):
    """The thread ended, and whoever was held for that run waited for ever."""

    async def while_two_are_held(made: ServingEngine):
        made.set_pace(0)
        begun = await made.submit((4, 5), greedy(3))
        made.step(1)
        await anext(aiter(begun))
        made.change(EngineConfig(max_num_seqs=2), "barrier")
        held = [await made.submit((8, 9), greedy(3)) for _ in range(2)]
        works = getattr(made.engine, what)

        def panics_once(*args, **options):
            monkeypatch.setattr(made.engine, what, works)
            raise Panic("retry-limit-in-match over")

        monkeypatch.setattr(made.engine, what, panics_once)
        made.set_pace(None)
        found = await asyncio.gather(*map(whole, held), return_exceptions=True)
        await idle(made)
        return found

    with serving(memory_engine(max_num_seqs=1)) as made:
        first, second = asyncio.run(asyncio.wait_for(while_two_are_held(made), 30))
        assert made.status == "ok"
    assert tokens(second) == generate(request("r", (8, 9), 3))
    assert isinstance(first, ExecutionFailed) if what == "add_request" else first == second


def test_a_bug_outside_a_step_does_not_end_the_thread(monkeypatch):
    async def shared_wrongly(made: ServingEngine):
        with monkeypatch.context() as broken:
            broken.setattr(CORE_SHARES, "apply", lambda: 1 / 0)
            with pytest.raises(ExecutionFailed, match="the server goes on"):
                await whole(await made.submit((4, 5), greedy(3)))
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine()) as made:
        assert asyncio.run(shared_wrongly(made)) == generate(request("r", (4, 5), 3))
        assert made.status == "ok"


def test_a_thread_that_has_ended_by_itself_is_no_server_that_is_closing(monkeypatch):
    async def ends(made: ServingEngine):
        monkeypatch.setattr(made._thread, "_recover", lambda error: 1 / 0)
        made._thread.send(lambda: 1 / 0)
        with pytest.raises(Unavailable, match="was closed"):
            await whole(await made.submit((4, 5), greedy(3)))
        return made.status, made.num_requests

    with serving(memory_engine()) as made, suppress(ZeroDivisionError):
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        assert asyncio.run(ends(made)) == ("failed", 0)


def test_a_server_whose_engine_is_lost_ends_with_a_sentence(monkeypatch):
    made = ServingEngine(memory_engine())
    monkeypatch.setattr(made._thread, "_recover", lambda error: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(ExecutionFailed, match="has ended because of a bug"):
        serve(
            made,
            create_app(made),
            "127.0.0.1",
            0,
            lambda address: made._thread.send(lambda: 1 / 0),
        )


def test_nothing_runs_that_could_not_be_recorded(monkeypatch):
    """It ran, and the step failed in which its first token found nobody."""

    async def recorded_wrongly(made: ServingEngine):
        begun = aiter(await made.submit((4, 5), greedy(90)))
        pieces = [await anext(begun)]
        has_room = made._session._has_room
        with monkeypatch.context() as broken:
            # only a request needs as much
            broken.setattr(made._session, "_has_room", lambda n: has_room(n) if n < 9 else 1 / 0)
            with pytest.raises(ExecutionFailed):
                await made.submit((8, 9), greedy(3))
        pieces += [piece async for piece in begun]
        await idle(made)
        return tokens(pieces)

    with serving(memory_engine()) as made:
        assert asyncio.run(recorded_wrongly(made)) == generate(request("r", (4, 5), 90))
        assert made.num_step_failures == 0
        assert not checked(made.session()).warnings


def test_a_run_whose_last_step_was_not_recorded_is_not_called_complete(monkeypatch):
    async def recorded_wrongly(made: ServingEngine):
        pieces = await whole(await made.submit((4, 5), greedy(3)))
        await whole(await made.submit((4, 5), greedy(2)))  # in the run after it
        return tokens(pieces)

    with serving(memory_engine()) as made:
        events = type(made._session._now.events)
        append = events.append

        def fails(self, event):
            if event.finished and event.step == 2:
                raise MemoryError
            append(self, event)

        monkeypatch.setattr(events, "append", fails)
        assert asyncio.run(recorded_wrongly(made)) == generate(request("r", (4, 5), 3))
        found = checked(made.session(0))
        assert not found.complete and found.num_steps == 2


def fragile_ahead(**limits: int) -> Engine:
    """As `Fragile`, where a step is launched before the one before it is read."""
    pytest.importorskip("triton", reason="the paged runner needs the package triton")
    from worlds.paged import PagedMemoryModel, paged_engine

    class Breaks(PagedMemoryModel):
        def forward(self, batch, pool, backend=None):
            if breaks(batch):
                raise ValueError("a bug of ours")
            return super().forward(batch, pool, backend)

    return paged_engine(model=Breaks(), **limits)


def test_the_block_tables_of_a_failed_pass_are_brought_to_the_device_by_the_next_run(monkeypatch):
    """They counted as brought: the next run read slots of somebody else."""
    engine, workload = fragile_ahead(block_size=2), Workload([request("r", 5)])
    with monkeypatch.context() as broken:
        broken.setattr("core.torch_engine.gpu.runner.plan_tiles", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.run(workload)
    assert engine.run(workload).outputs == {"r": generate(request("r", 5))}


def test_running_ahead_nothing_is_lost_or_said_twice_when_a_launch_fails():
    async def around(made: ServingEngine):
        streams = [await made.submit((4, 5), greedy(new)) for new in (1, 2, 3, 40)]
        outcomes = asyncio.gather(*map(whole, streams), return_exceptions=True)
        poison = await made.submit((49,), greedy(1))
        with pytest.raises(ExecutionFailed):
            await whole(poison)
        found = await outcomes
        await idle(made)
        return found

    with serving(fragile_ahead(max_num_seqs=8)) as made:
        for new, found in zip((1, 2, 3, 40), asyncio.run(around(made)), strict=True):
            assert isinstance(found, ExecutionFailed) or tokens(found) == generate(
                request("r", (4, 5), new)
            )


def test_running_ahead_what_was_read_before_a_launch_failed_is_told():
    """The first step computes all of one prompt, the second would compute the other."""

    async def both(made: ServingEngine):
        with between_two_steps(made):
            asking = [
                asyncio.create_task(made.submit(prompt, greedy(1))) for prompt in ((4, 5), (49,))
            ]
            await asyncio.sleep(0)
        answered, poison = await asyncio.gather(*asking)
        with pytest.raises(ExecutionFailed):
            await whole(poison)
        return await whole(answered)

    with serving(fragile_ahead(max_num_seqs=2, max_num_batched_tokens=2)) as made:
        assert tokens(asyncio.run(both(made))) == generate(request("r", (4, 5), 1))
        assert [steps for _, steps in made.sessions] == [1]  # and it is not computed again


@pytest.mark.parametrize(
    ("ahead", "count", "penalty", "refused"),
    [(True, 1, 0.5, True), (True, 0, 0.5, False), (True, 1, 0.0, False), (False, 1, 0.5, False)],
)
def test_alternatives_beside_penalties_are_refused_where_passes_are_launched_ahead(
    ahead, count, penalty, refused
):
    if ahead:
        pytest.importorskip("triton", reason="the paged runner needs the package triton")
        from worlds.paged import paged_engine

    async def ask(made: ServingEngine):
        sampling = SamplingParams(2, presence_penalty=penalty)
        return await whole(await made.submit((4, 5), sampling, num_top_logprobs=count))

    with serving(paged_engine() if ahead else memory_engine()) as made:
        if refused:
            with pytest.raises(InvalidRequest, match="cannot be combined with penalties"):
                asyncio.run(ask(made))
        else:
            assert len(tokens(asyncio.run(ask(made)))) == 2
        assert made.num_requests == 0


def test_whoever_gave_way_after_its_first_tokens_ends_with_a_step_that_fails():
    """It was sent tokens already, and would be sent them again."""

    async def around(made: ServingEngine):
        made.set_pace(0)  # both are there before the first step
        streams = [await made.submit((4, 5, i), greedy(12)) for i in range(2)]
        made.set_pace(None)
        return await asyncio.gather(*map(whole, streams), return_exceptions=True)

    with serving(memory_engine(max_num_seqs=2, block_size=1, num_blocks=20)) as made:
        step = made.engine.step

        def breaks_once():
            if made.engine.num_waiting and made.engine.num_steps > 3:
                made.engine.step = step
                raise ValueError("a bug of ours")
            return step()

        made.engine.step = breaks_once
        found = asyncio.run(asyncio.wait_for(around(made), 60))
    assert [type(one) for one in found] == [ExecutionFailed] * 2
