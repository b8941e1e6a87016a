"""Keeps pages of other sites from acting on this server through a visitor's browser, which may
reach what those sites cannot.

Such a page sends calls of its own, or points its own name to this machine and then has the same
origin as what is served here (DNS rebinding). A client that is not a browser (an SDK, curl) sends
no origin when it posts; nothing else distinguishes it.
"""

import ipaddress
import re
import socket
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from core.errors import InflightError, shown

FOREIGN = "Pages of other sites may not do this."
UNKNOWN_NAME = "Nothing is served under this name: --allow-host NAME adds one at the start."
_READING = ("GET", "HEAD")
_OUR_OWN = ("same-origin", "none")  # `none`: entered by the visitor
# names with these endings cannot be registered on the internet
_NOBODYS = ("localhost", "local", "internal", "lan", "home.arpa")
_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(
    r"((?P<scheme>[a-z][a-z0-9+.-]*)://(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\]))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


class Sites:
    """origins: of pages that may call besides the server's own, `*` for all. names: names of the
    server besides its own, None for any.
    """

    def __init__(self, origins: Collection[str] = (), names: Collection[str] | None = None) -> None:
        self._origins = frozenset(origins)
        self._names: set[str] | None = None
        if names is not None:
            self._names = {name.lower().rstrip(".") for name in (*names, socket.gethostname())}

    def refusal(self, scope: Scope) -> str:
        """Why a call is refused, in a sentence; empty if it is not."""
        headers = Headers(scope=scope)
        reading, origin = scope["method"] in _READING, headers.get("origin")
        if origin is None and not reading and "sec-fetch-site" not in headers:
            return ""  # no browser posts without either
        if self._names is not None and "host" in headers and not self._is_own(headers["host"]):
            return UNKNOWN_NAME
        if origin is None and reading:
            return ""  # links lead here, and no page can read what it asks for without an origin
        return FOREIGN if self._is_foreign(origin, headers) else ""

    def _is_own(self, host: str) -> bool:
        """Whether nobody elsewhere can have given this machine the name: an address, a name of the
        local network, or one of the known names.
        """
        name = (_split(f"//{host}").hostname or "").rstrip(".")
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return bool(name) and (
                "." not in name
                or name.endswith(tuple(f".{end}" for end in _NOBODYS))
                or name in (self._names or ())
            )

    def _is_foreign(self, origin: str | None, headers: Headers) -> bool:
        if origin is not None and ("*" in self._origins or origin in self._origins):
            return False
        if site := headers.get("sec-fetch-site"):  # not sent to an address over plain HTTP
            return site not in _OUR_OWN
        # A page of another site cannot add the header of a proxy to its call: its browser would ask
        # first, and is refused.
        asked = (headers.get("host"), headers.get("x-forwarded-host"))
        return not any(host and _same(_split(origin or ""), host) for host in asked)


def origin_named(text: str) -> str:
    """`*`, or an origin as browsers send it; raises InflightError for anything else."""
    parts = _ORIGIN.fullmatch(text.lower())
    if text != "*" and parts is None:
        raise InflightError(
            f"{shown(text)} is no origin: name a scheme and a host, like https://example.org or"
            " http://localhost:3000, or * for all."
        )
    if parts is None or int(parts["port"] or 0) != _PORTS.get(parts["scheme"]):
        return text.lower()
    return parts[1]


def _same(origin: SplitResult, host: str) -> bool:
    """Whether a page's origin is the host that it calls; a proxy may have changed the scheme."""
    asked, implied = _split(f"//{host}"), _PORTS.get(origin.scheme)
    return (
        implied is not None
        and bool(origin.hostname)
        and (origin.hostname, _port(origin) or implied) == (asked.hostname, _port(asked) or implied)
    )


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _port(address: SplitResult) -> int | None:
    try:
        return address.port
    except ValueError:
        return -1
