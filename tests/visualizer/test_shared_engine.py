"""The page's process serves the engine too: loaded when first asked for, behind the page's own
bounds; where a class finds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from core.policy import POLICIES
from core.torch_engine.models.cache import ModelCache
from core.workload.demo_workloads import house_prompts
from visualizer.jobs.limits import HERE
from visualizer.page.tabs import options
from visualizer.server.limits import SPACE
from visualizer.server.shared_engine import PACE, SharedEngine, class_address, is_loopback, qr_code
from worlds.page_server import ROOT, serve

TOKEN = {"x-teacher-token": "t" * 22}


@pytest.fixture(scope="module")
def beginning() -> Iterator[tuple[str, dict]]:
    """A page whose engine has served one request, and its settings then."""
    with (
        serve(INFLIGHT_TEACHER_TOKEN="t" * 22) as url,
        httpx.Client(timeout=120, trust_env=False) as client,
    ):
        client.post(
            f"{url}/serve/generate", json={"prompt": "Hark", "max_tokens": 2}
        ).raise_for_status()
        yield url, client.get(f"{url}/serve/control", headers=TOKEN).raise_for_status().json()


@pytest.fixture(scope="module")
def page(beginning: tuple[str, dict]) -> str:
    url, _ = beginning
    httpx.post(
        f"{url}/serve/control",
        json={"steps_per_s": None},
        headers=TOKEN,
        timeout=120,
        trust_env=False,
    ).raise_for_status()
    return url


@pytest.mark.slow
def test_the_engine_is_served_beside_the_page_and_its_session_opens_as_an_upload(page, http):
    said = http.post(
        f"{page}/serve/generate", json={"prompt": "O Romeo, ", "max_tokens": 8, "nickname": "Ann"}
    ).json()
    assert len(said["token_ids"]) == 8 and said["finish_reason"] == "length"
    health = http.get(f"{page}/serve/health").json()
    assert health["status"] == "ok" and health["requests"] == health["kv_blocks_used"] == 0
    models = http.get(f"{page}/serve/v1/models").json()["data"]
    assert [m["id"] for m in models] == [health["model"]]
    trace = http.get(f"{page}/serve/session").text
    texts = {
        r["request"]: "".join(r["output"])
        for r in map(json.loads, trace.splitlines())
        if r.get("kind") == "texts"
    }
    assert texts[said["id"]] == said["text"]
    answer = http.post(f"{page}/inflight/uploads", content=trace.encode()).text
    assert '"url"' in answer and "error" not in answer


@pytest.mark.slow
def test_it_starts_at_a_pace_that_can_be_watched_and_joined(beginning):
    _, settings = beginning
    assert settings["steps_per_s"] == PACE


@pytest.mark.slow
def test_viewers_are_told_texts_until_the_teacher_hides_them(page, http):
    def messages() -> list[dict]:
        with http.stream("GET", f"{page}/serve/events") as answer:
            data = next(line for line in answer.iter_lines() if line.startswith("data: "))
        return json.loads(data[6:])

    http.post(f"{page}/serve/generate", json={"prompt": "Hark", "max_tokens": 2, "nickname": "Bob"})
    assert "Bob" in [m["nickname"] for m in messages() if m["kind"] == "request"]
    state = http.post(
        f"{page}/serve/control", json={"hide_texts": True, "hide_nicknames": True}, headers=TOKEN
    ).json()
    assert state["hide_texts"] and state["hide_nicknames"]
    hidden = messages()
    assert not any(m["nickname"] or m["prompt_token_ids"] for m in hidden if m["kind"] == "request")
    assert not any(
        row[2] is not None for m in hidden if m["kind"] == "step" for row in m["sampled"]
    )
    assert http.get(f"{page}/serve/session").status_code == 403
    assert http.get(f"{page}/serve/session", headers=TOKEN).status_code == 200
    http.post(
        f"{page}/serve/control", json={"hide_texts": False, "hide_nicknames": False}, headers=TOKEN
    )


@pytest.mark.slow
def test_the_pages_bounds_hold_for_the_engine_too(page, http):
    for path in ("serve/docs", "serve/", "serve", "serve/v1", "serve/anything"):
        assert http.get(f"{page}/{path}").status_code == 404, path
    answer = http.get(f"{page}/serve/health")
    assert (
        "default-src 'self'" in answer.headers["content-security-policy"]
        and "access-control-allow-origin" not in answer.headers
    )
    assert (
        http.post(
            f"{page}/serve/generate",
            content=b"x" * 2**21,
            headers={"content-type": "application/json"},
        ).status_code
        == 413
    )
    assert (
        http.post(
            f"{page}/serve/generate", content=b"{}", headers={"content-type": "text/plain"}
        ).status_code
        == 415
    )
    assert (
        http.post(
            f"{page}/serve/control", json={"clear": True}, headers={"x-teacher-token": "no"}
        ).status_code
        == 403
    )
    told = http.get(f"{page}/inflight/class").json()
    # the code would lead every phone to itself
    assert told["address"].startswith("http://127.0.0.1:") and told["qr"] is None


def test_without_an_engine_there_is_nothing_at_its_addresses(http, space_url):
    """A Space does not let strangers share one unless it is told to."""
    assert http.get(f"{space_url}/serve/health").status_code == 404


@pytest.mark.slow
def test_on_a_space_one_visitor_takes_no_other_visitors_places():
    """All come from the proxy's address there; which visitor it is stands in a header of the
    proxy's.
    """
    ask = {"prompt": "Hark", "max_tokens": 20}
    with (
        serve(INFLIGHT_TEACHER_TOKEN="t" * 22, INFLIGHT_LIVE="1", SPACE_ID="me/it") as url,
        ExitStack() as open_,
    ):
        client = open_.enter_context(
            httpx.Client(base_url=f"{url}/serve", timeout=120, trust_env=False)
        )
        client.post("/control", json={"steps_per_s": 0}, headers=TOKEN).raise_for_status()

        def asked(visitor: str) -> int:
            headers = {"x-forwarded-for": visitor}
            return open_.enter_context(
                client.stream("POST", "/generate", json={**ask, "stream": True}, headers=headers)
            ).status_code

        most = SPACE.shared_requests_of_one
        assert [asked("8.8.8.8") for _ in range(most + 1)] == [200] * most + [429]
        assert asked("9.9.9.9") == 200


@pytest.mark.slow
def test_the_page_is_made_without_torch_and_the_engine_with_the_first_call():
    code = (
        "import sys, asyncio\n"
        "from core.torch_engine.models.cache import ModelCache\n"
        "from visualizer.jobs.limits import HERE\n"
        "from visualizer.server.shared_engine import SharedEngine\n"
        "shared = SharedEngine('shakespeare-char', ModelCache(), HERE)\n"
        "routes = shared.routes()\n"
        "print('torch' in sys.modules)\n"
        "serving = shared.serving()\n"
        "print('torch' in sys.modules, serving is shared.serving(), serving.name)\n"
        "serving.close()\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ)
    ).stdout
    assert said == "False\nTrue True shakespeare-char\n"


def test_a_model_that_cannot_be_had_is_told_in_a_sentence_and_asked_for_again():
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    shared = SharedEngine("/no/such/model", ModelCache(), HERE)
    client = TestClient(Starlette(routes=shared.routes()))
    for _ in range(2):
        answer = client.get("/serve/health")
        assert answer.status_code == 503 and answer.json()["error"]["message"].endswith(".")


@pytest.mark.slow
def test_viewers_of_an_engine_that_makes_room_are_shown_the_one_that_comes():
    """Even before that is there; and nothing once the page closes."""
    shared = SharedEngine("shakespeare-char", ModelCache(), HERE)
    assert shared._successor() is None
    with shared._changing:  # as while a teacher shares another model
        coming = shared._successor()
    assert coming is not None and shared._successor() is coming
    coming.close()


@pytest.mark.slow
def test_an_engine_that_was_lost_to_a_bug_is_replaced_for_everybody(monkeypatch):
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    shared = SharedEngine("shakespeare-char", ModelCache(), HERE)
    client = TestClient(Starlette(routes=shared.routes()))
    assert client.get("/serve/health").json()["status"] == "ok"
    lost = shared.serving()
    monkeypatch.setattr(lost._thread, "_recover", lambda error: 1 / 0)
    lost._thread.send(lambda: 1 / 0)
    lost._thread.join()
    # the thread of Live, whose log has ended, asks for the next one
    while not lost._draining:
        time.sleep(0.01)
    assert client.get("/serve/health").json()["status"] == "ok"
    assert shared.serving() is not lost
    shared.close()


@pytest.mark.parametrize(
    ("local", "shared", "host", "environment", "found"),
    [
        ("http://127.0.0.1:7860/", None, None, {}, "http://127.0.0.1:7860/#part=live"),
        ("http://127.0.0.1:7860/", None, "192.168.1.5", {}, "http://192.168.1.5:7860/#part=live"),
        (
            "http://localhost:7860/room/",
            None,
            "fd00::5",
            {},
            "http://[fd00::5]:7860/room/#part=live",
        ),
        (
            "http://localhost:7860/",
            "https://x.gradio.live",
            "0.0.0.0",
            {},
            "https://x.gradio.live/#part=live",
        ),
        (
            "http://localhost:7860/",
            None,
            "0.0.0.0",
            {"SPACE_HOST": "me-it.hf.space"},
            "https://me-it.hf.space/#part=live",
        ),
    ],
)
def test_where_a_class_finds_it(local, shared, host, environment, found):
    assert class_address(local, shared, host, environment) == found


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_everywhere_the_class_is_told_this_machines_address(host, monkeypatch):
    """Gradio calls it localhost, which is every visitor's own machine."""
    monkeypatch.setattr("visualizer.server.shared_engine.lan_address", lambda: "10.1.2.3")
    assert (
        class_address("http://localhost:7860/", None, host, {}) == "http://10.1.2.3:7860/#part=live"
    )


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://localhost:7860/#part=live", True),
        ("http://127.0.0.2:7860/", True),
        ("http://[::1]:7860/", True),
        ("http://192.168.1.5:7860/#part=live", False),
        ("http://127.example.org/", False),
        ("https://me-it.hf.space/#part=live", False),
    ],
)
def test_which_addresses_lead_every_machine_to_itself(address, found):
    assert is_loopback(address) == found


def test_the_picture_of_the_address_is_one_svg_without_script():
    picture = qr_code("http://192.168.1.5:7860/#part=live")
    assert (
        picture.startswith("<svg")
        and picture.count("<svg") == 1
        and "script" not in picture
        and "viewBox" in picture
    )


@pytest.mark.parametrize(
    ("model", "prompt", "tokens", "temperature"),
    [
        ("shakespeare-char", house_prompts("shakespeare-char", False)[0] + " ", 40, 0.8),
        ("gpt2", house_prompts("gpt2", False)[0] + " ", 40, 0.8),
        ("smollm2", house_prompts("smollm2", True)[0], 150, 0.0),
    ],
)
def test_the_form_suggests_what_suits_the_model(model, prompt, tokens, temperature):
    """The beginning of a text ends in a space, so that the next word follows."""
    given = SharedEngine(model, ModelCache(), HERE).options
    assert given["suited"] == {"prompt": prompt, "tokens": tokens, "temperature": temperature}
    assert given["prompts"] == house_prompts(model, model == "smollm2")[:3]
    assert [of["name"] for of in given["policies"]] == list(POLICIES)


def test_a_page_has_the_live_tab_where_there_is_an_engine_and_write_where_code_can_run():
    paths = {name: Path(f"{name}.js") for name in ("compare", "learn", "live", "write")}
    paths |= {name: Path(f"{name}.gz") for name in ("plotly", "codemirror")}
    bare = options(paths, str)
    shared = options(paths, str, live={"token": "t"})
    whole = options(paths, str, live={}, engine={"engine": "e.js"})
    assert set(bare) == {"compare", "learn"} and set(shared) == {*bare, "live"}
    assert set(whole) == {*shared, "write"}
    for made, names, lacks in (
        (bare, ["watch", "compare", "learn", "write", "story"], True),
        (shared, ["watch", "compare", "live", "learn", "write", "story"], True),
        (whole, ["watch", "compare", "live", "learn", "write", "story"], None),
    ):
        for page_part in made.values():
            tabs = page_part["options"]["tabs"]
            assert [tab["name"] for tab in tabs] == names and tabs[-2].get("lacks") is lacks


def test_a_token_of_any_characters_stands_in_its_link_as_the_page_reads_it():
    shared = SharedEngine("shakespeare-char", ModelCache(), HERE, "a&b#c%+d")
    link = shared.announce("http://localhost:7860/", None, "127.0.0.1").rpartition(" ")[2]
    assert parse_qs(urlsplit(link).fragment)["teacher"] == ["a&b#c%+d"]
