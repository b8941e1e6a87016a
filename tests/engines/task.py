"""The same task for several engines: a preset's requests, decoded greedily under limits that all of
them support, and the loop that submits them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from core.config import EngineConfig
from core.engine.requests import prompt_ids
from core.workload.presets import Preset
from core.workload.request import Request
from core.workload.workload import Workload

BLOCK_SIZE = 32  # the smallest KV block of vLLM on a CPU
ARRIVALS = (
    "Each request was handed over just before the step at which it arrives here, by a loop around"
    " the engine's own step."
)


@dataclass(frozen=True)
class EngineTask:
    """model: a built-in name. prompts: token ids by request, so that every engine gets the same
    tokens. Arrivals count steps.
    """

    model: str
    config: EngineConfig
    workload: Workload
    prompts: dict[str, list[int]]

    @classmethod
    def of(cls, preset: Preset, tokenizer: Any) -> EngineTask:
        """A preset with its KV pool in blocks of 32 tokens, as many tokens as before; a pool
        without a limit has room for every lane.
        """
        requests = preset.workload.greedy()
        prompts = {r.id: list(prompt_ids(r, tokenizer)) for r in requests}
        longest = max(len(prompts[r.id]) + r.sampling.max_new_tokens for r in requests)
        config, each = preset.config, -(-longest // BLOCK_SIZE)
        blocks = (
            each * config.max_num_seqs
            if config.num_blocks is None
            else config.num_blocks * config.block_size // BLOCK_SIZE
        )
        config = replace(config, block_size=BLOCK_SIZE, num_blocks=max(each, blocks))
        return cls(preset.model, config, Workload(requests, preset.name), prompts)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, its answer included."""
        return max(len(self.prompts[r.id]) + r.sampling.max_new_tokens for r in self.workload)

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "config": self.config.to_json(),
            "workload": self.workload.to_json(),
            "prompts": self.prompts,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EngineTask:
        return cls(
            data["model"],
            EngineConfig.from_json(data["config"]),
            Workload.from_json(data["workload"]),
            data["prompts"],
        )


def drive(
    workload: Workload,
    add: Callable[[Request], None],
    step: Callable[[], object],
    is_busy: Callable[[], bool],
) -> None:
    """Submit each request just before the step at which it arrives, as our engine does; while there
    is nothing to do, steps pass without being computed. is_busy: whether the engine has work.
    """
    to_come = deque(sorted(workload, key=lambda r: r.arrival))  # a stable sort, as our engine's
    at = 0
    while to_come or is_busy():
        if not is_busy():
            at = max(at, math.ceil(to_come[0].arrival))
        while to_come and to_come[0].arrival <= at:
            add(to_come.popleft())
        step()
        at += 1
