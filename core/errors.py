"""Every refusal of the engine: one exception type, one clear sentence, raised before any state changes."""

from __future__ import annotations

import reprlib


def shown(value: object) -> str:
    """A value as an error message shows it, cut to a short length."""
    try:
        return reprlib.repr(value)
    except Exception:  # a number with thousands of digits, an object whose repr fails
        return f"a {type(value).__name__}"


def first_sentence(error: BaseException) -> str:
    """What went wrong, in one sentence without its full stop: exceptions of other libraries can be pages long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0][:300].rstrip(".: ")


class InflightError(Exception):
    """A request, workload, model, limit or trace that cannot be accepted; the message says why in one sentence."""


class InvalidRequest(InflightError, ValueError):
    """A request that could never run: its prompt, its sampling parameters or its length. request: its id, where it has one."""

    def __init__(self, message: str, request: str | None = None) -> None:
        super().__init__(message if request is None else f"Request {request}: {message}")
        self.message, self.request = message, request

    def called(self, name: str) -> InvalidRequest:
        """The same refusal under the name by which the reader knows the request."""
        return type(self)(self.message, name)


class InvalidConfig(InflightError, ValueError):
    """Limits or a policy that contradict each other."""


class PolicyFailed(InflightError):
    """A user's policy gave an answer that the scheduler cannot follow, or lets no request continue; the message names the policy."""


class InvalidWorkload(InflightError, ValueError):
    """A workload or workload file that is not valid."""


class InvalidTrace(InflightError, ValueError):
    """A trace that is truncated, reordered, altered or foreign; `line` is the 1-based line at fault."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class UnsupportedModel(InflightError):
    """A model that cannot be loaded, or whose attention cannot be packed without changing its results."""


class ExecutionFailed(InflightError):
    """A step that could not be computed: the device ran out of memory, or a kernel failed. Everything before it is recorded."""


class Unavailable(InflightError):
    """A server that accepts no requests at the moment: it is full, or closing. retry_after: seconds to wait before trying again."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyRequests(Unavailable):
    """The server already holds its maximum number of requests, in total or for this client."""
