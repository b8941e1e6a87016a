"""Visitors of the page's server: what they ask, what they are answered, and a store that remembers.
`models` is a fixture.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from core.config import EngineConfig
from core.errors import InflightError
from core.torch_engine.models.cache import ModelCache
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.jobs.limits import Limits, check
from visualizer.server.jobs import JobQueue, Jobs
from visualizer.server.lent_gpu import run_for
from worlds.server_events import messages_in


class Memory:
    """A store that keeps traces in a list."""

    def __init__(self):
        self.traces = []

    def keep(self, trace, client=""):
        self.traces.append(trace)
        return {"id": "x", "url": f"store/{len(self.traces)}"}


class Visits:
    """A server's jobs, and the visitors who ask for runs and follow them."""

    def __init__(self, models: ModelCache, store: object | None = None, **limits):
        self.limits, self.models, self.store = Limits(**limits), models, store or Memory()
        self.jobs = Jobs({"runs": JobQueue(self.limits.concurrent_runs, self.limits.waiting_jobs)})

    def begin(self, asked: object, visitor: str, address: str = ""):
        run = run_for(check(asked, self.limits), self.limits, self.models, self.store)
        return self.jobs.begin(run, visitor, address)

    async def stream(self, asked: object, visitor: str, address: str = ""):
        """The deltas of a new run, as its page takes them in."""
        try:
            job = self.begin(asked, visitor, address)
        except InflightError as error:
            yield {"done": True, "error": str(error)}
            return
        async with aclosing(self.jobs.follow(job)) as pieces:
            async for piece in pieces:
                for message in messages_in(piece):
                    yield message


@pytest.fixture(scope="session")
def models() -> ModelCache:
    loaded = ModelCache()
    loaded.get("shakespeare-char", "cpu")
    return loaded


def spec(*prompts: str, new: int = 6, **config) -> dict:
    """What the page sends for a run of three short requests, or of these."""
    requests = [
        Request(
            f"r{i}",
            prompt=p,
            sampling=SamplingParams(max_new_tokens=new, ignore_eos=True),
            arrival=i,
        )
        for i, p in enumerate(prompts or ("To be", "O Romeo", "What"))
    ]
    config = EngineConfig(
        **{"max_num_seqs": 2, "max_num_batched_tokens": 8, "block_size": 4} | config
    )
    # the first is quicker, but its context is 256
    model = "shakespeare-char" if new < 240 else "shakespeare-bpe"
    return {
        "workload": Workload(requests).to_json(),
        "config": config.to_json(),
        "model": model,
        "device": "cpu",
    }


def endless() -> dict:
    """What the page sends for a run whose last request comes after almost five minutes: only a
    cancel ends it sooner.
    """
    asked = spec()
    asked["workload"] |= {"arrival_unit": "s"}
    asked["workload"]["requests"][2]["arrival"] = 290
    return asked


async def collect(stream) -> list[dict]:
    return [delta async for delta in stream]


def gather(runs: Visits, *asked: tuple[dict, str]) -> list[list[dict]]:
    async def all_of_them():
        return await asyncio.gather(*(collect(runs.stream(s, visitor)) for s, visitor in asked))

    return asyncio.run(all_of_them())
