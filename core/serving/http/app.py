"""The whole server as one ASGI application, to be run by itself or mounted in another.

    app = create_app(serving)                              # alone: `core.serving.server`
    routes = [Mount("/serve", app=create_app(serving))]    # beside a page's own routes

Gradio takes such routes at `Blocks.launch(app_kwargs={"routes": routes})`; OpenAI's clients then
use the base URL `…/serve/v1`, and viewers `…/serve/events`. The caller starts the serving engine
before and closes it afterwards; the application handles the key, the limits and errors.
"""

from collections.abc import Collection, Sequence

from fastapi import FastAPI
from sse_starlette.sse import AppStatus
from starlette.middleware.cors import CORSMiddleware

from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.http.control import control_routes
from core.serving.http.errors import add_handlers
from core.serving.http.generate import generate_routes
from core.serving.http.guard import api_guard
from core.serving.http.openai import openai_routes
from core.serving.http.schemas import ErrorBody
from core.serving.http.sites import Sites
from core.serving.http.watch import watch_routes

# Streams end by themselves when a server closes: requests get time to finish, and viewers are told.
AppStatus.disable_automatic_graceful_drain()


def create_app(
    serving: ServingEngine,
    *,
    classroom: Classroom | None = None,
    api_key: str | None = None,
    teacher_token: str | None = None,
    cors_origins: Sequence[str] = (),
    names: Collection[str] | None = None,
) -> FastAPI:
    """The application. classroom: of this engine, by default a new one. api_key: required for every
    call but `/health`. teacher_token: gives access to `/control`, which does not exist without one.
    cors_origins: origins whose pages may call. names: names under which browsers may reach the
    server besides its own, None for any; see `Sites`.
    """
    app = FastAPI(
        title="Inflight",
        summary="A continuous-batching engine behind HTTP.",
        docs_url="/docs",
        redoc_url=None,
        openapi_url="/openapi.json",
        responses={"4XX": {"description": "A refusal", "model": ErrorBody}},
    )
    app.include_router(generate_routes(serving))
    app.include_router(openai_routes(serving))
    app.include_router(watch_routes(serving, teacher_token))
    classroom = classroom or Classroom(serving)
    if teacher_token is not None:
        app.include_router(control_routes(serving, classroom, teacher_token))
    add_handlers(app, serving.metrics.refused)
    app.add_middleware(
        api_guard,
        limits=serving.limits,
        sites=Sites(cors_origins, names),
        api_key=api_key,
        refused=serving.metrics.refused,
    )
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
        )
    return app
