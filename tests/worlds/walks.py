"""Walks through the page: what a visitor does, and after each deed what has changed of what the
page says. A file of `tests/walks` holds both.

    open  part=compare&comparison=gpt2-six     the address; then: phone, simple
    > press  n                                 a deed, its fields parted by two spaces
    - status: 0 / 59                           what was there before it and is no longer
    + status: 1 / 59                           what is there since

What the page says is what a screen reader is told, with the focus, the tooltip and the address. Who
adds a walk writes its deeds, and `python tests/measure/told.py --walks` writes the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path

from playwright.sync_api import Page

from worlds.browser import settled

ANEW = "INFLIGHT_WALKS"  # in the environment: write what is told now
FOLDER = Path(__file__).parents[1] / "walks"
COMES = 120  # seconds until what was kept is there, on a busy machine
STAYS = 3.0  # seconds after which what has not changed is taken to be all
# What there is room for depends on the fonts of a machine, but for those whose letters are alike.
_ONE_WIDTH = """
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('* { font-family: monospace !important }');
    document.adoptedStyleSheets = [sheet];"""
_BESIDES = """() => {
    const { activeElement: on } = document;
    const focus = on === document.body ? '' : on.getAttribute('aria-label') || on.innerText.trim() || on.tagName + '.' + on.className;
    const tips = [...document.querySelectorAll('.tooltip')].filter(tip => tip.checkVisibility({ visibilityProperty: true, opacityProperty: true }));
    return ['address: ' + decodeURIComponent(location.hash), 'title: ' + document.title, 'focus: ' + focus,
        ...tips.map(tip => 'tooltip: ' + tip.innerText)]; }"""  # noqa: E501


def said(page: Page) -> list[str]:
    """Everything that the page says now, line by line."""
    settled(page)
    besides = [line for text in page.evaluate(_BESIDES) for line in text.splitlines()]
    here = page.evaluate("location.origin")
    return besides + page.locator("body").aria_snapshot().replace(here, "").splitlines()


def changes(before: list[str], after: list[str]) -> list[str]:
    lines = unified_diff([line.strip() for line in before], [line.strip() for line in after], n=0)
    return [
        f"{line[0]} {line[1:].rstrip()}"
        for line in lines
        if not line.startswith(("---", "+++", "@@"))
    ]


def _point(page: Page, selector: str, x: str, y: str) -> tuple[float, float]:
    """A place in an element, in shares of its width and height."""
    box = page.locator(selector).first.bounding_box()
    return box["x"] + float(x) * box["width"], box["y"] + float(y) * box["height"]


def _drag(page: Page, selector: str, x: str, y: str, to_x: str, to_y: str) -> None:
    page.mouse.move(*_point(page, selector, x, y))
    page.mouse.down()
    page.mouse.move(*_point(page, selector, to_x, to_y), steps=4)
    page.mouse.up()


DEEDS: dict[str, Callable[..., object]] = {
    "press": lambda page, key: page.keyboard.press(key),
    "click": lambda page, selector: page.locator(selector).first.click(),
    "point": lambda page, *where: page.mouse.move(*_point(page, *where)),
    "click at": lambda page, *where: page.mouse.click(*_point(page, *where)),
    "drag": _drag,
    "fill": lambda page, selector, text="": page.locator(selector).first.fill(text),
    "choose": lambda page, selector, value: page.locator(selector).first.select_option(value),
    "go": lambda page, hash: page.evaluate("(hash) => { location.hash = hash; }", hash),
    "back": lambda page: page.go_back(),
    "scroll": lambda page, selector: page.locator(selector).first.scroll_into_view_if_needed(),
}


def begun(visit: Callable[..., Page], url: str, first: str) -> Page:
    """The page that a walk begins with. first: its line, see above."""
    address, *options = first.removeprefix("open  ").split("  ")
    page = visit(
        url=f"{url}/",
        hash=address,
        drawn=False,
        size="phone" if "phone" in options else "desk",
        detail="simple" if "simple" in options else "full",
        color_scheme="light",
    )
    page.add_init_script(_ONE_WIDTH)
    page.reload()
    page.set_default_timeout(COMES * 1000)
    return page


def walked(page: Page, kept: list[str], anew: bool) -> Iterator[list[str]]:
    """After each deed of a walk, and before the first, the deed with what has changed. anew: as it
    comes to rest; else as soon as it is what was kept.
    """
    parts: list[list[str]] = []
    for line in kept:
        if line.startswith((">", "open")):
            parts.append([])
        parts[-1].append(line)
    before: list[str] = []
    for part in parts:
        name, *fields = part[0].removeprefix("> ").split("  ")
        if name != "open":
            DEEDS[name](page, *fields)
        now, since = said(page), time.monotonic()
        begin = since
        while True:
            found = [part[0], *changes(before, now)]
            waited = time.monotonic() - (since if anew else begin)
            if (found == part and not anew) or waited > (
                (STAYS if before else 4 * STAYS) if anew else COMES
            ):
                break
            time.sleep(0.05)
            again = said(page)
            if again != now:
                now, since = again, time.monotonic()
        before = now
        yield found
