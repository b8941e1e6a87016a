"""`load-test`: a class at the door. So many visitors come within a few seconds, each opens the page and runs a small preset; a table of what they saw.

It asks a page that is running already, over HTTP alone, as browsers do. Knows nothing of how the page is made.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from core.errors import InflightError

PRESET = "nanogpt-chunked-4"
TIMEOUT = 600.0


@dataclass(frozen=True)
class Visit:
    """What one visitor saw, in seconds from the moment of coming. refused: the server's sentence, "" for one who was served."""

    picture: float
    first_step: float
    end: float
    refused: str


@dataclass(frozen=True)
class Row:
    """One class. p95s are over those who were served."""

    visitors: int
    served: int
    picture_p95: float
    first_step_p95: float
    end_p95: float

    def line(self) -> str:
        times = "".join(f"{value:>14.1f} s" for value in (self.picture_p95, self.first_step_p95, self.end_p95))
        return f"{self.visitors:>8}{self.served:>8}{times}"


HEADING = f"{'visitors':>8}{'served':>8}{'picture p95':>16}{'first step p95':>16}{'end p95':>16}"


def measure(url: str, visitors: int, within: float = 10.0) -> Row:
    """What a class of visitors sees. url: the page's. within: seconds in which all of them come. Raises InflightError."""
    try:
        return asyncio.run(_class(url.rstrip("/"), visitors, within))
    except httpx.HTTPError as error:
        raise InflightError(f"No page answers at {url}: {error}.") from None


async def _class(url: str, visitors: int, within: float) -> Row:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT, limits=limits) as http:
        state = await _state(http, url)
        spec = next(preset["spec"] for preset in state["presets"] if preset["name"] == PRESET)
        picture = state["catalogue"][0]["url"]
        seeds = random.Random(0)
        visits = await asyncio.gather(
            *(_visit(http, url, picture, spec, f"load-test-{number}", seeds.uniform(0, within)) for number in range(visitors))
        )
    served = [visit for visit in visits if not visit.refused]
    return Row(visitors, len(served), *(_p95([getattr(v, name) for v in served]) for name in ("picture", "first_step", "end")))


async def _state(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    asked = await http.post(f"{url}/gradio_api/call/state", json={"data": []})
    answer = await http.get(f"{url}/gradio_api/call/state/{asked.raise_for_status().json()['event_id']}")
    data = next(line[6:] for line in answer.text.splitlines() if line.startswith("data: ") and line != "data: null")
    return json.loads(data)[0]


async def _visit(http: httpx.AsyncClient, url: str, picture: str, spec: dict[str, Any], visitor: str, after: float) -> Visit:
    await asyncio.sleep(after)
    came = time.monotonic()
    await http.get(f"{url}/")
    await http.get(f"{url}/{picture}")
    seen, first = time.monotonic() - came, 0.0
    begun = (await http.post(f"{url}/inflight/jobs", json={"kind": "run", "spec": spec, "visitor": visitor})).json()
    if "error" in begun:
        return Visit(seen, 0.0, 0.0, begun["error"])
    last: dict[str, Any] = {}
    async with http.stream("GET", f"{url}/inflight/jobs/{begun['job']}") as deltas:
        async for line in deltas.aiter_lines():
            if line.startswith("data: "):
                last = json.loads(line[6:])
                if last.get("events") and not first:
                    first = time.monotonic() - came
    refused = "" if last.get("url") else str(last.get("error") or last.get("stopped") or "The stream broke off.")
    return Visit(seen, first, time.monotonic() - came, refused)


def _p95(values: Sequence[float]) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
