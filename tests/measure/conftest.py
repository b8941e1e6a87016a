"""What tests of these scripts are given: the page's server."""

from worlds.page_server import page_url  # noqa: F401
