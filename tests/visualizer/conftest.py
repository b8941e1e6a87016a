"""What tests of the server are given: the page's server, a client, loaded models."""

from worlds.page_server import http, page_url, space_url  # noqa: F401
from worlds.visitors import models  # noqa: F401
