"""`bench viewers`: what those who watch cost the engine."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from core.assets import DEFAULT_MODEL
from core.cli.options import Json, Out, writable
from core.cli.output import Work, finish, line, number, table


def viewers(
    viewers: Annotated[int, typer.Option(min=1, help="How many watch at once.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Pairs of a run without viewers and a run with them.")] = 5,
    seconds: Annotated[float, typer.Option(min=1.0, help="Length of each run.")] = 8.0,
    lanes: Annotated[int, typer.Option(min=1, help="Requests kept under way.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each request.")] = 200,
    url: Annotated[
        str | None,
        typer.Option(help="A server that is running already, e.g. a page's http://127.0.0.1:7860/serve.", show_default=False),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(help="What is watched there, e.g. http://127.0.0.1:7860/inflight/live/steps.", show_default="URL/events"),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model of the server that is started where there is no --url.")
    ] = DEFAULT_MODEL,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure what viewers cost the engine: its tokens a second with and without them, by turns. Wants a quiet machine."""
    from core.bench.serve import server
    from core.bench.viewers import fan_out

    writable(out)
    options = ["--model", model, "--max-num-seqs", str(lanes), "--device", "cpu"]
    with nullcontext(url) if url is not None else server(options) as at, Work("times", 2 * rounds) as work:
        at = at.rstrip("/")
        data = asyncio.run(fan_out(at, events or f"{at}/events", viewers, lanes, tokens, rounds, seconds, work.update))
    finish(data, _print, out, json)


def _print(data: dict[str, Any]) -> None:
    rows = [
        (str(index + 1), number(alone), number(watched), f"{100 * (1 - ratio):.1f} %")
        for index, (alone, watched, ratio) in enumerate(
            zip(data["tok_s_alone"], data["tok_s_watched"], data["ratios"], strict=True)
        )
    ]
    columns = ("round", "tok/s alone", "tok/s watched", "cost")
    table(columns, rows, right=columns)
    line(
        f"{data['viewers']} viewers, {data['messages_per_viewer_s']:g} messages and {data['kib_per_viewer_s']:g} KiB a second each, "
        f"{data['skips']:g} skips: they cost {100 * (1 - data['ratio']):.1f} % of the engine's tokens a second (median of the rounds)."
    )
