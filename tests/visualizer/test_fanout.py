"""One list of deltas and its readers: all of it, in order, whenever they come; encoded once, gathered while nobody is woken."""

from __future__ import annotations

import asyncio
import json

from visualizer.server import fanout, routes, sse
from visualizer.server.fanout import Feed


def read(piece: bytes) -> list[dict]:
    return [json.loads(line[6:]) for line in piece.decode().splitlines() if line.startswith("data: ")]


async def all_of(feed: Feed, start: int = 0) -> list[list[dict]]:
    return [read(piece) async for piece in feed.read(start)]


def test_every_reader_gets_everything_from_its_place_on():
    async def go():
        feed = Feed()
        feed.append({"n": 0})
        early = asyncio.create_task(all_of(feed))
        await asyncio.sleep(0)
        for n in (1, 2):
            feed.append({"n": n})
            await asyncio.sleep(0.01)
        late = asyncio.create_task(all_of(feed, start=2))
        feed.close()
        return await early, await late

    early, late = asyncio.run(go())
    assert [d for piece in early for d in piece] == [{"seq": n, "n": n} for n in range(3)]
    assert late == [[{"seq": 2, "n": 2}]]


def test_a_delta_is_encoded_once_for_two_hundred_readers(monkeypatch):
    encoded = []
    monkeypatch.setattr(fanout, "encoded", lambda message: encoded.append(message) or sse.encoded(message))

    async def go():
        feed = Feed()
        readers = [asyncio.create_task(all_of(feed)) for _ in range(200)]
        await asyncio.sleep(0)
        for n in range(5):
            feed.append({"n": n})
        feed.close()
        return await asyncio.gather(*readers)

    assert all(sum(map(len, pieces)) == 5 for pieces in asyncio.run(go())) and len(encoded) == 5


def test_what_comes_within_a_period_travels_in_one_piece():
    async def go():
        feed = Feed(period=3600)
        reader = asyncio.create_task(all_of(feed))
        await asyncio.sleep(0)
        wakings = set()
        for n in range(10):
            feed.append({"n": n})
            wakings.add(feed._wake_up)
            await asyncio.sleep(0)
        (waking,) = wakings
        waking._run()  # the period is over
        await asyncio.sleep(0)
        feed.append({"n": 10})
        feed.close()
        return await reader

    assert [len(piece) for piece in asyncio.run(go())] == [10, 1]


def test_silence_is_broken_by_a_comment_and_a_reader_that_leaves_is_forgotten(monkeypatch):
    monkeypatch.setattr(fanout, "KEEP_ALIVE", 0.01)

    async def go():
        feed = Feed()
        reader = feed.read()
        first = await anext(reader)
        await reader.aclose()
        return first, feed._waiting

    first, waiting = asyncio.run(go())
    assert first.startswith(b":") and not read(first) and not waiting


def test_texts_that_have_no_utf8_travel_all_the_same():
    feed = Feed()
    feed.append({"text": "\ud800\n\u2028é"})
    feed.close()
    assert asyncio.run(all_of(feed))[0][0]["text"] == "\ud800\n\u2028é"


def test_a_reader_that_takes_nothing_is_let_go(monkeypatch):
    """And what it followed is told at once, so that its place is another's."""
    monkeypatch.setattr(routes, "_TAKING", 0.05)
    left = []

    async def pieces():
        try:
            yield b"data: 1\n\n"
        finally:
            left.append(True)

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def go():
        await routes.streamed(pieces())({"type": "http", "asgi": {"spec_version": "2.3"}}, asyncio.Event().wait, send)
        assert left == [True]

    asyncio.run(go())
