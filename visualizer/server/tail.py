"""The last part of something that has no end, followed by any number of readers, each from its own place and at its own speed.

Messages come in chapters: the first message of a chapter tells a newcomer all that the rest of it builds on. A reader that fell behind what is
kept goes on at a later chapter, and is told so. Each message is encoded once. Knows neither what a message says nor who reads.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from visualizer.server.sse import COMMENT, KEEP_ALIVE, encoded

PERIOD = 0.25  # seconds for which what happens is gathered
Message = dict[str, Any]


class Tail:
    """`append` and `change` belong to one thread, `read` to any event loop.

    chapters: how many are kept. shown: what readers are sent of a message.
    """

    def __init__(self, chapters: int, shown: Callable[[Message], Message] = lambda message: message) -> None:
        self._most, self._shown = chapters, shown
        self._messages: list[_Numbered] = []  # their numbers follow each other
        self._begins: list[int] = []  # the number of each chapter's first message
        self._next = self._renumbered = 0
        self._state: Message = {}
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.is_closed = False

    def append(self, message: Message, begins: bool = False) -> None:
        """begins: a new chapter."""
        with self._lock:
            if begins or not self._begins:
                self._begins.append(self._next)
                del self._begins[: -self._most]
                del self._messages[: self._begins[0] - self._first]
            self._messages.append(_Numbered(self._next, message))
            self._next += 1
        self._wake()

    def tell(self, state: Message) -> None:
        """Set the state beside the messages, of which a newcomer is told the latest."""
        with self._lock:
            self._state = {**self._state, **state}
        self.append(state)

    def change(self, shown: Callable[[Message], Message]) -> None:
        """Show every message differently from now on, earlier ones included: every reader begins anew."""
        with self._lock:
            self._shown = shown
            by = self._next - self._first + 1  # a reader that has all of it is behind as well
            for message in self._messages:
                message.number, message.encoded = message.number + by, None
            self._begins = [number + by for number in self._begins]
            self._next += by
            self._renumbered = self._first
        self._wake()

    def forget(self) -> None:
        """Keep nothing of what was told: every reader begins anew with what comes, a chapter's beginning first."""
        with self._lock:
            self._messages, self._begins = [], []
            self._next += 1  # whoever has all of it is behind as well
            self._renumbered = self._next

    def close(self) -> None:
        """Readers end once they have everything."""
        self.is_closed = True
        self._wake()

    async def read(self, start: int | None = None, chapters: int | None = None) -> AsyncIterator[bytes]:
        """Server-sent events from number `start` on; without it, or where that is no longer kept, from a chapter's beginning.

        chapters: how many of those that are kept a newcomer wants.
        """
        at = start
        while True:
            piece, at = self.take(at, chapters)
            if piece:
                yield piece
            elif self.is_closed:
                return
            elif not await self._news(at):
                yield COMMENT

    def take(self, at: int | None, chapters: int | None) -> tuple[bytes, int]:
        """What to send now to a reader that has everything before `at`, and where it is then. chapters: see `read`."""
        with self._lock:
            before = []
            if at is None or not self._first <= at <= self._next:
                missed = max(0, self._first - at) if at is not None and at >= self._renumbered else 0
                before = [encoded({"anew": True, "missed": missed, **self._state})]
                at = self._begins[-(chapters or self._most) :][0] if self._begins else self._next
            sent = self._messages[at - self._first :]
            return b"".join([*before, *(self._encode(message) for message in sent)]), self._next

    @property
    def _first(self) -> int:
        """The number of the oldest message that is kept."""
        return self._next - len(self._messages)

    def _encode(self, message: _Numbered) -> bytes:
        if message.encoded is None:
            message.encoded = encoded({"seq": message.number, **self._shown(message.data)})
        return message.encoded

    async def _news(self, at: int) -> bool:
        """Wait to be woken; False after long silence."""
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            if self._next != at or self.is_closed:
                return True
            self._waiting.add((loop, event))
        try:
            async with asyncio.timeout(KEEP_ALIVE):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard((loop, event))
        return True

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # that loop is closed, and with it the reader
                continue


async def read_together(tails: Mapping[str, Tail], chapters: int | None = None) -> AsyncIterator[bytes]:
    """Several by name: server-sent events {"of": a name, "told": a message of that one}, each from a chapter's beginning on. What they tell
    within PERIOD is sent together.
    """
    places: dict[str, int | None] = dict.fromkeys(tails)
    silent = 0.0
    while True:
        is_over = all(tail.is_closed for tail in tails.values())
        pieces = []
        for name, tail in tails.items():
            sent, places[name] = tail.take(places[name], chapters)
            pieces.append(_enveloped(name, sent))
        silent = 0.0 if any(pieces) else silent + PERIOD
        if any(pieces):
            yield b"".join(pieces)
        elif silent >= KEEP_ALIVE:
            silent = 0.0
            yield COMMENT
        if is_over:
            return
        await asyncio.sleep(PERIOD)


def _enveloped(name: str, messages: bytes) -> bytes:
    head = b'data: {"of":' + json.dumps(name).encode("ascii") + b',"told":'
    return b"".join(head + message.removeprefix(b"data: ") + b"}\n\n" for message in messages.split(b"\n\n") if message)


class _Numbered:
    __slots__ = ("data", "encoded", "number")

    def __init__(self, number: int, data: Message) -> None:
        self.number, self.data = number, data
        self.encoded: bytes | None = None
