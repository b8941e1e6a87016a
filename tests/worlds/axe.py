"""What axe finds on a page that has come to rest."""

from __future__ import annotations

from importlib.resources import files

from playwright.sync_api import Page

from worlds.browser import settled

_RUN = """axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact))
    .map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 160))]))"""


def serious(page: Page) -> list[list]:
    """Its serious and critical findings: [rule, the first elements]; none is of a colour that still
    fades in.
    """
    settled(page, "document.getAnimations().every(a => a.playState !== 'running')")
    page.evaluate(
        (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8") + ";0"
    )
    return page.evaluate(_RUN)
