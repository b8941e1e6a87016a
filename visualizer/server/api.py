"""The functions of the page's server, without Gradio and HTTP: state, jobs, uploads, exports.

Every answer is JSON. A refusal (`answering`) is `{"error": one sentence}`, never an exception: the
page shows it and continues.
"""

import functools
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec

from core.config import BUILTIN_MODELS
from core.errors import InflightError
from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.libraries import load_libraries
from visualizer.documents.catalogue import TRACES
from visualizer.jobs import offers
from visualizer.jobs.attention import attention_weights
from visualizer.jobs.calls import answered
from visualizer.jobs.limits import Limits, Refused, check
from visualizer.jobs.work import LeakyRun
from visualizer.server import comparisons
from visualizer.server.jobs import Job, JobQueue, Jobs
from visualizer.server.lent_gpu import is_lent, run_for
from visualizer.server.models import foreseen, model_of, weigh_by
from visualizer.server.recorded_runs import Lessons, promise_opening, promise_recorded_runs
from visualizer.server.store import Store
from visualizer.server.uploads import open_dataset, open_upload

_Args = ParamSpec("_Args")

# preparing for a run begins so many seconds after the latest file, or after the first
_QUIET_S, _LATEST_S = 1.0, 5.0


def answering(
    function: Callable[_Args, dict[str, Any]], what: str = ""
) -> Callable[_Args, dict[str, Any]]:
    """The function with errors as answers: `{"error": one sentence}`, which `what` precedes."""

    @functools.wraps(function)
    def answered(*args: _Args.args, **kwargs: _Args.kwargs) -> dict[str, Any]:
        try:
            return function(*args, **kwargs)
        except InflightError as error:
            return {"error": f"{what}{error}"}

    return answered


class Server:
    """One for each process. store: of runs. model: the one that is selected at first, or empty."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        traces: Path = TRACES,
        models: ModelCache | None = None,
        model: str = "",
    ) -> None:
        self.store, self._limits, self.model_at_start = store, limits, model
        self._models, self._is_warm, self._served = models or ModelCache(), threading.Lock(), 0.0
        queues: dict[str, JobQueue] = {
            "runs": JobQueue(limits.concurrent_runs, limits.waiting_jobs),
            "comparisons": JobQueue(1, limits.waiting_jobs // 4),
        }
        self.jobs = Jobs(queues)
        self.catalogue = promise_recorded_runs(store, traces)
        self.opening = promise_opening(store)
        lessons = Lessons(store, traces)
        self._calls: Mapping[str, Callable[..., dict[str, Any]]] = {
            "model": lambda asked: foreseen(asked, limits, self._models),
            "lessons": lambda language: {"url": lessons.document(language)},
            "lesson_file": lambda *which: {"url": lessons.file(*which)},
            "lesson_check": lambda lesson, run, language: {
                "goals": lessons.check(lesson, store.trace(run), language)
            },
            "open_comparison": lambda name: {"url": comparisons.open_recorded(name, store)},
            "attention": self.attention,
        }

    def warm_up(self) -> None:
        """Import what a run needs and load the built-in models, in a thread, once no more files are
        requested for a moment. Call it for each file: importing holds Python's lock for much of its
        time, and would delay a browser that is still loading the page.
        """
        self._served = time.monotonic()
        if self._is_warm.acquire(blocking=False):
            threading.Thread(target=self._prepare, name="warm-up", daemon=True).start()

    def _prepare(self) -> None:
        latest = self._served + _LATEST_S
        while (left := min(self._served + _QUIET_S, latest) - time.monotonic()) > 0:
            time.sleep(left)
        load_libraries()
        for name in BUILTIN_MODELS:  # small: so nobody has to wait for them behind a large one
            self._models.get(name, "cpu")

    def state(self) -> dict[str, Any]:
        """Models, presets, policies, limits and recorded runs."""
        return offers.for_runs(self._limits, self.model_at_start) | {"catalogue": self.catalogue}

    def comparisons(self) -> dict[str, Any]:
        """Recorded comparisons, presets, policies and knobs."""
        return comparisons.catalogue(self._limits, model=self.model_at_start)

    @answering
    def call(self, name: str, args: object, address: str = "") -> dict[str, Any]:
        """The answer to a call, see `visualizer.jobs.calls`; it may take seconds. address: of the
        visitor, whose quota stored files count against.
        """
        kept = {
            call.__name__: partial(call, client=address)
            for call in (self.store.export, self.store.export_ranks)
        }
        return answered({**self._calls, **kept}, name, args)

    # -- jobs: to be called on the event loop ------------------------------------------------------

    @answering
    def begin(self, kind: object, spec: object, visitor: str, address: str = "") -> dict[str, Any]:
        """Start a job; returns `{"job": id}`. kind: run, leak, compare, equivalence, fork, plan or
        simulate. A visitor may have one run and one job of another kind.
        """
        return {"job": self.jobs.begin(self._job(kind, spec), visitor, address).id}

    def follow(self, job: object, start: int = 0) -> AsyncIterator[bytes]:
        """A job's deltas from a number on, as events; raises Refused for an unknown job."""
        found = self.jobs.find(job)
        if found is None:
            raise Refused(
                "This run is no longer on the server, which may have been restarted: run it again."
            )
        return self.jobs.follow(found, start)

    def cancel(self, job: str) -> dict[str, Any]:
        return {"cancelled": self.jobs.cancel(job)}

    def _job(self, kind: object, spec: object) -> Job:
        if kind == "run":
            return run_for(check(spec, self._limits), self._limits, self._models, self.store)
        if kind == "leak":
            checked = check(spec, self._limits)
            on_cpu = checked._replace(device="cpu") if is_lent() else checked
            return Job(LeakyRun(on_cpu, self._limits), self._limits, self._models, self.store)
        if not isinstance(kind, str) or kind not in comparisons.KINDS or not isinstance(spec, dict):
            raise Refused(
                f"This page can run, leak, {', '.join(sorted(comparisons.KINDS))}; ask by name,"
                " with a spec."
            )
        return comparisons.job(kind, spec, self._limits, self._models, self.store)

    # -- files -------------------------------------------------------------------------------------

    def upload(self, data: bytes, names: Sequence[str] = (), address: str = "") -> dict[str, Any]:
        """Open a saved trace or an engine's ranks, see `open_upload`; errors are answers."""
        what = f"{'These files' if len(names) > 1 else 'This file'} cannot be opened as a trace: "
        return answering(open_upload, what)(data, self.store, self._limits, names, address)

    def dataset(self, data: bytes, name: str, model: str) -> dict[str, Any]:
        """A published workload as requests for the editor, scaled to a model: `{"workload",
        "block_size", "says"}`; an error is an answer.
        """
        return answering(open_dataset, "This file cannot be opened as a workload: ")(
            data, name, model, self._limits
        )

    def attention(
        self, run: str, step: int, pass_index: int, layer: int, head: int
    ) -> dict[str, Any]:
        """`{"segments"}`: the real weights of one head over each segment of a pass."""
        trace = self.store.trace(run)
        which = model_of(trace.header, self._limits, self._models)
        load_libraries()
        adapter, _ = self._models.get(*which)
        layers = len(adapter.shapes)
        return {
            "segments": attention_weights(
                trace, weigh_by(adapter), layers, step, pass_index, layer, head
            )
        }
