"""Jobs: computations requested by visitors, each in its own thread. All kinds queue, end, time out and report progress in the same way.

A job's deltas are kept in its log; anyone who knows its id can follow them, so a page that lost its connection or was
reloaded finds its job. A job without readers ends: at once if others wait for its place, otherwise after a grace period.
An engine appends events to its trace as it always does; streaming reads them there, so it costs the engine nothing but a turn of
Python's lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from core.config import EngineConfig
from core.errors import InflightError, InvalidRequest
from core.runner.threads import CORE_SHARES
from core.serving.event_log import EventLog, events
from core.serving.timeouts import Wait
from core.trace.events import RECORDS
from core.trace.messages import english
from visualizer.documents.replay import Deltas
from visualizer.server.job_queue import JobQueue
from visualizer.server.limits import Limits, Refused, Spec, as_the_page_says, check_tokens
from visualizer.server.messages import rendered
from visualizer.server.store import Store

if TYPE_CHECKING:
    from core.models.cache import ModelCache
    from core.runner.engine import Engine
    from core.trace.events import StepEvent
    from core.trace.trace import Trace
    from core.workload.workload import Workload

FIRST_READER = 5.0  # seconds (see `after`) within which the stream of a new job has to be opened
GRACE = 10.0  # seconds for which a job continues after its last reader left, if its place is not needed
_ALIVE = 1.0  # seconds between deltas at most while a job is running
_END = 5.0  # seconds for which a cancelled job keeps its place while its thread ends
_KEPT = 16  # ended jobs whose deltas can still be read
log = logging.getLogger("inflight")


class Cancelled(Exception):
    """Raised inside the thread of a job that was cancelled."""


class Job:
    """One piece of work, which runs engines on a visitor's requests. Each kind defines what is done in its thread (`work`, then `keep`) and what is
    reported meanwhile (`news`). store: where its runs are kept; None if they are kept elsewhere.

    noun: its name in sentences. queue: the name of its queue. period: seconds between checks for news.
    """

    noun = "job"
    queue = "runs"
    period = 0.1
    outlives_reader = True  # whether it continues for a while after its last reader left

    def __init__(self, spec: Spec, limits: Limits, models: ModelCache, store: Store | None = None) -> None:
        self.spec, self.limits, self.models, self.store = spec, limits, models, store
        self.id = secrets.token_urlsafe(12)
        self.visitor = self.address = ""
        self.event_log = EventLog()
        self.round = 0  # in its queue, see `JobQueue`
        self.readers, self.was_followed = 0, False
        self.progress: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.has_begun = self.is_idle = False
        self._deadline = float("inf")
        self._cancelled, self._ended = threading.Event(), threading.Event()
        self._last_news: dict[str, Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._moved = asyncio.Event()

    # -- a kind of job says ------------------------------------------------------------------------------------------

    def work(self) -> dict[str, Any]:
        """Runs in the job's thread and returns the answer, the last delta. It calls `check` wherever it can be stopped."""
        raise NotImplementedError

    def keep(self) -> dict[str, Any]:
        """Runs in the job's thread after the work, even if that failed; returns what was stored, as part of the answer."""
        return {}

    def news(self) -> dict[str, Any] | None:
        """The next delta, None if there is nothing new; called on the event loop."""
        if self.progress == self._last_news:
            return None
        self._last_news = dict(self.progress)
        return {"progress": self._last_news}

    def cancelled(self) -> str:
        """The reason for an early end, in a sentence."""
        return f"The {self.noun} was cancelled{'' if self.has_begun else ' before it began'}."

    def engine(self, config: EngineConfig, device: str) -> Engine:
        from core.runner.engine import Engine  # imports torch, which must not delay the first paint

        return Engine(*self.model(device), config, sleep=self.sleep)

    def model(self, device: str) -> tuple[Any, Any]:
        """The model and its tokenizer. Loading is part of the progress, can be cancelled, and does not count as time of the job. Once they are there,
        conversations among the requests are written as the model's template does.
        """
        from core.models.watch import Stopped

        def watch(phase: str, done: int, total: int) -> None:
            if self.is_cancelled:
                raise Stopped
            self.progress = {**before, "loading": {"phase": phase, "done": done, "total": total}}

        spec, before, began = self.spec, self.progress, time.monotonic()
        try:
            found = self.models.get(spec.model, device, spec.dtype, watch)
        except Stopped:
            raise Cancelled from None
        finally:
            self.progress = before
        self._deadline += time.monotonic() - began
        self.spec = spec._replace(workload=rendered(spec.workload, spec.conversations, found[1], spec.model), conversations={})
        return found

    def steps(self, engine: Engine, workload: Workload) -> Iterator[StepEvent]:
        """The steps of an engine; the job can be stopped at each. Everything is checked before the first; raises InflightError."""
        steps = engine.stream(workload)
        check_tokens(engine.trace.prompts, workload, self.limits)

        def taken() -> Iterator[StepEvent]:
            CORE_SHARES.apply()
            for count, event in enumerate(steps, 1):
                yield event
                CORE_SHARES.apply()
                if engine.has_work:
                    self.check()
                    if count >= self.limits.steps:
                        raise Refused(f"The {self.noun} was stopped after {count:,} steps, the most that this page runs.")

        return taken()

    # -- its thread ----------------------------------------------------------------------------------------------------

    def check(self, *_: Any) -> None:
        """Raises Cancelled, or Refused once the job has exceeded its time limit."""
        if self.is_cancelled:
            raise Cancelled
        if time.monotonic() > self._deadline:
            raise Refused(
                f"The {self.noun} was stopped after {self.limits.seconds:,.0f} seconds, the longest that this page runs."
            )

    def sleep(self, seconds: float) -> None:
        """Wait for the next arrival on the engine's behalf: a cancellation ends the wait, and another job may use the place meanwhile."""
        self.is_idle = True
        self._wake()
        try:
            if self._cancelled.wait(seconds):
                raise Cancelled
        finally:
            self.is_idle = False
            self._wake()

    def run(self) -> None:
        """Do the work and set `answer`, even if it fails."""
        self._deadline = time.monotonic() + self.limits.seconds
        try:
            with CORE_SHARES.at_work():
                self.answer = self.work()
        except Cancelled:
            self.answer = {"stopped": self.cancelled()}
        except InflightError as error:
            asked = self.spec.workload  # its requests have the page's letters
            self.answer = {"error": str(as_the_page_says(error, asked) if isinstance(error, InvalidRequest) else error)}
        except Exception as error:  # a bug or a machine out of memory: this job fails, the server goes on
            log.exception("a %s failed", self.noun)
            self.answer = {"error": f"The {self.noun} failed inside the engine: {type(error).__name__}."}
        finally:
            try:
                self.answer |= self.keep()
            finally:
                self._ended.set()

    def start(self) -> None:
        """Start the thread in the caller's context, which names the visitor."""
        self.has_begun = True
        threading.Thread(target=contextvars.copy_context().run, args=(self.run,), name=self.noun, daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its thread, at most `seconds`; whether it has ended."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """End it at its next check. May be called from any thread."""
        self._cancelled.set()
        self._wake()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def is_abandoned(self) -> bool:
        """Whether it had readers, and has none left."""
        return self.was_followed and not self.readers

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._moved.set)


class RunJob(Job):
    """One run, streamed while it is computed. trace, tokenizer: set once the requests are accepted."""

    noun = "run"
    period = 0.04

    def __init__(self, spec: Spec, limits: Limits, models: ModelCache, store: Store | None = None) -> None:
        super().__init__(spec, limits, models, store)
        self.trace: Trace | None = None
        self.tokenizer: Any = None
        self._deltas: Deltas | None = None
        self._num_sent = 0
        self.progress = {"step": None, "tokens": 0, "total_tokens": sum(r.sampling.max_new_tokens for r in spec.workload)}

    def cancelled(self) -> str:
        if not self.has_begun:
            return super().cancelled()
        steps = len(self.trace.events) if self.trace else 0
        return english(f"The run was cancelled after {steps:,} [step|steps].")

    def work(self) -> dict[str, Any]:
        """Compute the run."""
        engine, steps = self.prepare(self.spec.device)
        self.tokenizer, self.trace = engine.tokenizer, engine.trace
        for _ in steps:
            pass
        return {}

    def keep(self) -> dict[str, Any]:
        return self.store.keep(self.trace) if self.store is not None and self.trace is not None and self.trace.events else {}

    def prepare(self, device: str) -> tuple[Engine, Iterator[StepEvent]]:
        """The engine and an iterator over its steps; raises InflightError if the model cannot run them or the page does not accept them."""
        engine = self.engine(self.spec.config, device)
        return engine, self.steps(engine, self.spec.workload)

    def news(self) -> dict[str, Any] | None:
        trace, body = self.trace, {}
        if trace is None:
            return super().news() if "loading" in self.progress else None
        if self._deltas is None:
            self._deltas, body = Deltas.of(trace, self.tokenizer), {"records": RECORDS, "header": trace.about()}
        events = trace.events[self._num_sent :]
        if events:
            body |= self._deltas.delta(events)
            self._num_sent += len(events)
            tokens = self.progress["tokens"] + sum(len(event.sampled) for event in events)
            self.progress = {**self.progress, "step": events[-1].step, "tokens": tokens}
        return {**body, "progress": self.progress} if body else None


class LeakyRunJob(RunJob):
    """A run with a leaking mask: every request also reads the keys of the next one in the pass."""

    def engine(self, config: EngineConfig, device: str) -> Engine:
        from core.measure.mistakes import leaky_engine

        return leaky_engine(*self.model(device), config, self.sleep)


class Jobs:
    """All jobs of a server. queues: by name, see `Job.queue`. Use it on the event loop only; `stop` may be called from elsewhere."""

    def __init__(self, queues: dict[str, JobQueue]) -> None:
        self._queues = queues
        self._kept: OrderedDict[str, Job] = OrderedDict()
        self._conducted: set[asyncio.Task[Any]] = set()

    def begin(self, job: Job, visitor: str, address: str = "") -> Job:
        """Queue a job, to run once a place is free. A visitor has one in each queue; raises Refused."""
        queue = self._queues[job.queue]
        last = queue.of(visitor)
        if last is not None and last.is_abandoned:
            last.cancel()
        elif last is not None:
            raise Refused(f"Your last {last.noun} is still running: cancel it or wait for it to end.")
        if not queue.make_room(address):
            raise Refused(f"Too many visitors are waiting for a {job.noun} now: try again in a minute. Recorded runs still play.")
        job.visitor, job.address, job._loop = visitor, address, asyncio.get_running_loop()
        queue.enter(job)
        if queue.ahead(job):
            for other in queue:
                if other.is_abandoned:
                    other.cancel()  # to free its place
        self._kept[job.id] = job
        for old in [j for j in self._kept.values() if j.event_log.closed][:-_KEPT]:
            del self._kept[old.id]
        conducted = asyncio.create_task(self._conduct(job, queue))
        self._conducted.add(conducted)
        conducted.add_done_callback(self._conducted.discard)
        Wait(FIRST_READER, lambda: None if job.was_followed else job.cancel())
        return job

    def find(self, job: object) -> Job | None:
        """A job by its id, which only its visitor knows."""
        return self._kept.get(job) if isinstance(job, str) else None

    def cancel(self, job: object) -> bool:
        """Cancel a job by its id; whether there was one."""
        found = self.find(job)
        if found is None:
            return False
        found.cancel()
        return True

    async def follow(self, job: Job, start: int = 0) -> AsyncIterator[bytes]:
        """A job's deltas from a number on, see `core.serving.event_log.events`. The job continues as long as it has readers."""
        job.readers, job.was_followed = job.readers + 1, True
        try:
            async for piece in events(job.event_log, start - 1):
                yield piece
        finally:
            job.readers -= 1
            self._left(job)

    def stop(self, seconds: float) -> None:
        """Cancel everything and wait at most `seconds` for threads to end. May be called from any thread."""
        jobs = [job for queue in self._queues.values() for job in queue]
        for job in jobs:
            job.cancel()
        until = time.monotonic() + seconds
        for job in jobs:
            if job.has_begun:
                job.wait(max(0.0, until - time.monotonic()))

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _conduct(self, job: Job, queue: JobQueue) -> None:
        """Take a job from its entry to its last delta."""
        try:
            await self._wait_for_place(job, queue)
            if job.is_cancelled or job.is_abandoned:
                job.answer = {"stopped": job.cancelled()}
            else:
                job.start()
                self._wake_all(queue)
                await self._follow_work(job, queue)
        except Exception:
            log.exception("a %s could not be followed", job.noun)
            job.answer = {"error": f"The {job.noun} failed on the server."}
        finally:
            job.cancel()
            queue.leave(job)
            self._wake_all(queue)
            job.event_log.append({"job": job.id, "done": True, **job.answer})
            job.event_log.close()

    async def _wait_for_place(self, job: Job, queue: JobQueue) -> None:
        last = 0
        while not job.is_cancelled and (ahead := queue.ahead(job)):
            if ahead != last:
                job.event_log.append({"job": job.id, "progress": {"ahead": ahead}})
                last = ahead
            job._moved.clear()
            await job._moved.wait()

    async def _follow_work(self, job: Job, queue: JobQueue) -> None:
        sent_at, idle, leave_at = 0.0, False, float("inf")
        while True:
            ended = job.wait(0)  # checked first, so that nothing is missed
            now = time.monotonic()
            news = job.news()
            if news is not None or (now - sent_at > _ALIVE and not ended):
                job.event_log.append({"job": job.id, **(news or {"progress": job.progress})})
                sent_at = now
            if job.is_idle != idle:
                idle = job.is_idle
                self._wake_all(queue)
            if ended:
                if news is None:
                    return
                continue
            if job.is_cancelled and leave_at == float("inf"):
                leave_at = now + _END
            if now > leave_at:
                job.answer = {"stopped": job.cancelled()}
                return
            await asyncio.sleep(job.period)

    def _wake_all(self, queue: JobQueue) -> None:
        """Let every job check whether its position has changed."""
        for job in queue:
            job._moved.set()

    def _left(self, job: Job) -> None:
        """A reader left; without readers a job ends after the grace period."""
        if job.readers or job.event_log.closed:
            return
        if job.has_begun and (not job.outlives_reader or any(not other.has_begun for other in self._queues[job.queue])):
            job.cancel()
        else:
            Wait(GRACE, lambda: None if job.readers else job.cancel())
