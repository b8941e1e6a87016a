"""The engine in the tab, at its address on a server.

GET engine/VERSION/NAME    a file of it, see `visualizer.page.engine_files`, or one beside it;
another version's address has nothing
"""

from __future__ import annotations

from pathlib import PurePosixPath

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from visualizer.page.engine_files import EngineFiles
from visualizer.server.response_cache import FOREVER
from visualizer.server.routes import PACKED

_BYTES = "application/octet-stream"
_TYPES = {".js": "text/javascript", ".json": "application/json"}


def engine_routes(files: EngineFiles | None) -> list[Route]:
    """files: those that the page offers, if any."""

    async def file(request: Request) -> Response:
        version, name = request.path_params["version"], request.path_params["name"]
        if files is not None and (beside := files.beside.get(f"{version}/{name}")):
            return FileResponse(beside, media_type=_BYTES, headers={"cache-control": FOREVER})
        contents = (
            await to_thread.run_sync(files.contents)
            if files is not None and version == files.version
            else {}
        )
        if name not in contents:
            return Response(status_code=404)
        kind = _TYPES.get(PurePosixPath(name).suffix, _BYTES)
        return Response(contents[name], media_type=kind, headers={"cache-control": FOREVER})

    return [Route("/engine/{version}/{name:path}", file, methods=["GET"], middleware=[PACKED])]
