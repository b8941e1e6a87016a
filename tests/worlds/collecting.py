"""`python -m inflight collect` in a process of its own, and recordings that are sent to it."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.recorders.vllm.inflight_vllm.sender import Sender
from core.recorders.vllm.inflight_vllm.writer import RawWriter

HEADER = {
    "kind": "header",
    "raw": 1,
    "engine": "vllm",
    "version": "0.32.0",
    "tested": True,
    "model": "m",
    "host": "here",
    "pid": 1,
    "created": "2026-11-22T17:05:01+00:00",
    "rank": 0,
    "ranks": 1,
}


class Collector:
    """One that runs. lines: what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, []
        self._changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.url = re.search(r"'(http://.*)'", self.wait_for(lambda line: "Start engines" in line))[
            1
        ]

    def wait_for(self, is_it: Callable[[str], bool]) -> str:
        """The first line that is it, as soon as it is printed."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(map(is_it, self.lines)) or self._is_over, 60
            ), self.lines
        return next(line for line in self.lines if is_it(line))

    _is_over = False

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


@contextmanager
def collecting(folder: Path, *arguments: str, **more: object) -> Iterator[Collector]:
    """Until the block is left. arguments: more of the command's. more: of the process."""
    command = [sys.executable, "-u", "-m", "core", "collect", "--out", str(folder), *arguments]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    ) as process:
        collector = None
        try:
            collector = Collector(process)
            yield collector
        finally:
            process.kill()
            if collector is not None:
                collector.reader.join()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def step(number: int, **more: object) -> dict:
    return {
        "kind": "step",
        "step": number,
        "t_start": float(number),
        "segments": [],
        "arrived": [],
        **more,
    }


def sending(url: str, queued: int = 4096, **header: object) -> RawWriter:
    """A recorder's writer that sends there."""
    return RawWriter(Sender(url, {**HEADER, **header}), queued)


def put(writer: RawWriter, numbers: range) -> None:
    for number in numbers:
        writer.put(lambda number=number: step(number))


@contextmanager
def sending_again(source: Path, url: str, **header: object) -> Iterator[RawWriter]:
    """A recorded run, sent again by an engine of its own; it ends with the block. header: what is
    different about this engine.
    """
    first, *records = (
        json.loads(line) for line in gzip.decompress(source.read_bytes()).splitlines()
    )
    writer = RawWriter(Sender(url, {**first, "created": f"{time.time()}", **header}))
    for record in records:
        if record["kind"] != "end":
            writer.put(lambda record=record: record)
    yield writer
    writer.close()
