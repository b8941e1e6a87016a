"""Runs that are written as they go: the same file as afterwards, memory that does not grow with the
run, and what is left of one that was ended.
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from core import (
    EngineConfig,
    ExecutionFailed,
    InflightError,
    InvalidRequest,
    Request,
    SamplingParams,
    Trace,
    Workload,
)
from core.cli import main
from core.cli.long import MOST_REQUESTS
from core.engine.recorder import TraceRecorder
from core.engine.writing import writing
from core.proof.verify import verify
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.totals import run_stream
from core.trace.file import lines_of
from worlds.small import memory_engine, requests

COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))
LIMITS = EngineConfig(max_num_seqs=4, block_size=4, num_blocks=32)


def arriving(count: int):
    """Requests of different lengths, somewhat more of them than can be served at once."""
    for n in range(count):
        sampling = SamplingParams(max_new_tokens=2 + n % 5, ignore_eos=True)
        yield Request(
            f"r{n}",
            prompt_token_ids=(1,) * (3 + n % 7),
            sampling=sampling,
            arrival=round(n * 0.03, 6),
        )


@pytest.mark.parametrize("policy", ["continuous", "static", "split-chunked"])
def test_a_run_is_written_as_it_would_be_saved(policy, tmp_path):
    engine = memory_engine(policy=policy)
    late_first = Workload(
        [replace(r, arrival=9 - 2 * n) for n, r in enumerate(requests((5, 3), (9, 2), (4, 6)))],
        name="small",
    )
    with writing(engine, tmp_path / "written"):
        trace = engine.run(late_first)
    trace.save(tmp_path / "saved")
    assert (tmp_path / "written").read_bytes() == (tmp_path / "saved").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["saved", "written"] and trace is engine.trace


def test_a_run_is_written_in_any_thread(tmp_path):
    """Though only the main one can be told to wait with a Ctrl-C."""
    engine = memory_engine()

    def run() -> Trace:
        with writing(engine, tmp_path / "written"):
            return engine.run(Workload(requests((5, 3), (9, 2))))

    with ThreadPoolExecutor(1) as thread:
        trace = thread.submit(run).result()
    assert (tmp_path / "written").read_text().splitlines() == [*trace.lines()]


def test_a_compressed_file_is_written_and_read_by_its_name(tmp_path):
    engine = memory_engine()
    with writing(engine, tmp_path / "run.jsonl.gz"):
        trace = engine.run(Workload(requests((5, 3), (9, 2))))
    assert gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes()).decode().splitlines() == [
        *trace.lines()
    ]
    assert Trace.load(tmp_path / "run.jsonl.gz").events == trace.events
    whole = (tmp_path / "run.jsonl.gz").read_bytes()
    (tmp_path / "run.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])
    assert not Trace.load(tmp_path / "run.jsonl.gz").complete


def test_a_stream_decides_as_a_workload_and_its_file_can_be_checked(tmp_path):
    streamed, whole = SimulatedEngine(COST, LIMITS, window=20), SimulatedEngine(COST, LIMITS)
    with writing(streamed, tmp_path / "run"):
        totals = run_stream(streamed, arriving(60))
    whole.run(Workload(list(arriving(60)), arrival_unit="s"))
    found = Trace.load(tmp_path / "run")
    assert found.events == whole.trace.events and found.complete and len(streamed.trace.events) < 30
    assert verify(lines_of(tmp_path / "run")).num_requests == totals.finished == 60
    unlimited = SimulatedEngine(COST, replace(LIMITS, num_blocks=None))
    with writing(unlimited, tmp_path / "run"):
        run_stream(unlimited, arriving(6))
    assert verify(lines_of(tmp_path / "run")).complete


def test_what_was_learned_of_a_run_on_the_way_is_in_its_header(tmp_path):
    engine = memory_engine()
    with writing(engine, tmp_path / "run"):
        trace = engine.run(Workload(requests((5, 3), (9, 2))))
        trace.header = replace(trace.header, notes=("learned later",))
    assert (tmp_path / "run").read_text().splitlines() == [*trace.lines()]


def test_an_interrupt_waits_until_a_step_is_whole(tmp_path):
    class Interrupted(TraceRecorder):
        """Ctrl-C comes when a step is kept, and not yet written."""

        def record(self, event):
            made = super().record(event)
            if made.step == 3:
                signal.raise_signal(signal.SIGINT)
            return made

    engine = memory_engine()
    engine.recorder = Interrupted()
    # a shell ignores Ctrl-C for what it runs in the background
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), writing(engine, tmp_path / "run"):
            engine.run(Workload(requests((5, 9), (9, 9))))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "run").read_text().splitlines() == [*engine.trace.lines()] and len(
        engine.trace.events
    ) == 4


def test_a_run_that_ends_early_is_in_the_file_up_to_there(tmp_path):
    engine, path = memory_engine(), tmp_path / "run"
    for stop in (KeyboardInterrupt, ExecutionFailed):
        with pytest.raises(stop), writing(engine, path):
            for event in engine.stream(Workload(requests((5, 3), (9, 20)))):
                if event.step == 4:
                    raise stop
        found = Trace.load(path)
        assert [event.step for event in found.events] == [0, 1, 2, 3, 4] and not found.complete
        assert not verify(lines_of(path)).breaks_off
    path.write_text("old")
    with pytest.raises(InvalidRequest), writing(engine, path):
        engine.run(Workload([Request("r", prompt_token_ids=(10**6,))]))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["run"]
    with pytest.raises(InflightError, match="nothing ran"), writing(engine, path):
        pass
    assert path.read_text() == "old"
    with pytest.raises(InflightError, match="holds one run"), writing(engine, path):
        engine.run(Workload(requests((5, 3))))
        engine.run(Workload(requests((5, 3))))


STREAM = """
import itertools, sys
from core import EngineConfig, Request
from core.cli import main
from core.cli.long import MOST_REQUESTS
from core.engine.writing import writing
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.simulate.totals import run_stream
engine = SimulatedEngine(cost_named("h100:8b"), EngineConfig(num_blocks=64), window=20)
with writing(engine, sys.argv[1]):
    run_stream(engine, (Request(f"r{n}", prompt_token_ids=(1,), arrival=n) for n in itertools.count()))
"""  # noqa: E501


def test_a_killed_run_leaves_a_file_that_opens(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", STREAM, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    left = tmp_path / f"run.{process.pid}.partial"
    try:
        while not left.exists() or left.stat().st_size < 20_000:
            assert process.poll() is None
            os.sched_yield()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = Trace.load(left)
    assert (
        found.events
        and not found.complete
        and found.header.notes[-1].startswith("This file breaks off")
    )
    assert verify(lines_of(left)).num_steps == len(found.events)


@pytest.mark.slow
def test_neither_a_written_stream_nor_its_check_keeps_what_is_over(tmp_path):
    """Four times the requests take the same memory, but for the ids of those that are over when the
    file is checked.
    """

    def most(work) -> int:
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    def stream(count: int) -> None:
        engine = SimulatedEngine(COST, LIMITS, window=20)
        with writing(engine, tmp_path / f"{count}"):
            run_stream(engine, arriving(count))

    few, many = 60, 240
    stream(few)  # whatever is loaded or cached once
    verify(lines_of(tmp_path / f"{few}"))
    assert most(lambda: stream(many)) < most(lambda: stream(few)) + 2**20
    assert (
        most(lambda: verify(lines_of(tmp_path / f"{many}")))
        < most(lambda: verify(lines_of(tmp_path / f"{few}"))) + 2**20
    )


@pytest.mark.slow
def test_a_long_run_is_summed_up_as_it_goes_and_so_is_its_file(tmp_path, capsys):
    """On the command line, with more requests than are listed one by one."""
    count = MOST_REQUESTS + 1
    path, out = tmp_path / "workload.json", tmp_path / "run.jsonl.gz"
    sampling = SamplingParams(max_new_tokens=1)
    Workload(
        [Request(f"r{n}", prompt_token_ids=(1,), sampling=sampling) for n in range(count)]
    ).save(path)
    given = ("--simulate", "h100:8b", "--max-num-seqs", "250", "--slo", "ttft=9")
    with pytest.raises(SystemExit):
        main(["run", "--workload", str(path), *given, "--out", str(out)])
    ran = capsys.readouterr().out
    assert (
        f"{count:,} requests, {count:,} tokens in 41 steps" in ran
        and f"{count:,} met TTFT ≤ 9 s (100.0 %)" in ran
    )
    with pytest.raises(SystemExit):
        main(["show", str(out), "--slo", "ttft=9"])
    assert capsys.readouterr().out == ran


def test_an_answer_is_written_as_it_reads_behind_its_prompt(tmp_path, monkeypatch):
    def told(tokenizer, ids, context=()):
        return [f"{len(context)} before"] * len(ids)

    monkeypatch.setattr("core.engine.writing.pieces", told)
    engine = memory_engine()
    with writing(engine, path := tmp_path / "run.jsonl"):
        engine.run(Workload(requests((5, 2))))
    texts = Trace.load(path).recorded_texts
    assert texts.prompt["r0"] == ["0 before"] * 5 and texts.output["r0"] == ["5 before"] * 2
