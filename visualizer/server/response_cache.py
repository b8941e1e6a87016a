"""Caches responses that are the same for all visitors: the first page, its resources, the recorded
runs. Each is fetched from the app once, compressed once, and then sent from memory, with an ETag so
that a browser that has it needs only a short answer.

No request can affect the responses to others: the app is called with a fixed host, without query
and cookies. Where the app writes the page's address, a placeholder is left, which the browser fills
in. Only clients without scripts need the address in the text: so the first page is cached once for
each of a few addresses.
"""

import asyncio
import gzip
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import brotli
import httpx
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.serving.http.guard import path_of

FOREVER = "public, max-age=31536000, immutable"  # for a name that is a hash of the content
ASK_AGAIN = "no-cache"  # the browser keeps it and revalidates each time
_OURS = "inflight.invalid"
_PLACES = {  # replaces the address that the app wrote
    # inside strings of scripts; the page's base is its own folder
    "/": b'"+document.baseURI.slice(0,-1)+"',
    "/config": b"",  # a client uses the address that it was given
}
_ALIKE = re.compile(r"/|/config/?|/theme\.css|/static/(\w+/)*[\w.-]+|/inflight/(state|comparisons)")
_BY_CONTENT = re.compile(r"/assets/[\w.-]+")
_FILE = re.compile(r"/inflight/files/([\w-]+\.(json|js))")
_GRADIOS_OWN = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_HOST = re.compile(
    r"[\w.-]{1,253}(:\d{1,5})?|\[[\da-f:]{2,45}\](:\d{1,5})?", re.ASCII | re.IGNORECASE
)
_MOST_ADDRESSES = 8  # further ones share an entry, so that made-up hosts take no memory
_PACKS = ("text/", "application/json", "application/javascript", "image/svg+xml")


def cache_control(path: str, is_everybodys: Callable[[str], bool]) -> str | None:
    """The `cache-control` of a path, None if its content depends on the visitor. is_everybodys:
    whether a file of the store is the same for everyone.
    """
    if _BY_CONTENT.fullmatch(path) or ((file := _FILE.fullmatch(path)) and is_everybodys(file[1])):
        return FOREVER
    return ASK_AGAIN if _ALIKE.fullmatch(path) else None


@dataclass(frozen=True)
class CachedResponse:
    """forms: the bytes by content encoding."""

    status: int
    media_type: str
    tag: str
    forms: dict[str, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.forms.values()))


class ResponseCache:
    """is_everybodys: see `cache_control`. most_bytes: of all entries, compressed; the least
    recently used is dropped first. head: given the page's address (ending in /, or empty), the meta
    tags that replace Gradio's on the first page, for clients without scripts: search engines, and
    chats that preview a link.
    """

    def __init__(
        self,
        app: ASGIApp,
        is_everybodys: Callable[[str], bool],
        most_bytes: int = 2**25,
        head: Callable[[str], str] = lambda at: "",
    ) -> None:
        self._app, self._is_everybodys = app, is_everybodys
        self._most, self._head = most_bytes, head
        self._addresses: set[str] = set()
        self._kept: OrderedDict[str, CachedResponse] = OrderedDict()
        self._pending: dict[str, asyncio.Task[CachedResponse]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        control = cache_control(path, self._is_everybodys) if scope["type"] == "http" else None
        at = self._address(scope) if path == "/" else ""
        name = at or path
        if control is None or not (
            scope["method"] == "GET" or (scope["method"] == "HEAD" and name in self._kept)
        ):
            await self._app(scope, receive, send)
            return
        if name in self._kept:
            self._kept.move_to_end(name)
            cached = self._kept[name]
        else:
            cached = await self._fetch_once(name, path, at, scope)
        if cached.status != HTTPStatus.OK:
            control = "no-store"
        await cached_answer(cached, control, scope)(scope, receive, send)

    def _address(self, scope: Scope) -> str:
        """The address under which the client found the page, ending in /; empty if it is unknown,
        or if there are too many already.
        """
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            return ""
        forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip()
        scheme = "https" if "https" in (scope.get("scheme"), forwarded) else "http"
        address = f"{scheme}://{host.lower()}{scope.get('root_path', '').rstrip('/')}/"
        if address not in self._addresses and len(self._addresses) < _MOST_ADDRESSES:
            self._addresses.add(address)
        return address if address in self._addresses else ""

    async def _fetch_once(self, name: str, path: str, at: str, scope: Scope) -> CachedResponse:
        """Fetch from the app; concurrent callers share the answer."""
        if name not in self._pending:
            self._pending[name] = asyncio.create_task(self._fetch(name, path, at, scope))
            self._pending[name].add_done_callback(lambda _: self._pending.pop(name))
        return await asyncio.shield(self._pending[name])

    async def _fetch(self, name: str, path: str, at: str, scope: Scope) -> CachedResponse:
        """Fetch and cache a response. name: its key. at: the page's own address, see `_address`."""
        root = scope.get("root_path", "").rstrip("/")
        transport = httpx.ASGITransport(
            lambda asked, *channels: self._app({**scope, **asked}, *channels),
            root_path=root,
            client=("", 0),
        )
        answer = await transport.handle_async_request(
            httpx.Request("GET", f"http://{_OURS}{scope['path']}")
        )
        body = await answer.aread()
        if path == "/":
            body = _GRADIOS_OWN.sub(b"", body).replace(
                b"<head>", b"<head>" + self._head(at).encode(), 1
            )
        if path in _PLACES:
            body = body.replace(f"http://{_OURS}{root}".encode(), _PLACES[path])
        media_type = answer.headers.get("content-type", "text/plain")
        cached = await asyncio.to_thread(packed, answer.status_code, media_type, body)
        if cached.status == HTTPStatus.OK and cached.size <= self._most // 4:
            self._kept[name] = cached
            while sum(kept.size for kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
        return cached


def packed(status: int, media_type: str, body: bytes) -> CachedResponse:
    """A response in all content encodings."""
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'
    forms = {"": body}
    if media_type.startswith(_PACKS) and len(body) > 400:
        forms = {"br": brotli.compress(body, quality=9), "gzip": gzip.compress(body, 9, mtime=0)}
    return CachedResponse(status, media_type, tag, forms)


def cached_answer(cached: CachedResponse, control: str, scope: Scope) -> Response:
    """The response: the bytes in an accepted encoding, or 304. control: the `cache-control`."""
    request = Headers(scope=scope)
    headers = {
        "content-type": cached.media_type,
        "cache-control": control,
        "etag": cached.tag,
        "vary": "accept-encoding",
    }
    tags = [tag.strip().removeprefix("W/") for tag in request.get("if-none-match", "").split(",")]
    if cached.status == HTTPStatus.OK and cached.tag.removeprefix("W/") in tags:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    encoding, body = _form(cached, request.get("accept-encoding", ""))
    if encoding:
        headers["content-encoding"] = encoding
    return Response(body, cached.status, headers)


def _form(cached: CachedResponse, accepted: str) -> tuple[str, bytes]:
    """The name of an accepted encoding, "" for none, and the bytes."""
    takes = {
        part.split(";")[0].strip()
        for part in accepted.lower().split(",")
        if "q=0" not in part.replace("q=0.", "")
    }
    found = next((name for name in cached.forms if name in takes), "")
    form = cached.forms.get(found)
    return found, gzip.decompress(cached.forms["gzip"]) if form is None else form
