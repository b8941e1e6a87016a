"""Three bots that ask for a while: a newcomer who is alone on the Live tab sees a batch at work.
They stop by themselves.

They are programs and say so: wherever requests have names they are Bot 1, Bot 2 and Bot 3, which
nobody else may be called. What they ask counts as asked by the address that let them.

Use everything here on one event loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from core.errors import InflightError, TooManyRequests
from core.workload.request import SamplingParams

if TYPE_CHECKING:
    from core.serving.engine import ServingEngine
    from core.serving.stream import TokenStream

BOTS = 3
ROUNDS = 3  # requests of each, one after another
# of the first bot's requests, the second's, the third's: they end at different times
NEW_TOKENS = (32, 48, 24)
ANSWER = 80  # tokens, in which a model that ends its answers comes to an end
PAUSE = 1.0  # seconds between a bot's requests, and between the first requests of two


class Bots:
    """prompts: what they ask, in turn."""

    def __init__(self, serving: ServingEngine, prompts: Sequence[str]) -> None:
        self._serving, self._prompts = serving, prompts
        self._is_beginning = False
        self._asking: set[asyncio.Task[None]] = set()

    async def begin(self, client: str, even_if_closed: bool = False) -> None:
        """Let them ask, for this client; returns once the first has asked.

        even_if_closed: also while no requests are accepted. Raises TooManyRequests while they are
        asking already, and what `ServingEngine.submit` raises.
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
        """One bot's requests, of which the first may be under way. It stops early if one is
        refused, fails or is cancelled.
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
