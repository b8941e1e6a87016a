"""Write, as its visitor uses it: code is typed and run."""

from __future__ import annotations

from playwright.sync_api import Page

from worlds.browser import settled


def put(page: Page, code: str) -> None:
    """Type code in place of what is there."""
    page.click(".cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)


def ran(page: Page, button: str = ".run-button") -> dict:
    """Press it and wait; what was tried."""
    page.click(button)
    settled(page, "inflightWrite.stop")
    settled(page, "!inflightWrite.stop")
    return page.evaluate("inflightWrite.outcome.attempt")
