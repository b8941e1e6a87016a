"""What configures an engine: the limits of an `EngineConfig`, how passes are computed, the models
and files that ship with the code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from core.errors import InvalidConfig, require, shown
from core.policy import POLICIES, Policy

_MOST = 2**31 - 1  # for any count

PolicyOrName = Policy | str


class _PolicyField:
    """A field that takes a policy or the name of one, and holds the policy."""

    def __get__(self, config: EngineConfig | None, owner: type) -> Policy:
        return POLICIES["continuous"] if config is None else config.__dict__["policy"]

    def __set__(self, config: EngineConfig, given: Policy | str) -> None:
        config.__dict__["policy"] = _installed(given)


def _installed(policy: PolicyOrName) -> Policy:
    """The policy itself, or the installed one of that name."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InvalidConfig(
            f"There is no policy {shown(policy)}; the policies are {', '.join(POLICIES)}."
        )
    return POLICIES[policy]


def _check_switches(config: object, *names: str) -> None:
    for name in names:
        if not isinstance(value := getattr(config, name), bool):
            raise InvalidConfig(f"{name} must be true or false, not {shown(value)}.")


def check_count(name: str, value: object) -> None:
    """Raises InvalidConfig for what is no whole number above 0, or is too large for an engine."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise InvalidConfig(
            f"{name} must be a whole number from 1 to {_MOST:,}, not {shown(value)}."
        )


@dataclass(frozen=True)
class EngineConfig:
    """The limits of an engine.

    policy: the name of one of `POLICIES`, or a `Policy`; stored as a `Policy`. max_num_seqs: lanes,
    i.e. requests running at once. max_num_batched_tokens: the token budget of a step, where the
    policy has one. block_size: tokens in a KV block. num_blocks: blocks in the KV pool; None sizes
    the pool so that every lane can hold the longest request. chunked_prefill: a prompt may be
    computed in chunks; if off, a prompt longer than the budget is refused. prefix_caching: full
    blocks of equal prefixes are shared, where the policy allows it. prefill_first: prefill chunks
    get the budget before decodes.

    Raises InvalidConfig for an unknown policy or limits that contradict each other.
    """

    policy: _PolicyField = _PolicyField()
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    block_size: int = 16
    num_blocks: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = False
    prefill_first: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
            value = getattr(self, name)
            if name == "num_blocks" and value is None:
                continue
            check_count(name, value)
        _check_switches(self, "chunked_prefill", "prefix_caching", "prefill_first")
        decode_first = not self.prefill_first or self.policy.layout == "split"
        if (
            self.policy.token_budget
            and decode_first
            and self.max_num_batched_tokens < self.num_lanes
        ):
            raise InvalidConfig(
                f"A token budget of {self.max_num_batched_tokens:,} cannot serve"
                f" {self.num_lanes:,} lanes: every decoding request needs one token a step."
            )
        if self.prefix_caching and not self.policy.prefix_caching:
            sharing = " or ".join(p.name for p in POLICIES.values() if p.prefix_caching)
            raise InvalidConfig(
                f"Prefix caching needs a policy that can share blocks ({sharing}), not"
                f" {self.policy.name}."
            )

    @property
    def num_lanes(self) -> int:
        """Requests that may run at once: `max_num_seqs`, or 1 under a policy of one lane."""
        return 1 if self.policy.one_lane else self.max_num_seqs

    @property
    def token_budget(self) -> int | None:
        """Tokens that a step may compute, or None under a policy without such a limit."""
        return self.max_num_batched_tokens if self.policy.token_budget else None

    def under(self, policy: Policy | str, **limits: Any) -> EngineConfig:
        """The same limits under another policy; prefix caching only where that can share blocks.
        limits: requested explicitly, so never dropped.

        Raises InvalidConfig for an unknown policy or limit, or limits that contradict each other.
        """
        found = _installed(policy)
        shares = self.prefix_caching and found.prefix_caching
        return self.from_json({**vars(self), "policy": found, "prefix_caching": shares, **limits})

    def to_json(self) -> dict[str, Any]:
        """Plain data; the policy by its name."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"policy": self.policy.name}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineConfig:
        """Inverse of `to_json`; raises InvalidConfig for unknown fields. Takes a `Policy`, too."""
        known = {f.name for f in fields(cls)}
        if unknown := set(require(data, Mapping, "The config is an object")) - known:
            raise InvalidConfig(f"An engine has no limit called {shown(min(unknown, key=str))}.")
        return cls(**data)


Attention = Literal["auto", "triton", "sdpa"]


@dataclass(frozen=True)
class Execution:
    """How passes are computed. None of this changes a decision, only times, so that a measurement
    can switch off one thing at a time.

    attention: "triton" is the paged kernel, "sdpa" one call of SDPA for each sequence; "auto" takes
    the paged kernel on CUDA where Triton is available, and on a CPU, for larger models, kernels
    compiled by numba where it is installed. cuda_graphs: launch a pass of few tokens as one CUDA
    graph, padded to the next bucket. asynchronous: launch the next step before this one is read
    back (not with the split policies); None does so on CUDA. fused_sampling: one kernel from logits
    to tokens. fused_norms: one kernel for an RMS norm. fused_rotary: one kernel that turns queries
    and keys by their positions. gpu_memory_utilization: share of the device's memory that may be in
    use, KV pool included.

    Raises InvalidConfig for a value out of range.
    """

    attention: Attention = "auto"
    cuda_graphs: bool = True
    asynchronous: bool | None = None
    fused_sampling: bool = True
    fused_norms: bool = True
    fused_rotary: bool = True
    gpu_memory_utilization: float = 0.9

    def __post_init__(self) -> None:
        if not isinstance(self.attention, str) or self.attention not in get_args(Attention):
            raise InvalidConfig(
                f"There is no attention {shown(self.attention)}; there are"
                f" {', '.join(get_args(Attention))}."
            )
        if self.asynchronous is not None:
            _check_switches(self, "asynchronous")
        _check_switches(self, "cuda_graphs", "fused_sampling", "fused_norms", "fused_rotary")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise InvalidConfig(
                f"gpu_memory_utilization must be above 0 and at most 1, not {shown(share)}."
            )


# -- the files that ship with the code -------------------------------------------------------------

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILTIN_FOLDER = ASSETS / "models"
BUILTIN_MODELS = ("shakespeare-bpe", "shakespeare-char")
DEFAULT_MODEL = BUILTIN_MODELS[0]
SMOLLM2 = "smollm2"
"""SmolLM2-135M-Instruct, which answers questions. It is fetched once: see `models/smollm2.py`."""


def models_folder() -> Path:
    """The folder of fetched models: INFLIGHT_MODELS_DIR, or one in the user's cache."""
    named = os.environ.get("INFLIGHT_MODELS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # not Path.expanduser, which raises where there is no home
    return Path(os.path.expanduser(named or os.path.join(cache, "inflight", "models")))


def model_source(name: str) -> str:
    """The folder of a built-in model; for any other model the name itself, a folder or a hub id."""
    if name == SMOLLM2:
        return str(models_folder() / SMOLLM2)
    return str(BUILTIN_FOLDER / name) if name in BUILTIN_MODELS else name
