"""The engine on a thread of its own: many streams, each as if alone; who leaves, who waits, and what a step that fails does."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import SamplingParams, Workload
from core.errors import ExecutionFailed, InvalidRequest, TooManyRequests, Unavailable
from core.serving import feed as feed_module
from core.serving.engine import ServingEngine
from core.serving.feed import Feed
from core.serving.limits import ServingLimits
from core.serving.pace import Pace
from core.serving.stream import Piece
from core.serving.text import ClientText
from worlds.serving import Fragile, breaks, char_engine, greedy, idle, serving, tokens, whole
from worlds.small import generate, memory_engine, request


def test_each_stream_is_what_the_request_would_say_alone():
    prompts = [list(range(4, 4 + n)) for n in (3, 9, 1, 14, 6, 6, 2, 11)] * 3

    async def everybody(made: ServingEngine) -> list[list[Piece]]:
        streams = [await made.submit(made.check(p, greedy(5 + i)), greedy(5 + i)) for i, p in enumerate(prompts)]
        pieces = await asyncio.gather(*map(whole, streams))
        await idle(made)
        return pieces

    with serving(memory_engine(max_num_seqs=3, max_num_batched_tokens=8)) as made:
        pieces = asyncio.run(everybody(made))
    assert [tokens(p) for p in pieces] == [generate(request("r", p, 5 + i)) for i, p in enumerate(prompts)]
    for one in pieces:
        assert [piece.index for piece in one] == list(range(len(one)))
        assert [piece.finish_reason for piece in one] == [None] * (len(one) - 1) + ["length"]


def test_texts_are_those_of_a_run_and_stop_strings_are_not_shown():
    engine, prompt = char_engine(), "O Romeo, "
    sampling = SamplingParams(60, temperature=0.7, seed=5)
    text = engine.run(Workload([request_of(prompt, sampling)])).text("r")
    stop = text[20:23]

    async def two(made: ServingEngine) -> tuple[list[Piece], list[Piece]]:
        stopping = SamplingParams(60, temperature=0.7, seed=5, stop=(stop, "never there"))
        ids = made.check(prompt, sampling)
        streams = [await made.submit(ids, sampling), await made.submit(ids, stopping)]
        return tuple(await asyncio.gather(*map(whole, streams)))

    with serving(engine) as made:
        free, stopped = asyncio.run(two(made))
    assert "".join(p.text for p in free) == text
    assert "".join(p.text for p in stopped) == text[: text.index(stop)] and stopped[-1].finish_reason == "stop"


def request_of(prompt: str, sampling: SamplingParams):
    from core import Request

    return Request("r", prompt=prompt, sampling=sampling)


def test_cancelling_frees_lane_and_blocks_for_those_who_wait():
    async def three(made: ServingEngine):
        endless, waits = [await made.submit((4, 5, 6), greedy(new)) for new in (3000, 4)]
        first = await anext(aiter(endless))
        endless.cancel()
        pieces = await whole(waits)
        gone = await made.submit((4, 5), greedy(3000))
        gone.cancel()
        assert (await whole(gone))[-1].finish_reason == "cancelled"
        await idle(made)
        return first, pieces

    with serving(memory_engine(max_num_seqs=1)) as made:
        first, pieces = asyncio.run(three(made))
    assert first.token_id == generate(request("r", (4, 5, 6), 1))[0]
    assert tokens(pieces) == generate(request("r", (4, 5, 6), 4))


def test_who_gives_up_before_being_in_line_leaves_nothing_behind():
    async def give_up(made: ServingEngine):
        for _ in range(20):
            asking = asyncio.create_task(made.submit((4, 5, 6), greedy(3000)))
            await asyncio.sleep(0)
            asking.cancel()
        await idle(made)

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(give_up(made))


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


def test_limits_are_refused_in_a_sentence_before_anything_changes():
    limits = ServingLimits(
        max_requests=3, max_requests_per_client=2, max_prompt_tokens=10, max_new_tokens=900, max_stop_strings=1
    )

    async def ask(made: ServingEngine):
        for prompt, sampling, match in [
            (list(range(4, 15)), greedy(2), "The prompt has 11 tokens; at most 10 are taken"),
            ((4,), greedy(901), "At most 900 new tokens are written, not 901"),
            ((4,), SamplingParams(2, stop=("a", "b")), "At most 1 stop strings"),
            ((4, 99), greedy(2), "Token id 99 is outside the vocabulary of 50"),
            ((), greedy(2), "The prompt is empty"),
        ]:
            with pytest.raises(InvalidRequest, match=f"^{match}"):
                made.check(prompt, sampling)
        with pytest.raises(InvalidRequest, match="exceed the whole KV pool"):
            await made.submit((4,), greedy(500))
        streams = [await made.submit((4,), greedy(200), client="one") for _ in range(2)]
        with pytest.raises(TooManyRequests, match="2 of your requests"):
            await made.submit((4,), greedy(2), client="one")
        streams.append(await made.submit((4,), greedy(200), client="two"))
        with pytest.raises(TooManyRequests, match="3 requests are under way"):
            await made.submit((4,), greedy(2), client="three")
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*map(whole, streams))
        await idle(made)

    with serving(memory_engine(num_blocks=20), limits) as made:
        asyncio.run(ask(made))


def test_draining_finishes_what_is_under_way():
    async def leave(made: ServingEngine):
        stream = await made.submit((4, 5), greedy(300))
        made.drain()
        with pytest.raises(Unavailable, match="closing"):
            await made.submit((4,), greedy(2))
        return await whole(stream)

    with serving(memory_engine()) as made:
        assert tokens(asyncio.run(leave(made))) == generate(request("r", (4, 5), 300))
        assert made.status == "draining"


def test_closing_ends_every_stream():
    async def close(made: ServingEngine):
        stream = await made.submit((4, 5), greedy(3000))
        await asyncio.to_thread(made.close)
        with pytest.raises(Unavailable, match="closed"):
            await whole(stream)

    with serving(memory_engine()) as made:
        asyncio.run(close(made))


def test_hundreds_of_requests_leave_nothing_behind():
    async def many(made: ServingEngine):
        for _ in range(6):
            streams = [await made.submit((4, 5, 6, i % 40), greedy(5)) for i in range(100)]
            await asyncio.gather(*map(whole, streams))
        await idle(made)

    with serving(memory_engine(max_num_seqs=32), ServingLimits(kept_tokens=3000)) as made:
        asyncio.run(many(made))
        trace = made.engine.trace
        assert 0 < sum(len(e.sampled) for e in trace.events) <= 3000
        assert len(trace.asked) <= 3000 / 20
        assert not made.num_requests


def test_the_pace_is_set_and_single_steps_are_taken():
    async def slowly(made: ServingEngine):
        made.set_pace(0)
        stream = await made.submit((4, 5), greedy(6))
        steps: list[int] = []

        async def steps_taken(count: int) -> None:
            while made.engine.num_steps < count:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)  # nothing more happens
            steps.append(made.engine.num_steps)

        await steps_taken(0)
        made.step()
        await steps_taken(1)
        made.step(3)
        await steps_taken(4)
        made.set_pace(200)
        pieces = await whole(stream)
        endless = [await made.submit((4, 5), greedy(3000)) for _ in range(3)]
        made.clear()
        assert [(await whole(s))[-1].finish_reason for s in endless] == ["cancelled"] * 3
        made.set_pace(None)
        await idle(made)
        return steps, tokens(pieces)

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert asyncio.run(slowly(made)) == ([0, 1, 4], generate(request("r", (4, 5), 6)))


def test_pace_by_the_clock():
    now = [10.0]
    pace = Pace(lambda: now[0])
    assert pace.wait_s == 0
    pace.set(4)
    assert pace.wait_s == 0
    pace.stepped()
    assert pace.wait_s == 0.25
    now[0] += 0.2
    assert pace.wait_s == pytest.approx(0.05)
    pace.ask(1)
    assert pace.wait_s == 0
    pace.set(0)
    assert pace.wait_s is None


# -- those who watch -----------------------------------------------------------------------------------------------------


def messages(feed: Feed, after: int | None = None) -> list[dict]:
    """All that a reader gets of a feed that is closed."""

    async def read():
        return [json.loads(batch.messages) async for batch in feed.read(after, coalesce_s=0)]

    return [message for batch in asyncio.run(read()) for message in batch]


def filled(count: int, kept: int) -> Feed:
    feed = Feed(kept)
    feed.add({"kind": "run", "header": {}})
    for number in range(1, count):
        feed.add({"kind": "request", "id": f"r{number}"})
    feed.close()
    return feed


def test_a_reader_gets_everything_in_order_and_goes_on_where_it_was():
    feed = filled(700, kept=1000)
    everything = messages(feed)
    assert [m.get("id") for m in everything] == [None] + [f"r{n}" for n in range(1, 700)]
    assert messages(feed, after=650) == everything[651:]
    assert messages(feed, after=699) == []
    assert messages(feed, after=10**9) == everything  # the number of another server


def test_a_reader_that_fell_behind_skips_ahead_and_is_told():
    feed = filled(5000, kept=100)
    skipped, run, *rest = messages(feed, after=3)
    assert skipped["kind"] == "skipped" and run["kind"] == "run"
    assert skipped["messages"] + len(rest) == 5000 - 4 and 100 <= len(rest) <= 200 and rest[-1]["id"] == "r4999"


def test_readers_wait_for_news_and_end_with_the_feed():
    async def two_readers():
        feed = Feed()

        async def read():
            return [batch.last async for batch in feed.read(coalesce_s=0)]

        readers = [asyncio.create_task(read()) for _ in range(2)]
        for number in range(3):
            await asyncio.sleep(0.01)
            feed.add({"kind": "request", "id": str(number)})
        await asyncio.sleep(0.01)
        feed.close()
        return await asyncio.gather(*readers)

    assert asyncio.run(two_readers()) == [[0, 1, 2]] * 2


def test_readers_who_are_equally_far_share_one_batch_and_one_encoding():
    async def watch(count: int) -> list[list]:
        feed = Feed()
        feed.add({"kind": "run", "header": {}})

        async def read():
            return [batch async for batch in feed.read(coalesce_s=0.05)]

        readers = [asyncio.create_task(read()) for _ in range(count)]
        for number in range(40):
            await asyncio.sleep(0.007)
            feed.add({"kind": "request", "id": f"r{number}"})
        feed.close()
        return await asyncio.gather(*readers)

    seen = asyncio.run(watch(50))
    assert all(b"".join(batch.event for batch in found) == b"".join(batch.event for batch in seen[0]) for found in seen)
    told = [m["id"] for batch in seen[0] for m in json.loads(batch.messages) if m["kind"] == "request"]
    assert told == [f"r{number}" for number in range(40)]
    made = {id(batch) for found in seen for batch in found[1:]}
    assert len(made) == len(seen[0]) - 1 < 40


@pytest.mark.parametrize("readers", [1, 250])
def test_readers_are_told_ten_times_a_second_and_a_crowd_less_often(readers, monkeypatch):
    slept: list[float] = []
    next_tick = feed_module._next_tick

    async def counted(seconds: float) -> int:
        slept.append(seconds)
        return await next_tick(seconds)

    monkeypatch.setattr(feed_module, "_next_tick", counted)

    async def watch():
        feed = Feed()

        async def read():
            return [batch async for batch in feed.read()]

        tasks = [asyncio.create_task(read()) for _ in range(readers)]
        for number in range(50):
            await asyncio.sleep(0.01)
            feed.add({"kind": "request", "id": str(number)})
        feed.close()
        await asyncio.gather(*tasks)
        assert feed._num_readers == 0

    asyncio.run(watch())
    assert set(slept[readers:]) <= {feed_module.COALESCE_S * n for n in ([1] if readers == 1 else [1, 2, 3])}
    assert max(slept) == pytest.approx(feed_module.COALESCE_S * (1 if readers == 1 else 3))


def test_a_reader_that_stalls_is_waited_for_by_nobody_and_skips_ahead():
    async def watch():
        feed = Feed(kept=50)
        feed.add({"kind": "run", "run": 0, "header": {}})
        feed.add({"kind": "class", "policy": "static"})
        stalled = feed.read(coalesce_s=0)
        await anext(stalled)
        quick, last = [], None
        for number in range(1000):
            feed.add({"kind": "request", "id": f"r{number}"})
            if number % 20 == 0:
                async for batch in feed.read(last, coalesce_s=0):
                    quick, last = quick + json.loads(batch.messages), batch.last
                    if last == number + 2:
                        break
        return json.loads((await anext(stalled)).messages), quick, len(feed._messages)

    late, quick, kept = asyncio.run(watch())
    assert [m["kind"] for m in late[:3]] == ["skipped", "run", "class"] and late[0]["messages"] + kept == 1000
    assert [m["id"] for m in late[3:]] == [f"r{n}" for n in range(1000 - kept, 1000)] and kept <= 101
    assert not any(m["kind"] == "skipped" for m in quick) and sum(m["kind"] == "request" for m in quick) > 950


# -- texts ---------------------------------------------------------------------------------------------------------------


class Letters:
    """A tokenizer of one character a token; token 0 is special."""

    all_special_ids = (0,)

    def decode(self, ids, **options):
        return "".join("#abc"[i] for i in ids)


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_what_is_shown_is_the_text_up_to_the_first_stop_string(ids, stop):
    shown = ClientText(Letters(), stop)
    pieces = [shown.add(i) for i in ids]
    text = "".join("#abc"[i] for i in ids if i)
    ends = [text.index(s) for s in stop if s in text]
    final = "".join(pieces) + shown.finish()
    if not ends:
        assert final == text
    else:  # the first to be complete ends it, and of those the one that began first
        complete = min(text.index(s) + len(s) for s in stop if s in text)
        assert final == text[: min(text.index(s) for s in stop if s in text[:complete])]
