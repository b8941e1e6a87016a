"""What tests of the page are given: a browser, the page's server, small runs.

They walk through the page, which takes long: `make test-page` runs them. Those that are marked
`smoke` run with `make test` as well.
"""

from pathlib import Path

import pytest

from worlds.browser import chromium, contexts, fresh, playwright, returning, visit  # noqa: F401
from worlds.firefox import firefox  # noqa: F401
from worlds.live_page import live_server, live_url  # noqa: F401
from worlds.page_server import http, page_url, space_url  # noqa: F401
from worlds.player import traces  # noqa: F401
from worlds.pyodide import engine_files  # noqa: F401
from worlds.sites import plain_site_folder, site_folder  # noqa: F401
from worlds.tab_runs import engine_site  # noqa: F401

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("page")
