"""Visitors of the page's server: what they ask, what they are answered, and a shelf that remembers. `models` is a fixture."""

from __future__ import annotations

import asyncio

import pytest

from core.config import EngineConfig
from core.models.cache import Models
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.server.runs import Runs


class Memory:
    """A shelf that keeps traces in a list."""

    def __init__(self):
        self.traces = []

    def put(self, trace):
        self.traces.append(trace)
        return {"id": "x", "url": f"shelf/{len(self.traces)}"}


@pytest.fixture(scope="session")
def models() -> Models:
    loaded = Models()
    loaded.get("shakespeare-char", "cpu")
    return loaded


def spec(*prompts: str, new: int = 6, visitor: str = "", **config) -> dict:
    """What the page sends for a run of three short requests, or of these."""
    requests = [
        Request(f"r{i}", prompt=p, sampling=SamplingParams(max_new_tokens=new, ignore_eos=True), arrival=i)
        for i, p in enumerate(prompts or ("To be", "O Romeo", "What"))
    ]
    config = EngineConfig(**{"max_num_seqs": 2, "max_num_batched_tokens": 8, "block_size": 4} | config)
    model = "shakespeare-char" if new < 240 else "shakespeare-bpe"  # the first is quicker, but its context is 256
    asked = {"workload": Workload(requests).to_json(), "config": config.to_json(), "model": model, "device": "cpu"}
    return asked | ({"visitor": visitor} if visitor else {})


async def collect(stream) -> list[dict]:
    return [delta async for delta in stream]


def gather(runs: Runs, *asked: tuple[dict, str]) -> list[list[dict]]:
    async def all_of_them():
        return await asyncio.gather(*(collect(runs.stream(s, visitor)) for s, visitor in asked))

    return asyncio.run(all_of_them())
