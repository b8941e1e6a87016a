"""Errors in OpenAI's form, `{"error": {"message", "type", "param", "code"}}`: one sentence each,
which quotes nothing of a prompt.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from core.errors import (
    ExecutionFailed,
    InflightError,
    InvalidRequest,
    TooLong,
    TooManyRequests,
    Unavailable,
)
from core.serving.http.schemas import OF_FIELD

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's form. param: the field at fault. code: for programs."""
    return {
        "error": {
            "message": message,
            "type": _TYPES.get(status, "invalid_request_error"),
            "param": param,
            "code": code or _CODES.get(status),
        }
    }


def error_response(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The same as a response with this status."""
    more = {"www-authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(
        error_body(status, message, param, code), status, headers={**more, **(headers or {})}
    )


def status_of(error: InflightError) -> int:
    """The HTTP status of an error: 429 full, 503 closing, 500 failed step, otherwise 400."""
    if isinstance(error, TooManyRequests):
        return 429
    if isinstance(error, Unavailable):
        return 503
    return 500 if isinstance(error, ExecutionFailed) else 400


class UnknownModel(InflightError):
    """A model that this server does not serve."""


def add_handlers(app: FastAPI, refused: Callable[[int], None]) -> None:
    """Make `app` answer every failure in this form. refused: called with each status."""

    async def ours(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, InflightError)
        if isinstance(error, UnknownModel):
            refused(404)
            return error_response(404, str(error), "model", "model_not_found")
        status = status_of(error)
        refused(status)
        again = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else None
        param = error.param if isinstance(error, InvalidRequest) else None
        code = "context_length_exceeded" if isinstance(error, TooLong) else None
        return error_response(status, str(error), param, code, again)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        refused(400)
        first = error.errors()[0]
        _, *path = first["loc"]  # the first says where it was: in the body, the query, a header
        name = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
        ).removeprefix(".")
        param = name if len(name) <= _LONGEST_NAME and name.isprintable() else ""
        return error_response(
            400, f"{param or ('A field' if path else 'The body')} {_fault(first)}.", param or None
        )

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        refused(error.status_code)
        said = str(error.detail)
        if said == "Not Found":  # the router's word, as the next one
            said = "There is no such address here; openapi.json lists those that there are"
        elif said == "Method Not Allowed":
            takes = (error.headers or {}).get("Allow", "another method")
            said = f"This address takes {takes}, not {request.method}"
        return error_response(error.status_code, said.rstrip(".") + ".", headers=error.headers)

    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        refused(500)
        # uvicorn closes the connection
        return error_response(
            500, "Something went wrong in the server.", headers={"connection": "close"}
        )

    app.add_exception_handler(InflightError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


_LONGEST_NAME = 100  # characters of a field's name that are worth repeating
_MUST_BE = {
    "string": "a text",
    "int": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "model_attributes": "an object",
}
_SHOULD = re.compile(r"^(?:Input|String|List|Dictionary) should | after validation.*")


def _fault(error: Mapping[str, Any]) -> str:
    """What is wrong with a field, as the rest of a sentence. error: one of pydantic's."""
    kind, says = error["type"], error["msg"]
    if kind == OF_FIELD:
        return str(says)
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is not supported here: leave it out"
    must_be = _MUST_BE.get(kind.removesuffix("_type"))
    return "must " + (f"be {must_be}" if must_be else _SHOULD.sub("", says))
