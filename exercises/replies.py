"""What came back of a case, as plain data, and what is wrong with it, as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Odd(NamedTuple):
    """A value that is neither a number, a text, True, False or None, nor a list, tuple or dict of these."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


class Raised(NamedTuple):
    """line: of the learner's file, None where the exception did not pass through it. missing: the name that it lacks, if that is what was wrong. is_reading: while
    the file was read.
    """

    type: str
    why: str
    line: int | None
    missing: str | None
    is_reading: bool


class Reply(NamedTuple):
    """values: of each line that ran. printed: in each, and in the next if that raised. ended: why nothing more can be asked of this code, in a sentence, if so."""

    values: Sequence[Any] = ()
    raised: Raised | None = None
    printed: Sequence[str] = ()
    ended: Fault | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Reply:
        """From JSON, see `answers.py`; raises ValueError for what is none of it. It may be a stranger's."""
        try:
            raised = None if told["raised"] is None else Raised(**told["raised"])
            if raised is not None and not (
                isinstance(raised.type, str)
                and isinstance(raised.why, str)
                and isinstance(raised.line, int | None)
                and isinstance(raised.missing, str | None)
            ):
                raise ValueError("an exception that is none")
            return cls(
                [_decoded(value) for value in told["values"]],
                raised,
                list(map(str, told["printed"])),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None


Ask = Callable[[Sequence[str]], Reply]


@dataclass(frozen=True)
class Fault:
    """What is wrong, in a sentence whose {holes} are filled. at: the line of the case that shows it. expected: its right value, as Python writes it. line:
    of the learner's file.
    """

    says: str
    at: int = 0
    expected: str | None = None
    line: int | None = None
    holes: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.says.format(**self.holes)


def fault(says: str, at: int, expected: object = None, **holes: object) -> Fault:
    """See `Fault`; expected: a value, or text that is not to be quoted as an `Odd`."""
    return Fault(
        says,
        at,
        None if expected is None else repr(expected),
        holes={name: str(hole) for name, hole in holes.items()},
    )


def typed(value: object) -> str:
    """The name of a value's type."""
    return value.type if isinstance(value, Odd) else type(value).__name__


def named(value: object) -> str:
    """A value in a sentence: None, True, 3; of any other its type."""
    return repr(value) if value is None or isinstance(value, (bool, int)) else typed(value)


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _decoded(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    match value:
        case {"tuple": [*items]}:
            return tuple(_decoded(item) for item in items)
        case {"dict": [*pairs]}:
            return {_key(_decoded(key)): _decoded(item) for key, item in pairs}
        case {"is": str(name), "repr": str(text)}:
            return Odd(name, text)
    raise ValueError(f"{value!r} is no value")


def _key(key: Any) -> Any:
    """Of a dict; what is no text was no request's id."""
    return key if isinstance(key, (str, Odd)) else Odd(type(key).__name__, repr(key))
