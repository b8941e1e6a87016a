"""The HTTP routes of the Live tab, and the limits on simultaneous viewers.

GET  inflight/live/steps?from=N&chapters=K  what happens in the engine, as server-sent events,
                                            see `core.serving.event_log`; of=NAME, repeatable:
                                            which one, if several are followed
POST inflight/live/requests                 {"key", "prompt", "max_new_tokens", "nickname"} →
                                            {"id"} or {"error", "retry_after"}
GET  inflight/live/requests?places=KEY:N,…  the texts of one's own requests
POST inflight/live/requests/KEY/cancel      → {"cancelled"}
POST inflight/live/bots                     three bots ask for a while: {} → {"bots"} or
                                            {"error", "retry_after"}
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from core.errors import InflightError
from core.serving.event_log import EventLog, events, events_together
from core.serving.turns import Turns
from visualizer.server.live import Live
from visualizer.server.live_requests import BOTS, Bots, LiveRequests
from visualizer.server.middleware import nowhere
from visualizer.server.routes import InTurn, answer, number_from, object_in, refused, streamed

if TYPE_CHECKING:
    from core.serving.engine import ServingEngine

PERIOD = 0.25  # seconds for which messages are gathered
VIEWERS = 400  # at once; half of them from one address
OWN = 32  # the most requests in one stream


def live_of(
    serving: ServingEngine, successor: Callable[[], ServingEngine | None] = lambda: None
) -> Live:
    """Shows a serving engine from now on. successor: gives the next engine once it closed."""
    shown: list[Any] = [serving, copy.deepcopy(serving.tokenizer)]

    def numbered(message: Any, before: int) -> Any:
        """Give a run a number that no run of an earlier engine has."""
        is_run = isinstance(message, dict) and message["kind"] == "run"
        return {**message, "run": message.get("run", 0) + before} if is_run else message

    async def source() -> AsyncIterator[list[Any]]:
        before = last = 0
        while True:
            async for excerpt in shown[0].event_log.read(coalesce_s=PERIOD):
                messages = [numbered(message, before) for message in excerpt.data]
                runs = [m["run"] for m in messages if isinstance(m, dict) and m["kind"] == "run"]
                last = max([last, *runs])
                yield messages
            before = last + 1
            after = await asyncio.to_thread(successor)
            if after is None or after is shown[0]:
                return
            shown[:] = [after, copy.deepcopy(after.tokenizer)]

    live = Live(source, lambda run: shown[1])
    live.start()
    return live


def live_app(
    live: Callable[[str], Live],
    asks: LiveRequests | None,
    address_of: Callable[[Request], str],
    bots: Bots | None = None,
    is_teacher: Callable[[Request], bool] = lambda request: False,
) -> Router:
    """An ASGI application to be mounted. live: gives what is shown by name; the name is empty for
    the default. asks: None if no requests are possible because a growing recording is shown.
    address_of: gives the address of a request's client. is_teacher: whether a request has the
    teacher's token.
    """

    async def watch(request: Request) -> Response:
        try:
            logs: dict[EventLog, str] = {}  # each is sent once, whatever it is called
            for name in dict.fromkeys(request.query_params.getlist("of") or [""]):
                logs.setdefault((await asyncio.to_thread(live, name)).event_log, name)
        except InflightError as error:
            return refused(error)
        start, chapters = number_from(request, "from"), number_from(request, "chapters")
        if len(logs) > 1:
            named = {name: log for log, name in logs.items()}
            return streamed(events_together(named, chapters=chapters))
        return streamed(events(next(iter(logs)), None if start is None else start - 1, chapters))

    viewers = Turns(VIEWERS, "viewers are connected", retry_after=10)
    watching = Route("/steps", InTurn(viewers, address_of, watch), methods=["GET"])
    if asks is None:
        return Router([watching], default=nowhere())

    async def ask(request: Request) -> Response:
        asked = await object_in(request)
        if asked is None:
            asking = "A request is asked for as a JSON object with a key and a prompt."
            return refused(asking, 400)
        try:
            return answer({"id": await asks.begin(asked, address_of(request))})
        except InflightError as error:
            return refused(error)

    async def read(request: Request) -> Response:
        places = {}
        for place in request.query_params.get("places", "").split(",")[:OWN]:
            key, _, number = place.rpartition(":")
            if number.isdecimal() and len(number) < 9:
                places[key] = int(number)
        return streamed(asks.read(places))

    async def cancel(request: Request) -> Response:
        return answer({"cancelled": asks.cancel(request.path_params["key"])})

    async def let_bots_ask(request: Request) -> Response:
        assert bots is not None
        try:
            await bots.begin(address_of(request), even_if_closed=is_teacher(request))
        except InflightError as error:
            return refused(error)
        return answer({"bots": BOTS})

    readers = Turns(VIEWERS, "readers are connected", retry_after=10)
    return Router(
        [
            watching,
            Route("/requests", ask, methods=["POST"]),
            Route("/requests", InTurn(readers, address_of, read), methods=["GET"]),
            Route("/requests/{key}/cancel", cancel, methods=["POST"]),
            *([Route("/bots", let_bots_ask, methods=["POST"])] if bots else ()),
        ],
        default=nowhere(),
    )
