"""Who may call through a browser: a page's own origin, under names that nobody elsewhere can give
this machine.
"""

from __future__ import annotations

import re
import socket

import httpx
import pytest

from core.serving.http.sites import Sites
from worlds.serving import MODEL, Served, char_engine, served

ASKED = {"model": MODEL, "prompt": "Hark", "max_tokens": 1}


@pytest.fixture(scope="module")
def server():
    with served(char_engine(), names=("GPU.school.example.",)) as running:  # as it may be typed
        yield running


def post(server: Served, **headers: str) -> httpx.Response:
    return server.post(
        "/v1/completions",
        ASKED,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "192.168.1.20:8000", "origin": "http://192.168.1.20:8000"},
        {"host": "[fd00::2]:8000", "origin": "http://[fd00::2]:8000"},
        {"host": "Teacher.local", "origin": "http://teacher.local"},
        {"host": "teacher.local.", "origin": "http://teacher.local."},
        {"host": "teacher.lan", "origin": "http://teacher.lan"},
        {"host": "teacher:8000", "origin": "http://teacher:8000"},
        # a proxy has taken TLS off
        {"host": "gpu.school.example", "origin": "https://gpu.school.example"},
        {"host": "gpu.school.example:443", "origin": "https://gpu.school.example"},
        {
            "host": "127.0.0.1:8000",
            "x_forwarded_host": "class.example",
            "origin": "http://class.example",
        },
        {
            "host": "127.0.0.1:8000",
            "sec_fetch_site": "same-origin",
            "origin": "https://class.example",
        },
        {"host": "localhost:8000", "sec_fetch_site": "none"},
        {"host": "llm.example.org"},  # an SDK, which names no origin
        {"host": "evil.example:8000", "content_type": "application/json"},
    ],
    ids=str,
)
def test_a_page_of_its_own_and_what_is_no_browser_may_post(server, headers):
    assert post(server, **headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "192.168.1.20:8000", "origin": "http://192.168.1.21:8000"},
        {"host": "192.168.1.20:8000", "origin": "http://192.168.1.20:8001"},
        {"host": "192.168.1.20", "origin": "http://192.168.1.20:8000"},
        {"host": "192.168.1.20:8000", "origin": "null"},
        {"host": "192.168.1.20:8000", "origin": "ftp://192.168.1.20:8000"},
        {"host": "192.168.1.20:8000", "origin": "http://[::1"},
        {"host": "192.168.1.20:8000", "origin": "http://192.168.1.20:x"},
        {"host": "192.168.1.20:8000", "origin": "http://evil.example"},
        {"host": "localhost:8000", "sec_fetch_site": "cross-site"},
        {
            "host": "localhost:8000",
            "sec_fetch_site": "cross-site",
            "origin": "http://localhost:8000",
        },
        {
            "host": "localhost:8000",
            "sec_fetch_site": "same-site",
            "origin": "http://localhost:3000",
        },
    ],
    ids=str,
)
def test_a_page_of_another_site_neither_posts_nor_reads(server, headers):
    answer = post(server, **headers)
    assert (
        answer.status_code == 403
        and answer.json()["error"]["message"] == "Pages of other sites may not do this."
    )
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    if "origin" in headers:
        asked = {name.replace("_", "-"): value for name, value in headers.items()}
        assert server.get("/events", headers=asked).status_code == 403
        before = httpx.options(
            f"{server.url}/v1/completions",
            headers=asked | {"access-control-request-method": "POST"},
            trust_env=False,
        )
        assert before.status_code == 403 and "access-control-allow-origin" not in before.headers


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "evil.example.",
        "[::",
        "a@b.c",
    ],
)
def test_a_name_that_others_may_own_is_not_answered_to_browsers(server, host):
    """A page whose name is made to point here is of the same origin: it may read everything, unless
    its name is refused.
    """
    for path in ("/v1/models", "/events", "/session", "/metrics"):
        answer = server.get(path, headers={"host": host})
        assert answer.status_code == 403 and "--allow-host" in answer.json()["error"]["message"], (
            path
        )
    assert post(server, host=host, origin=f"http://{host}").status_code == 403
    assert server.get("/health", headers={"host": host}).status_code == 200, (
        "a load balancer knows its own name for it"
    )


def test_it_answers_to_the_name_that_its_machine_has(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu7.school.example")
    found = [
        Sites(names=names).refusal(_get("gpu7.school.example"))
        for names in ((), ("other.example",), None)
    ]
    assert found == ["", "", ""] and "--allow-host" in Sites(names=()).refusal(
        _get("gpu8.school.example")
    )


def _get(host: str) -> dict:
    return {"type": "http", "method": "GET", "headers": [(b"host", host.encode())]}


def test_every_such_refusal_is_counted(server):
    def counted() -> int:
        found = re.search(
            r'^inflight:http_refusals_total\{status="403"\} (\d+)',
            server.get("/metrics").text,
            re.MULTILINE,
        )
        return int(found[1]) if found else 0

    before = counted()
    post(server, host="evil.example", origin="http://evil.example")
    server.get("/v1/models", headers={"host": "evil.example"})
    assert counted() == before + 2


def test_a_key_is_as_good_as_a_name_and_origins_may_be_let_in():
    key = {"authorization": "Bearer secret"}
    with served(char_engine(), api_key="secret", cors_origins=("https://chat.example",)) as server:
        assert server.get("/v1/models", headers=key | {"host": "llm.example"}).status_code == 200
        origin = {"origin": "https://chat.example"}
        answer = server.post(
            "/v1/completions", ASKED, headers=key | origin | {"sec-fetch-site": "cross-site"}
        )
        assert (
            answer.status_code == 200
            and answer.headers["access-control-allow-origin"] == origin["origin"]
        )
        assert (
            server.post(
                "/v1/completions", ASKED, headers=key | {"origin": "https://third.example"}
            ).status_code
            == 403
        )
    with served(char_engine(), cors_origins=("*",)) as server:
        assert (
            server.get("/v1/models", headers={"origin": "https://third.example"}).status_code == 200
        )
