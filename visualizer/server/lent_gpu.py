"""Runs on a borrowed GPU: on Hugging Face's ZeroGPU one is available only inside a function
decorated with `spaces.GPU`, which runs in a forked process and yields its results. The model and
the engine are there; this process reassembles the trace.

Without the package `spaces`, or outside ZeroGPU, this module has no effect. Importing it decorates
the function, which ZeroGPU requires before the page is launched and before CUDA is first used.
"""

import logging
import math
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

from core.torch_engine.models.cache import ModelCache
from core.trace.trace import Trace
from visualizer.jobs.limits import Limits, Refused, Spec
from visualizer.jobs.work import Going, Host, Run
from visualizer.server.jobs import Cancelled, Job
from visualizer.server.store import Store

COMPARISONS = "Here live runs are lent a GPU, while comparisons are computed on the CPU."

_PERIOD = 0.05  # seconds between two parts, and the longest that a cancelled run continues
_SETTING_UP = 20  # seconds to start CUDA, load a model and compile its kernels
log = logging.getLogger("inflight")


# the run with its events since the previous part, once it has begun, and the job's answer, once it
# has ended
Part = tuple[Trace | None, dict[str, Any]]


@cache
def _models() -> ModelCache:
    """The models of the forked process; the page's own cache may have been locked at the fork."""
    return ModelCache()


def _parts(spec: Spec, limits: Limits) -> Iterator[Part]:
    """The parts of the run, several a second, until its end; runs in the forked process."""
    import torch

    # recreates torch's thread pool after the fork: loading in two threads can fail on the old one
    torch.set_num_threads(torch.get_num_threads())
    work = Run(spec, limits)
    run = Job(work, limits, _models())
    run.start()
    taken, ended = 0, False
    try:
        while not ended:
            ended = run.wait(_PERIOD)  # before looking, so that nothing is missed
            trace, part = work.trace, None
            if trace is not None:
                part = Trace(
                    trace.header, dict(trace.asked), trace.events[taken:], complete=trace.complete
                )
                taken += len(part.events)
            yield part, run.answer if ended else {}
    finally:
        run.cancel()
        run.wait()  # the process may be reused at once


def _seconds(spec: Spec, limits: Limits) -> int:
    """The longest time for which a run needs the GPU, in seconds."""
    return math.ceil(limits.seconds) + _SETTING_UP


def _decorated() -> Callable[[Spec, Limits], Any] | None:
    """`_parts` on a borrowed GPU; None outside ZeroGPU."""
    try:
        import spaces
    except ImportError:
        return None
    decorated = spaces.GPU(_parts, duration=_seconds)
    # outside ZeroGPU the decorator returns the function unchanged
    return None if decorated is _parts else decorated


_LENT = _decorated()


def is_lent() -> bool:
    """Whether runs borrow a GPU here."""
    return _LENT is not None


def report_start() -> None:
    """Tell ZeroGPU, if it is used, that the page is about to be served. ZeroGPU notices that itself
    only if Gradio launches the page, and lends no GPU before.
    """
    if is_lent():
        from spaces import zero

        zero.startup()


def run_for(spec: Spec, limits: Limits, models: ModelCache, store: Store) -> Job:
    """The job for a run: on a borrowed GPU if there is one, unless another device is requested."""
    if is_lent() and spec.device in ("auto", "cuda"):
        return LentJob(LentRun(spec, limits), limits, models, store)
    return Job(Run(spec, limits), limits, models, store)


class LentJob(Job):
    """The job of a run on a borrowed GPU. It ends when its visitor leaves, since it uses the
    visitor's quota; its time is limited in the forked process.
    """

    outlives_reader = False

    def between(self) -> None:
        if self.is_cancelled:
            raise Cancelled


class LentRun(Run):
    """A run whose engine is in a forked process; its trace grows here as parts arrive."""

    def run(self, host: Host) -> Going:
        assert _LENT is not None
        # refuse invalid requests now, before a visitor's quota is used; CUDA must not be touched in
        # this process
        asked, self.spec = self.spec, self.spec._replace(device="cpu")
        engine = host.engine(self.spec, asked.config)
        self.steps(engine, self.spec.workload)
        self.tokenizer = engine.tokenizer
        self.spec = self.spec._replace(device=asked.device)
        answer: dict[str, Any] = {}
        with closing(_LENT(self.spec, self.limits)) as parts:
            for part, answer in _relayed(parts):  # noqa: B007
                if part is not None:
                    if self.trace is None:
                        self.trace = Trace(
                            part.header, part.asked, [], complete=False, tokenizer=self.tokenizer
                        )
                    trace = self.trace
                    trace.header = part.header
                    trace.asked = part.asked
                    trace.complete = part.complete
                    trace.events += part.events
                yield
        return answer


def _relayed(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts; raises Refused with ZeroGPU's message if it fails."""
    while True:
        try:
            part = next(parts)
        except StopIteration:
            return
        except Exception as error:
            log.warning("ZeroGPU failed a run", exc_info=True)
            raise Refused(
                f"ZeroGPU, which lends this page its GPU, says: {_sentence(error)}."
            ) from None
        yield part


def _sentence(error: Exception) -> str:
    """The message of an exception, as one sentence without its full stop."""
    # str of a gr.Error has quotes
    text = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__
    return re.sub(r"\.\s+([A-Z])", lambda start: f"; {start[1].lower()}", text)[:300].rstrip(".: ")
