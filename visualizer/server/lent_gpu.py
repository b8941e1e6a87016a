"""A GPU on loan: on Hugging Face's ZeroGPU there is one only inside a function decorated with `spaces.GPU`, which runs it in a forked
process and hands back what it yields. There the model is loaded and the engine runs; here its trace is put together again.

Where the package `spaces` is missing, or finds that this is not ZeroGPU, nothing is lent and this module has no effect.
Importing it decorates the function, which ZeroGPU wants before the page is launched and before CUDA is first used.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

from core.models.cache import ModelCache
from core.trace.trace import Trace
from visualizer.server.jobs import Cancelled, RunJob
from visualizer.server.limits import Limits, Refused, Spec
from visualizer.server.store import Store

COMPARISONS = "Here live runs are lent a GPU, while comparisons are computed on the CPU."

_PERIOD = 0.05  # seconds between two parts: what a cancelled run goes on for at most
_SETTING_UP = 20  # seconds to start CUDA, load a model and compile its kernels
log = logging.getLogger("inflight")


Part = tuple[
    Trace | None, dict[str, Any]
]  # the run with its events since the last part, once it has begun; the job's answer, once it has ended


@cache
def _models() -> ModelCache:
    """The lent process's own, kept from run to run: the lock of the page's may have been taken at the fork."""
    return ModelCache()


def _parts(spec: Spec, limits: Limits) -> Iterator[Part]:
    """In the lent process: the run, several times a second, until its end."""
    import torch

    torch.set_num_threads(torch.get_num_threads())  # renews torch's pool after the fork, at which two loading threads can trip
    run = RunJob(spec, limits, _models())
    run.start()
    taken, ended = 0, False
    try:
        while not ended:
            ended = run.wait(_PERIOD)  # before looking, so that nothing is missed
            trace, part = run.trace, None
            if trace is not None:
                part = Trace(trace.header, dict(trace.asked), trace.events[taken:], complete=trace.complete)
                taken += len(part.events)
            yield part, run.answer if ended else {}
    finally:
        run.cancel()
        run.wait()  # the process may be lent again at once


def _seconds(spec: Spec, limits: Limits) -> int:
    """For how long a run needs the GPU at most."""
    return math.ceil(limits.seconds) + _SETTING_UP


def _decorated() -> Callable[[Spec, Limits], Any] | None:
    """`_parts` on a lent GPU; None where none is lent."""
    try:
        import spaces
    except ImportError:
        return None
    decorated = spaces.GPU(_parts, duration=_seconds)
    return None if decorated is _parts else decorated  # outside ZeroGPU the decorator returns the function unchanged


_LENT = _decorated()


def is_lent() -> bool:
    """Whether runs are lent a GPU here."""
    return _LENT is not None


def run_for(spec: Spec, limits: Limits, models: ModelCache, store: Store) -> RunJob:
    """The run, on a lent GPU where there is one, unless it asks for another device."""
    return (LentRunJob if is_lent() and spec.device in ("auto", "cuda") else RunJob)(spec, limits, models, store)


class LentRunJob(RunJob):
    """A run whose engine is in a lent process; its trace grows here as parts arrive. It ends when its visitor leaves, whose quota pays."""

    outlives_reader = False

    def work(self) -> dict[str, Any]:
        assert _LENT is not None
        # What is refused is refused now, before a visitor's quota pays for a GPU; CUDA is not to be touched in this process.
        self.tokenizer = self.prepare("cpu")[0].tokenizer
        answer: dict[str, Any] = {}
        with closing(_LENT(self.spec, self.limits)) as parts:
            for part, answer in _relayed(parts):  # noqa: B007 (the last one is the job's)
                if part is not None:
                    trace = self.trace = self.trace or Trace(
                        part.header, part.asked, [], complete=False, tokenizer=self.tokenizer
                    )
                    trace.header, trace.asked, trace.complete = part.header, part.asked, part.complete
                    trace.events += part.events
                if self.is_cancelled:
                    raise Cancelled
        return answer


def _relayed(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts; raises Refused with the words of ZeroGPU, which has exceptions of several kinds for quotas, queues and lost GPUs."""
    while True:
        try:
            part = next(parts)
        except StopIteration:
            return
        except Exception as error:
            log.warning("ZeroGPU failed a run", exc_info=True)
            raise Refused(f"ZeroGPU, which lends this page its GPU, says: {_sentence(error)}.") from None
        yield part


def _sentence(error: Exception) -> str:
    """All that an exception says, in one sentence without its full stop."""
    text = " ".join(str(getattr(error, "message", error)).split()) or type(error).__name__  # str of a gr.Error is in quotes
    return re.sub(r"\.\s+([A-Z])", lambda start: f"; {start[1].lower()}", text)[:300].rstrip(".: ")
