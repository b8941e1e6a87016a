"""What the annotations of a record determine: its shape in a file, how plain JSON becomes the
record again, and whether a value has the declared type. A record is a named tuple; in JSON it is an
array in field order, and optional fields come last.
"""

import math
import types
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN = (int, str, bool)  # a value of exactly one of these types fits no other


def misshapen(record: tuple[Any, ...]) -> str | None:
    """The name of the first field that has a value of the wrong type, or None."""
    hints = fields_of(type(record))
    return next(
        (name for name, hint in hints.items() if not fits(getattr(record, name), hint)), None
    )


@cache
def fields_of(record: type) -> dict[str, Any]:
    """The annotations of a record by field, in order."""
    return get_type_hints(record)


@cache
def reader(hint: Any) -> Callable[[Any], Any] | None:
    """The function that turns plain JSON into a value of this annotation; None where none is
    needed. It raises TypeError, ValueError or KeyError for data of another shape; `fits` says
    whether single values have the right type.
    """
    origin, parts = _anatomy(hint)
    if origin in (Union, types.UnionType):
        read = next((read for part in parts if (read := reader(part)) is not None), None)
        return None if read is None else lambda data: None if data is None else read(data)
    if origin is tuple:
        each = reader(parts[0])
        return _row if each is None else lambda rows: tuple(map(each, _row(rows)))
    if not hasattr(hint, "_fields"):
        return None
    nested = [
        (index, read)
        for index, part in enumerate(fields_of(hint).values())
        if (read := reader(part)) is not None
    ]
    if not nested:
        return lambda row: hint(*_row(row))
    return lambda row: hint(*_read(list(_row(row)), nested))


def _row(data: Any) -> tuple[Any, ...]:
    """The values of an array; an object or a text could be unpacked, too."""
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"{type(data).__name__} in place of a list")
    return tuple(data)


def _read(values: list[Any], nested: list[tuple[int, Callable[[Any], Any]]]) -> list[Any]:
    for index, read in nested:
        if index < len(values):
            values[index] = read(values[index])
    return values


def from_object(record: Any, data: Mapping[str, Any]) -> Any:
    """A record from a JSON object; raises TypeError, ValueError or KeyError for other data."""
    readers = _readers(record)
    values = {
        name: value if (read := readers[name]) is None else read(value)
        for name, value in data.items()
    }
    return record(**values)


@cache
def _readers(record: type) -> dict[str, Callable[[Any], Any] | None]:
    return {name: reader(hint) for name, hint in fields_of(record).items()}


def table(record: Any) -> dict[str, dict[str, Any]]:
    """The fields of a record and of all records in it, by record name and in order. For each field:
    the name of the record that it holds, in a list if it holds several; for plain data `{"default":
    value}` if the field may be left out, else None. With this table a reader finds fields in
    arrays.
    """
    found: dict[str, dict[str, Any]] = {record.__name__: {}}
    for name, hint in fields_of(record).items():
        origin, parts = _anatomy(hint)
        inner = next((part for part in (*parts, hint) if hasattr(part, "_fields")), None)
        if inner is not None:
            found[record.__name__][name] = [inner.__name__] if origin is tuple else inner.__name__
            found |= table(inner)
        else:
            defaults = record._field_defaults
            found[record.__name__][name] = {"default": defaults[name]} if name in defaults else None
    return found


@cache
def _anatomy(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@lru_cache(maxsize=1024)
def _unsettled(record: Any, kinds: tuple[type, ...]) -> tuple[tuple[int, Any], ...] | None:
    """The positions and annotations of the fields that still have to be examined, given the types
    of all fields; None if those types cannot fit.
    """
    hints = tuple(fields_of(record).values())
    if len(kinds) != len(hints):
        return None
    left = []
    for index, (kind, hint) in enumerate(zip(kinds, hints, strict=True)):
        parts = _anatomy(hint)[1] if _anatomy(hint)[0] in (Union, types.UnionType) else (hint,)
        if float in parts and kind is float:
            left.append((index, float))
        elif (kind in parts and kind in (*_PLAIN, types.NoneType)) or (
            float in parts and kind is int
        ):
            continue
        elif all(part in (*_PLAIN, float, types.NoneType) for part in parts):
            return None
        else:
            left.append((index, hint))
    return tuple(left)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits the annotation; floats are finite, and whole numbers are floats."""
    if hint in _PLAIN:
        return type(value) is hint
    if hint is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    origin, parts = _anatomy(hint)
    if origin is tuple:
        return type(value) is tuple and _all_fit(value, parts[0])
    if origin is Mapping:
        return type(value) is dict and all(
            [parts[1] is Any or fits(v, parts[1]) for v in value.values()]
        )
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
    """Whether all values fit the annotation; records with the same types go together."""
    if not hasattr(hint, "_fields"):
        return all([fits(v, hint) for v in values])
    groups: dict[tuple[type, ...], list[Any]] = {}
    for v in values:
        groups.setdefault(tuple(map(type, v)), []).append(v)
    for kinds, members in groups.items():
        unsettled = _unsettled(hint, kinds)
        if unsettled is None:
            return False
        for index, part in unsettled:
            column = [v[index] for v in members]
            if not (
                all(map(math.isfinite, column))
                if part is float
                else all([fits(v, part) for v in column])
            ):
                return False
    return True
