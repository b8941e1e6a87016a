"""The page's HTTP API, as the player uses it: runs, refusals, uploads, exports, many visitors."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from core.config import POLICIES
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import RANKED, RUNS
from worlds import page_server
from worlds.page_server import begin, call, follow, last_of, run
from worlds.visitors import endless, spec


def test_the_state_names_what_can_be_run(page_url, http):
    state = page_server.state(http, page_url)
    assert [p["name"] for p in state["presets"]] == list(PRESETS)
    assert {"shakespeare-bpe", "shakespeare-char"} == set(state["models"])
    assert state["limits"]["steps"] and [p["name"] for p in state["policies"]] == list(POLICIES)
    assert [e["name"] for e in state["catalogue"]] == [*RUNS, *RANKED]


def test_a_run_streams_and_leaves_a_replay(page_url, http):
    deltas = list(run(http, page_url, spec()))
    events = [e for d in deltas for e in d.get("events", ())]
    last = deltas[-1]
    replay = http.get(f"{page_url}/{last['url']}").raise_for_status().json()
    assert (
        replay["events"] == events and replay["complete"] and replay["header"]["source"] == "live"
    )
    assert [c for d in deltas for c in d.get("captions", ())] == replay["captions"]
    assert all(
        s.kv_len == s.start + s.length for e in map(StepEvent.from_json, events) for s in e.segments
    )
    assert (
        http.get(f"{page_url}/{last['url']}").headers["content-type"].startswith("application/json")
    )


def test_a_second_run_of_a_visitor_is_told_and_a_cancel_ends_the_first(page_url, http):
    first = run(http, page_url, endless(), "twice")
    job = next(first)["job"]
    with httpx.Client(trust_env=False, timeout=60) as other:
        assert "still running" in begin(other, page_url, "run", spec(), "twice")["error"]
        assert other.post(f"{page_url}/inflight/jobs/{job}/cancel").json() == {"cancelled": True}
    assert last_of(first)["stopped"].startswith("The run was cancelled")
    assert last_of(run(http, page_url, spec(), "twice"))["url"]


def test_a_closed_tab_does_not_hold_its_visitor_up(page_url, http):
    with httpx.Client(trust_env=False, timeout=60) as tab:
        stream_of_tab = run(tab, page_url, endless(), "closing")
        job = next(d for d in stream_of_tab if d.get("events"))["job"]
        stream_of_tab.close()
    while "still running" in (last := last_of(run(http, page_url, spec(), "closing"))).get(
        "error", ""
    ):
        time.sleep(0.1)
    assert last["url"] and last_of(follow(http, page_url, job))["stopped"].startswith(
        "The run was cancelled"
    )


@pytest.mark.slow
def test_a_run_is_found_again_after_a_reload(page_url, http):
    with httpx.Client(trust_env=False, timeout=60) as tab:
        before = run(tab, page_url, spec(new=200), "reloading")
        job = next(d for d in before if d.get("events"))["job"]
        before.close()
    deltas = list(follow(http, page_url, job))
    assert deltas[-1]["url"]
    assert list(follow(http, page_url, job, start=len(deltas) - 2)) == deltas[-2:]
    gone = http.get(f"{page_url}/inflight/jobs/of-another-server")
    assert gone.status_code == 404 and "may have been restarted" in gone.json()["error"]


@pytest.mark.slow
def test_forty_visitors_at_once_are_all_served(page_url):
    def visit(number: int) -> tuple[dict, list[int]]:
        with httpx.Client(trust_env=False, timeout=300) as own:
            prompt = f"visitor {'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}"
            deltas = list(run(own, page_url, spec(prompt, new=3), f"v{number}"))
            seen = next(d for d in deltas if d.get("texts", {}).get("prompt"))
            assert "".join(seen["texts"]["prompt"]["r0"]) == prompt
            return deltas[-1], [
                d["progress"]["ahead"] for d in deltas if "ahead" in d.get("progress", {})
            ]

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(visit, range(40)))
    assert all(last.get("url") and "error" not in last for last, _ in answers)
    assert all(ahead == sorted(ahead, reverse=True) for _, ahead in answers)


def upload(http, url: str, text: str) -> dict:
    return http.post(f"{url}/inflight/uploads", content=text.encode()).json()


@pytest.mark.slow
def test_a_saved_trace_opens_and_a_broken_one_says_why(page_url, http):
    lines = "\n".join(Trace.load("assets/traces/chunk-7-by-4.jsonl").lines())
    opened = upload(http, page_url, lines + "\n")
    assert http.get(f"{page_url}/{opened['url']}").json()["header"]["source"] == "uploaded"
    cut = upload(http, page_url, lines.rsplit("\n", 1)[0])
    assert (
        http.get(f"{page_url}/{cut['url']}")
        .json()["header"]["notes"][-1]
        .startswith("This file breaks off")
    )
    for text, words in (
        (re.sub(r'"t_end":', '"t_end":9', lines, count=1), "line 3"),
        ("hello", "line 1: this is no trace"),
        ('{"traceEvents": []}', "line 1"),
        ("", "line 1"),
        ("[" * 100_000, "line 1"),
        ("\x00\x01", "line 1"),
    ):
        assert words in upload(http, page_url, text)["error"]


@pytest.mark.slow
def test_an_upload_beyond_the_limit_is_refused_before_it_is_read(page_url, http):
    def flood():
        for _ in range(200):
            yield b"x" * 2**20

    for body in ({"content": flood()}, {"content": b"x" * (40 * 2**20)}):
        try:
            answer = http.post(f"{page_url}/inflight/uploads", **body)
            assert answer.status_code == 413 and "at most 32,768 KiB" in answer.json()["error"]
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # the server answered and hung up while we were still sending
    assert page_server.state(http, page_url)["presets"]


@pytest.mark.parametrize("kind", ["jsonl", "perfetto", "html", "plotly"])
def test_a_finished_run_can_be_taken_away(page_url, http, kind):
    last = last_of(run(http, page_url, spec()))
    answer = call(http, page_url, "export", kind, last["url"], 2)
    content = http.get(f"{page_url}/{answer['url']}").raise_for_status()
    assert answer["name"] and len(content.content) > 1000


def test_the_real_attention_of_a_head_can_be_asked_for(page_url, http):
    last = last_of(run(http, page_url, spec()))
    first, *_ = call(http, page_url, "attention", last["url"], 1, 0, 0, 0)["segments"]
    assert first["request"] == "r0" and abs(sum(first["weights"][0]) - 1) < 0.01
    assert "no layer 99" in call(http, page_url, "attention", last["url"], 1, 0, 99, 0)["error"]
    assert "no longer on the server" in call(http, page_url, "attention", "x", 1, 0, 0, 0)["error"]


def test_what_a_page_sends_in_error_is_answered_in_words(page_url, http):
    assert (
        "no longer on the server"
        in call(http, page_url, "export", "jsonl", "../../app.py", 0)["error"]
    )
    assert "no export" in call(http, page_url, "export", "exe", "x", 0)["error"]
    assert begin(http, page_url, "run", "please")["error"].startswith(
        "A run is asked for as an object"
    )
    assert "ask by name" in begin(http, page_url, "dance", {})["error"]
    assert "with a spec" in begin(http, page_url, "compare", None)["error"]
    assert http.get(f"{page_url}/gradio_api/file=/etc/passwd").status_code == 404
    assert http.get(f"{page_url}/gradio_api/file=app.py").status_code == 404


def test_hostile_prompts_travel_as_data(page_url, http):
    prompt = "<img src=x onerror=alert(1)>\x00 ‮😀 {{7*7}} ${alert(1)} ../../x"
    asked = spec(prompt, new=4) | {"model": "shakespeare-bpe"}
    asked["workload"]["requests"][0]["id"] = "../../<b>\x00"
    last = last_of(run(http, page_url, asked))
    replay = http.get(f"{page_url}/{last['url']}").json()
    assert "".join(replay["texts"]["prompt"]["../../<b>\x00"]) == prompt
    assert ".." not in last["url"] and "<" not in last["url"]
    page = http.get(
        f"{page_url}/{call(http, page_url, 'export', 'html', last['url'], 0)['url']}"
    ).text
    assert "<img src=x" not in page and "<b>" not in page.split('type="application/json">')[1]


@pytest.mark.slow
def test_steps_appear_while_the_run_goes_on(page_url, http):
    """Not all at its end: the first ones are here before the last one has happened, by the run's
    own clock.
    """
    last_of(run(http, page_url, spec()))  # the model is loaded
    arrived: list[float] = []
    # when a step was here, when it had ended on the run's clock
    seen: list[tuple[float, float]] = []
    for delta in run(http, page_url, spec("To be", "O", "What", new=120), times=arrived):
        seen += [(arrived[-1], event["t_end"]) for event in delta.get("events", ())]
    origin = min(here - ended for here, ended in seen)  # the run began then, or later
    assert seen[0][0] < origin + seen[-1][1]


def test_a_public_space_serves_the_smaller_limits(http, space_url):
    state = page_server.state(http, space_url)
    assert state["limits"]["concurrent_runs"] == 2 and not state["any_model"]
    assert (
        "asks for 400 new tokens; this page takes at most 320."
        in begin(http, space_url, "run", spec(new=400))["error"]
    )


def test_two_threads_do_not_mix(page_url):
    found: dict[str, dict] = {}

    def one(name: str) -> None:
        with httpx.Client(trust_env=False, timeout=120) as own:
            found[name] = own.get(
                f"{page_url}/{last_of(run(own, page_url, spec(name, new=5), name))['url']}"
            ).json()

    threads = [threading.Thread(target=one, args=(name,)) for name in ("Juliet", "Tybalt")]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert {n: "".join(r["texts"]["prompt"]["r0"]) for n, r in found.items()} == {
        "Juliet": "Juliet",
        "Tybalt": "Tybalt",
    }
