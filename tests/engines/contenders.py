"""Other engines that leave a trace of what they did: vLLM in a process of its own, transformers in
this one, each timed while it is recorded.

Both are handed each request just before the step at which it arrives (`engines.task.drive`). Their
times go from the first request handed over to the end of the last step; loading a model and making
a KV pool are not in them, listening is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InflightError
from core.measure.baselines.records import BaselineRequest
from core.measure.baselines.transformers_continuous import TransformersContinuous
from core.measure.rounds import Contender, RunResult
from core.recorders.convert import import_recording
from core.recorders.transformers_batching import recording
from core.workload.request import Request
from engines.task import ARRIVALS, EngineTask, drive
from engines.vllm import VllmProcess


class _Recorded(NamedTuple):
    seconds: float
    path: Path


def vllm(asked: EngineTask, engine: VllmProcess) -> Contender:
    """An engine that runs already, on what it was asked for."""
    return Contender.of(
        "vLLM",
        lambda: _Recorded(*engine.run()),
        _read,
        {"version": engine.version, **asked.config.to_json(), "policy": "vLLM"},
    )


def transformers_batching(asked: EngineTask, model: Any, ends: frozenset[int]) -> Contender:
    """transformers' continuous batching on a loaded model, under the same limits; a prompt is cut
    wherever its budget ends. ends: the tokens with which the model ends an answer.
    """
    config = asked.config
    limits = {"num_blocks": config.num_blocks, "allow_block_sharing": config.prefix_caching}
    work = [
        BaselineRequest(
            r.id,
            tuple(asked.prompts[r.id]),
            r.sampling.max_new_tokens,
            frozenset() if r.sampling.ignore_eos else ends,
        )
        for r in asked.workload
    ]
    by_id = {request.id: request for request in work}

    @contextmanager
    def ready() -> Iterator[Callable[[], _Recorded]]:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            path = Path(folder) / "run.raw.jsonl"
            stack.enter_context(
                recording(
                    path, asked.model, {"workload": asked.workload.to_json(), "arrivals": ARRIVALS}
                )
            )
            driver = TransformersContinuous(
                model, work, config.max_num_seqs, config.max_num_batched_tokens, limits=limits
            )
            stack.callback(driver.close)

            def add(request: Request) -> None:
                driver.add(by_id[request.id])

            def step() -> None:
                if not driver.step():
                    raise InflightError(
                        "transformers' continuous batching stands still under these limits."
                    )

            def run() -> _Recorded:
                started = time.perf_counter()
                drive(asked.workload, add, step, lambda: driver.has_work)
                seconds = time.perf_counter() - started
                stack.close()  # the recording is whole
                return _Recorded(seconds, path)

            yield run

    return Contender("transformers", ready, _read, {**config.to_json(), "policy": "transformers"})


def _read(recorded: _Recorded) -> RunResult:
    return replace(RunResult.of(import_recording(recorded.path)), seconds=recorded.seconds)
