"""Keeps what happens in the engine for a while, for viewers: numbered messages, each encoded once, for any number of readers.

A reader takes the messages after the number it has, at its own pace. A reader that fell behind what is kept is told so and skips ahead:
nobody ever waits for a reader. What is hidden is left out when a message is read, older ones included. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from core.trace.events import Sampled, StepEvent

KEPT = 4096  # messages
COALESCE_S = 0.1
_TOGETHER = 100  # up to this many readers are woken that often; more are woken less often, so that the engine does not pay for it
_MOST_AT_ONCE = 256
_STATES = ("run", "class", "pace", "shadow")  # kinds of which the latest message says how things are


class Hidden(NamedTuple):
    """What viewers are not told. texts: prompts and tokens, from which texts could be rebuilt. nicknames: of the clients."""

    texts: bool = True
    nicknames: bool = True


class ServedStep(NamedTuple):
    """A step of the engine. texts: what its tokens are as text, by request; a piece for each, in the event's order. None where nobody decoded them."""

    event: StepEvent
    texts: dict[str, list[str]] | None = None


LogEntry = dict[str, Any] | ServedStep


class _Message:
    """Plain data or a step; its JSON is made when somebody first reads it."""

    __slots__ = ("_hidden", "_json", "data", "number")

    def __init__(self, number: int, data: LogEntry) -> None:
        self.number, self.data = number, data
        self._json, self._hidden = "", Hidden()

    def json(self, hidden: Hidden) -> str:
        if not self._json or self._hidden != hidden:
            self._json, self._hidden = json.dumps(_visible(self.data, hidden), ensure_ascii=False, separators=(",", ":")), hidden
        return self._json


def _visible(data: LogEntry, hidden: Hidden) -> dict[str, Any]:
    """The message as viewers may see it; hidden values are null."""
    if isinstance(data, ServedStep):
        event = data.event
        if hidden.texts:
            event = event._replace(sampled=tuple(Sampled(s.pass_index, s.request, *_NO_TOKEN) for s in event.sampled))
        return {"kind": "step", **event.to_json()}
    if data["kind"] == "request":
        names = (["prompt_token_ids", "sampling"] if hidden.texts else []) + (["nickname"] if hidden.nicknames else [])
        return data | dict.fromkeys(names)
    return data


_NO_TOKEN: tuple[Any, Any, Any] = (None, None, None)  # id, log-probability and margin


@dataclass(frozen=True)
class Batch:
    """Messages together. last: the number of the last one, from which a reader goes on. hidden: what viewers are not told."""

    last: int
    taken: tuple[_Message, ...]
    hidden: Hidden

    @cached_property
    def messages(self) -> str:
        """A JSON array, for viewers."""
        return f"[{','.join(message.json(self.hidden) for message in self.taken)}]"

    @cached_property
    def event(self) -> bytes:
        """The same as a server-sent event."""
        return f"id: {self.last}\ndata: {self.messages}\n\n".encode()

    @property
    def data(self) -> list[LogEntry]:
        """The messages themselves, with all that is hidden: for readers in this process."""
        return [message.data for message in self.taken]


class Feed:
    """`add` belongs to one thread, `read` to an event loop. kept: how many messages a reader may be behind, at least. hidden: what is not told.

    The kinds of message:

    {"kind": "run", "run", "header"}    a run begins, with this number; its prompts come one by one
    {"kind": "request", "id", "prompt_tokens", "max_new_tokens", "nickname", "prompt_token_ids", "sampling"}
    {"kind": "step", …}                 as in a trace
    {"kind": "carried", "requests"}     these leave the queue, as cancelled on record, and join that of the next run
    {"kind": "pace", "steps_per_s", "t"}  None for full speed; since when
    {"kind": "class", …}                what the teacher has set, see `Classroom`
    {"kind": "shadow", …}               what another policy does with the same requests, see `core.serving.shadow`
    {"kind": "skipped", "messages"}     to a reader alone: so many were missed

    A reader that does not get all of a run is told the latest "run", "class", "pace" and "shadow" first.
    """

    def __init__(self, kept: int = KEPT, hidden: Hidden = Hidden()) -> None:  # noqa: B008 (frozen)
        self._kept, self.hidden = kept, hidden
        self._messages: list[_Message] = []  # at most twice as many as are kept
        self._next = 0
        self._states: dict[str, _Message] = {}  # the latest of each kind, though it may be kept no longer
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._shared: tuple[tuple[int, int, Hidden], tuple[Batch | None, bool]] | None = None
        self._num_readers = 0
        self.closed = False

    def add(self, data: LogEntry) -> None:
        with self._lock:
            message = _Message(self._next, data)
            self._next += 1
            self._messages.append(message)
            if len(self._messages) > 2 * self._kept:
                del self._messages[: self._kept]
            if isinstance(data, dict) and data["kind"] in _STATES:
                self._states[data["kind"]] = message
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)

    def close(self) -> None:
        """End all readers."""
        with self._lock:
            self.closed = True
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)

    async def read(self, after: int | None = None, coalesce_s: float | None = None) -> AsyncIterator[Batch]:
        """Batches until the feed is closed, at most one in `coalesce_s` but when much is to be caught up on; by default ten a second, and fewer
        for more than a hundred readers.

        Readers of one `coalesce_s` are woken together, so that those who are equally far get the same batch, made once. after: the last
        number that the reader has; without it, everything that is kept comes first.
        """
        self._num_readers += 1
        try:
            async for batch in self._batches(-1 if after is None or after >= self._next else after, coalesce_s):
                yield batch
        finally:
            self._num_readers -= 1

    async def _batches(self, last: int, coalesce_s: float | None) -> AsyncIterator[Batch]:
        tick = 0
        while True:
            batch, more = self._take_together(last, tick) if tick else self._take(last)
            if batch is not None:
                last = batch.last
                yield batch
            elif self.closed:
                return
            else:
                await self._news(last)
            seconds = COALESCE_S * -(-self._num_readers // _TOGETHER) if coalesce_s is None else coalesce_s
            tick = 0 if more else await _next_tick(seconds)

    def _take_together(self, last: int, tick: int) -> tuple[Batch | None, bool]:
        """The batch that the first reader woken at this tick took, for readers that are equally far."""
        key, shared = (last, tick, self.hidden), self._shared
        if shared is None or shared[0] != key:
            shared = self._shared = key, self._take(last)
        return shared[1]

    def _take(self, last: int) -> tuple[Batch | None, bool]:
        """What comes after `last`, and whether there is more than is taken at once."""
        with self._lock:
            if not self._messages or self._next - 1 == last:
                return None, False
            first = self._messages[0].number
            missed = max(0, first - last - 1)
            start = max(0, last + 1 - first)
            taken = self._messages[start : start + _MOST_AT_ONCE]
            states, hidden = [self._states[kind] for kind in _STATES if kind in self._states], self.hidden
            more = taken[-1].number < self._next - 1
        if missed:
            before = [state for state in states if state.number < taken[0].number]
            taken = [_Message(first - 1, {"kind": "skipped", "messages": missed}), *before, *taken]
        return Batch(taken[-1].number, tuple(taken), hidden), more

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


async def _next_tick(seconds: float) -> int:
    """Wait for the next multiple of `seconds` on the loop's clock; which one that is, 0 without waiting for none."""
    if not seconds:
        return 0
    now = asyncio.get_running_loop().time()
    tick = int(now / seconds) + 1
    await asyncio.sleep(tick * seconds - now)
    return tick


def _wake(waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
    for loop, event in waiting:
        by_loop.setdefault(loop, []).append(event)
    for loop, events in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set, events)  # one call, however many watch: it costs the engine's thread its time
        except RuntimeError:  # that loop is closed, and with it the readers
            continue


def _set(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
