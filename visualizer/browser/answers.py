"""Answers the calls of a page (as `visualizer.server.api` does on a server) in the browser tab,
with the same names, answers and deltas. A job's iterator pauses at every step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError, UnsupportedModel
from core.torch_engine.models.tokenizer import ModelDescription, describe_model
from core.trace.trace import Trace
from visualizer.browser.kept import Kept
from visualizer.jobs import offers
from visualizer.jobs.attention import attention_weights
from visualizer.jobs.calls import answered
from visualizer.jobs.files import Wanted, answer_to, open_files, read_workload
from visualizer.jobs.limits import IN_TAB, Refused, Spec, check, check_upload
from visualizer.jobs.measured import KINDS
from visualizer.jobs.work import LeakyRun, Run, Work
from visualizer.lessons import tasks
from visualizer.lessons.document import recorded
from visualizer.write.attempt import Attempt, Beside
from visualizer.write.exercises import Check
from visualizer.write.tasks import PolicyTask, task_named

NO_ANSWER = "The engine in this tab cannot run this: it takes a page with a server."
_MOMENT = 0.01  # seconds that an engine waits for an arrival before other work has its turn

log = logging.getLogger("inflight")

Sleep = Callable[[float], None]
Delta = dict[str, Any]


class NotLoaded(UnsupportedModel):
    """A model's weights are not in this tab yet."""

    def __init__(self, model: str) -> None:
        super().__init__(f"The model {model} is not loaded in this tab.")
        self.model = model


Engines = Callable[[str, EngineConfig, bool, Sleep], EngineCore]
"""Makes an engine from a model's name, a config, `leaks` (see `visualizer.jobs.work.Host`), and the
function by which the engine waits for an arrival. Raises NotLoaded.
"""


class Answers:
    """engines: makes the engines of jobs. weights: gives the attention of a model, see `Weigh`;
    None if unknown. between: called between the steps of a timed run, which cannot pause. describe:
    describes a model for reading a workload; raises NotLoaded.
    """

    def __init__(
        self,
        engines: Engines,
        weights: Callable[..., Sequence[Sequence[float]]] | None = None,
        between: Callable[[], None] = lambda: None,
        describe: Callable[[str], ModelDescription] = describe_model,
    ) -> None:
        self._engines, self._weights, self._between, self._kept = engines, weights, between, Kept()
        self._describe, self._limits = describe, IN_TAB
        self._recorded = recorded()
        self._calls: Mapping[str, Callable[..., dict[str, Any]]] = {
            "state": lambda: offers.for_runs(self._limits) | {"catalogue": []},
            "upload": self._upload,
            "dataset": self._dataset,
            "export": self._kept.export,
            "export_ranks": lambda run, step, rank, at: self._kept.export_page(
                run, {"step": step, "rank": rank, "at": at}
            ),
            "attention": self._attention,
            "lesson_check": lambda lesson, run, language: {
                "goals": tasks.check(lesson, self._kept.trace(run), self._recorded, language)
            },
        }

    def offer(self, model: str) -> None:
        """Offer a visitor's own model by its name from now on."""
        offered = dict.fromkeys((*self._limits.offered, model))
        self._limits = replace(self._limits, offered=tuple(offered))

    def call(self, name: str, args: Sequence[Any] = ()) -> dict[str, Any]:
        """The answer to a call, see `visualizer.jobs.calls`; a refusal is `{"error": one
        sentence}`. The answer `{"needs": model}` means: load that model and call again.
        """
        try:
            if name not in self._calls:
                raise Refused(NO_ANSWER)
            return answered(self._calls, name, args)
        except NotLoaded as error:
            return {"needs": error.model}
        except InflightError as error:
            return {"error": str(error)}

    def document(self, url: str) -> str:
        """The content at an address `tab:…`: JSON, or the text of a file. Raises InflightError."""
        return self._kept.text(url)

    def begin(self, kind: str, spec: Any) -> ComputedJob:
        """A job as an iterator of deltas. kind: run, leak, compare, fork, plan, simulate, or
        policy, which runs a visitor's code in a sandbox. Raises InflightError for an invalid spec.
        """
        return ComputedJob(self._work(kind, spec), self)

    def _work(self, kind: str, spec: Any) -> Work:
        if kind == "run":
            return Run(check(spec, self._limits), self._limits)
        if kind == "leak":
            return LeakyRun(check(spec, self._limits), self._limits)
        if kind == "policy" and isinstance(spec, dict):
            task, code = task_named(spec.get("task")), spec.get("code", "")
            if not isinstance(task, PolicyTask):
                return Check(task.name, code)
            return (Beside if spec.get("beside") else Attempt)(task, code, self._limits)
        if kind not in KINDS or not isinstance(spec, dict):
            raise Refused(NO_ANSWER)
        return KINDS[kind](spec, self._limits)

    # -- calls -------------------------------------------------------------------------------------

    def _upload(self, text: str, names: Sequence[str] = ()) -> dict[str, Any]:
        """Open a saved trace, a recording of another engine, or its ranks: see `open_files`."""
        what = f"{'These files' if len(names) > 1 else 'This file'} cannot be opened as a trace: "
        return _opened(what, text, lambda: open_files(text, names, self._kept))

    def _dataset(self, text: str, name: str, model: str) -> dict[str, Any]:
        """A published workload as requests for the editor: see `read_workload`."""

        described = self._describe(model) if model in self._limits.offered else None

        def read() -> dict[str, Any]:
            wanted = Wanted.within(self._limits, name, model)
            assert described is not None
            return read_workload(text, wanted, described)

        return _opened("This file cannot be opened as a workload: ", text, read)

    def _attention(
        self, run: object, step: int, pass_index: int, layer: int, head: int
    ) -> dict[str, Any]:
        trace = self._kept.trace(run)
        model = trace.header.model
        if model.name not in self._limits.offered or self._weights is None:
            raise Refused("Attention weights are shown for this page's own models only.")
        weigh = partial(self._weights, model.name)
        layers = model.layers or 0
        segments = attention_weights(trace, weigh, layers, step, pass_index, layer, head)
        return {"segments": segments}

    # -- as a Host --------------------------------------------------------------------------------

    def engine(self, spec: Spec, config: EngineConfig, leaks: bool = False) -> EngineCore:
        """See `Host`."""
        return self._engines(
            spec.model, config, leaks, lambda seconds: time.sleep(min(seconds, _MOMENT))
        )

    def between(self) -> None:
        """See `Host`. Only ending the worker stops a timed run."""
        self._between()

    def keep(self, trace: Trace) -> dict[str, Any]:
        """See `Host`."""
        try:
            return self._kept.put(trace)
        except Exception as error:  # the page has its steps: the run itself is not affected
            log.exception("a run could not be kept")
            return {"unkept": f"This run could not be kept: {type(error).__name__}."}

    def keep_document(self, document: dict[str, Any]) -> str:
        """See `Host`."""
        return self._kept.put_document(document)["url"]

    def recorded(self, run: object) -> Trace:
        """See `Host`."""
        return self._kept.trace(run)


def _opened(what: str, text: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer of a file's reader; `what` precedes an error."""

    def checked() -> dict[str, Any]:
        check_upload(len(text.encode("utf-8", "surrogatepass")), IN_TAB)
        return read()

    said = answer_to(checked)
    return {"error": what + said["error"]} if "error" in said else said


class ComputedJob(Iterator[Delta | None]):
    """A job that advances with every call of `next`: a delta like that of a server's job, or None
    if there is no news. The last delta has "done".
    """

    def __init__(self, work: Work, host: Answers) -> None:
        self._work, self._deltas, self._stopped = work, self._all(work, host), False

    def __next__(self) -> Delta | None:
        return next(self._deltas)

    def stop(self) -> None:
        """Stop the job; only its last deltas follow."""
        self._stopped = True

    def failed(self, error: Exception) -> Delta:
        return {"done": True, **self._work.failed(error)}

    def _all(self, work: Work, host: Answers) -> Iterator[Delta | None]:
        going, said_at = work.run(host), -1.0
        try:
            while not self._stopped:
                next(going)
                now, news = time.monotonic(), None
                if now - said_at >= work.period:
                    news = work.news()
                    said_at = said_at if news is None else now
                yield news
            going.close()
            answer = {"stopped": work.stopped()}
        except StopIteration as end:
            answer = end.value
        except Exception as error:  # a refusal, or a bug: this job fails, the worker goes on
            answer = work.failed(error)
        answer = {**answer, **work.keep(host)}
        while (news := work.news()) is not None:
            yield news
        yield {"done": True, **answer}
