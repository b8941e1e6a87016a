"""The server under load, and a server of its own process: every request answered once, whole and
right.
"""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import httpx
import pytest

from core.workload.arrivals import RequestSize, request
from core.workload.workload import Workload
from measure.serve import serve_beside_offline
from worlds.serving import MODEL, Served, char_engine, served

CLIENTS, PROMPTS = 500, 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_hundred_streaming_clients():
    """None lost, none answered twice, tokens in order, texts as if alone; those who watch see every
    step, and nothing stays behind.
    """
    asked = [
        {
            "prompt": "Exeunt " + chr(97 + i) * (1 + i % 5),
            "max_tokens": 5 + i,
            "temperature": 0.9,
            "seed": i,
        }
        for i in range(PROMPTS)
    ]

    async def one(client: httpx.AsyncClient, body: dict) -> list[dict]:
        async with client.stream("POST", "/generate", json={**body, "stream": True}) as response:
            assert response.status_code == 200
            return [
                json.loads(line[6:])
                async for line in response.aiter_lines()
                if line.startswith("data: ")
            ]

    async def everybody(server: Served) -> list[list[dict]]:
        async with httpx.AsyncClient(
            base_url=server.url, limits=httpx.Limits(max_connections=None), timeout=None
        ) as client:
            return await asyncio.gather(*(one(client, asked[i % PROMPTS]) for i in range(CLIENTS)))

    watching = threading.Event()

    async def watch(server: Served) -> set[str]:
        finished: set[str] = set()
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=None) as client,
            client.stream("GET", "/events") as response,
        ):
            watching.set()
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    for message in json.loads(line[6:]):
                        assert message["kind"] != "skipped"
                        finished |= {name for name, _ in message.get("finished", ())}
                if len(finished) == PROMPTS + CLIENTS:
                    return finished
        return finished

    with served(char_engine(max_num_seqs=16, num_blocks=200)) as server:
        seen: list[set[str]] = []
        watcher = threading.Thread(target=lambda: seen.append(asyncio.run(watch(server))))
        watcher.start()
        assert watching.wait(60)
        alone = [server.post("/generate", body).json() for body in asked]
        answers = asyncio.run(everybody(server))
        watcher.join(60)
        health = server.get("/health").json()
    assert len({events[-1]["id"] for events in answers}) == len(answers) == CLIENTS
    for number, (*tokens, rest) in enumerate(answers):
        expected = alone[number % PROMPTS]
        assert [t["index"] for t in tokens] == list(range(len(tokens)))
        assert [t["token_id"] for t in tokens] == expected["token_ids"] and rest[
            "text"
        ] == expected["text"]
        assert {t["id"] for t in tokens} == {rest["id"]}
    assert seen == [{events[-1]["id"] for events in answers} | {a["id"] for a in alone}]
    assert (
        health["status"] == "ok"
        and health["requests"] == health["kv_blocks_used"] == health["step_failures"] == 0
    )


@pytest.mark.slow
def test_served_and_offline_say_the_same_tokens():
    engine = char_engine(num_blocks=100)
    asked = [
        request(i, RequestSize(5 + i, 4 + i % 5), 0.01 * i, engine.model.vocab_size, 256)
        for i in range(12)
    ]
    options = [
        "--model",
        MODEL,
        "--threads",
        "1",
        "--device",
        "cpu",
        "--max-num-seqs",
        "4",
        "--num-blocks",
        "100",
    ]
    data = serve_beside_offline(engine, Workload(asked, arrival_unit="s"), options)
    assert data["differing_requests"] == 0 and data["requests"] == 12
    assert [m["answered"] for m in data["server_memory"]] == [0, *range(1, 13)] or not Path(
        "/proc/self/status"
    ).exists()
    tokens = sum(r.sampling.max_new_tokens for r in asked)
    for name in ("served", "offline"):
        assert data[name]["ttft_s"]["count"] == 12 and data[name]["itl_s"]["count"] == tokens - 12
    assert data["served"]["ttft_s"]["mean"] >= data["engine_while_serving"]["ttft_s"]["mean"] > 0
