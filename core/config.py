"""What an engine may do: `EngineConfig`, and the named batching policies as data. Knows nothing of requests or tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from core.errors import InvalidConfig, shown

Admission = Literal["immediate", "barrier"]
Order = Literal["arrival", "shortest", "requeue"]
Layout = Literal["packed", "padded", "split"]
Reserve = Literal["chunk", "prompt", "output"]
Mixing = Literal["together", "apart"]
Preemption = Literal["newest", "stall", "never", "starved"]
FinishedRows = Literal["computed", "dropped"]


@dataclass(frozen=True)
class BatchingPolicy:
    """When requests join a batch, how their tokens are laid out in a forward pass, and how KV blocks are promised. Data alone: what is
    said of a policy anywhere follows from these fields, never from its name.

    shows: what it is, in a line for people.
    admission: "immediate" refills a lane in the step after it becomes free; "barrier" starts a wave only when every lane is free.
    layout: "packed" is one ragged row without padding; "padded" is `[rows, width]`, left-padded; "split" is a packed prefill
        pass for each joining request and then a left-padded decode pass.
    finished_rows: of a padded wave that goes on: the rows of those who have finished are "computed" as padding until it ends, or
        "dropped" from the pass, which gives back their lanes and blocks; nobody joins the wave either way.
    order: who is admitted first of those that wait: "arrival", or the "shortest" prompt; preempted requests come before either. "requeue" is by
        arrival too, but who is preempted joins the end again.
    aging: for another order than arrival: once so many that came later have left the queue before it, the oldest request is next.
    mixing: of a packed pass: prompts and decodes "together", or "apart": a step that computes a prompt computes prompts alone.
    whole_prompts: a prompt that fits the budget is never computed in pieces.
    token_budget: whether `max_num_batched_tokens` limits a step.
    one_prefill: at most one request is prefilling at a time.
    one_lane: a single lane; `max_num_seqs` is ignored.
    reserve: the KV blocks that must be free for a request to be admitted: for its first "chunk", for all tokens that it has by now
        ("prompt"), or for all that it may come to have ("output").
    watermark: share of the pool that stays free when a request is admitted beside others.
    margin: share of the pool; while less of it is free, decodes go on, and of prompts only one with which nobody decodes.
    kv_reads: cached tokens that a step may read, as a share of those that the pool holds; None: any number.
    preemption: what happens when a running request lacks a block. "newest": the newest is preempted at once. "stall": the request
        stalls, and the newest is preempted when nobody can go on. "never": it cannot happen, since room for the output is reserved.
        "starved": it is passed over, as is a waiting request that lacks one; the last of those passed over are preempted until the others will
        have room, and then nobody is admitted until somebody finishes (`core.scheduler.passing`).
    prefix_caching: whether full blocks of equal prefixes can be shared.
    """

    name: str
    shows: str
    admission: Admission
    layout: Layout
    finished_rows: FinishedRows = "computed"
    order: Order = "arrival"
    aging: int | None = None
    mixing: Mixing = "together"
    whole_prompts: bool = False
    token_budget: bool = False
    one_prefill: bool = False
    one_lane: bool = False
    reserve: Reserve = "output"
    watermark: float = 0.0
    margin: float = 0.0
    kv_reads: float | None = None
    preemption: Preemption = "never"
    prefix_caching: bool = False

    @property
    def keeps_finished(self) -> bool:
        """Whether a finished request holds its lane until its whole wave has finished."""
        return self.admission == "barrier" and self.finished_rows == "computed"

    @property
    def knobs(self) -> tuple[str, ...]:
        """The limits of an `EngineConfig` that mean something only under some policies, this one among them."""
        means = {
            "max_num_batched_tokens": self.token_budget,
            "chunked_prefill": self.token_budget and not self.whole_prompts and self.preemption != "starved",
            "prefill_first": self.token_budget
            and self.layout == "packed"
            and self.mixing == "together"
            and self.preemption != "starved",
            "prefix_caching": self.prefix_caching,
        }
        return tuple(name for name, does in means.items() if does)

    def to_json(self) -> dict[str, Any]:
        """The fields that decide, as a trace's header carries them: without the name and what is shown of it."""
        return {name: value for name, value in asdict(self).items() if name not in ("name", "shows")}


_CONTINUOUS = BatchingPolicy(
    "continuous",
    "decodes and prompt chunks packed into one pass, no padding, paged KV; decides as vLLM does",
    "immediate",
    "packed",
    token_budget=True,
    reserve="prompt",
    preemption="newest",
    prefix_caching=True,
)

POLICIES: dict[str, BatchingPolicy] = {
    policy.name: policy
    for policy in (
        BatchingPolicy("sequential", "no batching: one request at a time", "immediate", "packed", one_lane=True),
        BatchingPolicy(
            "static", "a wave waits for its longest request; finished rows are computed as padding", "barrier", "padded"
        ),
        BatchingPolicy(
            "static-dropped",
            "as static, but finished rows are dropped from the batch; nobody joins before the wave ends all the same",
            "barrier",
            "padded",
            finished_rows="dropped",
        ),
        BatchingPolicy(
            "dynamic", "lanes refill at once, but a joining prompt pads every other row to its length", "immediate", "padded"
        ),
        BatchingPolicy("split", "a prefill pass for each joining request, then one padded decode pass", "immediate", "split"),
        BatchingPolicy(
            "split-chunked",
            "one prompt at a time in chunks within the token budget, then the padded decode pass",
            "immediate",
            "split",
            token_budget=True,
            one_prefill=True,
        ),
        _CONTINUOUS,
        replace(
            _CONTINUOUS,
            name="stall",
            shows="as continuous, but a request that lacks a KV block stalls, and the newest is preempted only when no request can go on",
            preemption="stall",
        ),
        replace(
            _CONTINUOUS,
            name="shortest-first",
            shows="as continuous, but the shortest waiting prompt joins first; one that eight overtook is next",
            order="shortest",
            aging=8,
        ),
        replace(
            _CONTINUOUS,
            name="no-evict",
            shows="as continuous, but a request joins when its whole answer has room: nobody is preempted (TensorRT-LLM's default)",
            reserve="output",
            preemption="never",
        ),
        replace(
            _CONTINUOUS,
            name="mini-sglang",
            shows="a step computes prompt chunks or decodes, never both, and room for the whole answer is reserved (mini-SGLang)",
            mixing="apart",
            reserve="output",
            preemption="never",
        ),
        replace(
            _CONTINUOUS,
            name="nano-vllm",
            shows="a step computes whole prompts or decodes, never both; the newest is preempted for a block (nano-vLLM)",
            mixing="apart",
            whole_prompts=True,
        ),
        replace(
            _CONTINUOUS,
            name="transformers",
            shows="decodes first; a request that lacks a KV block is passed over and gives way, and then none joins until one ends (transformers)",
            order="requeue",
            reserve="chunk",
            margin=0.15,
            kv_reads=1.0,
            preemption="starved",
            prefix_caching=False,
        ),
    )
}


_MOST = 2**31 - 1  # of anything that is counted


@dataclass(frozen=True)
class EngineConfig:
    """The limits of an engine.

    policy: a name of `POLICIES`.
    max_num_seqs: lanes, i.e. requests running at once.
    max_num_batched_tokens: the token budget of a step, where the policy has one.
    block_size: tokens in a KV block.
    num_blocks: blocks in the KV pool; None sizes the pool so that every lane can hold the longest request.
    chunked_prefill: a prompt may be computed in pieces; off, a prompt longer than the budget is refused.
    prefix_caching: full blocks of equal prefixes are shared, where the policy can.
    prefill_first: prefill chunks take budget before decodes.

    Raises InvalidConfig for an unknown policy or limits that contradict each other.
    """

    policy: str = "continuous"
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    block_size: int = 16
    num_blocks: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = False
    prefill_first: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
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
    def batching(self) -> BatchingPolicy:
        return POLICIES[self.policy]

    @property
    def num_lanes(self) -> int:
        return 1 if self.batching.one_lane else self.max_num_seqs

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EngineConfig:
        """Inverse of `to_json`; raises InvalidConfig for an unknown field."""
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise InvalidConfig(f"An engine has no limit called {shown(min(unknown, key=str))}.")
        return cls(**data)


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
