"""The Live tab on another engine's recording while it is written: a real one of vLLM, written again by a process of its own."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.recorders.convert import open_recording
from worlds.axe import serious
from worlds.browser import settled
from worlds.page_server import serve
from worlds.ranks import FILES as RANKS
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
    """From before there is one, by two visitors, to its end, and on to the next one; nobody is offered to ask or to steer."""
    whole = open_recording(VLLM)
    ada, bo = opened(visit, url), opened(visit, url, size="phone")
    settled(ada, f"{SAYS}.startsWith('There is no recording in recordings yet')")
    with writing(VLLM, folder / "run.raw.jsonl"):
        for page in (ada, bo):
            settled(page, "inflightLive.batch.run?.length > 8 && inflight.run === inflightLive.batch.run")
        for words in ("vLLM 0.32.0", "watched, not steered", "Not recorded by vLLM, and absent here: prepare, sample."):
            expect(ada.locator(".followed")).to_contain_text(words)
        for selector in (".ask", ".teacher-button", ".qr-button", ".save-button", ".own"):
            assert ada.locator(f".live {selector}").is_hidden(), selector
        ada.keyboard.press("Home")
        settled(ada, "inflight.drawn === 0 && !inflight.following")
        settled(bo, f"inflight.run.length === {len(whole.events)}")
        settled(ada, f"inflight.run.length === {len(whole.events)}")
        assert ada.evaluate("inflight.index") == 0 and bo.evaluate(
            "inflight.following && inflight.index === inflight.run.length - 1"
        )
        for page in (ada, bo):
            assert page.evaluate("inflight.run.texts") == {"prompt": whole.texts.prompt, "output": whole.texts.output}
            lanes = [[s.lane for s in event.segments] for event in whole.events]
            assert page.evaluate("inflight.run.events.map(e => e.segments.map(s => s.lane))") == lanes
    with writing(SPECULATION, folder / "run.raw.jsonl"):  # started again, in the same file
        settled(bo, "inflight.run.events.some(e => e.drafts.length) && inflight.run.stepOf(0) === 0")
    assert not bo.evaluate("inflightLive.batch.broken")


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_ranks_are_followed_one_by_one_and_axe_finds_nothing_serious(url, folder, visit, size):
    for rank, file in enumerate(RANKS):
        (folder / f"run.rank{rank}.raw.jsonl").write_bytes(gzip.decompress(file.read_bytes()))
    for scheme in ("light", "dark"):
        page = opened(visit, url, size=size, color_scheme=scheme)
        settled(page, "inflight.drawn >= 0 && inflightLive.batch.state.followed.streams.length === 2")
        expect(page.locator(".followed")).to_contain_text("Each recording is followed by itself.")
        page.get_by_role("button", name="recordings, rank 1").click()
        settled(page, "inflightLive.batch.run?.length === 40 && inflight.run === inflightLive.batch.run && inflight.drawn >= 0")
        expect(page.locator(".followed h2")).to_contain_text("rank 1 of 2")
        assert serious(page) == [], scheme
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
