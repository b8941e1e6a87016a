"""The calls of a page that wait for an answer: their names and arguments, the same for a server and
for an engine in the browser tab.

Invalid calls are refused here, so that an error repeats at most a few dozen characters of input.
"""

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any

from core.errors import shown
from visualizer.jobs.limits import Refused

_MOST = 2**53  # JavaScript has no exact integers beyond this
_OR_NONE = int | float | None

CALLS: Mapping[str, tuple[type | UnionType, ...]] = {
    "state": (),
    "comparisons": (),
    "model": (dict,),  # {"model", "device", "dtype"}
    "lessons": (str,),  # language
    "lesson_file": (str, str, str),  # lesson, kind, language
    "lesson_check": (str, str, str),  # lesson, run, language
    "open_comparison": (str,),  # its name
    "export": (str, str, int | None),  # kind, run, step
    "export_ranks": (str, int | None, int | None, _OR_NONE),  # run, step, rank, moment
    "attention": (str, int, int, int, int),  # run, step, pass, layer, head
    "upload": (str, list),  # text, names of the files in it
    "dataset": (str, str, str),  # text, name, model
}
"""The types of each call's arguments; trailing ones that may be None may be left out."""


def answered(
    functions: Mapping[str, Callable[..., dict[str, Any]]], name: str, args: object
) -> dict[str, Any]:
    """The answer of a function by name; raises Refused for unknown names and wrong arguments."""
    kinds = CALLS.get(name)
    if kinds is None or name not in functions:
        raise Refused(f"There is nothing called {shown(name)} to ask for here.")
    return functions[name](*_checked(name, kinds, args))


def _checked(name: str, kinds: Sequence[type | UnionType], args: object) -> list[Any]:
    given = list(args) if isinstance(args, (list, tuple)) else [None] * (len(kinds) + 1)
    given += [None] * (len(kinds) - len(given))
    if len(given) > len(kinds) or not all(map(_is, given, kinds)):
        wanted = ", ".join(kind.__name__ if isinstance(kind, type) else str(kind) for kind in kinds)
        raise Refused(f"A call of {name} is given ({wanted}).")
    return given


def _is(value: object, kind: type | UnionType) -> bool:
    if isinstance(value, bool) or (isinstance(value, (int, float)) and not abs(value) < _MOST):
        return False
    return isinstance(value, kind)
