"""One step from plan to record: the launched passes, their results, and the event."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from core.config import EngineConfig
from core.engine.runner import FACTS_OF_A_PASS, Launched, PassResult
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import StepFacts
from core.trace.events import (
    KV,
    Arrived,
    FinishedRow,
    Pass,
    Sampled,
    Segment,
    StepEvent,
    Timings,
    to_microseconds,
)


@dataclass(slots=True)
class Step:
    """plan: the passes to come. launched: those started. results: of the passes that were read, in
    the same order. started: in seconds since the run began. scheduling: seconds that the scheduler
    took. arrived, facts: set once the step is fully planned.
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
        """Move earlier times to this one: two clocks agree only to some microseconds."""
        for result in self.results:
            result.t_start, result.t_end = max(result.t_start, time), max(result.t_end, time)

    def event(
        self, origin: float, start: float, end: float, num_blocks: int, config: EngineConfig
    ) -> StepEvent:
        """The step's event.

        origin: the clock's time at which the run began. start, end: of the step, in seconds since
        then. num_blocks: in the pool. config: of the engine.
        """
        facts = self.facts
        passes, segments, sampled = self._records(origin)
        prepare = forward = sample = 0.0
        for result in self.results:
            prepare += result.prepare
            forward += result.forward
            sample += result.sample
        timings = Timings(
            schedule=to_microseconds(self.scheduling),
            prepare=to_microseconds(prepare),
            forward=to_microseconds(forward),
            sample=to_microseconds(sample),
        )
        # By position: seventeen names take longer, at every step; tests hold the order.
        return StepEvent(
            self.number,
            start,
            end,
            timings,
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
            facts.budget(config.token_budget),
            tuple(facts.overrun),
            tuple(facts.released),
        )

    def _records(
        self, origin: float
    ) -> tuple[tuple[Pass, ...], tuple[Segment, ...], tuple[Sampled, ...]]:
        passes: list[Pass] = []
        segments: list[Segment] = []
        sampled: list[Sampled] = []
        for index, ((output, _), result) in enumerate(
            zip(self.launched, self.results, strict=True)
        ):
            drawn, tokens, finished = iter(result.samples), 0, []
            for row in output.scheduled:
                request, lane, start = row.request, row.lane, row.start
                if length := len(row.tokens):
                    tokens += length
                    segments.append(
                        Segment(index, request, lane, row.phase, start, length, start + length)
                    )
                else:
                    finished.append(FinishedRow(request, lane))
                if row.samples:
                    token_id, logprob, margin = next(drawn)
                    if token_id is not None:
                        sampled.append(Sampled(index, request, token_id, logprob, margin))
            rows, width = (1, tokens) if output.layout == "packed" else (output.rows, output.width)
            passes.append(
                Pass(
                    layout=output.layout,
                    rows=rows,
                    width=width,
                    tokens=tokens,
                    padding=rows * width - tokens,
                    t_start=to_microseconds(result.t_start - origin),
                    t_end=to_microseconds(result.t_end - origin),
                    finished_rows=tuple(finished),
                    **{name: getattr(result, name) for name in FACTS_OF_A_PASS},
                )
            )
        if self.facts.overrun:  # a wasted row: its token is discarded
            overrun = {row.request for row in self.facts.overrun}
            sampled = [s for s in sampled if s.request not in overrun]
        return tuple(passes), tuple(segments), tuple(sampled)
