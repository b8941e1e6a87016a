"""What the server refuses, and what a bad client leaves behind: nothing. Each attack ends with a
green `/health` and no lane or block held.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection

import httpx
import pytest
from pydantic import ValidationError

from core.serving.http import schemas
from core.serving.http.guard import same_secret
from core.serving.limits import ServingLimits
from core.serving.listening import server_config
from core.serving.timeouts import Deadline
from worlds.attacks import call, connected, status
from worlds.integrity import check_integrity
from worlds.serving import MODEL, Served, char_engine, listening, served

LIMITS = ServingLimits(
    max_body_bytes=20_480,
    body_s=0.5,
    max_requests=40,
    max_requests_per_client=30,
    max_prompt_tokens=200,
    max_viewers=3,
)
ENDLESS = {"prompt": "O Romeo, ", "max_tokens": 240, "stream": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def server():
    with served(char_engine(max_num_seqs=4, num_blocks=80), LIMITS) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """After every test the server is as it was."""
    yield
    if "server" in request.fixturenames:
        unhurt(request.getfixturevalue("server"))


def unhurt(server: Served) -> None:
    for _ in range(1000):
        health = server.get("/health").json()
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
    check_integrity(server.serving.engine._loop.scheduler)
    assert server.post("/generate", {"prompt": "Hark", "max_tokens": 2}).status_code == 200


def test_a_body_that_is_too_large_announced_or_not(server):
    big = b'{"prompt": "' + b"a" * 30_000 + b'"}'
    answer = server.post("/generate", {"prompt": "a" * 30_000})
    assert (
        answer.status_code == 413
        and answer.json()["error"]["message"] == "A body has at most 20 KiB here."
    )
    with connected(
        server, call(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    ) as made:
        made.sendall(b"%x\r\n%s\r\n" % (len(big), big))
        assert status(made) == 413


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 19_000, 400),
        (b'{"prompt": "\xff"}', 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"prompt": ["a"]}', 400),
        (b'{"prompt": {"a": 1}}', 400),
        (b'{"prompt": "a", "max_tokens": 1e999}', 400),
        (b'{"prompt": "a", "max_tokens": true, "temperature": NaN}', 400),
        (b'{"prompt": "a", "temperature": Infinity}', 400),
        (b'{"prompt": [4, 99999999999999999999999]}', 400),
        (b'{"prompt": [true]}', 400),
        (b'{"prompt": "\\ud800"}', 400),
        (b'{"prompt": "a", "logit_bias": {"%s": 1}}' % (b"9" * 5000), 400),
        (b'{"prompt": "a", "stop": [""]}', 400),
        (b'{"prompt": "a", "seed": -1}', 400),
        (b'{"prompt": "a", "model": "../../etc/passwd"}', 400),
    ],
)
def test_malformed_bodies(server, body, expected):
    with connected(server, call(body)) as made:
        assert status(made) == expected


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_called_that(server, number):
    """1e999 is JSON: a number that is too large."""
    for given, says in (
        (number, "The body is not JSON, or has text that is not Unicode."),
        ("1e999", "temperature must be less than or equal to 100."),
    ):
        body = f'{{"prompt": "a", "temperature": {given}}}'.encode()
        with connected(server, call(body, "Connection: close")) as made:
            assert says in made.makefile().read()


@pytest.mark.parametrize(
    "body",
    [b'{"prompt": "my secret \xed\xa0\x80"}', '{"prompt": "my secret \\ud800"}'.encode("utf-16")],
    ids=["raw", "utf-16"],
)
def test_half_a_character_is_refused_however_it_is_sent_and_nothing_is_quoted(server, body):
    kind = {"content-type": "application/json"}
    found = httpx.post(f"{server.url}/generate", content=body, headers=kind, trust_env=False)
    assert found.status_code == 400 and found.json()["error"]["message"] == (
        "The body is not JSON, or has text that is not Unicode."
    )


def test_a_token_id_that_is_too_long_is_refused_in_a_sentence(server):
    found = server.post("/generate", {"prompt": [10**22]})
    assert found.json()["error"]["message"] == (
        "The prompt's token ids must be a list of whole numbers of at most 18 digits."
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("prompt", [[1]] * 2000, "prompt must have at most 1,024 prompts."),
        ("stop", [1] * 2000, "stop must have at most 1,024 texts."),
        (
            "logit_bias",
            {str(i): "x" for i in range(1100)},
            "logit_bias must have at most 1,024 token ids.",
        ),
        (
            "messages",
            [{"role": "user", "content": "a"}] * 100 + [{"content": [1] * 4000}],
            "messages must have at most 4,096 messages and parts.",
        ),
        (
            "metadata",
            dict.fromkeys("abcdefghijklmnopq", 1),
            "metadata must have at most 16 entries.",
        ),
    ],
)
def test_long_lists_are_refused_before_their_parts_are_looked_at(server, field, value, says):
    """All of it would happen on the event loop, where everybody waits for it; the first fault of
    many is all that is looked for.
    """
    body, path = {"model": MODEL, "prompt": "a"}, "completions"
    if field in ("messages", "metadata"):
        body, path = (
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": "a"}],
            },
            "chat/completions",
        )
    answer = server.post(f"/v1/{path}", {**body, field: value})
    assert answer.status_code == 400 and answer.json()["error"]["message"] == says


def test_of_many_faults_one_is_looked_for():
    unknown = {f"k{i}": 1 for i in range(500)}
    for model, body in (
        (schemas.GenerateBody, {**unknown, "prompt": "a"}),
        (schemas.CompletionBody, {"model": "m", "prompt": "a", "stream_options": unknown}),
        (
            schemas.ChatBody,
            {"model": "m", "messages": [{**unknown, "role": "user", "content": "a"}] * 500},
        ),
    ):
        with pytest.raises(ValidationError) as caught:
            model.model_validate(body)
        (error,) = caught.value.errors()
        assert error["loc"][-1] == "k0" and error["type"] == "extra_forbidden"


def test_a_prompt_beyond_the_limit_is_refused_and_not_quoted(server):
    answer = server.post("/generate", {"prompt": "secret " * 30, "max_tokens": 4})
    assert (
        answer.status_code == 400
        and answer.json()["error"]["message"]
        == "The prompt has at least 210 tokens; at most 200 are taken."
    )
    answer = server.post("/generate", {"prompt": 17, "secret": "secret"})
    assert answer.status_code == 400 and "17" not in answer.text


def test_a_body_of_another_kind_is_refused(server):
    """A form of another page could send it without asking."""
    body = json.dumps({"prompt": "Hark"}).encode()
    with connected(server, call(body).replace(b"application/json", b"text/plain")) as made:
        assert status(made) == 415


def test_a_body_that_comes_slowly_is_given_up(server):
    with connected(server, call(b"x" * 100)[:-90]) as made:
        assert status(made) == 408


SLOW = b"POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: a"


@pytest.mark.slow
def test_headers_that_come_slowly_are_given_up(server):
    for begun in (b"", SLOW):
        with connected(server, begun) as made:
            assert made.recv(4096) == b""  # closed by the server


def test_headers_of_a_later_call_that_come_slowly_are_given_up_too(server):
    with connected(server, b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as made:
        assert status(made) == 200
        made.settimeout(15)  # less than a connection may be idle between two calls
        made.sendall(SLOW)
        while made.recv(4096):
            pass


def test_a_body_that_is_too_large_is_answered_however_long_its_client_goes_on_writing():
    """Closed over what has not been read, the connection would be reset, and most clients would
    never see the answer.
    """
    with served(char_engine(max_num_seqs=4, num_blocks=80), replace(LIMITS, body_s=60)) as server:
        client = HTTPConnection("127.0.0.1", server.port, timeout=120)
        for length in (10**6, 10**7):
            client.request("POST", "/generate", b" " * length, {"content-type": "application/json"})
            told = client.getresponse()
            assert told.status == 413 and b"at most 20 KiB" in told.read()
        connection = client.sock
        for method in ("HEAD", "GET"):  # a load balancer asks for either
            client.request(method, "/health")
            told = client.getresponse()
            assert told.status == 200 and bool(told.read()) == (method == "GET")
        assert client.sock is connection
        client.close()


@pytest.mark.slow
def test_a_call_over_a_kept_connection_is_answered_at_the_moment_it_would_be_closed():
    """The event loop is at another call from when the connection is due until the next call has
    come over it.
    """
    is_due, has_come = threading.Event(), threading.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/busy":
            loop = asyncio.get_running_loop()
            time.sleep(1.1)  # the kept connection is due
            # runs before the loop looks who has written
            loop.call_soon(lambda: (is_due.set(), has_come.wait(30)))
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    config = server_config(app, LIMITS)
    config.timeout_keep_alive = 1
    with (
        listening(config) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as kept,
    ):
        again = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        kept.sendall(again)
        assert status(kept) == 200
        with socket.create_connection(("127.0.0.1", port), timeout=30) as busy:
            busy.sendall(again.replace(b"/ ", b"/busy ", 1))
            assert is_due.wait(30)
            kept.sendall(again)
            has_come.set()
            assert status(kept) == 200
            assert kept.recv(1) == b"", "a connection over which nothing comes is closed"


def test_too_many_calls_at_once_are_refused_and_idle_connections_are_no_calls():
    """uvicorn's own limit counts connections, so that a few hundred idle ones shut everybody out,
    and resets the others over their bodies.
    """
    with (
        served(
            char_engine(max_num_seqs=4, num_blocks=80),
            replace(LIMITS, max_requests=1, max_viewers=1, body_s=30),
        ) as server,
        ExitStack() as stack,
    ):
        for _ in range(8):
            stack.enter_context(
                connected(server, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            ).recv(4096)
        assert server.post("/generate", {"prompt": "Hark", "max_tokens": 1}).status_code == 200
        for _ in range(5):
            stack.enter_context(connected(server, call(b" " * 100)[:-1]))
        refused = (server.post("/generate", {"prompt": "Hark " * 10**4}) for _ in range(500))
        # once the five have been seen
        told = next(told for told in refused if told.status_code == 503)
        assert (
            told.json()["error"]["message"]
            == "Too many calls are under way: try again in a moment."
        )
        assert told.headers["retry-after"] == "1"


def test_a_server_holds_as_many_connections_as_its_system_grants():
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY or most < 256:
        pytest.skip("the system grants any number, or hardly any")
    code = f"""if True:
        import resource
        from core.serving.listening import allow_connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, {most}))
        allow_connections()
        print(resource.getrlimit(resource.RLIMIT_NOFILE))"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == str((min(most, 2**16), most))


@pytest.mark.slow
def test_the_connection_that_is_silent_for_longest_is_closed_for_a_new_one(monkeypatch):
    monkeypatch.setattr("core.serving.listening._most_connections", lambda: 3)
    with served(char_engine(max_num_seqs=4, num_blocks=80), LIMITS) as server, ExitStack() as stack:
        busy = stack.enter_context(connected(server, call(json.dumps(ENDLESS).encode())))
        assert status(busy) == 200
        server.serving.set_pace(0)
        first, second, third = (HTTPConnection("127.0.0.1", server.port) for _ in range(3))

        def ask(client: HTTPConnection) -> None:
            client.request("GET", "/health")
            assert client.getresponse().read()

        for client in (first, second, first, third):
            ask(client)
        with pytest.raises(ConnectionError):
            ask(second)
        second.close()
        ask(first)
        server.serving.set_pace(None)
        while b"finish_reason" not in (answer := busy.recv(2**16)):
            assert answer, "a call under way is not cut off"
        first.close(), third.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sets limits of another process")
def test_silent_connections_make_room_and_a_lack_of_descriptors_is_told_in_a_line(tmp_path):
    import resource

    def limit(soft: int, process: int = 0) -> None:
        resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, 96))

    with (tmp_path / "log").open("w+") as log:
        collector = subprocess.Popen(
            [sys.executable, "-m", "inflight", "collect", "--out", tmp_path / "in", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=lambda: limit(96),
        )
        with collector, ExitStack() as stack:
            stack.callback(collector.terminate)
            port = int(re.search(r":(\d+)/", collector.stdout.readline())[1])

            def logged() -> str:
                log.seek(0)
                return log.read().partition("\n")[2]  # the first line says how to watch

            def answers() -> bool:
                told = httpx.get(f"http://127.0.0.1:{port}/health", timeout=60, trust_env=False)
                return told.json()["status"] == "ok"

            for _ in range(200):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert answers() and logged() == ""
            limit(4, collector.pid)
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            while not logged():
                time.sleep(0.01)
            limit(96, collector.pid)
            assert answers()
        assert logged() == "Too many open files: new connections wait until others are closed.\n"


def test_who_wants_another_protocol_is_answered_and_writes_no_log(server, caplog):
    wants = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert server.get("/health", headers=wants).status_code == 200 and not caplog.records


@pytest.mark.parametrize(
    ("run", "must_be"),
    [("x", "a whole number"), ("9" * 5000, "a whole number of fewer digits")],
)
def test_a_number_that_is_none_is_refused_in_a_sentence(server, run, must_be):
    told = server.get("/session", params={"run": run}).json()["error"]["message"]
    assert told == f"run must be {must_be}."


def test_a_failure_nobody_foresaw_is_answered_and_says_that_the_connection_ends(
    server, monkeypatch
):
    monkeypatch.setattr(type(server.serving), "sessions", property(lambda serving: 1 / 0))
    answer = server.get("/sessions")
    assert (
        answer.status_code == 500
        and answer.json()["error"]["message"] == "Something went wrong in the server."
    )
    assert answer.headers["connection"] == "close"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
def test_a_client_that_takes_nothing_is_given_up():
    """What was written to it, and its descriptor, are free again; nothing else tells of a computer
    that was shut.
    """
    ends = threading.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(2**25), "more_body": True})
        # waits until what was written is taken, or nobody is there
        await send({"type": "http.response.body", "body": b""})
        ends.set()

    with (
        listening(server_config(app, replace(LIMITS, send_s=0.5))) as port,
        socket.socket() as sleeper,
    ):
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", port))
        sleeper.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert ends.wait(60)


def test_clients_write_no_lines_into_the_log():
    """One for each call that is no HTTP, and for each client that takes nothing, filled disks."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]

    async def gives_up(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/bug":
            raise ValueError("a bug of ours")

    with listening(server_config(gives_up, LIMITS)) as port:
        logging.getLogger("uvicorn").addHandler(handler)
        for sent in (b"GET / HTTP/1.1", b"\0" * 99, b"GET /bug HTTP/1.1"):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(sent + b"\r\nHost: a\r\n\r\n")
                while client.recv(4096):
                    pass
        logging.getLogger("uvicorn").removeHandler(handler)
    assert [record.getMessage() for record in records] == ["Exception in ASGI application\n"]


def test_a_server_that_stood_still_does_not_blame_its_client():
    """What arrives while the process itself cannot run came in time; a limit on the clock alone
    would refuse it.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def stalled(coming):
        loop = asyncio.get_running_loop()
        loop.call_later(0.02, lambda: (theirs.send(b"x"), time.sleep(0.3)))
        return await coming(loop.sock_recv(ours, 1))

    async def by_the_clock(coming):
        async with asyncio.timeout(0.2):
            reading = asyncio.ensure_future(coming)
            return await reading

    async def by_listening(coming):
        return await Deadline(0.2).wait_for(coming)

    async def nobody_comes():
        await Deadline(0.1).wait_for(asyncio.sleep(3600))

    with ours, theirs:
        assert asyncio.run(stalled(by_listening)) == b"x"
        with pytest.raises(TimeoutError):
            asyncio.run(stalled(by_the_clock))
        with pytest.raises(TimeoutError):
            asyncio.run(nobody_comes())


def test_half_of_a_call_and_nothing_more(server):
    halves = [
        connected(server, part)
        for part in (b"", b"POST", b"POST /generate HTTP/1.1\r\nHost:", call(b"{" * 50)[:-10])
    ]
    for half in halves:
        half.shutdown(socket.SHUT_WR)
    unhurt(server)
    for half in halves:
        half.close()


def test_headers_cannot_be_smuggled(server):
    for evil in (
        b"X: a\r\n b",
        b"X: \x00",
        b"Content-Length: 5\r\nContent-Length: 50",
        b"Bad Name: x",
    ):
        with connected(
            server, b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n" + evil + b"\r\n\r\n"
        ) as made:
            made.settimeout(5)
            answer = made.recv(4096)
            assert not answer or answer.split(b" ")[1] in (b"400", b"200")
    answer = server.get("/v1/models/x%0d%0aSet-Cookie:%20a=b")
    assert answer.status_code == 404 and "set-cookie" not in answer.headers


@pytest.mark.parametrize(("lengths", "statuses"), [("two", [b"400"]), ("one", [b"400", b"200"])])
def test_a_call_of_two_lengths_hides_no_other(server, lengths, statuses):
    """A proxy that counts by the first would take the second call for a part of its body."""
    hidden = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    data = call(hidden, "Transfer-Encoding: chunked")
    if lengths == "one":
        data = data.replace(b"Content-Length", b"X-Length")
    with connected(server, data) as made:
        said = b"".join(iter(lambda: made.recv(4096), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", said) == statuses


@pytest.mark.parametrize(
    "when", ["at once", "after the headers", "after a token", "half closed", "reset"]
)
@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_at_any_stage(server, when, stream):
    gone = [
        connected(server, call(json.dumps({**ENDLESS, "stream": stream}).encode()))
        for _ in range(6)
    ]
    for made in gone:
        if stream and when in ("after the headers", "after a token", "half closed"):
            made.recv(10 if when == "after the headers" else 4096)
        if when == "half closed":
            made.shutdown(socket.SHUT_WR)
        elif when == "reset":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.close()
        else:
            made.close()
    unhurt(server)
    for made in gone:
        made.close()


def test_a_client_that_reads_nothing_keeps_nobody_waiting():
    limits = ServingLimits(send_s=0.5)
    with served(char_engine(max_num_seqs=2), limits) as server:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect(("127.0.0.1", server.port))
        made.sendall(call(json.dumps({**ENDLESS, "max_tokens": 80}).encode()))
        unhurt(server)
        made.close()


def test_more_requests_than_are_taken_are_told_when_to_come_again(server):
    taken = [connected(server, call(json.dumps(ENDLESS).encode())) for _ in range(30)]
    for made in taken:
        assert status(made) == 200
    answer = server.post("/generate", ENDLESS)
    told = answer.json()["error"]
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    assert told["type"] == "rate_limit_error" and told["message"].startswith(
        "30 of your requests are in progress"
    )
    answer = server.post("/v1/completions", {"model": MODEL, "prompt": ["a"] * 5, "n": 5})
    assert answer.status_code == 429
    for made in taken:
        made.close()


def test_as_many_may_watch_as_the_server_says_and_half_of_them_from_one_address(server):
    asked = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    viewers = [connected(server, asked) for _ in range(2)]
    for made in viewers:
        assert status(made) == 200
    answer = server.get("/events")
    assert answer.status_code == 429 and answer.headers["retry-after"] == "5"
    assert "From your address 2 viewers are connected" in answer.json()["error"]["message"]
    for by, expected in (("127.0.0.2", 200), ("127.0.0.3", 429)):
        viewers.append(connected(server, asked, by))
        assert status(viewers[-1]) == expected
    for made in viewers:
        made.close()


@pytest.mark.slow
def test_a_thousand_connections(server):
    def one(number: int) -> None:
        body = json.dumps(ENDLESS if number % 3 else {"prompt": "Hark", "max_tokens": 2}).encode()
        with connected(server, call(body)[: None if number % 2 else -5]) as made:
            if number % 5 == 0:
                made.recv(100)

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(one, range(1000)))


def test_the_api_key_is_asked_of_every_call_but_health():
    with served(char_engine(), api_key="k" * 40) as server:
        assert server.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/events", "/docs", "/openapi.json", "/nothing"):
            assert server.get(path).status_code == 401, path
        for given in (
            "",
            "Bearer",
            "Bearer wrong",
            "Bearer " + "k" * 39,
            "Bearer " + "k" * 41,
            "Basic " + "k" * 40,
            "Bearer k\u00e9",
        ):
            answer = server.post(
                "/generate", {"prompt": "Hark"}, headers={"authorization": given.encode("latin-1")}
            )
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
        good = {"authorization": "Bearer " + "k" * 40}
        assert (
            server.post("/generate", {"prompt": "Hark", "max_tokens": 1}, headers=good).status_code
            == 200
        )


def test_only_the_teacher_controls():
    with served(char_engine(), teacher_token="t" * 22) as server:
        for token in (None, "", "t" * 21, "t" * 23, "T" * 22):
            answer = server.post(
                "/control",
                {"steps_per_s": 0},
                headers={} if token is None else {"x-teacher-token": token},
            )
            assert answer.status_code == 403 and "t" * 22 not in answer.text
        assert server.get("/health").json()["steps_per_s"] is None
        teacher = {"x-teacher-token": "t" * 22}
        assert server.post("/control", {"steps_per_s": -1}, headers=teacher).status_code == 400
        assert (
            server.post("/control", {"steps_per_s": 500, "steps": 2}, headers=teacher).json()[
                "steps_per_s"
            ]
            == 500
        )
        assert server.post("/generate", {"prompt": "Hark", "max_tokens": 3}).status_code == 200
        assert server.get("/health").json()["steps_per_s"] == 500
    with served(char_engine()) as server:
        assert server.post("/control", {"clear": True}, headers=teacher).status_code == 404


TEACHER = {"x-teacher-token": "t" * 22}
EVENTS = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def taught():
    with served(
        char_engine(max_num_seqs=4, num_blocks=80), LIMITS, teacher_token="t" * 22
    ) as running:
        yield running


@pytest.mark.parametrize(
    "token", ["", "t" * 21, "t" * 23, "T" * 22, "t" * 21 + "\u00e9", "x" * 8000]
)
def test_without_the_teachers_token_nothing_is_set_or_told(taught, token):
    before = taught.serving.engine.config
    headers = {"x-teacher-token": token.encode("latin-1")}
    for asked in (
        {"policy": "static"},
        {"burst": "equal"},
        {"hide_texts": False},
        {"accepting": False},
        {},
    ):
        answer = taught.post("/control", asked, headers=headers)
        assert answer.status_code in (400, 403, 431) and "t" * 22 not in answer.text
    assert taught.get("/control", headers=headers).status_code in (400, 403, 431)
    # texts are hidden
    assert taught.get("/session", headers=headers).status_code in (400, 403, 431)
    health = taught.get("/health").json()
    assert (
        taught.serving.engine.config == before
        and taught.serving.settings.accepting
        and taught.serving.event_log.hidden.texts
    )
    assert health["requests"] == 0
    unhurt(taught)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"policy": "magic"}, "There is no policy 'magic'"),
        ({"policy": "../../etc/passwd"}, "There is no policy"),
        ({"policy": "x" * 99}, "policy"),
        ({"max_num_seqs": -1}, "max_num_seqs must be a whole number"),
        ({"max_num_seqs": 10**6, "max_num_batched_tokens": 10**7}, "lanes are allowed here"),
        ({"when": "never"}, "when"),
        ({"max_num_seqs": True}, "max_num_seqs"),
        ({"max_num_seqs": "3"}, "max_num_seqs"),
        ({"clear": "yes"}, "clear"),
        ({"steps": True}, "steps"),
        ({"burst": "tidal"}, "There is no such burst"),
        ({"steps": 10**9}, "steps"),
        ({"tomfoolery": 1}, "tomfoolery"),
    ],
)
def test_what_a_teacher_cannot_have_is_refused_in_a_sentence(taught, asked, says):
    before = taught.serving.engine.config
    answer = taught.post("/control", asked, headers=TEACHER)
    assert (
        answer.status_code == 400
        and says in answer.json()["error"]["message"]
        and taught.serving.engine.config == before
    )
    unhurt(taught)


@pytest.mark.parametrize(
    "name",
    [
        "x" * 25,
        "x" * 10_000,
        "<script>alert(1)</script>",
        "a\u202eb",
        "\u0000",
        "a\nb",
        "<img src=x onerror=y>",
        "Bot 1",
        "\uff22\uff4f\uff54 1",  # the same in letters of full width
        "\u0412ot 1",  # Cyrillic
        "B\u03bft 1",  # Greek
        "\u13f4\u03bf\u0422 1",  # Cherokee, Greek, Cyrillic
        "B0t l",
    ],
)
def test_a_nickname_that_is_none_is_refused_and_not_repeated(taught, name):
    answer = taught.post("/generate", {"prompt": "Hark", "max_tokens": 2, "nickname": name})
    assert answer.status_code == 400 and name not in answer.json()["error"]["message"]
    unhurt(taught)


def test_names_alone_may_be_hidden(taught):
    for hidden in (True, False):
        asked = {"hide_nicknames": hidden}
        assert taught.post("/control", asked, headers=TEACHER).json()["hide_nicknames"] is hidden


def test_a_teacher_stops_everybody_and_clears_the_engine(taught):
    with ThreadPoolExecutor(1) as pool:
        assert taught.post("/control", {"steps_per_s": 0}, headers=TEACHER).status_code == 200
        asks = pool.submit(taught.post, "/generate", {"prompt": "Hark", "max_tokens": 9})
        while not taught.serving.engine.has_work:
            time.sleep(0.001)
        assert taught.post("/control", {"clear": True}, headers=TEACHER).status_code == 200
        assert asks.result(60).json()["finish_reason"] == "cancelled"
    asked = {"steps_per_s": None}
    assert taught.post("/control", asked, headers=TEACHER).json()["steps_per_s"] is None
    unhurt(taught)


@pytest.mark.slow
def test_a_flood_of_orders_leaves_an_engine_that_serves(taught):
    """Of the teacher's own and of others', all at once, while people ask."""
    orders = [
        {"policy": "static", "max_num_seqs": 2},
        {"policy": "continuous", "max_num_seqs": 4, "when": "idle"},
        {"burst": "equal"},
        {"clear": True},
        {"hide_texts": True, "hide_nicknames": True},
        {"steps_per_s": 1000.0, "steps": 3},
        {"accepting": False},
        {"accepting": True},
    ]

    def one(number: int) -> int:
        if number % 4 == 0:
            return taught.post("/generate", {"prompt": "Hark", "max_tokens": 5}).status_code
        headers = TEACHER if number % 2 else {"x-teacher-token": "guess"}
        return taught.post("/control", orders[number % len(orders)], headers=headers).status_code

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(one, range(240)))
    assert answers <= {200, 403, 429, 503} and {200, 403} <= answers
    taught.post(
        "/control",
        {"clear": True, "accepting": True, "steps_per_s": None},
        headers=TEACHER,
    )
    unhurt(taught)


@pytest.mark.slow
def test_viewers_that_stall_or_leave_at_any_stage_slow_nobody(taught):
    stalled = []
    for _ in range(2):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect(("127.0.0.1", taught.port))
        made.sendall(EVENTS)  # and reads nothing
        stalled.append(made)
    for rest in (b"", EVENTS[:20], EVENTS):
        with connected(taught, rest) as made:
            if rest == EVENTS:
                made.recv(100)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(3):
        assert (
            taught.post(
                "/generate", {"prompt": "Hark", "max_tokens": 200, "ignore_eos": True}
            ).json()["finish_reason"]
            == "length"
        )
    unhurt(taught)
    for made in stalled:
        made.close()


@pytest.mark.parametrize("when", ["held back", "in a burst", "while it changes"])
def test_disconnects_around_a_change_leave_nothing_behind(taught, when):
    taught.post("/control", {"steps_per_s": 0}, headers=TEACHER)
    gone = [
        connected(taught, call(json.dumps({**ENDLESS, "nickname": f"n{i}"}).encode()))
        for i in range(8)
    ]
    for made in gone:
        assert status(made) == 200
    taught.post(
        "/control",
        {"steps": 1, **({"burst": "equal"} if when == "in a burst" else {})},
        headers=TEACHER,
    )
    taught.post(
        "/control",
        {"policy": "static" if when != "in a burst" else "split", "max_num_seqs": 3},
        headers=TEACHER,
    )
    if when == "held back":
        for made in gone[4:]:
            made.close()
    taught.post("/control", {"steps_per_s": None}, headers=TEACHER)
    for made in gone:
        made.close()
    unhurt(taught)
    assert taught.get("/control", headers=TEACHER).json()["changing"] is False


def test_secrets_are_compared_whole():
    assert same_secret("abc", "abc") and same_secret("é", "é")
    assert (
        not same_secret("abd", "abc")
        and not same_secret("", "abc")
        and not same_secret("abcd", "abc")
        and not same_secret("é", "e")
    )


def test_pages_of_other_origins_may_not_read_answers_unless_told():
    origin = {"origin": "https://elsewhere.example"}
    with served(char_engine()) as server:
        assert "access-control-allow-origin" not in server.get("/v1/models", headers=origin).headers
    with served(char_engine(), cors_origins=(origin["origin"],)) as server:
        assert (
            server.get("/v1/models", headers=origin).headers["access-control-allow-origin"]
            == origin["origin"]
        )
        other = server.get("/v1/models", headers={"origin": "https://third.example"})
        assert "access-control-allow-origin" not in other.headers


def test_logs_hold_no_prompt(caplog):
    from core.serving.engine import ServingEngine

    class Refusing(ServingEngine):
        """A bug of ours in the middle of a call."""

        def receive(self, *client, **options):
            raise TypeError("a bug of ours")

    with caplog.at_level("DEBUG"), served(char_engine()) as server:
        server.post("/generate", {"prompt": "my secret", "max_tokens": 2})
        server.post("/generate", {"prompt": "my secret", "max_tokens": 0})
        server.serving.__class__ = Refusing
        answer = server.post("/generate", {"prompt": "my secret", "max_tokens": 2})
        assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
    told = [
        r.getMessage() for r in caplog.records if r.name.startswith(("inflight", "uvicorn", "core"))
    ]
    assert not any("my secret" in message for message in told)
