"""How the server is, and what it does: `/health`, `/metrics` for Prometheus, `/events` for live viewers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response

from core.errors import TooManyRequests
from core.serving.engine import ServingEngine


def watch_routes(serving: ServingEngine) -> APIRouter:
    router = APIRouter(tags=["watch"])
    viewers = 0

    @router.get("/health", summary="Whether requests are taken, and what is under way")
    async def health() -> JSONResponse:
        engine = serving.engine
        used, total = engine.kv_blocks
        told: dict[str, Any] = {
            "status": serving.status,
            "model": serving.name,
            "requests": serving.num_requests,
            "running": len(engine.running),
            "waiting": engine.num_waiting,
            "kv_blocks_used": used,
            "kv_blocks": total,
            "step_failures": serving.num_step_failures,
            "steps_per_s": serving.steps_per_s,
        }
        return JSONResponse(told, 200 if serving.status == "ok" else 503)

    @router.get("/metrics", summary="Prometheus metrics: vLLM's names under the prefix inflight:")
    async def metrics() -> Response:
        return Response(generate_latest(serving.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/events", summary="What the engine does, live")
    async def events(
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
        after: Annotated[int | None, Query(ge=0, description="As Last-Event-ID, for clients that cannot set it.")] = None,
    ) -> Response:
        """Server-sent events, at most ten a second: each `data:` is an array of messages, its `id:` the number of the last one, from which
        `Last-Event-ID` resumes. The kinds of message: `run` (a run begins: its header), `request`, `step` (as in a trace), `pace`,
        `skipped` (the reader missed messages)."""
        nonlocal viewers
        if viewers >= serving.limits.max_viewers:
            raise TooManyRequests(f"{viewers} are watching, which is all this server takes.", retry_after=5)

        async def batches() -> AsyncIterator[bytes]:
            nonlocal viewers
            viewers += 1
            try:
                async for excerpt in serving.event_log.read(last_event_id if last_event_id is not None else after):
                    yield excerpt.event
            finally:
                viewers -= 1

        return EventSourceResponse(batches(), sep="\n", send_timeout=serving.limits.send_s)

    return router
