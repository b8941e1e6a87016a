"""What everybody is sent alike: the first page, what it is made of, the recorded runs. The app behind is asked for each once; it is packed
once, and sent from memory from then on, with a tag by which a browser that has it is answered in a line.

Nothing that a visitor writes is kept or changes what others get: the app is asked under a host of our own, without query and cookies. Where
it writes the page's address, a place is left that the browser fills, which knows under which address it found the page. Knows nothing of
what is inside.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import brotli

from visualizer.server.middleware import Message, Receive, Send, path_of

FOREVER = "public, max-age=31536000, immutable"  # for a name that is a hash of what is inside
ASK_AGAIN = "no-cache"  # kept by the browser, which asks each time whether it has changed
_OURS = "inflight.invalid"
_PLACES = {  # what stands where the app wrote its address
    "/": b'"+document.baseURI.slice(0,-1)+"',  # within the strings of scripts; the page's base is its own folder
    "/config": b"",  # a client takes the address that it was given
    "/gradio_api/info": b"",
}
_ALIKE = re.compile(r"/|/(config|gradio_api/info)/?|/theme\.css|/static/(\w+/)*[\w.-]+|/inflight/(state|comparisons)")
_BY_CONTENT = re.compile(r"/assets/[\w.-]+")
_FILE = re.compile(r"/inflight/files/([\w-]+\.(json|js))")
_PACKS = ("text/", "application/json", "application/javascript", "image/svg+xml")


def cache_control(path: str, is_everybodys: Callable[[str], bool]) -> str | None:
    """How long a browser may keep what lies at a path, as `cache-control` says it; None for what is not everybody's.

    is_everybodys: whether a file of the store is.
    """
    if _BY_CONTENT.fullmatch(path) or ((file := _FILE.fullmatch(path)) and is_everybodys(file[1])):
        return FOREVER
    return ASK_AGAIN if _ALIKE.fullmatch(path) else None


@dataclass(frozen=True)
class CachedResponse:
    """forms: the bytes by the name of their encoding."""

    status: int
    media_type: bytes
    tag: bytes
    forms: dict[bytes, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.forms.values()))


class ResponseCache:
    """is_everybodys: see `cache_control`. most_bytes: of all that is kept, packed; what was asked for longest ago goes first."""

    def __init__(self, app: Callable[..., Any], is_everybodys: Callable[[str], bool], most_bytes: int = 2**25) -> None:
        self._app, self._is_everybodys, self._most = app, is_everybodys, most_bytes
        self._kept: OrderedDict[str, CachedResponse] = OrderedDict()
        self._pending: dict[str, asyncio.Task[CachedResponse]] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        path = path_of(scope)
        control = cache_control(path, self._is_everybodys) if scope["type"] == "http" else None
        if control is None or not (scope["method"] == "GET" or (scope["method"] == "HEAD" and path in self._kept)):
            await self._app(scope, receive, send)
            return
        if path in self._kept:
            self._kept.move_to_end(path)
            cached = self._kept[path]
        else:
            cached = await self._fetch_once(path, scope)
        await _answer(cached, control if cached.status == HTTPStatus.OK else "no-store", scope, send)

    async def _fetch_once(self, path: str, scope: MutableMapping[str, Any]) -> CachedResponse:
        """Those who come while the app is asked wait for the same answer."""
        if path not in self._pending:
            self._pending[path] = asyncio.create_task(self._fetch(path, scope))
            self._pending[path].add_done_callback(lambda _: self._pending.pop(path))
        return await asyncio.shield(self._pending[path])

    async def _fetch(self, path: str, scope: MutableMapping[str, Any]) -> CachedResponse:
        root = scope.get("root_path", "").rstrip("/")
        plain = {
            **scope,
            "method": "GET",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"host", _OURS.encode())],
            "client": None,
            "server": (_OURS, 80),
        }
        sent: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
        start: Message = {}
        body = bytearray()

        async def nothing() -> Message:
            return sent.pop() if sent else await asyncio.Future()  # nobody leaves

        async def gather(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.extend(message.get("body", b""))

        await self._app(plain, nothing, gather)
        media_type = next((value for name, value in start["headers"] if name.lower() == b"content-type"), b"text/plain")
        if path in _PLACES:
            body = body.replace(f"http://{_OURS}{root}".encode(), _PLACES[path])
        cached = await asyncio.to_thread(_pack, start["status"], media_type, bytes(body))
        if cached.status == HTTPStatus.OK and cached.size <= self._most // 4:
            self._kept[path] = cached
            while sum(kept.size for kept in self._kept.values()) > self._most:
                self._kept.popitem(last=False)
        return cached


def _pack(status: int, media_type: bytes, body: bytes) -> CachedResponse:
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'.encode()
    forms = {b"": body}
    if media_type.decode("latin-1").startswith(_PACKS) and len(body) > 400:
        forms = {b"br": brotli.compress(body, quality=9), b"gzip": gzip.compress(body, 9, mtime=0)}
    return CachedResponse(status, media_type, tag, forms)


async def _answer(cached: CachedResponse, control: str, scope: MutableMapping[str, Any], send: Send) -> None:
    request = {name: value for name, value in scope["headers"] if name in (b"accept-encoding", b"if-none-match")}
    headers = [
        (b"content-type", cached.media_type),
        (b"cache-control", control.encode()),
        (b"etag", cached.tag),
        (b"vary", b"accept-encoding"),
    ]
    tags = [tag.strip().removeprefix(b"W/") for tag in request.get(b"if-none-match", b"").split(b",")]
    status, body = cached.status, b""
    if status == HTTPStatus.OK and cached.tag.removeprefix(b"W/") in tags:
        status = HTTPStatus.NOT_MODIFIED
    else:
        encoding, body = _form(cached, request.get(b"accept-encoding", b""))
        headers += [(b"content-length", str(len(body)).encode())] + ([(b"content-encoding", encoding)] if encoding else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _form(cached: CachedResponse, accepted: bytes) -> tuple[bytes, bytes]:
    """The name of an encoding that is accepted, "" for none, and the bytes."""
    takes = {part.split(b";")[0].strip() for part in accepted.lower().split(b",") if b"q=0" not in part.replace(b"q=0.", b"")}
    found = next((name for name in cached.forms if name in takes), b"")
    return found, cached.forms[found] if found in cached.forms else gzip.decompress(cached.forms[b"gzip"])
