"""Addresses: of whom a request comes from, by which jobs are queued, and of this page, where a class finds its Live tab."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import segno
from starlette.requests import Request

TAB = "#part=live"
_EVERYWHERE = ("0.0.0.0", "::")


def address_of(behind_proxy: bool) -> Callable[[Request], str]:
    """Names the client of a request. behind_proxy: a proxy of our own names the client in a header, which is trusted only then."""

    def address(request: Request) -> str:
        forwarded = request.headers.getlist("x-forwarded-for") if behind_proxy else []
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        public = next((name for hop in reversed(hops) if (name := _public(hop))), "")  # what a visitor wrote stands before it
        return public or (request.client.host if request.client else "")

    return address


class ClientAddressed:
    """An ASGI application to whom each client has the address that `whom` finds: its limits count visitors, and not the proxy before them."""

    def __init__(self, app: Callable[..., Any], whom: Callable[[Request], str]) -> None:
        self._app, self._whom = app, whom

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (name := self._whom(Request(scope))):
            scope = {**scope, "client": (name, 0)}  # whose port it was, a proxy does not say
        await self._app(scope, receive, send)


def _public(hop: str) -> str:
    """A public address; for IPv6 its /64 network, which one household has to itself; empty for anything else."""
    try:
        address = ipaddress.ip_address(hop)
    except ValueError:
        return ""
    if not address.is_global:
        return ""
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if address.version == 6 else str(address)


def class_address(
    local: str, shared: str | None = None, host: str | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """local: where this machine reaches the page, e.g. http://localhost:7860/. shared: a tunnel's address, if there is one. host: what the
    page listens at, loopback by default.
    """
    own = environment.get("SPACE_HOST")
    if own or shared:
        return f"{f'https://{own}' if own else str(shared).rstrip('/')}/{TAB}"
    at = urlsplit(local)
    host = lan_address() if host in _EVERYWHERE else host or at.hostname or "127.0.0.1"
    port = "" if at.port is None else f":{at.port}"
    return f"{at.scheme or 'http'}://{f'[{host}]' if ':' in host else host}{port}{at.path.rstrip('/')}/{TAB}"


def lan_address() -> str:
    """This machine's address in its network; that of loopback where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # no machine has this address: nothing is sent, but the system picks a route
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def qr_code(address: str) -> str:
    """An inline SVG, black on white with its quiet zone, as large as its place."""
    return segno.make(address, error="m", micro=False).svg_inline(border=4, omitsize=True, light="#fff", dark="#000")
