"""The address to which engines send their recordings, see
`core.recorders.vllm.inflight_vllm.sender`. It knows no page and no model.

POST ADDRESS   Authorization: Bearer TOKEN, Inflight-First: N, a header and lines →
{"wants_snapshot": …}, or {"error": …} with 400, 401, 413 or 507
"""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from core.errors import InflightError, InvalidTrace
from core.files import open_file
from core.recorders.collected import Collection, Full
from core.recorders.vllm.inflight_vllm.sender import MOST_BODY
from core.serving.http.guard import BodyBounds, Guard, same_secret, sendable

BODY = BodyBounds(MOST_BODY, 20.0, each_piece=True)
TOKEN = "INFLIGHT_COLLECT_TOKEN"
_TOKEN = ".token"
_AGAIN_S = 60.0  # seconds between two lines about wrong tokens from one address


def token_of(folder: Path, named: str | None = None) -> str:
    """The token that engines must send: the given one, else that of the environment, else the
    folder's own, which is made once, so that engines can go on sending after their collector was
    restarted. Raises InflightError if it cannot be stored or sent.
    """
    path = folder / _TOKEN
    named = os.environ.get(TOKEN) if named is None else named
    try:
        if named is None and not (path.exists() and (path.stat().st_size or not path.is_file())):
            path.touch(0o600)  # if it is not there: a full disk may have left it empty
            path.write_text(secrets.token_urlsafe(16), encoding="ascii")
        if named is None:
            with open_file(path) as file:
                named = file.read().decode()
        token = named.strip()
    except (OSError, ValueError) as error:
        raise InflightError(
            f"{path} holds no token: {getattr(error, 'strerror', None) or error}."
        ) from None
    return sendable(token, "The collector's token")


def collector_app(collection: Collection, token: str, tell: Callable[[str], None]) -> ASGIApp:
    """An application with the address at `/`, and `/health` for monitoring."""

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "recordings_at_work": collection.at_work})

    async def elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refusal(error.status_code, "Recordings are sent by POST to / of this address.")

    routes = [
        Route("/", collect_endpoint(collection, token, tell), methods=["POST"]),
        Route("/health", health, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: elsewhere})
    return Guard(app, (), lambda scope: BODY, refusal)


def collect_endpoint(
    collection: Collection, token: str, tell: Callable[[str], None]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint. tell: called with each line for the log."""
    told: dict[str, float] = {}  # when it was said last, by address

    async def collect(request: Request) -> Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not same_secret(given.strip(), token):
            _refuse(request)
            return refusal(401, "The token is missing or wrong.")
        number = request.headers.get("inflight-first", "")
        if not (number.isdecimal() and len(number) < 16):
            return refusal(400, "Inflight-First is to be the number of the first line.")
        try:
            *lines, rest = (await request.body()).split(b"\n")
        except ClientDisconnect:
            return refusal(400, "The body broke off.")
        if rest or not lines:
            return refusal(400, "The body is not made of whole lines.")
        header, *lines = (line + b"\n" for line in lines)
        try:
            wants = await asyncio.to_thread(collection.take, header, int(number), lines)
            return JSONResponse({"wants_snapshot": wants})
        except InvalidTrace as error:
            return refusal(400, str(error))
        except Full as error:
            return refusal(507, str(error))

    def _refuse(request: Request) -> None:
        whom, now = request.client.host if request.client else "", time.monotonic()
        if now - told.get(whom, -_AGAIN_S) >= _AGAIN_S:
            if len(told) > 256:
                told.clear()
            told[whom] = now
            tell(f"{whom or 'Somebody'} sends without the right token, and is refused.")

    return collect


def refusal(status: int, sentence: str) -> JSONResponse:
    """A refusal as JSON: {"error": …}."""
    return JSONResponse({"error": sentence}, status)
