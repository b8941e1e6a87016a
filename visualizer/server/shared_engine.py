"""The engine that all visitors share. It is served under `/serve` and loaded on first use.

GET  inflight/class          {"address", "qr"}: its address for a class, also as an SVG; null
                             where only this machine can open the page
POST inflight/shared-model   the teacher: {"model", "dtype"} → {"model"}, shared from now on, or
                             {"error"}
/serve/…                     the server's own addresses, see `core.serving.http.app`
inflight/live/…              the Live tab's, see `visualizer.server.live_routes`
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import segno
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from core.config import POLICIES, SMOLLM2, EngineConfig
from core.errors import InflightError
from core.serving.http.guard import same_secret, sendable
from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.libraries import load_libraries
from core.workload.demo_workloads import house_prompts
from visualizer.jobs.limits import Limits, checked_model
from visualizer.server.live import Live
from visualizer.server.live_requests import Bots, LiveRequests
from visualizer.server.live_routes import live_app, live_of
from visualizer.server.middleware import ClientAddressed, address_of
from visualizer.server.routes import answer, object_in, refused

if TYPE_CHECKING:
    from core.serving.classroom import Classroom
    from core.serving.engine import ServingEngine

LANES = 3  # few, so that a fourth request visibly waits; the teacher may open more
SUGGESTED = 3  # prompts offered in the form
# steps a second until the teacher changes it; at full speed a request ends before another joins
PACE = 8.0
TAB = "#part=live"
_EVERYWHERE = ("0.0.0.0", "::")
App = Callable[..., Any]  # ASGI
log = logging.getLogger("inflight")


class SharedEngine:
    """One per process. teacher_token: by default a new one. address: the address for a class."""

    def __init__(
        self, model: str, models: ModelCache, limits: Limits, teacher_token: str | None = None
    ) -> None:
        self.model = model
        self.teacher_token = sendable(
            teacher_token or secrets.token_urlsafe(16), "The teacher's token"
        )
        self.address = ""
        self._models, self._limits = models, limits
        self._lock, self._changing = threading.Lock(), threading.Lock()
        self._dtype = "auto"
        self._lazy: list[_Lazy] = []  # the apps that belong to this engine
        self._serving: ServingEngine | None = None
        self._classroom: Classroom | None = None
        self._live: Live | None = None

    def serving(self) -> ServingEngine:
        """The engine, loaded by the first call, which takes seconds: do not call this on an event
        loop. Raises InflightError for a model that cannot be loaded.

        It runs on the CPU, which leaves the GPU to visitors' own runs.
        """
        load_libraries()
        from core.serving.classroom import Classroom
        from core.serving.engine import ServingEngine
        from core.serving.event_log import Hidden
        from core.serving.limits import ServingLimits
        from core.torch_engine.engine import Engine

        with self._lock:
            if self._serving is None:
                here = self._limits
                serving = ServingEngine(
                    Engine(
                        *self._models.get(self.model, "cpu", self._dtype),
                        EngineConfig(max_num_seqs=LANES),
                    ),
                    ServingLimits(
                        max_requests=here.shared_requests,
                        max_requests_per_client=here.shared_requests_of_one,
                        max_prompt_tokens=here.prompt_characters,
                        max_new_tokens=here.new_tokens,
                        max_lanes=here.lanes,
                        max_budget=here.budget,
                        max_viewers=400,
                    ),
                    self.model,
                    Hidden(texts=False, nicknames=False),  # seeing each other's texts is the point
                )
                serving.start()
                serving.set_pace(PACE)
                self._classroom, self._serving = Classroom(serving), serving
                # new viewers see the run from its first step
                self._live = self._live or live_of(serving, self._successor)
            return self._serving

    def share(self, model: str, dtype: str = "auto") -> None:
        """Share another model from now on; requests in progress are cancelled. The new model is
        loaded before anything changes: do not call this on an event loop. Raises InflightError for
        a model that cannot be loaded.
        """
        with self._changing:
            self._models.get(model, "cpu", dtype)
            with self._lock:
                old, self._serving = self._serving, None
                self.model, self._dtype = model, dtype
            for lazy in self._lazy:
                lazy.forget()
            if old is not None:
                old.close()
            self.serving()

    def _successor(self) -> ServingEngine | None:
        """The engine that runs now, for viewers of a closed one; None if the page is closing. One
        that was lost is replaced.
        """
        if self._serving is not None and self._serving.is_lost:
            self.share(self.model, self._dtype)
        return self.serving() if self._changing.locked() or self._serving is not None else None

    def close(self) -> None:
        """Accept no more requests, and give those in progress some time to finish."""
        serving = self._serving
        if serving is None:
            return
        serving.drain()
        until = time.monotonic() + serving.limits.drain_s
        while serving.num_requests and time.monotonic() < until:
            time.sleep(0.05)
        serving.close()

    def routes(self, address_of: Callable[[Request], str] = address_of(False)) -> list[BaseRoute]:  # noqa: B008
        """address_of: gives the address of a request's client."""

        async def where(request: Request) -> Response:
            qr = None if is_loopback(self.address) else qr_code(self.address)
            return answer({"address": self.address, "qr": qr})

        async def share(request: Request) -> Response:
            if not self._is_teacher(request):
                return refused("Only the teacher chooses the model: this is not the token.", 403)
            asked = await object_in(request) or {}
            try:
                model, dtype = checked_model(
                    asked.get("model"), asked.get("dtype", "auto"), self._limits
                )
                await asyncio.to_thread(self.share, model, dtype)
            except InflightError as error:
                return answer({"error": str(error)}, 400)
            return answer({"model": self.model})

        self._lazy = [_Lazy(self._server), _Lazy(lambda: self._live_app(address_of))]
        return [
            Route("/inflight/class", where, methods=["GET"]),
            Route("/inflight/shared-model", share, methods=["POST"]),
            Mount("/serve", app=ClientAddressed(self._lazy[0], address_of)),
            Mount("/inflight/live", app=self._lazy[1]),
        ]

    def _live_app(self, address_of: Callable[[Request], str]) -> App:
        serving, live = self.serving(), self._live
        requests = LiveRequests(serving)
        assert live is not None
        bots = Bots(serving, house_prompts(self.model, serving.is_asked_by_messages))
        return live_app(lambda of: live, requests, address_of, bots, self._is_teacher)

    def _is_teacher(self, request: Request) -> bool:
        return same_secret(request.headers.get("x-teacher-token", ""), self.teacher_token)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the page's Live tab; see assets/player/live/live.js."""
        policies = [{"name": policy.name, "shows": policy.shows} for policy in POLICIES.values()]
        # this model ends its answers itself, and a small one is right more often when greedy
        answers = self.model == SMOLLM2
        prompts = house_prompts(self.model, answers)[:SUGGESTED]
        suited = {
            "prompt": prompts[0] if answers else f"{prompts[0]} ",
            "tokens": 150 if answers else 40,
            "temperature": 0.0 if answers else 0.8,
        }
        return {"policies": policies, "prompts": prompts, "suited": suited}

    def announce(self, local: str, shared: str | None, host: str | None) -> str:
        """The message printed at the start. local, shared: the addresses of the page, from
        `Blocks.launch`; host: the address that it listens on.
        """
        self.address = class_address(local, shared, host)
        return (
            f"Live: everybody at {self.address} shares one engine.\nThe teacher, who sets its pace"
            " and policy, sends bursts and hides texts:"
            f" {self.address}&teacher={quote(self.teacher_token)}"
        )

    def _server(self) -> App:
        from core.serving.http.app import create_app

        return create_app(
            self.serving(), classroom=self._classroom, teacher_token=self.teacher_token
        )


class _Lazy:
    """An ASGI application that is created in a thread by the first call; if that fails, the call is
    answered with a sentence, and the next one tries again.
    """

    def __init__(self, make: Callable[[], App]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._app: App | None = None

    def forget(self) -> None:
        """Create the application again at the next call."""
        with self._lock:
            self._app = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app: App | None = self._app
        if app is None:
            try:
                app = await asyncio.to_thread(self._load)
            except InflightError as error:
                log.warning("the shared engine cannot be had: %s", error)
                app = answer({"error": {"message": str(error)}}, 503)
        await app(scope, receive, send)

    def _load(self) -> App:
        with self._lock:
            if self._app is None:
                self._app = self._make()
            return self._app


# -- the address for a class -----------------------------------------------------------------------


def class_address(
    local: str,
    shared: str | None = None,
    host: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The address of the Live tab for a class. local: where this machine reaches the page, e.g.
    http://localhost:7860/. shared: the address of a tunnel, if there is one. host: the address that
    the page listens on, by default loopback.
    """
    own = environment.get("SPACE_HOST")
    if own or shared:
        return f"{f'https://{own}' if own else str(shared).rstrip('/')}/{TAB}"
    at = urlsplit(local)
    host = lan_address() if host in _EVERYWHERE else host or at.hostname or "127.0.0.1"
    port = "" if at.port is None else f":{at.port}"
    named = f"[{host}]" if ":" in host else host
    return f"{at.scheme or 'http'}://{named}{port}{at.path.rstrip('/')}/{TAB}"


def lan_address() -> str:
    """The address of this machine in its network, or loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # nothing is sent to this reserved address, but the system picks a route
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def is_loopback(address: str) -> bool:
    """Whether an address leads to the machine that uses it."""
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost" or host.endswith(".localhost")


def qr_code(address: str) -> str:
    """A QR code as inline SVG, black on white with a quiet zone, which fills its container."""
    return segno.make(address, error="m", micro=False).svg_inline(
        border=4, omitsize=True, light="#fff", dark="#000"
    )
