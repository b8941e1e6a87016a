"""What the recorder costs the engine's thread per step, on vLLM's own scheduler with no model
behind it.

    VLLM_PYTHON tests/measure/recorder_cost.py --requests 64 --steps 2000

Two figures. `listening`: time inside the recorder's own methods, a step's calls together.
`difference`: a whole step of the scheduler with the recorder and without, in turns, which also
holds what the writer's thread takes from the interpreter. Decoding requests, one token each a step,
as long as it lasts; a step of a model would leave the writer more room than there is here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.config import ASSETS
from measure.bench.vllm import ENVIRONMENT

_BLOCK = 16
_PROMPT = 32


def scheduler_of(cls: Any, requests: int, steps: int) -> Any:
    """vLLM's scheduler, as the given class, with `requests` requests that decode for `steps`
    steps.
    """
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager

    length = _PROMPT + steps + 2
    blocks = requests * -(-length // _BLOCK) + 1
    cache = CacheConfig(block_size=_BLOCK, enable_prefix_caching=False)
    cache.num_gpu_blocks = blocks
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=requests,
            max_num_batched_tokens=requests * _PROMPT,
            max_model_len=length,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            async_scheduling=False,
        ),
        model_config=ModelConfig(
            model=str(ASSETS / "models" / "shakespeare-bpe"),
            dtype="float32",
            max_model_len=length,
            hf_overrides={"max_position_embeddings": length},
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    spec = FullAttentionSpec(block_size=_BLOCK, num_kv_heads=2, head_size=64, dtype=torch.float32)
    scheduler = cls(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=_BLOCK,
        hash_block_size=_BLOCK,
        log_stats=False,
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=steps + 1, ignore_eos=True)
    for number in range(requests):
        scheduler.add_request(
            Request(
                request_id=f"r{number}",
                prompt_token_ids=[7] * _PROMPT,
                sampling_params=sampling,
                pooling_params=None,
            )
        )
    return scheduler


def a_step(scheduler: Any) -> float:
    """Schedule and update, with a made-up token for every request; seconds inside the scheduler."""
    from vllm.v1.outputs import ModelRunnerOutput

    began = time.perf_counter()
    output = scheduler.schedule()
    scheduled = time.perf_counter()
    rows = list(output.num_scheduled_tokens)
    results = ModelRunnerOutput(
        req_ids=rows,
        req_id_to_index={r: i for i, r in enumerate(rows)},
        sampled_token_ids=[[7] for _ in rows],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    made = time.perf_counter()
    scheduler.update_from_output(output, results)
    return scheduled - began + time.perf_counter() - made


def listened(recording: Any) -> Callable[[], float]:
    """Time every call of the recorder from now on; the function returned gives the seconds since it
    was last called.
    """
    tell, spent = recording._tell, [0.0]

    def timed(*facts: Any) -> Any:
        began = time.perf_counter()
        result = tell(*facts)
        spent[0] += time.perf_counter() - began
        return result

    def since() -> float:
        found, spent[0] = spent[0], 0.0
        return found

    recording._tell = timed
    return since


def measure(requests: int, steps: int) -> dict[str, Any]:
    """Microseconds a step; the first, which prefills every request, is left out."""
    import vllm
    from vllm.v1.core.sched.scheduler import Scheduler

    from core.recorders.vllm.inflight_vllm import RecordingScheduler

    with TemporaryDirectory() as folder:
        os.environ["INFLIGHT_TRACE"] = str(Path(folder) / "cost.raw.jsonl")
        plain, recording = (
            scheduler_of(cls, requests, steps) for cls in (Scheduler, RecordingScheduler)
        )
        since = listened(recording)
        alone, together, listening = [], [], []
        for _ in range(steps):
            alone.append(a_step(plain))
            since()
            together.append(a_step(recording))
            listening.append(since())
        dropped = recording._recorder.writer.dropped
        recording.recording_ends()
    return {
        "vllm": vllm.__version__,
        "python": platform.python_version(),
        "requests": requests,
        "steps": steps - 1,
        "listening_us": _spread(listening[1:]),
        "step_alone_us": _spread(alone[1:]),
        "step_recorded_us": _spread(together[1:]),
        "difference_us": round(
            1e6 * (statistics.median(together[1:]) - statistics.median(alone[1:])), 1
        ),
        "dropped": dropped,
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    found = sorted(seconds)
    return {
        name: round(1e6 * found[int(share * (len(found) - 1))], 1)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    print(json.dumps(measure(given.requests, given.steps), indent=1))


if __name__ == "__main__":
    main()
