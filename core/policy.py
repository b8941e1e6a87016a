"""What a batching policy is: data, and three questions that the scheduler asks it. The built-in
policies are at the end.

    order          which waiting request is next
    admit          may this request join now; if not, what prevents it
    select_victim  KV blocks are short: which request gives way

Everything else is data, which a trace's header carries: the page's sentences, the rules of `check`
and the browser's queue read it from there, so none of them knows a policy by name. How a step is
laid out (`layout`, `mixed_batches`) is data too: the layouts are the engine's.

    @dataclass(frozen=True, kw_only=True)
    class LongestFirst(Policy):
        name: str = "longest-first"
        order_by: str = "longest prompt"

        def order(self, request: RequestView) -> int:
            return -request.num_prompt_tokens

    Engine(model, tokenizer, policy=LongestFirst())  # or, for `check` and by name:
    register_policy("longest-first", LongestFirst)

Each answer must depend on its arguments alone, because `check` decides the same run again. Imports
neither torch nor the scheduler. See docs/policies.md.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, get_args

from core.errors import InvalidConfig, require, shown

Limit = Literal[
    "lanes",
    "budget",
    "blocks",
    "margin",
    "reads",
    "recovery",
    "barrier",
    "prefill",
    "phase",
    "policy",
    "chunk",
    "skipped",
    "unrecorded",
    "none",
]
LIMITS: tuple[Limit, ...] = get_args(Limit)


class LimitReached(NamedTuple):
    """The limit that bound and its numbers: of `total`, `have` was left and `need` was asked for.

    lanes: lanes free. budget: tokens left of the step's budget (need: tokens of the prompt still to
    compute). blocks: KV blocks free. barrier: lanes still computing (have) until the wave ends.
    prefill: another prompt is being computed, one at a time. phase: the step computes prompts
    alone. margin: KV blocks free, fewer than are kept for decodes (need). reads: cached tokens that
    the step may still read. recovery: a request has given way, and none joins until one finishes.
    policy: a user's policy lets no request join yet. chunk: another engine computes at most so many
    tokens (total) of a prompt in one step. skipped: another engine passed it over, whatever the
    limits, for want of its grammar, its adapter or its KV. unrecorded: another engine does not
    record it. none: no limit bound.
    """

    limit: Limit
    have: int = 0
    need: int = 0
    total: int = 0


class RequestView(Protocol):
    """What a policy sees of a request."""

    @property
    def id(self) -> str:
        """The id under which the request was submitted."""

    @property
    def arrival_index(self) -> int:
        """Its place among all requests in the order of submission, from 0."""

    @property
    def priority(self) -> int:
        """Its priority: 0 unless the client gave another; lower numbers come first."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of its prompt."""

    @property
    def num_tokens(self) -> int:
        """Tokens of its prompt, and those generated so far."""

    @property
    def max_num_tokens(self) -> int:
        """The most tokens that it may ever have: its prompt and `max_new_tokens`."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose KV is in the cache; 0 again after a preemption."""

    @property
    def num_blocks(self) -> int:
        """KV blocks it holds."""

    @property
    def is_decoding(self) -> bool:
        """Whether only the latest generated token is left to compute, so a step gives another."""


class Capacity(NamedTuple):
    """What is free at the moment at which a waiting request asks to join.

    running: in the order of admission. held: the requests that hold a lane, finished rows included.
    wave: how many requests ran when the step began. blocks_free: free blocks, not counting the
    cached blocks found for this request and the blocks that running requests still need in this
    step. cuts_prompts: whether a prompt may be computed in chunks. is_short: whether a running
    request lacks blocks. recovering: whether a request has given way and none has finished since.
    """

    running: Sequence[RequestView]
    held: Collection[RequestView]
    wave: int
    num_lanes: int
    tokens_left: int
    token_budget: int
    blocks_free: int
    num_blocks: int
    block_size: int
    cached_blocks: int
    cuts_prompts: bool
    is_short: bool
    recovering: bool

    def blocks_for(self, tokens: int) -> int:
        """KV blocks that so many tokens fill; the last one may be filled in part."""
        return -(-tokens // self.block_size)

    def lacks(self, request: RequestView) -> LimitReached | None:
        """What keeps a request from joining under any policy: no lane, budget or blocks."""
        if len(self.held) >= self.num_lanes:
            return LimitReached("lanes", 0, 1, self.num_lanes)
        cached = self.cached_blocks * self.block_size
        if self.tokens_left <= 0:
            return LimitReached("budget", 0, request.num_tokens - cached, self.token_budget)
        need = (
            self.blocks_for(min(request.num_tokens, cached + self.tokens_left)) - self.cached_blocks
        )
        if need > self.blocks_free:
            return LimitReached("blocks", max(0, self.blocks_free), need, self.num_blocks)
        return None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy: by default vLLM's rules. Subclass it for a rule of your own; for a variation of its
    data `dataclasses.replace` is enough.

    shows: what it is, in a line for people.
    order_by: who joins first: "arrival", "shortest" (prompt), or a description of your own `order`.
    victim: who gives way: "newest", "blocked" (the last of those that lack a block), or a
        description of your own `select_victim`: for `victim="whoever holds most blocks"` the page
        says "Whoever holds most blocks gives way".
    admission: "immediate" refills a lane in the step after it becomes free; "barrier" starts a wave
        only when every lane is free.
    layout: "packed" is one ragged row without padding; "padded" is `[rows, width]`, left-padded;
        "split" is a packed prefill pass for each joining request and then a left-padded decode
        pass.
    mixed_batches: a packed pass may compute prompts and decodes together; otherwise a step that
        computes a prompt computes only prompts.
    finished_rows: what happens to finished requests of a padded wave that continues: their rows are
        "computed" as padding until it ends, or "dropped" from the pass, which releases their lanes
        and blocks; no request joins the wave either way.
    preemption: when requests give way for a KV block: "before" the pass, until all running requests
        can continue; when the step would be "idle" because none can; "after" the pass, which has
        skipped those that lack a block: the last of these give way until the others have room, and
        no request joins until one finishes; or "never", because room for the output is reserved.
    requeue: a preempted request joins the end of the queue, not its front.
    aging: where the order is not by arrival, the oldest request is next once this many later ones
        have left the queue before it.
    reserve: the KV blocks that must be free for a request to be admitted: for its first "chunk",
        for all tokens that it has so far ("prompt"), or for all it may ever have ("output").
    watermark: share of the pool that stays free when a request joins others.
    margin: share of the pool; while less is free, decodes continue, and a prompt is computed only
        if nothing decodes.
    kv_reads: cached tokens that a step may read, as a share of the pool's capacity; None: any
        number. Both apply where `preemption` is "after".
    token_budget: `max_num_batched_tokens` limits a step.
    whole_prompts: a prompt that fits the budget is never cut.
    one_prefill: one prompt at a time.
    one_lane: a single lane; `max_num_seqs` is ignored.
    prefix_caching: whether full blocks of equal prefixes can be shared.

    Raises InvalidConfig for a rule of your own without a description.
    """

    name: str
    shows: str = ""
    order_by: str = "arrival"
    victim: str = "newest"
    admission: Literal["immediate", "barrier"] = "immediate"
    layout: Literal["packed", "padded", "split"] = "packed"
    mixed_batches: bool = True
    finished_rows: Literal["computed", "dropped"] = "computed"
    preemption: Literal["before", "idle", "after", "never"] = "before"
    requeue: bool = False
    aging: int | None = None
    reserve: Literal["chunk", "prompt", "output"] = "prompt"
    watermark: float = 0.0
    margin: float = 0.0
    kv_reads: float | None = None
    token_budget: bool = True
    whole_prompts: bool = False
    one_prefill: bool = False
    one_lane: bool = False
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        own = type(self)
        if own.select_victim is not Policy.select_victim and self.victim == Policy.victim:
            raise InvalidConfig(
                f"The policy {self} chooses who gives way, so its `victim` has to say in words who"
                " that is; `newest` is the word for the engine's own choice."
            )
        if own.order is not Policy.order and self.order_by in ("arrival", "shortest"):
            raise InvalidConfig(
                f"The policy {self} chooses who is next, so its `order_by` has to say in words who"
                " that is; `arrival` and `shortest` are the words for the engine's own orders."
            )

    def __str__(self) -> str:
        return self.name

    def order(self, request: RequestView) -> Any:
        """A sort key: the smallest joins first; ties go to the older. Called on arrival, and where
        a preempted request joins the queue again; None means arrival order.
        """
        return request.num_prompt_tokens if self.order_by == "shortest" else None

    def admit(self, request: RequestView, capacity: Capacity) -> LimitReached | None:
        """What prevents the head of the queue from joining now; None lets it in, unless it `lacks`
        something. Requests behind it are not considered until it has joined. The page shows the
        limit of `LimitReached` in words, with its numbers.
        """
        if self.admission == "barrier" and capacity.wave:
            return LimitReached("barrier", capacity.wave, 0, capacity.num_lanes)
        if len(capacity.held) >= capacity.num_lanes:
            return LimitReached("lanes", 0, 1, capacity.num_lanes)
        if self.one_prefill and not all(r.is_decoding for r in capacity.running):
            return LimitReached("prefill", 0, 1, 1)
        left = capacity.tokens_left
        pending = request.num_tokens - capacity.cached_blocks * capacity.block_size
        # a longer recomputation has to be cut anyway
        whole = not capacity.cuts_prompts and pending <= capacity.token_budget
        if left <= 0 or (whole and left < pending):
            return LimitReached("budget", max(0, left), pending, capacity.token_budget)
        if self.reserve == "output":
            need = capacity.blocks_for(request.max_num_tokens)
            free = capacity.num_blocks - sum(
                [capacity.blocks_for(r.max_num_tokens) for r in capacity.held]
            )
        else:
            tokens = request.num_tokens
            if self.reserve == "chunk":
                tokens += min(pending, left) - pending
            need = capacity.blocks_for(tokens) - capacity.cached_blocks
            # vLLM counts its null block, too
            kept = int(self.watermark * (capacity.num_blocks + 1)) if capacity.running else 0
            free = 0 if capacity.is_short else capacity.blocks_free - kept
        return (
            LimitReached("blocks", max(0, free), need, capacity.num_blocks) if need > free else None
        )

    def select_victim(self, candidates: Sequence[RequestView]) -> RequestView:
        """Which of these gives way: all running requests, in the order in which they joined; where
        `preemption` is "after", the skipped ones.
        """
        return candidates[-1]

    @property
    def keeps_finished(self) -> bool:
        """Whether a finished request holds its lane until its whole wave has finished."""
        return self.admission == "barrier" and self.finished_rows == "computed"

    @property
    def knobs(self) -> tuple[str, ...]:
        """The limits of an `EngineConfig` that matter under this policy, but not under all."""
        in_line = self.token_budget and self.preemption != "after"
        means = {
            "max_num_seqs": not self.one_lane,
            "max_num_batched_tokens": self.token_budget,
            "chunked_prefill": in_line and not self.whole_prompts,
            "prefill_first": in_line and self.layout == "packed" and self.mixed_batches,
            "prefix_caching": self.prefix_caching,
        }
        return tuple(name for name, does in means.items() if does)

    def to_json(self) -> dict[str, Any]:
        """The fields that affect decisions, as a header has them: all but name and description."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("name", "shows")
        }


@dataclass(frozen=True, kw_only=True)
class TransformersFifo(Policy):
    """Requests that lack a block are skipped, and those behind them may continue: `FIFOScheduler`
    and `OffloadingManager` of transformers 5.23.
    """

    victim: str = "blocked"
    preemption: Literal["before", "idle", "after", "never"] = "after"
    requeue: bool = True
    reserve: Literal["chunk", "prompt", "output"] = "chunk"
    margin: float = 0.15
    kv_reads: float | None = 1.0
    prefix_caching: bool = False

    def admit(self, request: RequestView, capacity: Capacity) -> LimitReached | None:
        """After a request has given way, none joins until one finishes."""
        return LimitReached("recovery", 0, 1, 1) if capacity.recovering else capacity.lacks(request)


@dataclass(frozen=True, kw_only=True)
class Priority(Policy):
    """The lowest priority number joins first. Among requests with the highest number the newest
    gives way, and it joins the queue at its place: vLLM's `--scheduling-policy priority`.
    """

    order_by: str = "priority"
    victim: str = "lowest priority"
    requeue: bool = True

    def order(self, request: RequestView) -> int:
        """The priority itself."""
        return request.priority

    def select_victim(self, candidates: Sequence[RequestView]) -> RequestView:
        """The newest of the requests with the highest number."""
        return max(candidates, key=lambda request: (request.priority, request.arrival_index))


@dataclass(frozen=True, kw_only=True)
class RecordedPolicy(Policy):
    """The policy of a trace that is not installed here: its data without its rules, so nothing can
    run under it. own: the fields of its class that `Policy` does not have.
    """

    own: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """The fields as the trace's header had them."""
        data = super().to_json()
        return data | data.pop("own")


POLICIES: dict[str, Policy] = {}


def register_policy(name: str, policy: Policy | type[Policy]) -> Policy:
    """Make a policy available by name to `EngineConfig`, the command line, the page and `check`;
    returns the policy under that name.

    Raises InvalidConfig for a name that is not a single word, or that a built-in policy has.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[\w.-]{1,40}", name)):
        raise InvalidConfig(
            "A policy's name is a word of at most 40 letters, digits, dots and hyphens, not"
            f" {shown(name)}."
        )
    if name in _BUILT_IN:
        raise InvalidConfig(f"There is a policy {name} already; give yours a name of its own.")
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        require(policy, Policy, "A policy is a Policy or a class of it")
    POLICIES[name] = replace(policy, name=name) if isinstance(policy, Policy) else policy(name=name)
    return POLICIES[name]


def _reserved(name: str, shows: str, **fields: Any) -> Policy:
    """A policy that reserves room for the whole answer, so no request ever gives way."""
    return Policy(name=name, shows=shows, **{"reserve": "output", "preemption": "never", **fields})


def _older(name: str, shows: str, **fields: Any) -> Policy:
    return _reserved(name, shows, **{"token_budget": False, "prefix_caching": False, **fields})


for _policy in (
    _older("sequential", "no batching: one request at a time", one_lane=True),
    _older(
        "static",
        "a wave waits for its longest request; finished rows are computed as padding",
        admission="barrier",
        layout="padded",
    ),
    _older(
        "static-dropped",
        "as static, but finished rows are dropped from the batch; still, none joins before the wave"
        " ends",
        admission="barrier",
        layout="padded",
        finished_rows="dropped",
    ),
    _older(
        "dynamic",
        "lanes refill at once, but a joining prompt pads all other rows to its length",
        layout="padded",
    ),
    _older(
        "split",
        "a prefill pass for each joining request, then one padded decode pass",
        layout="split",
    ),
    _older(
        "split-chunked",
        "one prompt at a time in chunks within the token budget, then the padded decode pass",
        layout="split",
        token_budget=True,
        one_prefill=True,
    ),
    Policy(
        name="continuous",
        shows=(
            "decodes and prompt chunks packed into one pass, no padding, paged KV; decides as vLLM"
            " does"
        ),
    ),
    Policy(
        name="stall",
        shows=(
            "as continuous, but a request that lacks a KV block stalls, and the newest is preempted"
            " only when no request can go on"
        ),
        preemption="idle",
    ),
    Policy(
        name="shortest-first",
        shows=(
            "as continuous, but the shortest waiting prompt joins first; one overtaken by eight is"
            " next"
        ),
        order_by="shortest",
        aging=8,
    ),
    Priority(
        name="priority-first",
        shows=(
            "as continuous, but the lowest priority number joins first, and the newest of the"
            " highest gives way (vLLM's --scheduling-policy priority)"
        ),
    ),
    _reserved(
        "no-evict",
        "as continuous, but a request joins when its whole answer has room: nobody is preempted"
        " (TensorRT-LLM's default)",
    ),
    _reserved(
        "mini-sglang",
        "a step computes prompt chunks or decodes, never both, and room for the whole answer is"
        " reserved (mini-SGLang)",
        mixed_batches=False,
    ),
    Policy(
        name="nano-vllm",
        shows=(
            "a step computes prompts, whole if the budget holds them, or decodes, never both; the"
            " newest gives way (nano-vLLM)"
        ),
        mixed_batches=False,
        whole_prompts=True,
    ),
    TransformersFifo(
        name="transformers",
        shows=(
            "decodes first; a request that lacks a KV block is skipped and gives way, and then none"
            " joins until one ends (transformers)"
        ),
    ),
):
    POLICIES[_policy.name] = _policy
_BUILT_IN = frozenset(POLICIES)
