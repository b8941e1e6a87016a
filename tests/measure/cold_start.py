"""`python tests/measure/cold_start.py`: a page that has not been started yet. A process of its own is started and a browser, open already, asks it as soon as it
listens; what one waits for is counted from the start of that process.

The page is this installation's.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.cli.output import print_line
from core.config import ASSETS
from core.errors import InflightError
from measure import script
from measure.visitors import chromium

LONGEST = 120.0  # seconds
_PAINT = """() => { const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return paint && performance.timeOrigin + paint.startTime; }"""
_PICTURE = "() => window.inflight && inflight.run && performance.timeOrigin + performance.now()"


@dataclass(frozen=True)
class ColdStart:
    """Seconds from the start of the process. paint: until something can be seen. picture: until the first recorded run is drawn."""

    listening: float
    paint: float
    picture: float

    def line(self) -> str:
        return "".join(f"{value:>14.1f} s" for value in (self.listening, self.paint, self.picture))


HEADING = "".join(f"{name:>16}" for name in ("listening", "first paint", "first picture"))


def measure() -> ColdStart:
    """One start of the page and one visit; raises InflightError where it does not start, or no browser can be driven."""
    return asyncio.run(_visit())


async def _visit() -> ColdStart:
    async with chromium() as browser:
        visitor = await browser.new_page()
        with _page() as (process, port):
            started = time.time()
            await asyncio.to_thread(_until_it_listens, process, port)
            listening = time.time() - started
            await visitor.goto(f"http://127.0.0.1:{port}", wait_until="commit", timeout=1000 * LONGEST)
            moments = []
            for shown in (_PAINT, _PICTURE):
                found = await visitor.wait_for_function(shown, polling="raf", timeout=1000 * LONGEST)
                moments.append(await found.json_value() / 1000 - started)
    return ColdStart(listening, *moments)


@contextmanager
def _page() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A page that has just been started, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "app", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ASSETS.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process, port
    finally:
        process.terminate()
        process.communicate()


def _until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None:
                raise InflightError(f"The page does not start; it ended with {process.returncode}.") from None
            time.sleep(0.01)
    raise InflightError(f"The page does not listen after {LONGEST:.0f} seconds.")


def cold_start() -> None:
    """Start a page and time what its first visitor, a real Chromium, waits for."""
    print_line(HEADING)
    print_line(measure().line())


if __name__ == "__main__":
    script(cold_start)
