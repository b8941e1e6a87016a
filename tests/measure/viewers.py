"""`python tests/measure/viewers.py`: what those who watch cost an engine that serves. Its tokens a
second with and without viewers, round by round in one run.

The engine is kept full by requests without an end of their own. Viewers are one process of lowest
priority, this script again, that reads every stream as fast as it may and looks at nothing: on a
machine of their own they would cost the engine nothing else either.
"""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import typer

from core.cli.options import Json, Out
from core.cli.output import ProgressReporter, finish, number, print_line, table
from core.config import DEFAULT_MODEL
from core.errors import InflightError
from core.files import require_writable
from measure import script
from measure.serve import server

WATCH = "--watch"

_SETTLE_S = 2.0
_TOKENS = re.compile(r"^inflight:generation_tokens_total\S* (\S+)$", re.MULTILINE)


async def fan_out(
    url: str,
    events: str,
    viewers: int,
    lanes: int,
    tokens: int,
    rounds: int,
    seconds: float,
    on_run: Callable[[int, str], None] = lambda done, what: None,
) -> dict[str, Any]:
    """url: of a server; events: what is watched. lanes: requests of so many tokens kept under way.
    Raises InflightError where it does not answer.
    """
    limits = httpx.Limits(max_connections=None)
    pairs: list[tuple[float, float]] = []
    seen: list[dict[str, float]] = []
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        load = [asyncio.create_task(_keep_asking(client, url, tokens)) for _ in range(lanes)]
        try:
            await _speed(client, url, seconds, load)  # to warm up
            for index in range(rounds):
                on_run(2 * index, "nobody watches")
                alone = await _speed(client, url, seconds, load)
                with _viewers(events, viewers) as watching:
                    await asyncio.to_thread(_line, watching)  # all of them have caught up
                    on_run(2 * index + 1, f"{viewers} watch")
                    pairs.append((alone, await _speed(client, url, seconds, load)))
                    watching.terminate()
                    seen.append(_counted(await asyncio.to_thread(_line, watching)))
        except httpx.HTTPError as error:
            raise InflightError(f"The server did not answer: {type(error).__name__}.") from None
        finally:
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
    return {"viewers": viewers, "rounds": rounds, **figures(pairs, seen)}


def figures(pairs: list[tuple[float, float]], seen: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds. pairs: tokens a second alone and watched. seen: by the viewers."""
    ratios = [watched / alone for alone, watched in pairs]
    return {
        "tok_s_alone": [round(alone, 1) for alone, _ in pairs],
        "tok_s_watched": [round(watched, 1) for _, watched in pairs],
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "messages_per_viewer_s": round(
            statistics.median(s["messages_per_viewer_s"] for s in seen), 2
        ),
        "kib_per_viewer_s": round(statistics.median(s["kib_per_viewer_s"] for s in seen), 1),
        "skips": sum(s["skips"] for s in seen),
    }


async def _keep_asking(client: httpx.AsyncClient, url: str, tokens: int) -> None:
    while True:
        body = {"prompt": "O", "max_tokens": tokens, "ignore_eos": True}
        answer = await client.post(f"{url}/generate", json=body)
        if answer.status_code != 200:
            raise InflightError(
                f"The server refused a request: {answer.json()['error']['message']}"
            )


async def _speed(
    client: httpx.AsyncClient, url: str, seconds: float, load: list[asyncio.Task[None]]
) -> float:
    """Tokens a second, by the server's own count."""
    before, began = await _tokens(client, url), time.perf_counter()
    await asyncio.sleep(seconds)
    for task in load:
        if task.done():
            task.result()
    after, ended = await _tokens(client, url), time.perf_counter()
    return (after - before) / (ended - began)


async def _tokens(client: httpx.AsyncClient, url: str) -> float:
    found = _TOKENS.search((await client.get(f"{url}/metrics")).text)
    if found is None:
        raise InflightError(f"{url}/metrics does not say how many tokens were generated.")
    return float(found[1])


def viewers(
    viewers: Annotated[int, typer.Option(min=1, help="How many watch at once.")] = 200,
    rounds: Annotated[
        int, typer.Option(min=1, help="Pairs of a run without viewers and a run with them.")
    ] = 5,
    seconds: Annotated[float, typer.Option(min=1.0, help="Length of each run.")] = 8.0,
    lanes: Annotated[int, typer.Option(min=1, help="Requests kept under way.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each request.")] = 200,
    url: Annotated[
        str | None,
        typer.Option(
            help="A server that is running already, e.g. a page's http://127.0.0.1:7860/serve.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            help="What is watched there, e.g. http://127.0.0.1:7860/inflight/live/steps.",
            show_default="URL/events",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Model of the server that is started where there is no --url."
        ),
    ] = DEFAULT_MODEL,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure what viewers cost the engine: its tokens a second with and without them, by turns.
    Wants a quiet machine.
    """
    require_writable(out)
    options = ["--model", model, "--max-num-seqs", str(lanes), "--device", "cpu"]
    with (
        nullcontext(url) if url is not None else server(options) as at,
        ProgressReporter("times", 2 * rounds) as work,
    ):
        at = at.rstrip("/")
        data = asyncio.run(
            fan_out(
                at, events or f"{at}/events", viewers, lanes, tokens, rounds, seconds, work.update
            )
        )
    finish(data, _print, json, out)


def _print(data: dict[str, Any]) -> None:
    rows = [
        (str(index + 1), number(alone), number(watched), f"{100 * (1 - ratio):.1f} %")
        for index, (alone, watched, ratio) in enumerate(
            zip(data["tok_s_alone"], data["tok_s_watched"], data["ratios"], strict=True)
        )
    ]
    columns = ("round", "tok/s alone", "tok/s watched", "cost")
    table(columns, rows, right=columns)
    print_line(
        f"{data['viewers']} viewers, {data['messages_per_viewer_s']:g} messages and"
        f" {data['kib_per_viewer_s']:g} KiB a second each, {data['skips']:g} skips: they cost"
        f" {100 * (1 - data['ratio']):.1f} % of the engine's tokens a second (median of the"
        " rounds)."
    )


# -- viewers, in a process of their own ------------------------------------------------------------


@contextmanager
def _viewers(events: str, count: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, __file__, WATCH, events, str(count)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = process.stdout.readline()
    if not said:
        raise InflightError("The viewers ended: the server did not let them watch.")
    return said


def _counted(said: str) -> dict[str, float]:
    names = ("messages_per_viewer_s", "kib_per_viewer_s", "skips")
    return dict(zip(names, map(float, said.split()), strict=True))


def watch(events: str, count: int) -> None:
    """Watch until told to end; say `ready` once all have caught up, and in the end what was read
    since then.
    """
    import signal

    os.nice(19)
    ends: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    at, selector = urlsplit(events), selectors.DefaultSelector()
    asked = f"GET {at.path}{f'?{at.query}' if at.query else ''} HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode()  # noqa: E501
    for _ in range(count):
        viewer = socket.create_connection((at.hostname or "127.0.0.1", at.port or 80))
        viewer.sendall(asked)
        viewer.setblocking(False)
        selector.register(viewer, selectors.EVENT_READ)
    began, is_ready, size, messages, skips = time.perf_counter(), False, 0, 0, 0
    while not ends:
        for key, _ in selector.select(timeout=0.2):
            part = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            if not part:
                return
            size, messages, skips = (
                size + len(part),
                messages + part.count(b"\ndata: "),
                skips + part.count(b'"skipped"'),
            )
        if not is_ready and time.perf_counter() - began > _SETTLE_S:
            is_ready, began, size, messages, skips = True, time.perf_counter(), 0, 0, 0
            print("ready", flush=True)
    taken = (time.perf_counter() - began) * count
    print(messages / taken, size / 1024 / taken, skips, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [WATCH]:
        watch(sys.argv[2], int(sys.argv[3]))
    else:
        script(viewers)
