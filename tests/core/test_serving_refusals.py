"""What a refusal says besides its sentence, that each is counted, and what is just within the
bounds and is taken.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import httpx
import pytest

from core.errors import TooManyRequests
from core.serving.engine_thread import ClassSettings
from core.serving.http.app import create_app
from core.serving.limits import Places, ServingLimits
from core.serving.listening import server_config
from worlds.attacks import call, connected, status
from worlds.serving import MODEL, Served, char_engine, listening, served

MOST = 2048
LIMITS = ServingLimits(max_body_bytes=MOST, body_s=0.5, max_requests=8, max_requests_per_client=4)
KEY = {"authorization": "bearer secret"}  # a scheme may be written so
HARK = {"model": MODEL, "prompt": "Hark", "max_tokens": 1}


@pytest.fixture(scope="module")
def server():
    with served(char_engine(), LIMITS, api_key="secret") as running:
        yield running


@pytest.fixture(scope="module")
def taught():
    with served(char_engine(), teacher_token="teach") as running:
        running.post("/generate", {"prompt": "Hark", "max_tokens": 1})  # a session to be saved
        yield running


def ask(server: Served, **more):
    return server.post("/v1/completions", HARK | more, headers=KEY)


def counted(server: Served) -> Counter[str]:
    metrics = server.get("/metrics", headers=KEY).text
    return Counter(
        {
            code: int(float(n))
            for code, n in re.findall(
                r'^inflight:http_refusals_total\{status="(\d+)"\} (\S+)', metrics, re.MULTILINE
            )
        }
    )


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_as_many_bytes_as_are_taken_is_read(server, chunked):
    for size, expected in ((MOST, 200), (MOST + 1, 413)):
        body = json.dumps(HARK).encode().ljust(size)
        head = (
            call(body, "Authorization: Bearer secret")
            .removesuffix(body)
            .replace(b"/generate", b"/v1/completions")
        )
        if chunked:
            head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
        with connected(server, head + body) as made:
            assert status(made) == expected


def test_the_type_of_a_body_is_read_as_http_writes_it(server):
    for kind, expected in (("Application/JSON; charset=utf-8", 200), ("application/jsonl", 415)):
        asked = {"content-type": kind} | KEY
        assert server.post("/v1/completions", HARK, headers=asked).status_code == expected
        pieces = iter([json.dumps(HARK).encode()])  # without a length
        address = f"{server.url}/v1/completions"
        assert httpx.post(address, content=pieces, headers=asked).status_code == expected


def test_a_packed_body_is_refused_as_such(server):
    packed = gzip.compress(json.dumps(HARK).encode())
    for coding, expected in (("gzip", 415), ("identity", 200)):
        asked = {"content-type": "application/json", "content-encoding": coding} | KEY
        body = packed if coding == "gzip" else json.dumps(HARK).encode()
        answer = httpx.post(f"{server.url}/v1/completions", content=body, headers=asked)
        assert answer.status_code == expected
        assert ("must not be compressed" in answer.text) == (expected == 415)


def test_every_refusal_has_its_type_code_and_headers_and_is_counted(server):
    before = counted(server)
    found = server.get("/v1/completions", headers=KEY)
    assert (found.status_code, found.headers["allow"], found.json()["error"]["message"]) == (
        405,
        "POST",
        "This address takes POST, not GET.",
    )
    found = server.post("/v1/responses", HARK, headers=KEY)
    assert (found.status_code, found.json()["error"]["message"]) == (
        404,
        "There is no such address here; openapi.json lists those that there are.",
    )
    found = ask(server, model="another")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "model_not_found")
    found = ask(server, n=5)
    told = found.json()["error"]
    assert (found.status_code, told["type"], told["code"]) == (
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
    )
    assert found.headers["retry-after"] == "1"
    # by its schema, by the engine, before it is read, and whoever has no key
    for more, headers, status_code in (
        ({"temperature": "hot"}, {}, 400),
        ({"max_tokens": 4097}, {}, 400),
        ({}, {"content-type": "text/plain"}, 415),
        ({}, {"authorization": "bearer secre"}, 401),
    ):
        found = server.post("/v1/completions", HARK | more, headers=KEY | headers)
        assert found.status_code == status_code, found.text
    server.serving.set_class(ClassSettings(accepting=False))
    found = ask(server)
    server.serving.set_class(ClassSettings())
    assert (found.status_code, found.json()["error"]["type"], found.headers["retry-after"]) == (
        503,
        "server_error",
        "5",
    )
    with connected(server, call(b"x" * 100, "Authorization: Bearer secret")[:-90]) as made:
        answer = made.recv(65536).lower()
        assert answer.startswith(b"http/1.1 408 ") and b"\r\nconnection: close\r\n" in answer
    assert counted(server) - before == Counter(
        {"405": 1, "404": 2, "429": 1, "400": 2, "415": 1, "401": 1, "503": 1, "408": 1}
    )


def test_what_fails_unforeseen_is_answered_in_a_sentence_counted_and_ends_its_connection(server):
    """uvicorn closes a connection over which an exception came: a client is told before it writes
    its next call.
    """

    def fails() -> None:
        raise OSError(24, "Too many open files")

    app, before = create_app(server.serving), counted(server)
    app.add_api_route("/fails", fails)
    with listening(server_config(app, LIMITS)) as port:
        found = httpx.get(f"http://127.0.0.1:{port}/fails", trust_env=False)
    told = found.json()["error"]
    assert (found.status_code, told["type"], told["message"]) == (
        500,
        "server_error",
        "Something went wrong in the server.",
    )
    assert found.headers["connection"] == "close" and counted(server) - before == Counter(
        {"500": 1}
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "says"),
    [
        ("GET", "/session?run=7", None, 404, "Run 7 is not kept."),
        ("POST", "/control", {"system": "Be brief."}, 400, "The model has no chat template, so"),
        ("POST", "/control", {"burst": "tidal"}, 400, "There is no such burst; there are"),
        ("POST", "/control", {"steps": 1001}, 400, "steps must be less than or equal to 1000."),
        ("POST", "/control", {"steps": -1}, 400, "steps must be greater than or equal to 0."),
        ("POST", "/control", {"max_num_seqs": 0}, 400, "max_num_seqs must be"),
        ("POST", "/v1/completions", HARK | {"best_of": 2}, 400, "best_of is not supported here"),
    ],
)
def test_what_is_not_here_is_refused_by_name(taught, method, path, body, code, says):
    teacher = {"X-Teacher-Token": "teach"}
    answer = httpx.request(method, taught.url + path, json=body, headers=teacher, trust_env=False)
    assert answer.status_code == code and answer.json()["error"]["message"].startswith(says)


def test_one_session_is_saved_at_a_time(taught):
    teacher = {"headers": {"X-Teacher-Token": "teach"}}
    with ThreadPoolExecutor(2) as pool:
        with taught.serving._saving:
            both = [pool.submit(taught.get, "/session", **teacher) for _ in range(2)]
            (refused,), (waits,) = wait(both, 60, FIRST_COMPLETED)
            answer = refused.result()
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
        assert "Somebody else is saving the session" in answer.text
        assert waits.result().status_code == 200
    for headers in ({}, {"X-Teacher-Token": "no"}):
        answer = taught.get("/session", headers=headers)
        assert answer.status_code == 403 and "Texts are hidden here" in answer.text


def test_a_name_too_long_to_be_a_fields_is_not_repeated(server):
    for length, param in ((100, "x" * 100), (101, None)):
        told = ask(server, **{"x" * length: 1}).json()["error"]
        assert told["param"] == param and told["message"].startswith(
            param or "A field is not supported here"
        )


def test_a_place_that_is_given_back_twice_frees_no_other():
    places = Places(ServingLimits(max_requests=3, max_requests_per_client=2))
    first, second = places.take("a", 2)
    for most in (lambda: places.take("a"), lambda: places.take("b", 2)):
        with pytest.raises(TooManyRequests):
            most()
    for _ in range(3):
        first.free()
    assert places.num_taken == 1
    with pytest.raises(TooManyRequests, match="1 of your requests"):
        places.take("a", 2)
    places.take("a")
    second.free()
    assert places.num_taken == 1
