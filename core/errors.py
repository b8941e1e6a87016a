"""All refusals of the engine: one exception type, one sentence, before any state changes."""

import re
import reprlib
from typing import Any, Self, TypeVar

T = TypeVar("T")


def shown(value: object) -> str:
    """A value as an error message shows it, cut to a short length."""
    try:
        return reprlib.repr(value)
    except Exception:  # a number with thousands of digits, an object whose repr fails
        return f"a {type(value).__name__}"


def shown_quoted(value: object) -> str:
    """A value's text, shortened, in the quotation marks that translations look for."""
    return f"“{shown(str(value))[1:-1]}”"


def first_sentence(error: BaseException) -> str:
    """The first sentence of an exception's text, which may be pages long; no full stop. torch puts
    a place in its own sources before it.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r"^\[enforce fail[^]]*\][^.]*\. ", "", text)
    return text.split(". ")[0][:300].rstrip(".:! ")


def malformed(error: Exception) -> str:
    """What is wrong with malformed data, without a full stop. error: raised by its reader."""
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
    """The value itself if it is of one of these kinds; otherwise raises InflightError. takes: the
    beginning of its sentence, which says what is expected.
    """
    if not isinstance(value, kinds):
        raise InflightError(f"{takes}, not {'None' if value is None else type(value).__name__}.")
    return value


class InvalidRequest(InflightError, ValueError):
    """A request that could never run: its prompt, its sampling parameters or its length is invalid.
    request: its id, if known. param: the field at fault, if it is a single one.
    """

    def __init__(
        self, message: str, request: str | None = None, *, param: str | None = None
    ) -> None:
        super().__init__(message if request is None else f"Request {request}: {message}")
        self.message, self.request, self.param = message, request, param

    def called(self, name: str) -> Self:
        """The same error with another name for the request."""
        return type(self)(self.message, name, param=self.param)

    def alone(self) -> Self:
        """The same error without the request's name, for a client that sent only one."""
        return type(self)(self.message[:1].upper() + self.message[1:], param=self.param)


class TooLong(InvalidRequest):
    """A request whose prompt and answer together have more tokens than the engine accepts."""


class InvalidConfig(InflightError, ValueError):
    """Limits or a policy that contradict each other."""


class PolicyFailed(InflightError):
    """A user's policy, which the message names, gave an unusable answer or let nothing run."""


class InvalidWorkload(InflightError, ValueError):
    """A workload or workload file that is not valid."""


class InvalidTrace(InflightError, ValueError):
    """A trace that is truncated, reordered, altered or of another program. line: the line at fault,
    counted from 1, if there is one. file: the file's name, if it was read from a file.
    """

    def __init__(self, message: str, line: int | None = None, file: str | None = None) -> None:
        where = ", ".join(([file] if file else []) + ([f"line {line}"] if line is not None else []))
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.line, self.file = message, line, file

    def in_file(self, name: str) -> Self:
        """The same error with the name of the file."""
        return self if self.file else type(self)(self.message, self.line, name)


class UnsupportedModel(InflightError):
    """A model that cannot be loaded, or not be packed without changing its results."""


class ExecutionFailed(InflightError):
    """A step could not be computed (out of memory, failed kernel); earlier ones are recorded."""


class Unavailable(InflightError):
    """A server that accepts no requests now: it is full, or closing. retry_after: seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyRequests(Unavailable):
    """The server already holds its maximum number of requests, in total or for this client."""
