"""Middleware between the network and Gradio: limits requests, answers only the addresses and sites
that the page uses, adds security headers, and identifies the visitor behind a proxy.
"""

import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InflightError, shown
from core.serving.http.collect import BODY, refusal
from core.serving.http.guard import BodyBounds, Guard, Refusal, json_check, path_of, sites_check
from core.serving.http.sites import Sites, origin_named
from visualizer.page.engine_files import ISOLATED

log = logging.getLogger("inflight")
_CALL_BYTES = 2**13
SILENT = 10.0  # the longest pause in a file, in seconds
_ASKING = 30.0  # seconds that a JSON body may take to arrive


CALL = "/inflight/call/"  # calls whose bodies are small: names and numbers
COLLECT = "/inflight/collect"  # engines send their steps to this address, if the page collects them
# files that visitors open are sent to these addresses unparsed
FILES = ("/inflight/uploads", "/inflight/datasets")


def address_of(behind_proxy: bool) -> Callable[[Request], str]:
    """Returns a function that gives the address of the client of a request. behind_proxy: our own
    proxy names the client in a header, which is trusted only then.
    """

    def address(request: Request) -> str:
        forwarded = request.headers.getlist("x-forwarded-for") if behind_proxy else []
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        # the proxy appends to the header: anything forged comes before
        public = next((name for hop in reversed(hops) if (name := _public(hop))), "")
        return public or (request.client.host if request.client else "")

    return address


class ClientAddressed:
    """An ASGI application that sees each client under the address that `address_of` gives, so that
    limits count visitors and not the proxy.
    """

    def __init__(self, app: ASGIApp, address_of: Callable[[Request], str]) -> None:
        self._app, self._address_of = app, address_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (name := self._address_of(Request(scope))):
            scope = {**scope, "client": (name, 0)}  # the proxy does not report the port
        await self._app(scope, receive, send)


_PORT = re.compile(r"^\[(.*)\](?::\d+)?$|^([^:]*):\d+$")


def _public(hop: str) -> str:
    """A public address, or empty. IPv6 addresses are reduced to their /64 network, which is one
    household. Some proxies add a port, and some write an IPv4 address as IPv6.
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


_LONGEST = 255  # characters of a path: no file has a longer name
# the paths that the page uses. Gradio's others take uploads, fetch other sites for a visitor,
# expose internals, or queue events that nobody reads
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
    403 to pages of other sites that act through a visitor's browser (see `Sites`), and 415 to a
    body of the wrong type; it also refuses bodies that are too large or stop arriving.

    names: further host names of the page, None for any. question: the most bytes of a JSON body,
    which is parsed in the process that serves everyone: megabytes of brackets would stall it. file:
    the most bytes of a file that a visitor opens, which goes unparsed to a separate process.
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

    return Guard(app, (is_used, sites_check(Sites(names=names)), is_json), bounds, refusal)


def nowhere(*_: object) -> JSONResponse:
    """The answer for an address or a method that the page does not have."""
    return refusal(*_NOTHING)


class SafeAnswers:
    """ASGI middleware that adds security headers to every response, and answers unexpected errors
    with status 500 and a sentence.

    origins: further origins from which the page may fetch (see `origins_of`).
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
        except ClientDisconnect:  # in the middle of what it was sending, or while it waited
            pass
        except Exception:
            # a bug, or a machine out of file descriptors; uvicorn would close the connection, and
            # the next call on it would fail
            if started:
                raise
            log.exception("a call to %s failed", path_of(scope))
            await refusal(500, FAILED)(scope, receive, safely)


def origins_of(hosts: Iterable[str]) -> tuple[str, ...]:
    """The origins of sites whose runs a link may open in this page (`#trace=URL`), in the form that
    a browser compares: `https://` unless a host says otherwise.

    The visitor's browser fetches such a run, never this server, so an address in a link cannot make
    the server query its own network. The content security policy allows only these origins and the
    page's own. Raises InflightError for anything that is not a host.
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
