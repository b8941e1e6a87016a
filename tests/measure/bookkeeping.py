"""`python tests/measure/bookkeeping.py`: what scheduling, recording and storing a step cost; limits
in microseconds, shares and bytes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from transformers.utils import logging

from core.cli.options import Json, Out
from core.cli.output import ProgressReporter, finish
from core.config import DEFAULT_MODEL, EngineConfig
from core.engine.recorder import TraceRecorder
from core.errors import InflightError
from core.files import require_writable
from core.measure.rounds import load_average
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.torch_engine.engine import Engine
from core.torch_engine.models import load as models
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.presets import preset
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from measure import Quick, script
from measure.bench.printed import print_report
from measure.bench.report import Limit, Options, Report
from measure.bench.synthetic import greedy

NAME = "bookkeeping"
TITLE = "Scheduling at 64 running requests, recording, and a trace on disk"
LANES = 64


def run(options: Options) -> Report:
    """Medians over the steps; scheduling is `schedule()`, `update_from_output()` and `end_step()`
    together.
    """
    before = load_average()
    waiting = 100_000 if not options.quick else 1000
    steps = 400 if not options.quick else 20
    options.on_run("scheduling, nobody waiting")
    idle = schedule_seconds(0, steps, options)
    options.on_run(f"scheduling, {waiting:,} waiting")
    busy = schedule_seconds(waiting, steps, options)
    options.on_run("recording")
    recording, per_step, per_token = _recording(options)
    limits = [
        Limit("scheduling a step, 64 running, nobody waiting", round(idle * 1e6, 1), "µs", 150),
        Limit(
            f"scheduling a step, 64 running, {waiting:,} waiting", round(busy * 1e6, 1), "µs", 150
        ),
        Limit("recording's share of a step", round(100 * recording, 3), "%", 1.0),
        Limit("trace on disk beyond 100 bytes a token", round(per_step), "bytes a step", 1024),
        Limit("trace on disk, all in all", round(per_token), "bytes a token"),
    ]
    return Report(NAME, TITLE, limits=limits, load=(before, load_average()))


def schedule_seconds(waiting: int, steps: int, options: Options) -> float:
    """The median step of a scheduler with 64 requests decoding and `waiting` more in the queue."""
    config = EngineConfig(max_num_seqs=LANES, max_num_batched_tokens=256)
    scheduler = Scheduler(config, LANES * 64)
    for index in range(LANES + waiting):
        request = Request(
            f"r{index}", prompt_token_ids=(1, 2, 3), sampling=SamplingParams(900, ignore_eos=True)
        )
        scheduler.add(RequestState(request, request.prompt_token_ids or (), index))
    times = []
    gc.collect()
    for number in range(steps + 20):
        started = options.clock()
        for output in scheduler.schedule():
            tokens = [1 for s in output.scheduled if s.samples]
            scheduler.update_from_output(output, tokens)
        scheduler.end_step()
        if number >= 20:
            times.append(options.clock() - started)
    return statistics.median(times)


class TimedRecorder(TraceRecorder):
    """Notes how long each event took to make. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: list[float] = []
        self._clock = clock

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        def timed() -> StepEvent:
            started = self._clock()
            made = event()
            self.seconds.append(self._clock() - started)
            return made

        return super().record(timed)


def recording_share(
    engine: Engine, workload: Workload, clock: Callable[[], float]
) -> tuple[float, Trace]:
    """Of the time of a run's steps, the share that went into making their events; and the run.

    Raises InflightError if events are made elsewhere than where this looks.
    """
    own, engine.recorder = engine.recorder, (recorder := TimedRecorder(clock))
    try:
        engine.run(workload)
    finally:
        engine.recorder = own
    trace = recorder.trace
    if len(recorder.seconds) != len(trace.events):
        raise InflightError(
            f"{len(trace.events)} events were made in {len(recorder.seconds)} calls, so their cost"
            " is not known."
        )
    return sum(recorder.seconds) / sum(event.t_end - event.t_start for event in trace.events), trace


def _recording(options: Options) -> tuple[float, float, float]:
    """Share of the step spent on making its event; bytes on disk a step beyond 100 a token; bytes a
    token.
    """
    logging.disable_progress_bar()
    model, tokenizer = models.load(DEFAULT_MODEL, torch.device("cpu"), torch.float32)
    chosen = preset("gpt2-six")
    workload = greedy(chosen.workload, most_tokens=4 if options.quick else None)
    engine = Engine(model, tokenizer, chosen.config)
    engine.run(workload)
    share, trace = recording_share(engine, workload, options.clock)
    tokens = sum(len(event.sampled) for event in trace.events)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        trace.save(path)
        size = path.stat().st_size
    return share, (size - 100 * tokens) / len(trace.events), size / tokens


def bookkeeping(quick: Quick = False, out: Out = None, json: Json = False) -> None:
    """Measure what scheduling at 64 running requests, recording, and a trace on disk cost. Wants a
    quiet machine.
    """
    require_writable(out)
    with ProgressReporter("parts", 3) as work:
        parts = iter(range(3))
        report = run(Options(quick=quick, on_run=lambda what: work.update(next(parts), what)))
    finish(report.to_json(), print_report, json, out)


if __name__ == "__main__":
    script(bookkeeping)
