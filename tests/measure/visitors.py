"""`python tests/measure/visitors.py`: a class at the door. So many visitors come within a few
seconds, each opens the page and runs a small preset; a table of what they saw.

It asks a page that is running already, over HTTP alone, as browsers do: the page and what it links
to, the recorded run, what there is to run, then a run and its stream. None of them is a browser, so
their picture counts as shown once its data have arrived; on request, one real browser among them is
timed until it has drawn. All come from one address; the page limits nobody by address, addresses
only take turns. Knows nothing of how the page is made.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import typer

from core.cli.output import print_line
from core.errors import InflightError
from measure import script

PRESET = "nanogpt-chunked-4"
TIMEOUT = 600.0
_AT_ONCE = 6  # connections that a browser opens to one host
_LINKS = re.compile(r'(?:src|href)="(?:\./|/)?((?:assets|static|inflight)/[^"]+)"')


@dataclass(frozen=True)
class Visit:
    """What one visitor saw, in seconds from arrival. place: the first place in line that was shown,
    0 where there was none. refused: the server's sentence, "" for one who was served.
    """

    picture: float
    place: int
    first_step: float
    end: float
    refused: str


@dataclass(frozen=True)
class Row:
    """One class. p95s are over those who were served. browser: seconds until a real one among them
    had drawn. refusals: each once.
    """

    visitors: int
    served: int
    in_line: int
    picture_p95: float
    first_step_p95: float
    end_p95: float
    browser: float | None
    refusals: tuple[str, ...]

    def line(self) -> str:
        times = "".join(
            f"{value:>14.1f} s" for value in (self.picture_p95, self.first_step_p95, self.end_p95)
        )
        drawn = "–" if self.browser is None else f"{self.browser:.1f} s"
        return "\n".join(
            (
                f"{self.visitors:>8}{self.served:>8}{self.in_line:>9}{times}{drawn:>12}",
                *self.refusals,
            )
        )


HEADING = f"{'visitors':>8}{'served':>8}{'in line':>9}{'picture p95':>16}{'first step p95':>16}{'end p95':>16}{'browser':>12}"  # noqa: E501


def measure(url: str, visitors: int, within: float = 10.0, browser: bool = False) -> Row:
    """What a class of visitors sees. url: the page's. within: seconds in which all of them come.
    Raises InflightError.
    """
    try:
        return asyncio.run(_class(url.rstrip("/"), visitors, within, browser))
    except httpx.HTTPError as error:
        raise InflightError(f"No page answers at {url}: {error}.") from None


async def _class(url: str, visitors: int, within: float, browser: bool) -> Row:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT, limits=limits) as http:
        state = await _state(http, url)
        spec = next(preset["spec"] for preset in state["presets"] if preset["name"] == PRESET)
        front = (await http.get(f"{url}/")).raise_for_status().text
        links = [state["catalogue"][0]["url"], *dict.fromkeys(_LINKS.findall(front))]
        draw = random.Random(0)
        watching = asyncio.create_task(_drawn(url, within / 2)) if browser else None
        visits = await asyncio.gather(
            *(
                _visit(http, url, links, spec, secrets.token_hex(8), draw.uniform(0, within))
                for _ in range(visitors)
            )
        )
        drawn = await watching if watching else None
    return row_of(visits, drawn)


def row_of(visits: Sequence[Visit], drawn: float | None) -> Row:
    """drawn: the seconds of a real browser among them. Whoever was refused has no times."""
    served = [visit for visit in visits if not visit.refused]
    return Row(
        len(visits),
        len(served),
        sum(visit.place > 0 for visit in served),
        _p95([visit.picture for visit in served]),
        _p95([visit.first_step for visit in served]),
        _p95([visit.end for visit in served]),
        drawn,
        tuple(dict.fromkeys(visit.refused for visit in visits if visit.refused)),
    )


async def _state(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    return (await http.get(f"{url}/inflight/state")).raise_for_status().json()


async def _visit(
    http: httpx.AsyncClient,
    url: str,
    links: Sequence[str],
    spec: dict[str, Any],
    visitor: str,
    after: float,
) -> Visit:
    await asyncio.sleep(after)
    came = time.monotonic()
    await http.get(f"{url}/")
    for start in range(0, len(links), _AT_ONCE):
        await asyncio.gather(
            *(http.get(f"{url}/{link}") for link in links[start : start + _AT_ONCE])
        )
    seen = time.monotonic() - came
    await _state(http, url)
    begun = (
        await http.post(
            f"{url}/inflight/jobs", json={"kind": "run", "spec": spec, "visitor": visitor}
        )
    ).json()
    if "error" in begun:
        return Visit(seen, 0, 0.0, 0.0, begun["error"])
    place, first, last = 0, 0.0, dict[str, Any]()
    async with http.stream("GET", f"{url}/inflight/jobs/{begun['job']}") as deltas:
        async for line in deltas.aiter_lines():
            if line.startswith("data: "):
                for last in json.loads(line[6:]):
                    place = place or last.get("progress", {}).get("ahead", 0)
                    if last.get("events") and not first:
                        first = time.monotonic() - came
    refused = (
        ""
        if last.get("url")
        else str(last.get("error") or last.get("stopped") or "The stream broke off.")
    )
    return Visit(seen, place, first, time.monotonic() - came, refused)


async def _drawn(url: str, after: float) -> float:
    """Seconds until a real browser, come in the middle of the class, has drawn the recorded run."""
    async with chromium() as browser:
        await asyncio.sleep(after)
        page, came = await browser.new_page(), time.monotonic()
        await page.goto(url, wait_until="commit", timeout=1000 * TIMEOUT)
        await page.wait_for_function(
            "() => window.inflight && inflight.run", timeout=1000 * TIMEOUT
        )
        return time.monotonic() - came


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A real browser; raises InflightError where none can be driven."""
    try:
        from playwright.async_api import async_playwright

        from worlds.browser import executable
    except ImportError:
        raise InflightError(
            "A browser is driven by Playwright: pip install -r requirements-test.txt."
        ) from None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable(), args=["--no-sandbox", "--no-proxy-server"]
        )
        yield browser
        await browser.close()


def _p95(values: Sequence[float]) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def visitors(
    url: Annotated[
        str, typer.Argument(help="The page that is measured; it runs already.")
    ] = "http://127.0.0.1:7860",
    visitors: Annotated[
        list[int] | None,
        typer.Option(min=1, help="How many come; may be given again.", show_default="30, 100, 200"),
    ] = None,
    within: Annotated[
        float, typer.Option(min=0.0, help="Seconds within which all of them come.")
    ] = 10.0,
    browser: Annotated[
        bool,
        typer.Option("--browser", help="One real Chromium among them, timed until it has drawn."),
    ] = False,
) -> None:
    """Let a class of visitors open the page and run a small preset; print what they waited for."""
    print_line(HEADING)
    for number in visitors or (30, 100, 200):
        print_line(measure(url, number, within, browser).line())


if __name__ == "__main__":
    script(visitors)
