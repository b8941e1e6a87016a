"""The answers of one call: all or none, and none goes on for a client that has left."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest
from starlette.requests import Request
from starlette.responses import Response

from core.errors import ExecutionFailed, InvalidRequest
from core.serving.engine import ServingEngine
from core.serving.http.answers import answer_unless_gone, gather_pieces, merge_pieces, submit_all
from core.serving.limits import ServingLimits
from core.serving.stream import Piece, TokenStream
from worlds.serving import greedy, idle, served, serving
from worlds.small import MemoryModel, memory_engine

LONG = 3000  # tokens, of which none of these tests waits for the last
ROOM = {"num_blocks": 200, "block_size": 16}


def ended(made: ServingEngine) -> dict[str, float]:
    """How many requests ended, by reason, in vLLM's words."""
    return {
        sample.labels["finished_reason"]: sample.value
        for metric in made.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "inflight:request_success_total"
    }


def test_either_all_answers_of_a_call_are_queued_or_none():
    async def ask(made: ServingEngine) -> None:
        refused = pytest.raises(InvalidRequest, match="exceed the whole KV pool")
        with made.receive("", 2) as call, refused:
            await submit_all(call, [((4, 5), greedy(LONG)), ((4,), greedy(3500))], "asked")
        await idle(made)

    with serving(memory_engine(**ROOM)) as made:
        asyncio.run(ask(made))
        assert ended(made) == {"abort": 1}


def test_who_stops_reading_several_answers_leaves_no_task_behind():
    async def ask(made: ServingEngine) -> None:
        with made.receive("", 2) as call:
            streams = await submit_all(call, [((4, 5), greedy(LONG)), ((6,), greedy(LONG))], "r")
        pieces = merge_pieces(streams)
        await anext(pieces)
        await pieces.aclose()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for stream in streams:
            stream.cancel()
        await idle(made)

    with serving(memory_engine(**ROOM)) as made:
        asyncio.run(ask(made))


@pytest.mark.parametrize("prompts", [[(4, 5)], [(4, 5), (6,)]])
def test_of_logits_that_are_not_finite_every_client_is_told(prompts):
    """One that asks for several answers, of which one fails, like one that asks for that alone."""

    async def ask(made: ServingEngine, most: int) -> list[int]:
        with made.receive("", len(prompts)) as call:
            asked = [(prompt, greedy(most)) for prompt in prompts]
            streams = await submit_all(call, asked, f"r{most}")
        return [len(pieces) for pieces in await gather_pieces(streams)]

    with serving(memory_engine(model=MemoryModel(fails_after=8), **ROOM)) as made:
        assert asyncio.run(ask(made, 6)) == [6] * len(prompts)  # no cache of 8 yet
        with pytest.raises(ExecutionFailed, match="numbers that are not finite"):
            asyncio.run(ask(made, 7))


def test_of_two_tokens_in_one_step_the_second_is_the_last():
    """Under `split` a request may be read in one pass of a step and decode in the next."""

    async def ask(made: ServingEngine) -> list[Piece]:
        with made.receive("", 1) as call:
            streams = await submit_all(call, [((4, 5), greedy(2))], "r")
        return (await gather_pieces(streams))[0]

    with serving(memory_engine("split", **ROOM)) as made:
        pieces = asyncio.run(ask(made))
        assert made.engine.num_steps == 1
    assert [(piece.index, piece.finish_reason) for piece in pieces] == [(0, None), (1, "length")]


@pytest.mark.parametrize("leaves", [True, False])
def test_neither_the_work_nor_the_watch_for_a_client_outlasts_the_other(leaves):
    async def ask() -> tuple[int, str]:
        waits, ended = asyncio.Event(), asyncio.Queue[str]()

        async def until_stopped(what: str) -> None:
            try:
                await waits.wait()
            finally:
                ended.put_nowait(what)

        async def work() -> Response:
            if leaves:
                await until_stopped("work")
            await asyncio.sleep(0)  # the watch has begun
            return Response(status_code=200)

        async def receive() -> dict[str, str]:
            if not leaves:
                await until_stopped("watch")
            return {"type": "http.disconnect"}

        response = await answer_unless_gone(Request({"type": "http"}, receive), [], work())
        return response.status_code, await asyncio.wait_for(ended.get(), 30)

    assert asyncio.run(ask()) == ((499, "work") if leaves else (200, "watch"))


def test_a_stream_that_has_ended_is_not_cancelled():
    async def read(cancelled: list[TokenStream]) -> None:
        stream = TokenStream("r", (4,), greedy(1), None, None, 0.0, cancelled.append)
        stream.put(Piece(0, 7, "", None, "length"))
        assert [piece.token_id async for piece in stream] == [7]
        stream.cancel()
        assert not cancelled
        left = TokenStream("r", (4,), greedy(1), None, None, 0.0, cancelled.append)
        left.cancel()
        assert cancelled == [left]

    asyncio.run(read([]))


def test_a_client_that_hangs_up_before_its_whole_answer_ends_the_request():
    limits = ServingLimits(max_new_tokens=LONG)
    body = json.dumps({"model": "memory", "prompt": [4, 5], "max_tokens": LONG}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with served(memory_engine(**ROOM), limits, "memory") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head.encode() + body)
            until = time.monotonic() + 30
            while not server.serving.engine.running and time.monotonic() < until:
                time.sleep(0.01)
        while server.serving.num_requests and time.monotonic() < until:
            time.sleep(0.01)
        assert ended(server.serving) == {"abort": 1}
