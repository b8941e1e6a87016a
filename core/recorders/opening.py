"""Opens files of several kinds together: saved traces of ours and other engines' raw recordings, by what is in them. One that cannot be opened is
told of, and the others open.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from core.errors import InflightError
from core.recorders.convert import ruled
from core.recorders.raw import gathered, is_raw
from core.trace.trace import Trace


@dataclass(frozen=True)
class Opened:
    """traces: each with its file's name. refused: a sentence for each of the files that cannot be opened."""

    traces: tuple[tuple[str, Trace], ...]
    refused: tuple[str, ...] = ()


def those_that_open(openings: Iterable[tuple[str, Callable[[], Trace]]]) -> Opened:
    """What comes of several files, by their names. Raises the first one's error where none can be opened."""
    traces: list[tuple[str, Trace]] = []
    errors: list[tuple[str, InflightError]] = []
    for name, opening in openings:
        try:
            traces.append((name, opening()))
        except InflightError as error:
            errors.append((name, error))
    if errors and not traces:
        raise errors[0][1]
    return Opened(tuple(traces), tuple(f"{name} cannot be opened: {error}" for name, error in errors))


def open_texts(files: Iterable[tuple[str, str]]) -> Opened:
    """The traces of some files, given as name and text: each a saved trace of ours or another engine's raw recording, by what is in it. The parts
    of a recording are one trace. Raises InflightError where none can be opened, and InvalidTrace for two recordings of one rank.
    """
    raw: list[tuple[str, Iterable[str]]] = []
    openings: list[tuple[str, Callable[[], Trace]]] = []
    for name, text in files:
        if is_raw(text.partition("\n")[0]):
            raw.append((name, io.StringIO(text)))
        else:
            openings.append((name, partial(Trace.from_lines, text.removesuffix("\n").split("\n"))))
    recordings = gathered(raw) if raw else []
    return those_that_open(openings + [(recording.name, partial(ruled, recording)) for recording in recordings])
