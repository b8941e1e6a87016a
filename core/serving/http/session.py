"""`/session`: what the engine did, as a trace that passes `check`. Everybody may have it while texts are shown; else the teacher alone."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from core.errors import InflightError, TooManyRequests
from core.serving.engine import ServingEngine
from core.serving.http.guard import same_secret


def session_routes(serving: ServingEngine, teacher_token: str | None) -> APIRouter:
    router = APIRouter(tags=["watch"])
    writing = asyncio.Semaphore(1)  # it takes memory and a moment

    @router.get("/sessions", summary="The runs that can be saved")
    async def sessions() -> dict[str, Any]:
        """`{"runs": [{"run", "steps"}]}`, oldest first. A run begins with other limits, after a failure, and when room runs out."""
        return {"runs": [{"run": run, "steps": steps} for run, steps in serving.sessions]}

    @router.get("/session", summary="A run so far, as a trace (JSON lines)")
    async def session(
        run: Annotated[int | None, Query(ge=0, description="By default the latest in which something happened.")] = None,
        x_teacher_token: Annotated[str, Header()] = "",
    ) -> Response:
        is_teacher = teacher_token is not None and same_secret(x_teacher_token, teacher_token)
        if serving.event_log.hidden.texts and not is_teacher:
            raise HTTPException(403, "Texts are hidden here, and this holds them: the teacher's token is missing or wrong")
        if writing.locked():
            raise TooManyRequests("Somebody else is saving the session just now.", retry_after=2)
        async with writing:
            try:
                text = await asyncio.to_thread(lambda: "".join(line + "\n" for line in serving.session(run).lines()))
            except InflightError as error:
                raise HTTPException(404, str(error)) from None
        headers = {"content-disposition": 'attachment; filename="inflight-session.jsonl"'}
        return Response(text, media_type="application/x-ndjson", headers=headers)

    return router
