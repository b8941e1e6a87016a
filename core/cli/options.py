"""What commands share: their options, the run that these describe, and the engine for it. torch is
loaded only with the engine.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from core import page
from core.account.request_times import SLOs
from core.cli.given import refuse_idle
from core.cli.output import loading
from core.config import DEFAULT_MODEL, POLICIES, EngineConfig, Execution
from core.errors import InflightError, InvalidTrace, UnsupportedModel
from core.recorders.raw import lines_of
from core.torch_engine.cpu.threads import wait_passively
from core.torch_engine.models.libraries import load_libraries
from core.workload.presets import preset as preset_named
from core.workload.request import Request
from core.workload.workload import MAX_FILE_BYTES, SavedWorkload, Workload

if TYPE_CHECKING:
    from core.simulate.cost import Cost
    from core.simulate.engine import SimulatedEngine
    from core.torch_engine.engine import Engine

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="Built in, folder, GGUF file or hub id.", show_default="the preset's"
    ),
]
PresetName = Annotated[
    str | None, typer.Option("--preset", "-p", help="A preset; `presets` lists them.")
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option(
        "--workload",
        "-w",
        help=(
            "A workload file (JSON; - for standard input), or a run (a trace, a recording), in"
            " place of a preset."
        ),
    ),
]
Chat = Annotated[
    bool,
    typer.Option(
        "--chat", help="Ask by messages: each text is what a user says; the model ends its answer."
    ),
]
# far more than useful; many thousands would crash the process
MOST_THREADS = 4 * (os.cpu_count() or 1)
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_THREADS, help="CPU threads of torch.", show_default="torch's own"),
]
POLICY = f"The batching policy: {', '.join(POLICIES)}."
MORE_POLICIES = f"A policy, of {', '.join(POLICIES)}; repeatable"
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of tables; docs/json.md has the keys.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save the result here as JSON.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="Save it as a page: one file, which opens without a network."),
]
SLO = Annotated[
    list[str] | None,
    typer.Option(
        "--slo", help="A goodput limit in seconds: ttft=0.5, tpot=0.05 or e2e=3; repeatable."
    ),
]
TraceFile = Annotated[Path, typer.Argument(help="A trace file (JSON lines).", show_default=False)]
Simulate = Annotated[
    str | None,
    typer.Option(
        help=(
            "Simulate without a forward pass: a run or a recording to fit its cost to, what `fit`"
            " saved, or ACCELERATOR:SIZE such as h100:8b, h100x2:70b for two."
        ),
        show_default=False,
    ),
]


@dataclass(frozen=True)
class DeviceOptions:
    """The device and the dtype of a model. threads: of torch on a CPU, None for its own number."""

    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto"
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto"
    threads: Threads = None


LIMITS: dict[str, str] = {
    "max_num_seqs": "Lanes: how many requests run at once.",
    "max_num_batched_tokens": "Token budget of a step (continuous, split-chunked).",
    "block_size": "Tokens in a KV block.",
    "num_blocks": "Blocks in the KV pool.",
    "chunked_prefill": "Split prompts into chunks.",
    "prefix_caching": "Share full blocks of equal prefixes (continuous).",
    "prefill_first": "Prefill chunks take the budget before decodes.",
}
EXECUTION: dict[str, str] = {
    "attention": (
        "auto, triton (the paged kernel) or sdpa (a call for each sequence, also where a CPU has a"
        " kernel for decodes)."
    ),
    "cuda_graphs": "Replay small passes as CUDA graphs.",
    "asynchronous": "Launch the next step before this one is read back.",
    "fused_sampling": "One kernel from logits to tokens.",
    "fused_norms": "One kernel for an RMS norm.",
    "fused_rotary": "One kernel that turns queries and keys by their positions.",
    "gpu_memory_utilization": "Share of GPU memory to use, KV pool included.",
}


LOADED = ("threads", *EXECUTION)
"""Options without effect if no model is loaded."""


def _options(record: type, helps: Mapping[str, str]) -> list[inspect.Parameter]:
    """An option for each of these fields of a record; its value is None if it is not given."""
    types = get_type_hints(record)
    options = {
        name: Annotated[types[name] | None, typer.Option(help=text, show_default=False)]
        for name, text in helps.items()
    }
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=o)
        for name, o in options.items()
    ]


_GROUPS: dict[str, list[inspect.Parameter]] = {
    "device_options": list(inspect.signature(DeviceOptions, eval_str=True).parameters.values()),
    "limits": _options(EngineConfig, LIMITS),
    "execution": _options(Execution, EXECUTION),
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every field of a record, in place of one parameter for the
    record.

    `limits` stands for the fields of `EngineConfig` and `execution` for those of `Execution`; the
    command receives a dict of those that were given. `device_options` stands for those of
    `DeviceOptions`.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {name: options for name, options in _GROUPS.items() if name in signature.parameters}

    @functools.wraps(command)
    def call(**kwargs: Any) -> None:
        for name, options in groups.items():
            given = {option.name: kwargs.pop(option.name) for option in options}
            if name == "device_options":
                kwargs[name] = DeviceOptions(**given)
            else:
                kwargs[name] = {k: v for k, v in given.items() if v is not None}
        command(**kwargs)

    own = [p for p in signature.parameters.values() if p.name not in groups]
    every = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in (*own, *itertools.chain(*groups.values()))
    ]
    call.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in every}
    return call


@dataclass(frozen=True)
class Asked:
    """What to run: the requests, the model by name, the device, and the limits before a policy is
    chosen. names_model: False if the model is the default. stream: the requests, read as they are
    drawn, if they are too many for a workload.
    """

    workload: Workload
    model: str
    limits: EngineConfig
    given: Mapping[str, Any]
    device_options: DeviceOptions
    names_model: bool = True
    stream: Iterator[Request] | None = None

    def config(self, policy: str | None = None) -> EngineConfig:
        """The limits under a policy, by default the recommended one; raises InvalidConfig."""
        return self.limits.under(policy or self.limits.policy, **self.given)


def refuse_idle_limits(*configs: EngineConfig) -> None:
    """Raises InflightError if a limit was given that matters under none of these policies."""
    some, these = (
        {name for policy in policies for name in policy.knobs}
        for policies in (POLICIES.values(), [config.policy for config in configs])
    )
    refuse_idle(f"under {' and '.join(c.policy.name for c in configs)}", *(some - these))


def asked_for(
    preset: str | None,
    workload: Path | None,
    model: str | None,
    limits: Mapping[str, Any],
    device_options: DeviceOptions,
    chat: bool = False,
    streams: bool = False,
) -> Asked:
    """What to run: a preset or a workload file, overridden by the options that were given. chat:
    see `Workload.as_messages`. streams: whether a file that is too large to be read whole, or
    standard input, may be read request by request. Raises InflightError.
    """
    if (preset is None) == (workload is None):
        raise InflightError(
            "Give either --preset NAME or --workload FILE; `python -m inflight presets` lists the"
            " presets."
        )
    dtype, stream = "auto", None
    is_piped = workload == Path("-")
    if streams and workload is not None and (is_piped or _is_large(workload)):
        refuse_idle("for requests that are read one by one", "chat")
        stream = Workload.stream(Path("/dev/stdin") if is_piped else workload)
        saved = SavedWorkload(Workload([]))
    elif workload is not None:
        saved = _saved(workload)
    else:
        assert preset is not None
        chosen = preset_named(preset)
        saved, dtype = SavedWorkload(chosen.workload, chosen.config, chosen.model), chosen.dtype
    if device_options.device == "auto" and saved.device:
        device_options = replace(device_options, device=saved.device)
    if device_options.dtype == "auto":
        device_options = replace(device_options, dtype=dtype)
    named = model or saved.model
    return Asked(
        workload=saved.workload.as_messages() if chat else saved.workload,
        model=named or DEFAULT_MODEL,
        limits=saved.config,
        given=limits,
        device_options=device_options,
        names_model=named is not None,
        stream=stream,
    )


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > MAX_FILE_BYTES and not _is_run(path)


def _is_run(path: Path) -> bool:
    first = ""
    with suppress(InvalidTrace):  # no text: refused later
        first = next(lines_of(path), "")[:20]
    return first.startswith('{"kind":')


def _saved(path: Path) -> SavedWorkload:
    """The requests in a workload file; or, for a trace or another engine's recording, those of the
    run as they came and went, with its limits and its model. A pipe, which can be read only once,
    holds a workload.
    """
    path = Path("/dev/stdin") if path == Path("-") else path
    if not (path.is_file() and _is_run(path)):
        return SavedWorkload.load(path)
    from core.recorders.convert import open_run

    trace = open_run(path)
    return SavedWorkload(trace.as_run(), trace.config, str(trace.header.model.name))


def check_policy(policy: str) -> None:
    """Raises InvalidConfig for an unknown policy."""
    EngineConfig(policy)


def engine_for(
    model: str,
    config: EngineConfig,
    device_options: DeviceOptions,
    execution: Execution | None = None,
) -> Engine:
    """Load a model and make its engine, with this program's progress display."""
    with loading("Loading the model"):
        wait_passively()  # before torch is loaded
        load_libraries()  # takes seconds, and reading a trace does not need it
        import torch
        from transformers.utils import logging

        from core.torch_engine.engine import Engine

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        if device_options.threads is not None:
            torch.set_num_threads(device_options.threads)
        return Engine.from_pretrained(
            model,
            config,
            device=device_options.device,
            dtype=device_options.dtype,
            execution=execution,
        )


def cost_for(spec: str) -> Cost:
    """The cost model that --simulate names: by data sheet, fitted to a run or a recording, or saved
    by `fit`. Raises InflightError.
    """
    from core.recorders.convert import open_run
    from core.simulate.named import cost_named

    return cost_named(spec, open_run)


def simulated_engine(spec: str, config: EngineConfig, asked: Asked) -> SimulatedEngine:
    """An engine on the cost model of that name, without weights. Texts are tokenized by the
    tokenizer of the model that the requests are meant for.

    A fitted cost must be of the model, the device and the dtype that are asked for; otherwise
    InflightError is raised. Requests that name no model are meant for the one that was measured.
    """
    from core.simulate.engine import SimulatedEngine
    from core.simulate.fitted import Linear
    from core.torch_engine.models.tokenizer import describe_model

    cost, model = cost_for(spec), asked.model
    fitted = cost if isinstance(cost, Linear) and cost.model.name is not None else None
    if fitted is None:
        refuse_idle(f"with {spec}, which was not measured", "device", "dtype")
    else:
        model = model if asked.names_model else str(fitted.model.name)
        fitted.check_hardware(asked.device_options.device, asked.device_options.dtype)
        fitted.check_model(model)
    has_texts = any(request.has_text or request.sampling.stop for request in asked.workload)
    # whether the cost alone says enough about its model
    is_enough = cost.deployment.context is not None and not has_texts
    told = None
    if not is_enough or (fitted is not None and asked.names_model):
        try:
            told = describe_model(model)
        except UnsupportedModel:
            if asked.names_model and not is_enough:
                raise
            if not is_enough:
                raise InflightError(
                    f"These requests are texts, and the tokenizer of {model} is not on this"
                    " machine: give --model FOLDER, or requests with prompt_token_ids."
                ) from None
    if told is not None and fitted is not None:
        fitted.check_model(model, vocab_size=told.vocab_size, layers=told.layers)
    if told is None or is_enough:
        return SimulatedEngine(cost, config)
    known: dict[str, Any] = {}
    if cost.deployment.context is None:
        known = {"vocab_size": told.vocab_size, "max_model_len": told.context}
    return SimulatedEngine(cost, config, told.tokenizer, **known)


def parse_slos(given: list[str] | None) -> SLOs | None:
    """The limits given as `ttft=0.5` and the like. Raises InflightError for anything else."""
    if not given:
        return None
    limits: dict[str, float] = {}
    known = {f.name.removesuffix("_s"): f.name for f in fields(SLOs)}
    for text in given:
        name, _, value = text.partition("=")
        try:
            limit = known[name.strip().lower().removesuffix("_s")]
            if limit in limits:
                raise InflightError(f"The SLO {text!r} is a second one of its kind.")
            limits[limit] = float(value)
        except (KeyError, ValueError):
            raise InflightError(
                f"{text!r} is no SLO; write one of {', '.join(f'{k}=SECONDS' for k in known)}."
            ) from None
    return SLOs(**limits)


def require_page(path: Path | None) -> None:
    """Raises InflightError, before anything runs, if no page can be made."""
    if path is not None and page.draw is None:
        raise InflightError(
            "`python -m core` makes no pages; `python -m inflight` has the same commands, and does."
        )
