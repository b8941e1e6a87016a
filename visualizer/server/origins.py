"""Sites whose runs a link may open in this page (`#trace=URL`), as the origins that a browser compares. None unless the page is told of some.

The visitor's browser fetches such a run, this server never does: an address in a link cannot make it ask its own network. The page asks these
origins and its own, and the policy that it is sent with (CSP) names no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from core.errors import InflightError, shown

_ORIGIN = re.compile(r"(?:(https?)://)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?", re.IGNORECASE)
_PORTS = {"http": "80", "https": "443"}


def origins(hosts: Iterable[str]) -> tuple[str, ...]:
    """Each host as an origin, `https://` unless it says otherwise; raises InflightError for anything that is not one."""
    found = []
    for host in hosts:
        parts = _ORIGIN.fullmatch(host)
        if parts is None:
            raise InflightError(f"{shown(host)} is no site: name a host, like example.org or http://localhost:9000.")
        scheme, port = (parts[1] or "https").lower(), parts[3]
        found.append(f"{scheme}://{parts[2].lower()}" + (f":{int(port)}" if port and port != _PORTS[scheme] else ""))
    return tuple(dict.fromkeys(found))
