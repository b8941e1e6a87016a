"""A log of numbered messages for any number of readers, who catch up at their own pace; each
message is encoded once.

A reader asks for the messages after the last number it has. One that has fallen too far behind
learns how many messages it missed and continues where a new reader begins; writers never wait for
readers. Hidden fields are left out when a message is encoded, which also applies to earlier ones.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from core.trace.events import Sampled, StepEvent

KEPT = 4096  # messages
COALESCE_S = 0.1
# seconds of silence after which a comment is sent, so that no proxy closes the connection
KEEP_ALIVE_S = 15.0
COMMENT = b": still here\n\n"
# with more readers than this each is woken less often, so that appending stays cheap
_TOGETHER = 100
_MOST_AT_ONCE = 256


class ServedStep(NamedTuple):
    """A step of an engine. texts: pieces of its tokens by request; None if not decoded."""

    event: StepEvent
    texts: dict[str, list[str]] | None = None


LogEntry = dict[str, Any] | ServedStep


@dataclass(frozen=True)
class Hidden:
    """What viewers of an engine do not see. texts: prompts and tokens, from which texts could be
    reconstructed. nicknames: those of people; bots keep theirs.
    """

    texts: bool = True
    nicknames: bool = True

    def __call__(self, data: LogEntry) -> dict[str, Any]:
        """A message as viewers may see it; hidden values are null."""
        if isinstance(data, ServedStep):
            step = {"kind": "step", **data.event.to_json()}
            return step | ({"sampled": without_tokens(data.event.sampled)} if self.texts else {})
        if data["kind"] == "request":
            names = (["prompt_token_ids", "messages", "sampling"] if self.texts else []) + (
                ["nickname"] if self.nicknames and not data["is_bot"] else []
            )
            return data | dict.fromkeys(names)
        return data


def without_tokens(sampled: Iterable[Sampled]) -> list[Sampled]:
    """Sampled tokens without the tokens: only which request got one in which pass."""
    hidden: Any = None
    return [
        Sampled(s.pass_index, s.request, token_id=hidden, logprob=hidden, margin=hidden)
        for s in sampled
    ]


class _Entry:
    """A message, whose JSON is encoded when it is first read."""

    __slots__ = ("_json", "_shown", "data", "number", "state")

    def __init__(self, number: int, data: LogEntry, state: str | None = None) -> None:
        self.number, self.data, self.state = number, data, state
        self._json: str | None = None
        self._shown: Callable[[LogEntry], Any] | None = None

    def json(self, shown: Callable[[LogEntry], Any]) -> str:
        if self._json is None or self._shown != shown:
            self._json, self._shown = _encoded(shown(self.data)), shown
        return self._json


def _encoded(data: Any) -> str:
    # ASCII only: no character ends a line, and all can be encoded
    return json.dumps(data, separators=(",", ":"))


@dataclass(frozen=True)
class Excerpt:
    """A batch of messages; empty after a silence. last: the number to continue after."""

    last: int | None
    taken: tuple[_Entry, ...]
    shown: Callable[[LogEntry], Any]

    @cached_property
    def messages(self) -> str:
        """The messages as a JSON array, for viewers."""
        return f"[{','.join([message.json(self.shown) for message in self.taken])}]"

    @cached_property
    def event(self) -> bytes:
        """The messages as a server-sent event; an empty excerpt is a comment."""
        return (
            f"id: {self.last}\ndata: {self.messages}\n\n".encode("ascii") if self.taken else COMMENT
        )

    @property
    def data(self) -> list[LogEntry]:
        """The messages themselves, including hidden fields: for readers in this process."""
        return [message.data for message in self.taken]


class EventLog:
    """A log. `append` may be called from any thread; `restart` and `forget` belong to one thread,
    `read` to any event loop.

    kept: how many messages are kept at least; None for all. chapters: how many chapters are kept
    instead; a chapter's first message contains everything that the rest of it depends on. shown:
    turns a message into what viewers are sent; it can be replaced, for earlier messages too.

    A reader whose position is no longer kept, and a new reader of a log with chapters, first gets
    {"kind": "skipped", "messages": how many it missed}, then the latest message of each state that
    precedes the rest.
    """

    def __init__(
        self,
        kept: int | None = None,
        chapters: int | None = None,
        shown: Callable[[LogEntry], Any] = lambda data: data,
    ) -> None:
        self._kept, self._chapters, self.shown = kept, chapters, shown
        # their numbers follow each other; at most twice as many as are kept
        self._messages: list[_Entry] = []
        self._begins: list[int] = []  # the number of each chapter's first message
        self._next = 0
        self._anew = 0  # readers at positions before this number start over, having missed nothing
        self._states: dict[str, _Entry] = {}  # the latest of each, even if no longer in `_messages`
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._shared: tuple[Any, tuple[Excerpt | None, bool]] | None = None
        self.num_readers = 0
        self.closed = False

    def __len__(self) -> int:
        return self._next

    def append(self, data: LogEntry, *, state: str | None = None, begins: bool = False) -> None:
        """Add a message. state: the state that it updates. begins: whether a chapter begins."""
        with self._lock:
            message = _Entry(self._next, data, state)
            if self._chapters is not None and (begins or not self._begins):
                self._begins = [*self._begins, self._next][-self._chapters :]
                del self._messages[: self._begins[0] - self._first]
            elif self._kept is not None and len(self._messages) >= 2 * self._kept:
                del self._messages[: self._kept]
            self._messages.append(message)
            self._next += 1
            if state is not None:
                self._states[state] = message
        self._wake()

    def restart(self) -> None:
        """Make every reader start over with what is kept, because it is now shown differently."""
        with self._lock:
            by = self._next - self._first + 1  # even a reader that has everything is now behind
            for message in self._messages:
                message.number += by
            self._begins = [number + by for number in self._begins]
            self._next += by
            self._anew = self._first
        self._wake()

    def forget(self) -> None:
        """Drop all messages: every reader starts over with the next chapter."""
        with self._lock:
            self._messages, self._begins = [], []
            self._next += 1  # even a reader that has everything is now behind
            self._anew = self._next

    def close(self) -> None:
        """Nothing more will come: readers end once they have everything."""
        self.closed = True
        self._wake()

    async def read(
        self,
        after: int | None = None,
        coalesce_s: float | None = None,
        chapters: int | None = None,
        keep_alive_s: float | None = None,
    ) -> AsyncIterator[Excerpt]:
        """Excerpts until the log is closed, at most one per `coalesce_s` except while catching up;
        by default ten a second, and fewer with more than a hundred readers.

        Readers with the same `coalesce_s` are woken together, so that readers at the same position
        share one excerpt. after: the last number that the reader has; without it, the first
        excerpts are of everything that is kept, or of the last `chapters` chapters. keep_alive_s:
        seconds of silence after which an empty excerpt comes.
        """
        self.num_readers += 1
        tick = 0
        try:
            while True:
                is_over = self.closed  # read first: the last message may be added after this line
                excerpt, more = (
                    self._take_together(after, chapters, tick)
                    if tick
                    else self.take(after, chapters)
                )
                if excerpt is not None:
                    after = excerpt.last
                    yield excerpt
                elif is_over:
                    return
                elif not await self._news(after, keep_alive_s):
                    yield Excerpt(after, (), self.shown)
                seconds = coalesce_s
                if seconds is None:
                    seconds = COALESCE_S * -(-self.num_readers // _TOGETHER)
                tick = 0 if more else await _next_tick(seconds)
        finally:
            self.num_readers -= 1

    def take(self, after: int | None, chapters: int | None = None) -> tuple[Excerpt | None, bool]:
        """The next excerpt for a reader, see `read`, and whether there are more messages."""
        with self._lock:
            catch_up: list[_Entry] = []
            first = self._first
            if after is None or not first - 1 <= after < self._next:
                start = (
                    self._begins[-chapters] if chapters and chapters <= len(self._begins) else first
                )
                if after is not None and after >= self._next:
                    after = None  # it is not from this log
                since = -1 if after is None and self._chapters is None else after
                missed = first - since - 1 if since is not None and since + 1 >= self._anew else 0
                if missed or self._chapters is not None or after is not None:
                    catch_up.append(_Entry(start - 1, {"kind": "skipped", "messages": missed}))
                    catch_up += [state for state in self._states.values() if state.number < start]
                after = start - 1
            taken = self._messages[after + 1 - first :][:_MOST_AT_ONCE]
            last = taken[-1].number if taken else after
            if not taken and not catch_up:
                return None, False
            return Excerpt(last, (*catch_up, *taken), self.shown), last < self._next - 1

    def _take_together(
        self, after: int | None, chapters: int | None, tick: int
    ) -> tuple[Excerpt | None, bool]:
        """The excerpt of the first reader of this tick, for all readers at its position."""
        key, shared = (after, chapters, tick, self.shown), self._shared
        if shared is None or shared[0] != key or shared[1][0] is None:
            shared = self._shared = key, self.take(after, chapters)
        return shared[1]

    @property
    def _first(self) -> int:
        """The number of the oldest message that is kept."""
        return self._next - len(self._messages)

    async def _news(self, after: int | None, silence: float | None) -> bool:
        """Wait for a message; returns False after long silence."""
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            if self._next - 1 != (-1 if after is None else after) or self.closed:
                return True
            self._waiting.add((loop, event))
        try:
            async with asyncio.timeout(silence):
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
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for loop, event in waiting:
            by_loop.setdefault(loop, []).append(event)
        for loop, events in by_loop.items():
            try:
                # one call for all readers, because the engine's thread pays for it
                loop.call_soon_threadsafe(_set, events)
            except RuntimeError:  # that loop is closed, and its readers with it
                continue


class EngineLog(EventLog):
    """The log of a serving engine. hidden: what viewers do not see; it can be changed, for earlier
    messages too. The kinds of message:

    {"kind": "run", "run", "header", "records"}
        A run begins, with this number; its prompts come one by one. records: how to read its steps.
    {"kind": "request", "id", "prompt_tokens", "max_new_tokens", "nickname", "is_bot",
     "prompt_token_ids", "messages", "sampling"}
        A request was queued. messages: that its prompt was written from, where a person asked.
    {"kind": "step", …}
        A step, as in a trace.
    {"kind": "carried", "requests"}
        These leave the queue, recorded as cancelled, and join that of the next run.
    {"kind": "pace", "steps_per_s", "t"}
        The pace, None for full speed, and since when.
    {"kind": "class", …}
        What the teacher has set, see `ServingEngine.class_state`.
    """

    def __init__(self, hidden: Hidden = Hidden()) -> None:
        super().__init__(KEPT, shown=hidden)

    @property
    def hidden(self) -> Hidden:
        """What is hidden from viewers."""
        assert isinstance(self.shown, Hidden)
        return self.shown

    @hidden.setter
    def hidden(self, hidden: Hidden) -> None:
        """What is hidden from viewers."""
        self.shown = hidden

    def add(self, entry: LogEntry) -> None:
        """Append an entry of one of these kinds."""
        kind = "step" if isinstance(entry, ServedStep) else entry["kind"]
        self.append(entry, state=kind if kind in _STATES else None)


_STATES = ("run", "class", "pace")  # kinds whose latest message is the current state


async def events(
    log: EventLog, after: int | None = None, chapters: int | None = None
) -> AsyncIterator[bytes]:
    """A log as server-sent events, with a comment after long silence."""
    async for excerpt in log.read(
        after, coalesce_s=0, chapters=chapters, keep_alive_s=KEEP_ALIVE_S
    ):
        yield excerpt.event


async def events_together(
    logs: Mapping[str, EventLog],
    after: Mapping[str, int] | None = None,
    chapters: int | None = None,
    period: float = 0.25,
) -> AsyncIterator[bytes]:
    """Several logs by name as server-sent events, until all are closed: arrays of {"of": a name,
    "last": the number of the last, "messages": […]}. Messages within `period` seconds are sent
    together.
    """
    places: dict[str, int | None] = {name: (after or {}).get(name) for name in logs}
    silent = 0.0
    while True:
        is_over, parts = all(log.closed for log in logs.values()), []
        for name, log in logs.items():
            more = True
            while more:
                excerpt, more = log.take(places[name], chapters)
                if excerpt is not None:
                    places[name] = excerpt.last
                    parts.append(
                        f'{{"of":{_encoded(name)},"last":{excerpt.last},"messages":{excerpt.messages}}}'
                    )
        silent = 0.0 if parts else silent + period
        if parts:
            yield f"data: [{','.join(parts)}]\n\n".encode("ascii")
        elif silent >= KEEP_ALIVE_S:
            silent = 0.0
            yield COMMENT
        if is_over:
            return
        await asyncio.sleep(period)


async def _next_tick(seconds: float) -> int:
    """Wait for the next multiple of `seconds`; returns its number, 0 for `seconds` 0."""
    if not seconds:
        return 0
    now = asyncio.get_running_loop().time()
    tick = int(now / seconds) + 1
    await asyncio.sleep(tick * seconds - now)
    return tick


def _set(events: list[asyncio.Event]) -> None:
    for event in events:
        event.set()
