"""Whether the values of an event are of the kinds that its records declare: a file may hold anything. Knows no run."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from core.trace.events import StepEvent

_PLAIN = (int, str, bool)  # a value of one of these kinds is no other's


def misshapen(event: StepEvent) -> str | None:
    """The first field whose values are of the wrong kind."""
    hints = _hints(StepEvent)
    return next((name for name in StepEvent._fields if not fits(getattr(event, name), hints[name])), None)


@cache
def _hints(record: type) -> dict[str, Any]:
    return get_type_hints(record)


@cache
def _anatomy(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@lru_cache(maxsize=1024)
def _unsettled(record: Any, kinds: tuple[type, ...]) -> tuple[tuple[int, Any], ...] | None:
    """Of a record whose fields are of these kinds, the places and hints that the kind alone does not settle; None if it cannot fit."""
    hints = tuple(_hints(record).values())
    if len(kinds) != len(hints):
        return None
    left = []
    for index, (kind, hint) in enumerate(zip(kinds, hints, strict=True)):
        parts = _anatomy(hint)[1] if _anatomy(hint)[0] in (Union, types.UnionType) else (hint,)
        if float in parts and kind is float:
            left.append((index, float))
        elif (kind in parts and kind in (*_PLAIN, types.NoneType)) or (float in parts and kind is int):
            continue
        elif all(part in (*_PLAIN, float, types.NoneType) for part in parts):
            return None
        else:
            left.append((index, hint))
    return tuple(left)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what the annotation says; a finite float, where a whole number counts as one."""
    if hint in _PLAIN:
        return type(value) is hint
    if hint is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    origin, parts = _anatomy(hint)
    if origin is tuple:
        return type(value) is tuple and _all_fit(value, parts[0])
    if origin is Mapping:
        return type(value) is dict and all([parts[1] is Any or fits(v, parts[1]) for v in value.values()])
    if origin is Literal:
        return type(value) is str and value in parts
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if hint is types.NoneType:
        return value is None
    if type(value) is not hint:
        return False
    return _all_fit((value,), hint)


def _all_fit(values: tuple[Any, ...], hint: Any) -> bool:
    """The same of each value: records of the same kinds of fields are looked at once."""
    if not hasattr(hint, "_fields"):
        return all([fits(v, hint) for v in values])
    if any(type(v) is not hint for v in values):
        return False
    groups: dict[tuple[type, ...], list[Any]] = {}
    for v in values:
        groups.setdefault(tuple(map(type, v)), []).append(v)
    for kinds, members in groups.items():
        unsettled = _unsettled(hint, kinds)
        if unsettled is None:
            return False
        for index, part in unsettled:
            column = [v[index] for v in members]
            if not (all(map(math.isfinite, column)) if part is float else all([fits(v, part) for v in column])):
                return False
    return True
