"""Every refusal in OpenAI's shape, `{"error": {"message", "type", "param", "code"}}`, one sentence each, quoting nothing of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from core.errors import ExecutionFailed, InflightError, TooManyRequests, Unavailable

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(
    status: int, message: str, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    more = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(error_body(status, message, param, code), status, headers={**more, **(headers or {})})


def status_of(error: InflightError) -> int:
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, Unavailable):
        return 503
    return 500 if isinstance(error, ExecutionFailed) else 422


class UnknownModel(InflightError):
    """A model that this server does not serve."""


def add_handlers(app: FastAPI, refused: Callable[[int], None]) -> None:
    """Make `app` answer every failure this way. refused: called with each status."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, InflightError)
        if isinstance(error, UnknownModel):
            refused(404)
            return error_response(404, str(error), "model", "model_not_found")
        status = status_of(error)
        refused(status)
        again = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else None
        return error_response(status, str(error), headers=again)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        refused(422)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        message = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
        return error_response(422, f"{where}: {message}." if where else f"{message}.", where or None)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        refused(error.status_code)
        return error_response(error.status_code, str(error.detail).rstrip(".") + ".", headers=error.headers)

    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        refused(500)
        return error_response(500, "Something went wrong in the server.")

    app.add_exception_handler(InflightError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)
