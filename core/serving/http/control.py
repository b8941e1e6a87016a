"""`POST /control`: who has the teacher's token sets the pace, takes single steps, or clears the engine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from core.serving.engine import ServingEngine
from core.serving.http.guard import same


class ControlBody(BaseModel):
    """What is given is done, in this order. steps_per_s: null for full speed, 0 to stand still but for single steps."""

    model_config = ConfigDict(extra="forbid")

    clear: bool = False
    steps_per_s: Annotated[float, Field(ge=0, le=1000)] | None = None
    steps: Annotated[int, Field(ge=0, le=1000)] = 0


def control_routes(serving: ServingEngine, teacher_token: str) -> APIRouter:
    router = APIRouter(tags=["control"])

    @router.post("/control", summary="Set the pace, take single steps, or clear the engine")
    async def control(body: ControlBody, x_teacher_token: Annotated[str, Header()] = "") -> dict[str, float | None]:
        if not same(x_teacher_token, teacher_token):
            raise HTTPException(403, "The teacher's token is missing or wrong")
        if body.clear:
            serving.clear()
        if "steps_per_s" in body.model_fields_set:
            serving.set_pace(body.steps_per_s)
        if body.steps:
            serving.step(body.steps)
        return {"steps_per_s": body.steps_per_s if "steps_per_s" in body.model_fields_set else serving.steps_per_s}

    return router
