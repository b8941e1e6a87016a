"""What a preset is, and how one is written down."""

from __future__ import annotations

from dataclasses import dataclass

from core.config import EngineConfig
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

CHAR, BPE = "shakespeare-char", "shakespeare-bpe"
_READABLE = 0.7  # temperature: greedy text of so small a model falls into loops


@dataclass(frozen=True)
class Preset:
    """title and shows: a heading and a sentence for people; the rest is what runs. dtype: of the model, as `core.models.load` takes it."""

    name: str
    title: str
    shows: str
    model: str
    config: EngineConfig
    workload: Workload
    dtype: str = "auto"


def preset_of(
    name: str, title: str, shows: str, model: str, requests: list[Request], policy: str, dtype: str = "auto", **limits
) -> Preset:
    return Preset(name, title, shows, model, EngineConfig(policy=policy, **limits), Workload(requests, name=name), dtype)


def requests_of(*rows: tuple[str, int, float], temperature: float = _READABLE) -> list[Request]:
    """Requests r0, r1, … from (prompt, new tokens, arrival)."""
    requests = []
    for index, (prompt, new, arrival) in enumerate(rows):
        sampling = SamplingParams(max_new_tokens=new, temperature=temperature, seed=index, ignore_eos=True)
        requests.append(Request(f"r{index}", prompt=prompt, sampling=sampling, arrival=arrival))
    return requests
