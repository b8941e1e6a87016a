"""Visitors' runs: streamed whole and in order, cancelled, refused in words, queued, and never
another's.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.torch_engine.models.cache import ModelCache
from visualizer.jobs.limits import HERE
from visualizer.server import jobs
from visualizer.server.jobs import JobQueue
from visualizer.server.limits import SPACE, limits
from worlds.server_events import messages_in
from worlds.visitors import Visits, collect, gather, spec


@pytest.fixture
def runs(models: ModelCache) -> Visits:
    return Visits(models, concurrent_runs=2, waiting_jobs=3)


def test_a_run_arrives_whole_in_order_and_once(runs: Visits):
    (deltas,) = gather(runs, (spec(new=100), "me"))  # long enough for several deltas
    assert sum("header" in d for d in deltas) == 1
    events = [e for d in deltas for e in d.get("events", ())]
    trace = runs.store.traces[0]
    assert [e["step"] for e in events] == [e.step for e in trace.events]
    told = [d["progress"] for d in deltas if d.get("progress", {}).get("step") is not None]
    last = {"step": trace.events[-1].step, "tokens": 300, "total_tokens": 300}
    assert told[-1] == last and [p["tokens"] for p in told] == sorted(p["tokens"] for p in told)
    assert all(len(d["events"]) == len(d["captions"]) for d in deltas if "events" in d)
    texts: dict[str, str] = {}
    for d in deltas:
        for request, pieces in d.get("texts", {}).get("output", {}).items():
            texts[request] = texts.get(request, "") + "".join(pieces)
    assert texts == {r: trace.text(r) for r in trace.prompts}
    assert deltas[-1]["done"] and deltas[-1]["url"] and "error" not in deltas[-1]
    assert trace.complete


def test_a_run_can_be_followed_from_any_delta_on(runs: Visits):
    (deltas,) = gather(runs, (spec(), "me"))
    job = runs.jobs.find(deltas[0]["job"])

    async def followed(start: int) -> list[dict]:
        return [
            message
            async for piece in runs.jobs.follow(job, start)
            for message in messages_in(piece)
        ]

    assert asyncio.run(followed(2)) == deltas[2:] and asyncio.run(followed(0)) == deltas
    assert runs.jobs.find("not a run") is None and runs.jobs.find({}) is None


def test_two_visitors_at_once_get_their_own_runs(runs: Visits):
    a, b = gather(runs, (spec("To be"), "a"), (spec("O Romeo, wherefore"), "b"))
    assert a[0]["job"] != b[0]["job"]
    prompts = [
        "".join(next(d["texts"]["prompt"]["r0"] for d in ds if d.get("texts", {}).get("prompt")))
        for ds in (a, b)
    ]
    assert prompts == ["To be", "O Romeo, wherefore"]


def test_the_same_visitor_is_told_that_a_run_is_going(runs: Visits):
    async def twice():
        first = runs.stream(spec(new=300), "me")
        started = await anext(first)
        second = await collect(runs.stream(spec(), "me"))
        runs.jobs.cancel(started["job"])
        rest = await collect(first)
        return second, rest

    second, rest = asyncio.run(twice())
    assert [d["error"] for d in second] == [
        "Your last run is still running: cancel it or wait for it to end."
    ]
    assert rest[-1]["stopped"].startswith("The run was cancelled")
    (after,) = gather(runs, (spec(), "me"))
    assert "error" not in after[-1]


@pytest.mark.slow
def test_visitors_beyond_the_slots_wait_in_line_and_the_rest_are_told(runs: Visits):
    results = gather(runs, *((spec(new=12), f"v{i}") for i in range(7)))
    refused = [r for r in results if r[0].get("error")]
    assert len(refused) == 2 and "Too many visitors" in refused[0][0]["error"]
    waited = [r for r in results if r[0].get("progress", {}).get("ahead")]
    assert sorted(r[0]["progress"]["ahead"] for r in waited) == [1, 2, 3]
    assert sum(bool(r[-1].get("url")) for r in results) == 5


def test_a_cancelled_run_stops_at_once_and_keeps_what_it_has(runs: Visits):
    async def go():
        stream = runs.stream(spec(new=400), "me")
        async for delta in stream:
            if delta.get("events"):
                runs.jobs.cancel(delta["job"])
        return delta

    delta = asyncio.run(go())
    assert delta["stopped"].startswith("The run was cancelled after ") and delta["url"]
    assert not runs.store.traces[-1].complete


async def leave(runs: Visits, **asked):
    """Start a run, see its first steps, and go; the job."""
    stream = runs.stream(spec(**asked), "me")
    async for delta in stream:
        if delta.get("events"):
            break
    await stream.aclose()
    return runs.jobs.find(delta["job"])


async def ended(job) -> dict:
    """A job's last delta, for one who only looks."""
    while not job.event_log.closed:
        await asyncio.sleep(0.01)
    return job.event_log._messages[-1].data


def test_a_run_that_was_left_is_found_again(runs: Visits):
    async def reload():
        job = await leave(runs, new=60)
        async for piece in runs.jobs.follow(job):
            last = piece
        return job, messages_in(last)[-1]

    job, last = asyncio.run(reload())
    assert last["done"] and last["url"] and "stopped" not in last
    assert len([e for m in job.event_log._messages for e in m.data.get("events", ())]) == len(
        runs.store.traces[0].events
    )


def test_a_run_that_was_left_ends_after_a_while(runs: Visits, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 0.01)

    async def go():
        return await ended(await leave(runs, new=400))

    assert asyncio.run(go())["stopped"].startswith("The run was cancelled after ")


def test_a_run_that_was_left_makes_room_at_once(models: ModelCache):
    runs = Visits(models, concurrent_runs=1, waiting_jobs=3)

    async def go():
        job = await leave(runs, new=400)
        other = [d async for d in runs.stream(spec(), "somebody else")]
        return job, other

    job, other = asyncio.run(go())
    assert job.is_cancelled and other[-1]["url"]


def test_a_visitor_who_comes_back_need_not_wait_for_the_run_that_was_left(runs: Visits):
    async def go():
        job = await leave(runs, new=400)
        return job, [d async for d in runs.stream(spec(), "me")]

    job, again = asyncio.run(go())
    assert job.is_cancelled and again[-1]["url"]


def test_a_run_that_nobody_opens_goes(models: ModelCache, monkeypatch):
    monkeypatch.setattr(jobs, "FIRST_READER", 0.05)
    runs = Visits(models, concurrent_runs=1, waiting_jobs=100)

    async def go():
        unread = [runs.begin(spec(new=400), f"nobody {i}", "attacker") for i in range(62)]
        mine = [d async for d in runs.stream(spec(), "me", "home")]
        return unread, mine

    unread, mine = asyncio.run(go())
    assert all(job.is_cancelled for job in unread) and mine[-1]["url"]
    assert max(d["progress"]["ahead"] for d in mine if "ahead" in d.get("progress", {})) == 1


def test_a_server_that_was_held_up_holds_it_against_nobody(runs: Visits, monkeypatch):
    """It could answer nobody for twice as long as a reader is waited for; those who came meanwhile
    are still in the socket.
    """
    monkeypatch.setattr(jobs, "FIRST_READER", 0.2)

    async def go():
        job = runs.begin(spec(new=400), "me")
        time.sleep(2 * jobs.FIRST_READER)
        for _ in range(3):  # what was due meanwhile is done
            await asyncio.sleep(0)
        kept = not job.is_cancelled
        job.cancel()
        return kept

    assert asyncio.run(go())


def test_addresses_take_turns(models: ModelCache):
    """The first of every address comes before the second of any."""
    runs = Visits(models, concurrent_runs=1, waiting_jobs=100)

    async def go():
        crowd = [
            asyncio.create_task(collect(runs.stream(spec(), f"v{i}", "school"))) for i in range(6)
        ]
        await asyncio.sleep(0)
        mine = await collect(runs.stream(spec(), "me", "home"))
        going = sum(not task.done() for task in crowd)
        await asyncio.gather(*crowd)
        return mine, going

    mine, going = asyncio.run(go())
    assert mine[-1]["url"] and mine[0]["progress"]["ahead"] == 1 and going >= 4


def test_who_comes_late_has_no_round_from_before_the_present_one():
    """By hand, one place: `a` is served its third job when `b`, who has had two, comes with
    another, then `a` with two more and `c` with a first.
    """
    queue = JobQueue(1, 100)

    def enter(address: str) -> SimpleNamespace:
        job = SimpleNamespace(
            address=address, visitor=address, has_begun=False, is_idle=False, round=0
        )
        queue.enter(job)
        return job

    served = [enter(address) for address in "aabba"]
    for job in served[:-1]:
        job.has_begun = True
        queue.leave(job)
    served[-1].has_begun = True
    waiting = [enter(address) for address in "baca"]
    assert [job.round for job in (*served, *waiting)] == [1, 2, 1, 2, 3, 3, 4, 3, 5]
    assert [queue.ahead(job) for job in waiting] == [1, 3, 2, 4]


@pytest.mark.slow
def test_who_waits_is_told_only_when_the_place_changes(models: ModelCache):
    results = gather(
        Visits(models, concurrent_runs=1, waiting_jobs=9),
        *((spec(new=12), f"v{i}") for i in range(5)),
    )
    for deltas in results:
        ahead = [d["progress"]["ahead"] for d in deltas if "ahead" in d.get("progress", {})]
        assert ahead == list(range(len(ahead), 0, -1))


def test_a_run_that_waits_for_an_arrival_lends_its_place(models: ModelCache):
    late = spec()
    late["workload"]["arrival_unit"] = "s"
    late["workload"]["requests"] = late["workload"]["requests"][:2]
    late["workload"]["requests"][1]["arrival"] = 60
    runs = Visits(models, concurrent_runs=1, waiting_jobs=3)

    async def go():
        async for delta in runs.stream(late, "idle"):
            if delta.get("events"):
                other = await collect(runs.stream(spec(), "busy"))
                runs.jobs.cancel(delta["job"])
        return other, delta

    other, last = asyncio.run(go())
    assert other[-1]["url"] and "cancelled" in last["stopped"]


def test_waiting_for_an_arrival_in_seconds_can_be_cancelled(runs: Visits):
    late = spec()
    late["workload"]["arrival_unit"] = "s"
    late["workload"]["requests"] = late["workload"]["requests"][:2]
    late["workload"]["requests"][1]["arrival"] = 250

    async def go():
        async for delta in runs.stream(late, "me"):
            if any(e["finished"] for e in delta.get("events", ())):
                runs.jobs.cancel(delta["job"])
        return delta

    assert asyncio.run(go())["stopped"].startswith("The run was cancelled after ")


def test_a_run_that_fails_says_why_and_the_next_one_works(runs: Visits, monkeypatch):
    good = runs.models.get

    def broken(*args):
        raise MemoryError("no")

    monkeypatch.setattr(runs.models, "get", broken)
    (failed,) = gather(runs, (spec(), "me"))
    assert failed[-1]["error"] == "The run failed inside the engine: MemoryError."
    monkeypatch.setattr(runs.models, "get", good)
    (after,) = gather(runs, (spec(), "me"))
    assert after[-1].get("url")


def test_a_request_that_the_model_cannot_read_is_named(runs: Visits):
    (deltas,) = gather(runs, (spec("日本語"), "me"))
    assert deltas[-1]["error"].startswith("Request A: the tokenizer cannot encode")


def _with(**changes) -> dict:
    asked = spec()
    request = asked["workload"]["requests"][0]
    for name, value in changes.items():
        if name in ("prompt", "arrival", "id"):
            request[name] = value
        elif name in ("max_new_tokens", "temperature", "stop"):
            request["sampling"][name] = value
        elif name in asked:
            asked[name] = value
        else:
            asked["config"][name] = value
    return asked


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (None, "A run is asked for as an object"),
        ("run!", "A run is asked for as an object"),
        ({}, "A workload must be a JSON object"),
        (_with(workload={"requests": []}), "add a request"),
        (
            _with(workload={"requests": [{"id": "r0"}]}),
            "Request A: a prompt, prompt_token_ids or messages are needed",
        ),
        (_with(workload={"requests": [7]}), "A request must be an object"),
        (_with(workload={"requests": [{"id": "r", "prompt": "a"}] * 2}), "Two requests are called"),
        (_with(config="fast"), "The config must be an object"),
        (_with(model=7), "must be names"),
        (spec() | {"dtype": "int4"}, "no number format of that name; there are auto, float32"),
        (_with(model=str(Path(__file__).parent)), "there is no config.json in that folder"),
        (_with(model="../no/such/folder"), "there is no such folder"),
        (_with(prompt=""), "Request A: the prompt is empty."),
        (
            _with(prompt="a" * 100_000),
            "Request A has a prompt of 100,000 characters; this page takes at most 20,000.",
        ),
        (_with(max_new_tokens=10**9), "asks for 1,000,000,000 new tokens"),
        (_with(max_new_tokens=0), "max_new_tokens must be"),
        (_with(temperature=float("nan")), "temperature must be"),
        (_with(arrival=10**9), "arrives in step 1,000,000,000"),
        (_with(arrival=-1), "arrival must be"),
        (_with(max_num_seqs=10**6, max_num_batched_tokens=10**6), "lanes"),
        (_with(num_blocks=10**9), "KV pool has room for 4,000,000,000 tokens"),
        (_with(policy="magic"), "There is no policy 'magic'"),
        (_with(lanes=3), "has no limit called"),
        (_with(stop=["a"] * 50), "50 stop strings"),
        (_with(id="x" * 5000, max_new_tokens=10**6), "Request A asks for"),
        (_with(device="quantum"), "There is no device 'quantum' here"),
    ],
)
def test_bad_specs_are_refused_in_one_sentence(runs: Visits, asked, words: str):
    (deltas,) = gather(runs, (asked, "me"))
    assert deltas[-1]["done"] and words in deltas[-1]["error"] and len(deltas[-1]["error"]) < 600
    assert not [*runs.jobs._queues["runs"]]


def test_limits_on_steps_time_and_tokens_end_a_run_in_words(models: ModelCache):
    for bound, words in (
        ({"steps": 5}, "The run was stopped after 5 steps"),
        ({"seconds": 0}, "The run was stopped after 0 seconds"),
        ({"total_tokens": 10}, "prompts and new ones together; this page takes at most 10."),
    ):
        runs = Visits(models, **bound)
        (deltas,) = gather(runs, (spec(), "me"))
        assert words in deltas[-1]["error"]


def test_a_public_space_is_smaller():
    assert limits({}) == HERE and limits({"SPACE_ID": "someone/inflight"}) == SPACE
    for name, value in asdict(SPACE).items():
        assert value <= getattr(HERE, name)
    assert not SPACE.any_model


def test_a_public_space_runs_its_own_models_only(models: ModelCache):
    runs = Visits(models, **asdict(SPACE))
    (deltas,) = gather(runs, (_with(model="gpt2-xl"), "me"))
    assert deltas[-1]["error"].startswith("This page runs its own models only")
