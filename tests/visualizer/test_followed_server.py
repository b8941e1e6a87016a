"""Another engine followed: what every visitor is sent, by name where there are several, without texts where strangers may come."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.errors import InflightError
from core.recorders.convert import open_recording
from core.recorders.follow import MOST_LINES
from core.recorders.raw import read_raw
from core.serving.event_log import EventLog, events, events_together
from visualizer.documents.live import HIDDEN
from visualizer.server.followed import Followed
from visualizer.server.live import CHAPTER, CHAPTERS
from worlds.ranks import FILES, ranks, text
from worlds.server_events import messages_in

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
    return lambda messages: step in steps(messages) and any("followed" in message for message in messages)


@pytest.fixture
def recording(tmp_path) -> Path:
    return unpack(VLLM, tmp_path / "run.raw.jsonl")


def test_what_is_sent_is_what_was_recorded(recording):
    whole = open_recording(VLLM)
    live = Followed([recording], shows_texts=True).live()
    messages = asyncio.run(sent(live.event_log, ends_with(182)))
    assert steps(messages) == [event.step for event in whole.events]
    (header,) = {json.dumps(m["header"], sort_keys=True) for m in messages if "header" in m}
    assert json.loads(header)["engine"]["name"] == "vLLM" and json.loads(header)["source"] == "live"
    texts: dict[str, list[str]] = {}
    for message in messages:
        for request, pieces in message.get("texts", {}).get("output", {}).items() if "events" in message else ():
            texts.setdefault(request, []).extend(pieces)
    assert texts == whole.texts.output
    (told,) = [m["followed"] for m in messages if "followed" in m][-1:]
    assert told["file"] == "run.raw.jsonl" and told["streams"] == ["run.raw.jsonl"] and told["texts"]


def test_strangers_are_sent_no_texts(recording):
    live = Followed([recording], shows_texts=False).live()
    messages = asyncio.run(sent(live.event_log, ends_with(182)))
    pieces = [p for m in messages for side in m.get("texts", {}).values() for by in side.values() for p in by]
    assert pieces and set(pieces) == {HIDDEN}


def test_a_long_recording_is_shown_from_its_last_steps_on(tmp_path):
    """More steps than are kept at the first look: nobody is sent all of them, and what is sent begins with how things stand."""
    header, *records = (line for line in gzip.decompress(VLLM.read_bytes()).decode().splitlines() if '"end"' not in line[:20])
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


def test_ranks_and_files_are_chosen_by_name_and_nobody_can_ask(tmp_path, recording):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in (0, 1):
        unpack(DATA / f"vllm-0.32-two-ranks.rank{rank}.raw.jsonl.gz", folder / f"run.rank{rank}.raw.jsonl")
    _, second = read_raw(folder.glob("*.jsonl"))
    followed = Followed([recording, folder], shows_texts=True)
    with TestClient(Starlette(routes=followed.routes(lambda request: "me"))) as http:
        refused = http.get("/inflight/live/steps?of=elsewhere")
        assert refused.status_code == 422 and refused.json()["error"] == "There is no followed recording named elsewhere."
        for path in ("requests", "requests/some-key/cancel"):
            assert http.post(f"/inflight/live/{path}", json={}).status_code == 404
    messages = asyncio.run(sent(followed.live("ranks, rank 1").event_log, ends_with(len(second.steps) - 1)))
    told = [m["followed"] for m in messages if "followed" in m][-1]
    assert told["streams"] == ["run.raw.jsonl", "ranks", "ranks, rank 1"] and told["file"] == "run.rank1.raw.jsonl"


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
    """In one stream, every step of each, at the same distances as on Watch; no two requests of all have one letter."""
    for rank, file in enumerate(FILES):
        unpack(file, tmp_path / f"run.rank{rank}.raw.jsonl")
    opened = ranks(text(0), text(1))
    ends = [rank.trace.events[-1].step for rank in opened.ranks]
    followed = Followed([tmp_path], shows_texts=True)
    logs = {name: followed.live(name).event_log for name in (tmp_path.name, f"{tmp_path.name}, rank 1")}

    def placed(messages: list[dict]) -> list[dict]:
        return [m["followed"] for m in messages if "followed" in m][-1:]

    told = asyncio.run(
        told_together(
            logs,
            lambda found: (
                all(end in steps(m) for end, m in zip(ends, found.values(), strict=True))
                and all(state["ranks"][1:] for m in found.values() for state in placed(m) or [{"ranks": []}])
            ),
        )
    )
    first, second = (placed(messages)[0] for messages in told.values())
    assert first["ranks"] == second["ranks"] and first["count"] == 2
    assert first["says"] == ["All ranks are on the clock of their machine."]
    assert [rank["of"] for rank in first["ranks"]] == list(logs)
    starts = [
        [rank["offset"] + event["t_start"] for message in messages for event in message.get("events", ())]
        for rank, messages in zip(first["ranks"], told.values(), strict=True)
    ]
    known = [[rank.offset + event.t_start for event in rank.trace.events] for rank in opened.ranks]
    zero, origin = min(starts[0] + starts[1]), min(known[0] + known[1])
    for ours, theirs in zip(starts, known, strict=True):
        assert [t - zero for t in ours] == pytest.approx([t - origin for t in theirs], abs=5e-6)
    letters = [letter for messages in told.values() for m in messages if "events" in m for letter in m["letters"].values()]
    assert len(letters) == len(set(letters)) > 8


def test_recordings_of_two_engines_are_not_put_on_one_clock(tmp_path, recording):
    unpack(FILES[1], tmp_path / "other.raw.jsonl")
    header, *rest = (tmp_path / "other.raw.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "other.raw.jsonl").write_text("".join([json.dumps({**json.loads(header), "model": "another"}) + "\n", *rest]))
    followed = Followed([recording, tmp_path / "other.raw.jsonl"], shows_texts=True)
    followed.live()
    log = followed.live("other.raw.jsonl").event_log
    states = asyncio.run(sent(log, lambda found: any(m["followed"]["ranks"] == [] for m in found if "followed" in m)))
    assert [m["followed"]["says"] for m in states if "followed" in m][-1] == []


@pytest.mark.slow
def test_a_space_follows_nothing(monkeypatch, tmp_path):
    from visualizer.ui import launch

    monkeypatch.setenv("SPACE_ID", "someone/inflight")
    with pytest.raises(InflightError, match="A Space is public"):
        launch(follow=[tmp_path])
