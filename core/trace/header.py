"""The header of a trace, typed: what a reader may rely on, checked once. The rest of it (device, versions, notes) stays plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from core.config import POLICIES, BatchingPolicy, EngineConfig
from core.errors import InflightError, InvalidTrace
from core.trace.shape import fits
from core.workload.workload import Workload


@dataclass(frozen=True)
class Header:
    """What ran, under which limits.

    batching: the policy as it was then. workload, prompts (token ids by request): whatever has been asked so far, all of it where a run is
    over; on disk it follows the header. num_blocks: in the pool. windows: of each layer. vocab_size,
    context, eos_token_ids (tokens that end a request unless it ignores them): of the model, None where they are not on record.
    asynchronous: a step was launched before the one before it had been read. graphs: passes may have been CUDA graphs. one_clock: all
    times were read on the host's clock, one after the other: no device has a clock of its own. simulated: no model ran, and tokens are
    invented. engine: the name of another engine whose steps these are, None for our own.
    """

    config: EngineConfig
    batching: BatchingPolicy
    workload: Workload
    prompts: Mapping[str, list[int]]
    num_blocks: int
    windows: tuple[int | None, ...]
    vocab_size: int | None
    context: int | None
    eos_token_ids: tuple[int, ...] | None
    asynchronous: bool
    graphs: bool
    one_clock: bool
    simulated: bool
    engine: str | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Header:
        """Raises InvalidTrace for a header that cannot be followed."""
        for name, kind in (("model", dict), ("config", dict), ("workload", dict), ("prompts", dict), ("policy", str)):
            if not isinstance(data.get(name), kind):
                raise InvalidTrace(f"the header has no {name}.", 1)
        try:
            config, workload = EngineConfig.from_json(data["config"]), Workload.from_json(data["workload"])
        except InflightError as error:
            raise InvalidTrace(str(error), 1) from None
        if data["policy"] != config.policy:
            raise InvalidTrace("the policy is not that of the config.", 1)
        model, execution = data["model"], data.get("execution", {})
        if not isinstance(execution, dict):
            raise InvalidTrace("the header's execution is not an object.", 1)
        return cls(
            config,
            _batching(data.get("batching"), config.policy),
            workload,
            data["prompts"],
            _pool(data, config),
            _windows(model),
            _count(model, "vocab_size"),
            _count(model, "context"),
            _end_tokens(model),
            execution.get("asynchronous") is True,
            execution.get("cuda_graphs") is True,
            not execution and "engine" not in data,
            data.get("source") == "simulated",
            _engine(data.get("engine")),
        )


_WHAT_IT_IS = ("admission", "layout", "finished_rows", "token_budget", "one_prefill", "one_lane")


def _batching(data: object, policy: str) -> BatchingPolicy:
    """The policy as it was when it ran: its other fields may be another version's, what it is may not."""
    found = POLICIES[policy]
    known = found.to_json()
    given = {**known, **data} if isinstance(data, dict) else {}
    hints = get_type_hints(BatchingPolicy)
    if given.keys() != known.keys() or not all(fits(value, hints[name]) for name, value in given.items()):
        raise InvalidTrace("the header does not have the fields of a policy.", 1)
    if any(given[name] != known[name] for name in _WHAT_IT_IS):
        raise InvalidTrace(f"the fields of the policy are not those of {policy}.", 1)
    return replace(found, **given)


def _windows(model: dict[str, Any]) -> tuple[int | None, ...]:
    windows, layers = model.get("windows", []), model.get("layers") and _count(model, "layers")  # a simulated model has none
    if not isinstance(windows, list) or not all(w is None or (type(w) is int and w > 0) for w in windows):
        raise InvalidTrace("the model's windows are not lengths.", 1)
    if layers and windows and len(windows) != layers:
        raise InvalidTrace(f"the model has {layers} layers but {len(windows)} windows.", 1)
    return tuple(windows)


def _end_tokens(model: dict[str, Any]) -> tuple[int, ...] | None:
    ids = model.get("eos_token_ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(i) is int and i >= 0 for i in ids):
        raise InvalidTrace("the model's eos_token_ids are not token ids.", 1)
    return tuple(ids)


def _pool(data: Mapping[str, Any], config: EngineConfig) -> int:
    num_blocks = _count(data, "num_blocks")
    if num_blocks is None:
        raise InvalidTrace("the header has no num_blocks.", 1)
    if config.num_blocks not in (None, num_blocks):
        raise InvalidTrace(f"the pool has {num_blocks} blocks and not the {config.num_blocks} of the config.", 1)
    return num_blocks


def _engine(data: object) -> str | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise InvalidTrace("the header does not say which engine this was.", 1)
    return data["name"]


def _count(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidTrace(f"the header's {name} is not a count.", 1)
    return value
