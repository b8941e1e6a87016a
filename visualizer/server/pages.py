"""Routes that are the same for all visitors: the story, the embeddable page, the engine in the tab.

GET story[?lang=de]            the essay; without a language in English, which goes on to the
                               one that the reader has chosen
GET inflight/story/NAME        a font of it
GET embed                      a page that any site may frame: it holds recorded runs alone, and
                               nothing in it acts. What it shows stands behind the #, see
                               assets/player/figure/embed.js
GET inflight/embed/NAME-de.json  a recorded run for it, in a language
GET engine/VERSION/NAME        a file of the engine in the tab, see
                               `visualizer.page.engine_files`, or one beside it; another
                               version's address has nothing
"""

from functools import cache
from pathlib import Path, PurePosixPath

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from core.trace.trace import Trace
from visualizer.documents.catalogue import recorded_paths
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import inert_json
from visualizer.page.engine_files import EngineFiles
from visualizer.page.figure import embed_html, figure_replay
from visualizer.page.story import FONTS, story_html
from visualizer.server.middleware import nowhere
from visualizer.server.response_cache import (
    ASK_AGAIN,
    FOREVER,
    CachedResponse,
    cached_answer,
    packed,
)
from visualizer.server.routes import PACKED


def story_routes(picture: str | None = None) -> list[Route]:
    """picture: the address of the image for previews of links."""

    @cache
    def page(language: str) -> CachedResponse:
        html = story_html(language, picture=picture)
        return packed(200, "text/html; charset=utf-8", html.encode())

    async def story(request: Request) -> Response:
        language = request.query_params.get("lang", "en")
        found = await to_thread.run_sync(page, language if language in LANGUAGES else "en")
        return cached_answer(found, ASK_AGAIN, request.scope)

    async def font(request: Request) -> Response:
        path = FONTS / request.path_params["name"]
        if path.parent != FONTS or path.suffix != ".woff2" or not path.exists():
            return nowhere()
        return FileResponse(path, media_type="font/woff2", headers={"cache-control": FOREVER})

    return [
        Route("/story", story, methods=["GET"]),
        Route("/inflight/story/{name}", font, methods=["GET"]),
    ]


_BYTES = "application/octet-stream"
_TYPES = {".js": "text/javascript", ".json": "application/json"}


def engine_routes(files: EngineFiles | None) -> list[Route]:
    """files: those of the engine in the tab, None if the page does not offer it."""

    async def file(request: Request) -> Response:
        version, name = request.path_params["version"], request.path_params["name"]
        if files is None:
            return nowhere()
        if beside := files.beside.get(f"{version}/{name}"):
            return FileResponse(beside, media_type=_BYTES, headers={"cache-control": FOREVER})
        contents = await to_thread.run_sync(files.contents) if version == files.version else {}
        if name not in contents:
            return nowhere()
        kind = _TYPES.get(PurePosixPath(name).suffix, _BYTES)
        return Response(contents[name], media_type=kind, headers={"cache-control": FOREVER})

    return [Route("/engine/{version}/{name:path}", file, methods=["GET"], middleware=[PACKED])]


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
        replay = figure_replay(Trace.load(runs[name]), language)
        return packed(200, "application/json", inert_json(replay).encode())

    async def embed(request: Request) -> Response:
        answer = cached_answer(await to_thread.run_sync(page), ASK_AGAIN, request.scope)
        answer.headers["content-security-policy"] = POLICY
        return answer

    async def data(request: Request) -> Response:
        name, language = request.path_params["name"], request.path_params["language"]
        if name not in runs or language not in LANGUAGES:
            return nowhere()
        found = await to_thread.run_sync(run, name, language)
        return cached_answer(found, ASK_AGAIN, request.scope)

    return [
        Route("/embed", embed, methods=["GET"]),
        Route("/inflight/embed/{name}-{language}.json", data, methods=["GET"]),
    ]
