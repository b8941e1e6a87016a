"""The header of a recording as the header of a trace: which engine, model and limits, what is inferred of its steps and what is absent.

Knows no step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidTrace
from core.recorders.raw import Recording
from core.trace.header import ClockFacts, EngineFacts, Header, ModelFacts
from core.trace.inferred import REASONS

_ENGINES = {"vllm": "vLLM", "transformers": "transformers"}
_INFERRED = {
    "lanes": "the lowest lane that is free, in order of admission: the engine numbers rows anew in every pass",
    "waiting": "new requests join the end, preempted ones the head",
    "reasons": REASONS,
}
_NEEDED = ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks")


def check_facts(recording: Recording) -> None:
    """Raises InvalidTrace for a header without what every step is drawn with."""
    if absent := [name for name in _NEEDED if recording.header.get(name) is None]:
        raise InvalidTrace(f"{recording.name} does not say its {absent[0]}, without which its steps cannot be drawn.")


def trace_header(recording: Recording, model: Path | None, start: float, absent: Iterable[str], notes: Iterable[str]) -> Header:
    """What ran. model: where its files are on this machine, if they are. start: the trace's time 0, in seconds of the recording. absent: what
    its steps do not say. Raises InvalidConfig or InvalidTrace.
    """
    facts = recording.header
    name = _ENGINES.get(recording.engine, recording.engine)
    workload = facts.get("workload") or {"name": f"{recording.engine}-recording", "arrival_unit": "s"}
    config = EngineConfig(
        policy="continuous",
        max_num_seqs=facts["max_num_seqs"],
        max_num_batched_tokens=facts["max_num_batched_tokens"],
        block_size=facts["block_size"],
        num_blocks=facts["num_blocks"],
        prefix_caching=bool(facts.get("prefix_caching")),
        chunked_prefill=facts.get("chunked") is not False,
    )
    if requeues := recording.requeues:  # transformers: see its policy
        config = replace(config, policy=replace(config.policy, requeue=True, victim="blocked"))
    header = Header(
        created=facts.get("created", ""),
        source="recorded",
        engine=EngineFacts(
            name=name,
            version=recording.version,
            scheduler=facts.get("scheduler"),
            executor=facts.get("executor"),
            async_=bool(facts.get("async_scheduling")),
            rank=recording.rank,
            ranks=recording.ranks,
            clock=_clock(facts, start),
        ),
        inferred=_INFERRED | ({"waiting": "new requests join the end, and so do preempted ones"} if requeues else {}),
        absent=("prepare", "sample", *absent, *(("prompts",) if recording.is_hashed else ())),
        model=_model(model, facts),
        device="not recorded",
        device_name="not recorded",
        dtype=str(facts.get("dtype", "")).removeprefix("torch."),
        config=config,
        num_blocks=facts["num_blocks"],
        workload=workload["name"],
        arrival_unit=workload["arrival_unit"],
        versions={name: recording.version},
        notes=(*([facts["arrivals"]] if facts.get("arrivals") else []), *notes),
    )
    return Header.from_json(header.to_json())  # what was recorded may be anything


def _clock(facts: dict[str, Any], start: float) -> ClockFacts | None:
    """What its machine's clocks showed at the trace's time 0, `start` seconds into the recording. Recordings that do not tell the clocks
    have the date at which they began, to the second.
    """
    clock, since = facts.get("clock"), round(start * 1e9)
    if isinstance(clock, dict):
        return ClockFacts(monotonic_ns=clock["monotonic_ns"] + since, wall_ns=clock["wall_ns"] + since, boot=clock.get("boot"))
    try:
        created = datetime.fromisoformat(facts["created"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return ClockFacts(wall_ns=int(created.timestamp()) * 10**9 + since, whole_seconds=True)


def _model(folder: Path | None, facts: dict[str, Any]) -> ModelFacts:
    """What is known of the model: from its configuration where it is here, else what was recorded."""
    name, context = Path(facts.get("model", "unknown")).name, facts.get("max_model_len")
    if folder is None:
        return ModelFacts(name=name, vocab_size=facts.get("vocab_size"), context=context)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers, heads, size = (
        config.get("num_hidden_layers", config.get("n_layer")),
        config.get("num_key_value_heads"),
        config.get("head_dim"),
    )
    bytes_each = 4 if "32" in str(facts.get("dtype")) else 2
    return ModelFacts(
        name=name,
        type=config.get("model_type"),
        layers=layers,
        vocab_size=config.get("vocab_size"),
        context=context or config.get("max_position_embeddings"),
        kv_bytes_per_token=2 * layers * heads * size * bytes_each if layers and heads and size else None,
    )
