"""Events as they happen: a stream of them, and a callback; who leaves early, twice, by an exception
or in silence leaves a usable engine and a true trace.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from core import Engine, EngineConfig, InflightError, Roofline, SimulatedEngine, Workload
from core.engine.engine import EngineCore
from core.engine.loop import ManualClock
from core.engine.outputs import StopStrings
from core.engine.recorder import Window
from core.errors import InvalidRequest
from core.torch_engine.eager import ModelRunner
from core.trace.events import StepEvent
from worlds.small import MemoryModel, memory_engine, request, requests

WORK = Workload(requests((5, 6), (9, 6), (2, 4, 1)))


def simulated() -> SimulatedEngine:
    return SimulatedEngine(Roofline.named("h100", "8b"), EngineConfig(max_num_seqs=2))


@pytest.fixture(params=[memory_engine, simulated])
def engine(request: pytest.FixtureRequest) -> EngineCore:
    return request.param()


def is_free(engine: EngineCore) -> bool:
    """Whether the engine runs a workload to its end, as if nothing had happened."""
    trace = engine.run(WORK)
    return (
        not engine.has_work
        and trace.complete
        and [len(ids) for ids in trace.outputs.values()] == [6, 6, 4]
    )


def test_an_event_comes_when_its_step_has_run_and_before_the_next_one(engine):
    seen = []
    for event in engine.stream(WORK):
        seen.append(event)
        assert engine.trace.events == seen and event.t_end <= engine.now
    assert engine.trace.complete and len(seen) > 5 and is_free(engine)


def test_a_callback_is_given_the_same_events(engine):
    seen: list[StepEvent] = []
    trace = engine.run(WORK, seen.append)
    assert seen == trace.events and trace is engine.trace and trace.complete


@pytest.mark.parametrize(
    "leave",
    [
        lambda engine: engine.stream(WORK).close(),
        lambda engine: engine.turns(WORK).close(),
        lambda engine: engine.stream(WORK) and None,
        lambda engine: next(engine.stream(WORK)) and None,
        lambda engine: next(engine.turns(WORK)) and None,
    ],
    ids=[
        "closed at once",
        "turns closed at once",
        "forgotten at once",
        "forgotten",
        "turns forgotten",
    ],
)
def test_a_stream_that_nobody_reads_leaves_the_engine_free(
    engine, leave: Callable[[EngineCore], None]
):
    leave(engine)
    assert not engine.has_work and not engine.trace.complete and is_free(engine)


def test_one_in_a_cycle_is_ended_by_the_collector(engine):
    holder = {"stream": engine.stream(WORK)}
    holder["self"] = holder
    next(holder["stream"])
    del holder
    gc.collect()
    assert not engine.has_work and len(engine.trace.events) == 1 and is_free(engine)


def test_breaking_off_keeps_what_ran(engine):
    for event in engine.stream(WORK):
        if event.step == 2:
            break
    assert (
        [event.step for event in engine.trace.events] == [0, 1, 2]
        and not engine.trace.complete
        and not engine.has_work
    )
    kept = engine.trace
    assert is_free(engine) and len(kept.events) == 3 and not kept.complete


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_in_a_callback_or_a_loop_ends_the_run_after_its_step(engine, error):
    def fails(event: StepEvent) -> None:
        if event.step == 1:
            raise error

    with pytest.raises(error):
        engine.run(WORK, fails)
    assert len(engine.trace.events) == 2 and not engine.trace.complete and is_free(engine)
    with pytest.raises(error):
        for event in engine.stream(WORK):
            fails(event)
    assert len(engine.trace.events) == 2 and not engine.trace.complete and is_free(engine)


def test_a_second_stream_is_refused_while_the_first_goes_on(engine):
    first = engine.stream(WORK)
    next(first)
    with pytest.raises(
        InflightError,
        match=r"still at work on other requests: close their stream, or drop them with `begin`\.$",
    ):
        engine.stream(WORK)
    with pytest.raises(InflightError, match="still at work"):
        engine.run(WORK)
    assert (
        len(list(first)) + 1 == len(engine.trace.events)
        and engine.trace.complete
        and is_free(engine)
    )


def test_a_bad_request_is_refused_at_the_call_and_changes_nothing(engine):
    engine.run(WORK)
    before = engine.trace
    with pytest.raises(InvalidRequest):
        engine.stream(Workload([request("a", 4), request("b", [10**6])]))
    assert engine.trace is before and before.complete and is_free(engine)


def test_a_new_run_ends_the_stream_of_the_old_one_and_the_old_trace_says_that_it_was_cut_short(
    engine,
):
    stream = engine.stream(WORK)
    next(stream)
    old = engine.trace
    engine.begin()
    engine.add_request(request("other", 3, 3))
    # and none of its steps is told as the old run's
    assert list(stream) == [] and len(old.events) == 1 and not old.complete
    while engine.has_work:
        engine.step()
    assert [len(ids) for ids in engine.trace.outputs.values()] == [3] and engine.trace.complete


def test_a_trace_is_complete_while_nothing_is_left_to_do(engine):
    """However the engine is driven: a run whose last event was taken and not one more, steps taken
    one by one, requests that come later.
    """
    total = len(engine.run(WORK).events)
    stream = engine.stream(WORK)
    for _ in range(total):
        next(stream)
    assert engine.trace.complete
    stream.close()
    assert engine.trace.complete
    engine.begin()
    assert not engine.trace.complete
    for name in ("a", "b"):
        engine.add_request(request(name, 3, 2))
        assert not engine.trace.complete
        while engine.has_work:
            assert not engine.trace.complete
            engine.step()
        assert engine.trace.complete
    assert engine.run(Workload([])).complete and not list(engine.stream(Workload([])))


def test_requests_may_join_and_leave_a_run_that_is_streamed(engine):
    for event in engine.stream(WORK):
        if event.step == 1:
            engine.add_request(request("late", 3, 2))
            engine.cancel("r0")
    trace = engine.trace
    assert trace.complete and len(trace.outputs["late"]) == 2 and len(trace.outputs["r0"]) < 6


def test_an_event_cannot_be_changed(engine):
    def mutable(value: object) -> bool:
        return isinstance(value, (list, dict, set)) or (
            isinstance(value, tuple) and any(map(mutable, value))
        )

    for event in engine.stream(WORK):
        assert not mutable(event)
        with pytest.raises(AttributeError):
            event.step = 99


def test_one_stream_in_several_threads_loses_no_event(engine):
    """Python refuses a generator to a second thread while a step runs; who is not refused gets
    events, each once.
    """
    stream, seen, refused = engine.stream(Workload(requests(*[(4, 40)] * 8))), [], []

    def read() -> None:
        try:
            for event in stream:
                seen.append(event.step)
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen += [event.step for event in stream]
    assert sorted(seen) == [event.step for event in engine.trace.events] and engine.trace.complete
    assert set(refused) <= {"generator already executing"}


def test_an_event_loop_goes_on_while_an_engine_runs_in_a_thread(engine):
    async def watch() -> tuple[int, bool]:
        loop, events = asyncio.get_running_loop(), asyncio.Queue()
        running = asyncio.create_task(
            asyncio.to_thread(
                engine.run, WORK, lambda event: loop.call_soon_threadsafe(events.put_nowait, event)
            )
        )
        first = asyncio.create_task(events.get())
        await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
        trace = await running
        return (await first).step, trace.complete and events.qsize() == len(trace.events) - 1

    assert asyncio.run(watch()) == (0, True)


# -- what an engine keeps, and how it waits --------------------------------------------------------


def test_an_engine_sleeps_a_minute_at_most_at_a_time():
    clock, slept = ManualClock(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(round(seconds))
        clock.advance(seconds)

    engine = Engine(MemoryModel(), None, EngineConfig(), clock=clock, sleep=sleep)
    engine.run(Workload([request("late", 5, 1, 150.0)], arrival_unit="s"))
    assert slept == [60, 60, 30]


def test_whoever_reads_the_answers_is_told_of_every_end():
    ended = list[str]()

    class Told(StopStrings):
        def end(self, request: str) -> None:
            ended.append(request)

    engine = memory_engine()
    engine.outputs = Told(None)
    engine.run(Workload(requests((5, 3), (4, 2))))
    assert ended == ["r1", "r0"]


def test_a_window_keeps_the_steps_of_its_last_tokens_and_counts_a_step_without_any():
    """Two tokens a step: of four tokens two steps. A prompt in ten pieces: steps without a token
    count as one each.
    """
    recorded = Engine(MemoryModel(), None, EngineConfig(), recorder=Window(4))
    assert [e.step for e in recorded.run(Workload(requests((4, 6), (4, 6)))).events] == [4, 5]
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=4)
    engine = Engine(MemoryModel(), None, config, recorder=Window(3))
    events = engine.stream(Workload(requests((40, 2))))
    assert [next(events).step for _ in range(8)][-1] == 7
    assert [e.step for e in engine.trace.events] == [5, 6, 7]


def test_a_step_on_a_devices_clock_begins_where_the_last_one_ended():
    """The device seems ten seconds ahead of its host, however long a step takes there."""

    class Ahead(ModelRunner):
        own_clock = True

        def launch(self, *told):
            result = super().launch(*told)
            result.t_end += 10.0
            return result

    model = MemoryModel()
    engine = Engine(model, runner=lambda blocks: Ahead(model, blocks, 16))
    events = engine.run(Workload(requests((5, 3)))).events
    assert all(before.t_end == after.t_start for before, after in pairwise(events))
