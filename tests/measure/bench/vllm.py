"""vLLM beside our engine: the same weights, token ids, limits and threads, in a process of its own
that is told when to run.

It is vLLM's `LLM.generate` on a CPU with its engine in the process that is timed, as ours is.
Nothing here needs vLLM itself: the environment variable INFLIGHT_VLLM_PYTHON names the Python of an
environment that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from core.config import EngineConfig
from core.errors import InflightError
from core.measure.baselines.records import Work
from core.measure.rounds import Contender, RunResult
from measure.bench.piped import PipedProcess

PYTHON = "INFLIGHT_VLLM_PYTHON"
ENVIRONMENT = {
    # the scheduler in the process that is asked, so that nothing but its threads computes
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}
"""How vLLM's process is set up, where the environment does not say otherwise."""
START_S = RUN_S = 300.0
"""After which it counts as stuck."""
_WORKER = Path(__file__).parent / "vllm_worker.py"


def vllm_python() -> str | None:
    """The Python of a vLLM environment, if one is named."""
    return os.environ.get(PYTHON) or None


def environment(threads: int | None) -> dict[str, str]:
    """What a process of vLLM has beside our environment. threads: for its computing, None for its
    own choice.
    """
    found = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    return found | ({"OMP_NUM_THREADS": str(threads)} if threads else {})


@contextmanager
def vllm_contender(model: Any, config: EngineConfig, work: Work) -> Iterator[Contender]:
    """vLLM on a model's weights in the model's number format, loaded once, under the lanes, budget
    and prefix caching of `config`.

    Raises InflightError where no vLLM is named, or the one named cannot be run.
    """
    python = vllm_python()
    if python is None:
        raise InflightError(f"vLLM needs an environment of its own: name its Python by {PYTHON}.")
    settings = {
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "enable_prefix_caching": config.prefix_caching,
        "max_model_len": max(len(request.prompt) + request.max_new_tokens for request in work),
        "enforce_eager": True,
    }
    asked = [(request.prompt, request.max_new_tokens, sorted(request.ends)) for request in work]

    def read(answer: dict[str, Any]) -> RunResult:
        outputs = {request.id: ids for request, ids in zip(work, answer["outputs"], strict=True)}
        return RunResult(outputs, seconds=answer["seconds"])

    with PipedProcess(
        "vLLM", (python, str(_WORKER)), environment(torch.get_num_threads())
    ) as process:
        logging.disable_progress_bar()
        model.save_pretrained(process.folder / "model")
        start = {
            "model": str(process.folder / "model"),
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            **settings,
        }
        version = process.ask(start, START_S)["ready"]
        yield Contender.of(
            "vllm", lambda: process.ask(asked, RUN_S), read, {"version": version, **settings}
        )
