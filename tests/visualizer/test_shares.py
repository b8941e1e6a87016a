"""What one address asks for leaves room for others, over real HTTP from two addresses of this
machine.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.serving.turns import Turns
from visualizer.jobs.limits import HERE
from visualizer.server import middleware, uploads
from visualizer.server.api import Server
from visualizer.server.middleware import SafeAnswers, address_of, page_guard
from visualizer.server.routes import InTurn, routes
from visualizer.server.store import Store
from worlds.page_server import call, follow, last_of, run, serve
from worlds.visitors import spec

OTHER = "127.0.0.2"


@pytest.fixture
def other() -> Iterator[httpx.Client]:
    """A client at another address."""
    transport = httpx.HTTPTransport(local_address=OTHER)
    with httpx.Client(trust_env=False, timeout=120, transport=transport) as client:
        yield client


def sent(
    url: str, method: str, path: str, body: bytes = b"", announced: int | None = None
) -> socket.socket:
    """A connection on which a request was sent. announced: the length of the body, if it is not all
    of it.
    """
    at = urlsplit(url)
    made = socket.create_connection((at.hostname, at.port), timeout=120)
    head = (
        f"{method} /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect:"
        " 100-continue\r\n"
    )
    made.sendall(
        f"{head}Content-Length: {len(body) if announced is None else announced}\r\n\r\n".encode()
        + body
    )
    return made


def status(made: socket.socket) -> int:
    """The status of what was answered, once it is there."""
    with made.makefile("rb") as answer:
        while (found := int(answer.readline().split()[1])) == 100:
            answer.readline()
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/inflight/jobs", 408), ("/inflight/call/frames", 408), ("/inflight/uploads", 200)],
)
def test_a_question_in_drops_is_given_up_and_a_file_may_take_longer(path, expected, monkeypatch):
    monkeypatch.setattr(middleware, "_ASKING", 0.2)

    async def told(request: Request) -> Response:
        return Response(str(len(await request.body())))

    async def drops() -> AsyncIterator[bytes]:
        for _ in range(10):
            await asyncio.sleep(0.05)
            yield b"{"

    async def go() -> int:
        app = page_guard(Starlette(routes=[Route(path, told, methods=["POST"])]))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            of = {"content-type": "application/json"}
            return (await client.post(path, content=drops(), headers=of)).status_code

    assert asyncio.run(go()) == expected


def test_viewers_of_one_address_leave_room_for_others(page_url, http, other):
    with ExitStack() as open_ones:
        statuses = [
            status(open_ones.enter_context(sent(page_url, "GET", "inflight/live/steps")))
            for _ in range(201)
        ]
        assert statuses == [200] * 200 + [429]
        refused = http.get(f"{page_url}/inflight/live/steps")
        assert refused.json()["error"].startswith("From your address 200 viewers are connected")
        assert refused.headers["retry-after"] == "10"
        with other.stream("GET", f"{page_url}/inflight/live/steps") as answer:
            assert answer.status_code == 200 and next(answer.iter_raw())


@pytest.mark.slow
def test_calls_that_nobody_reads_keep_only_their_own_address_waiting(page_url, http, other):
    ran = last_of(run(http, page_url, spec(new=8)))["url"]
    body = json.dumps({"args": [ran, 1, 0, 0, 0]}).encode()
    with ExitStack() as open_ones:
        unread = [
            open_ones.enter_context(sent(page_url, "POST", "inflight/call/attention", body))
            for _ in range(200)
        ]
        assert call(other, page_url, "attention", ran, 1, 0, 0, 0)["segments"]
        statuses = [status(made) for made in unread]
    assert set(statuses) == {200, 429} and statuses.count(200) >= 40, "each of a class may ask"


def test_files_of_one_address_leave_room_for_others(page_url, http, other):
    """Slow ones, and those that wait for them, in whose bodies nobody looks yet."""

    def upload(client: httpx.Client) -> dict:
        return client.post(f"{page_url}/inflight/uploads", content=b"x").json()

    with ExitStack() as open_ones:
        slow = [
            open_ones.enter_context(
                sent(page_url, "POST", "inflight/uploads", b"slowly", announced=9)
            )
            for _ in range(8)
        ]
        for made in slow:
            assert made.recv(100).startswith(b"HTTP/1.1 100 "), "its body is waited for"
        waiting = threading.Thread(target=lambda: found.append(upload(http)))
        found: list[dict] = []
        waiting.start()
        assert "cannot be opened as a trace" in upload(other)["error"]
        assert not found
        slow[0].close()
        waiting.join(120)
    assert "cannot be opened as a trace" in found[0]["error"]


@contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """The address of an application that is served from a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_runs_of_one_address_do_not_make_the_page_forget_those_of_others(page_url, http, other):
    """A page that is loaded again finds its run by the job's id."""
    job = next(iter(run(other, page_url, spec(new=2), "another")))["job"]
    others = list(follow(other, page_url, job))
    own = [list(run(http, page_url, spec(new=1), str(number)))[-1]["job"] for number in range(20)]
    assert list(follow(other, page_url, job)) == others
    assert [http.get(f"{page_url}/inflight/jobs/{id}").status_code for id in (own[0], own[-1])] == [
        404,
        200,
    ]


def test_who_has_left_before_their_turn_is_not_answered(caplog):
    turns, answered, may_end = (
        Turns(2, "questions are being answered", waiting=20),
        [],
        threading.Event(),
    )

    async def respond(request: Request) -> Response:
        answered.append(request.path_params["name"])
        await asyncio.to_thread(may_end.wait)
        return Response()

    def asked(name: str) -> socket.socket:
        """Each is in the line before the next one comes."""
        made = sent(url, "POST", name, b"{}")
        wait_for(lambda: name in answered or turns.num_waiting == waiting)
        return made

    app = Starlette(
        routes=[Route("/{name}", InTurn(turns, address_of(False), respond), methods=["POST"])],
        middleware=[Middleware(SafeAnswers)],
    )
    with listening(app) as url, ExitStack() as open_ones:
        waiting = 0
        first = open_ones.enter_context(asked("first"))
        made = []
        for waiting, name in enumerate(("leaves", "stays", "leaves-too"), 1):  # noqa: B007
            made.append(open_ones.enter_context(asked(name)))
        made[0].close()
        made[2].close()
        wait_for(lambda: turns.num_waiting == 1)
        may_end.set()
        assert [status(first), status(made[1])] == [200, 200]
    assert answered == ["first", "stays"] and not caplog.records


@pytest.mark.slow
def test_one_file_of_an_address_is_read_at_a_time_and_one_of_another_beside_it(
    tmp_path, monkeypatch, http, other
):
    reading, most, release = [], 0, threading.Event()

    def read(reader: str, data: bytes, *arguments: str) -> dict:
        nonlocal most
        reading.append(data)
        most = max(most, len(reading))
        release.wait()
        reading.remove(data)
        raise uploads.Refused("x")

    monkeypatch.setattr(uploads, "read_sandboxed", read)
    app = Starlette(routes=routes(Server(Store(tmp_path, 2**20), HERE), address_of(False)))
    with listening(app) as url, ThreadPoolExecutor(6) as pool:
        sent = [
            pool.submit(http.post, f"{url}/inflight/uploads", content=b"mine") for _ in range(4)
        ]
        wait_for(lambda: reading == [b"mine"])
        sent += [
            pool.submit(other.post, f"{url}/inflight/uploads", content=b"other's") for _ in range(2)
        ]
        wait_for(lambda: reading == [b"mine", b"other's"])
        release.set()
        assert {answer.result().json()["error"] for answer in sent} == {
            "This file cannot be opened as a trace: x"
        }
    assert most == 2


SMALL = """
import os
from dataclasses import replace
from visualizer.server.limits import SPACE
from visualizer.ui import launch
launch(replace(SPACE, kept_bytes={bytes}), port=int(os.environ["GRADIO_SERVER_PORT"]), live=False)
"""


@pytest.mark.slow
def test_exports_of_one_address_do_not_remove_the_runs_of_others(http, other):
    """Nor its own, from which they can be made again."""
    with serve([sys.executable, "-c", SMALL.format(bytes=4 * 2**20)]) as url:
        others, own = (
            last_of(run(client, url, spec(new=40), "me"))["url"] for client in (other, http)
        )
        made = [call(http, url, "export", "html", own, step) for step in range(16)]
        gone = [http.get(f"{url}/{export['url']}").status_code for export in made]
        assert gone == sorted(gone, reverse=True) and set(gone) == {
            404,
            200,
        }, "the oldest exports went"
        assert [other.get(f"{url}/{kept}").status_code for kept in (others, own)] == [200, 200]
        assert call(other, url, "export", "jsonl", others, None)["url"]
        for step in (10**6, -1):
            assert call(http, url, "export", "html", own, step) == {
                "error": f"This run has no step {step}."
            }
