"""The requests of visitors and bots to the shared engine on the Live tab. A visitor's request
outlives its page for a while, so that a reloaded page finds it. The page generates a key, which
allows reading the text and cancelling; the public id is derived from it.

Use everything here on one event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from core.errors import InflightError, InvalidRequest, TooManyRequests
from core.serving.event_log import EventLog, events_together
from core.serving.timeouts import Wait
from core.serving.turns import beyond
from core.workload.request import SamplingParams, is_text

if TYPE_CHECKING:
    from core.serving.engine import ServingEngine
    from core.serving.stream import TokenStream


GRACE = 20.0  # seconds for which a request without readers continues
PERIOD = 0.15  # seconds for which pieces of text are gathered
_KEPT = 512  # ended requests whose text can still be read
_KEY = range(16, 65)  # characters of a key


class LiveRequest:
    """One request. event_log: {"id", "text"} for each token as it comes, and a last {"id", "ended":
    {"finish_reason", "tokens", "queue_s", "ttft_s", "e2e_s"}} or {"id", "ended": {"error"}}.
    """

    def __init__(self, stream: TokenStream) -> None:
        self.stream, self.event_log = stream, EventLog()
        self.readers = 0

    async def follow(self) -> None:
        """Collect the text until the request ends."""
        stream = self.stream
        last: dict[str, Any]
        try:
            async for piece in stream:
                self.event_log.append({"id": stream.id, "text": piece.text})
            last = {
                "finish_reason": stream.finish_reason,
                "tokens": stream.num_tokens,
                **stream.times.to_json(),
            }
        except InflightError as error:
            last = {"error": str(error)}
        self.event_log.append({"id": stream.id, "ended": last})
        self.event_log.close()


class LiveRequests:
    def __init__(self, serving: ServingEngine) -> None:
        self._serving = serving
        self._asks: dict[str, LiveRequest] = {}
        self._beginning: dict[str, asyncio.Task[LiveRequest]] = {}
        self._following: set[asyncio.Task[None]] = set()

    async def begin(self, asked: dict[str, Any], client: str) -> str:
        """Queue a request; returns its id, which is the same if the key was used before.

        asked: {"key", "prompt", "max_new_tokens", "temperature", "seed", "nickname"}. Raises
        InflightError for a request that is refused.
        """
        key, prompt, nickname = asked.get("key"), asked.get("prompt"), asked.get("nickname")
        if not isinstance(key, str) or len(key) not in _KEY or not is_text(key):
            raise InvalidRequest(
                "A request is asked for with a key of 16 to 64 characters, which its page makes up."
            )
        if not isinstance(prompt, str) or not (nickname is None or isinstance(nickname, str)):
            raise InvalidRequest("A prompt and a nickname are texts.")
        if key in self._asks:
            return self._asks[key].stream.id
        if key not in self._beginning:
            given = {
                name: asked[name]
                for name in ("max_new_tokens", "temperature", "seed")
                if asked.get(name) is not None
            }
            sampling = SamplingParams(**given)
            self._beginning[key] = asyncio.create_task(
                self._begin(key, prompt, sampling, client, nickname)
            )
        return (await asyncio.shield(self._beginning[key])).stream.id

    async def _begin(
        self, key: str, prompt: str, sampling: SamplingParams, client: str, nickname: str | None
    ) -> LiveRequest:
        try:
            stream = await self._serving.ask(
                prompt, sampling, client=client, id=request_id(key), nickname=nickname
            )
        finally:
            del self._beginning[key]
        ask = self._asks[key] = LiveRequest(stream)
        task = asyncio.create_task(ask.follow())
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        self._expect_reader(ask)
        ended = [k for k, a in self._asks.items() if a.event_log.closed]
        for old in beyond(_KEPT, ended, lambda key: self._asks[key].stream.place.client):
            del self._asks[old]
        return ask

    async def read(self, places: dict[str, int]) -> AsyncIterator[bytes]:
        """The texts of requests by key, each from a number on, see `events_together`, until all
        have ended; {"of": key, "gone"} for an unknown key.

        All requests of a page share one stream, because browsers limit connections.
        """
        asks = {key: self._asks[key] for key in places if key in self._asks}
        for ask in asks.values():
            ask.readers += 1
        try:
            if gone := [{"of": key, "gone": True} for key in places.keys() - asks.keys()]:
                yield b"data: " + json.dumps(gone).encode() + b"\n\n"
            logs = {key: ask.event_log for key, ask in asks.items()}
            async for piece in events_together(
                logs, {key: places[key] - 1 for key in asks}, period=PERIOD
            ):
                yield piece
        finally:
            for ask in asks.values():
                ask.readers -= 1
                self._expect_reader(ask)

    def cancel(self, key: str) -> bool:
        """Cancel a request; returns whether it existed. The next step frees its blocks."""
        if key not in self._asks:
            return False
        self._asks[key].stream.cancel()
        return True

    def _expect_reader(self, ask: LiveRequest) -> None:
        """Cancel the request unless a reader comes soon."""
        if not ask.event_log.closed:
            Wait(GRACE, lambda: None if ask.readers else ask.stream.cancel())


def request_id(key: str) -> str:
    """The public id of a request, which does not reveal the key."""
    return f"live-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


BOTS = 3
ROUNDS = 3  # requests of each, one after another
# of the three bots, so that their requests end at different times
NEW_TOKENS = (32, 48, 24)
ANSWER = 80  # tokens, enough for a model that ends its answers itself
PAUSE = 1.0  # seconds between a bot's requests, and between the starts of two bots


class Bots:
    """Three bots that send requests for a while, so that a visitor who is alone on the Live tab
    sees a batch. They stop by themselves. They are recognisable as programs: wherever requests have
    names, they are Bot 1, Bot 2 and Bot 3, which nobody else may use. Their requests count for the
    address that started them. prompts: used in turn.
    """

    def __init__(self, serving: ServingEngine, prompts: Sequence[str]) -> None:
        self._serving, self._prompts = serving, prompts
        self._is_beginning = False
        self._asking: set[asyncio.Task[None]] = set()

    async def begin(self, client: str, even_if_closed: bool = False) -> None:
        """Start the bots for this client; returns once the first request is queued.

        even_if_closed: also while no requests are accepted. Raises TooManyRequests while they are
        active already, and the errors of `ServingEngine.submit`.
        """
        if self._is_beginning or self._asking:
            raise TooManyRequests(
                "The three bots are asking already; they stop by themselves.", retry_after=10
            )
        self._is_beginning = True
        try:
            first = await self._submit(0, 0, client, even_if_closed)
        finally:
            self._is_beginning = False
        for bot in range(BOTS):
            task = asyncio.create_task(
                self._ask(bot, None if bot else first, client, even_if_closed)
            )
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(
        self, bot: int, stream: TokenStream | None, client: str, even_if_closed: bool
    ) -> None:
        """One bot's requests, the first of which may be queued already. The bot stops early if a
        request is refused, fails or is cancelled.
        """
        await asyncio.sleep(bot * PAUSE)
        with suppress(InflightError):
            for turn in range(ROUNDS):
                stream = stream or await self._submit(bot, turn, client, even_if_closed)
                async for _ in stream:
                    pass
                if stream.finish_reason == "cancelled":
                    return
                stream = None
                await asyncio.sleep(PAUSE)

    async def _submit(self, bot: int, turn: int, client: str, even_if_closed: bool) -> TokenStream:
        prompt = self._prompts[(bot + BOTS * turn) % len(self._prompts)]
        answers = self._serving.is_asked_by_messages
        new = min(ANSWER if answers else NEW_TOKENS[bot], self._serving.limits.max_new_tokens)
        # as in the form: a small model is right more often when it is greedy
        temperature = 0.0 if answers else 0.8
        sampling = SamplingParams(new, temperature=temperature, seed=secrets.randbelow(2**31))
        name, id = f"Bot {bot + 1}", f"bot-{secrets.token_hex(6)}"
        return await self._serving.ask(
            prompt,
            sampling,
            client=client,
            id=id,
            nickname=name,
            even_if_closed=even_if_closed,
            is_bot=True,
        )
