"""The embeddable page's addresses on a server. Pages of any site may frame it: it holds recorded
runs alone, and nothing in it acts.

GET embed                        the page; what it shows stands behind the #, see
assets/player/figure/embed.js GET inflight/embed/NAME-de.json  a recorded run for it, in a language
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core.trace.trace import Trace
from visualizer.documents.catalogue import recorded_paths
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import inert_json
from visualizer.page.embed import embed_html
from visualizer.page.figure import figure_replay
from visualizer.server.response_cache import ASK_AGAIN, CachedResponse, cached_answer, packed

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors *"
)


def embed_routes(traces: Path) -> list[Route]:
    """traces: the folder of the recorded runs."""
    runs = recorded_paths(traces)

    @cache
    def page() -> CachedResponse:
        urls = {
            name: {language: f"inflight/embed/{name}-{language}.json" for language in LANGUAGES}
            for name in runs
        }
        return packed(200, "text/html; charset=utf-8", embed_html(urls, "./").encode())

    @cache
    def run(name: str, language: str) -> CachedResponse:
        return packed(
            200,
            "application/json",
            inert_json(figure_replay(Trace.load(runs[name]), language)).encode(),
        )

    async def embed(request: Request) -> Response:
        answer = cached_answer(await to_thread.run_sync(page), ASK_AGAIN, request.scope)
        answer.headers["content-security-policy"] = POLICY
        return answer

    async def data(request: Request) -> Response:
        name, language = request.path_params["name"], request.path_params["language"]
        if name not in runs or language not in LANGUAGES:
            return Response(status_code=404)
        return cached_answer(
            await to_thread.run_sync(run, name, language), ASK_AGAIN, request.scope
        )

    return [
        Route("/embed", embed, methods=["GET"]),
        Route("/inflight/embed/{name}-{language}.json", data, methods=["GET"]),
    ]
