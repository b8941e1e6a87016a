"""Where a class finds the Live tab: the address at which others reach this page, and its QR code for a projector."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import segno

TAB = "#part=live"
_EVERYWHERE = ("0.0.0.0", "::")


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
