"""The header of a trace: what ran, on which device and under which limits, as one frozen record. In
a file it is plain data, validated when it is read.

Fields that this version does not know, written by a newer one, are kept as plain data (`more`) and
written back to the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Self, TypeVar, get_type_hints

from core.config import EngineConfig
from core.errors import InflightError, InvalidTrace, shown
from core.policy import POLICIES, Policy, RecordedPolicy
from core.trace.schema import fits
from core.workload.workload import INTERACTIVE, ArrivalUnit, Workload

SIMULATED = "simulated"
FULL = ("full_attention", "mla_attention")
"""Kinds of KV cache groups whose layers attend to all positions."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts that form one object in a file. A field at its default was not recorded, and is left
    out of the file.

    more: fields that this version does not know; they come last in a file.
    """

    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as in a file."""
        return self._known() | dict(self.more)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of all fields in `more`, of these facts and of the facts in them."""
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]
        within = [
            f"{name}.{field}"
            for name, value in values
            for one in (value if isinstance(value, tuple) else (value,))
            if isinstance(one, Facts)
            for field in one.unknown
        ]
        return (*self.more, *within)

    def _known(self) -> dict[str, Any]:
        known = {}
        for f in fields(self):
            default = f.default if f.default_factory is MISSING else f.default_factory()
            if f.name != "more" and (value := getattr(self, f.name)) != default:
                known[_in_file(f.name)] = _plain(value)
        return known


@dataclass(frozen=True, kw_only=True)
class ModelFacts(Facts):
    """The model that ran; less is known of another engine's model.

    parameters: their number. context: the most tokens that a request may have, prompt and answer.
    eos_token_ids: tokens that end a request unless it ignores them. windows: each layer's sliding
    window in tokens, None without one. plug: how its attention was replaced.
    """

    name: str | None = None
    type: str | None = None
    parameters: int | None = None
    layers: int | None = None
    vocab_size: int | None = None
    context: int | None = None
    eos_token_ids: tuple[int, ...] | None = None
    windows: tuple[int | None, ...] | None = None
    plug: str | None = None
    kv_bytes_per_token: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClockFacts(Facts):
    """The readings, in nanoseconds, of the clocks of an engine's machine at the trace's time 0.

    monotonic_ns: of the clock that all processes of the machine share until it restarts. boot:
    identifies the machine's current boot. whole_seconds: the wall clock is in whole seconds.
    """

    monotonic_ns: int | None = None
    wall_ns: int | None = None
    boot: str | None = None
    whole_seconds: bool | None = None


@dataclass(frozen=True, kw_only=True)
class EngineFacts(Facts):
    """Another engine, whose steps these are.

    async_: a step is scheduled before the result of the step before it has been read. rank: of
    `ranks` that share the work, each with its own scheduler. long_prefill_token_threshold: the most
    tokens of a prompt that a step computes while there are other requests; 0 is no limit.
    num_spec_tokens: the most tokens that are proposed for a request in a step. kv_connector: what
    loads KV blocks from elsewhere and stores some for other engines.
    """

    name: str
    version: str | None = None
    scheduler: str | None = None
    executor: str | None = None
    async_: bool | None = None
    rank: int | None = None
    ranks: int | None = None
    clock: ClockFacts | None = None
    long_prefill_token_threshold: int | None = None
    num_spec_tokens: int | None = None
    kv_connector: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


@dataclass(frozen=True, kw_only=True)
class ExecutionFacts(Facts):
    """How passes were computed, if not eagerly and one at a time.

    cuda_graphs: passes may have been CUDA graphs of at most max_graph_positions, and of at least
    min_graph_positions if they compute prompts. asynchronous: steps were launched before the
    results of the steps before them were read.
    """

    attention: str | None = None
    cuda_graphs: bool | None = None
    min_graph_positions: int | None = None
    max_graph_positions: int | None = None
    asynchronous: bool | None = None
    fused_sampling: bool | None = None
    fused_norms: bool | None = None
    fused_rotary: bool | None = None


@dataclass(frozen=True, kw_only=True)
class GroupFacts(Facts):
    """Layers of another engine's model that share a block table for each request, a KV cache group.
    All groups share one pool.

    kind: as vLLM names it ("full_attention", "sliding_window", "chunked_local_attention", "mamba",
    …). window: tokens that its layers look back over, the present one included; blocks that lie
    behind are given back, or overwritten where the kind is "ring". block_size: tokens in a block.
    layers: their indices in the model. units: consecutive blocks of the pool that make one of the
    group, whose blocks are larger. most_blocks: with which a request of any length is admitted.
    """

    kind: str | None = None
    window: int | None = None
    block_size: int | None = None
    layers: tuple[int, ...] | None = None
    units: int | None = None
    most_blocks: int | None = None

    def blocks_of(self, tokens: int, block_size: int) -> int:
        """Blocks of the pool that tokens take. block_size: for a group without its own."""
        kept = min(tokens, self.window or tokens) if self.kind == "ring" else tokens
        return -(-kept // (self.block_size or block_size)) * (self.units or 1)

    def blocks_for(self, tokens: int, block_size: int) -> int:
        """Blocks that must be free to admit a request of so many tokens; see `blocks_of`."""
        needed, most = self.blocks_of(tokens, block_size), self.most_blocks
        return min(needed, most * (self.units or 1)) if most else needed

    def first_seen(self, position: int) -> int | None:
        """The first position that a query at `position` attends to; None without a window."""
        slides = self.window is not None and (self.kind or "").startswith("sliding_window")
        return max(0, position - self.window + 1) if slides and self.window else None


def windows_of(groups: Sequence[GroupFacts]) -> tuple[int | None, ...] | None:
    """The window of each layer, None for a layer without one; None if not all layers are known."""
    by_layer: dict[int, int | None] = {}
    for group in groups:
        slides = group.kind == "ring" or group.first_seen(0) is not None
        if group.layers is None or not (slides or group.kind in FULL):
            return None
        by_layer |= dict.fromkeys(group.layers, group.window if slides else None)
    is_whole = groups and sorted(by_layer) == list(range(len(by_layer)))
    return tuple(by_layer[layer] for layer in sorted(by_layer)) if is_whole else None


@dataclass(frozen=True, kw_only=True)
class Header(Facts):
    """What ran, and under which limits. The requests are in the trace, not here.

    created: when, in ISO 8601. source: "live", "recorded", "uploaded" or "simulated" (no model ran,
    and tokens are invented). engine: None for our own. inferred: what another engine did not
    record, and how it was inferred. absent: what is unknown. threads: of the host. config: with the
    policy as it was when it ran. num_blocks: in the pool. kv_groups: empty if all layers share one
    block table. workload: its name. arrival_unit: the unit of its arrivals. tensor_parallel: the
    number of processes that shared the model. leak: whether requests could read each other's keys.
    cost: the cost model of a simulated run. memory: bytes by purpose. notes: a sentence for each
    oddity.
    """

    created: str = ""
    source: str = ""
    engine: EngineFacts | None = None
    inferred: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    model: ModelFacts
    device: str = ""
    device_name: str = ""
    threads: int | None = None
    dtype: str = ""
    config: EngineConfig
    num_blocks: int
    kv_groups: tuple[GroupFacts, ...] = ()
    workload: str
    arrival_unit: ArrivalUnit
    versions: Mapping[str, str | None] = field(default_factory=dict)
    tensor_parallel: int = 1
    leak: bool = False
    cost: Mapping[str, Any] | None = None
    execution: ExecutionFacts | None = None
    memory: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """The policy under which it ran; a `RecordedPolicy` if it is not installed here."""
        return self.config.policy

    @property
    def unlike_installed(self) -> tuple[str, ...]:
        """The fields in which its policy differs from the installed one of the same name."""
        own, installed = (
            self.policy.to_json(),
            POLICIES.get(self.policy.name, self.policy).to_json(),
        )
        return tuple(name for name, value in own.items() if value != installed[name])

    @property
    def groups(self) -> tuple[GroupFacts, ...]:
        """The KV cache groups; there is always at least one."""
        return self.kv_groups or (GroupFacts(block_size=self.config.block_size),)

    @property
    def is_simulated(self) -> bool:
        """Whether its times come from a cost model."""
        return self.source == SIMULATED

    @property
    def is_asynchronous(self) -> bool:
        """Whether steps were launched before the results of the steps before them had been read."""
        return self.execution is not None and self.execution.asynchronous is True

    @property
    def is_interactive(self) -> bool:
        """Whether requests came in while it ran."""
        return self.workload == INTERACTIVE

    @property
    def has_one_clock(self) -> bool:
        """Whether all times were read from the host's clock, none from a device's."""
        return self.execution is None and self.engine is None

    @property
    def counts_steps(self) -> bool:
        """Whether arrivals are given in steps; otherwise they are in seconds."""
        return self.arrival_unit == "step"

    def _known(self) -> dict[str, Any]:
        """The fields in the order of a file, in which the policy stands beside the config."""
        instead: dict[str, dict[str, Any]] = {
            "config": {
                "policy": self.policy.name,
                "batching": self.policy.to_json(),
                "config": self.config.to_json(),
            },
            "workload": {"workload": Workload((), self.workload, self.arrival_unit).heading()},
            "arrival_unit": {},
        }
        known: dict[str, Any] = {}
        for name, value in super()._known().items():
            known |= instead.get(name, {name: value})
        return known

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; raises InvalidTrace for a header that cannot be followed."""
        for name, kind in (("model", dict), ("config", dict), ("workload", dict), ("policy", str)):
            if not isinstance(data.get(name), kind):
                raise InvalidTrace(f"the header has no {name}.", 1)
        if "requests" in data["workload"]:
            raise InvalidTrace(
                "the header's workload has requests, which have lines of their own.", 1
            )
        if data["policy"] != data["config"].get("policy"):
            raise InvalidTrace("the policy is not that of the config.", 1)
        policy = _policy(data["policy"], data.get("batching"))
        try:
            config = EngineConfig.from_json(data["config"] | {"policy": policy})
            workload = Workload.from_json({**data["workload"], "requests": []})
        except InflightError as error:
            raise InvalidTrace(str(error), 1) from None
        typed: dict[str, Any] = {
            "engine": _engine(data.get("engine")),
            "model": _model(data["model"]),
            "config": config,
            "num_blocks": _pool(data.get("num_blocks"), config),
            "kv_groups": _groups(data.get("kv_groups")),
            "workload": workload.name,
            "arrival_unit": workload.arrival_unit,
            "execution": (
                _facts(ExecutionFacts, execution, "execution")
                if (execution := data.get("execution"))
                else None
            ),
        }
        rest = {name: data[name] for name in data if name not in ("policy", "batching")}
        header = _facts(cls, rest, "header", **typed)
        if fault := header._fault():
            raise InvalidTrace(fault, 1)
        return header

    def _fault(self) -> str | None:
        """How the header contradicts itself, or None."""
        own = self._fault_of(self.engine) if self.engine else self._fault_of_ours()
        return own or self._fault_of_any()

    def _fault_of(self, engine: EngineFacts) -> str | None:
        if missing := [name for name in _ALWAYS_INFERRED if not self.inferred.get(name)]:
            return (
                f"the header does not say how the {missing[0]} of another engine's run were"
                " inferred."
            )
        facts = ("threads", "leak", "cost", "execution", "memory")
        of_model = ("parameters", "eos_token_ids", "plug")
        ours = [name for name in facts if getattr(self, name)]
        ours += [f"the model's {n}" for n in of_model if getattr(self.model, n) is not None]
        if ours:
            return (
                f"the header says that {engine.name} ran, and has a fact that only this engine"
                f" records: {ours[0]}."
            )
        if engine.ranks is not None and not 0 <= (engine.rank or 0) < engine.ranks:
            return f"rank {engine.rank} is none of {engine.ranks} ranks."
        return None

    def _fault_of_ours(self) -> str | None:
        if self.inferred or self.absent:
            return "a run of this engine leaves nothing absent or to be inferred."
        if missing := [name for name in _ALWAYS_KNOWN if getattr(self.model, name) is None]:
            return f"the header does not say the model's {missing[0]}."
        installed = POLICIES.get(self.policy.name, self.policy)
        for name, words in _WORDS_OF_A_RULE.items():
            if (word := getattr(self.policy, name)) not in (*words, getattr(installed, name)):
                return (
                    f"the policy's {name} is {shown(word)}, which is not what {self.policy.name}"
                    " does."
                )
        if self.kv_groups:
            return "all layers of this engine share one block table."
        return None

    def _fault_of_any(self) -> str | None:
        if self.is_simulated != (self.cost is not None):
            return "a simulated run has a cost model, and no other has one."
        assumptions = (self.cost or {}).get("assumptions", [])
        if not (isinstance(assumptions, list) and all(isinstance(a, str) for a in assumptions)):
            return "the cost model's assumptions are not a list of sentences."
        counts = {"threads": self.threads, "tensor_parallel": self.tensor_parallel}
        if wrong := [name for name, count in counts.items() if count is not None and count < 1]:
            return f"the header's {wrong[0]} is not a count."
        if min((self.memory or {}).values(), default=0) < 0:
            return "the header's memory is not a number of bytes."
        return None


# with their minimum
_MODEL_COUNTS = {
    "vocab_size": 1,
    "context": 1,
    "parameters": 0,
    "layers": 0,
    "kv_bytes_per_token": 0,
}
# of a model run by our own engine
_ALWAYS_KNOWN = tuple(f.name for f in fields(ModelFacts) if f.name not in ("context", "more"))
_ALWAYS_INFERRED = ("lanes", "waiting", "reasons")  # of another engine's run
_WHAT_IT_IS = ("admission", "layout", "finished_rows", "token_budget", "one_prefill", "one_lane")
_WORDS_OF_A_RULE = {
    "order_by": ("arrival", "shortest"),
    "victim": ("newest", "blocked"),
}  # any other is a description of a policy's own
_SHARES = ("watermark", "margin", "kv_reads")  # of the pool
_MOST_CHARACTERS = 80  # in the name and descriptions of a policy
_AnyFacts = TypeVar("_AnyFacts", bound=Facts)


def _in_file(name: str) -> str:
    """The name of a field in a file: `async` cannot be the name of a field in Python."""
    return name.removesuffix("_")


def _plain(value: Any) -> Any:
    if isinstance(value, Facts):
        return value.to_json()
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def _facts(record: type[_AnyFacts], data: object, of: str, **typed: Any) -> _AnyFacts:
    """Facts of an object, checked for their types; unknown fields go into `more`. typed: fields
    that have been converted already.
    """
    if not isinstance(data, dict):
        raise InvalidTrace(f"the header's {of} is not an object.", 1)
    hints = {_in_file(name): (name, hint) for name, hint in get_type_hints(record).items()}
    del hints["more"]
    known = dict(typed)
    for key, value in data.items():
        if key in hints and key not in typed and value is not None:
            name, hint = hints[key]
            known[name] = tuple(value) if isinstance(value, list) else value
            if not fits(known[name], hint):
                raise InvalidTrace(f"the {of}'s {key} is of the wrong kind.", 1)
    more = {key: value for key, value in data.items() if key not in hints}
    return record(**known, more=more)


def _engine(data: object) -> EngineFacts | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InvalidTrace("the header does not say which engine this was.", 1)
    clock = (
        None if data.get("clock") is None else _facts(ClockFacts, data["clock"], "engine's clock")
    )
    return _facts(EngineFacts, data, "engine", clock=clock)


def _groups(data: object) -> tuple[GroupFacts, ...]:
    if not (data is None or isinstance(data, list)):
        raise InvalidTrace("the header's kv_groups are not a list.", 1)
    groups = tuple(_facts(GroupFacts, group, "KV cache group") for group in data or ())
    for group in groups:
        lengths = (group.window, group.block_size, group.units, group.most_blocks)
        if any(n is not None and n < 1 for n in lengths) or min(group.layers or (0,)) < 0:
            raise InvalidTrace("the header's kv_groups have numbers that none can have.", 1)
    return groups


def _model(data: object) -> ModelFacts:
    model = _facts(ModelFacts, data, "model")
    for name, least in _MODEL_COUNTS.items():
        if (count := getattr(model, name)) is not None and count < least:
            raise InvalidTrace(f"the model's {name} is not a count.", 1)
    if any(w is not None and w < 1 for w in model.windows or ()):
        raise InvalidTrace("the model's windows are not lengths.", 1)
    if any(i < 0 for i in model.eos_token_ids or ()):
        raise InvalidTrace("the model's eos_token_ids are not token ids.", 1)
    layers, windows = model.layers, model.windows
    is_simulated = layers == 0 and windows == (None,)
    if None not in (layers, windows) and len(windows or ()) != layers and not is_simulated:
        raise InvalidTrace(f"the model has {layers} layers but {len(windows or ())} windows.", 1)
    return model


def _policy(name: str, data: object) -> Policy:
    """The policy as it was when it ran. If it is installed here, the fields of `_WHAT_IT_IS` must
    match, while the others may come from another version; if not, only the header's data is known.
    """
    found = POLICIES.get(name)
    known = (found or Policy(name=name)).to_json()
    given = data if isinstance(data, dict) else {}
    own = {field: value for field, value in given.items() if field not in known}
    hints = get_type_hints(type(found) if found else Policy)
    if (
        not known.keys() <= given.keys()
        or (found and own)
        or not all(fits(given[field], hints[field]) for field in known)
    ):
        raise InvalidTrace("the header does not have the fields of a policy.", 1)
    if (
        any(given[field] is not None and not 0 <= given[field] <= 1 for field in _SHARES)
        or (given["aging"] or 1) < 1
    ):
        raise InvalidTrace("the fields of the policy are out of range.", 1)
    if any(len(text) > _MOST_CHARACTERS for text in (name, given["order_by"], given["victim"])):
        raise InvalidTrace("the policy's words are longer than a sentence can hold.", 1)
    if found is None:
        return RecordedPolicy(name=name, own=own, **{field: given[field] for field in known})
    if any(given[field] != known[field] for field in _WHAT_IT_IS):
        raise InvalidTrace(f"the fields of the policy are not those of {name}.", 1)
    try:
        return replace(found, **given)
    except InflightError as error:
        raise InvalidTrace(str(error), 1) from None


def _pool(num_blocks: object, config: EngineConfig) -> int:
    if type(num_blocks) is not int or num_blocks < 1:
        raise InvalidTrace("the header has no num_blocks.", 1)
    if config.num_blocks not in (None, num_blocks):
        raise InvalidTrace(
            f"the pool has {num_blocks} blocks and not the {config.num_blocks} of the config.", 1
        )
    return num_blocks
