"""The server's state and activity: `/health`, `/metrics` for Prometheus, `/events` for live
viewers, and `/session`, what the engine did as a trace that passes `check`: open to all while texts
are shown, otherwise to the teacher only.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from core.errors import InflightError, TooManyRequests
from core.serving.engine import ServingEngine
from core.serving.http.answers import EventStream
from core.serving.http.guard import same_secret
from core.serving.turns import Turns


def watch_routes(serving: ServingEngine, teacher_token: str | None) -> APIRouter:
    """What an engine does, for whoever watches: health, metrics, live events, traces."""
    router = APIRouter(tags=["watch"])
    viewers = Turns(serving.limits.max_viewers, "viewers are connected", retry_after=5)
    writing = asyncio.Semaphore(1)  # saving takes memory and time

    @router.head("/health", include_in_schema=False)
    @router.get("/health", summary="Whether requests are accepted, and what is in progress")
    async def health() -> JSONResponse:
        engine = serving.engine
        used, total = engine.kv_blocks
        state: dict[str, Any] = {
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
        return JSONResponse(state, 200 if serving.status == "ok" else 503)

    @router.get("/metrics", summary="Prometheus metrics: vLLM's names under the prefix inflight:")
    async def metrics() -> Response:
        return Response(generate_latest(serving.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/events", summary="What the engine does, live")
    async def events(
        request: Request,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
        after: Annotated[
            int | None, Query(ge=0, description="As Last-Event-ID, for clients that cannot set it.")
        ] = None,
    ) -> Response:
        """Server-sent events, at most ten a second: each `data:` is an array of messages, its `id:`
        the number of the last one, from which `Last-Event-ID` resumes. The kinds of message: `run`
        (a run begins: its header, and the fields of each record of its steps), `request`, `step`
        (as in a trace), `pace`, `skipped` (the reader missed messages).
        """
        client = request.client.host if request.client else ""
        await viewers.take(client)
        log = serving.event_log.read(last_event_id if last_event_id is not None else after)
        batches = (excerpt.event async for excerpt in log)
        return EventStream(serving, batches, lambda: viewers.free(client))

    @router.get("/sessions", summary="The runs that can be saved")
    async def sessions() -> dict[str, Any]:
        """`{"runs": [{"run", "steps"}]}`, oldest first. A run begins with other limits, after a
        failure, and when room runs out.
        """
        return {"runs": [{"run": run, "steps": steps} for run, steps in serving.sessions]}

    @router.get("/session", summary="A run so far, as a trace (JSON lines)")
    async def session(
        run: Annotated[
            int | None,
            Query(ge=0, description="By default the latest in which something happened."),
        ] = None,
        x_teacher_token: Annotated[str, Header()] = "",
    ) -> Response:
        is_teacher = teacher_token is not None and same_secret(x_teacher_token, teacher_token)
        if serving.event_log.hidden.texts and not is_teacher:
            raise HTTPException(
                403,
                "Texts are hidden here, and this holds them: the teacher's token is missing or"
                " wrong",
            )
        if writing.locked():
            raise TooManyRequests("Somebody else is saving the session just now.", retry_after=2)
        async with writing:
            try:
                text = await asyncio.to_thread(
                    lambda: "".join(line + "\n" for line in serving.session(run).lines())
                )
            except InflightError as error:
                raise HTTPException(404, str(error)) from None
        headers = {"content-disposition": 'attachment; filename="inflight-session.jsonl"'}
        return Response(text, media_type="application/x-ndjson", headers=headers)

    return router
