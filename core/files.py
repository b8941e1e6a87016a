"""Files that are written atomically: the old file stays until the new content is complete; and JSON
that every parser reads alike.
"""

import errno
import gzip
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TextIO, cast

from core.errors import InflightError, require, shown


def path_of(path: str | os.PathLike[str]) -> Path:
    """The path that a caller gave. Raises InflightError if it is none, or an impossible name."""
    at = Path(require(path, (str, os.PathLike), "A file is given by its path"))
    with suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(at):
            return at
    raise InflightError(f"No file can be named {shown(str(at))}.")


@contextmanager
def written(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a text file (UTF-8, lines end with LF) that replaces `path` when the block ends without
    an exception; otherwise it is removed.

    A symbolic link is kept, and its target is replaced. A pipe or a device is written to directly.
    A file whose name ends with .gz is compressed. Raises InflightError if that fails.
    """
    at = path_of(path)
    with _named(path):
        if _is_special(at):
            # opened anew by its name, a file behind it would be emptied
            stream = {"/dev/stdout": 1, "/dev/stderr": 2}.get(str(at))
            to = at if stream is None else os.dup(stream)
            with open(to, "w", encoding="utf-8", newline="\n") as out:
                yield out
            return
        place = _place(at)
        partial = _partial(place)
        try:
            with _opened(partial, place.suffix == ".gz") as out:
                if place.exists():
                    shutil.copymode(place, partial)
                yield out
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)


def _opened(partial: Path, compressed: bool) -> TextIO:
    if compressed:
        return cast(
            TextIO, gzip.open(partial, "wt", compresslevel=6, encoding="utf-8", newline="\n")
        )
    return partial.open("w", encoding="utf-8", newline="\n")


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading. Raises OSError for anything but a regular file, because opening a
    pipe would wait for a writer; standard streams under their names in /dev are allowed.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        if not Path(path).is_relative_to("/dev"):
            file.close()
            raise OSError(errno.EINVAL, "It is not a regular file", os.fspath(path))
        os.set_blocking(file.fileno(), True)
    return file


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def require_file(path: Path) -> Path:
    """The path itself; raises InflightError if no regular file is there."""
    if path.is_file():
        return path
    if not path.exists():
        raise InflightError(f"There is no file {path}.")
    raise InflightError(f"{path} is {'a folder' if path.is_dir() else 'not a regular file'}.")


def save_json(path: str | os.PathLike[str], data: object) -> None:
    """Write data as JSON, see `written`. Raises InflightError if it cannot be written."""
    text = json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False)
    with written(path) as out:
        out.write(text + "\n")


def require_writable(*paths: Path | None, read: Iterable[Path] = ()) -> None:
    """Raises InflightError, before anything runs, for a path that cannot be written, for two paths
    of one file, and for a path that is among those to be read.
    """
    places = set[Path]()
    for path in filter(None, paths):
        if path == Path("-"):
            raise InflightError(
                "- cannot be written: name a file, or /dev/stdout for standard output."
            )
        with _named(path):
            if _is_special(path):
                if not os.access(path, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                continue
            place = _place(path)
            if place.is_dir():
                raise InflightError(f"{path} cannot be written: it is a folder.")
            if not place.parent.is_dir():
                folder = place.parent if path.is_symlink() else path.parent
                raise InflightError(f"{path} cannot be written: there is no folder {folder}.")
            if place in places:
                raise InflightError(
                    f"{path} cannot be written twice: give each result a file of its own."
                )
            places.add(place)
            if place in map(_place, read):
                raise InflightError(f"{path} cannot be written: it is what is read.")
            if place.exists() and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            try:
                with (partial := _partial(place)).open("w") as probe:
                    probe.write("\n")  # a full disk takes an empty file
            finally:
                partial.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether no new file can replace this one: a pipe, a device, or a stream in /dev."""
    return (
        path.exists() and not path.is_dir() and (not path.is_file() or path.is_relative_to("/dev"))
    )


def _place(path: Path) -> Path:
    """Where a path leads once its links are followed. Raises OSError for circular links."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _partial(place: Path) -> Path:
    """The file beside `place` that is written first and then moved there. Its name has the process
    id, so two processes never write to the same one.
    """
    # 255 bytes are the most of a name, and a character has up to four
    name = place.name if len(os.fsencode(place.name)) <= 230 else place.name[-57:]
    return place.with_name(f"{name}.{os.getpid()}.partial")


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError about this file into one sentence that names it."""
    ours = {None, os.fspath(path)}
    with suppress(OSError, ValueError):  # the root has no name
        ours |= {str(_place(Path(path))), str(_partial(_place(Path(path))))}
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE or error.filename not in ours:
            raise  # not of this file
        raise InflightError(
            f"{os.fspath(path)} cannot be written: {error.strerror or error}."
        ) from None


class AmbiguousJson(ValueError):
    """JSON that another parser might read differently."""


def read_json(text: str) -> Any:
    """The data in a JSON text. Raises AmbiguousJson for a key that stands twice in one object and
    for a number that JSON or 64 bits cannot hold, ValueError or RecursionError for other faults.
    """
    return (_CAREFUL if _LONG.search(text) else _JSON).decode(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise AmbiguousJson(f"the key {shown(twice)} stands twice in one object")
    return data


def no_number(name: str) -> float:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise AmbiguousJson(f"{name} is no number in JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise _too_large(digits)
    return number


def _count(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= (count := int(digits)) < 2**64:
        raise _too_large(digits)
    return count


def _too_large(digits: str) -> AmbiguousJson:
    return AmbiguousJson(f"{digits[:20]}{'…' * (len(digits) > 20)} has more than 64 bits")


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=no_number)
# only in a text that matches is each number examined, which takes time
_LONG = re.compile(r"\d(?:\d{18}|[eE]\+?\d{3})")
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=no_number, parse_int=_count, parse_float=_finite
)
