"""A page that strangers can reach: what it answers, what it keeps shut, what it says of itself, and how it ends."""

from __future__ import annotations

import signal
import socket
import time

import httpx
import pytest
from starlette.requests import Request

from core.models.tokenizer import describe_model
from core.simulate.cost import cost_named
from core.simulate.engine import SimulatedEngine
from core.workload.presets import PRESETS
from visualizer.jobs.limits import HERE, check, check_tokens
from visualizer.jobs.offers import preset_entry
from visualizer.server.limits import SPACE, limits
from visualizer.server.middleware import address_of
from worlds.page_server import begin, call, follow, last_of, serve
from worlds.visitors import endless, spec


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)
def test_every_preset_and_every_default_of_compare_runs_on_a_space(preset):
    asked, described = check(preset_entry(preset)["spec"], SPACE), describe_model(preset.model)
    for policy in dict.fromkeys((preset.config.policy.name, "static", "continuous")):
        engine = SimulatedEngine(
            cost_named("h100:124m"),
            asked.config.under(policy),
            described.tokenizer,
            vocab_size=described.vocab_size,
            max_model_len=described.context,
        )
        steps = sum(1 for _ in engine.stream(asked.workload))
        check_tokens(engine.trace.prompts, asked.workload, SPACE)
        assert steps <= SPACE.steps, f"{preset.name} takes {steps} steps under {policy}"


def test_where_strangers_can_ask_the_smaller_limits_hold():
    assert limits({}, "127.0.0.1") == limits({}, None) == HERE
    assert limits({}, "0.0.0.0") == limits({}, "192.168.1.7") == SPACE
    assert limits({}, "0.0.0.0", trusted=True) == HERE
    assert limits({"SPACE_ID": "me/it"}, "127.0.0.1", trusted=True) == SPACE


def test_a_tunnel_that_gradio_opens_by_itself_lets_strangers_in(monkeypatch):
    from visualizer.ui import is_shared

    assert not is_shared(None) and is_shared(True)
    monkeypatch.setenv("GRADIO_SHARE", "True")
    assert is_shared(None) and not is_shared(False)


@pytest.mark.parametrize(
    ("behind_proxy", "forwarded", "found"),
    [
        (False, "8.8.8.8", "10.0.0.1"),
        (True, "", "10.0.0.1"),
        (True, "8.8.8.8", "8.8.8.8"),
        (True, "1.2.3.4, 8.8.8.8, 10.1.2.3", "8.8.8.8"),
        (True, "2a00:1450:4001:810::200e", "2a00:1450:4001:810::/64"),
        (True, "<script>", "10.0.0.1"),
    ],
)
def test_an_address_is_that_of_the_visitor(behind_proxy, forwarded, found):
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 1234)})
    assert address_of(behind_proxy)(request) == found


@pytest.mark.slow  # it waits the five seconds that a reader is given
def test_a_run_that_nobody_reads_gives_its_place_back(page_url, http):
    """However it is asked for."""
    asked = endless()
    assert "event_id" in http.post(f"{page_url}/gradio_api/call/run", json={"data": [{**asked, "visitor": "unread"}]}).json()
    assert "job" in begin(http, page_url, "run", asked, "unread too")
    call(http, page_url, "state")  # Gradio's queue has begun the first by then
    for visitor in ("unread", "unread too"):
        while "still running" in (answer := begin(http, page_url, "run", spec(), visitor)).get("error", ""):
            time.sleep(0.2)
        assert last_of(follow(http, page_url, answer["job"]))["url"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "gradio_api/upload"),
        ("POST", "gradio_api/process_recording"),
        ("GET", "gradio_api/proxy=https://huggingface.co/x"),
        ("GET", "gradio_api/file=app.py"),
        ("GET", "gradio_api/file=/etc/passwd"),
        ("POST", "gradio_api/run/state"),
        ("POST", "gradio_api/component_server"),
        ("GET", "monitoring"),
        ("GET", "gradio_api/runs"),
        ("GET", "manifest.json"),
        ("GET", "pwa_icon/512"),  # which Gradio makes at any size
        ("GET", "static/" + "a" * 300),  # a name too long for a disk
    ],
)
def test_what_the_page_does_not_use_is_shut(page_url, http, method, path):
    answer = http.request(method, f"{page_url}/{path}")
    assert answer.status_code == 404 and answer.json() == {"error": "There is nothing at this address."}


@pytest.mark.parametrize("path", ["inflight/jobs", "inflight/uploads", "inflight/live/requests", "gradio_api/call/state"])
def test_a_page_of_another_site_sends_nothing_here(page_url, http, path):
    """A visitor's browser would send a body of plain text for any site, and reaches what that site cannot: a page at home."""
    for site in ("cross-site", "same-site"):
        answer = http.post(
            f"{page_url}/{path}", content=b'{"kind": "run"}', headers={"sec-fetch-site": site, "content-type": "text/plain"}
        )
        assert answer.status_code == 403 and answer.json() == {"error": "Pages of other sites may not do this."}
        assert http.get(page_url, headers={"sec-fetch-site": site}).status_code == 200, "links lead here"
    own = http.post(f"{page_url}/inflight/jobs", content=b"{}", headers={"sec-fetch-site": "same-origin"})
    assert own.status_code == 200


def test_a_page_at_home_answers_to_no_name_that_others_gave_it(page_url, space_url, http):
    """A site whose name is made to point to this machine would be of the same origin as this page."""
    for host in ("evil.example", "evil.example:7860", "127.0.0.1.evil.example", "[::2]:80", ""):
        answer = http.get(f"{page_url}/inflight/state", headers={"host": host})
        assert answer.status_code == 403 and "answers to localhost" in answer.json()["error"]
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:7860", "[::1]:7860"):
        assert http.get(f"{page_url}/inflight/state", headers={"host": host}).status_code == 200
    assert http.get(f"{space_url}/inflight/state", headers={"host": "me-it.hf.space"}).status_code == 200


def test_every_answer_says_what_a_browser_may_do_with_it(page_url, http):
    for path in ("", "config", "inflight/files/none.json"):
        headers = http.get(f"{page_url}/{path}").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self' https://huggingface.co" in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_run_ends_at_once_without_an_abort(http, tmp_path):
    page = serve(TMPDIR=str(tmp_path))
    with page as url:
        job = begin(http, url, "run", spec(new=400), "me")["job"]
        next(d for d in follow(http, url, job) if d.get("events"))
        assert list(tmp_path.glob("inflight-*"))
        asked = time.monotonic()
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(30) == 0
        print(f"Ctrl-C took {time.monotonic() - asked:.2f} s")
    assert not list(tmp_path.glob("inflight-*"))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("run", {"config": {"num_blocks": 2**31 - 1, "block_size": 1}}),
        ("run", {"config": {"policy": {"policy": []}}}),
        ("run", {"config": {"policy": ["a"]}}),
        ("run", {"workload": []}),
        ("run", {"workload": {"requests": {}}}),
        ("run", {"workload": {"requests": [None]}}),
        ("run", {"device": {}}),
        ("fork", {"knob": "policy", "value": ["a"]}),
        ("fork", {"knob": ["policy"], "value": "static"}),
        ("fork", {"knob": "num_blocks", "value": {}}),
        ("compare", {"policies": [["static"]]}),
        ("compare", {"policies": {}}),
        ("compare", {"policies": ["static"], "repeats": None}),
        ("equivalence", {"leak": None}),
        (["run"], {}),
        ({}, {}),
    ],
)
def test_odd_jobs_are_refused_in_a_sentence(page_url, http, kind, change):
    answer = begin(http, page_url, kind, spec() | change)
    assert isinstance(answer["error"], str) and answer["error"].endswith(".") and len(answer["error"]) < 400


@pytest.mark.parametrize("path", ["gradio_api/call/cancel", "gradio_api/queue/join", "inflight/jobs", "inflight/live/requests"])
def test_megabytes_of_brackets_are_refused_before_anybody_parses_them(page_url, http, path):
    """They are small to send, and took half a minute in which nobody else was served."""
    body = b'{"data": [[' + b"[]," * 2_000_000 + b"[]]]}"
    answer = http.post(f"{page_url}/{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "A body has at most" in answer.json()["error"]


def test_slow_files_of_one_address_keep_nobody_else_waiting(space_url, http):
    """Behind a Space's proxy, which names the address last; what stands before it a visitor wrote."""

    def sent(address: str) -> str:
        return http.post(f"{space_url}/inflight/uploads", content=b"x", headers={"x-forwarded-for": address}).json()["error"]

    slow = [socket.create_connection(("127.0.0.1", int(space_url.rsplit(":")[-1])), timeout=120) for _ in range(4)]
    for made in slow:
        head = "POST /inflight/uploads HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 8.8.8.8\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        made.sendall(head.encode())
        assert made.recv(100).startswith(b"HTTP/1.1 100 "), "its body is waited for"
        made.sendall(b"slowly")
    for address in ("8.8.8.8", "9.9.9.9, 8.8.8.8"):
        assert sent(address) == "4 of your files are already being opened: try again in a moment."
    for address in ("9.9.9.9", "8.8.8.8, 9.9.9.9"):
        assert "cannot be opened as a trace" in sent(address)
    for made in slow:
        made.close()
    until = time.monotonic() + 60
    while "already" in sent("8.8.8.8"):
        assert time.monotonic() < until, "they are gone, and still counted"


@pytest.mark.parametrize("body", [b"null", b"[]", b"{", b"[" * 100_000, b"\xff", b'{"kind": "run"}'])
def test_odd_bodies_are_refused_in_a_sentence(page_url, http, body):
    answer = http.post(f"{page_url}/inflight/jobs", content=body)
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cancel", [{}]),
        ("cancel", [None]),
        ("open_comparison", [[]]),
        ("open_comparison", [{"a": 1}]),
        ("export", [{}, [], {}]),
        ("export", ["plotly", None, "x"]),
        ("attention", [{}, "a", None, [], {}]),
        ("lessons", [{}]),
        ("lesson_file", ["a\0b", "plan", "en"]),
        ("lesson_file", ["y" * 300, "teacher", "en"]),
        ("lesson_file", [{}, [], "../en"]),
    ],
)
def test_odd_calls_are_answered_in_words(page_url, http, name, arguments):
    event = http.post(f"{page_url}/gradio_api/call/{name}", json={"data": arguments}).json()["event_id"]
    text = http.get(f"{page_url}/gradio_api/call/{name}/{event}").text
    assert "event: complete" in text and "Traceback" not in text and '"error": null' not in text


def test_a_space_keeps_to_its_own_models(space_url, http):
    for model in ("gpt2", "/etc", "../models"):
        assert "its own models only" in begin(http, space_url, "run", spec() | {"model": model})["error"]


def test_addresses_of_recorded_runs_survive_a_restart(page_url, space_url, http):
    """Two pages that were started apart name them alike."""
    first, second = (call(http, url, "state")["catalogue"] for url in (page_url, space_url))
    assert [e["url"] for e in first] == [e["url"] for e in second]
    gone = httpx.get(f"{page_url}/inflight/files/{'0' * 20}.json", trust_env=False)
    assert gone.status_code == 404 and "may have been restarted: reload the page" in gone.json()["error"]
