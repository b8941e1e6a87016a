"""One model on several devices: transformers' tensor parallelism, a process for each device, started together by torchrun.

Every process runs the same engine on its share of the heads. The logits come out the same in all of them, so their schedulers decide alike
without a word between them; what could make them differ (clocks, free memory) is refused or agreed on. Knows nothing of engines.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch  # who only asks how many processes there are waits for nothing


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that prints and writes."""
    return os.environ.get("RANK", "0") == "0"


def obstacle(config: Any) -> str | None:
    """Why a model of this config cannot be shared out among the processes, in words that end a sentence."""
    text, size = config.get_text_config(), world_size()
    if not getattr(text, "base_model_tp_plan", None):
        return f"transformers has no plan of tensor parallelism for {config.model_type} models"
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    if heads % size or kv_heads % size:  # transformers would cut through a head
        return (
            f"its {heads} heads, {kv_heads} of them with K and V of their own, cannot be shared out evenly among {size} processes"
        )
    if importlib.util.find_spec("accelerate") is None:
        return "tensor parallelism needs the package accelerate"
    return None


def loading_options() -> dict[str, Any]:
    """What makes `from_pretrained` load this process's share alone, on this process's device."""
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_plan="auto")}


def least(number: int, device: torch.device) -> int:
    """The least of what all processes say, for numbers that each of them measures for itself."""
    import torch

    said = torch.tensor(number, device=device)
    torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MIN)
    return int(said)
