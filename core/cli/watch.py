"""`watch`: follows an engine through the recording that it writes."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.output import print_json, print_line
from core.cli.report import STEP_COLUMNS, step_row
from core.errors import InflightError
from core.recorders.follow import Follower, RecordingBegun, Update
from core.trace.events import StepEvent
from core.trace.messages import english
from core.trace.phrases import letter

_PERIOD = 0.1  # seconds between two checks of the files: at most ten updates a second
_WIDTHS = (7, 8, 6, 11, 9)  # of the number columns


class _WatchedEngine:
    """A recording, and the state that its lines need. name: printed before each line, if any."""

    def __init__(self, place: Path, name: str) -> None:
        self.follower, self.name = Follower(place), name
        self._said = ""

    def poll(self) -> list[Update]:
        """The updates since the last call. Raises InflightError if it is no recording."""
        updates = self.follower.poll()
        if self.follower.is_refused:
            raise InflightError(self.follower.sentence)
        return updates

    def lines(self) -> list[str]:
        """Lines for the updates: the latest step, and how many came before it."""
        lines: list[str] = []
        rows: list[tuple[str, ...]] = []
        for update in self.poll():
            if isinstance(update, RecordingBegun):
                lines += [*_latest(rows), *self._begin(update)]
                rows = []
            elif isinstance(update, StepEvent):
                rows.append(self._row(update))
        lines += [*_latest(rows), *self._sentences()]
        return [self.name + text for text in lines]

    def objects(self) -> list[dict[str, Any]]:
        """The updates as plain data, with every step."""
        found: list[dict[str, Any]] = []
        for update in self.poll():
            if isinstance(update, RecordingBegun):
                found.append({"kind": "begun", "begun": update.header.to_json()})
            elif isinstance(update, StepEvent):
                found.append({"kind": "step", "step": update.to_json()})
        found += [{"kind": "says", "says": text} for text in self._sentences()]
        return [
            {"schema": "watch/1", "recording": str(self.follower.place), **one} for one in found
        ]

    def _sentences(self) -> list[str]:
        """The sentence on the state of the recording, if it has changed."""
        if self.follower.sentence == self._said:
            return []
        self._said = self.follower.sentence
        return [self._said] if self._said else []

    def _begin(self, begun: RecordingBegun) -> list[str]:
        self._letters: dict[str, str] = {}
        self._holders: dict[str, int] = {}
        self._arrived = 0
        header = begun.header
        self._lanes = header.config.max_num_seqs
        return [f"{header.engine}, {header.model.name}", *header.notes, _padded(STEP_COLUMNS)]

    def _row(self, event: StepEvent) -> tuple[str, ...]:
        if event.resumed is not None:
            carried = {c.request for c in event.resumed.carried}
            self._letters = {r: name for r, name in self._letters.items() if r in carried}
        for arrived in event.newcomers:
            self._letters[arrived.request] = letter(self._arrived)
            self._arrived += 1
        row = step_row(event, self._lanes, self._letters, self._holders)
        for finished in event.finished:
            if finished.request not in self._holders:
                del self._letters[finished.request]
        return row


def watch(
    raw: Annotated[
        list[Path],
        typer.Argument(
            help="Growing raw recordings, one per rank, or a folder: the newest in it.",
            show_default=False,
        ),
    ],
    json: Annotated[
        bool, typer.Option("--json", help="Print every step and sentence as a line of JSON.")
    ] = False,
) -> None:
    """Follow an engine that `inflight-vllm` records: print its latest step, at most ten times a
    second, until it ends or Ctrl-C.
    """
    for place in raw:
        if not Path(os.path.realpath(place)).parent.is_dir():  # a circle of links leads nowhere
            raise InflightError(f"There is no folder {place.parent}.")
    engines = [_WatchedEngine(place, f"{place.name}  " if len(raw) > 1 else "") for place in raw]
    while True:
        for engine in engines:
            if json:
                for found in engine.objects():
                    print_json(found)
            else:
                for text in engine.lines():
                    print_line(text)
        sys.stdout.flush()  # whoever reads a pipe is watching too
        if all(engine.follower.is_over for engine in engines):
            return
        if not any(engine.follower.has_more for engine in engines):
            time.sleep(_PERIOD)


def _latest(rows: list[tuple[str, ...]]) -> list[str]:
    more = [english(f"… {len(rows) - 1} more [step|steps]")] if len(rows) > 1 else []
    return more + [_padded(row) for row in rows[-1:]]


def _padded(row: tuple[str, ...]) -> str:
    numbers = "".join(cell.rjust(width) for cell, width in zip(row, _WIDTHS, strict=False))
    return f"{numbers}  {'  '.join(row[len(_WIDTHS) :])}".rstrip()
