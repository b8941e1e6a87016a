"""A real Chromium for tests of the page: the fixtures `chromium` and `visit`. Any foreign request
or page error fails the test.

A replay needs no server: `visit(replay=…)` opens it as one page whose address is answered here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Frame,
    Page,
    Playwright,
    Route,
    expect,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as NeverCame

from visualizer.page.bundle import page_html

HERE = "http://page.test/"
# The limit lets a context's pages share a process: each visit then takes a quarter less of a
# processor. Pages of other contexts have processes of their own, as other visitors have.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --renderer-process-limit=1"
)
# milliseconds: a machine with other work is slow, not wrong
PATIENCE = int(os.environ.get("INFLIGHT_PATIENCE", 240_000))
expect.set_options(timeout=PATIENCE)
LOOKS = 20  # milliseconds; a page that is looked at in every frame costs three times as much
SIZES = {
    "desk": (1440, 900),
    "tablet": (1024, 768),
    "upright": (768, 1024),
    "phone": (390, 844),
    "presenter": (1920, 1080),
}


def executable(has_profile: bool = False) -> str | None:
    """An installed Chromium or Chrome, the one without a window first, as it takes a quarter less
    of a processor; None leaves the choice to Playwright's own. has_profile: one that reads
    preferences, which that one does not.
    """
    named = os.environ.get("CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    if not has_profile:
        names = ("chromium-headless-shell", *names)
    return named or next(filter(None, map(shutil.which, names)), None)


# The opening plays once in a browser; what is tested is mostly what comes after it.
_HAS_SEEN_IT = "try { localStorage.setItem('inflight-opening', '1'); } catch {}"
_WANTS_THE_SERVER = "try { localStorage['inflight-engine'] ??= 'server'; } catch {}"


def a_browser_lasts(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    """The scope of browsers: one for a worker that has only tests of the page. Playwright holds an
    event loop while it is open, and tests of other packages need theirs.
    """
    return "session" if all("tests/page" in path for path in config.args) else "module"


@pytest.fixture(scope=a_browser_lasts)
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope=a_browser_lasts)
def chromium(playwright: Playwright) -> Iterator[Browser]:
    try:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS.split())
    except Exception as error:
        pytest.fail(
            "These tests need a Chromium: run `playwright install chromium`, or install it as"
            f" a package. {str(error)[:200]}"
        )
    yield browser
    browser.close()


@pytest.fixture
def fresh(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """`fresh(offline=True)`: an empty page in a context of its own, with these of Playwright's
    options. opening: see `visit`.
    """
    contexts: list[BrowserContext] = []

    def new_page(opening: bool = False, **options: Any) -> Page:
        contexts.append(chromium.new_context(**options))
        contexts[-1].set_default_timeout(PATIENCE)
        return _prepared(contexts[-1].new_page(), opening)

    yield new_page
    for context in contexts:
        context.close()


def _prepared(page: Page, opening: bool = False, in_tab: bool = False) -> Page:
    """See `visit`."""
    if not in_tab:
        page.add_init_script(_WANTS_THE_SERVER)
    if not opening:
        page.add_init_script(_HAS_SEEN_IT)
    return page


class _Contexts:
    """A browser's contexts, given out empty and taken back: most of what a visit costs is a process
    for its site, which a blank page keeps alive.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[str, list[BrowserContext]] = {}
        self._kept: dict[BrowserContext, tuple[str, Page, CDPSession]] = {}

    def take(self, site: str, options: dict[str, Any]) -> BrowserContext:
        """An unused one, with nothing stored in it."""
        kind = repr((site, sorted(options.items())))
        if free := self._free.get(kind):
            return free.pop()
        context = self._browser.new_context(**options)
        blank = context.new_page()
        blank.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
        blank.goto(site)
        self._kept[context] = kind, blank, context.new_cdp_session(blank)
        return context

    def give_back(self, context: BrowserContext) -> None:
        kind, blank, session = self._kept[context]
        for page in context.pages:
            if page is not blank:
                page.close()
        # not what an engine in a tab has kept of itself: it then starts in a third of the time
        stored = "cookies,file_systems,indexeddb,local_storage,service_workers,storage_buckets"
        session.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": stored})
        self._free.setdefault(kind, []).append(context)

    def close(self) -> None:
        """Close them all, with the processes of their sites."""
        for context in self._kept:
            context.close()


@pytest.fixture(scope="module")
def contexts(chromium: Browser) -> Iterator[_Contexts]:
    kept = _Contexts(chromium)
    yield kept
    kept.close()


@pytest.fixture
def returning(contexts: _Contexts) -> Iterator[Callable[..., Page]]:
    """`returning(url)`: an empty page in a browser that has kept of earlier visits to this host, in
    the same module, the engine that runs in a tab, and nothing else. options: Playwright's.
    """
    taken: list[BrowserContext] = []

    def new_page(url: str, **options: Any) -> Page:
        taken.append(contexts.take(url, options))
        taken[-1].set_default_timeout(PATIENCE)
        return _prepared(taken[-1].new_page())

    yield new_page
    for context in taken:
        contexts.give_back(context)


@pytest.fixture
def visit(contexts: _Contexts) -> Iterator[Callable[..., Page]]:
    """`visit(replay=…)`, `visit(options=…)` or `visit(url=…)`: a page on which the player has drawn
    a step.

    size: a name of SIZES or (width, height); hash: the address after #; files: {path: text}
    answered beside the page; detail: what this visitor chose before, None for who never has;
    opening: a first visit, on which it plays; in_tab: this visitor runs in the tab what a server's
    page could run, too; context: more of Playwright's options. `page.foreign` and `page.errors`
    must stay empty, but for errors with a word of `page.meant`. Nothing is stored from another
    visit but the engine that runs in a tab.
    """
    opened: list[Page] = []

    def open_page(
        url: str = "",
        *,
        replay: dict | None = None,
        options: dict | None = None,
        size: str | tuple[int, int] = "desk",
        hash: str = "",
        files: dict[str, str] | None = None,
        drawn: bool = True,
        detail: str | None = "full",
        opening: bool = False,
        in_tab: bool = False,
        **context: Any,
    ) -> Page:
        width, height = SIZES[size] if isinstance(size, str) else size
        if size == "phone":
            context = {"is_mobile": True, "has_touch": True, **context}
        page = contexts.take(url or HERE, {"accept_downloads": True, **context}).new_page()
        page.set_viewport_size({"width": width, "height": height})
        _prepared(page, opening, in_tab)
        if detail:
            page.add_init_script(
                f"try {{ localStorage['inflight-detail'] ??= '{detail}'; }} catch {{}}"
            )
        opened.append(page)
        page.context.set_default_timeout(PATIENCE)
        page.foreign, page.errors, page.meant = [], [], []  # type: ignore[attr-defined]
        page.on("pageerror", lambda e: page.errors.append(e.stack or str(e)))  # type: ignore[attr-defined]
        page.on("console", lambda m: page.errors.append(m.text) if m.type == "error" else None)  # type: ignore[attr-defined]
        answers = {
            "": page_html(options or ({"replay": replay} if replay else {})),
            **(files or {}),
            "favicon.ico": "",
        }
        page.route("**/*", lambda route: _answer(route, page, url or HERE, answers))
        page.goto((url or HERE) + (f"#{hash}" if hash else ""))
        if drawn:
            settled(page, "inflight.drawn >= 0")
        return page

    yield open_page
    seen = [
        ([e for e in page.errors if not any(word in e for word in page.meant)], page.foreign)
        for page in opened
    ]  # type: ignore[attr-defined]
    for page in opened:
        contexts.give_back(page.context)
    for errors, foreign in seen:
        assert not foreign, f"the page asked elsewhere: {foreign}"
        assert not errors, errors


def _answer(route: Route, page: Page, own: str, answers: dict[str, str]) -> None:
    url = route.request.url
    path = url.split("#")[0].removeprefix(HERE)
    if own == HERE and url.startswith(HERE) and path in answers:
        kind = "application/json" if path.endswith(".json") else "text/html"
        route.fulfill(body=answers[path], content_type=f"{kind}; charset=utf-8")
    elif (own != HERE and url.startswith(own.rstrip("/"))) or url.startswith(("data:", "blob:")):
        route.continue_()
    else:
        page.foreign.append(url)  # type: ignore[attr-defined]
        route.abort()


# What is asked of the parts of the page is drawn in the next frame, and a canvas learns its size
# after the page is laid out.
_SETTLED = """() => ![window.inflight, window.inflightCompare?.race, window.inflightLive].some(part => part?.drawsSoon || part?.motion?.going)
    && [...document.querySelectorAll('.canvas > canvas')].every(canvas => {
        const { clientWidth: w, clientHeight: h } = canvas.parentElement, d = Math.min(devicePixelRatio, 3);
        return !w || !h || (canvas.width === Math.max(1, Math.round(w * d)) && canvas.height === Math.max(1, Math.round(h * d))); })"""  # noqa: E501


def open_editor(page: Page) -> None:
    """By its button, or where the bar is narrow by the menu."""
    if page.locator(".edit-button").is_visible():
        page.click(".edit-button")
    else:
        page.click(".more-button:visible")
        page.click("[role=menuitem] >> text=Edit requests")
    page.wait_for_selector(".request-rows > *")


def settled(page: Page | Frame, once: str = "true", arg: object = None) -> None:
    """Wait until a condition holds and all of it is drawn: what is on screen may be read.

    once: in JavaScript, an expression or a function of `arg`; what it reads may not be there yet. A
    condition alone tells what the page knows, which is drawn a frame later.
    """
    waits = f"""(arg) => {{
        try {{ const once = {once}; if (!(typeof once === 'function' ? once(arg) : once)) return false; }}
        catch {{ return false; }}
        return ({_SETTLED})(); }}"""  # noqa: E501
    try:
        page.wait_for_function(waits, arg=arg, polling=LOOKS)
    except NeverCame as error:
        raise AssertionError(
            f"{once} never came at {page.url}; the page says: {page.inner_text('body')[:3000]}"
        ) from error


def seek(page: Page, index: int) -> None:
    """Go to a step by its index and wait until it is drawn."""
    page.evaluate("(i) => inflight.seek(i)", index)
    settled(page, "(index) => inflight.drawn === index", index)


# The pixels of every canvas and the words around them, once they have not changed for half a
# second.
_STILL = """() => new Promise(done => { let before = null, same = 0; const look = () => {
    const now = [...document.querySelectorAll('.inflight canvas')].map(c => c.toDataURL()).join() + document.querySelector('.stage').innerText;
    same = now === before ? same + 1 : 0; before = now;
    if (same < 30 || document.getAnimations().some(a => a.playState === 'running')) requestAnimationFrame(look); else done(now); }; look(); })"""  # noqa: E501


_MASK = """(number) => {
    inflight.store.set({ pass: number });
    inflight.draw();
    const { at } = inflight.mask.drawn, { canvas, d, g } = inflight.mask.surface, { hues, waste, warn } = inflight.palette;
    const { data } = g.getImageData(0, 0, canvas.width, canvas.height), range = (from, end) => Array.from({ length: end - from }, (_, i) => from + i);
    const allowed = new Set([warn, ...[...hues, waste].flatMap((c) => [c.solid, c.cached])].map((hex) => parseInt(hex.slice(1), 16))); // warn: leaked
    const middle = (from, end) => Math.floor((from + end) / 2 * d);
    return range(at.view[0], at.view[1]).map((q) => range(at.view[2], at.view[3]).map((k) => {
        const o = (middle(at.y(q), at.y(q + 1)) * canvas.width + middle(at.x(k), at.x(k + 1))) * 4;
        return allowed.has((data[o] << 16) | (data[o + 1] << 8) | data[o + 2]);
    }));
}"""  # noqa: E501


def mask_drawn(page: Page, number: int = 0) -> np.ndarray:
    """What the pixels say of a pass: queries × keys, whether allowed, read from the middle of each
    cell of the canvas.
    """
    return np.array(page.evaluate(_MASK, number), dtype=bool)


def still(page: Page) -> str:
    """What the player shows once nothing moves any more."""
    return page.evaluate(_STILL)
