"""Ranks of one engine on the page: opened together, one after the other at the same moment, and all
of them on one clock.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.cli import main
from visualizer.documents.replay import ranks_document, replay
from worlds.browser import settled
from worlds.ranks import FILES, ranks, records, text
from worlds.small import memory_trace

GUTTER = 24  # left of the lanes


@pytest.fixture(scope="module")
def placed() -> list[list[tuple[float, float]]]:
    """By hand: where each step of each rank lies on the clock of their machine, in seconds after
    the first arrival of all.
    """
    starts = [records(rank)[0]["clock"]["monotonic_ns"] / 1e9 for rank in (0, 1)]
    steps = [records(rank)[1:] for rank in (0, 1)]
    zero = min(
        start + a["t"]
        for start, own in zip(starts, steps, strict=True)
        for step in own
        for a in step["arrived"]
    )
    return [
        [(start - zero + s["t_start"], start - zero + s["t_end"]) for s in own]
        for start, own in zip(starts, steps, strict=True)
    ]


@pytest.fixture(scope="module")
def both() -> dict:
    """The document of both files."""
    return ranks_document(ranks(text(0), text(1)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> list[Path]:
    """Both recordings as `import` saves them and `check` accepts them."""
    folder = tmp_path_factory.mktemp("ranks")
    files = [folder / f"run.rank{rank}.jsonl" for rank in (0, 1)]
    for command in (
        ["import", *map(str, FILES), "--out", str(folder / "run.jsonl")],
        *(["check", str(file)] for file in files),
    ):
        with pytest.raises(SystemExit) as done:
            main(command)
        assert done.value.code in (0, None)
    return files


@pytest.fixture
def ranked(visit, both):
    """A page with both ranks on it."""

    def open_page(wanted: dict | None = None, **options):
        page = visit(replay=replay(memory_trace((3,))), **options)
        page.evaluate("([doc, wanted]) => inflight.openReplay(doc, wanted)", [both, wanted or {}])
        settled(page)
        return page

    return open_page


def stands(steps: list[tuple[float, float]], now: float) -> int:
    return max([i for i, (start, _) in enumerate(steps) if start <= now + 1e-6], default=0)


def gap(steps: list[tuple[float, float]]) -> float:
    """The middle of the longest time between two steps."""
    before, after = max(pairwise(steps), key=lambda pair: pair[1][0] - pair[0][1])
    return (before[1] + after[0]) / 2


def choose(page, *files, entry: str = "Open a trace or a replay") -> None:
    """Open files as a visitor does."""
    page.locator(".export-button").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("menuitem", name=entry).click()
    chooser.value.set_files(list(files))


def test_a_rank_without_steps_says_so_and_the_others_are_drawn(visit):
    header = text(0).splitlines(keepends=True)[0]
    page = visit(replay=replay(memory_trace((3,))))
    document = ranks_document(ranks(header, text(1)))
    page.evaluate("(document) => inflight.openReplay(document)", document)
    says = page.locator(".band-say")
    expect(says.first).to_have_text("It has no steps.")
    assert "step -1" not in says.last.inner_text()
    page.keyboard.press("0")
    expect(page.locator("#watch .empty-state")).to_contain_text("This run has no steps")
    page.keyboard.press("a")
    expect(says.first).to_be_visible()
    expect(page.locator("#watch .empty-state")).to_be_hidden()


@pytest.mark.slow
def test_recordings_are_imported_checked_and_shown_together(visit, page_url, saved):
    page = visit(f"{page_url}/")
    choose(page, *saved[::-1])
    settled(page, "inflight.ranks.members.length === 2")
    assert page.locator(".rank-line .button").all_inner_texts() == ["All ranks", "Rank 0", "Rank 1"]
    assert page.locator(".rank-says").inner_text() == "All ranks are on the clock of their machine."
    assert page.locator(".band").count() == 2 and not page.locator(".panel.mask").is_visible()
    assert page.locator(".source .word").inner_text() == "From a file"
    urls = page.evaluate("() => inflight.ranks.members.map((m) => `inflight/files/${m.id}.jsonl`)")

    # their traces by address, at a step of one and at a moment of all
    page = visit(f"{page_url}/", hash=f"trace={urls[1]}&trace={urls[0]}&rank=1&step=12")
    settled(page, "inflight.ranks.members.length === 2 && inflight.frame?.event.step === 12")
    assert page.evaluate("() => inflight.ranks.current.rank") == 1
    page.evaluate("() => { navigator.clipboard.writeText = async (t) => { window.copied = t; }; }")
    page.keyboard.press("a")
    page.locator(".share-button").click()
    settled(page, "window.copied")
    link = page.evaluate("() => copied")
    now = page.evaluate("() => inflight.ranks.now")
    page = visit(f"{page_url}/", hash=link.split("#")[1])
    settled(page, "inflight.ranks.all")
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(now, abs=1e-4)
    assert page.evaluate("() => inflight.ranks.members.map((m) => m.rank)") == [0, 1]


@pytest.mark.slow
def test_what_does_not_belong_together_is_refused_and_a_lone_rank_says_so(
    visit, page_url, tmp_path, saved
):
    memory_trace((3,)).save(tmp_path / "own.jsonl")
    page = visit(f"{page_url}/")
    before = page.evaluate("() => inflight.entry.name")
    choose(page, saved[0], tmp_path / "own.jsonl")
    settled(
        page,
        "document.querySelector('.toast').textContent.includes('own.jsonl is a run of this"
        " engine')",
    )
    assert (
        page.evaluate("() => inflight.entry.name") == before
        and page.locator(".rank-line").is_hidden()
    )
    choose(page, saved[1])
    settled(page, "inflight.ranks.members.length === 1")
    assert (
        page.locator(".rank-says").inner_text().strip()
        == "Of 2 ranks, rank 0 is not among these files."
    )
    assert (
        page.locator(".rank-line .button").all_inner_texts() == ["Rank 1"]
        and page.locator(".panel.mask").is_visible()
    )


@pytest.mark.smoke
def test_all_ranks_lie_where_their_machines_clock_says(ranked, placed):
    page = ranked()
    scales = page.evaluate(
        "() => inflight.rankLanes.bands.map((b) => b.run.events.map((_, i) =>"
        " [b.chart.scale.from(i), b.chart.scale.to(i)]))"
    )
    width = page.evaluate("() => inflight.rankLanes.axis.w")
    per = (width - GUTTER - 2) / max(end for steps in placed for _, end in steps)
    for drawn, steps in zip(scales, placed, strict=True):
        assert len(drawn) == len(steps)
        for (left, right), (start, end) in zip(drawn, steps, strict=True):
            assert left == pytest.approx(GUTTER + start * per, abs=0.05) and right == pytest.approx(
                GUTTER + end * per, abs=0.05
            )

    # and as ink: the middle of a step of lane 0 has its request's colour, the middle of the longest
    # gap none
    page.evaluate("() => inflight.ranks.hold(99)")
    settled(page)
    ink = """([rank, x]) => {
        const { chart, run } = inflight.rankLanes.bands[rank], { d } = chart.surface;
        return [...chart.chart.getContext('2d').getImageData(Math.round(x * d), Math.round((chart.axis + chart.pitch / 2) * d), 1, 1).data];
    }"""  # noqa: E501
    for rank, steps in enumerate(placed):
        decodes = [
            i
            for i, s in enumerate(records(rank)[1:])
            if len(s["segments"]) == 1 and s["segments"][0]["length"] == 1
        ]
        held = page.evaluate("(r) => inflight.ranks.members[r].run.holders.map((h) => h[0])", rank)
        i = max((i for i in decodes if held[i] >= 0), key=lambda i: steps[i][1] - steps[i][0])
        assert page.evaluate(ink, [rank, GUTTER + sum(steps[i]) / 2 * per])[3] == 255
        assert page.evaluate(ink, [rank, GUTTER + gap(steps) * per])[3] == 0


def test_the_moment_stays_from_rank_to_rank(ranked, placed):
    page = ranked({"rank": 0, "step": 30})
    now = placed[0][30][0]
    assert (
        not page.locator(".panel.ranks").is_visible()
        and page.evaluate("() => inflight.frame.event.step") == 30
    )
    page.keyboard.press("1")
    settled(page)
    at = page.evaluate("() => [inflight.ranks.current.rank, inflight.frame.i, inflight.ranks.now]")
    assert at == [1, stands(placed[1], now), pytest.approx(now, abs=1e-5)]
    idle = now >= placed[1][at[1]][1]
    assert (
        page.locator(".rank-at").inner_text().endswith(f"idle after step {at[1]}" if idle else " s")
        and idle
    )
    page.keyboard.press("x")
    settled(page)
    # and not where rank 1's step began
    assert page.evaluate("() => [inflight.ranks.current.rank, inflight.frame.i]") == [0, 30]
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(
        placed[1][stands(placed[1], now) + 1][0], abs=1e-5
    )


def test_one_playhead_in_time_and_each_rank_says_where_it_is(ranked, placed):
    page = ranked({"rank": "all", "at": gap(placed[1])})
    now = gap(placed[1])
    step = stands(placed[0], now)
    pills = page.locator(".band .pill").all_inner_texts()
    inside = placed[0][step][0] <= now < placed[0][step][1]
    assert pills == [f"step {step}" if inside else "idle", "idle"]
    quiet = stands(placed[1], now)
    said = page.locator(".band-say").nth(1).inner_text().replace("\u00a0", " ")
    assert f"between step {quiet} and step {quiet + 1}" in said
    number, unit = re.search(r"Nothing for ([\d.]+) (m?s) ", said).groups()
    assert float(number) / {"s": 1, "ms": 1000}[unit] == pytest.approx(
        placed[1][quiet + 1][0] - placed[1][quiet][1], rel=0.01, abs=0.001
    )
    x = page.evaluate("() => new DOMMatrix(getComputedStyle(inflight.rankLanes.head).transform).e")
    per = page.evaluate("() => inflight.rankLanes.per")
    assert x == pytest.approx(GUTTER + now * per, abs=0.1)

    times = sorted(start for steps in placed for start, _ in steps)
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(
        next(t for t in times if t > now), abs=1e-5
    )
    page.keyboard.press("Home")
    settled(page)
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(times[0], abs=1e-5)
    page.keyboard.press("t")
    settled(page)
    rows = page.locator(".panel.ranks tbody tr").all_inner_texts()
    assert (
        len(rows) == 2
        and rows[0].split("\t")[:2] == ["0", "0"]
        and rows[1].split("\t")[:2] == ["1", "idle"]
    )


def test_a_click_on_a_step_opens_that_rank_there_and_a_drag_moves_the_playhead(ranked, placed):
    page = ranked()
    stage = page.locator(".band .canvas").nth(1).bounding_box()
    per = page.evaluate("() => inflight.rankLanes.per")
    i = max(range(len(placed[1])), key=lambda n: placed[1][n][1] - placed[1][n][0])
    x, y = stage["x"] + GUTTER + sum(placed[1][i]) / 2 * per, stage["y"] + stage["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y)
    page.mouse.up()
    settled(page)
    assert page.evaluate("() => inflight.ranks.all")
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(
        sum(placed[1][i]) / 2 + 60 / per, abs=1.5 / per
    )
    page.mouse.click(x, y)
    settled(page)
    assert page.evaluate(
        "() => [inflight.ranks.all, inflight.ranks.current.rank, inflight.frame.i]"
    ) == [False, 1, i]
    assert page.locator(".panel.lanes").is_visible()


def test_no_two_requests_of_all_ranks_have_one_letter(ranked):
    page = ranked()
    letters = page.evaluate(
        "() => inflight.ranks.members.map((m) => m.run.requests.map((r) => r.letter))"
    )
    both = [letter for own in letters for letter in own]
    assert sorted(both) == [chr(65 + n) for n in range(len(both))] and all(
        own == sorted(own) for own in letters
    )


@pytest.mark.slow
def test_what_is_saved_has_all_ranks_and_needs_no_server(visit, page_url, saved, tmp_path):
    """One page with everything in it, at a step of one rank and at a moment of all; and the replay,
    opened again on that page.
    """
    page = visit(f"{page_url}/")
    choose(page, *saved)
    settled(page, "inflight.ranks.members.length === 2")

    def save(entry: str, name: str) -> Path:
        page.locator(".export-button").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=entry).click()
        download.value.save_as(tmp_path / name)
        return tmp_path / name

    page.evaluate("() => inflight.ranks.hold(0.5 * inflight.ranks.span)")
    now = page.evaluate("() => inflight.ranks.now")
    at_moment = save("One page", "all.html")
    page.evaluate("() => inflight.ranks.choose(inflight.ranks.members[1], 12)")
    at_step = save("One page", "rank.html")
    again = save("Replay JSON", "both.json")

    page = visit(at_moment.as_uri())
    assert page.evaluate("() => [inflight.ranks.all, inflight.ranks.members.length]") == [True, 2]
    assert page.evaluate("() => inflight.ranks.now") == pytest.approx(now, abs=1e-6)
    page = visit(at_step.as_uri())
    assert page.evaluate(
        "() => [inflight.ranks.all, inflight.ranks.current.rank, inflight.frame.event.step]"
    ) == [False, 1, 12]
    page.evaluate("(r) => inflight.openReplay(r)", replay(memory_trace((3,))))
    assert page.locator(".rank-line").is_hidden()
    choose(page, again, entry="Open a replay")
    settled(page, "inflight.ranks.members.length === 2")
    assert page.locator(".rank-line .button").all_inner_texts() == ["All ranks", "Rank 0", "Rank 1"]
    assert page.locator(".source .word").inner_text() == "From a file"
    choose(page, again, again, entry="Open a replay")
    settled(
        page, "document.querySelector('.toast').textContent.includes('a replay is opened alone')"
    )


@pytest.mark.slow
def test_the_recorded_run_of_two_ranks_is_in_the_catalogue(visit, page_url):
    page = visit(f"{page_url}/", hash="run=vllm-two-ranks")
    settled(page, "inflight.ranks.all && inflight.entry.name === 'vllm-two-ranks'")
    assert page.locator(".rank-line .button").all_inner_texts() == ["All ranks", "Rank 0", "Rank 1"]
    assert page.locator(".source .word").inner_text() == "Recorded"
    steps = page.evaluate("() => inflight.ranks.members.reduce((sum, m) => sum + m.run.length, 0)")
    assert page.evaluate("() => inflight.entry.steps") == steps
    page.evaluate("() => inflight.ranks.choose(inflight.ranks.members[1], 20)")
    link = page.evaluate("() => { inflight.address.write(); return location.hash; }")
    page = visit(f"{page_url}/", hash=link[1:])
    settled(page, "inflight.ranks.current?.rank === 1 && inflight.frame?.i === 20")


def test_another_run_ends_the_ranks(ranked):
    page = ranked()
    page.evaluate("(r) => inflight.openReplay(r)", replay(memory_trace((3, 4))))
    settled(page)
    assert page.locator(".rank-line").is_hidden() and page.locator(".panel.mask").is_visible()
    page.keyboard.press("x")
    page.keyboard.press("a")
    page.keyboard.press("1")
    assert page.evaluate("() => [inflight.ranks.all, inflight.run.length > 0]") == [False, True]


@pytest.mark.parametrize("size", ["phone", (360, 740), "tablet"])
def test_the_picture_fits_its_screen(ranked, size):
    page = ranked(size=size)
    width = page.viewport_size["width"]
    legend = page.locator(".panel.ranks .legend span").all()
    boxes = [
        page.locator(s).nth(0).bounding_box()
        for s in (".rank-line", ".panel.ranks", ".panel.ranks .key", ".band h4")
    ]
    for box in [*boxes, *(entry.bounding_box() for entry in legend)]:
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert (
        page.locator(".panel.ranks .legend").evaluate(
            "(legend) => legend.scrollWidth <= legend.clientWidth"
        )
        and len(legend) == 4
    )
    if size != "tablet":
        assert all(
            b.bounding_box()["height"] >= 44 for b in page.locator(".rank-line .button").all()
        )


def test_a_ranks_share_of_the_time_is_of_the_time_that_is_shown_now(ranked):
    page = ranked({"rank": "all"})
    shares = page.evaluate(
        """() => { const { state, bands: [band] } = inflight.rankLanes;
        const { from, span } = state.ranks;
        return [span, 2 * span - from].map((span) => {
          band._say({ ...state, ranks: { ...state.ranks, span } });
          return parseFloat(band.share.textContent.slice(4)); }); }"""
    )
    assert shares[1] == pytest.approx(shares[0] / 2, abs=1)
