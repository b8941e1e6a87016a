"""`python tests/measure/vllm_traffic.py OUT --python PYTHON_WITH_VLLM -- --max-num-seqs 8 …`:
records a vLLM server under HTTP traffic.

Clients ask for what real ones ask: several answers at once, stop strings, priorities, structured
output, a long shared beginning; some leave before their answer is whole. Or they all ask for one
thing, so that every setting has the same work: questions in bursts (chat), prompts of thousands of
tokens (long; give --max-model-len 4608 too). The folder then holds the
recording, what every client saw (`clients.json`) and the server's own counters (`metrics.txt`), so
that the recording can be held against them.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import typer

from core.cli.output import print_line
from core.config import ASSETS
from core.errors import InflightError
from core.recorders.raw import read_raw
from engines.vllm import require_python
from measure import script
from measure.vllm_ranks import Served, served

KINDS = ("several", "stop", "leave", "structured", "priority")
_SAID = (
    "O Romeo wherefore art thou the king my lord speak of night and love shall come to me good sir"
    " what is thy name in this fair city"
)
_OVER_S = 8.0  # requests arrive over so long a time
_PIECES = 6  # after which a client leaves


@dataclass(frozen=True)
class Asked:
    """after: seconds from the beginning. kind: one of KINDS, or plain. body: of its POST to
    /v1/completions.
    """

    after: float
    kind: str
    body: dict[str, Any]


def traffic(number: int, seed: int, kinds: tuple[str, ...] = KINDS) -> list[Asked]:
    """So many requests; every third begins with the same sixty words."""
    chance, vocabulary = random.Random(seed), _SAID.split()
    shared = " ".join(chance.choices(vocabulary, k=60))
    asked = []
    for at in range(number):
        words = " ".join(chance.choices(vocabulary, k=chance.choice([8, 20, 60, 150])))
        body: dict[str, Any] = {
            "prompt": words if at % 3 else f"{shared} {words}",
            "max_tokens": chance.choice([1, 5, 20, 60, 120]),
            "temperature": chance.choice([0, 0.8]),
            "ignore_eos": True,
        }
        if "priority" in kinds:
            body["priority"] = chance.choice([0, 0, 5, -5])
        kind = {4: "several", 5: "stop", 6: "leave", 7: "structured"}.get(at % 9, "plain")
        if kind not in kinds:
            kind = "plain"
        body |= {
            "several": {"n": 3, "temperature": 0.9},
            "stop": {"stop": ["\n"], "max_tokens": 100, "ignore_eos": False},
            "leave": {"max_tokens": 100},
            "structured": {"structured_outputs": {"regex": r"[a-z ]{5,20}\."}, "ignore_eos": False},
        }.get(kind, {})
        asked.append(Asked(chance.random() * _OVER_S, kind, body))
    return asked


def chat(number: int, seed: int) -> list[Asked]:
    """Short prompts in six bursts, each with a long answer that nothing ends early."""
    chance = random.Random(seed)
    return [
        _fixed(chance, 6 * at // number * 2.0 + chance.random() / 2, (10, 80), (40, 120))
        for at in range(number)
    ]


def long(number: int, seed: int) -> list[Asked]:
    """Prompts of up to 4,000 tokens with short answers, over 20 seconds."""
    chance = random.Random(seed)
    return [
        _fixed(chance, chance.random() * 20, chance.choice([(100, 400), (1000, 4000)]), (10, 60))
        for _ in range(number)
    ]


def _fixed(
    chance: random.Random, after: float, prompt: tuple[int, int], answer: tuple[int, int]
) -> Asked:
    ids = [chance.randrange(500, 2000) for _ in range(chance.randint(*prompt))]
    told = {"max_tokens": chance.randint(*answer), "temperature": 0, "ignore_eos": True}
    return Asked(after, "plain", {"prompt": ids, **told})


TRAFFIC = {"mixed": traffic, "chat": chat, "long": long}


async def _ask(client: httpx.AsyncClient, asked: Asked) -> dict[str, Any]:
    """What its client sees: the id, the finish reasons, what was counted, and when each piece came,
    in seconds from the request.
    """
    await asyncio.sleep(asked.after)
    seen: dict[str, Any] = {"kind": asked.kind, "finish": [], "times": []}
    body = asked.body | {"model": "it", "stream": True, "stream_options": {"include_usage": True}}
    clock = asyncio.get_running_loop().time
    began = clock()
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        seen["status"] = answer.status_code
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            piece = json.loads(line.removeprefix("data: "))
            seen |= {fact: piece[fact] for fact in ("id", "usage") if piece.get(fact)}
            seen["times"] += [round(clock() - began, 4)] * len(piece["choices"])
            seen["finish"] += [
                choice["finish_reason"]
                for choice in piece["choices"]
                if choice.get("finish_reason")
            ]
            if asked.kind == "leave" and len(seen["times"]) >= _PIECES:
                break
    return seen


async def _send(url: str, asked: list[Asked]) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(
        base_url=url, timeout=600, trust_env=False, limits=httpx.Limits(max_connections=None)
    ) as client:
        return await asyncio.gather(*(_ask(client, one) for one in asked))


def send(server: Served, asked: list[Asked], out: Path) -> None:
    """Send them, and leave clients.json and metrics.txt in the folder."""
    (out / "clients.json").write_text(
        json.dumps(asyncio.run(_send(server.url, asked))), encoding="utf-8"
    )
    lines = httpx.get(f"{server.url}/metrics", timeout=60, trust_env=False).text.splitlines()
    counters = [
        line
        for line in lines
        if line.startswith("vllm:") and "_bucket" not in line and "_created" not in line
    ]
    (out / "metrics.txt").write_text("\n".join(counters), encoding="utf-8")


def vllm_traffic(
    out: Annotated[Path, typer.Argument(help="A new folder.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="More of vLLM's own, after --.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Of an environment with vLLM.", show_default="$INFLIGHT_VLLM_PYTHON"),
    ] = None,
    model: Annotated[Path, typer.Option(help="A folder.")] = ASSETS / "models" / "shakespeare-bpe",
    kind: Annotated[str, typer.Option(help="Of traffic: mixed, chat or long.")] = "mixed",
    requests: Annotated[int, typer.Option(min=1)] = 60,
    seed: int = 0,
) -> None:
    """Record a vLLM server while clients talk to it."""
    kinds = KINDS if "priority" in (arguments or ()) else KINDS[:-1]
    if kind not in TRAFFIC:
        raise InflightError(f"--kind is one of {', '.join(TRAFFIC)}, not {kind!r}.")
    asked = traffic(requests, seed, kinds) if kind == "mixed" else TRAFFIC[kind](requests, seed)
    out.mkdir(parents=True)
    with served(
        require_python(python), out, model.resolve(), "--max-model-len", "512", *(arguments or ())
    ) as server:
        send(server, asked, out)
    for recording in read_raw(sorted(out.glob("run*.raw.jsonl"))):
        print_line(f"{recording.name}: {len(recording.steps)} steps")


if __name__ == "__main__":
    script(vllm_traffic)
