"""The Firefox that is installed, for tests of what a second browser must do as well: the fixture
`firefox`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright

from worlds.browser import a_browser_lasts
from worlds.firefox_driver import executable


@pytest.fixture(scope=a_browser_lasts)
def firefox(playwright: Playwright) -> Iterator[Browser]:
    """Driven over WebDriver BiDi, so that no browser of Playwright's own has to be downloaded."""
    if executable() is None:
        missing = (
            "These tests need a Firefox: install it as a package, or name one in"
            " FIREFOX=/path/to/firefox."
        )
        (pytest.fail if os.environ.get("INFLIGHT_REQUIRE_BROWSER") else pytest.skip)(missing)
    driver = str(Path(__file__).with_name("firefox_driver.py"))
    browser = playwright.firefox.launch(channel="moz-firefox", executable_path=driver)
    yield browser
    browser.close()
