"""`/control`: pace, limits, bursts, and what is hidden, for holders of the teacher's token."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.engine_thread import LIMITS, RunStart
from core.serving.http.guard import same_secret
from core.workload.demo_workloads import demo_workloads

Count = Annotated[int, Field(ge=0, le=1000)]


class ControlBody(BaseModel):
    """The fields given are applied in this order: all, or none where the limits or the text for the
    model are refused. A burst that is refused takes back nothing that stands before it, and no
    steps are taken. steps_per_s: null for full speed, 0 to pause except for single steps.

    policy, max_num_seqs, max_num_batched_tokens, chunked_prefill, prefix_caching: begin a new run,
    see `when`: "idle" waits until nothing is under way, "barrier" admits no further request to a
    lane. system: said to a model with a chat template before each question of a person. burst: a
    prepared one by its name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    policy: Annotated[str, Field(max_length=40)] | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    when: RunStart = "barrier"
    system: str | None = None
    clear: bool = False
    hide_texts: bool | None = None
    hide_nicknames: bool | None = None
    accepting: bool | None = None
    steps_per_s: Annotated[float, Field(ge=0, le=1000)] | None = None
    burst: Annotated[str, Field(max_length=40)] | None = None
    steps: Count = 0

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that were named, by field of `EngineConfig`."""
        return self.model_dump(include=LIMITS, exclude_none=True)


def control_routes(serving: ServingEngine, classroom: Classroom, teacher_token: str) -> APIRouter:
    """The teacher's addresses: limits, pace, bursts. Each needs the token."""

    async def teacher(x_teacher_token: Annotated[str, Header()] = "") -> None:
        if not same_secret(x_teacher_token, teacher_token):
            raise HTTPException(403, "The teacher's token is missing or wrong")

    router = APIRouter(tags=["control"], dependencies=[Depends(teacher)])

    @router.get("/control", summary="What is set, and the prepared bursts")
    async def state() -> dict[str, Any]:
        bursts = [
            {"name": burst.name, "shows": burst.shows, "requests": len(burst.prompts)}
            for burst in demo_workloads(serving.is_asked_by_messages).values()
        ]
        return {**classroom.state, "steps_per_s": serving.steps_per_s, "bursts": bursts}

    @router.post(
        "/control",
        summary="Set pace, limits and what is hidden; take steps; send a burst; clear the engine",
    )
    async def control(body: ControlBody) -> dict[str, Any]:
        """The current settings. Viewers learn of pending changes once the engine has made them."""
        if body.system is not None:
            classroom.checked_system(body.system)
        if body.limits:
            classroom.configure(start=body.when, **body.limits)
        if body.system is not None:
            classroom.tell_first(body.system)
        if body.clear:
            serving.clear()
        if body.hide_texts is not None or body.hide_nicknames is not None:
            classroom.hide(texts=body.hide_texts, nicknames=body.hide_nicknames)
        if body.accepting is not None:
            classroom.accept(body.accepting)
        if paced := "steps_per_s" in body.model_fields_set:
            serving.set_pace(body.steps_per_s)
        if body.burst is not None:
            await classroom.burst(body.burst)
        if body.steps:
            serving.step(body.steps)
        return {
            **classroom.state,
            "steps_per_s": body.steps_per_s if paced else serving.steps_per_s,
        }

    return router
