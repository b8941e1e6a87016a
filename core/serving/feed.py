"""What happens in the engine, kept for a while for those who watch: numbered messages, each encoded once, for any number of readers.

A reader takes what is there since the number it has, at its own pace. One that fell behind what is kept is told so and skips ahead:
nobody ever waits for a reader. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from core.trace.events import StepEvent

KEPT = 4096  # messages
_MOST_AT_ONCE = 256


class _Message:
    """Plain data or a step; its JSON is made when somebody first reads it."""

    __slots__ = ("_data", "_json", "number")

    def __init__(self, number: int, data: dict[str, Any] | StepEvent) -> None:
        self.number, self._data, self._json = number, data, ""

    @property
    def json(self) -> str:
        if not self._json:
            data = {"kind": "step", **self._data.to_json()} if isinstance(self._data, StepEvent) else self._data
            self._json = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return self._json


@dataclass(frozen=True)
class Batch:
    """Messages together. last: the number of the last one, from which a reader goes on. messages: a JSON array."""

    last: int
    messages: str


class Feed:
    """`add` belongs to one thread, `read` to an event loop. kept: messages that a reader may be behind, at least.

    The kinds of message: {"kind": "run", "header"} for a run that begins, {"kind": "request", "id", "prompt_tokens",
    "max_new_tokens"}, {"kind": "step", …} as in a trace, {"kind": "pace", "steps_per_s"}, and to a reader alone {"kind": "skipped", "messages"}.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._messages: list[_Message] = []  # at most twice as many as are kept
        self._next = 0
        self._run: _Message | None = None  # the latest beginning, though it may be kept no longer
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.closed = False

    def add(self, data: dict[str, Any] | StepEvent) -> None:
        with self._lock:
            message = _Message(self._next, data)
            self._next += 1
            self._messages.append(message)
            if len(self._messages) > 2 * self._kept:
                del self._messages[: self._kept]
            if isinstance(data, dict) and data["kind"] == "run":
                self._run = message
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)

    def close(self) -> None:
        """Readers come to their end."""
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)

    async def read(self, after: int | None = None, coalesce_s: float = 0.1) -> AsyncIterator[Batch]:
        """Batches until the feed is closed, at most one in `coalesce_s` but when much is to be caught up on.

        after: the last number that the reader has; without it, everything that is kept comes first.
        """
        last = -1 if after is None or after >= self._next else after
        while True:
            batch, more = self._take(last)
            if batch is not None:
                last = batch.last
                yield batch
                if not more:
                    await asyncio.sleep(coalesce_s)
            elif self.closed:
                return
            else:
                await self._news(last)

    def _take(self, last: int) -> tuple[Batch | None, bool]:
        """What comes after `last`, and whether there is more than is taken at once."""
        with self._lock:
            if not self._messages or self._next - 1 == last:
                return None, False
            first = self._messages[0].number
            missed = max(0, first - last - 1)
            start = max(0, last + 1 - first)
            taken = self._messages[start : start + _MOST_AT_ONCE]
            run = self._run
            more = taken[-1].number < self._next - 1
        texts = [message.json for message in taken]
        if missed:
            texts.insert(0, f'{{"kind":"skipped","messages":{missed}}}')
            if run is not None and run.number < taken[0].number:
                texts.insert(1, run.json)
        return Batch(taken[-1].number, f"[{','.join(texts)}]"), more

    async def _news(self, last: int) -> None:
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            if self._next - 1 != last or self.closed:
                return
            self._waiting.add((loop, event))
        try:
            await event.wait()
        finally:
            with self._lock:
                self._waiting.discard((loop, event))


def _wake(waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    for loop, event in waiting:
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # that loop is closed, and with it the reader
            continue
