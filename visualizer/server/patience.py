"""How long somebody is waited for: in time in which the server could have answered. While its event loop is held up nobody can show up, so that
time counts against nobody. Knows nothing of who is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LOOKS = 20  # of what a loop is held up for, one look's worth counts


def after(seconds: float, then: Callable[[], None], looks: int = _LOOKS) -> None:
    """On the event loop: call back after so many seconds in which it answered."""
    if looks:
        asyncio.get_running_loop().call_later(seconds / _LOOKS, after, seconds, then, looks - 1)
    else:
        then()
