"""A page that strangers can reach: what it answers, what it keeps shut, what it says of itself, and
how it ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route

from core.config import SMOLLM2
from core.serving.limits import ServingLimits
from core.serving.listening import server_config
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.torch_engine.models.tokenizer import describe_model
from core.workload.presets import PRESETS
from visualizer.jobs.limits import HERE, check, check_tokens
from visualizer.jobs.offers import preset_entry, presets
from visualizer.page.engine_files import ISOLATED
from visualizer.server.limits import SPACE, limits, names_of
from visualizer.server.middleware import SafeAnswers, address_of
from visualizer.server.routes import _visitor
from worlds.page_server import begin, follow, last_of, serve, state
from worlds.serving import listening
from worlds.visitors import endless, spec


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)
def test_every_preset_and_every_default_of_compare_runs_on_a_space(preset, request, monkeypatch):
    if preset.model == SMOLLM2:
        monkeypatch.setenv("INFLIGHT_MODELS_DIR", request.getfixturevalue("users_models"))
    here = limits({"SPACE_ID": "me/it"})
    asked, described = check(preset_entry(preset)["spec"], here), describe_model(preset.model)
    for policy in dict.fromkeys((preset.config.policy.name, "static", "continuous")):
        engine = SimulatedEngine(
            cost_named("h100:124m"),
            asked.config.under(policy),
            described.tokenizer,
            vocab_size=described.vocab_size,
            max_model_len=described.context,
        )
        steps = sum(1 for _ in engine.stream(asked.workload))
        check_tokens(engine.trace.prompts, asked.workload, here)
        assert steps <= here.steps, f"{preset.name} takes {steps} steps under {policy}"


def test_a_preset_is_offered_where_its_model_runs():
    offered = {preset["name"] for preset in presets(SPACE)}
    assert offered == {name for name, preset in PRESETS.items() if preset.model != SMOLLM2}
    assert {preset["name"] for preset in presets(HERE)} == PRESETS.keys()
    fetched = replace(SPACE, offered=(*SPACE.offered, SMOLLM2))
    assert {preset["name"] for preset in presets(fetched)} == PRESETS.keys()


@pytest.mark.slow
def test_a_space_brings_the_model_that_answers(tmp_path, users_packed):
    """Not what is made of it for tabs, which takes long: that is there."""
    (packed,) = Path(users_packed).glob(f"{SMOLLM2}-*.gz")
    shutil.copy(packed, tmp_path)
    (tmp_path / "no-folder").touch()
    for folder, offered in ((tmp_path, True), (tmp_path / "no-folder", False)):
        with (
            serve(SPACE_ID="me/it", INFLIGHT_MODELS_DIR=str(folder)) as url,
            httpx.Client() as http,
        ):
            assert (SMOLLM2 in state(http, url)["models"]) == offered


def test_where_strangers_can_ask_the_smaller_limits_hold():
    assert limits({}, "127.0.0.1") == limits({}, None) == HERE
    assert limits({}, "0.0.0.0") == limits({}, "192.168.1.7") == SPACE
    assert limits({}, "0.0.0.0", trusted=True) == HERE
    assert limits({"SPACE_ID": "me/it"}, "127.0.0.1", trusted=True) == SPACE


@pytest.mark.parametrize(
    ("host", "is_behind", "trusted", "expected"),
    [
        ("127.0.0.1", False, False, ("127.0.0.1", "class.example")),
        ("0.0.0.0", False, False, ("0.0.0.0", "class.example")),
        ("0.0.0.0", False, True, ("0.0.0.0", "class.example")),
        ("127.0.0.1", False, True, None),
        ("127.0.0.1", True, False, None),
        ("0.0.0.0", True, False, None),
    ],
)
def test_a_page_knows_its_names_unless_a_proxy_has_others(host, is_behind, trusted, expected):
    assert names_of(host, ["class.example"], is_behind, trusted) == expected


@pytest.mark.slow
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
        (True, "::ffff:8.8.8.8", "8.8.8.8"),
        (True, "1.2.3.4, 8.8.8.8:4321", "8.8.8.8"),
        (True, "1.2.3.4, [2a00:1450:4001:810::200e]:443", "2a00:1450:4001:810::/64"),
    ],
)
def test_an_address_is_that_of_the_visitor(behind_proxy, forwarded, found):
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 1234)})
    assert address_of(behind_proxy)(request) == found


def test_nobody_can_name_itself_as_the_visitor_at_another_address():
    assert _visitor("at 8.8.8.8", "9.9.9.9") != _visitor(None, "8.8.8.8")
    assert _visitor("me", "9.9.9.9") == _visitor("me", "8.8.8.8") != _visitor("", "8.8.8.8")


@pytest.mark.slow  # it waits the five seconds that a reader is given
def test_a_run_that_nobody_reads_gives_its_place_back(page_url, http):
    asked = endless()
    assert "job" in begin(http, page_url, "run", asked, "unread")
    while "still running" in (answer := begin(http, page_url, "run", spec(), "unread")).get(
        "error", ""
    ):
        time.sleep(0.2)
    assert last_of(follow(http, page_url, answer["job"]))["url"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "gradio_api/call/lessons"),
        ("POST", "gradio_api/queue/join"),
        ("GET", "gradio_api/heartbeat/me"),
        ("GET", "gradio_api/info"),
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
        ("GET", "static/..%2f..%2fetc%2fpasswd"),  # which Gradio forbids in a word
        ("GET", "static/" + "a" * 300),  # a name too long for a disk
        ("POST", "inflight/nowhere"),
        ("DELETE", "inflight/jobs/a"),  # there for another method
        ("GET", "inflight/live/nowhere"),
        ("PUT", "inflight/live/requests"),  # there for others
        ("GET", "inflight/story/nothing.woff2"),
        ("GET", "inflight/story/LICENSE"),  # beside the fonts
        ("GET", "engine/0/nothing.js"),
    ],
)
def test_what_the_page_does_not_use_is_shut(page_url, http, method, path):
    answer = http.request(method, f"{page_url}/{path}")
    assert answer.status_code == 404 and answer.json() == {
        "error": "There is nothing at this address."
    }


def test_what_fails_unforeseen_is_answered_in_a_sentence_and_its_connection_lives_on(caplog):
    """uvicorn closes a connection over which an exception came: a client that writes its next call
    is told of a reset.
    """

    async def fails(request):
        raise OSError(24, "Too many open files")

    async def left(request):
        await request.body()

    routes = [Route("/inflight/{name}", fails), Route("/embed", left, methods=["POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(SafeAnswers)])
    with (
        listening(server_config(app, ServingLimits())) as port,
        httpx.Client(trust_env=False, base_url=f"http://127.0.0.1:{port}") as client,
    ):
        for _ in range(3):
            told = client.get("/inflight/a")
            assert told.status_code == 500 and told.json() == {
                "error": "Something went wrong in the server."
            }
            assert "connection" not in told.headers
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(
                b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type:"
                b" application/json\r\nContent-Length: 9\r\n\r\nhalf"
            )
        client.get("/inflight/a")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "a call to /inflight/a failed"
    ] * 4


@pytest.mark.parametrize(
    "path", ["inflight/jobs", "inflight/uploads", "inflight/live/requests", "inflight/call/lessons"]
)
def test_a_page_of_another_site_sends_nothing_here(page_url, http, path):
    """A visitor's browser would send a body of plain text for any site, and reaches what that site
    cannot: a page at home.
    """
    for site in ("cross-site", "same-site"):
        answer = http.post(
            f"{page_url}/{path}",
            content=b'{"kind": "run"}',
            headers={"sec-fetch-site": site, "content-type": "text/plain"},
        )
        assert answer.status_code == 403 and answer.json() == {
            "error": "Pages of other sites may not do this."
        }
        assert http.get(page_url, headers={"sec-fetch-site": site}).status_code == 200, (
            "links lead here"
        )
    own = http.post(f"{page_url}/inflight/jobs", json={}, headers={"sec-fetch-site": "same-origin"})
    assert own.status_code == 200


@pytest.mark.slow
def test_a_page_answers_to_no_name_that_others_gave_it(page_url, space_url, http):
    """A site whose name is made to point to this machine would be of the same origin as this
    page.
    """
    for host in (
        "evil.example",
        "evil.example:7860",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "",
    ):
        answer = http.get(f"{page_url}/inflight/state", headers={"host": host})
        assert answer.status_code == 403 and "--allow-host" in answer.json()["error"]
    for host in (
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:7860",
        "[::1]:7860",
        "192.168.1.20:7860",
        "teacher.local",
        "teacher:7860",
    ):
        assert http.get(f"{page_url}/inflight/state", headers={"host": host}).status_code == 200
    assert (
        http.get(f"{space_url}/inflight/state", headers={"host": "me-it.hf.space"}).status_code
        == 200
    )


@pytest.mark.slow
def test_a_page_answers_to_the_names_that_its_owner_allows(http):
    command = (sys.executable, "app.py", "--allow-host", "class.example")
    with serve(command) as url:
        for host, status in (("class.example", 200), ("127.0.0.1", 200), ("evil.example", 403)):
            answer = http.get(f"{url}/inflight/state", headers={"host": host})
            assert answer.status_code == status, host


@pytest.mark.slow
def test_a_page_in_a_network_is_read_by_no_other_site(page_url, http):
    """Gradio lets every origin read a page that is not called localhost, and browsers tell such a
    page nothing but the origin.
    """
    here = {"host": "192.168.1.20:7860"}
    for origin in ("http://evil.example", "http://192.168.1.20", "null"):
        for path in ("inflight/state", "serve/session", "config"):
            answer = http.get(f"{page_url}/{path}", headers=here | {"origin": origin})
            assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
        asks_first = here | {"origin": origin, "access-control-request-method": "POST"}
        answer = http.options(f"{page_url}/inflight/jobs", headers=asks_first)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
        answer = http.post(
            f"{page_url}/inflight/uploads", content=b"x", headers=here | {"origin": origin}
        )
        assert answer.status_code == 403
    own = here | {"origin": "http://192.168.1.20:7860"}
    assert (
        "url"
        not in http.post(
            f"{page_url}/inflight/uploads",
            content=b"x",
            headers=own | {"content-type": "text/plain"},
        ).json()
    )
    assert http.post(f"{page_url}/inflight/jobs", json={}, headers=own).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""],
)
def test_a_body_of_a_type_that_forms_have_is_not_json(page_url, http, kind):
    for path in (
        "inflight/jobs",
        "inflight/call/lessons",
        "inflight/live/requests",
        "serve/generate",
    ):
        answer = http.post(
            f"{page_url}/{path}",
            content=b'{"data": []}',
            headers={"content-type": kind} if kind else {},
        )
        assert answer.status_code == 415 and "application/json" in answer.text


def test_every_answer_says_what_a_browser_may_do_with_it(page_url, http):
    for path in ("", "config", "inflight/files/none.json"):
        headers = http.get(f"{page_url}/{path}").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self' https://huggingface.co" in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]
        assert (
            ISOLATED.items() <= {name.title(): value for name, value in headers.items()}.items()
        )  # threads of the visitor's tab may share memory


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_run_ends_at_once_without_an_abort(http, tmp_path):
    """And whoever watches the run is told how far it came."""
    page = serve(TMPDIR=str(tmp_path))
    with page as url:
        job = begin(http, url, "run", spec(new=400), "me")["job"]
        deltas = follow(http, url, job)
        next(d for d in deltas if d.get("events"))
        assert list(tmp_path.glob("inflight-*"))
        asked = time.monotonic()
        page.process.send_signal(signal.SIGINT)
        *_, last = deltas
        assert last["stopped"].startswith("The run was cancelled after ")
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
    assert (
        isinstance(answer["error"], str)
        and answer["error"].endswith(".")
        and len(answer["error"]) < 400
    )


@pytest.mark.parametrize(
    "path", ["inflight/call/lessons", "inflight/jobs", "inflight/live/requests"]
)
def test_megabytes_of_brackets_are_refused_before_anybody_parses_them(page_url, http, path):
    """They are small to send, and took half a minute in which nobody else was served."""
    body = b'{"data": [[' + b"[]," * 2_000_000 + b"[]]]}"
    answer = http.post(
        f"{page_url}/{path}", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413 and "A body has at most" in answer.json()["error"]


@pytest.mark.parametrize(
    "body", [b"null", b"[]", b"{", b"[" * 100_000, b"\xff", b'{"kind": "run"}']
)
def test_odd_bodies_are_refused_in_a_sentence(page_url, http, body):
    answer = http.post(
        f"{page_url}/inflight/jobs", content=body, headers={"content-type": "application/json"}
    )
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dance", []),
        ("state", []),
        ("call", ["lessons", ["en"]]),
        ("cancel", [{}]),
        ("lessons", None),
        ("lessons", "en"),
        ("lessons", []),
        ("lessons", ["x" * 4000]),
        ("lesson_file", ["x" * 2000, "plan", "x" * 2000]),
        ("lesson_check", ["x" * 2000, "x" * 2000, "x" * 2000]),
        ("open_comparison", ["x" * 4000]),
        ("x" * 200, []),
        ("model", [{"model": "x" * 2000, "device": "x" * 2000, "dtype": "x" * 2000}]),
        ("model", [{"model": "x" * 4000}]),
        ("export", ["x" * 4000, "y" * 2000, 1]),
        ("export", ["plotly", "y", 10**400]),
        ("export", ["plotly", "y", True]),
        ("export", ["plotly", "y", float("nan")]),
        ("open_comparison", [[]]),
        ("open_comparison", [{"a": 1}]),
        ("export", [{}, [], {}]),
        ("export", ["plotly", None, "x"]),
        ("attention", [{}, "a", None, [], {}]),
        ("lessons", [{}]),
        ("lesson_file", ["a\0b", "teacher", "en"]),
        ("lesson_file", ["y" * 300, "teacher", "en"]),
        ("lesson_file", [{}, [], "../en"]),
    ],
)
def test_odd_calls_are_answered_in_words(page_url, http, name, arguments):
    """In one sentence, which repeats at most a few dozen characters of what was sent."""
    body, kind = json.dumps({"args": arguments}), {"content-type": "application/json"}
    answer = http.post(f"{page_url}/inflight/call/{name}", content=body, headers=kind)
    said = answer.json()
    assert (
        answer.status_code == 200
        and list(said) == ["error"]
        and said["error"].endswith(".")
        and len(said["error"]) < 300
    )


def test_a_space_keeps_to_its_own_models(space_url, http):
    for model in ("gpt2", "/etc", "../models"):
        assert (
            "its own models only"
            in begin(http, space_url, "run", spec() | {"model": model})["error"]
        )


def test_addresses_of_recorded_runs_survive_a_restart(page_url, space_url, http):
    """Two pages that were started apart name them alike."""
    first, second = (state(http, url)["catalogue"] for url in (page_url, space_url))
    assert [e["url"] for e in first] == [e["url"] for e in second]
    gone = httpx.get(f"{page_url}/inflight/files/{'0' * 20}.json", trust_env=False)
    assert (
        gone.status_code == 404
        and "may have been restarted: reload the page" in gone.json()["error"]
    )
