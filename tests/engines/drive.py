"""Runs vLLM in a process of its own, driven by lines of JSON; vLLM's own output is kept out of
them.

The first line says what is asked for (`engines.task.EngineTask`); the answer is `{"ready":
version}` once the model is loaded. After that a line names a file, and the answer is `{"seconds":
…}` when the workload has run and its steps are recorded there.

Every request is handed to `LLMEngine.add_request` just before the `LLMEngine.step` at which it
arrives, in this one thread, so that vLLM has the same requests at each step as our engine. Needs
vLLM; run it with the Python of an environment that has it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import IO, Any

from core.config import model_source
from core.workload.request import Request
from engines.task import ARRIVALS, EngineTask, drive


def engine_of(asked: EngineTask) -> Any:
    """An LLMEngine with the model, the limits and a scheduler that records."""
    from vllm import EngineArgs, LLMEngine

    from core.recorders.vllm.inflight_vllm import RecordingScheduler

    config = asked.config
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=model_source(asked.model),
            dtype="float32",
            max_model_len=asked.longest,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            block_size=config.block_size,
            # one of them is vLLM's null block
            num_gpu_blocks_override=(config.num_blocks or 0) + 1,
            enable_chunked_prefill=config.chunked_prefill,
            enable_prefix_caching=config.prefix_caching,
            async_scheduling=False,
            scheduler_cls=RecordingScheduler,
            enforce_eager=True,
            disable_log_stats=True,
        )
    )


def run(engine: Any, asked: EngineTask, path: str) -> float:
    """Run the workload from an empty engine and record it; seconds from the first request handed
    over to the last step's end.
    """
    from vllm import SamplingParams

    scheduler = engine.engine_core.engine_core.scheduler
    engine.reset_prefix_cache()
    os.environ["INFLIGHT_TRACE"] = path
    scheduler.record_anew({"workload": asked.workload.to_json(), "arrivals": ARRIVALS})

    def add(request: Request) -> None:
        asks = request.sampling
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=asks.max_new_tokens,
            ignore_eos=asks.ignore_eos,
            detokenize=False,
        )
        engine.add_request(request.id, {"prompt_token_ids": asked.prompts[request.id]}, sampling)

    started = time.perf_counter()
    drive(asked.workload, add, engine.step, engine.has_unfinished_requests)
    seconds = time.perf_counter() - started
    scheduler.recording_ends()
    return seconds


def main(lines: IO[str], answers: IO[str]) -> None:
    def answer(**data: Any) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    asked = EngineTask.from_json(json.loads(lines.readline()))
    import vllm

    engine = engine_of(asked)
    answer(ready=vllm.__version__)
    for line in lines:
        answer(seconds=run(engine, asked, json.loads(line)))


if __name__ == "__main__":
    os.environ["INFLIGHT_TRACE"] = os.devnull  # until a file is named
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # everything that vLLM prints
    main(sys.stdin, answers)
