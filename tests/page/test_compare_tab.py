"""The Compare tab: what the server answers, and the page in a real Chromium, race and panels
against the traces they show.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from core import Engine, EngineConfig, Workload
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.rounds import RunResult
from core.proof.equivalence import equivalence
from measure.record import RECORDINGS
from measure.record_engines import ENGINE_PRESETS
from visualizer.documents.comparison import Shown, document, recorded
from visualizer.jobs.limits import HERE, Limits
from visualizer.jobs.measured import Compare
from visualizer.page.bundle import page_html, script
from visualizer.page.tabs import packed_plotly, part, tab_script, write_files
from visualizer.server.comparisons import catalogue, job, open_recorded
from visualizer.server.jobs import JobQueue, Jobs
from visualizer.server.store import Store
from visualizer.words import findings, verdicts
from visualizer.words.vocabulary import plain
from worlds.axe import serious
from worlds.browser import settled
from worlds.comparison import CURVE, ENVIRONMENT
from worlds.server_events import messages_in
from worlds.small import VOCAB_SIZE, MemoryModel, requests

GUTTER = 24  # left of the lanes
ROWS = ((5, 12), (3, 3), (4, 6), (6, 4))
SPEC = {
    "workload": Workload(requests(*ROWS), name="small").to_json(),
    "config": EngineConfig(max_num_seqs=2, max_num_batched_tokens=8, block_size=4).to_json(),
    "model": "shakespeare-char",
    "device": "cpu",
}


class Plain(MemoryModel):
    """Says a token by what it is shown alone, so that it takes made-up requests as well."""

    lock = contextlib.nullcontext()

    def forward(self, batch, pool, backend=None):
        at = batch.sample_rows
        tokens = (batch.input_ids.flatten()[at] * 7 + batch.position_ids.flatten()[at]) % VOCAB_SIZE
        return torch.nn.functional.one_hot(tokens, VOCAB_SIZE).float()


class OneModel:
    """Models: always the same one."""

    def get(self, name: str, device: str, *_: object):
        return Plain(), None


class Asked:
    """A server's jobs of the Compare tab."""

    def __init__(self, folder: Path, **limits) -> None:
        self.limits, self.store = Limits(**limits), Store(folder, 2**24, str)
        self.jobs = Jobs({"comparisons": JobQueue(1, 15)})

    async def stream(self, kind: str, spec: object, visitor: str):
        try:
            begun = self.jobs.begin(job(kind, spec, self.limits, OneModel(), self.store), visitor)
        except InflightError as error:
            yield {"done": True, "error": str(error)}
            return
        async for piece in self.jobs.follow(begun):
            for message in messages_in(piece):
                yield message


def tasks(folder: Path, **limits) -> Asked:
    return Asked(folder, **limits)


def apart(work):
    """Run a coroutine in a thread of its own: Playwright holds this one's event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def answers(asked: Asked, kind: str, spec: object, visitor: str = "me") -> list[dict]:
    async def all_of() -> list[dict]:
        return [delta async for delta in asked.stream(kind, spec, visitor)]

    return apart(all_of())


# -- the server ------------------------------------------------------------------------------------


def test_a_comparison_is_measured_and_kept_as_a_document(tmp_path):
    *_, last = answers(
        tasks(tmp_path), "compare", {**SPEC, "policies": ["static", "continuous"], "repeats": 2}
    )
    assert last["done"] and "error" not in last
    made = json.loads(Path(last["url"]).read_text(encoding="utf-8"))
    assert made["names"] == ["static", "continuous"] and made["source"] == "live"
    assert [len(w) for w in made["walls"].values()] == [2, 2]
    assert made["says"]["outputs"] == "Every run wrote the same tokens."
    assert {f["name"] for f in made["figures"]} >= {"total_time", "lane_steps", "cost_curve"}
    assert sum(len(e["sampled"]) for e in made["runs"]["static"]["events"]) == 25


class Watched:
    """A host that is asked for news between the steps of a timed run, as another thread may."""

    def __init__(self, spec: dict) -> None:
        self.work, self.news = Compare(spec, Limits()), []

    def engine(self, spec, config, leaks=False):
        return Engine(Plain(), None, config)

    def between(self) -> None:
        self.news += filter(None, [self.work.news()])

    def keep_document(self, document) -> str:
        return ""


def test_a_comparison_says_how_far_the_run_at_work_has_come():
    """Step by step, and nothing of another run."""
    here = Watched({**SPEC, "policies": ["static", "continuous"], "repeats": 1})
    before_turns = []
    for _ in here.work.run(here):
        before_turns.append(here.work.so_far())
    assert all("tokens" not in progress for progress in before_turns)
    told = [delta["progress"] for delta in here.news]
    assert {progress["requests"] for progress in told} == {len(ROWS)}
    for turn, name in enumerate(("static", "continuous", "continuous", "static")):
        of_turn = [progress for progress in told if progress["index"] == turn]
        assert {progress["contender"] for progress in of_turn} == {name}
        written = [progress["tokens"] for progress in of_turn]
        assert len(set(written)) > 3 and written == sorted(written)
        assert written[-1] == sum(new for _, new in ROWS)
        ended = [progress["ended"] for progress in of_turn]
        assert ended[0] == 0 and ended == sorted(ended) and ended[-1] == len(ROWS)


def test_equivalence_with_and_without_the_leak(tmp_path):
    *_, last = answers(tasks(tmp_path), "equivalence", SPEC)
    assert last["result"]["differing_tokens"] == 0 and last["result"]["says"].startswith(
        "0 of 25 tokens differ"
    )


def test_a_fork_names_its_step(tmp_path):
    *_, last = answers(tasks(tmp_path), "fork", {**SPEC, "knob": "max_num_seqs", "value": 3})
    made = json.loads(Path(last["url"]).read_text(encoding="utf-8"))
    assert made["kind"] == "fork" and made["names"] == ["2 lanes", "3 lanes"] and made["step"] == 1
    told, after = made["says"]
    assert (
        plain(told, letters_of(made["runs"][0]))
        == "Fork at step 1: with 2 lanes C waits: both lanes are taken; with 3 lanes C takes"
        " lane 2."
    )
    assert after.endswith("the same tokens") and [
        Path(run["url"]).exists() for run in last["runs"]
    ] == [True, True]
    assert all(
        len(run["captions"]) == len(run["events"]) and run["texts"]["prompt"]
        for run in made["runs"]
    )


def letters_of(run):
    return lambda request: run["letters"][request]


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("compare", {"policies": ["magic"]}, "Choose policies by name"),
        ("compare", {"policies": []}, "at least one policy"),
        ("compare", {"policies": ["static"], "repeats": 99}, "1 to 9 times"),
        ("compare", {"policies": ["static"], "workload": {"requests": []}}, "nothing to run"),
        ("equivalence", {"leak": "yes"}, "on or off"),
        ("fork", {"knob": "gravity", "value": 1}, "One knob"),
        ("fork", {"knob": "max_num_seqs", "value": 2}, "already"),
        ("fork", {"knob": "max_num_seqs", "value": "many"}, "whole number"),
    ],
)
def test_refusals_are_one_sentence(tmp_path, kind, change, words):
    (only,) = answers(tasks(tmp_path), kind, {**SPEC, **change})
    assert only["done"] and words in only["error"] and only["error"].endswith(".")


def test_a_run_beyond_the_limits_is_stopped_in_words(tmp_path):
    *_, last = answers(
        tasks(tmp_path, steps=3), "compare", {**SPEC, "policies": ["continuous"], "repeats": 1}
    )
    assert "stopped after 3 steps" in last["error"]


def test_a_cancelled_task_ends_and_the_next_begins(tmp_path):
    asked = tasks(tmp_path)

    async def go() -> list[str]:
        ends = []
        async for delta in asked.stream(
            "compare", {**SPEC, "policies": ["static", "continuous"], "repeats": 9}, "me"
        ):
            if "progress" in delta:
                asked.jobs.cancel(delta["job"])
            if delta.get("done"):
                ends.append(delta.get("stopped", "measured"))
        async for delta in asked.stream("equivalence", SPEC, "me"):
            if delta.get("done"):
                ends.append(delta.get("error", "fine"))
        return ends

    assert apart(go()) in (["The comparison was cancelled.", "fine"], ["measured", "fine"])


def test_a_visitor_has_one_task_and_others_queue(tmp_path):
    asked = tasks(tmp_path)

    async def go() -> tuple[str, dict]:
        first = asked.stream("equivalence", SPEC, "me")
        await anext(first)
        again = [d async for d in asked.stream("equivalence", SPEC, "me")]
        second = asked.stream("equivalence", SPEC, "you")
        waits = await anext(second)
        async for _ in first:
            pass
        assert [d async for d in second][-1]["done"]
        return again[-1]["error"], waits

    refused, waits = apart(go())
    assert "still running" in refused and waits["progress"] == {"ahead": 1}


@pytest.mark.smoke
def test_the_recorded_comparisons_open(tmp_path):
    store = Store(tmp_path, 2**24, str)
    names = [entry["name"] for entry in catalogue(HERE)["recorded"]]
    known = {*RECORDINGS, *(f"engines-{name}" for name in ENGINE_PRESETS)}
    assert names[0] == "six-questions" and known >= set(names) == {e["name"] for e in recorded()}
    made = json.loads(Path(open_recorded("gpt2-six", store)).read_text(encoding="utf-8"))
    assert made["source"] == "recorded" and made["equivalence"]["honest"]["differing_tokens"] == 0
    assert made["equivalence"]["leak"]["differing_tokens"] > 0
    assert (
        len(made["runs"]["static"]["events"]) == 480
        and len(made["runs"]["continuous"]["events"]) == 300
    )
    with pytest.raises(InflightError, match="There is no such recorded comparison"):
        open_recorded("../secrets", store)


def test_the_files_are_named_by_content(tmp_path):
    paths = write_files(tmp_path)
    assert write_files(tmp_path) == paths and paths["plotly"].read_bytes()[:2] == b"\x1f\x8b"
    assert len(gzip.compress(paths["compare"].read_bytes())) < 90_000
    assert (
        "inflightParts" in script("parts/tabs.js")
        and "import " not in script("parts/tabs.js")[:200]
    )


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown() -> Shown:
    workload = Workload(requests(*ROWS), name="gpt2-six")
    runs = {
        p: RunResult.of(
            Engine(
                Plain(),
                None,
                EngineConfig(policy=p, max_num_seqs=2, max_num_batched_tokens=8, block_size=4),
            ).run(workload)
        )
        for p in ("static", "continuous")
    }
    walls = {"static": [3.0, 3.3, 3.1], "continuous": [1.5, 1.4, 1.6]}
    comparison = Comparison(
        list(walls), walls, runs, {n: dict(r.metrics) for n, r in runs.items()}, []
    )
    same = equivalence(
        Plain(),
        None,
        workload,
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=8, block_size=4),
    )
    honest = same
    leak = json.loads(json.dumps(honest)) | {"leak": True}
    leak["requests"][0] |= {
        "parting": {"position": 1, "solo": 1, "batched": 2, "margin": 0.25},
        "differing_tokens": 3,
        "solo_text": "To be <b>or</b>",
        "batched_text": "To be <img src=x onerror=alert(1)> not",
    }
    return Shown(
        comparison,
        "gpt2-six",
        ENVIRONMENT,
        "recorded",
        "Six <i>prompts</i>",
        "",
        "2026-01-02T03:04:05+00:00",
        CURVE,
        {"honest": honest, "leak": leak},
    )


# of each run that races: lane cells by kind, tokens and requests done at this moment
DRAWN = """Object.fromEntries(inflightCompare.race.racers.map((r) => [r.name, {
    ...r.lanes.counted, tokens: r.tokensAt(r.race.now), landed: r.shown, seconds: r.seconds, steps: r.steps, done: !r.final.hidden, final: r.final.textContent }]))"""  # noqa: E501


@pytest.fixture
def open_page(visit, shown):
    def go(size="desk", hash=""):
        options = {
            "tabs": [{"name": "watch", "title": "Watch"}, {"name": "compare", "title": "Compare"}],
            "plotly": "plotly.js.gz",
            "comparisons": [
                {"name": "gpt2-six", "title": "Six <i>prompts</i>", "shows": "", "url": "doc.json"}
            ],
        }
        page = visit(
            files={
                "": page_html({}, {"compare": part("compare", "compare.js", options)}),
                "compare.js": tab_script("compare"),
                "doc.json": json.dumps(document(shown)),
                "plotly.js.gz": packed_plotly(),
            },
            size=size,
            hash="part=compare" + hash,
            drawn=False,
        )
        settled(page, "window.inflightCompare?.doc && inflightCompare.race.lastMs !== undefined")
        return page

    return go


def test_the_race_draws_every_lane_step_of_every_run(open_page, shown):
    page = open_page()
    page.evaluate("inflightCompare.race.seek(Infinity), inflightCompare.race.draw()")
    counts = page.evaluate(DRAWN)
    for name, run in shown.comparison.runs.items():
        events = run.trace.events
        drawn = counts[name]
        decode = len({(e.step, s.lane) for e in events for s in e.segments if s.phase == "decode"})
        prefill = len(
            {(e.step, s.lane) for e in events for s in e.segments if s.phase == "prefill"}
        )
        wasted = len(
            {(e.step, row.lane) for e in events for p in e.passes for row in p.finished_rows}
        )
        assert (drawn["decode"], drawn["prefill"], drawn["wasted"]) == (decode, prefill, wasted)
        assert (
            drawn["tokens"] == 25
            and drawn["landed"] == 4
            and drawn["done"]
            and drawn["steps"] == len(events)
        )
        assert drawn["final"] and drawn["seconds"] == pytest.approx(events[-1].t_end)
    page.evaluate(
        "inflightCompare.race.setClock(false), inflightCompare.race.seek(Infinity),"
        " inflightCompare.race.draw()"
    )
    assert (
        page.locator("[data-racer=static] .final").text_content()
        == f"{len(shown.comparison.runs['static'].trace.events)} steps"
    )


def test_it_opens_where_the_first_is_done_and_every_run_says_how_far_it_is(open_page, shown):
    """Tokens and steps by that moment; tokens a second of its own time, which ends when it is
    done.
    """
    page = open_page()
    runs = {name: run.trace.events for name, run in shown.comparison.runs.items()}
    lengths = {name: events[-1].t_end for name, events in runs.items()}
    said = (
        "[inflightCompare.race.now, Object.fromEntries(inflightCompare.race.racers.map((r) =>"
        " [r.name, r.numbers.textContent]))]"
    )
    for then, moment in (
        ("0", min(lengths.values())),
        ("inflightCompare.race.seek(Infinity), inflightCompare.race.draw()", max(lengths.values())),
    ):
        now, numbers = page.evaluate(f"({then}, {said})")
        assert now == pytest.approx(moment)
        for name, events in runs.items():
            tokens = sum(
                e.passes[s.pass_index].t_end <= now + 1e-9 for e in events for s in e.sampled
            )
            steps = sum(e.t_end <= now + 1e-9 for e in events)
            rate = math.floor(tokens / min(now, lengths[name]) + 0.5)
            told = f"{tokens} token{'s' * (tokens != 1)} in {steps} step{'s' * (steps != 1)}"
            assert numbers[name] == f"{told} · {rate:,} tok/s"


@pytest.mark.slow
def test_the_line_of_the_moment_crosses_lanes_and_no_heading(open_page):
    page = open_page()
    page.evaluate("inflightCompare.race.seek(inflightCompare.race.span * 0.6)")
    settled(page)
    x = page.evaluate("document.querySelector('.race-head').getBoundingClientRect().left")

    def colours(place: str) -> int:
        """How many colours there are around the line, at the height of a part of the last run."""
        box = page.locator(f".racer:last-child {place}").bounding_box()
        clip = {"x": x - 2, "y": box["y"] + 1, "width": 6, "height": box["height"] - 2}
        seen = Image.open(io.BytesIO(page.screenshot(clip=clip)))
        return len(seen.convert("RGB").getcolors())

    assert colours("h4") == 1 < colours(".canvas")


@pytest.mark.slow
def test_on_paper_it_is_as_wide_as_the_window_and_as_long_as_it_is(open_page):
    paper = open_page().pdf(prefer_css_page_size=True)
    sizes = re.findall(rb"/MediaBox \[0 0 (\d+) (\d+)", paper)
    assert len(sizes) > 1 and set(sizes) == {(b"1080", b"675")}  # points of 1440 by 900 pixels


@pytest.mark.smoke
def test_it_plays_by_key(open_page):
    page = open_page()
    counts = page.evaluate(DRAWN)
    assert sum(c["done"] for c in counts.values()) >= 1 and not page.evaluate(
        "inflightCompare.race.playing"
    )
    expect(page.locator(".headline")).to_contain_text(
        "done in 1.5 s with continuous instead of 3.1 s with static; 3 rounds are too few"
    )
    headline = page.locator(".headline")
    for chosen in ("who=static", "who=continuous&who=static"):  # two runs, or no word
        page.evaluate(f"location.hash = '#part=compare&comparison=gpt2-six&at=0&{chosen}'")
        settled(page, f"inflightCompare.chosen.size === {chosen.count('who')}")
        assert headline.is_visible() == (chosen.count("who") == 2)
    assert page.locator(".sure").is_hidden() and page.locator(".outputs").is_visible()
    page.click(".statistics > summary")
    assert page.locator(".verdict").inner_text() == verdicts.total_time(
        Comparison(
            ["static", "continuous"],
            {"static": [3.0, 3.3, 3.1], "continuous": [1.5, 1.4, 1.6]},
            {},
            {},
            [],
        )
    )
    assert page.locator(".sure").is_visible()
    settled(page, "localStorage.getItem('inflight-compare-statistics') === '1'")
    page.keyboard.press("b")
    before = page.evaluate("inflightCompare.race.now")
    page.keyboard.press("n")
    assert page.evaluate("inflightCompare.race.now") > before
    page.keyboard.press(" ")
    settled(page, "inflightCompare.race.now === inflightCompare.race.span")
    expect(page.locator(".gap")).to_have_text("all are done")


def test_the_cause_is_dragged_below_it(open_page):
    page = open_page()
    page.locator(".cause input").first.fill("16")
    says = page.locator(".cause .figure-says")
    expect(says).to_contain_text("In waves 31 steps, continuously 23. D waits 16 steps in waves")
    expect(page.locator(".cause .figure-source")).to_contain_text("simulated by the scheduler")


def test_dragging_seeks_and_one_hover_lights_a_request_in_every_lane(open_page):
    page = open_page()
    box = page.locator(".racer[data-racer=static] canvas").bounding_box()
    # Before a measured run's first step a machine may have paused: there is nobody to point at.
    middle = page.evaluate("""() => {
        const { per, racers } = inflightCompare.race, { tStart, tEnd } = racers[0].run.events[0];
        return per * (tStart + tEnd) / 2; }""")
    page.mouse.move(box["x"] + GUTTER + middle, box["y"] + 30)
    settled(page, "inflightCompare.race.focus !== null")
    lit = page.evaluate("inflightCompare.race.racers.map((r) => r.focus && r.focus[0].letter)")
    assert lit[0] == lit[1] is not None
    assert "static" in page.locator(".compare .tooltip").inner_text()
    page.mouse.down()
    page.mouse.move(box["x"] + GUTTER, box["y"] + 30)
    page.mouse.up()
    assert page.evaluate("inflightCompare.race.now") == pytest.approx(
        0, abs=0.02 * page.evaluate("inflightCompare.race.span")
    )


def test_the_leak_switch_shows_where_texts_part_and_texts_stay_text(open_page):
    page = open_page()
    assert page.locator(".equivalence .lead").inner_text().startswith("0 of 25 tokens differ")
    page.locator("[name=leak]").check()
    assert (
        page.locator(".equivalence .lead")
        .inner_text()
        .startswith("With the leak 0 of 25 tokens differ")
    )
    parted = page.locator(".pair.parted")
    assert "from token 1 on, where alone the best token led by 0.25" in parted.inner_text()
    assert parted.locator(".saying").all_inner_texts() == [
        "To be <b>or</b>",
        "To be <img src=x onerror=alert(1)> not",
    ]
    said = parted.locator(".saying").first
    assert said.evaluate("el => getComputedStyle(el).overflowY") == "visible"  # no text is cut
    assert page.locator(".compare img").count() == 0 and page.locator(".presets i").count() == 0


def test_charts_are_drawn_and_go_out_as_picture_page_and_table(open_page, shown, tmp_path):
    page = open_page()
    page.locator("[data-chart=total_time]").scroll_into_view_if_needed()
    page.locator("[data-chart=total_time] .main-svg").first.wait_for()
    gaps = """(svg) => [...svg.querySelectorAll(".ytick text")].map((label) =>
        svg.querySelector(".nsewdrag").getBoundingClientRect().left - label.getBoundingClientRect().right)"""  # noqa: E501
    svg = page.locator("[data-chart=total_time] .svg-container")
    assert all(gap > 4 for gap in svg.evaluate(gaps)), "points cover no label"
    assert page.locator("[data-chart]").count() == 7
    expect(page.locator("[data-chart=lane_steps] > p")).to_have_text(
        findings.lane_steps(shown.comparison)
    )
    page.locator("[data-chart=lane_steps]").scroll_into_view_if_needed()
    expect(page.locator("[data-chart=lane_steps] .xtick text").last).to_be_visible()  # the whole
    for button, start in (("PNG", b"\x89PNG"), ("HTML", b"<!doctype html>")):
        with page.expect_download() as found:
            page.locator("[data-chart=total_time]").get_by_role("button", name=button).click()
        assert Path(found.value.path()).read_bytes().startswith(start)
    page.click(".statistics > summary")
    for button, words in (
        (".csv-button", "contender,wall_s.median"),
        (".json-button", '"outputs_identical": true'),
    ):
        with page.expect_download() as found:
            page.locator(button).click()
        assert words in Path(found.value.path()).read_text(encoding="utf-8")
    assert page.locator(".metrics thead th").nth(1).get_attribute("title").startswith("Wall time")


@pytest.mark.parametrize(
    ("size", "scheme"), [("desk", "dark"), pytest.param("phone", "light", marks=pytest.mark.slow)]
)
def test_no_serious_violation_of_accessibility(open_page, size, scheme):
    page = open_page(size, hash=f"&theme={scheme}")
    page.locator("[name=leak]").check()
    for tabled in (False, True):
        page.evaluate(
            "(on) => { inflightCompare.race.showTable(on); inflightCompare.$('.drawer').hidden ="
            " !on; }",
            tabled,
        )
        assert serious(page) == []


def test_the_race_can_be_read_as_a_table(open_page, shown):
    page = open_page()
    page.keyboard.press("t")
    rows = (
        "[...document.querySelectorAll('.race .table-holder tbody tr')].map(r =>"
        " [...r.children].map(c => c.textContent))"
    )
    settled(page, "document.querySelector('.table-button[aria-pressed=true]')")
    page.evaluate(
        "inflightCompare.race.setClock(false), inflightCompare.race.seek(2),"
        " inflightCompare.race.draw()"
    )
    for name, step, lanes, waiting, tokens, done, total in page.evaluate(rows):
        events = shown.comparison.runs[name].trace.events
        event = events[2]
        assert (
            step == str(event.step)
            and waiting == str(event.waiting.count)
            and total == f"{len(events)} steps"
        )
        assert (
            tokens == str(sum(len(e.sampled) for e in events[:2]))
            and done == f"{sum(len(e.finished) for e in events[:2])} of 4"
        )
        assert lanes.count("decode") == len({s.lane for s in event.segments if s.phase == "decode"})
    page.locator(".race .table-holder").focus()
    page.keyboard.press("End")
    settled(page, f"{rows}.every(row => row[1] === 'done')")
    assert page.evaluate("inflightCompare.race.now === inflightCompare.race.span")
    page.keyboard.press("t")
    assert not page.locator(".race .table-holder").is_visible()


@pytest.mark.parametrize("size", ["phone", "tablet"])
def test_it_fits_narrow_screens(open_page, size):
    page = open_page(size)
    assert page.evaluate(
        "document.documentElement.scrollWidth <= innerWidth &&"
        " inflightCompare.$('.scroll').scrollWidth <= inflightCompare.$('.scroll').clientWidth"
    )
    bar = page.locator(".compare .page > .transport")
    assert (
        bar.bounding_box()["y"] + bar.bounding_box()["height"] <= page.viewport_size["height"] + 1
    )
    if size == "phone":
        cut = page.evaluate(
            "() => { const { race } = inflightCompare, { holder } = race; race.showTable(true);"
            " race.seek(Infinity); const cut = holder.scrollWidth - holder.clientWidth;"
            " race.showTable(false); return cut; }"
        )
        assert cut <= 0
        small = page.evaluate(
            "[...document.querySelectorAll('.transport button, .transport select, .presets.small"
            " button')].filter((b) => b.offsetHeight && b.offsetHeight < 44).map((b) =>"
            " b.className)"
        )
        assert not small
        assert page.evaluate(
            "inflightCompare.$('.transport').scrollWidth <="
            " inflightCompare.$('.transport').clientWidth"
        )
        chart = page.locator(".chart[data-chart=lane_steps]")
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".legendtext").first).to_be_visible()
        sizes = "all => all.map(text => text.getBoundingClientRect().height)"
        assert min(chart.locator(".bartext").evaluate_all(sizes)) >= 11


@pytest.mark.slow
def test_a_comparison_starts_from_the_watch_tabs_requests(visit, page_url):
    page = visit(page_url, hash="run=chunk-7-by-4")
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    page.fill("[name=max_num_seqs]", "2")
    page.fill(".request-row input >> nth=0", "3")
    said = page.evaluate("inflight.editor.spec()")
    page.click(".compare-these")
    settled(page, "window.inflightCompare && !inflightCompare.$('.drawer').hidden")
    form = page.locator(".inflight-compare .drawer")
    settled(page, "inflightCompare.$('[name=max_num_seqs]').value === '2'")
    expect(form.locator("[name=preset] option:checked")).to_have_text("those in Watch or Live")
    expect(form.locator(".preset-shows")).to_contain_text("as edited there.")
    valid = []
    for rounds in "21":  # two rounds have no run at their median
        form.locator("[name=repeats]").fill(rounds)
        valid.append(form.locator("[name=repeats]").evaluate("input => input.checkValidity()"))
    assert valid == [False, True]
    form.locator(".run-button").click()
    settled(page, "inflightCompare.doc && inflightCompare.doc.source === 'live'")
    doc = page.evaluate(
        "({title: inflightCompare.doc.title, name: inflightCompare.doc.name, header:"
        " inflightCompare.doc.runs.continuous.header})"
    )
    assert (doc["title"], doc["name"]) == ("Your requests", "custom") and doc["header"]["config"][
        "max_num_seqs"
    ] == 2
    assert [r["sampling"]["max_new_tokens"] for r in doc["header"]["workload"]["requests"]] == [
        r["sampling"]["max_new_tokens"] for r in said["workload"]["requests"]
    ]
    page.locator(".inflight-compare .tabs button", has_text="Watch").click()
    page.fill(".request-row input >> nth=0", "")
    page.click(".compare-these")
    settled(page, "inflightCompare.$('.run-message.bad')")
    expect(form.locator(".run-message")).to_contain_text(
        "cannot be run: Request 1: new tokens must be a whole number"
    )


def test_two_results_of_one_minute_are_two_and_a_card_on_top_has_the_keys(open_page):
    page = open_page()
    page.evaluate("inflightCompare._add(inflightCompare.doc, null)")
    page.evaluate("inflightCompare._add({ ...inflightCompare.doc }, null)")
    made = page.locator(".top .presets > [data-name*='Measured']")
    expect(made).to_have_count(2)
    assert made.evaluate_all("all => all.map(el => el.classList.contains('on'))") == [False, True]
    page.evaluate("inflightCompare.present(true)")
    page.evaluate("inflightCompare._share()")
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    assert page.evaluate("[inflightCompare.presenter, document.querySelector('dialog[open]')]") == [
        True,
        None,
    ]


def test_dark_is_dark(open_page):
    page = open_page(hash="&theme=dark")
    assert page.evaluate(
        "[inflightCompare, inflightCompare.cause].map(({ palette }) => palette.dark)"
    ) == [True, True]
    assert tab_script("compare").count("window.inflightCompareMount") == 1
