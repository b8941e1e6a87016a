"""What tests of the page are given: a browser, the page's server, small runs."""

from worlds.browser import chromium, contexts, fresh, visit  # noqa: F401
from worlds.firefox import firefox  # noqa: F401
from worlds.page_server import http, page_url, space_url  # noqa: F401
from worlds.player import traces  # noqa: F401
from worlds.pyodide import engine_files  # noqa: F401
from worlds.tab_runs import engine_site  # noqa: F401
