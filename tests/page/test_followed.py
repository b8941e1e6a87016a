"""The Live tab on another engine's recording while it is written: a real one of vLLM, written again
by a process of its own.
"""

from __future__ import annotations

import gzip
import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.recorders.convert import import_recording
from worlds.axe import serious
from worlds.browser import settled
from worlds.collecting import sending_again
from worlds.page_server import serve
from worlds.ranks import FILES as RANKS
from worlds.ranks import records
from worlds.recording_writer import writing

DATA = Path(__file__).resolve().parents[1] / "data"
VLLM, SPECULATION = DATA / "vllm-0.32.raw.jsonl.gz", DATA / "vllm-0.32-speculation.raw.jsonl.gz"
SAYS = "document.querySelector('.live-says').textContent"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recordings").mkdir()
    return tmp_path / "recordings"


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with serve((sys.executable, "app.py", "--follow", str(folder))) as url:
        yield url


def opened(visit, url: str, **context: object) -> Page:
    page = visit(f"{url}/", hash="part=live", drawn=False, **context)
    settled(page, "window.inflightLive && inflightLive.before && inflightLive.batch.state.followed")
    return page


@pytest.mark.slow
def test_an_engine_is_watched_by_its_recording(url, folder, visit):
    """From before there is one, by two visitors, to its end, and on to the next one; nobody is
    offered to ask or to steer.
    """
    whole = import_recording(VLLM)
    ada, bo = opened(visit, url), opened(visit, url, size="phone")
    settled(ada, f"{SAYS}.startsWith('There is no recording in recordings yet')")
    # the opening would stand before what its owner wants to see
    assert ada.evaluate("inflight.options.opening") is None
    with writing(VLLM, folder / "run.raw.jsonl"):
        for page in (ada, bo):
            settled(
                page,
                "inflightLive.batch.run?.length > 8 && inflight.run === inflightLive.batch.run",
            )
        for words in (
            "vLLM 0.32.0",
            "you can watch it, but not control it",
            "Not recorded by vLLM, and absent here: prepare, sample.",
        ):
            expect(ada.locator(".followed")).to_contain_text(words)
        for selector in (".ask-form", ".teacher-button", ".qr-button", ".save-button", ".own"):
            assert ada.locator(f".live {selector}").is_hidden(), selector
        ada.keyboard.press("Home")
        settled(ada, "inflight.drawn === 0 && !inflight.following")
        settled(bo, f"inflight.run.length === {len(whole.events)}")
        settled(ada, f"inflight.run.length === {len(whole.events)}")
        assert ada.evaluate("inflight.index") == 0 and bo.evaluate(
            "inflight.following && inflight.index === inflight.run.length - 1"
        )
        for page in (ada, bo):
            assert page.evaluate("inflight.run.texts") == {
                "prompt": whole.texts.prompt,
                "output": whole.texts.output,
            }
            lanes = [[s.lane for s in event.segments] for event in whole.events]
            assert (
                page.evaluate("inflight.run.events.map(e => e.segments.map(s => s.lane))") == lanes
            )
    with writing(SPECULATION, folder / "run.raw.jsonl"):  # started again, in the same file
        settled(
            bo, "inflight.run.events.some(e => e.drafts.length) && inflight.run.stepOf(0) === 0"
        )
    assert not bo.evaluate("inflightLive.batch.broken")


@pytest.mark.slow
def test_after_a_gap_the_page_says_what_is_missing(url, folder, visit):
    """Three steps were dropped: what is shown ends before them, until a snapshot comes."""
    header, *steps = (
        line
        for line in gzip.decompress(VLLM.read_bytes()).decode().splitlines(keepends=True)
        if '"end"' not in line[:20]
    )
    (folder / "run.raw.jsonl").write_text("".join([header, *steps[:6], *steps[9:]]))
    page = opened(visit, url)
    says = page.locator(".live-says")
    expect(says).to_contain_text(
        "Steps 6 to 8 are missing in run.raw.jsonl: steps are shown again from the next snapshot on"
    )
    expect(says).to_contain_text("At least 100 steps have passed meanwhile.")
    page.wait_for_function("() => inflightLive.batch.run.length === 6")


def button(page: Page, name: str):
    return page.locator(".followed-streams").get_by_role("button", name=name, exact=True)


ALL = (
    "inflight.ranks.all && inflight.ranks.members.length === 2 && inflight.rankLanes.bands.every(b"
    " => b.chart.scale)"
)
STEPS = [len(records(rank)) - 1 for rank in (0, 1)]
WHOLE = f"{ALL} && inflight.ranks.members.every((m, n) => m.run.length === {STEPS}[n])"


@pytest.mark.slow
def test_all_ranks_are_followed_on_one_clock(url, folder, visit):
    """While both are written: stacked where their machine's clock says, at the newest step, with
    every letter once; one alone and back.
    """
    page = opened(visit, url)
    with (
        writing(RANKS[0], folder / "run.rank0.raw.jsonl"),
        writing(RANKS[1], folder / "run.rank1.raw.jsonl"),
    ):
        button(page, "All ranks").click()
        settled(page, ALL)
        expect(page.locator(".followed h2")).to_have_text("vLLM 0.32.0, 2 ranks")
        expect(page.locator(".followed")).to_contain_text(
            "All ranks are on the clock of their machine."
        )
        settled(page, WHOLE)
    starts = [records(rank)[0]["clock"]["monotonic_ns"] / 1e9 for rank in (0, 1)]
    times = [
        [(start + s["t_start"], start + s["t_end"]) for s in records(rank)[1:]]
        for rank, start in zip((0, 1), starts, strict=True)
    ]
    zero, end = (
        min(t for steps in times for t, _ in steps),
        max(t for steps in times for _, t in steps),
    )
    per = (page.evaluate("inflight.rankLanes.axis.w") - 26) / 2 ** math.ceil(math.log2(end - zero))
    drawn = page.evaluate(
        "inflight.rankLanes.bands.map(b => b.run.events.map((_, i) => [b.chart.scale.from(i),"
        " b.chart.scale.to(i)]))"
    )
    for shown, steps in zip(drawn, times, strict=True):
        assert [x for pair in shown for x in pair] == pytest.approx(
            [24 + (t - zero) * per for p in steps for t in p], abs=0.05
        )
    head = page.evaluate("new DOMMatrix(getComputedStyle(inflight.rankLanes.head).transform).e")
    assert head == pytest.approx(24 + (end - zero) * per, abs=0.1) and page.evaluate(
        "inflight.following"
    )
    letters = page.evaluate(
        "inflight.ranks.members.flatMap(m => m.run.requests.map(r => r.letter))"
    )
    assert len(letters) == len(set(letters)) > 8

    page.keyboard.press("Home")  # whoever looks back is left there
    settled(page, "!inflight.following && inflight.ranks.now === inflight.ranks.from")
    expect(page.locator(".live-badge")).to_contain_text("back to live")
    # as a click on a step does
    page.evaluate("inflight.ranks.choose(inflight.ranks.members[1], 12)")
    settled(
        page,
        "!inflight.ranks.all && inflight.run === inflightLive.batch.run && inflight.frame?.i"
        " === 12",
    )
    expect(page.locator(".followed h2")).to_have_text("vLLM 0.32.0, rank 1 of 2")
    expect(page.locator(".panel.mask")).to_be_visible()
    button(page, "Rank 0").click()
    settled(page, f"inflight.run?.length === {STEPS[0]} && inflight.frame?.i === {STEPS[0] - 1}")
    expect(page.locator(".followed h2")).to_have_text("vLLM 0.32.0, rank 0 of 2")

    button(page, "All ranks").click()
    settled(page, WHOLE)
    # of another rank now: there are no two ranks any more
    with writing(RANKS[0], folder / "run.rank1.raw.jsonl"):
        expect(button(page, "All ranks")).to_be_hidden()
    page.evaluate("document.querySelector('.inflight.live .tabs button').click()")
    page.wait_for_function(
        "document.documentElement.dataset.part === 'watch' && !inflight.ranks.all &&"
        " !inflightLive.fleet"
    )


@pytest.mark.slow
def test_ranks_are_followed_one_by_one_or_all_and_axe_finds_nothing_serious(url, folder, visit):
    for rank, file in enumerate(RANKS):
        (folder / f"run.rank{rank}.raw.jsonl").write_bytes(gzip.decompress(file.read_bytes()))
    for size, scheme in product(("desk", "phone"), ("light", "dark")):
        page = opened(visit, url, size=size, color_scheme=scheme)
        settled(page, "inflight.drawn >= 0 && inflightLive.batch.state.followed.ranks.length === 2")
        expect(page.locator(".followed h2")).to_contain_text("rank 0 of 2")
        button(page, "Rank 1").click()
        settled(
            page,
            f"inflightLive.batch.run?.length === {STEPS[1]} && inflight.run ==="
            " inflightLive.batch.run && inflight.drawn >= 0",
        )
        # the card is drawn in the frame after
        expect(page.locator(".followed h2")).to_contain_text("rank 1 of 2")
        for shown in ("one", "all"):
            if shown == "all":
                button(page, "All ranks").click()
                settled(page, WHOLE)
                expect(page.locator(".followed h2")).to_contain_text("2 ranks")
            assert serious(page) == [], (size, scheme, shown)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_engines_that_send_to_the_page_are_listed_and_shown_together(tmp_path, visit):
    """Two engines, one of them with two ranks, send what was recorded of them: a row each, with
    what it has to do, all on one clock.
    """
    folder = tmp_path / "collected"
    with serve((sys.executable, "app.py", "--collect", str(folder))) as url:
        sender = f"{url}/inflight/collect?token={(folder / '.token').read_text()}"
        with (
            sending_again(VLLM, sender, instance="a", host="node1", pid=1),
            sending_again(RANKS[0], sender, instance="b", host="node2", pid=2),
            sending_again(RANKS[1], sender, instance="b", host="node2", pid=3),
        ):
            for size in ("desk", "phone"):
                page = opened(visit, url, size=size)
                page.meant.append(
                    "status of 422"
                    # while engines come in, one may have another name than when it was listed; it
                    # is asked for again
                )
                rows = page.locator(".engines tbody tr")
                expect(rows).to_have_count(3)
                names = {row.split("\n")[0] for row in rows.all_inner_texts()}
                assert names == {"node1:1", "node2:2, rank 0", "node2:2, rank 1"}
                expect(rows.filter(has_text="node1:1").locator("td").nth(2)).to_contain_text("%")
                button(page, "All engines").click()
                settled(page, "inflight.ranks.all && inflight.ranks.members.length === 3")
                expect(page.locator(".followed h2")).to_have_text("2 engines")
                expect(page.locator(".band h4 button").first).to_contain_text("node")
                assert serious(page) == []
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                rows.get_by_role("button", name="node2:2, rank 1").click()
                settled(
                    page, f"!inflight.ranks.all && inflightLive.batch.run?.length === {STEPS[1]}"
                )
                expect(page.locator(".engines [aria-pressed=true]")).to_have_text("node2:2, rank 1")
                button(page, "All ranks").click()
                settled(page, "inflight.ranks.all && inflight.ranks.members.length === 2")
        expect(rows.filter(has_text="node1:1")).to_contain_text("ended")
    assert len(list(folder.glob("*.jsonl"))) == 3
