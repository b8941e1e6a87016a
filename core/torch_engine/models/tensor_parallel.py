"""One model on several devices: transformers' tensor parallelism, a process for each device,
started together by torchrun.

Every process runs the same engine on its share of the heads. All of them get the same logits, so
their schedulers make the same decisions without communicating; anything that could make these
differ (clocks, free memory) is refused or agreed on.
"""

from __future__ import annotations

import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any

from core.errors import InflightError, shown

if TYPE_CHECKING:
    import torch  # imported late: `world_size` alone must not wait for it


def world_size() -> int:
    """How many processes torchrun started; 1 without it. Raises InflightError for no number."""
    given = os.environ.get("WORLD_SIZE", "1")
    if not re.fullmatch("[0-9]{1,9}", given):
        raise InflightError(f"WORLD_SIZE must be a number of processes, not {shown(given)}.")
    return int(given)


def is_first() -> bool:
    """Whether this process is the one that prints and writes."""
    return os.environ.get("RANK", "0") == "0"


def obstacle(config: Any) -> str | None:
    """Why a model of this config cannot be split among the processes, as the end of a sentence."""
    text, size = config.get_text_config(), world_size()
    if not getattr(text, "base_model_tp_plan", None):
        return f"transformers has no plan of tensor parallelism for {config.model_type} models"
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    if heads % size or kv_heads % size:  # transformers would split a head
        return (
            f"its {heads} heads, {kv_heads} of them with K and V of their own, cannot be shared out"
            f" evenly among {size} processes"
        )
    if importlib.util.find_spec("accelerate") is None:
        return "tensor parallelism needs the package accelerate"
    return None


def loading_options() -> dict[str, Any]:
    """Options for `from_pretrained` to load only this process's share, on its own device."""
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_plan="auto")}


def least(number: int, device: torch.device) -> int:
    """The minimum over all processes of a number that each measures itself."""
    import torch

    said = torch.tensor(number, device=device)
    torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MIN)
    return int(said)
