"""Another engine followed: what every visitor is sent, by name where there are several, without
texts where strangers may come.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from itertools import cycle, islice
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.config import EngineConfig
from core.errors import InflightError
from core.recorders.convert import import_recording
from core.recorders.follow import MOST_LINES, Follower
from core.recorders.raw import read_raw
from core.serving.event_log import EventLog, events, events_together
from core.trace.phrases import letter
from visualizer.documents.live import HIDDEN
from visualizer.server.followed import EngineLoad, Followed, at_work
from visualizer.server.live import CHAPTER, CHAPTERS
from visualizer.server.live_routes import live_app
from worlds.ranks import FILES, ranks, text
from worlds.server_events import messages_in
from worlds.visual import record as recorded_run
from worlds.visual import request as asked_for

DATA = Path(__file__).resolve().parents[1] / "data"
VLLM = DATA / "vllm-0.32.raw.jsonl.gz"


def unpack(source: Path, target: Path) -> Path:
    target.write_bytes(gzip.decompress(source.read_bytes()))
    return target


async def sent(log: EventLog, enough) -> list[dict]:
    """What a reader has been sent once that is enough."""
    found: list[dict] = []
    async for piece in events(log):
        found += messages_in(piece)
        if enough(found):
            return found
    return found


def steps(messages: list[dict]) -> list[int]:
    return [event["step"] for message in messages for event in message.get("events", ())]


def ends_with(step: int):
    return lambda messages: (
        step in steps(messages) and any("followed" in message for message in messages)
    )


@pytest.fixture
def recording(tmp_path) -> Path:
    return unpack(VLLM, tmp_path / "run.raw.jsonl")


def test_what_is_sent_is_what_was_recorded(recording):
    whole = import_recording(VLLM)
    live = Followed([recording], shows_texts=True).live()
    messages = asyncio.run(sent(live.event_log, ends_with(182)))
    assert steps(messages) == [event.step for event in whole.events]
    (header,) = {json.dumps(m["header"], sort_keys=True) for m in messages if "header" in m}
    assert json.loads(header)["engine"]["name"] == "vLLM" and json.loads(header)["source"] == "live"
    texts: dict[str, list[str]] = {}
    for message in messages:
        for request, pieces in (
            message.get("texts", {}).get("output", {}).items() if "events" in message else ()
        ):
            texts.setdefault(request, []).extend(pieces)
    assert texts == whole.texts.output
    (told,) = [m["followed"] for m in messages if "followed" in m][-1:]
    assert (
        told["file"] == "run.raw.jsonl" and told["streams"] == ["run.raw.jsonl"] and told["texts"]
    )


def test_strangers_are_sent_no_texts(recording):
    live = Followed([recording], shows_texts=False).live()
    messages = asyncio.run(sent(live.event_log, ends_with(182)))
    pieces = [
        p
        for m in messages
        for side in m.get("texts", {}).values()
        for by in side.values()
        for p in by
    ]
    assert pieces and set(pieces) == {HIDDEN}


def test_the_load_of_an_engine_is_read_while_it_takes_steps():
    load, events = EngineLoad(), import_recording(VLLM).events
    steps = islice(cycle(events), 50_000)  # where they begin again, it is another recording
    follower = Thread(target=lambda: [load.take(event) for event in steps])
    follower.start()
    seen = []
    while follower.is_alive():
        seen.append(load.to_json())
    assert any(one["tokens_s"] for one in seen)


def test_the_load_of_an_engine_is_that_of_its_latest_steps():
    """Two lanes: two run and one waits, then who is over no longer runs, and at last nobody holds a
    block; tokens are those of the last seconds.
    """
    load, trace = (
        EngineLoad(),
        recorded_run(
            EngineConfig(max_num_seqs=2, block_size=4),
            asked_for("a", 4, 2),
            asked_for("b", 4, 4),
            asked_for("c", 4, 3),
        ),
    )
    assert set(load.to_json().values()) == {None}
    seen = []
    for event in trace.events:
        load.take(event)
        told = load.to_json()
        seen.append((told["running"], told["waiting"], told["kv_used"] > 0))
        assert told["kv_total"] == event.kv.total
    assert seen == [(2, 1, True), (1, 1, True), (2, 0, True), (1, 0, True), (0, 0, False)]
    # nine tokens in five steps, each ten milliseconds after the one before and nine long
    assert told["tokens_s"] == pytest.approx(9 / 0.049)
    late = trace.events[-1]._replace(t_start=9.0, t_end=9.5, sampled=())
    load.take(late)
    assert load.to_json()["tokens_s"] == 0.0
    load.take(trace.events[0])  # another recording
    assert load.to_json()["tokens_s"] == pytest.approx(2 / 0.009)


@pytest.mark.slow
def test_a_long_recording_is_shown_from_its_last_steps_on(tmp_path):
    """More steps than are kept at the first look: nobody is sent all of them, and what is sent
    begins with how things stand.
    """
    header, *records = (
        line
        for line in gzip.decompress(VLLM.read_bytes()).decode().splitlines()
        if '"end"' not in line[:20]
    )
    path, parts = tmp_path / "run.raw.jsonl", [header]
    for turn in range(8):
        for record in map(json.loads, records):
            text = json.dumps({**record, "step": record["step"] + turn * len(records)})
            for request in ("0", "1", "2", "3", "4", "5"):
                text = text.replace(f'"{request}-', f'"{turn}-{request}-')
            parts.append(text)
    path.write_text("\n".join(parts) + "\n")
    live = Followed([path], shows_texts=True).live()
    last = 8 * len(records) - 1
    messages = asyncio.run(sent(live.event_log, ends_with(last)))
    begun = [i for i, m in enumerate(messages) if m.get("kind") == "skipped"][-1]
    kept = steps(messages[begun:])
    assert kept == list(range(kept[0], last + 1)) and kept[0] >= MOST_LINES - CHAPTERS * CHAPTER - 1
    assert next(m for m in messages[begun:] if "begin" in m)["begin"]["step"] == kept[0]


def test_what_is_asked_for_by_many_names_is_sent_once():
    """A shared engine takes any name for its own: a long address is no way to have its log built a
    thousand times over.
    """
    log = EventLog()
    log.append({"kind": "step"})
    log.close()
    shown = live_app(lambda of: SimpleNamespace(event_log=log), None, lambda request: "me")
    with TestClient(shown) as http:
        once = http.get("/steps").text
        assert http.get("/steps?" + "&".join(f"of={n}" for n in range(999))).text == once
    assert messages_in(once) == [{"kind": "step"}]


def test_ranks_and_files_are_chosen_by_name_and_nobody_can_ask(tmp_path, recording):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        unpack(
            DATA / f"vllm-0.32-two-ranks.rank{rank}.raw.jsonl.gz",
            folder / f"run.rank{rank}.raw.jsonl",
        )
    _, second = read_raw(folder.glob("*.jsonl"))
    followed = Followed([recording, folder], shows_texts=True)
    with TestClient(Starlette(routes=followed.routes(lambda request: "me"))) as http:
        refused = http.get("/inflight/live/steps?of=elsewhere")
        assert (
            refused.status_code == 422
            and refused.json()["error"] == "There is no followed recording named elsewhere."
        )
        for path in ("requests", "requests/some-key/cancel"):
            assert http.post(f"/inflight/live/{path}", json={}).status_code == 404
    messages = asyncio.run(
        sent(followed.live("ranks, rank 1").event_log, ends_with(len(second.steps) - 1))
    )
    told = [m["followed"] for m in messages if "followed" in m][-1]
    assert (
        told["streams"] == ["run.raw.jsonl", "ranks", "ranks, rank 1"]
        and told["file"] == "run.rank1.raw.jsonl"
    )


async def told_together(logs: dict[str, EventLog], enough) -> dict[str, list[dict]]:
    """What a reader of several has been sent of each once that is enough."""
    found: dict[str, list[dict]] = {name: [] for name in logs}
    async for piece in events_together(logs):
        for told in messages_in(piece):
            found[told["of"]] += told["messages"]
        if enough(found):
            return found
    return found


def test_ranks_are_told_together_on_the_clock_that_their_files_opened_together_have(tmp_path):
    """In one stream, every step of each, at the same distances as on Watch; no two requests of all
    have one letter.
    """
    for rank, file in enumerate(FILES):
        unpack(file, tmp_path / f"run.rank{rank}.raw.jsonl")
    opened = ranks(text(0), text(1))
    ends = [rank.trace.events[-1].step for rank in opened.ranks]
    followed = Followed([tmp_path], shows_texts=True)
    logs = {
        name: followed.live(name).event_log for name in (tmp_path.name, f"{tmp_path.name}, rank 1")
    }

    def placed(messages: list[dict]) -> list[dict]:
        return [m["followed"] for m in messages if "followed" in m][-1:]

    told = asyncio.run(
        told_together(
            logs,
            lambda found: (
                all(end in steps(m) for end, m in zip(ends, found.values(), strict=True))
                and all(
                    state["ranks"][1:]
                    for m in found.values()
                    for state in placed(m) or [{"ranks": []}]
                )
            ),
        )
    )
    first, second = (placed(messages)[0] for messages in told.values())
    assert first["ranks"] == second["ranks"] and first["count"] == 2
    assert first["says"] == ["All ranks are on the clock of their machine."]
    assert [rank["of"] for rank in first["ranks"]] == list(logs)
    starts = [
        [
            rank["offset"] + event["t_start"]
            for message in messages
            for event in message.get("events", ())
        ]
        for rank, messages in zip(first["ranks"], told.values(), strict=True)
    ]
    known = [[rank.offset + event.t_start for event in rank.trace.events] for rank in opened.ranks]
    zero, origin = min(starts[0] + starts[1]), min(known[0] + known[1])
    for ours, theirs in zip(starts, known, strict=True):
        assert [t - zero for t in ours] == pytest.approx([t - origin for t in theirs], abs=5e-6)
    letters = [
        letter
        for messages in told.values()
        for m in messages
        if "events" in m
        for letter in m["letters"].values()
    ]
    assert len(letters) == len(set(letters)) > 8


def test_engines_are_listed_with_their_load_each_with_its_own_ranks_and_all_on_one_clock(
    tmp_path, recording
):
    """Two engines of one model in a folder, one of two ranks; and a third, followed by its file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number, (file, instance) in enumerate(((FILES[0], "a"), (FILES[1], "a"), (FILES[0], "b"))):
        header, *rest = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
        facts = {
            **json.loads(header),
            "instance": instance,
            "host": "node",
            "pid": number,
            "created": f"{number}",
        }
        (folder / f"{number}.raw.jsonl").write_text("".join([json.dumps(facts) + "\n", *rest]))
    followed = Followed([folder, recording], shows_texts=True)
    log = followed.live("folder").event_log
    states = asyncio.run(
        sent(
            log, lambda found: any(len(m["followed"]["all"]) == 4 for m in found if "followed" in m)
        )
    )
    told = [m["followed"] for m in states if "followed" in m][-1]
    assert [(engine["name"], len(engine["ranks"])) for engine in told["engines"]] == [
        ("node:2", 1),
        ("node:0", 2),
        ("7582", 1),
    ]
    assert [rank["of"] for rank in told["ranks"]] == ["folder"]
    assert [rank["name"] for rank in told["all"]] == [
        "node:2",
        "node:0, rank 0",
        "node:0, rank 1",
        "7582",
    ]
    offsets = [rank["offset"] for rank in told["all"]]
    assert offsets[0] == offsets[1] and told["all_says"]
    with TestClient(Starlette(routes=followed.routes(lambda request: "me"))) as http:
        engines = http.get("/inflight/live/engines").json()["engines"]
    loads = [rank for engine in engines for rank in engine["ranks"]]
    assert [rank["of"] for rank in loads] == [
        "folder",
        "folder, node:0",
        "folder, node:0, rank 1",
        "run.raw.jsonl",
    ]
    assert all(
        rank["running"] == rank["waiting"] == 0 and rank["kv_total"] > 0
        for rank in loads
        if rank["running"] is not None
    )


@pytest.mark.parametrize("long_ago", [3600, -3600])
def test_an_engine_at_work_is_not_left_for_a_newer_one(tmp_path, long_ago):
    """And the newest that writes is shown before a newer one that does not, also where the clock
    was set back since then.
    """
    header, *steps = gzip.decompress(VLLM.read_bytes()).decode().splitlines(keepends=True)[:9]

    def write(name: str, age: float, **facts: str) -> Path:
        path = tmp_path / f"{name}.raw.jsonl"
        path.write_text(
            json.dumps({**json.loads(header), "instance": name, **facts}) + "\n" + "".join(steps)
        )
        os.utime(path, (time.time() - age,) * 2)
        return path

    first = write("first", 0, created="1")
    write("dead", long_ago, created="9")
    follower = Follower(tmp_path)
    follower.poll()
    assert follower.name == "first.raw.jsonl"
    write("second", 0, created="2")
    follower.poll()
    assert follower.name == "first.raw.jsonl"
    assert [engine.key for engine in at_work(tmp_path)] == ["first", "second"]
    os.utime(first, (time.time() - long_ago,) * 2)
    follower.poll()
    assert follower.name == "second.raw.jsonl"


@pytest.mark.slow
def test_a_space_follows_nothing(monkeypatch, tmp_path):
    from visualizer.ui import launch

    monkeypatch.setenv("SPACE_ID", "someone/inflight")
    with pytest.raises(InflightError, match="A Space is public"):
        launch(follow=[tmp_path])


def test_what_can_never_be_followed_is_refused_at_once(tmp_path):
    """A device, a pipe, and a place that cannot be looked at; what is not there yet may come."""
    os.mkfifo(tmp_path / "pipe")
    for place in (Path("/dev/zero"), tmp_path / "pipe", tmp_path / ("long" * 100)):
        with pytest.raises(InflightError, match=r"cannot be followed: .*\.$"):
            Followed([tmp_path, place], True)
    Followed([tmp_path / "to-come.raw.jsonl"], True)


def test_a_request_has_the_letter_and_the_time_that_it_has_on_watch(tmp_path):
    """Whatever else lies in the folder: two engines there, each with its own A."""
    followed = {}
    for name in ("vllm-0.32", "vllm-0.32-speculation"):
        source = DATA / f"{name}.raw.jsonl.gz"
        followed[unpack(source, tmp_path / f"{name}.raw.jsonl").stem] = import_recording(source)
    both = Followed([tmp_path], shows_texts=True)
    for stream in both._streams():
        live = both.live(stream)
        messages = asyncio.run(
            sent(live.event_log, lambda found: any("followed" in m for m in found))
        )
        letters, arrived = {}, {}
        for message in messages:
            letters |= message.get("letters", {})
            for event in message.get("events", ()):
                arrived |= dict(event["arrived"])
        (whole,) = [t for t in followed.values() if arrived.keys() & t.asked.keys()]
        assert arrived == {a.request: a.t for event in whole.events for a in event.arrived}
        assert letters == {request: letter(n) for n, request in enumerate(arrived)}
