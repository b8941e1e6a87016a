"""How long somebody is waited for: in time in which this process listened. While its event loop is held up, short of a core, nobody can show
up, so that time counts against nobody. Knows nothing of who is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_LOOKS = 20  # of what a loop is held up for, one look's worth counts

T = TypeVar("T")


class Wait:
    """See `after`. `cancel` ends it for good."""

    def __init__(self, seconds: float, then: Callable[[], object]) -> None:
        self._loop, self._each, self._then, self._left = asyncio.get_running_loop(), seconds / _LOOKS, then, _LOOKS
        self._next = self._loop.call_later(self._each, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_later(self._each, self._look)
        else:
            self._then()

    def cancel(self) -> None:
        self._next.cancel()


def after(seconds: float, then: Callable[[], object]) -> Wait:
    """On the event loop: call back after so many seconds in which it listened."""
    return Wait(seconds, then)


async def within(seconds: float, coming: Awaitable[T]) -> T:
    """What comes; raises TimeoutError where it has not come within so many seconds in which this process listened."""
    task = asyncio.ensure_future(coming)
    late = asyncio.get_running_loop().create_future()
    wait = after(seconds, lambda: late.set_result(None))
    try:
        await asyncio.wait({task, late}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError
    finally:
        wait.cancel()
        task.cancel()
