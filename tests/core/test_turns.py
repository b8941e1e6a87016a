"""Places are shared by address: nobody takes more than half, and who waits gets them address by
address.
"""

from __future__ import annotations

import asyncio

import pytest

from core.errors import TooManyRequests
from core.serving.limits import Places, ServingLimits
from core.serving.turns import Turns, beyond


def served(test):
    return asyncio.run(asyncio.wait_for(test(), 30))


def test_one_address_holds_half_and_others_get_in():
    async def go():
        turns = Turns(400, "viewers are connected", retry_after=10)
        for _ in range(200):
            await turns.take("a class")
        with pytest.raises(
            TooManyRequests,
            match="^From your address 200 viewers are connected, as many as one may have: try",
        ) as told:
            await turns.take("a class")
        assert told.value.retry_after == 10
        for other in range(200):
            await turns.take(str(other))
        with pytest.raises(
            TooManyRequests,
            match=(
                "^400 viewers are connected, as many as there is room for: try again in a moment.$"
            ),
        ):
            await turns.take("one more")
        turns.free("7")
        await turns.take("one more")

    served(go)


def test_turns_go_round_by_address_however_many_one_has_waiting():
    async def go():
        turns, order = Turns(2, "questions", waiting=20), []
        for address in ("other", "another"):
            await turns.take(address)

        async def one(address: str) -> None:
            async with turns.held(address):
                order.append(address)

        waiting = [asyncio.create_task(one(address)) for address in "aaaaabbc"]
        await asyncio.sleep(0)
        turns.free("other")
        await asyncio.gather(*waiting)
        assert "".join(order) == "abcabaaa"

    served(go)


def test_the_line_of_one_address_is_half_of_it_and_who_leaves_is_out_of_it():
    async def go():
        turns = Turns(1, "questions are being answered", waiting=4)
        await turns.take("a")
        waiting = [asyncio.create_task(turns.take(address)) for address in "aabb"]
        await asyncio.sleep(0)
        for address, words in (("a", "From your address 3 questions"), ("c", "5 questions")):
            with pytest.raises(TooManyRequests, match=words):
                await turns.take(address)
        waiting[0].cancel()
        waiting[2].cancel()
        turns.free("a")  # before those who leave have had a moment to go
        await waiting[1]
        turns.free("a")
        await waiting[3]
        assert all(one.cancelled() for one in (waiting[0], waiting[2]))
        turns.free("b")
        await turns.take("d")

    served(go)


def test_who_leaves_the_line_makes_room_in_it_and_a_failure_gives_its_place_back():
    async def go():
        turns = Turns(1, "questions", waiting=2)
        with pytest.raises(ZeroDivisionError):
            async with turns.held("a"):
                waiting = [asyncio.create_task(turns.take(address)) for address in "bc"]
                await asyncio.sleep(0)
                waiting[0].cancel()
                await asyncio.sleep(0)
                assert turns.num_waiting == 1
                waiting.append(asyncio.create_task(turns.take("d")))
                await asyncio.sleep(0)
                assert turns.num_waiting == 2
                1 / 0  # noqa: B018
        await waiting[1]
        turns.free("c")
        await waiting[2]

    served(go)


def test_a_place_that_is_handed_to_somebody_who_leaves_is_handed_on():
    async def go():
        turns = Turns(1, "questions", waiting=4)
        await turns.take("a")
        waiting = [asyncio.create_task(turns.take(address)) for address in "bc"]
        await asyncio.sleep(0)
        turns.free("a")  # it is the first's
        waiting[0].cancel()
        await waiting[1]

    served(go)


def test_what_is_kept_goes_from_whoever_has_most_and_the_oldest_first():
    kept = ["other 1", "a 1", "a 2", "b 1", "a 3", "b 2", "a 4"]
    assert beyond(7, kept, lambda one: one[0]) == []
    assert beyond(3, kept, lambda one: one[0]) == ["a 1", "a 2", "b 1", "a 3"]


def test_a_place_is_given_back_once_however_often_it_is_freed():
    places = Places(ServingLimits(max_requests=3, max_requests_per_client=2))
    first, _ = places.take("a", 2)
    first.free()
    first.free()
    assert places.num_taken == 1
    with pytest.raises(
        TooManyRequests, match="^1 of your requests is in progress; the limit per client is 2.$"
    ):
        places.take("a", 2)
    places.take("b", 2)
    with pytest.raises(
        TooManyRequests, match="^3 requests are in progress; this server's limit is 3.$"
    ):
        places.take("a")
    first = Places(ServingLimits(max_requests=1))
    first.take("a")
    with pytest.raises(
        TooManyRequests, match="^1 request is in progress; this server's limit is 1.$"
    ):
        first.take("b")
