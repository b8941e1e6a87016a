"""Recordings over the network: what engines send is what lies in the folder, whatever is killed,
refused or slow; and no engine ever waits.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from core.errors import InflightError, InvalidTrace
from core.recorders.collected import Collection, Full
from core.recorders.raw import read_raw
from core.recorders.vllm.inflight_vllm.sender import MOST_BODY, NotTaken, Sender
from core.recorders.vllm.inflight_vllm.writer import Oversized
from core.serving.http import collect
from core.serving.http.collect import collector_app, token_of
from worlds.collecting import HEADER, collecting, free_port, put, sending, step
from worlds.examples import examples

LINE = (json.dumps(HEADER) + "\n").encode()


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def numbers(paths: list[Path], has_gap: bool = False) -> list[int]:
    (recording,) = read_raw(paths)
    assert [said[:39] for said in recording.faults] == [
        "Part 2 does not begin where part 1 ends"
    ] * has_gap
    return [step["step"] for step in recording.steps]


def steps(numbers: range) -> list[bytes]:
    return [(json.dumps(step(number)) + "\n").encode() for number in numbers]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "collected"


@pytest.mark.slow
def test_what_is_sent_is_what_lies_in_the_folder(folder, caplog):
    """Of two engines at once, one of them with two ranks: a file each. The token is in none of
    them, and in no line of a log.
    """
    with collecting(folder, "--port", "0") as collector, caplog.at_level(logging.DEBUG, "inflight"):
        token = collector.url.partition("token=")[2]
        writers = [
            sending(collector.url, pid=2, model="Org/Model 7B"),
            *(sending(collector.url, pid=3 + rank, rank=rank, ranks=2) for rank in (0, 1)),
        ]
        for writer in writers:
            put(writer, range(300))
        for writer in writers:
            writer.close()
            assert writer.failure is None and writer.dropped == 0
        collector.wait_for(lambda line: sum("has ended" in line for line in collector.lines) == 3)
        health = http.client.HTTPConnection(urlsplit(collector.url).netloc)
        health.request("GET", "/health")
        assert json.loads(health.getresponse().read()) == {"status": "ok", "recordings_at_work": 3}
    files = recordings(folder)
    assert len(files) == 3 and sum(".rank" in file.name for file in files) == 2
    assert [file.name[:8] for file in files if ".rank" not in file.name] == ["OrgModel"]
    assert all(numbers([file]) == list(range(300)) for file in files)
    assert (
        len(token) > 16
        and all(token not in file.read_text() for file in files)
        and token not in caplog.text
    )
    assert (
        token in (folder / ".token").read_text() and (folder / ".token").stat().st_mode & 0o077 == 0
    )
    assert all(token not in line for line in collector.lines[1:])


def test_a_token_that_a_full_disk_did_not_take_is_made_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.delenv(collect.TOKEN, raising=False)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(InflightError, match="holds no token"):
            token_of(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(token := token_of(tmp_path)) > 16 and token_of(tmp_path) == token
    assert (tmp_path / ".token").stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_who_collects_from_other_machines_is_told_that_others_can_read_along(folder, host, is_open):
    with collecting(folder, "--port", "0", "--host", host) as collector:
        health = http.client.HTTPConnection("127.0.0.1", urlsplit(collector.url).port)
        health.request("GET", "/health")  # what is said beforehand has been said
        assert health.getresponse().status == 200
    # all that it printed has been read
    assert any("cross the network as they are" in line for line in collector.lines) == is_open


@pytest.mark.slow
def test_a_collector_that_is_killed_and_started_again_misses_nothing(folder, caplog):
    """Killed as it stands, it goes on in its own files with the same token: every step is there,
    and once.
    """
    port = str(free_port())
    with caplog.at_level(logging.INFO, "inflight"):
        with collecting(folder, "--port", port) as collector:
            writer = sending(collector.url)
            put(writer, range(100))
            collector.wait_for(lambda line: "sends" in line)
            put(writer, range(100, 200))
        put(writer, range(200, 300))
        with collecting(folder, "--port", port) as again:
            assert again.url == collector.url
            put(writer, range(300, 400))
            again.wait_for(lambda line: "goes on sending" in line)
            writer.close()
    assert (
        writer.failure is None
        and writer.dropped == 0
        and not any("missing" in line for line in again.lines)
    )
    assert numbers(recordings(folder)) == list(range(400))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.slow
def test_nobody_waits_for_a_collector_that_is_away(folder, caplog):
    """What finds no room is dropped in whole steps and counted; one warning says that nobody is
    there, one line that somebody is again.
    """
    port = free_port()
    with caplog.at_level(logging.INFO, "inflight"):
        writer = sending(f"http://127.0.0.1:{port}/?token=secret", queued=50)
        put(writer, range(1))
        while not any(record.levelno == logging.WARNING for record in caplog.records):
            writer._thread.join(0.05)
        put(writer, range(1, 500))
        assert writer.dropped >= 449 and writer.wants_snapshot
        with collecting(folder, "--port", str(port), "--token", "secret"):
            writer.close()
            writer._thread.join(60)
    assert [
        r.message.partition(":")[0] for r in caplog.records if r.levelno == logging.WARNING
    ] == ["Inflight cannot send to http"]
    (recording,) = read_raw(recordings(folder))
    kept = [s["step"] for s in recording.steps]
    assert kept == list(range(len(kept))) and recording.dropped == 500 - len(kept) == writer.dropped


def test_calls_without_the_token_are_a_line_a_minute_for_each_address(folder, monkeypatch):
    """However many come; and what they send is not taken."""
    now, told = [1000.0], list[str]()
    monkeypatch.setattr(collect, "time", SimpleNamespace(monotonic=lambda: now[0]))
    app = collector_app(Collection(folder), "secret", told.append)
    for at, host in ((0, "a"), (1, "a"), (2, "b"), (59.5, "a"), (60, "a"), (61, "b"), (62, "b")):
        now[0] = 1000.0 + at
        client = TestClient(app, client=(host, 1))
        for headers in ({}, {"authorization": "Bearer secre"}, {"authorization": "Basic secret"}):
            assert client.post("/", content=LINE, headers=headers).status_code == 401
    refused = "sends without the right token, and is refused."
    assert told == [f"{host} {refused}" for host in "abab"]
    assert recordings(folder) == []


def test_a_slow_collector_holds_up_nobody(caplog):
    """One that takes the call and never answers: `put` returns, the queue stays bounded."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        writer = sending(f"http://127.0.0.1:{deaf.getsockname()[1]}/", queued=10)
        put(writer, range(1))
        connection, _ = deaf.accept()
        put(writer, range(1, 10_000))
        assert writer.dropped >= 9_900 and len(writer._records) <= 10
        connection.close()
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/?token=wrong", "401 Unauthorized"),
        ("/", "401 Unauthorized"),
        ("/elsewhere?token=secret", "404 Not Found"),
    ],
)
def test_a_refusal_is_one_line_and_is_not_asked_for_again(folder, caplog, path, status):
    with (
        collecting(folder, "--port", "0", "--token", "secret") as collector,
        caplog.at_level(logging.INFO, "inflight"),
    ):
        base = collector.url.partition("/?")[0]
        writer = sending(base + path)
        put(writer, range(10))
        writer._thread.join(30)
        put(writer, range(10, 20))
        writer.close()
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(
        f"Inflight stopped recording to {base}{path.partition('?')[0]}: NotTaken: it answers"
        f" {status} ("
    )
    assert (
        line.endswith("The engine goes on.")
        and "token=" not in line
        and "wrong" not in line.replace("missing or wrong", "")
    )
    assert recordings(folder) == [] and sum(
        "right token" in printed for printed in collector.lines
    ) == (status[:3] == "401")


@pytest.mark.slow
def test_what_is_too_large_is_refused_and_an_oversized_step_is_dropped_alone(folder):
    with collecting(folder, "--port", "0") as collector:
        url = urlsplit(collector.url)
        call = http.client.HTTPConnection(url.netloc)
        call.putrequest("POST", "/")
        call.putheader("Content-Length", str(MOST_BODY + 1))
        call.endheaders()
        assert call.getresponse().status == 413
        writer = sending(collector.url)
        writer.put(lambda: step(0))
        writer.put(lambda: step(1, much="x" * MOST_BODY))
        writer.put(lambda: step(2))
        writer.close()
    (recording,) = read_raw(recordings(folder))
    assert [s["step"] for s in recording.steps] == [0, 2] and recording.dropped == 1


@pytest.mark.slow
def test_a_disk_that_takes_no_more_is_said_once_and_files_stay_whole(folder):
    """A limit on the size of a file stands for the disk: the collector answers 507, and what it has
    ends with a whole line.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    with collecting(folder, "--port", "0", preexec_fn=limit) as collector:
        writer = sending(collector.url)
        put(writer, range(20))
        collector.wait_for(lambda line: "sends" in line)
        put(writer, range(20, 2000))
        said = collector.wait_for(lambda line: "cannot be written" in line)
        assert said.endswith("File too large: engines keep what finds room, and send it later.")
        (file,) = recordings(folder)
        assert file.read_bytes().endswith(b"\n") and writer.failure is None
    writer.close()


@pytest.mark.slow
def test_two_collectors_do_not_share_a_folder_nor_a_port(folder):
    with collecting(folder, "--port", "0") as collector:
        port = str(urlsplit(collector.url).port)
        for arguments, sentence in (
            (("0", folder), "Another process collects in"),
            ((port, folder / "x"), f"Port {port} is taken: choose another with --port."),
        ):
            command = [
                sys.executable,
                "-m",
                "core",
                "collect",
                "--port",
                arguments[0],
                "--out",
                str(arguments[1]),
            ]
            refused = subprocess.run(
                command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120
            )
            assert refused.returncode == 2 and sentence in refused.stderr


def test_a_name_from_the_network_is_a_name_in_the_folder(folder):
    collection = Collection(folder)
    for number, name in enumerate(
        ("../../etc/passwd", "..", "", "\0/\n", "a" * 999, {"x": 1}, None)
    ):
        header = (
            json.dumps(
                {**HEADER, "pid": number, "model": name, "created": name, "host": name, "ranks": 2}
            )
            + "\n"
        )
        collection.take(header.encode(), 0, steps(range(3)))
    files = recordings(folder)
    assert len(files) == 7 and all(file.parent == folder and len(file.name) < 160 for file in files)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["collected"]
    for rank in (-1, 1.5, "../x"):
        with pytest.raises(InvalidTrace):
            collection.take(
                (json.dumps({**HEADER, "rank": rank, "ranks": 2}) + "\n").encode(), 0, []
            )


@pytest.mark.parametrize(
    ("host", "named", "dropped", "lost"),
    [
        ("here", " on here", 0, ""),
        (None, "", 1, " The recorder could not keep up and dropped 1 record."),
        ("a/b", " on ab", 1_000, " The recorder could not keep up and dropped 1,000 records."),
    ],
)
def test_who_sends_is_named_and_what_was_dropped_is_said(folder, host, named, dropped, lost):
    told: list[str] = []
    header = (json.dumps(HEADER | {"host": host}) + "\n").encode()
    end = (json.dumps({"kind": "end", "dropped": dropped}, separators=(",", ":")) + "\n").encode()
    Collection(folder, tell=told.append).take(header, 0, [*steps(range(1)), end])
    (file,) = recordings(folder)
    assert told == [
        f"{file.name}: vllm 0.32.0{named}, process 1, sends.",
        f"{file.name}: the recording has ended.{lost}",
    ]


def test_lines_are_taken_once_and_gaps_are_told(folder):
    told: list[str] = []
    collection = Collection(folder, tell=told.append)
    assert not collection.take(LINE, 0, steps(range(5)))
    assert not collection.take(LINE, 3, steps(range(3, 8)))  # sent again, as the answer got lost
    assert collection.take(LINE, 10, steps(range(10, 12)))
    collection._held.close()
    again = Collection(folder, tell=told.append)
    assert not again.take(LINE, 10, steps(range(10, 13)))  # nor did the answer to that arrive
    before_gap = min(recordings(folder), key=lambda path: len(path.name))
    assert [line for line in told if "missing" in line] == [
        f"{before_gap.name}: 2 lines are missing."
    ]
    assert numbers(recordings(folder), True) == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12]


@given(
    sent=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 4), st.booleans()), min_size=1, max_size=12
    ),
    part_bytes=st.integers(300, 2_000),
)
@examples(40)
def test_whatever_is_sent_twice_or_lost_each_part_says_with_which_line_it_begins(sent, part_bytes):
    """What lies in the folder is worked out line by line. A process that begins again knows of all
    that is there or lost.
    """
    with tempfile.TemporaryDirectory() as name:
        collection = Collection(Path(name), part_bytes)
        parts: list[tuple[int, list[bytes]]] = []  # number of the first line, lines
        taken = 0

        def size(part: int, line: int, lines: list[bytes]) -> int:
            header = json.dumps(HEADER | {"part": part, "line": line}) + "\n"
            return len(header) + sum(map(len, lines))

        for shift, count, restarts in sent:
            if restarts and parts:
                collection._held.close()
                collection = Collection(Path(name), part_bytes)
            first = max(0, taken + shift)
            wants = collection.take(LINE, first, steps(range(first, first + count)))
            news = range(max(first, taken), first + count)
            if not parts:
                parts.append((0, []))
            anew = first > taken or bool(news and size(len(parts), *parts[-1]) >= part_bytes)
            # the answer that asked for one may not have arrived before the collector began again
            assert wants == (anew or (restarts and len(parts) > 1 and not parts[-1][1]))
            if anew:
                parts.append((news.start, []))
            parts[-1][1].extend(steps(news))
            taken = max(taken, first + count)
            files = sorted(recordings(Path(name)), key=lambda path: (len(path.name), path.name))
            assert [path.read_bytes() for path in files] == [
                (json.dumps(HEADER | {"part": part, "line": line}) + "\n").encode()
                + b"".join(lines)
                for part, (line, lines) in enumerate(parts, 1)
            ]
            assert collection._bytes == sum(path.stat().st_size for path in files)
            assert collection.at_work == 1
        collection._held.close()


@pytest.mark.parametrize("begins_again", [False, True])
def test_a_snapshot_is_asked_for_once_the_lines_after_a_gap_are_there(folder, begins_again):
    """The disk took the header of their part, and not them."""
    collection = Collection(folder)
    collection.take(LINE, 0, steps(range(5)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINE) + 60, hard))
    try:
        with pytest.raises(Full):
            collection.take(LINE, 8, steps(range(8, 12)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if begins_again:
        collection._held.close()
        collection = Collection(folder)
    assert collection.take(LINE, 8, steps(range(8, 12)))
    assert not collection.take(LINE, 12, steps(range(12, 14)))
    assert len(recordings(folder)) == 2 and numbers(recordings(folder), True)[-1] == 13


@pytest.mark.parametrize("cut", [1, 9, 60])
def test_a_line_that_was_cut_by_a_kill_is_taken_again(folder, cut):
    """Wherever the last write was cut, in a later part too."""
    first = Collection(folder, part_bytes=400)
    for number in range(10):
        first.take(LINE, number, steps(range(number, number + 1)))
    *_, last = sorted(
        recordings(folder), key=lambda path: json.loads(path.read_text().partition("\n")[0])["part"]
    )
    os.truncate(last, last.stat().st_size - cut)
    whole = sum(len(path.read_bytes().split(b"\n")[1:-1]) for path in recordings(folder))
    first._held.close()  # as the end of its process does
    again = Collection(folder, part_bytes=400)
    again.take(LINE, 5, steps(range(5, 12)))
    assert 5 <= whole < 10 and len(recordings(folder)) > 2
    assert numbers(recordings(folder)) == list(range(12))


def test_the_oldest_files_make_room_but_no_file_that_is_written(folder):
    collection = Collection(folder, part_bytes=1_000, most_bytes=5_000)
    for number in range(200):
        wants = collection.take(LINE, number, steps(range(number, number + 1)))
        size = sum(path.stat().st_size for path in recordings(folder))
        assert collection._bytes == size <= 5_000
    kept = numbers(recordings(folder))
    assert kept == list(range(kept[0], 200)) and kept[0] > 100 and not wants
    assert size > 4_000
    (folder / "mine.raw.jsonl").write_text("x" * 9_000)
    collection.take(LINE, 200, steps(range(200, 300)))
    assert (folder / "mine.raw.jsonl").exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///path",
        "http://host/?token=%0Aevil",
        "http://host/?token=é",
        "http://host:port/",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_token(url):
    with pytest.raises(ValueError) as refused:
        Sender(url, HEADER)
    assert "evil" not in str(refused.value) and "é" not in str(refused.value)


def test_a_sender_that_closes_hangs_up():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as other:
        sender = Sender(f"http://127.0.0.1:{server.getsockname()[1]}/", HEADER)
        sender.close()  # before the first batch there is no connection
        sender.write("{}\n")
        sent = other.submit(sender.flush)
        collector, _ = server.accept()
        with collector:
            collector.settimeout(30)
            collector.recv(1)
            answer = b'{"wants_snapshot": true}'
            collector.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
            collector.sendall(answer)
            assert sent.result(30)
            sender.close()
            while collector.recv(2**16):
                pass  # until its end


Answer = tuple[int, bytes]
TAKEN: Answer = (200, b'{"wants_snapshot": false}')


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[tuple[str, Any, bytes]]]]:
    """A collector that gives these answers: its address, and the path, the headers and the body of
    each call.
    """
    calls: list[tuple[str, Any, bytes]] = []
    left = iter(answers)

    class Collects(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            calls.append((self.path, self.headers, body))
            status, said = next(left)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collects) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", calls
        finally:
            server.shutdown()


def test_each_batch_says_with_which_line_it_begins_and_who_sends_it():
    wants = (200, b'{"wants_snapshot": true}')
    with answering(TAKEN, wants, TAKEN) as (url, calls):
        sender = Sender(f"{url}/a?token=secret&to=b", HEADER)
        assert sender.name == f"{url}/a"
        assert not sender.write("1\n") and not sender.write("2\n") and not sender.flush()
        assert not sender.flush()  # there is nothing to send, and it has only just been heard
        assert not sender.write("3\n") and sender.flush()
        sender._at -= 10  # since then
        assert not sender.flush()
        sender.close()
    header = json.dumps(HEADER, separators=(",", ":")).encode() + b"\n"
    assert [(path, body) for path, _, body in calls] == [
        ("/a?to=b", header + b"1\n2\n"),
        ("/a?to=b", header + b"3\n"),
        ("/a?to=b", header),
    ]
    assert [headers["inflight-first"] for _, headers, _ in calls] == ["0", "2", "3"]
    assert {headers["authorization"] for _, headers, _ in calls} == {"Bearer secret"}
    with answering(TAKEN) as (url, calls):
        sender = Sender(url, HEADER)
        assert not sender.write("1\n") and not sender.flush()
        sender.close()
    assert calls[0][0] == "/" and calls[0][1]["authorization"] is None


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (401, b'{"error": "The token is wrong."}', "401 Unauthorized (The token is wrong.)"),
        (400, b'{"error": "%s"}' % (b"x" * 300), f"400 Bad Request ({'x' * 200})"),
        (404, b"<html>", "404 Not Found"),
        (200, b"<html>", "200 OK"),
    ],
)
def test_what_would_be_refused_again_ends_the_sending(status, said, problem):
    with answering((status, said)) as (url, calls):
        sender = Sender(url, HEADER)
        sender.write("1\n")
        with pytest.raises(NotTaken) as refused:
            sender.flush()
        sender.close()
    assert str(refused.value) == f"it answers {problem}" and len(calls) == 1


def test_what_may_be_taken_later_is_sent_again_and_each_trouble_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr("core.recorders.vllm.inflight_vllm.sender._FIRST_WAIT", 0.0)
    full = (507, b'{"error": "The disk is full."}')
    with answering(full, (503, b""), TAKEN, full) as (url, calls):
        sender = Sender(url, HEADER)
        sender.write("1\n")
        with caplog.at_level(logging.INFO, "inflight"):
            assert not sender.flush()
        assert len({body for _, _, body in calls}) == 1 and len(calls) == 3
        assert [record.message for record in caplog.records] == [
            f"Inflight cannot send to {url}: it answers 507 Insufficient Storage (The disk is"
            " full.). It tries again; steps that find no room meanwhile are dropped.",
            f"Inflight sends to {url} again.",
        ]
        sender.write("2\n")
        (closing := threading.Event()).set()
        sender.open(closing)
        with pytest.raises(ConnectionError, match="it answers 507"):
            sender.flush()  # once more, and no more
        sender.close()
    assert len(calls) == 4


def test_lines_are_sent_as_soon_as_they_are_enough_and_one_too_large_for_a_call_never(monkeypatch):
    header = len(json.dumps(HEADER, separators=(",", ":"))) + 1
    monkeypatch.setattr("core.recorders.vllm.inflight_vllm.sender.BATCH", 100)
    monkeypatch.setattr("core.recorders.vllm.inflight_vllm.sender.MOST_BODY", header + 120)
    with answering(*[TAKEN] * 3) as (url, calls):
        sender = Sender(url, HEADER)
        for size, sent in ((60, 0), (39, 0), (1, 1), (60, 1), (61, 2), (59, 3)):
            sender.write("x" * size)
            assert len(calls) == sent, size
        with pytest.raises(Oversized):
            sender.write("x" * 121)
        sender.close()
    assert [len(body) - header for _, _, body in calls] == [100, 60, 120]


def test_a_file_whose_header_was_cut_by_a_kill_is_made_anew(folder):
    first = Collection(folder)
    first.take(LINE, 0, steps(range(2)))
    (file,) = recordings(folder)
    os.truncate(file, 20)
    first._held.close()
    assert not Collection(folder).take(LINE, 0, steps(range(3)))
    assert recordings(folder) == [file] and numbers([file]) == [0, 1, 2]


@pytest.mark.parametrize("what", ["the folder", "the file", "the newest part"])
def test_what_is_deleted_while_engines_send_is_made_again(folder, what):
    """The lines that went with it are told as missing, and what follows can be read."""
    told: list[str] = []
    collection = Collection(folder, part_bytes=1, tell=told.append)
    collection.take(LINE, 0, steps(range(2)))
    if what == "the newest part":
        collection.take(LINE, 2, steps(range(2, 4)))
    files = recordings(folder)
    if what == "the folder":
        shutil.rmtree(folder)
    else:
        files[0 if what == "the file" else 1].unlink()
    assert collection.take(LINE, 4, steps(range(4, 6)))  # a snapshot is needed after the gap
    collection.take(LINE, 6, steps(range(6, 8)))
    kept = {"the newest part": [0, 1]}.get(what, [])
    assert sum(f"{2 if kept else 4} lines are missing" in line for line in told) == 1
    (recording,) = read_raw(recordings(folder))
    assert [step["step"] for step in recording.steps] == [*kept, 4, 5, 6, 7]
    with pytest.raises(InflightError, match="Another process collects"):
        Collection(folder)


_NOT_WHOLE = "The body is not made of whole lines."
_NO_HEADER = "The first line is not the header of a recording."
_NO_NUMBER = "Inflight-First is to be the number of the first line."


@pytest.mark.parametrize(
    ("body", "first", "status", "says"),
    [
        (b"", "0", 400, _NOT_WHOLE),
        (LINE[:-1], "0", 400, _NOT_WHOLE),
        (LINE + b"{", "0", 400, _NOT_WHOLE),
        (LINE, "-1", 400, _NO_NUMBER),
        (LINE, "", 400, _NO_NUMBER),
        (LINE, "1" * 16, 400, _NO_NUMBER),
        (b"no JSON\n", "0", 400, _NO_HEADER),
        (b"{}\n", "0", 400, _NO_HEADER),
        (b'{"kind":"header","raw":9}\n', "0", 400, "What was sent is of version 9 of the raw"),
    ],
    ids=str,
)
def test_a_body_that_is_none_is_refused_in_a_sentence(folder, body, first, status, says):
    client = TestClient(collector_app(Collection(folder), "secret", print))
    headers = {"authorization": "Bearer secret", "inflight-first": first}
    answer = client.post("/", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"][: len(says)]) == (status, says)
    assert recordings(folder) == []


def test_a_folder_that_cannot_be_written_is_not_the_senders_fault(folder):
    app = collector_app(Collection(folder), "secret", print)
    headers = {"authorization": "Bearer secret", "inflight-first": "0"}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINE) // 2, hard))
    try:
        answer = TestClient(app).post("/", content=LINE, headers=headers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    says = {"error": f"{folder} cannot be written: File too large."}
    assert (answer.status_code, answer.json()) == (507, says) and recordings(folder) == []
    answer = TestClient(app).post("/", content=LINE, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"wants_snapshot": False})


def test_a_call_that_is_none_is_refused_in_a_sentence(folder):
    client = TestClient(collector_app(Collection(folder), "secret", print))
    for answer, status in ((client.get("/"), 405), (client.post("/x"), 404)):
        says = {"error": "Recordings are sent by POST to / of this address."}
        assert (answer.status_code, answer.json()) == (status, says)


def test_collecting_needs_no_torch(tmp_path):
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, numpy=None); import"
        " core.cli.collect"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InflightError, match="Nothing can be collected in"):
        Collection(tmp_path / "file" / "folder")
