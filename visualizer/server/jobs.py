"""Runs the work that visitors request, each job in a thread of its own. All kinds queue, end, time
out and report progress in the same way.

A job's deltas are kept in its log, and anyone who knows its id can follow them; so a page that lost
its connection or was reloaded finds its job again. A job without readers ends: at once if others
wait for its place, otherwise after a grace period. Streaming reads the engine's trace, so it costs
the engine only a moment of Python's lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from core.config import EngineConfig
from core.serving.event_log import EventLog, events
from core.serving.timeouts import Wait
from core.serving.turns import beyond
from core.torch_engine.cpu.threads import CORE_SHARES
from core.torch_engine.models.libraries import load_libraries
from visualizer.jobs.limits import Limits, Refused, Spec, TimeIsUp
from visualizer.jobs.work import Work
from visualizer.server.store import Store

if TYPE_CHECKING:
    from core.torch_engine.engine import Engine
    from core.torch_engine.models.cache import ModelCache
    from core.trace.trace import Trace


FIRST_READER = 5.0  # seconds within which the stream of a new job has to be opened
# seconds for which a job continues after its last reader left, if its place is not needed
GRACE = 10.0
_ALIVE = 1.0  # the most seconds between two deltas of a running job
_END = 5.0  # seconds for which a cancelled job keeps its place while its thread ends
_KEPT = 16  # ended jobs whose deltas can still be read
log = logging.getLogger("inflight")


class Cancelled(Exception):
    """Raised inside the thread of a job that was cancelled."""


class Job:
    """A visitor's work in a thread of the server, and the `Host` of that work. store: for its runs,
    None if they are stored elsewhere. queue: the name of its queue.
    """

    outlives_reader = True  # whether it continues for a while after its last reader left

    def __init__(
        self,
        work: Work,
        limits: Limits,
        models: ModelCache,
        store: Store | None = None,
        queue: str = "runs",
    ) -> None:
        self.work, self.limits, self.models = work, limits, models
        self.store, self.queue = store, queue
        self.id = secrets.token_urlsafe(12)
        self.visitor = self.address = ""
        self.event_log = EventLog()
        self.round = 0  # in its queue, see `JobQueue`
        self.readers, self.was_followed = 0, False
        self.answer: dict[str, Any] = {}
        self.has_begun = self.is_idle = False
        self._deadline = float("inf")
        self._cancelled, self._ended = threading.Event(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._moved = asyncio.Event()

    @property
    def noun(self) -> str:
        return self.work.noun

    def cancelled(self) -> str:
        if self.has_begun:
            return self.work.stopped()
        return f"The {self.noun} was cancelled before it began."

    # -- as a Host --------------------------------------------------------------------------------

    def engine(self, spec: Spec, config: EngineConfig, leaks: bool = False) -> Engine:
        """See `Host`. Loading the model is progress, can be cancelled, and takes no time."""
        load_libraries()
        from core.torch_engine.engine import Engine

        model = self._model(spec)
        if not leaks:
            return Engine(*model, config, sleep=self.sleep)
        from core.proof.mistakes import leaky_engine

        return leaky_engine(*model, config, self.sleep)

    def _model(self, spec: Spec) -> tuple[Any, Any]:
        from core.torch_engine.models.watch import Stopped

        def watch(phase: str, done: int, total: int) -> None:
            if self.is_cancelled:
                raise Stopped
            self.work.progress = {
                **before,
                "loading": {"phase": phase, "done": done, "total": total},
            }

        before, began = self.work.progress, time.monotonic()
        try:
            found = self.models.get(spec.model, spec.device, spec.dtype, watch)
        except Stopped:
            raise Cancelled from None
        finally:
            self.work.progress = before
        self._deadline += time.monotonic() - began
        return found

    def between(self) -> None:
        CORE_SHARES.apply()
        self.check()

    def keep(self, trace: Trace) -> dict[str, Any]:
        return self.store.keep(trace, self.address) if self.store is not None else {}

    def keep_document(self, document: dict[str, Any]) -> str:
        assert self.store is not None
        return self.store.keep_document(document, self.address)

    def recorded(self, run: object) -> Trace:
        assert self.store is not None
        return self.store.trace(run)

    # -- its thread --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises Cancelled, or TimeIsUp."""
        if self.is_cancelled:
            raise Cancelled
        if time.monotonic() > self._deadline:
            raise TimeIsUp(
                f"The {self.noun} was stopped after {self.limits.seconds:,.0f} seconds, the longest"
                " that this page runs."
            )

    def sleep(self, seconds: float) -> None:
        """Wait for an arrival unless cancelled; another job may use the place meanwhile."""
        self.is_idle = True
        try:
            if self._cancelled.wait(seconds):
                raise Cancelled
        finally:
            self.is_idle = False

    def run(self) -> None:
        """Do the work and set `answer`, even if it fails."""
        self._deadline = time.monotonic() + self.limits.seconds
        try:
            with CORE_SHARES.at_work():
                self.answer = self._done()
        except Cancelled:
            self.answer = {"stopped": self.cancelled()}
        except Exception as error:
            # a refusal, a bug, or lack of memory: this job fails, the server continues
            self.answer = self.work.failed(error)
        finally:
            try:
                self.answer |= self.work.keep(self)
            finally:
                self._ended.set()

    def _done(self) -> dict[str, Any]:
        """The answer of the work, which is stopped where it yields, but may answer first."""
        with closing(self.work.run(self)) as going:
            try:
                while True:
                    next(going)
                    try:
                        self.between()
                    except TimeIsUp as up:
                        going.throw(up)
            except StopIteration as end:
                return end.value

    def start(self) -> None:
        """Start the thread in the caller's context, which identifies the visitor."""
        self.has_begun = True
        threading.Thread(
            target=contextvars.copy_context().run, args=(self.run,), name=self.noun, daemon=True
        ).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds` for the thread; returns whether it has ended."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """Stop the job at its next check. May be called from any thread."""
        self._cancelled.set()
        self._wake()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def is_abandoned(self) -> bool:
        """Whether the job had readers, and has none left."""
        return self.was_followed and not self.readers

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._moved.set)


class JobQueue:
    """The running and waiting jobs, round robin by address: a round has one job of each address, so
    that many jobs from one address wait behind the first of every other.

    places: how many jobs run at once. waiting: how many may wait.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self._places, self._waiting = places, waiting
        self._jobs: list[Job] = []  # in order of arrival
        self._last_round: dict[str, int] = {}  # by address

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def of(self, visitor: str) -> Job | None:
        return next((job for job in self._jobs if job.visitor == visitor), None)

    def enter(self, job: Job) -> None:
        """Queue a job in the round after its address's last, not before the current one."""
        if not self._jobs:
            self._last_round.clear()
        job.round = self._last_round[job.address] = self._next_round(job.address)
        self._jobs.append(job)

    def _next_round(self, address: str) -> int:
        served = max((j.round for j in self._jobs if j.has_begun), default=1)
        return max(served, self._last_round.get(address, 0) + 1)

    def make_room(self, address: str) -> bool:
        """Whether there is room for a job of this address. If the queue is full, the job that would
        wait longest is cancelled, provided that this address would be served before it.
        """
        here = [j for j in self._jobs if j.has_begun or not j.is_cancelled]
        if len(here) < self._places + self._waiting:
            return True
        # the last one to arrive among those of the last round
        waiting = (j for j in reversed(here) if not j.has_begun)
        last = max(waiting, key=lambda j: j.round, default=None)
        if last is None or last.round <= self._next_round(address):
            return False
        last.cancel()
        return True

    def leave(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            if not job.has_begun and job.round == self._last_round[job.address]:
                self._last_round[job.address] -= 1  # it was not served: it uses no round

    def ahead(self, job: Job) -> int:
        """How many jobs must end before this one begins; 0 if a place is free."""
        begun = [j for j in self._jobs if j.has_begun]
        # a job that waits for an arrival lends its place
        taken = max(sum(not j.is_idle for j in begun), len(begun) - self._places)
        waiting = [j for j in self._jobs if not j.has_begun]
        # in order of arrival within a round
        before = sorted(waiting, key=lambda j: j.round).index(job)
        return max(0, before + taken - self._places + 1)


class Jobs:
    """All jobs of a server. queues: by name, see `Job.queue`. For the event loop, except `stop`."""

    def __init__(self, queues: dict[str, JobQueue]) -> None:
        self._queues = queues
        self._kept: dict[str, Job] = {}
        self._conducted: set[asyncio.Task[Any]] = set()

    def begin(self, job: Job, visitor: str, address: str = "") -> Job:
        """Queue a job, one per visitor, to run once a place is free; raises Refused."""
        queue = self._queues[job.queue]
        last = queue.of(visitor)
        if last is not None and last.is_abandoned:
            last.cancel()
        elif last is not None:
            raise Refused(
                f"Your last {last.noun} is still running: cancel it or wait for it to end."
            )
        if not queue.make_room(address):
            raise Refused(
                f"Too many visitors are waiting for a {job.noun} now: try again in a minute."
                " Recorded runs still play."
            )
        job.visitor, job.address, job._loop = visitor, address, asyncio.get_running_loop()
        queue.enter(job)
        if queue.ahead(job):
            for other in queue:
                if other.is_abandoned:
                    other.cancel()  # to free its place
        self._kept[job.id] = job
        over = [j for j in self._kept.values() if j.event_log.closed]
        for old in beyond(_KEPT, over, lambda ended: ended.address):
            del self._kept[old.id]
        conducted = asyncio.create_task(self._conduct(job, queue))
        self._conducted.add(conducted)
        conducted.add_done_callback(self._conducted.discard)
        Wait(FIRST_READER, lambda: None if job.was_followed else job.cancel())
        return job

    def find(self, job: object) -> Job | None:
        """A job by its id, which only the visitor knows."""
        return self._kept.get(job) if isinstance(job, str) else None

    def cancel(self, job: object) -> bool:
        """Cancel a job by its id; returns whether there was one."""
        if found := self.find(job):
            found.cancel()
        return found is not None

    async def follow(self, job: Job, start: int = 0) -> AsyncIterator[bytes]:
        """A job's deltas from a number on, see `events`; the job continues while it has readers."""
        job.readers, job.was_followed = job.readers + 1, True
        try:
            async for piece in events(job.event_log, start - 1):
                yield piece
        finally:
            job.readers -= 1
            self._left(job)

    def stop(self, seconds: float) -> None:
        """Cancel all jobs and wait up to `seconds` for their threads; from any thread."""
        jobs = [job for queue in self._queues.values() for job in queue]
        for job in jobs:
            job.cancel()
        until = time.monotonic() + seconds
        for job in jobs:
            if job.has_begun:
                job.wait(max(0.0, until - time.monotonic()))

    # -- inside ------------------------------------------------------------------------------------

    async def _conduct(self, job: Job, queue: JobQueue) -> None:
        """Take a job from the queue to its last delta."""
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
            news = job.work.news()
            if news is not None or (now - sent_at > _ALIVE and not ended):
                job.event_log.append({"job": job.id, **(news or {"progress": job.work.so_far()})})
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
            await asyncio.sleep(job.work.period)

    def _wake_all(self, queue: JobQueue) -> None:
        """Let every job check whether its position has changed."""
        for job in queue:
            job._moved.set()

    def _left(self, job: Job) -> None:
        """A reader left; without readers the job ends after the grace period."""
        if job.readers or job.event_log.closed:
            return
        if job.has_begun and (
            not job.outlives_reader or any(not other.has_begun for other in self._queues[job.queue])
        ):
            job.cancel()
        else:
            Wait(GRACE, lambda: None if job.readers else job.cancel())
