"""The engine on a thread of its own: many streams, each as if alone; who leaves, who waits, what is
refused, and how it ends.
"""

from __future__ import annotations

import asyncio

import pytest

from core import SamplingParams, Workload
from core.errors import InvalidRequest, TooManyRequests, Unavailable
from core.serving.engine import ServingEngine
from core.serving.limits import ServingLimits
from core.serving.stream import Piece
from worlds.serving import char_engine, greedy, idle, serving, tokens, whole
from worlds.small import generate, memory_engine, request


def test_each_stream_is_what_the_request_would_say_alone():
    prompts = [list(range(4, 4 + n)) for n in (3, 9, 1, 14, 6, 6, 2, 11)] * 3

    async def everybody(made: ServingEngine) -> list[list[Piece]]:
        streams = [await made.submit(p, greedy(5 + i)) for i, p in enumerate(prompts)]
        pieces = await asyncio.gather(*map(whole, streams))
        await idle(made)
        return pieces

    with serving(memory_engine(max_num_seqs=3, max_num_batched_tokens=8)) as made:
        pieces = asyncio.run(everybody(made))
    assert [tokens(p) for p in pieces] == [
        generate(request("r", p, 5 + i)) for i, p in enumerate(prompts)
    ]
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
        streams = [await made.submit(prompt, sampling), await made.submit(prompt, stopping)]
        return tuple(await asyncio.gather(*map(whole, streams)))

    with serving(engine) as made:
        free, stopped = asyncio.run(two(made))
    assert "".join(p.text for p in free) == text
    assert (
        "".join(p.text for p in stopped) == text[: text.index(stop)]
        and stopped[-1].finish_reason == "stop"
    )


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


def test_limits_are_refused_in_a_sentence_before_anything_changes():
    limits = ServingLimits(
        max_requests=3,
        max_requests_per_client=2,
        max_prompt_tokens=10,
        max_new_tokens=900,
        max_stop_strings=1,
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
                await made.submit(prompt, sampling)
        with pytest.raises(InvalidRequest, match="exceed the whole KV pool"):
            await made.submit((4,), greedy(500))
        streams = [await made.submit((4,), greedy(200), client="one") for _ in range(2)]
        with pytest.raises(TooManyRequests, match="2 of your requests"):
            await made.submit((4,), greedy(2), client="one")
        streams.append(await made.submit((4,), greedy(200), client="two"))
        with pytest.raises(TooManyRequests, match="3 requests are in progress"):
            await made.submit((4,), greedy(2), client="three")
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*map(whole, streams))
        await idle(made)

    with serving(memory_engine(num_blocks=20), limits) as made:
        asyncio.run(ask(made))


def test_draining_finishes_what_is_under_way_at_full_speed():
    async def leave(made: ServingEngine):
        made.set_pace(0)
        stream = await made.submit((4, 5), greedy(300))
        made.drain()
        with pytest.raises(Unavailable, match="closing"):
            await made.submit((4,), greedy(2))
        return await asyncio.wait_for(whole(stream), 60)

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
        trace = made.session()
        assert 0 < sum(len(e.sampled) for e in trace.events) <= 3000
        assert len(trace.asked) <= 3000 / 20
        assert not made.num_requests
