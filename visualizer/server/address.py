"""The address that a request comes from, by which jobs are queued."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from starlette.requests import Request


def address_of(behind_proxy: bool) -> Callable[[Request], str]:
    """Names the client of a request. behind_proxy: a proxy of our own names the client in a header, which is trusted only then."""

    def address(request: Request) -> str:
        forwarded = request.headers.getlist("x-forwarded-for") if behind_proxy else []
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        public = next((name for hop in reversed(hops) if (name := _public(hop))), "")  # what a visitor wrote stands before it
        return public or (request.client.host if request.client else "")

    return address


class Named:
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
