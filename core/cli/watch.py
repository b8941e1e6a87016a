"""`watch`: an engine at work, from the recording that it writes meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from core.cli.output import line, sentence
from core.cli.report import STEP_COLUMNS, step_row
from core.recorders.follow import Follower
from core.trace.events import StepEvent
from core.trace.phrases import letter

_PERIOD = 0.1  # seconds between two looks at the files: at most ten updates a second
_WIDTHS = (7, 8, 6, 11, 9)  # of the numbers


class _Engine:
    """One recording and what its lines need. name: before each line, where several are watched."""

    def __init__(self, path: Path, name: str) -> None:
        self.follower, self.name = Follower(path), name
        self._letters: dict[str, str] = {}
        self._holders: dict[str, int] = {}
        self._arrived = 0

    def lines(self) -> list[str]:
        """What has happened since the last call: the latest step, and how many came before it."""
        met = self.follower.header is not None
        events = self.follower.events()
        header, lines = self.follower.header, []
        if header is not None and not met:
            lines.append(f"{self.name}{header.get('engine', 'vllm')} {header.get('version')}, {header.get('model')}")
            lines.append(self.name + _padded(STEP_COLUMNS))
        rows = [self._row(event) for event in events]
        if len(rows) > 1:
            lines.append(f"{self.name}… {len(rows) - 1} more step{'' if len(rows) == 2 else 's'}")
        return lines + [self.name + _padded(row) for row in rows[-1:]]

    def _row(self, event: StepEvent) -> tuple[str, ...]:
        for arrived in event.arrived:
            self._letters[arrived.request] = letter(self._arrived)
            self._arrived += 1
        assert self.follower.header is not None
        row = step_row(event, self.follower.header["max_num_seqs"], self._letters, self._holders)
        for finished in event.finished:
            if finished.request not in self._holders:
                del self._letters[finished.request]
        return row


def watch(
    raw: Annotated[list[Path], typer.Argument(help="Growing raw recordings, one a rank.", show_default=False)],
) -> None:
    """Follow an engine that `inflight-vllm` records: its latest step, at most ten times a second, until it ends or Ctrl-C."""
    engines = [_Engine(path, f"{path.name}  " if len(raw) > 1 else "") for path in raw]
    if missing := [path.name for path in raw if not path.exists()]:
        sentence(f"Waiting for {', '.join(missing)}.")
    while not all(engine.follower.is_over for engine in engines):
        for engine in engines:
            for text in engine.lines():
                line(text)
        time.sleep(_PERIOD)


def _padded(row: tuple[str, ...]) -> str:
    numbers = "".join(cell.rjust(width) for cell, width in zip(row, _WIDTHS, strict=False))
    return f"{numbers}  {'  '.join(row[len(_WIDTHS) :])}".rstrip()
