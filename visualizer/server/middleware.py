"""Between the network and Gradio: bounds the size of requests, answers only addresses that the page
uses and only its own visitors, adds security headers, and identifies the visitor behind a proxy.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InflightError, shown
from core.serving.http.collect import BODY
from core.serving.http.guard import BodyBounds, Guard, Refusal, json_check, path_of, sites_check
from core.serving.http.sites import Sites, origin_named
from visualizer.page.engine_files import ISOLATED

log = logging.getLogger("inflight")
_CALL_BYTES = 2**13
SILENT = 10.0  # seconds without a further piece of a file
_ASKING = 30.0  # seconds that a question may take to arrive


CALL = "/inflight/call/"  # what a page waits for: names and numbers
COLLECT = "/inflight/collect"  # engines send their steps there, if the page takes them
# files that visitors open are sent there unparsed
FILES = ("/inflight/uploads", "/inflight/datasets")


def address_of(behind_proxy: bool) -> Callable[[Request], str]:
    """Returns a function that names the client of a request. behind_proxy: our own proxy names the
    client in a header, which is trusted only then.
    """

    def address(request: Request) -> str:
        forwarded = request.headers.getlist("x-forwarded-for") if behind_proxy else []
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        # anything a visitor forged comes before it
        public = next((name for hop in reversed(hops) if (name := _public(hop))), "")
        return public or (request.client.host if request.client else "")

    return address


class ClientAddressed:
    """An ASGI application that sees each client under the address that `whom` finds, so that its
    limits count visitors and not the proxy.
    """

    def __init__(self, app: ASGIApp, whom: Callable[[Request], str]) -> None:
        self._app, self._whom = app, whom

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (name := self._whom(Request(scope))):
            scope = {**scope, "client": (name, 0)}  # the proxy does not report the port
        await self._app(scope, receive, send)


_PORT = re.compile(r"^\[(.*)\](?::\d+)?$|^([^:]*):\d+$")


def _public(hop: str) -> str:
    """A public address, of IPv6 its /64 network, which is one household's; else empty. Some proxies
    add a port, and some write an address of IPv4 as one of IPv6.
    """
    try:
        address = ipaddress.ip_address(_PORT.sub(r"\1\2", hop))
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    if not address.is_global:
        return ""
    if address.version == 6:
        return str(ipaddress.ip_network(f"{address}/64", strict=False))
    return str(address)


_LONGEST = 255  # characters of an address: no file has a longer name
# used by the page. Gradio's others take uploads, fetch from elsewhere for a visitor, expose
# internals, or queue what nobody reads
_ASKED = re.compile(
    r"/|/story|/embed|/(config|theme\.css|favicon\.ico|robots\.txt)/?|/(assets|static|inflight|engine)/.+"
    # the shared engine
    r"|/serve/(generate|v1/(completions|chat/completions|models(/.+)?)|health|metrics|events|control|sessions?|openapi\.json)"
)
_POLICY = (
    "default-src 'self'",
    # Gradio's HTML component compiles its template by `Function` (Handlebars) and starts the player
    # by an inline script: without either nothing is drawn. Plotly, compressed, is started from a
    # blob.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "worker-src 'self' blob:",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'self' https://huggingface.co",
)


_NOTHING = Refusal(404, "There is nothing at this address.")
FAILED = "Something went wrong in the server."


def page_guard(
    app: ASGIApp, names: Collection[str] | None = None, question: int = 2**20, file: int = 2**20
) -> ASGIApp:
    """ASGI middleware that answers 404 with a sentence to every address that the page does not use,
    403 to pages of other sites that act through a visitor's browser (see `Sites`), 415 to a body of
    another type than its address takes, and refuses bodies that are too large or stop arriving.

    names: under which the page is reached besides its own, None for any. question: bytes of a JSON
    request, which is parsed in the process that serves everyone: megabytes of brackets would stall
    it. file: bytes of a file that a visitor opens, which goes unparsed to a separate process.
    """

    def is_used(scope: Scope) -> Refusal | None:
        path = path_of(scope)
        return None if len(path) <= _LONGEST and _ASKED.fullmatch(path) else _NOTHING

    def is_json(scope: Scope) -> Refusal | None:
        path = path_of(scope)
        # the shared engine has a guard of its own
        takes_more = path in (*FILES, COLLECT) or path.startswith("/serve/")
        return None if takes_more else json_check(scope)

    def bounds(scope: Scope) -> BodyBounds:
        path = path_of(scope)
        if path in FILES:
            return BodyBounds(file, SILENT, each_piece=True)
        most = _CALL_BYTES if path.startswith(CALL) else question
        return BODY if path == COLLECT else BodyBounds(most, _ASKING)

    return Guard(app, (is_used, sites_check(Sites(names=names)), is_json), bounds, _refusal)


def _refusal(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)


def nowhere(*_: object) -> JSONResponse:
    """The answer at an address that the page does not have, or does not have for this method."""
    return _refusal(*_NOTHING)


class SafeAnswers:
    """ASGI middleware: everything is sent with security headers, and what fails unforeseen is
    answered 500 in a sentence.

    origins: from which the page may fetch besides its own (see `origins_of`).
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str] = ()) -> None:
        self._app = app
        policy = "; ".join((*_POLICY, " ".join(("connect-src 'self' blob:", *origins))))
        self._headers = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "strict-origin-when-cross-origin",
        } | ISOLATED

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def safely(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, safely)
        except ClientDisconnect:  # in the middle of what it was sending
            pass
        except Exception:
            # a bug, or a machine out of descriptors; uvicorn would close the connection under the
            # next call
            if started:
                raise
            log.exception("a call to %s failed", path_of(scope))
            await _refusal(500, FAILED)(scope, receive, safely)


def origins_of(hosts: Iterable[str]) -> tuple[str, ...]:
    """Sites whose runs a link may open in this page (`#trace=URL`), as the origins that a browser
    compares: `https://` unless a host says otherwise.

    The visitor's browser fetches such a run, never this server, so an address in a link cannot make
    it query its own network. The page contacts these origins and its own, and its content security
    policy names no others. Raises InflightError for anything that is not a host.
    """
    found = []
    for host in hosts:
        origin = host if "://" in host else f"https://{host}"
        try:
            if not origin.lower().startswith(("http://", "https://")):
                raise InflightError("a site has pages")
            found.append(origin_named(origin.removesuffix("/")))
        except InflightError:
            raise InflightError(
                f"{shown(host)} is no site: name a host, like example.org or http://localhost:9000."
            ) from None
    return tuple(dict.fromkeys(found))
