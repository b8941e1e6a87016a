"""Makes the header of a trace from the header of a recording: the engine, its model, limits and
policy. It claims no scheduling rule that the engine did not run with.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidTrace
from core.policy import POLICIES, Policy, RecordedPolicy
from core.recorders.groups import kv_groups
from core.recorders.raw import Recording
from core.trace.header import ClockFacts, EngineFacts, Header, ModelFacts, windows_of
from core.trace.inferred import inferred_by

SENTENCES: dict[str, str] = {
    "pipeline_parallel_size": (
        "Pipeline parallelism: several batches are in flight at once, so steps overlap, and a"
        " running request that computes nothing in one may be in another."
    ),
    "prefill_schedule_interval": (
        "Prefill interval: prompts are computed in certain steps only, and that a request waits for"
        " such a step is not recorded."
    ),
    "kv_connector": (
        "KV connector: what it loads is shown as prefix-cache hits, and what it saves is not shown;"
        " that a request waits for it is not recorded."
    ),
    "max_loras": (
        "LoRA: which adapter a request uses is not recorded, nor that a request waits for an"
        " adapter."
    ),
    "task": (
        "Pooling: a request ends when its prompt has been computed; its vector or score is not"
        " recorded."
    ),
    "multimodal": (
        "Multimodal: images, audio and video are shown as the placeholder tokens of their prompts;"
        " the encoder's work is not recorded."
    ),
    "two_way_media": (
        "Multimodal: the tokens of one image attend to each other in both directions, while masks"
        " are drawn causal."
    ),
    "attention": "Encoder: every token attends to its whole prompt, while masks are drawn causal.",
    "encoder_decoder": (
        "Encoder and decoder: only the decoder's tokens are shown; the encoder's work is not"
        " recorded."
    ),
}
"""The sentence about each fact whose value needs one; assets/words/de.json has the German."""
_NEEDS_NO_SENTENCE: dict[str, tuple[Any, ...]] = {
    "pipeline_parallel_size": (1,),
    "prefill_schedule_interval": (1,),
    "task": ("generate",),
    "multimodal": (False,),
    "two_way_media": (False,),
    "attention": ("decoder", "hybrid", "attention_free", "encoder_decoder"),
    "encoder_decoder": (False,),
}


def unshown(facts: dict[str, Any]) -> list[str]:
    """Sentences on what is not shown for an engine with these facts."""
    return [
        sentence
        for fact, sentence in SENTENCES.items()
        if facts.get(fact) not in (None, *_NEEDS_NO_SENTENCE.get(fact, ()))
    ]


_ENGINES = {"vllm": "vLLM", "transformers": "transformers"}
_REQUEUES = ("transformers",)  # see the policy of that name
_NEEDED = ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks")
_SCHEDULERS = (None, "Scheduler", "AsyncScheduler")  # of vLLM's own


def check_facts(recording: Recording) -> None:
    """Raises InvalidTrace for a header that lacks a fact without which no step can be drawn."""
    if absent := [name for name in _NEEDED if recording.header.get(name) is None]:
        raise InvalidTrace(
            f"{recording.name} does not say its {absent[0]}, without which its steps cannot be"
            " drawn."
        )
    if recording.header["num_blocks"] == 0:
        raise InvalidTrace(
            f"{recording.name} is of a model without a KV cache, whose steps cannot be drawn."
        )


def recorded_config(recording: Recording) -> EngineConfig:
    """The limits and the policy that the engine ran with. Raises InvalidConfig."""
    facts = recording.header
    return EngineConfig(
        policy=_policy(recording),
        max_num_seqs=facts["max_num_seqs"],
        max_num_batched_tokens=facts["max_num_batched_tokens"],
        block_size=facts["block_size"],
        num_blocks=facts["num_blocks"],
        prefix_caching=bool(facts.get("prefix_caching")),
        chunked_prefill=facts.get("chunked") is not False,
    )


def _policy(recording: Recording) -> Policy:
    """`continuous` decides as vLLM does first come, first served; `priority-first` as vLLM does by
    recorded priorities. Any other order becomes a policy that can be shown but not run here.
    """
    facts, policy = recording.header, POLICIES["continuous"]
    if recording.engine in _REQUEUES:
        return replace(policy, requeue=True, victim="blocked", reserve="chunk")
    order = facts.get("policy")
    if recording.has_priorities:
        policy = POLICIES["priority-first"]
    if facts.get("reserve_full_isl") is not None:
        policy = replace(
            policy,
            reserve="prompt" if facts["reserve_full_isl"] else "chunk",
            watermark=facts.get("watermark") or 0.0,
        )
    if facts.get("scheduler") not in _SCHEDULERS and recording.engine == "vllm":
        return RecordedPolicy(name="custom", order_by="not recorded", victim="not recorded")
    if order in (None, "fcfs") or recording.has_priorities:
        return policy
    return RecordedPolicy(
        name=str(order),
        order_by=str(order),
        victim="lowest priority",
        reserve=policy.reserve,
        watermark=policy.watermark,
    )


def trace_header(
    recording: Recording,
    model: Path | None,
    start: float,
    absent: Iterable[str],
    notes: Iterable[str],
) -> Header:
    """The header of the trace. model: the folder of the model's files, if they are on this machine.
    start: the trace's time 0, in seconds of the recording. absent: facts that the steps do not
    have. Raises InvalidConfig or InvalidTrace.
    """
    facts, config = recording.header, recorded_config(recording)
    name = _ENGINES.get(recording.engine, recording.engine)
    workload = facts.get("workload") or {}
    groups = kv_groups(facts)
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
            long_prefill_token_threshold=facts.get("long_prefill_token_threshold"),
            num_spec_tokens=facts.get("num_spec_tokens"),
            kv_connector=facts.get("kv_connector"),
        ),
        inferred=inferred_by(config.policy),
        absent=(
            "prepare",
            "sample",
            *absent,
            *(("tokens",) if facts.get("task") == "pooling" else ()),
            *(("prompts",) if recording.is_hashed else ()),
        ),
        model=replace(_model(model, facts), windows=windows_of(groups)),
        device="not recorded",
        device_name="not recorded",
        dtype=str(facts.get("dtype", "")).removeprefix("torch."),
        config=config,
        num_blocks=facts["num_blocks"],
        kv_groups=groups,
        workload=workload["name"] if workload else f"{recording.engine}-recording",
        arrival_unit=workload["arrival_unit"] if workload else "s",
        versions={name: recording.version},
        notes=(*([facts["arrivals"]] if facts.get("arrivals") else []), *unshown(facts), *notes),
    )
    return Header.from_json(header.to_json())  # checks it: a recording may say anything


def _clock(facts: dict[str, Any], start: float) -> ClockFacts | None:
    """What the machine's clocks showed at the trace's time 0, `start` seconds into the recording.
    Recordings without clocks have only the date at which they began, to the second.
    """
    clock, since = facts.get("clock"), round(start * 1e9)
    if isinstance(clock, dict):
        return ClockFacts(
            monotonic_ns=clock["monotonic_ns"] + since,
            wall_ns=clock["wall_ns"] + since,
            boot=clock.get("boot"),
        )
    try:
        created = datetime.fromisoformat(facts["created"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return ClockFacts(wall_ns=int(created.timestamp()) * 10**9 + since, whole_seconds=True)


def _model(folder: Path | None, facts: dict[str, Any]) -> ModelFacts:
    """Facts about the model, from its configuration if that is here, else the recording."""
    name, context = Path(facts.get("model", "unknown")).name, facts.get("max_model_len")
    if folder is None:
        return ModelFacts(name=name, vocab_size=facts.get("vocab_size"), context=context)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    heads, size = config.get("num_key_value_heads"), config.get("head_dim")
    bytes_each = 4 if "32" in str(facts.get("dtype")) else 2
    return ModelFacts(
        name=name,
        type=config.get("model_type"),
        layers=layers,
        vocab_size=facts.get("vocab_size") or config.get("vocab_size"),
        context=context or config.get("max_position_embeddings"),
        kv_bytes_per_token=(
            2 * layers * heads * size * bytes_each if layers and heads and size else None
        ),
    )
