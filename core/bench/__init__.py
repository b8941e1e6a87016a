"""Benchmarks: one file each, every contender in turn within one process, ratios taken pair by pair against the bars the project set.

    python -m core bench speed                      all of them
    python -m core bench speed decode-step --json   one
    python -m core bench load --rate auto           throughput against latency under load, see `core.measure.load`
    python -m core bench gpu                        the CUDA path, see `core.bench.gpu`
    python -m core bench viewers                    what those who watch cost a server, see `core.bench.viewers`
    python -m core bench threads                    how a run's threads should wait, see `core.bench.threads`

A benchmark is a function `run(options) -> Report` in a module of this package, registered in `BENCHMARKS`.
"""

from __future__ import annotations

from collections.abc import Callable

from core.bench import bookkeeping, built_in, decode_step, end_to_end
from core.bench.report import Options, Report

BENCHMARKS: dict[str, Callable[[Options], Report]] = {
    decode_step.NAME: decode_step.run,
    end_to_end.MIXED: end_to_end.run_mixed,
    end_to_end.LARGER: end_to_end.run_larger,
    bookkeeping.NAME: bookkeeping.run,
    built_in.STATIC: built_in.run_static,
    built_in.SIX: built_in.run_six,
}
