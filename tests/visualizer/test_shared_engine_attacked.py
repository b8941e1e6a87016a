"""The page's own process, its engine shared: what bad clients leave behind is nothing, good ones
are all answered, OpenAI's client among them.

After each attack `/health` is green and no lane or block is held.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import httpx
import openai
import pytest

from core import Request, SamplingParams, Workload
from worlds.attacks import call, connected, status
from worlds.page_server import serve
from worlds.serving import MODEL, char_engine

# what the engine itself withstands, core/test_serving_security tries each time
pytestmark = pytest.mark.slow

TEACHER = {"x-teacher-token": "t" * 22}
ENDLESS = {"prompt": "O Romeo, ", "max_tokens": 240, "stream": True, "ignore_eos": True}
EVENTS = b"GET /serve/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
STEPS = b"GET /inflight/live/steps?from=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass
class Page:
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def get(self, path: str, **options) -> httpx.Response:
        return httpx.get(self.url + path, timeout=600, trust_env=False, **options)

    def post(self, path: str, body: object, **options) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=600, trust_env=False, **options)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    command = (sys.executable, "app.py", "--live-model", MODEL)
    with serve(command, INFLIGHT_TEACHER_TOKEN="t" * 22) as url:
        made = Page(url)
        made.post("/serve/control", {"steps_per_s": None}, headers=TEACHER).raise_for_status()
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(page):
    yield
    unhurt(page)


def unhurt(page: Page) -> None:
    for _ in range(3000):
        health = page.get("/serve/health").json()
        if not health["requests"] and not health["kv_blocks_used"]:
            break
        time.sleep(0.02)
    assert health["status"] == "ok" and health["step_failures"] == 0
    assert (
        health["requests"]
        == health["running"]
        == health["waiting"]
        == health["kv_blocks_used"]
        == 0
    )
    assert page.post("/serve/generate", {"prompt": "Hark", "max_tokens": 2}).status_code == 200


def ask(body: object) -> bytes:
    return call(json.dumps(body).encode(), "Connection: close", path="/serve/generate")


def reset(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def test_bodies_that_are_too_large_malformed_or_of_another_kind(page):
    big = b'{"prompt": "' + b"a" * 2**21 + b'"}'
    assert page.post("/serve/generate", {"prompt": "a" * 2**21}).status_code == 413
    with connected(
        page,
        call(b"", "Transfer-Encoding: chunked", path="/serve/generate").replace(
            b"Content-Length: 0\r\n", b""
        ),
    ) as made:
        made.sendall(b"%x\r\n%s" % (len(big), big[: 2**20 + 1000]))
        assert status(made) == 413
    for body, expected in (
        (b"", 400),
        (b"{", 400),
        (b"[" * 19_000, 400),
        (b'{"prompt": "\xff"}', 400),
        (b"null", 400),
        (b'{"prompt": "a", "max_tokens": 1e999}', 400),
        (b'{"prompt": "a", "temperature": NaN}', 400),
        (b'{"prompt": [4, 99999999999999999999999]}', 400),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "a", "model": "../../etc/passwd"}', 400),
        (b'{"prompt": "a", "max_tokens": 99999}', 400),
    ):
        with connected(page, call(body, path="/serve/generate")) as made:
            assert status(made) == expected, body[:40]
        with connected(page, call(body, path="/inflight/live/requests")) as made:
            assert status(made) in (400, 422), body[:40]  # the page's own addresses
    with connected(
        page, ask({"prompt": "Hark"}).replace(b"application/json", b"text/plain")
    ) as made:
        assert status(made) == 415


def test_half_calls_smuggled_headers_and_guessed_tokens(page):
    begun = call(b"{" * 50, path="/serve/generate")[:-10]
    halves = [
        connected(page, part)
        for part in (b"", b"POST", b"POST /serve/generate HTTP/1.1\r\nHost:", begun)
    ]
    for half in halves:
        half.shutdown(socket.SHUT_WR)
    for evil in (
        b"X: a\r\n b",
        b"X: \x00",
        b"Content-Length: 5\r\nContent-Length: 50",
        b"Bad Name: x",
    ):
        with connected(
            page, b"GET /serve/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n" + evil + b"\r\n\r\n"
        ) as made:
            answer = made.recv(4096)
            assert not answer or answer.split(b" ")[1] in (b"400", b"200")
    answer = page.get("/serve/v1/models/x%0d%0aSet-Cookie:%20a=b")
    assert answer.status_code == 404 and "set-cookie" not in answer.headers
    for token in ("", "t" * 21, "t" * 23, "T" * 22, "é"):
        headers = {"x-teacher-token": token.encode("latin-1")}
        for order in (
            {"clear": True},
            {"hide_texts": True},
            {"policy": "static"},
        ):
            assert page.post("/serve/control", order, headers=headers).status_code == 403
    for name in ("x" * 25, "<script>alert(1)</script>", "a\u202eb", "\u0000", "a\nb"):
        answer = page.post("/serve/generate", {"prompt": "Hark", "nickname": name})
        assert answer.status_code == 400 and name not in answer.json()["error"]["message"]
    unhurt(page)
    for half in halves:
        half.close()


@pytest.mark.slow
def test_a_body_that_comes_slowly_is_given_up(page):
    with connected(page, call(b"x" * 100, path="/serve/generate")[:-90]) as made:
        assert status(made) == 408


@pytest.mark.slow
@pytest.mark.parametrize("used", [False, True])
def test_headers_that_come_slowly_are_given_up(page, used):
    """Of a connection's first call and of a later one; hundreds at once keep nobody out."""
    first = b"GET /serve/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" if used else b""
    slow = [connected(page, first) for _ in range(200)]
    for made in slow:
        if used:
            assert status(made) == 200
        made.sendall(b"POST /serve/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: a")
    unhurt(page)
    for made in slow:
        while made.recv(4096):  # until the server closes
            pass
        made.close()


@pytest.mark.parametrize(
    "when", ["at once", "after the headers", "after a token", "half closed", "reset"]
)
def test_clients_that_leave_at_any_stage(page, when):
    gone = [connected(page, ask({**ENDLESS, "stream": i % 2 == 0})) for i in range(8)]
    for i, made in enumerate(gone):
        if i % 2 == 0 and when in ("after the headers", "after a token", "half closed"):
            made.recv(10 if when == "after the headers" else 4096)
        if when == "half closed":
            made.shutdown(socket.SHUT_WR)
        elif when == "reset":
            reset(made)
        else:
            made.close()
    unhurt(page)
    for made in gone:
        made.close()


def test_viewers_that_stall_leave_or_come_in_crowds_slow_nobody(page):
    stalled = []
    for asked in (EVENTS, STEPS, EVENTS, STEPS):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect(("127.0.0.1", page.port))
        made.sendall(asked)  # and reads nothing
        stalled.append(made)
    for asked in (EVENTS, STEPS):
        for _ in range(60):
            with connected(page, asked) as made:
                made.recv(100)
                reset(made)
    answer = page.post(
        "/serve/generate", {"prompt": "Hark", "max_tokens": 200, "ignore_eos": True}
    ).json()
    assert answer["finish_reason"] == "length"
    unhurt(page)
    for made in stalled:
        made.close()


@pytest.mark.slow
def test_a_viewer_that_reads_late_is_told_what_it_missed(page):
    """Or let go, where the engine took longer than a viewer may stall. The small segments keep the
    system from reading in its stead.
    """
    page.post("/serve/control", {"max_num_seqs": 1}, headers=TEACHER).raise_for_status()
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    made.settimeout(120)
    made.connect(("127.0.0.1", page.port))
    made.sendall(STEPS)
    asked = {"prompt": "Hark", "max_tokens": 240, "ignore_eos": True}
    for _ in range(8):
        assert page.post("/serve/generate", asked).json()["finish_reason"] == "length"
    read, missed = b"", None
    with suppress(ConnectionResetError):  # let go, with more to be sent
        while missed is None and (piece := made.recv(2**16)):
            read += piece
            missed = re.search(rb'"kind":"skipped","messages":[1-9]', read)
    assert missed or len(read) > 1000
    made.close()
    page.post("/serve/control", {"max_num_seqs": 8}, headers=TEACHER).raise_for_status()


def test_a_flood_of_orders_while_people_ask(page):
    """Of the teacher's and of others', a policy shown beside and run for real among them."""
    orders = [
        {"policy": "static", "max_num_seqs": 2},
        {"policy": "continuous", "max_num_seqs": 8, "when": "idle"},
        {"burst": "equal"},
        {"clear": True},
        {"steps_per_s": 1000.0, "steps": 3},
        {"accepting": False},
        {"accepting": True},
    ]

    def one(number: int) -> int:
        if number % 4 == 0:
            return page.post("/serve/generate", {"prompt": "Hark", "max_tokens": 5}).status_code
        headers = TEACHER if number % 2 else {"x-teacher-token": "guess"}
        return page.post(
            "/serve/control", orders[number % len(orders)], headers=headers
        ).status_code

    with ThreadPoolExecutor(12) as pool:
        answers = set(pool.map(one, range(120)))
    assert answers <= {200, 403, 429, 503} and {200, 403} <= answers
    rest = {
        "clear": True,
        "accepting": True,
        "steps_per_s": None,
        "policy": "continuous",
        "max_num_seqs": 8,
    }
    page.post("/serve/control", rest, headers=TEACHER).raise_for_status()
    while page.get("/serve/control", headers=TEACHER).json()["changing"]:
        time.sleep(0.02)


@pytest.mark.slow
def test_three_hundred_connections(page):
    """As core/test_serving_security tries a thousand."""

    def one(number: int) -> None:
        body = ENDLESS if number % 3 else {"prompt": "Hark", "max_tokens": 2}
        with connected(page, ask(body)[: None if number % 2 else -5]) as made:
            if number % 5 == 0:
                made.recv(100)

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(one, range(300)))


@pytest.mark.slow
def test_an_order_to_end_lets_fifty_streams_finish():
    """Though the batch stands still: its pace is for those who watch."""
    body = {"prompt": "Hark", "max_tokens": 30, "stream": True, "ignore_eos": True}
    begun = threading.Semaphore(0)
    own = serve((sys.executable, "app.py", "--live-model", MODEL), INFLIGHT_TEACHER_TOKEN="t" * 22)

    def one(url: str) -> list[dict]:
        with httpx.stream(
            "POST", f"{url}/serve/generate", json=body, timeout=600, trust_env=False
        ) as response:
            begun.release()
            return [
                json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")
            ]

    with own as url, ThreadPoolExecutor(50) as pool:
        Page(url).post("/serve/control", {"steps_per_s": 0}, headers=TEACHER).raise_for_status()
        answers = [pool.submit(one, url) for _ in range(50)]
        for _ in answers:
            begun.acquire()
        Page(url).post("/serve/control", {"steps": 3}, headers=TEACHER).raise_for_status()
        own.process.terminate()
        for answer in answers:
            *tokens, rest = answer.result()
            assert [t["index"] for t in tokens] == list(range(30)) and rest[
                "finish_reason"
            ] == "length"
        assert own.process.wait(60) == 0


@pytest.mark.slow
def test_a_second_order_ends_the_page_at_once():
    body = {"model": MODEL, "prompt": ["Hark"] * 64, "max_tokens": 240, "ignore_eos": True}
    own = serve((sys.executable, "app.py", "--live-model", MODEL))
    with own as url, ThreadPoolExecutor(4) as pool:
        page = Page(url)
        answers = [pool.submit(page.post, "/serve/v1/completions", body) for _ in range(4)]
        while page.get("/serve/health").json().get("requests") != 256:
            time.sleep(0.02)
        own.process.terminate()
        while page.get("/serve/health").json()["status"] != "draining":
            time.sleep(0.02)
        refused = page.post("/inflight/live/requests", {"key": "k" * 20, "prompt": "Hark"})
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        own.process.send_signal(signal.SIGINT)
        assert own.process.wait(60) == 0
        for answer in answers:
            with pytest.raises(httpx.TransportError):
                answer.result()


# -- good clients ----------------------------------------------------------------------------------


def solo(prompt: str, sampling: SamplingParams) -> tuple[list[int], str]:
    """Ids and text of a request that runs alone."""
    trace = char_engine().run(Workload([Request("r", prompt=prompt, sampling=sampling)]))
    return trace.outputs["r"], trace.text("r")


def test_openais_own_client_and_fifty_of_them_at_once(page):
    prompts = ["Exeunt " + "and so " * (i % 5) + chr(97 + i % 26) for i in range(50)]
    expected = [
        solo(p, SamplingParams(4 + i % 4, temperature=0.9, seed=i))[1]
        for i, p in enumerate(prompts)
    ]
    base = page.url + "/serve/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=600) as client:
        asked = {
            "model": MODEL,
            "prompt": prompts[3],
            "max_tokens": 7,
            "temperature": 0.9,
            "seed": 3,
        }
        assert client.models.list().data[0].id == MODEL
        assert client.completions.create(**asked).choices[0].text == expected[3]
        assert (
            "".join(c.choices[0].text for c in client.completions.create(**asked, stream=True))
            == expected[3]
        )

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=base, api_key="none", max_retries=0, timeout=600
        ) as client:

            async def one(i: int) -> str:
                asked = {
                    "model": MODEL,
                    "prompt": prompts[i],
                    "max_tokens": 4 + i % 4,
                    "temperature": 0.9,
                    "seed": i,
                }
                if i % 2:
                    return (await client.completions.create(**asked)).choices[0].text
                stream = await client.completions.create(**asked, stream=True)
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*map(one, range(50)))

    assert asyncio.run(all_of_them()) == expected


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_streaming_clients_of_the_page(page):
    """None lost, none answered twice, tokens in order, texts as if alone; meanwhile the page itself
    answers. core/test_serving_load tries five hundred.
    """
    kinds = [
        (
            {
                "prompt": "Exeunt " + chr(97 + i) * (1 + i % 5),
                "max_tokens": 5 + i,
                "temperature": 0.9,
                "seed": i,
            },
            5 + i,
        )
        for i in range(20)
    ]
    alone = [
        solo(body["prompt"], SamplingParams(new, temperature=0.9, seed=body["seed"]))
        for body, new in kinds
    ]

    async def one(body: dict) -> list[dict]:
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
        writer.write(
            ask({**body, "stream": True})
        )  # in one piece: two hundred clients of a library in one process would be slow themselves
        text = (await reader.read()).decode()
        writer.close()
        assert text.startswith("HTTP/1.1 200 ")
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]

    async def everybody() -> list[list[dict]]:
        asked = asyncio.gather(*(one(kinds[i % 20][0]) for i in range(200)))
        assert "Inflight" in (await asyncio.to_thread(page.get, "/")).text
        return await asked

    answers = asyncio.run(everybody())
    assert len({events[-1]["id"] for events in answers}) == len(answers) == 200
    for number, (*tokens, rest) in enumerate(answers):
        ids, text = alone[number % 20]
        assert [t["index"] for t in tokens] == list(range(len(tokens))) and [
            t["token_id"] for t in tokens
        ] == ids
        assert rest["text"] == text and {t["id"] for t in tokens} == {rest["id"]}
