"""What a part is given: its sizes, its models and requests, its device and the time left.

`FULL` measures an H200 in eight minutes, `TINY` proves that the code runs. Speed depends on shapes,
never on weights, so models are those of published ones with random weights. Sources: the
`config.json` of Qwen/Qwen3-0.6B, meta-llama/Llama-3.2-1B and meta-llama/Llama-3.1-8B. The whole run
is that of nano-vllm's benchmark.
"""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils.benchmark import Timer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from core.torch_engine.models import load as models
from core.workload.workload import Workload
from measure.bench.synthetic import greedy, mixed, requests

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class ModelShape:
    """settings: of the model's config, under transformers' names."""

    name: str
    settings: dict[str, Any]

    def build(
        self,
        device: torch.device,
        dtype: torch.dtype,
        context: int,
        seed: int = 0,
        initializer_range: float = 0.02,
    ) -> PreTrainedModel:
        """A model with random weights, generated on the device itself.

        context: positions, fewer than the published model has, so that nothing is sized for a
        request of 131,072 tokens.
        """
        no_tokens: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
        config = AutoConfig.for_model(
            **self.settings,
            **no_tokens,
            max_position_embeddings=context,
            initializer_range=initializer_range,
        )
        torch.manual_seed(seed)
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        return model.eval().requires_grad_(False)


_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
QWEN3_06B = ModelShape(
    "qwen3-0.6b",
    {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
)
LLAMA_1B = ModelShape(
    "llama-3.2-1b",
    {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {**_LLAMA3_ROPE, "factor": 32.0},
    },
)
LLAMA_8B = ModelShape(
    "llama-3.1-8b",
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14_336,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {**_LLAMA3_ROPE, "factor": 8.0},
    },
)


def weight_bytes_read(model: PreTrainedModel) -> int:
    """Bytes of weights that a decode step must read: every parameter once; except untied embedding
    tables, of which it reads one row per token.
    """
    # a tied table is one parameter
    read = sum(p.numel() * p.element_size() for p in model.parameters())
    table: Any = model.get_input_embeddings().weight
    output: Any = model.get_output_embeddings()
    return read - (0 if output.weight is table else table.numel() * table.element_size())


@dataclass(frozen=True)
class Scale:
    """Sizes and time limits of the parts. Seconds are named `_s`."""

    main: ModelShape = QWEN3_06B  # of the whole runs
    # their decode step is compared with memory bandwidth
    decode: tuple[ModelShape, ...] = (LLAMA_1B, LLAMA_8B)
    requests: int = 256  # prompts and outputs of `lengths` tokens, drawn evenly
    compared: int = 64  # the first of them, which every contender answers
    lengths: tuple[int, int] = (100, 1024)
    lanes: int = 256
    budget: int = 8192
    block_size: int = 16
    context: int = 4096
    repeats: int = 4  # timed runs of this engine, after one to warm up
    own_s: float = 60.0  # after which such a run is cut
    probe_tokens: int = 24  # new tokens of a request while settings of transformers are tried
    probe_s: float = 15.0  # for each setting
    probes_s: float = 70.0  # for all of them
    baseline_s: float = 110.0  # after which a contender's run is cut and counted up to there
    ablated_tokens: int = 256  # most new tokens of a request with one switch off
    ablated_s: float = 12.0
    decode_context: int = 1000  # mean context of the decode steps that are timed
    decode_steps: int = 32
    copy_bytes: int = 4 * 2**30
    accuracy_requests: int = 16
    accuracy_tokens: int = 32
    accuracy_budget: int = 512
    accuracy_range: float = 0.04  # the standard deviation of the weights where logits are compared
    quick: bool = False  # too small to be meaningful, so no bars apply

    def workload(self, count: int | None = None, most_tokens: int | None = None) -> Workload:
        """The first `count` requests of the whole run, all by default, each of at most
        `most_tokens` new tokens.
        """
        whole = mixed(self.requests, self.main.settings["vocab_size"], self.lengths, self.lengths)
        return greedy(Workload(list(whole)[:count], name="gpu"), most_tokens)

    def decode_workload(self, shape: ModelShape) -> Workload:
        """`lanes` requests of one length that all decode together for `decode_steps` steps, around
        `decode_context` tokens each.
        """
        # steps until the last prompt is computed
        fed = self.lanes * self.decode_context // max(1, self.budget - self.lanes) + 2
        new = fed + self.decode_steps
        return requests(
            [self.decode_context - new // 2] * self.lanes,
            [new] * self.lanes,
            shape.settings["vocab_size"],
        )

    def num_blocks(self, workload: Workload) -> int:
        """A pool that holds one full request per lane, plus one block each for a token beyond the
        end.
        """
        sizes = sorted(
            (len(r.prompt_token_ids or ()) + r.sampling.max_new_tokens for r in workload),
            reverse=True,
        )
        return sum(-(-size // self.block_size) + 1 for size in sizes[: self.lanes])


def _tiny(shape: ModelShape) -> ModelShape:
    small = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    return ModelShape(
        shape.name, {**shape.settings, **small, "intermediate_size": 96, "vocab_size": 211}
    )


FULL = Scale()
TINY = replace(
    FULL,
    main=_tiny(QWEN3_06B),
    decode=tuple(map(_tiny, FULL.decode)),
    requests=8,
    compared=4,
    lengths=(4, 12),
    lanes=8,
    budget=32,
    context=128,
    repeats=1,
    probe_tokens=6,
    ablated_tokens=6,
    decode_context=40,
    decode_steps=4,
    copy_bytes=2**20,
    accuracy_requests=3,
    accuracy_tokens=6,
    accuracy_budget=16,
    accuracy_range=0.3,
    quick=True,
)


def lengths_of(workload: Workload) -> dict[str, int]:
    """A result's account of its requests."""
    return {
        "requests": len(workload),
        "prompt_tokens": sum(len(r.prompt_token_ids or ()) for r in workload),
        "output_tokens": sum(r.sampling.max_new_tokens for r in workload),
    }


class Device:
    """The device's time, memory and copy bandwidth. clock: seconds on the host, for tests."""

    def __init__(
        self, device: torch.device, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.torch, self.clock = device, clock
        self.on_cuda = device.type == "cuda"

    def now(self) -> float:
        """The host's time once everything launched so far is done."""
        if self.on_cuda:
            torch.cuda.synchronize(self.torch)
        return self.clock()

    def answers(self) -> bool:
        """Whether the device still works: after an illegal access every call of the process
        fails.
        """
        try:
            torch.zeros(1, device=self.torch).add_(1).item()
        except Exception:
            return False
        return True

    def free(self) -> None:
        """Release unused device memory."""
        gc.collect()
        if self.on_cuda:
            torch.cuda.empty_cache()

    def copy_bandwidth(self, size: int) -> float:
        """Bytes a second of a copy of `size` bytes within the device's memory, those read and those
        written both counted; a median.
        """
        source = torch.empty(size, dtype=torch.uint8, device=self.torch).random_()
        copy = Timer(
            "target.copy_(source)", globals={"source": source, "target": torch.empty_like(source)}
        )
        return 2 * size / copy.blocked_autorange().median  # it synchronises with the device

    def about(self) -> dict[str, Any]:
        """The device and its software: two results in one file must agree on these."""
        found = torch.cuda.get_device_properties(self.torch) if self.on_cuda else None
        triton = version("triton") if find_spec("triton") else None
        return {
            "device": self.torch.type,
            "name": found.name if found else platform.machine(),
            "memory_bytes": found and found.total_memory,
            "capability": found and f"{found.major}.{found.minor}",
            "versions": {
                "python": platform.python_version(),
                **models.versions(),
                "triton": triton,
            },
            "cuda": torch.version.cuda,
        }


@dataclass
class PartContext:
    """The context of a part. left: seconds until the whole benchmark must end. say: called with
    progress notes, which are also kept.
    """

    scale: Scale
    device: Device
    left: Callable[[], float] = lambda: math.inf
    say: Callable[[str], None] = lambda text: None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a remark for the report, and say it now."""
        self.notes.append(text)
        self.say(f"  {text}")

    def limit(self, seconds: float) -> float:
        """`seconds`, but no more than is left."""
        return max(1.0, min(seconds, self.left()))

    def model(self, shape: ModelShape, initializer_range: float = 0.02) -> Any:
        """A model of this shape on the device, with random weights of this standard deviation."""
        return shape.build(
            self.device.torch, DTYPE, self.scale.context, initializer_range=initializer_range
        )
