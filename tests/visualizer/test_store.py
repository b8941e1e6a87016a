"""The folder of runs under company and on a bad day: many writers, a full disk, exports within a
quota, folders that were left.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import EngineConfig
from core.errors import InflightError
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES, rank_files
from visualizer.documents.catalogue import ranks as recorded_as_ranks
from visualizer.documents.replay import captions_in, replay
from visualizer.page.step import PLOTLY
from visualizer.server import recorded_runs
from visualizer.server import store as files
from visualizer.server.recorded_runs import Lessons, promise_recorded_runs
from visualizer.server.store import NotKept, Store, as_text, own_folder, write_whole
from worlds.visual import record, request


def trace(budget: int = 10):
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=budget, block_size=4)
    return record(config, request("r0", 5, 6), request("r1", 12, 9))


@pytest.mark.slow
def test_many_runs_on_a_full_folder_are_all_kept(tmp_path):
    """Each makes room while others write and make room."""
    store = Store(tmp_path, 60_000)
    traces = [trace(budget) for budget in range(4, 24)]
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(store.keep, traces * 5))
    assert all("url" in answer for answer in kept)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 60_000 + 8 * 30_000
    assert not list(tmp_path.glob("*.partial"))


def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    partial = tmp_path / "abc.json.1-2.partial"
    partial.write_text("half")
    Store(tmp_path, 0).put(trace())
    assert partial.exists()


def test_a_run_that_is_kept_has_its_sentences_in_every_language(tmp_path):
    kept = Store(tmp_path, 2**24)
    said = json.loads((tmp_path / f"{kept.put(trace())['id']}.json").read_text(encoding="utf-8"))
    assert said["translations"] == {"de": captions_in(trace(), "de")}
    assert said["translations"]["de"]["captions"][0]["bound"] != said["captions"][0]["bound"]


def test_traces_that_look_alike_on_the_page_are_kept_apart(tmp_path):
    """Otherwise, whoever opens a trace would be handed another one, which came first."""
    kept, honest = Store(tmp_path, 2**24), Trace.load(TRACES / "kv-pressure.jsonl")
    first, *others = honest.asked.values()
    forged = first._replace(prompt=[first.prompt[0] + 1, *first.prompt[1:]])
    alike = replace(honest, asked={one.request.id: one for one in (forged, *others)})
    assert replay(alike) == replay(honest)
    ids = [kept.put(trace, "uploaded")["id"] for trace in (alike, honest, alike)]
    assert ids[0] == ids[2] != ids[1]
    for run, trace in zip(ids, (alike, honest), strict=False):
        assert list(kept.trace(run).lines()) == list(trace.lines())


def test_a_page_that_is_saved_says_what_is_taken_on_trust(tmp_path):
    """Also of runs that this server made, and of every rank: the file goes through other hands."""
    kept = Store(tmp_path, 2**24)
    alone = kept.export("html", kept.put(trace())["id"])
    both = kept.export_ranks(kept.put_ranks(recorded_as_ranks("vllm-two-ranks"))["id"])
    for page, count in ((alone, 1), (both, 2)):
        text = (tmp_path / page["url"].rpartition("/")[2]).read_text(encoding="utf-8")
        props = json.loads(
            text.split('<script id="inflight-props" type="application/json">')[1].split(
                "</script>"
            )[0]
        )
        found = props["replay"].get("ranks") or [{"replay": props["replay"]}]
        assert [one["replay"]["header"]["brought"] for one in found] == ["uploaded"] * count


@pytest.fixture
def full_disk(monkeypatch):
    def refuse(self, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.Path, "replace", refuse)
        yield patch


def test_a_full_disk_is_named_leaves_nothing_behind_and_fails_no_run(tmp_path, full_disk):
    store = Store(tmp_path, 2**24)
    assert store.keep(trace()) == {
        "unkept": "The server could not keep this: no space left on device."
    }
    with pytest.raises(NotKept):
        store.put(trace())
    assert not list(tmp_path.iterdir())
    full_disk.undo()
    assert "url" in store.keep(trace())


@pytest.mark.slow
def test_a_sheet_that_found_the_disk_full_is_made_again_and_no_name_makes_another(
    tmp_path, full_disk
):
    lessons = Lessons(Store(tmp_path, 0), TRACES)
    for _ in range(2):
        with pytest.raises(NotKept, match="no space left"):
            lessons.file("", "plan", "en")
    assert not list(tmp_path.iterdir())
    full_disk.undo()
    made = {lessons.file(name, "plan", "en") for name in ("", "a", "../a", "\0", "a" * 300)}
    assert (
        len(made) == len(list(tmp_path.iterdir())) == 1
        and next(tmp_path.iterdir()).stat().st_size > 1000
    )


@pytest.mark.slow
def test_each_language_has_papers_of_its_own(tmp_path):
    lessons = Lessons(Store(tmp_path, 0, str), TRACES)
    for name, kind in (("", "plan"), ("one-token", "learner"), ("one-token", "offline")):
        english, german = (
            Path(lessons.file(name, kind, language)).read_text(encoding="utf-8")
            for language in ("en", "de")
        )
        assert english != german
        assert kind == "offline" or ('lang="en"' in english and 'lang="de"' in german)


def test_ranks_are_in_the_order_of_their_numbers(tmp_path):
    names = [f"run.rank{rank}.jsonl" for rank in range(12)]
    for name in (*reversed(names), "run.jsonl", "other.rank0.jsonl"):
        (tmp_path / name).touch()
    assert [path.name for path in rank_files("run", tmp_path)] == names


def test_what_ends_halfway_leaves_what_was_there(tmp_path):
    """Whatever ends it: a text that is none, a bug where it is made, Ctrl-C."""

    def pieces(error: BaseException) -> Iterator[str]:
        yield "half"
        raise error

    path = write_whole(tmp_path / "x" / "a.json", ["one", "two"])
    for halfway in (["half", "\ud800"], pieces(KeyError("bug")), pieces(KeyboardInterrupt())):
        with pytest.raises((UnicodeEncodeError, KeyError, KeyboardInterrupt)):
            write_whole(path, halfway)
        assert path.read_text() == "onetwo" and list(path.parent.iterdir()) == [path]


def test_a_figure_is_kept_without_a_copy_of_plotly(tmp_path):
    store = Store(tmp_path, 2**24)
    name = store.export("plotly", store.put(trace())["id"], 1)["url"].rsplit("/", 1)[-1]
    file, download = store.open(name)
    with file:
        figure = file.read()
    assert len(figure) < 200_000 and PLOTLY.encode() in figure and download


@pytest.mark.slow
def test_a_recorded_run_is_made_when_it_is_first_asked_for_and_once(tmp_path):
    store = Store(tmp_path, 0)
    first, *_, of_ranks = promise_recorded_runs(store)
    assert not list(tmp_path.iterdir())
    with ThreadPoolExecutor(8) as pool:
        for file, _ in pool.map(store.open, [f"{first['id']}.json"] * 8):
            with file:
                assert json.load(file) == json.loads(
                    as_text(replay(Trace.load(TRACES / f"{first['name']}.jsonl")))
                )
    assert [path.name for path in tmp_path.iterdir()] == [f"{first['id']}.json"]
    ids = [rank["id"] for rank in json.load(store.open(f"{of_ranks['id']}.json")[0])["ranks"]]
    written = [path.read_text() for path in rank_files(of_ranks["name"])]
    assert [
        (tmp_path / store.export("jsonl", run)["url"].rsplit("/")[-1]).read_text() for run in ids
    ] == written
    assert promise_recorded_runs(Store(tmp_path / "again", 0)) == promise_recorded_runs(store)


def test_a_recorded_run_of_other_code_or_with_other_bytes_has_another_address(
    tmp_path, monkeypatch
):
    """Browsers keep what an address sent for ever."""
    (tmp_path / "traces").mkdir()
    run, code = tmp_path / "traces" / "chunk-7-by-4.jsonl", tmp_path / "code.py"
    written = (TRACES / run.name).read_text(encoding="utf-8")
    cut = written[: written.rindex("\n", 0, -1) + 1]
    monkeypatch.setattr(recorded_runs, "_CODE", [tmp_path])

    def address(trace: str, source: str) -> str:
        run.write_text(trace, encoding="utf-8"), code.write_text(source)
        recorded_runs._code.cache_clear()
        return promise_recorded_runs(Store(tmp_path / "kept", 0), run.parent)[0]["url"]

    first = address(written, "a = 1")
    assert address(written, "a = 1") == first
    assert len({first, address(written, "a = 2"), address(cut, "a = 1")}) == 3
    recorded_runs._code.cache_clear()


@pytest.mark.slow
def test_a_recorded_run_comes_once_the_disk_takes_it(tmp_path, full_disk):
    store = Store(tmp_path, 2**24)
    name = f"{promise_recorded_runs(store)[0]['id']}.json"
    with pytest.raises(NotKept, match="no space left"):
        store.open(name)
    assert not list(tmp_path.iterdir())
    full_disk.undo()
    with store.open(name)[0] as file:
        assert json.load(file)["complete"]


@pytest.mark.slow
def test_exports_make_room_too(tmp_path):
    store = Store(tmp_path, 0)
    pinned = promise_recorded_runs(store, TRACES)[0]["id"]
    for step in range(4):
        store.export("plotly", pinned, step)
    assert len(list(tmp_path.glob("*.html"))) <= 1 and store.trace(pinned).events


@pytest.mark.parametrize(
    "name", ["../secret.json", "..", "a/b.json", ".hidden", "abc.json.1-2.partial", "nothing.json"]
)
def test_only_files_of_the_store_are_handed_out(tmp_path, name):
    (tmp_path / "abc.json.1-2.partial").write_text("half")
    with pytest.raises(Exception, match="no longer on the server"):
        Store(tmp_path, 0).open(name)


def test_a_file_that_goes_while_it_is_sent_arrives_whole(tmp_path):
    """Another run makes room once the file was found."""
    store = Store(tmp_path, 0)
    name = store.put(trace(4))["url"].rsplit("/", 1)[-1]
    whole = (tmp_path / name).read_bytes()
    file, _ = store.open(name)
    store.put(trace(5))
    with file:
        assert file.read() == whole
    with pytest.raises(InflightError, match="no longer on the server"):
        store.open(name)


def test_a_folder_goes_with_its_process_and_what_was_left_goes_at_the_next_start(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    left, other = tmp_path / f"inflight-{gone.pid}-abc", tmp_path / "inflight-of-mine"
    left.mkdir()
    other.mkdir()
    here = own_folder(tmp_path)
    assert not left.exists() and other.exists() and here.is_dir()
    root = Path(__file__).parents[2]
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            (
                "from pathlib import Path; from visualizer.server.store import own_folder; "
                f"print(own_folder(Path({str(tmp_path)!r})))"
            ),
        ],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    assert said.stdout.strip() and not Path(said.stdout.strip()).exists() and here.is_dir()


def test_a_folder_in_use_is_left_alone_where_its_process_cannot_be_seen(tmp_path, monkeypatch):
    """As in another container, and as by what cleans up /tmp, which passes over what is locked."""
    monkeypatch.setattr(files, "_is_alive", lambda process: False)
    here = own_folder(tmp_path)
    (left := tmp_path / "inflight-1-abc").mkdir()
    own_folder(tmp_path)
    assert here.exists() and not left.exists()


def test_room_is_made_by_who_takes_most_of_it(tmp_path):
    store = Store(tmp_path, 2**24)
    little, first, _ = (
        store.put(trace(budget), client=client)["id"]
        for budget, client in ((4, "one"), (5, "another"), (6, "another"))
    )
    store._quota = sum(path.stat().st_size for path in tmp_path.iterdir())
    store.put(trace(7), client="a third")
    assert store.trace(little).events
    with pytest.raises(InflightError, match="no longer on the server"):
        store.trace(first)


def test_what_was_stored_before_the_clock_was_set_back_goes_first(tmp_path):
    store = Store(tmp_path, 2**24)
    first, second = (store.put(trace(budget))["id"] for budget in (4, 5))
    for path in tmp_path.glob(f"{second}*"):
        os.utime(path, (0, 0))
    store._quota = sum(path.stat().st_size for path in tmp_path.iterdir())
    store.put(trace(6))
    assert store.trace(second).events
    with pytest.raises(InflightError, match="no longer on the server"):
        store.trace(first)


def test_a_run_stays_with_who_stored_it_first(tmp_path):
    """Whoever stores it again has no share in it, and loses nothing by it."""
    store = Store(tmp_path, 2**24)
    first, shared = (store.put(trace(budget), client="one")["id"] for budget in (5, 4))
    store.put(trace(6), client="another")
    store.put(trace(4), client="another")
    store._quota = sum(path.stat().st_size for path in tmp_path.iterdir())
    store.put(trace(7), client="a third")
    assert store.trace(shared).events
    with pytest.raises(InflightError, match="no longer on the server"):
        store.trace(first)


@pytest.mark.parametrize("kind", ["plotly", "perfetto", "html"])
def test_the_newest_export_is_kept_however_little_room_there_is(tmp_path, kind):
    store = Store(tmp_path, 0)
    run = store.put(trace())["id"]
    made = store.export(kind, run, 0)["url"].rsplit("/", 1)[-1]
    assert (tmp_path / made).exists() and store.trace(run).events


@pytest.mark.slow
def test_exports_make_room_by_who_has_most_of_them(tmp_path):
    store = Store(tmp_path, 2**24)
    run = promise_recorded_runs(store, TRACES)[0]["id"]
    one, *others, newest = (
        tmp_path / store.export("plotly", run, step, client)["url"].rsplit("/", 1)[-1]
        for step, client in ((1, "one"), (2, "another"), (3, "another"), (4, "a third"))
    )
    store._quota = sum(path.stat().st_size for path in (one, *others, newest)) - 1
    store.export("plotly", run, 4, "a third")
    assert one.exists() and not others[0].exists() and others[1].exists()


def test_a_folder_of_another_users_process_is_left_alone(tmp_path, monkeypatch):
    def refuse(process, signal):
        raise PermissionError

    monkeypatch.setattr(files.os, "kill", refuse)
    (theirs := tmp_path / "inflight-1-abc").mkdir()
    own_folder(tmp_path)
    assert theirs.exists()
