"""Runs on ZeroGPU, played by a stand-in for its package that really forks and pickles: the same
run, and every end it can come to.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import httpx
import pytest

from core.torch_engine.models.cache import ModelCache
from visualizer.jobs.limits import HERE
from visualizer.server import comparisons, lent_gpu
from visualizer.server.limits import SPACE
from visualizer.server.store import Store
from worlds.page_server import run, serve
from worlds.visitors import Visits, gather, spec

STUBS = Path(__file__).parents[1] / "worlds" / "stubs"


@contextmanager
def installed(zero_gpu: str) -> Iterator[ModuleType]:
    """The stand-in as the page finds it, and afterwards no trace of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUBS))
        patch.setenv("SPACES_ZERO_GPU", zero_gpu)
        stub = importlib.import_module("spaces")
        importlib.reload(lent_gpu)
        yield stub
        for worker in stub.workers:
            worker.process.kill()
    for name in ("spaces", "spaces.zero"):
        sys.modules.pop(name, None)
    importlib.reload(lent_gpu)


@pytest.fixture
def spaces() -> Iterator[ModuleType]:
    """The stand-in, lending."""
    from gradio.context import LocalContext

    request = LocalContext.request.set(SimpleNamespace(headers={"x-ip-token": "me"}))
    with installed("true") as stub:
        yield stub
    LocalContext.request.reset(request)


@pytest.fixture
def runs(models: ModelCache) -> Visits:
    return Visits(models, concurrent_runs=2, waiting_jobs=3)


def lent(**changes) -> dict:
    """A spec that does not insist on the CPU."""
    return spec(**changes) | {"device": "auto"}


def facts(event) -> object:
    """What of an event does not hang on the clock."""
    return event._replace(
        t_start=0.0,
        t_end=0.0,
        timings=None,
        arrived=[a.request for a in event.arrived],
        passes=[p._replace(t_start=0.0, t_end=0.0) for p in event.passes],
    )


def test_a_lent_run_is_the_run_itself(spaces, runs: Visits):
    (here,) = gather(runs, (spec(), "me"))
    assert not spaces.lent, "who asks for the CPU needs no GPU"
    (deltas,) = gather(runs, (lent(), "me"))
    assert spaces.lent == [("me", HERE.seconds + 20)] and not spaces.forked
    assert "error" not in deltas[-1] and deltas[-1]["url"]
    own, handed = runs.store.traces
    assert handed.complete and handed.outputs == own.outputs and handed.texts == own.texts
    assert list(map(facts, handed.events)) == list(map(facts, own.events))
    assert (replace(handed.header, created=""), handed.asked) == (
        replace(own.header, created=""),
        own.asked,
    )
    assert [e["step"] for d in deltas for e in d.get("events", ())] == [
        e["step"] for d in here for e in d.get("events", ())
    ]


def test_a_process_is_lent_again(spaces, runs: Visits):
    for _ in range(2):
        (deltas,) = gather(runs, (lent(), "me"))
        assert "error" not in deltas[-1]
    assert len(spaces.workers) == 1 and len(spaces.lent) == 2


def test_a_part_carries_every_step_since_the_last(spaces, runs: Visits, monkeypatch):
    monkeypatch.setattr(lent_gpu, "_PERIOD", 600)  # the next part is then the end
    (deltas,) = gather(runs, (lent(new=50), "me"))
    assert [len(d["events"]) for d in deltas if d.get("events")] == [
        len(runs.store.traces[-1].events)
    ]


@pytest.mark.slow
def test_a_cancelled_run_gives_the_gpu_back_and_keeps_its_trace(spaces, runs: Visits):
    async def go():
        async for delta in runs.stream(lent(new=400), "me"):
            if delta.get("events"):
                runs.jobs.cancel(delta["job"])
        assert "error" not in delta
        return delta

    delta = asyncio.run(go())
    assert delta["stopped"].startswith("The run was cancelled after ") and delta["url"]
    assert not runs.store.traces[-1].complete
    (after,) = gather(runs, (lent(), "me"))
    assert "error" not in after[-1] and len(spaces.workers) == 1


def test_a_wait_for_an_arrival_can_be_cancelled(spaces, runs: Visits):
    late = lent()
    late["workload"]["arrival_unit"] = "s"
    late["workload"]["requests"] = late["workload"]["requests"][:2]
    late["workload"]["requests"][1]["arrival"] = 250

    async def go():
        async for delta in runs.stream(late, "me"):
            if delta.get("events"):
                runs.jobs.cancel(delta["job"])
        return delta

    assert "cancelled" in asyncio.run(go())["stopped"]
    assert spaces.workers[0].process.is_alive()


def test_limits_hold_in_the_lent_process(spaces, models: ModelCache):
    for bound, words in (({"steps": 5}, "after 5 steps"), ({"seconds": 0}, "after 0 seconds")):
        runs = Visits(models, **bound)
        (deltas,) = gather(runs, (lent(), "me"))
        assert words in deltas[-1]["error"] and deltas[-1]["url"]


def test_what_is_refused_needs_no_gpu(spaces, runs: Visits, models: ModelCache):
    bad = lent()
    bad["workload"]["requests"][0]["prompt"] = "日本語"
    (deltas,) = gather(runs, (bad, "me"))
    assert deltas[-1]["error"].startswith("Request A: the tokenizer cannot encode")
    (deltas,) = gather(Visits(models, total_tokens=10), (lent(), "me"))
    assert "this page takes at most 10" in deltas[-1]["error"]
    assert not spaces.lent


def test_an_exhausted_quota_is_one_sentence(spaces, runs: Visits, monkeypatch):
    words = (
        "You have exceeded your ZeroGPU quota (80s requested vs. 12s left). Try again in 0:10:00. "
    )
    monkeypatch.setenv("SPACES_STUB_REFUSES", words)
    (deltas,) = gather(runs, (lent(), "me"))
    assert (
        deltas[-1]["error"] == "ZeroGPU, which lends this page its GPU, says: "
        "You have exceeded your ZeroGPU quota (80s requested vs. 12s left); try again in 0:10:00."
    )
    monkeypatch.delenv("SPACES_STUB_REFUSES")
    (after,) = gather(runs, (lent(), "me"))
    assert "error" not in after[-1]


@pytest.mark.slow
def test_a_gpu_taken_back_leaves_the_trace_so_far(spaces, runs: Visits):
    async def go():
        async for delta in runs.stream(lent(new=400), "me"):
            if delta.get("events"):
                spaces.workers[0].process.kill()
        return delta

    delta = asyncio.run(go())
    assert (
        delta["error"] == "ZeroGPU, which lends this page its GPU, says: GPU task aborted."
        and delta["url"]
    )
    assert runs.store.traces[-1].events and not runs.store.traces[-1].complete
    (after,) = gather(runs, (lent(), "me"))
    assert "error" not in after[-1] and len(spaces.workers) == 2


def test_a_failure_in_the_lent_process_is_told(spaces, runs: Visits, monkeypatch):
    def broken(self, *args):
        if spaces.forked:
            raise MemoryError
        return runs_get(self, *args)

    runs_get = ModelCache.get
    monkeypatch.setattr(lent_gpu.ModelCache, "get", broken)
    (deltas,) = gather(runs, (lent(), "me"))
    assert deltas[-1]["error"] == "The run failed inside the engine: MemoryError."


def test_comparisons_stay_on_the_cpu_and_the_page_says_so(spaces, tmp_path: Path):
    store = Store(tmp_path, SPACE.kept_bytes)
    assert comparisons.catalogue(SPACE)["note"] == lent_gpu.COMPARISONS
    assert (
        comparisons.job("equivalence", lent(), SPACE, ModelCache(), store).work.spec.device == "cpu"
    )


def test_elsewhere_than_on_zerogpu_the_package_changes_nothing(runs: Visits):
    with installed("") as stub:
        assert not lent_gpu.is_lent()
        (deltas,) = gather(runs, (lent(), "me"))
        assert "error" not in deltas[-1] and not stub.workers
        assert comparisons.catalogue(SPACE)["note"] == ""


def test_without_the_package_nothing_is_lent(runs: Visits):
    assert "spaces" not in sys.modules and not lent_gpu.is_lent()
    (deltas,) = gather(runs, (lent(), "me"))
    assert "error" not in deltas[-1]


@pytest.mark.slow
def test_the_page_lends_to_its_visitors_by_their_requests():
    """The stand-in lends to nobody whose request it does not find in the context, as Gradio leaves
    it.
    """
    with (
        serve(PYTHONPATH=str(STUBS), SPACES_ZERO_GPU="true", TRITON_INTERPRET="0") as url,
        httpx.Client(trust_env=False, timeout=120) as http,
    ):
        *_, last = run(http, url, lent())
        assert last.get("url") and "error" not in last
        *_, unset = run(http, url, lent() | {"model": "no-such-model"})
        assert unset["error"]


def test_zero_gpu_is_told_that_the_page_starts_as_gradio_would_tell_it_at_a_launch(spaces):
    zero = importlib.import_module("spaces.zero")
    before = zero.reported
    lent_gpu.report_start()
    assert zero.reported == before + 1


def test_nobody_is_told_where_no_gpu_is_lent():
    lent_gpu.report_start()
    with installed("false"):
        lent_gpu.report_start()
        assert "spaces.zero" not in sys.modules
