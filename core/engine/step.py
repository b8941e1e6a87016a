"""One step from plan to record: what was launched, what came back, and the event that records it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from core.runner.base import Launched, PassResult
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import StepFacts
from core.trace.events import KV, Arrived, FinishedRow, Pass, Sampled, Segment, StepEvent, Timings, to_microseconds


@dataclass(slots=True)
class Step:
    """plan: the passes to come. launched: those on their way. results: of those read, in the same order. started: in seconds since the
    run began. scheduling: seconds the scheduler took. arrived and facts are there once the step is fully planned.
    """

    number: int
    started: float
    plan: Iterator[SchedulerOutput]
    launched: list[tuple[SchedulerOutput, Launched]] = field(default_factory=list)
    results: list[PassResult] = field(default_factory=list)
    scheduling: float = 0.0
    arrived: tuple[Arrived, ...] = ()
    facts: StepFacts = field(default_factory=StepFacts)

    @property
    def latest(self) -> SchedulerOutput:
        """The pass launched last."""
        return self.launched[-1][0]

    def not_before(self, time: float) -> None:
        """Move what seems earlier: the device's clock and the host's agree to some microseconds only."""
        self.results = [r._replace(t_start=max(r.t_start, time), t_end=max(r.t_end, time)) for r in self.results]

    def event(self, origin: float, start: float, end: float, num_blocks: int, budget: int | None) -> StepEvent:
        """What happened, on record.

        origin: the clock's time at which the run began. start, end: the step's, in seconds since then. num_blocks: in the pool.
        budget: the token budget, None where the policy has none.
        """
        facts = self.facts
        passes, segments, sampled = self._records(origin)
        prepare = forward = sample = 0.0
        for _, _, _, of_prepare, of_forward, of_sample, _ in self.results:
            prepare += of_prepare
            forward += of_forward
            sample += of_sample
        parts = to_microseconds(self.scheduling), to_microseconds(prepare), to_microseconds(forward), to_microseconds(sample)
        return StepEvent(
            self.number,
            start,
            end,
            Timings(*parts),
            self.arrived,
            tuple(facts.admitted),
            facts.waiting,
            tuple(facts.preempted),
            tuple(facts.stalled),
            passes,
            segments,
            sampled,
            tuple(facts.finished),
            KV(facts.blocks_used, num_blocks, tuple(facts.block_changes), tuple(facts.prefix_hits)),
            facts.budget(budget),
            tuple(facts.overrun),
            tuple(facts.left),
        )

    def _records(self, origin: float) -> tuple[tuple[Pass, ...], tuple[Segment, ...], tuple[Sampled, ...]]:
        make = tuple.__new__  # half of what a record's own constructor takes
        passes, segments, sampled = [], [], []
        for index, ((output, _), result) in enumerate(zip(self.launched, self.results, strict=True)):
            samples, began, ended, _, _, _, bucket = result
            drawn, tokens, finished = iter(samples), 0, []
            for request, lane, phase, fed, first, _, is_sampled, _, _ in output.scheduled:
                length = len(fed)
                if length:
                    tokens += length
                    segments.append(make(Segment, (index, request, lane, phase, first, length, first + length)))
                else:
                    finished.append(FinishedRow(request, lane))
                if is_sampled:
                    token_id, logprob, margin = next(drawn)
                    if token_id is not None:
                        sampled.append(make(Sampled, (index, request, token_id, logprob, margin)))
            rows, width = (1, tokens) if output.layout == "packed" else (output.rows, output.width)
            start, end = to_microseconds(began - origin), to_microseconds(ended - origin)
            padding = rows * width - tokens
            passes.append(Pass(output.layout, rows, width, tokens, padding, start, end, tuple(finished), bucket))
        if self.facts.overrun:  # a row for nothing: its token is nobody's
            overrun = {row.request for row in self.facts.overrun}
            sampled = [s for s in sampled if s.request not in overrun]
        return tuple(passes), tuple(segments), tuple(sampled)
