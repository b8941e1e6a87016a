"""What everybody is sent alike is made once, and no visitor can change what others get or how much
is kept.
"""

from __future__ import annotations

import asyncio
import gzip
import re

import brotli
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from visualizer.server.response_cache import ASK_AGAIN, FOREVER, ResponseCache

WORDS = "to be or not to be " * 100


class Site:
    """A page whose answers tell how often they were made, and for whom: what must never get to
    another visitor.
    """

    def __init__(self, most_bytes: int = 2**25) -> None:
        self.made: list[str] = []
        routes = [
            Route("/", self._page),
            Route("/config", self._page),
            Route("/{rest:path}", self._file),
        ]
        self.app = ResponseCache(
            Starlette(routes=routes), lambda name: name.startswith("everybodys"), most_bytes
        )

    async def _page(self, request: Request) -> Response:
        self.made.append(request.url.path)
        await asyncio.sleep(0)
        said = (
            f'{{"root": "{str(request.url).rstrip("/")}", "cookie":'
            f' "{request.headers.get("cookie")}"}}{WORDS}'
        )
        return Response(said, media_type="text/html")

    async def _file(self, request: Request) -> Response:
        self.made.append(request.url.path)
        return PlainTextResponse(WORDS, 404 if "none" in request.url.path else 200)

    def ask(self, *asked: str, root_path: str = "", **headers: str) -> list[httpx.Response]:
        """All at once."""

        async def visit() -> list[httpx.Response]:
            way = httpx.ASGITransport(self.app, root_path=root_path)
            async with httpx.AsyncClient(transport=way, base_url="http://here") as http:
                return await asyncio.gather(*(http.get(path, headers=headers) for path in asked))

        return asyncio.run(visit())


def test_the_second_visit_makes_nothing_and_those_who_come_at_once_share_one():
    site = Site()
    site.ask(*["/"] * 30)
    site.ask("/", "/?page=none", "/?deep_link=x")
    assert site.made == ["/"]


def test_what_a_visitor_writes_is_not_in_what_another_gets():
    site = Site()
    hostile = {
        "Host": "evil.example",
        "X-Forwarded-Host": "evil.example",
        "X-Gradio-Server": "http://evil.example",
        "Cookie": "evil=1",
    }
    first, second = site.ask("/", **hostile)[0], site.ask("/")[0]
    assert (
        first.content == second.content and b"evil" not in first.content and site.made == ["/", "/"]
    )
    assert (
        '"root": ""+document.baseURI.slice(0,-1)+""' in first.text
        and '"cookie": "None"' in first.text
    )


def test_a_browser_fills_in_the_address_under_which_it_found_the_page():
    site = Site()
    for root, path in (("", "/"), ("/lab/inflight", "/lab/inflight/"), ("/lab/inflight", "/")):
        assert '"root": ""+document.baseURI' in site.ask(path, root_path=root)[0].text
    assert '"root": "/config"' in site.ask("/config")[0].text and site.made == [
        "/",
        "/lab/inflight/",
        "/config",
    ]


def test_neither_addresses_nor_hosts_that_are_made_up_fill_it():
    site = Site()
    site.ask(
        *(f"/assets/none-{i}.js" for i in range(50)),
        *(f"/assets/{'a/' * i}x.js" for i in range(1, 50)),
    )
    site.ask(*(f"/inflight/files/mine-{i}.json" for i in range(50)))
    for i in range(50):
        site.ask("/", Host=f"host-{i}.example")
    assert len(site.app._kept) == 1 + 8  # hosts: a few only


def test_the_oldest_goes_when_there_is_no_room():
    site = Site(most_bytes=1000)
    site.ask("/", *(f"/assets/a{i}.js" for i in range(100)))
    assert sum(kept.size for kept in site.app._kept.values()) <= 1000
    site.made.clear()
    site.ask("/assets/a99.js", "/assets/a0.js")
    assert site.made == ["/assets/a0.js"]
    for number in range(100, 200):  # what is asked for again and again stays
        site.ask(f"/assets/a{number}.js", "/assets/a99.js")
    assert "/assets/a99.js" not in site.made and len(site.made) == 101


@pytest.mark.parametrize(
    ("accepted", "encoding", "opened"),
    [
        ("gzip, deflate, br", "br", brotli.decompress),
        ("gzip, br;q=0", "gzip", gzip.decompress),
        ("br;q=0.5", "br", brotli.decompress),
        ("identity", None, bytes),
        ("", None, bytes),
    ],
)
def test_it_is_packed_as_a_visitor_can_open_it(accepted, encoding, opened):
    site = Site()

    async def raw() -> tuple[bytes, httpx.Headers]:
        way, asked = httpx.ASGITransport(site.app), {"Accept-Encoding": accepted}
        async with (
            httpx.AsyncClient(transport=way) as http,
            http.stream("GET", "http://here/assets/a.js", headers=asked) as answer,
        ):
            return b"".join([piece async for piece in answer.aiter_raw()]), answer.headers

    body, headers = asyncio.run(raw())
    assert headers.get("content-encoding") == encoding and opened(body).decode() == WORDS
    assert int(headers["content-length"]) == len(body) and headers["vary"] == "accept-encoding"


def test_who_has_it_is_told_so():
    site = Site()
    first = site.ask("/")[0]
    again = site.ask("/", **{"If-None-Match": f'"other", {first.headers["etag"]}'})[0]
    assert (
        again.status_code == 304
        and not again.content
        and again.headers["etag"] == first.headers["etag"]
    )
    assert site.ask("/", **{"If-None-Match": '"other"'})[0].status_code == 200


def test_how_long_it_is_kept_goes_by_the_name():
    site = Site()
    page, asset, recorded, own, none = site.ask(
        "/",
        "/assets/a.js",
        "/inflight/files/everybodys.json",
        "/inflight/files/mine.json",
        "/assets/none.js",
    )
    assert [a.headers.get("cache-control") for a in (page, asset, recorded, own, none)] == [
        ASK_AGAIN,
        FOREVER,
        FOREVER,
        None,
        "no-store",
    ]


def test_the_page_is_the_same_for_everybody(space_url, http):
    """The real one: Gradio's own answers depend on the Host that a visitor makes up, and the first
    one's stays for all.
    """
    hostile = {
        "Host": "evil.example",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "https",
    }
    for path in ("", "config", "theme.css", "?page=none", "config?deep_link=none"):
        first, second = (
            http.get(f"{space_url}/{path}", headers=hostile),
            http.get(f"{space_url}/{path}"),
        )
        # the picture that previews of a link show
        own = first.text.replace("https://evil.example/", f"{space_url}/")
        assert (
            first.status_code == second.status_code == 200
            and own == second.text
            and "evil" not in second.text
        )
        assert b"evil.example" not in second.content and b"inflight.invalid" not in second.content
    page = http.get(space_url).text
    outside = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert "document.baseURI" in page and "document.baseURI" not in outside
