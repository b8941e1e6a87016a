"""Every refusal of the engine: one exception type, one clear sentence, raised before any state
changes.
"""

from __future__ import annotations

import reprlib
from typing import Any, TypeVar

T = TypeVar("T")


def shown(value: object) -> str:
    """A value as an error message shows it, cut to a short length."""
    try:
        return reprlib.repr(value)
    except Exception:  # a number with thousands of digits, an object whose repr fails
        return f"a {type(value).__name__}"


def shown_quoted(value: object) -> str:
    """Its text in the quotation marks that translations know, cut to a short length."""
    return f"“{shown(str(value))[1:-1]}”"


def first_sentence(error: BaseException) -> str:
    """What went wrong, in one sentence without its full stop: exceptions can be pages long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0][:300].rstrip(".: ")


def malformed(error: Exception) -> str:
    """What is wrong with data on which a reader stumbled, without a full stop."""
    if isinstance(error, KeyError):
        return f"it has no {shown(error.args[0])}" if error.args else "something is missing in it"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, ValueError | OSError | EOFError | InflightError):
        return first_sentence(error)
    return f"a value is of the wrong kind ({first_sentence(error)})"


class InflightError(Exception):
    """A refusal of a request, workload, model, limit or trace, with the reason in one sentence."""


def require(value: T, kinds: Any, takes: str) -> T:
    """The value, where it is of one of these kinds; raises InflightError where it is not. takes:
    the start of that sentence, which says what is taken, and where one comes from.
    """
    if not isinstance(value, kinds):
        raise InflightError(f"{takes}, not {'None' if value is None else type(value).__name__}.")
    return value


class InvalidRequest(InflightError, ValueError):
    """A request that could never run: its prompt, its sampling parameters or its length. request:
    its id, where it has one. param: the field at fault, where it is one.
    """

    def __init__(
        self, message: str, request: str | None = None, *, param: str | None = None
    ) -> None:
        super().__init__(message if request is None else f"Request {request}: {message}")
        self.message, self.request, self.param = message, request, param

    def called(self, name: str) -> InvalidRequest:
        """The same refusal under the name by which the reader knows the request."""
        return type(self)(self.message, name, param=self.param)

    def alone(self) -> InvalidRequest:
        """The same refusal as a whole sentence, for a reader who asked for one request only."""
        return type(self)(self.message[:1].upper() + self.message[1:], param=self.param)


class TooLong(InvalidRequest):
    """A request whose prompt and answer have more tokens than are taken."""


class InvalidConfig(InflightError, ValueError):
    """Limits or a policy that contradict each other."""


class PolicyFailed(InflightError):
    """A user's policy, named in the message, cannot be followed, or lets nobody continue."""


class InvalidWorkload(InflightError, ValueError):
    """A workload or workload file that is not valid."""


class InvalidTrace(InflightError, ValueError):
    """A trace that is truncated, reordered, altered or foreign; `line` is the 1-based line at
    fault, and `file` the file's name, where it is one.
    """

    def __init__(self, message: str, line: int | None = None, file: str | None = None) -> None:
        where = ", ".join(([file] if file else []) + ([f"line {line}"] if line is not None else []))
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.line, self.file = message, line, file

    def in_file(self, name: str) -> InvalidTrace:
        """The same refusal of a file of that name."""
        return self if self.file else type(self)(self.message, self.line, name)


class UnsupportedModel(InflightError):
    """A model that cannot be loaded, or not be packed without changing its results."""


class ExecutionFailed(InflightError):
    """A step that could not be computed: the device ran out of memory, or a kernel failed.
    Everything before it is recorded.
    """


class Unavailable(InflightError):
    """A server that accepts no requests now: it is full, or closing. retry_after: seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyRequests(Unavailable):
    """The server already holds its maximum number of requests, in total or for this client."""
