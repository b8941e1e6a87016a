"""What people take away says what ran: JSON lines, Perfetto, one HTML page, a step as a figure."""

from __future__ import annotations

import json

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core import Workload
from core.config import EngineConfig
from core.errors import InflightError
from core.simulate.engine import SimulatedEngine
from core.simulate.roofline import Roofline
from core.trace.mask import Position
from core.trace.phrases import letter, letters
from core.trace.trace import Trace
from visualizer.charts.step_figure import _reason, step_figure
from visualizer.charts.theme import HUES, deal
from visualizer.jobs.limits import HERE
from visualizer.page.site import export_site
from visualizer.page.step import PLOTLY, step_page
from visualizer.server.api import Server
from visualizer.server.middleware import address_of
from visualizer.server.recorded_runs import promise_recorded_runs
from visualizer.server.routes import routes
from visualizer.server.store import Store
from worlds.figures import drawn
from worlds.sites import some
from worlds.small import requests
from worlds.visual import record, request


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path, 2**24, lambda path: f"file={path}")


def trace(policy: str = "continuous", **limits) -> Trace:
    config = EngineConfig(
        **{"policy": policy, "max_num_seqs": 3, "max_num_batched_tokens": 10, "block_size": 4}
        | limits
    )
    return record(config, request("r0", 5, 6), request("r1", 12, 9), request("r2", 7, 4, 2))


def opened(answer: dict) -> str:
    with open(answer["url"].removeprefix("file="), encoding="utf-8") as file:
        return file.read()


def test_the_trace_comes_back_as_it_was(store: Store, tmp_path):
    ran = trace()
    kept = store.put(ran)
    answer = store.export("jsonl", kept["url"])
    again = Trace.load(answer["url"].removeprefix("file="))
    assert (again.header, again.asked, again.events, again.complete) == (
        ran.header,
        ran.asked,
        ran.events,
        ran.complete,
    )
    assert answer["name"].endswith(".jsonl")
    assert store.export("jsonl", kept["id"]) == answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "picture"),
    [
        ("", "picture.png"),
        ("https://example.org/runs", "https://example.org/runs/picture.png"),
        ("https://example.org/runs/", "https://example.org/runs/picture.png"),
    ],
)
def test_a_preview_finds_the_picture_where_the_site_is_served(tmp_path, url, picture):
    """And without all of its runs there is no story."""
    first = export_site(tmp_path / "site", *some(tmp_path, "brief-sequential"), url)
    assert not [*first.parent.glob("story*"), *first.parent.glob("watch*")]
    assert f'property="og:image" content="{picture}"' in first.read_text(encoding="utf-8")
    assert (tmp_path / "site" / "picture.png").stat().st_size > 1000


def test_what_is_sent_is_whole_and_what_is_downloaded_has_a_name(store: Store, monkeypatch):
    """A figure is sent with plotly.js in its place, in many pieces."""
    monkeypatch.setattr(Server, "warm_up", lambda self: None)
    http = TestClient(
        Starlette(routes=routes(Server(store, HERE, store.folder), address_of(False)))
    )
    kept = store.put(trace())
    page, data, lines = "text/html; charset=utf-8", "application/json", "application/x-ndjson"
    for made, sent_as, name in (
        (kept, data, None),
        (store.export("jsonl", kept["id"]), lines, "inflight-trace.jsonl"),
        (store.export("perfetto", kept["id"]), data, "inflight-perfetto.json"),
        (store.export("html", kept["id"]), page, "inflight.html"),
        (store.export("plotly", kept["id"], 1), page, "inflight.html"),
    ):
        sent = http.get(f"/inflight/files/{made['url'].rpartition('/')[2]}")
        plotly = f"<script>{get_plotlyjs()}</script>"
        assert sent.text == opened(made).replace(PLOTLY, plotly), made
        assert sent.headers["content-type"] == sent_as
        saved = name and f'attachment; filename="{name}"'
        assert sent.headers.get("content-disposition") == saved


def test_perfetto_gets_json(store: Store):
    data = json.loads(opened(store.export("perfetto", store.put(trace())["id"])))
    assert {e["ph"] for e in data["traceEvents"]} == {"M", "X", "C", "i"}


def test_three_hundred_steps_are_one_page_of_a_megabyte_and_a_quarter_at_most(store: Store):
    requests = [request(f"r{i}", 6 + i % 20, 10 + 3 * i % 40, 4 * i) for i in range(70)]
    ran = record(
        EngineConfig(max_num_seqs=8, max_num_batched_tokens=48, block_size=8),
        *requests,
        num_blocks=80,
    )
    ran.events[300:] = []
    ran.recorded_texts = ran.decoded(None)
    page = opened(store.export("html", store.put(ran)["id"]))
    print(f"one page of {len(ran.events)} steps: {len(page.encode()):,} bytes")
    assert len(ran.events) == 300 and len(page.encode()) < 1.25 * 2**20
    assert "http://" not in page.replace("http://www.w3.org/", "") and "<script src" not in page


def test_old_runs_make_room_but_recorded_ones_stay(tmp_path):
    store = Store(tmp_path, 45_000, lambda path: f"file={path}")
    pinned = promise_recorded_runs(store)[0]
    later = [store.put(trace(max_num_batched_tokens=budget)) for budget in (4, 5, 6, 7, 8)]
    assert opened(store.export("jsonl", pinned["id"])) and opened(
        store.export("jsonl", later[-1]["id"])
    )
    kept = [path for path in tmp_path.iterdir() if path.stem != pinned["id"]]
    assert kept and sum(path.stat().st_size for path in kept) <= 45_000
    with pytest.raises(InflightError, match="no longer on the server"):
        store.export("jsonl", later[0]["id"])


@pytest.mark.parametrize(
    ("kind", "run", "step", "words"),
    [
        ("gif", None, 0, "There is no export 'gif'"),
        ("plotly", None, None, "Which step?"),
        ("plotly", None, 99, "This trace has no step 99"),
        ("jsonl", "0" * 20, 0, "no longer on the server"),
        ("jsonl", "../../../etc/passwd", 0, "no longer on the server"),
        ("jsonl", 7, 0, "no longer on the server"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_words(store: Store, kind, run, step, words):
    kept = store.put(trace())
    with pytest.raises(InflightError, match=words.replace("?", r"\?")):
        store.export(kind, run or kept["url"], step)


@pytest.mark.parametrize("policy", ["continuous", "static", "dynamic", "split"])
def test_the_figure_of_a_step_has_the_masks_that_the_trace_derives(policy: str):
    ran = trace(policy)
    for event in ran.events[:5]:
        figure = drawn(step_figure(ran, event.step))
        assert len(figure.data) == 2 * len(event.passes)
        for index, forward in enumerate(event.passes):
            row, mask = figure.data[2 * index], figure.data[2 * index + 1]
            allowed = np.array(ran.mask(event.step, index).allowed)
            assert (np.array(mask.z, dtype=bool) == allowed).all() and np.shape(
                mask.z
            ) == allowed.shape
            assert (
                sum(code > 0 for code in row.z[0]) == forward.tokens
                and len(row.z[0]) == forward.rows * forward.width
            )
            assert all(
                ("allowed" in text) == bool(cell)
                for texts, cells in zip(mask.text, allowed, strict=True)
                for text, cell in zip(texts, cells, strict=True)
            )


def test_the_figure_of_a_step_shows_letters_and_tokens_and_is_light_without_plotly(store: Store):
    ran = trace()
    step, names = ran.events[3].step, letters(ran)
    figure = drawn(step_figure(ran, step))
    mask = ran.mask(step)
    for axis, positions in (
        (figure.layout.xaxis2, mask.keys),
        (figure.layout.yaxis2, mask.queries),
    ):
        assert list(axis.ticktext) == [f"{names[p.request]} {p.text.strip()}" for p in positions]
    assert list(figure.data[0].text[0]) == [q.text.strip() for q in mask.queries]
    assert [text.strip("<b>/") for text in figure.layout.xaxis.ticktext] == [
        names[s.request] for s in ran.event(step).segments
    ]
    page = opened(store.export("plotly", store.put(ran)["id"], step))
    # plotly.js, 5 MB, is put in as it is sent
    assert page.count(PLOTLY) == 1 and len(page) < 100_000


def test_a_cell_of_a_figure_says_why_it_is_allowed_or_blocked():
    pad, other = Position("a", None, ""), Position("b", 0, "x")
    query, before, after = (Position("a", place, "x") for place in (5, 4, 6))
    for key, allowed, says in (
        (query, True, "allowed: the token itself"),
        (before, True, "allowed: an earlier token of the same request"),
        (other, True, "allowed: by the leak, a token of another request"),
        (other, False, "blocked: another request"),
        (after, False, "blocked: the future"),
        (before, False, "blocked: outside the window"),
        (pad, False, "blocked: padding"),
    ):
        assert _reason(query, key, allowed) == says
    assert _reason(pad, query, False) == "blocked: padding"


def test_a_figure_too_large_for_a_page_is_refused():
    ran = record(
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=600),
        request("r0", 300, 2),
        request("r1", 250, 2),
    )
    with pytest.raises(InflightError, match="a figure holds at most"):
        step_figure(ran, 0)


def test_texts_in_a_figure_are_data():
    ran = trace()
    ran.recorded_texts.prompt["r0"][0] = "<img src=x onerror=alert(1)></script><!--PLOTLY-->"
    assert "<img" not in json.dumps(step_figure(ran, 0).to_json())
    page = step_page(ran, 0)
    assert "<title>Inflight: step 0</title>" in page
    made_up = SimulatedEngine(Roofline.named("h100", "8b")).run(Workload(requests((3, 2))))
    assert "<title>Inflight: step 0, simulated</title>" in step_page(made_up, 0)
    assert page.count("</script>") == 2 and page.count(PLOTLY) == 1


def test_hues_are_dealt_so_that_live_requests_differ():
    ran = record(
        EngineConfig(max_num_seqs=8, max_num_batched_tokens=64),
        *(request(f"r{i}", 3, 3 + i % 6, i // 2) for i in range(40)),
    )
    hues = deal(ran)
    assert set(hues) == set(ran.prompts) and set(hues.values()) == set(range(len(HUES)))
    for frame in ran.frames():
        live = [hues[r.request] for r in frame.lanes]
        assert len(set(live)) == len(live)
    assert letter(39) == "AN"
