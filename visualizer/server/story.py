"""The story's addresses on a server: the essay in each language, and its fonts.

GET story[?lang=de]         the page; without a language in English, which goes on to the one that
the reader has chosen GET inflight/story/NAME     a font
"""

from __future__ import annotations

from functools import cache

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from visualizer.lessons.texts import LANGUAGES
from visualizer.page.story import FONTS, story_html
from visualizer.server.response_cache import (
    ASK_AGAIN,
    FOREVER,
    CachedResponse,
    cached_answer,
    packed,
)


def story_routes(picture: str | None = None) -> list[Route]:
    """picture: the address of the picture that previews of links show."""

    @cache
    def page(language: str) -> CachedResponse:
        return packed(
            200, "text/html; charset=utf-8", story_html(language, picture=picture).encode()
        )

    async def story(request: Request) -> Response:
        language = request.query_params.get("lang", "en")
        found = await to_thread.run_sync(page, language if language in LANGUAGES else "en")
        return cached_answer(found, ASK_AGAIN, request.scope)

    async def font(request: Request) -> Response:
        path = FONTS / request.path_params["name"]
        if path.parent != FONTS or path.suffix != ".woff2" or not path.exists():
            return Response(status_code=404)
        return FileResponse(path, media_type="font/woff2", headers={"cache-control": FOREVER})

    return [
        Route("/story", story, methods=["GET"]),
        Route("/inflight/story/{name}", font, methods=["GET"]),
    ]
