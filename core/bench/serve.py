"""What serving costs: the same requests, at the same arrivals, over HTTP from a server of its own process and by the same engine offline.

Clients stream, each on a connection of its own, and time what they read: the server's share is all that lies between a token's pass and
its line at the client. Outputs must be equal, token for token. Meanwhile the server's memory is read. Prints nothing.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from core.engine.engine import Engine
from core.errors import InflightError
from core.measure.metrics import distribution, metrics
from core.workload.request import Request
from core.workload.workload import Workload

START_S = 180.0  # a server may take to load its model
CLIENTS = 100  # at once
_READINGS = 10  # of the server's memory


@dataclass
class Answer:
    """What a client read. sent, times: of the call and of each token, on the client's clock, in seconds. engine: the times that the
    server says the engine took.
    """

    sent: float
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    engine: dict[str, float] = field(default_factory=dict)


def serve_beside_offline(
    engine: Engine, workload: Workload, options: Sequence[str], on_run: Callable[[str], None] = lambda what: None
) -> dict[str, Any]:
    """Both runs in numbers. engine: as the server makes it of `options`, those of `python -m core serve`. workload: greedy, arrivals in
    seconds. Raises InflightError where the server does not start or does not answer.
    """
    on_run("starting the server")
    with started(options) as (url, process):
        memory = _Memory(process, len(workload))
        _clients(url, Workload(list(workload)[:4], arrival_unit="s"))  # to warm up
        on_run(f"{len(workload)} clients")
        memory.read(0)
        began = time.perf_counter()
        answers = _clients(url, workload, memory.answered)
        wall = time.perf_counter() - began
    on_run("offline")
    engine.run(Workload(list(workload)[:4], arrival_unit="s"))
    trace = engine.run(workload)
    offline = metrics(trace)
    differing = sum(answers[r].tokens != ids for r, ids in trace.outputs.items())
    served = _numbers(answers.values(), wall)
    return {
        "requests": len(workload),
        "differing_requests": differing,
        "served": served,
        "offline": {name: offline[name] for name in ("wall_s", "output_tok_s", "ttft_s", "itl_s", "e2e_s")},
        "engine_while_serving": {"ttft_s": distribution(a.engine["ttft_s"] for a in answers.values())},
        "server_memory": memory.readings,
        "header": trace.header,
    }


class _Memory:
    """What a server's process has resident, read now and then: [{"answered", "mib"}], empty where the system does not tell."""

    def __init__(self, process: int, requests: int) -> None:
        self._file, self._every = Path(f"/proc/{process}/status"), max(1, requests // _READINGS)
        self._answered = 0
        self.readings: list[dict[str, float]] = []

    def answered(self) -> None:
        """One more request was."""
        self._answered += 1
        if self._answered % self._every == 0:
            self.read(self._answered)

    def read(self, answered: int) -> None:
        if self._file.exists():
            found = re.search(r"^VmRSS:\s*(\d+) kB", self._file.read_text(), re.MULTILINE)
            if found:
                self.readings.append({"answered": answered, "mib": round(int(found[1]) / 1024, 1)})


def _numbers(answers: Any, wall: float) -> dict[str, Any]:
    answers = list(answers)
    return {
        "wall_s": round(wall, 4),
        "output_tok_s": round(sum(len(a.tokens) for a in answers) / wall, 1),
        "ttft_s": distribution(a.times[0] - a.sent for a in answers),
        "itl_s": distribution(after - before for a in answers for before, after in pairwise(a.times)),
        "e2e_s": distribution(a.times[-1] - a.sent for a in answers),
    }


@contextmanager
def server(options: Sequence[str]) -> Iterator[str]:
    """A server in a process of its own, at any free port; its address."""
    with started(options) as (url, _):
        yield url


@contextmanager
def started(options: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The same, with its process."""
    command = [sys.executable, "-m", "core", "serve", "--port", "0", *options]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root)
    try:
        yield _address(process), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline, said = time.monotonic() + START_S, ""
    for line in process.stderr:
        said = line.strip() or said
        if found := re.search(r"Serving .* at (http://\S+)", line):
            return found[1]
        if time.monotonic() > deadline:
            break
    raise InflightError(f"The server did not start: {said or 'it said nothing'}")


def _clients(url: str, workload: Workload, answered: Callable[[], None] = lambda: None) -> Mapping[str, Answer]:
    """Every request sent when it is due, or as soon as fewer than `CLIENTS` are under way; what came back. answered: called for each."""
    return asyncio.run(_all(url, list(workload), answered))


async def _all(url: str, requests: Sequence[Request], answered: Callable[[], None]) -> Mapping[str, Answer]:
    at_once = asyncio.Semaphore(CLIENTS)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as client:
        began = time.perf_counter()

        async def one(request: Request) -> Answer:
            await asyncio.sleep(max(0.0, began + request.arrival - time.perf_counter()))
            async with at_once:
                answer = await _ask(client, request)
            answered()
            return answer

        try:
            answers = await asyncio.gather(*map(one, requests))
        except httpx.HTTPError as error:
            raise InflightError(f"The server did not answer: {type(error).__name__}.") from None
    return {request.id: answer for request, answer in zip(requests, answers, strict=True)}


async def _ask(client: httpx.AsyncClient, request: Request) -> Answer:
    asked = {"prompt": list(request.prompt_token_ids or ()), "max_tokens": request.sampling.max_new_tokens}
    body = {**asked, "stream": True, "ignore_eos": request.sampling.ignore_eos}
    answer = Answer(time.perf_counter())
    async with client.stream("POST", "/generate", json=body) as response:
        if response.status_code != 200:
            raise InflightError(f"The server refused a request: {json.loads(await response.aread())['error']['message']}")
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                data = json.loads(line[6:])
                if "token_id" in data:
                    answer.times.append(time.perf_counter())
                    answer.tokens.append(data["token_id"])
                elif "error" in data:
                    raise InflightError(f"The server failed: {data['error']['message']}")
                else:
                    answer.engine = {
                        name: data[name] if data[name] is not None else math.nan for name in ("queue_s", "ttft_s", "e2e_s")
                    }
    return answer
