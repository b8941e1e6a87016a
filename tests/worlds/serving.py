"""An engine that serves, and a server over real HTTP, in this process: uvicorn in a thread, on a
port of its own.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx
import uvicorn

from core import Engine, EngineConfig, SamplingParams, Trace
from core.proof.verify import CheckResult, verify
from core.serving.engine import ServingEngine
from core.serving.event_log import Hidden
from core.serving.http.app import create_app
from core.serving.limits import ServingLimits
from core.serving.listening import HttpServer, bound, server_config
from core.serving.stream import Piece, TokenStream
from worlds.integrity import check_integrity
from worlds.small import MemoryModel

MODEL = "shakespeare-char"
# Past any proxy, and with no certificates to read for each call.
_PLAIN: dict[str, Any] = {"timeout": 60, "trust_env": False, "verify": False}


@cache
def _loaded() -> Engine:
    return Engine.from_pretrained(MODEL, device="cpu")


def char_engine(**limits: Any) -> Engine:
    """The smallest built-in model; weights are shared."""
    loaded = _loaded()
    return Engine(
        loaded.adapter,
        loaded.tokenizer,
        EngineConfig(**{"max_num_seqs": 4, "num_blocks": 64, **limits}),
    )


CHAT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if"
    " add_generation_prompt %}assistant: {% endif %}"
)


def chat_engine(**limits: Any) -> Engine:
    """The same, asked by messages."""
    engine = char_engine(**limits)
    engine.tokenizer = copy.deepcopy(engine.tokenizer)
    engine.tokenizer.chat_template = CHAT
    return engine


@dataclass
class Served:
    """A server that runs."""

    url: str
    serving: ServingEngine

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, **_PLAIN, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, **_PLAIN, **options)


@contextmanager
def served(
    engine: Engine,
    limits: ServingLimits | None = None,
    name: str = MODEL,
    app: Callable[..., Any] = create_app,
    **options: Any,
) -> Iterator[Served]:
    """app: makes what is served, of the engine and these options."""
    serving = ServingEngine(engine, limits, name)
    serving.start()
    try:
        config = server_config(app(serving, **options), replace(serving.limits, drain_s=1))
        with listening(config, serving.drain) as port:
            yield Served(f"http://127.0.0.1:{port}", serving)
    finally:
        serving.close()


@contextmanager
def listening(
    config: uvicorn.Config, before_end: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """uvicorn in a thread; its port."""
    server, socket = HttpServer(config), bound("127.0.0.1", 0)
    ready = threading.Event()

    async def run() -> None:
        serve = asyncio.create_task(server.serve([socket]))
        while not server.started and not serve.done():
            await asyncio.sleep(0.01)
        ready.set()
        await serve

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        assert ready.wait(120) and server.started
        yield socket.getsockname()[1]
    finally:
        before_end()
        server.should_exit = True
        thread.join(30)


# -- without HTTP ----------------------------------------------------------------------------------


@contextmanager
def serving(engine: Engine, limits: ServingLimits | None = None, hidden: Hidden = Hidden()):  # noqa: B008
    made = ServingEngine(engine, limits, hidden=hidden)
    made.start()
    try:
        yield made
    finally:
        made.close()


def greedy(new: int, **more) -> SamplingParams:
    return SamplingParams(max_new_tokens=new, ignore_eos=True, **more)


async def whole(stream: TokenStream) -> list[Piece]:
    return [piece async for piece in stream]


def tokens(pieces: list[Piece]) -> list[int]:
    return [piece.token_id for piece in pieces if piece.token_id is not None]


async def idle(made: ServingEngine) -> None:
    """The engine has nothing left to do, and no request holds anything."""
    while made.engine.has_work or made.num_requests:
        await asyncio.sleep(0.001)
    assert (
        made.engine.running == () and made.engine.kv_blocks[0] == 0 and made.engine.num_waiting == 0
    )
    check_integrity(made.engine._loop.scheduler)
    assert not made.engine._arrivals and not made.engine._loop.sampling
    assert not made._thread._under_way


def checked(trace: Trace) -> CheckResult:
    """It is what it says, on disk too."""
    return verify(trace.lines())


@contextmanager
def between_two_steps(made: ServingEngine) -> Iterator[None]:
    """The engine's thread stands until this ends: what is asked inside is seen at once."""
    released = threading.Event()
    made._thread.send(released.wait, 60)
    try:
        yield
    finally:
        released.set()


async def all_messages(made: ServingEngine) -> list[dict]:
    """All messages of a server, which ends here."""
    await asyncio.to_thread(made.close)
    return [
        message
        async for batch in made.event_log.read(coalesce_s=0)
        for message in json.loads(batch.messages)
    ]


def breaks(batch) -> bool:
    return bool(((batch.input_ids == 49) & (batch.position_ids == 0)).any())


class Fragile(MemoryModel):
    """Breaks on every pass that holds a prompt beginning with token 49."""

    error: Exception = ValueError("a bug of ours")

    def forward(self, batch, pool, backend=None):
        if breaks(batch):
            raise self.error
        return super().forward(batch, pool, backend)
