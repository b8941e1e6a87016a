"""Those who watch an engine: everything in order, what a reader that fell behind is told, and what many readers cost."""

from __future__ import annotations

import asyncio
import json

import pytest

from core.serving import feed as feed_module
from core.serving.feed import Feed


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

        seen: list[list[int]] = [[], []]

        async def read(mine: list[int]) -> None:
            async for batch in feed.read(coalesce_s=0):
                mine.append(batch.last)

        readers = [asyncio.create_task(read(mine)) for mine in seen]
        for number in range(3):
            feed.add({"kind": "request", "id": str(number)})
            while any(len(mine) <= number for mine in seen):
                await asyncio.sleep(0)
        feed.close()
        await asyncio.gather(*readers)
        return seen

    assert asyncio.run(two_readers()) == [[0, 1, 2]] * 2


def test_readers_who_are_equally_far_share_one_batch_and_one_encoding():
    async def watch(count: int) -> list[list]:
        feed = Feed()
        feed.add({"kind": "run", "header": {}})

        async def read():
            return [batch async for batch in feed.read(coalesce_s=0.05)]

        readers = [asyncio.create_task(read()) for _ in range(count)]
        for number in range(40):
            if number % 8 == 0:
                await asyncio.sleep(0.06)  # what comes in between travels together, however slow the machine
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
