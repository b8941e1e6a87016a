"""What an engine may do: the limits of an `EngineConfig`, and how its passes are computed. Knows nothing of requests or tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from core.errors import InvalidConfig, shown
from core.policy import POLICIES, Policy

_MOST = 2**31 - 1  # of anything that is counted


@dataclass(frozen=True)
class EngineConfig:
    """The limits of an engine.

    policy: a name of `POLICIES`, or one of your own; `given` keeps that one.
    max_num_seqs: lanes, i.e. requests running at once.
    max_num_batched_tokens: the token budget of a step, where the policy has one.
    block_size: tokens in a KV block.
    num_blocks: blocks in the KV pool; None sizes the pool so that every lane can hold the longest request.
    chunked_prefill: a prompt may be computed in pieces; off, a prompt longer than the budget is refused.
    prefix_caching: full blocks of equal prefixes are shared, where the policy can.
    prefill_first: prefill chunks take budget before decodes.

    Raises InvalidConfig for an unknown policy or limits that contradict each other.
    """

    policy: Any = "continuous"  # a name; a `Policy` that was given stands in `given`
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    block_size: int = 16
    num_blocks: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = False
    prefill_first: bool = False
    given: Policy | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.policy, Policy):
            object.__setattr__(self, "given", self.policy)
            object.__setattr__(self, "policy", self.policy.name)
        if self.given is None and (not isinstance(self.policy, str) or self.policy not in POLICIES):
            raise InvalidConfig(f"There is no policy {shown(self.policy)}; the policies are {', '.join(POLICIES)}.")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
            value = getattr(self, name)
            if name == "num_blocks" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
                raise InvalidConfig(f"{name} must be a whole number from 1 to {_MOST:,}, not {shown(value)}.")
        for name in ("chunked_prefill", "prefix_caching", "prefill_first"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidConfig(f"{name} must be true or false, not {shown(getattr(self, name))}.")
        decode_first = not self.prefill_first or self.batching.layout == "split"
        if self.batching.token_budget and decode_first and self.max_num_batched_tokens < self.num_lanes:
            raise InvalidConfig(
                f"A token budget of {self.max_num_batched_tokens} cannot serve {self.num_lanes} lanes: "
                "every decoding request needs one token a step."
            )
        if self.prefix_caching and not self.batching.prefix_caching:
            sharing = " or ".join(p.name for p in POLICIES.values() if p.prefix_caching)
            raise InvalidConfig(f"Prefix caching needs a policy that can share blocks ({sharing}), not {self.policy}.")

    @property
    def batching(self) -> Policy:
        return self.given or POLICIES[str(self.policy)]

    @property
    def num_lanes(self) -> int:
        return 1 if self.batching.one_lane else self.max_num_seqs

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "given"}

    @classmethod
    def from_json(cls, data: dict[str, Any], given: Policy | None = None) -> EngineConfig:
        """Inverse of `to_json`; raises InvalidConfig for an unknown field. given: the policy where it is none of ours."""
        unknown = set(data) - {f.name for f in fields(cls) if f.name != "given"}
        if unknown:
            raise InvalidConfig(f"An engine has no limit called {shown(min(unknown, key=str))}.")
        return cls(**data, given=given)


Attention = Literal["auto", "triton", "sdpa"]


@dataclass(frozen=True)
class Execution:
    """How passes are computed, which changes times and never decisions: for measurements that switch one thing off at a time.

    attention: "triton" is the paged kernel, "sdpa" a call for each sequence; "auto" takes the kernel on CUDA where it can be had.
    cuda_graphs: launch a pass of few tokens as one CUDA graph, padded to the next bucket.
    asynchronous: launch the next step before this one is read back (not with the split policies); None does so on CUDA.
    fused_sampling: one kernel from logits to tokens. fused_norms: one kernel for an RMS norm.
    gpu_memory_utilization: share of the device's memory that may be in use, KV pool included.

    Raises InvalidConfig for a value out of range.
    """

    attention: Attention = "auto"
    cuda_graphs: bool = True
    asynchronous: bool | None = None
    fused_sampling: bool = True
    fused_norms: bool = True
    gpu_memory_utilization: float = 0.9

    def __post_init__(self) -> None:
        if self.attention not in get_args(Attention):
            raise InvalidConfig(f"There is no attention {shown(self.attention)}; there are {', '.join(get_args(Attention))}.")
        for name in ("cuda_graphs", "asynchronous", "fused_sampling", "fused_norms"):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (name == "asynchronous" and value is None):
                raise InvalidConfig(f"{name} must be true or false, not {shown(value)}.")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise InvalidConfig(f"gpu_memory_utilization must be above 0 and at most 1, not {shown(share)}.")
