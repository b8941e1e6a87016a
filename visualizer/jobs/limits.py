"""Limits on what the page accepts, in one place, with the sentence for each refusal.
`visualizer.server.limits` chooses those of a server.

A spec is `{"workload": …, "config": …, "model": name, "device": name, "dtype": name}`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.config import BUILTIN_MODELS, DEFAULT_MODEL, SMOLLM2, EngineConfig
from core.errors import InflightError, InvalidRequest
from core.torch_engine.models.names import model_named
from core.trace.phrases import letter
from core.workload.request import Request
from core.workload.workload import Workload

DTYPES = ("auto", "float32", "bfloat16", "float16")
_LONGEST_NAME = 1_000  # characters of a model's name


class Refused(InflightError):
    """The page does not accept something; the message is one sentence with the reason."""


class TimeIsUp(Exception):
    """A job's time is up. This is not a `Refused`, which the interrupted work may catch."""


@dataclass(frozen=True)
class Limits:
    """offered: models that may be chosen by name. any_model: also any folder and hub id. repeats:
    rounds of a comparison. seconds: the longest time of a job. shared_requests,
    shared_requests_of_one: requests in progress in the shared engine, in total and per address.
    waiting_jobs: the most that may wait. kept_bytes: disk space for the runs and exports of all
    visitors. tokenizer: the one for recordings, by default that of their model.
    """

    requests: int = 64
    prompt_characters: int = 20_000
    total_characters: int = 100_000
    new_tokens: int = 512
    total_tokens: int = 16_384
    arrival: int = 10_000
    lanes: int = 64
    budget: int = 4_096
    block_size: int = 256
    kv_tokens: int = 65_536
    steps: int = 2_000
    seconds: float = 300
    upload_bytes: int = 32 * 2**20
    concurrent_runs: int = 4
    waiting_jobs: int = 400
    repeats: int = 9
    shared_requests: int = 1024
    shared_requests_of_one: int = 1024
    kept_bytes: int = 2**30
    offered: tuple[str, ...] = BUILTIN_MODELS
    any_model: bool = True
    tokenizer: str = ""

    @property
    def question_bytes(self) -> int:
        """The most bytes of a JSON body, in which a character may take six."""
        return 12 * self.total_characters


HERE = Limits()
IN_TAB = Limits(any_model=False, offered=(*BUILTIN_MODELS, SMOLLM2))
"""For the engine in a visitor's browser tab; its files say which of the models it has."""


class Spec(NamedTuple):
    """A requested run, checked."""

    workload: Workload
    config: EngineConfig
    model: str
    device: str
    dtype: str = "auto"


def checked_model(name: object, dtype: object, limits: Limits) -> tuple[str, str]:
    """Name and dtype of a model that may be loaded; raises Refused, without a search."""
    if not isinstance(name, str) or not isinstance(dtype, str):
        raise Refused("The model and its number format must be names.")
    if dtype not in DTYPES:
        raise Refused(f"There is no number format of that name; there are {', '.join(DTYPES)}.")
    if name in limits.offered:
        if dtype != "auto" and not limits.any_model:
            raise Refused(
                "On this page a model runs in the number format that its owner's machine prefers:"
                " auto."
            )
        return name, dtype
    if not limits.any_model:
        raise Refused(f"This page runs its own models only: {', '.join(limits.offered)}.")
    if not 0 < len(name) <= _LONGEST_NAME or "\0" in name or not model_named(name):
        raise Refused("Name a model: a folder, or an id on the Hugging Face hub.")
    return model_named(name), dtype


def check(spec: object, limits: Limits) -> Spec:
    """The spec as typed values; raises Refused or InflightError before anything is loaded."""
    if not isinstance(spec, dict):
        raise Refused("A run is asked for as an object with a workload and a config.")
    model, dtype = checked_model(
        spec.get("model", DEFAULT_MODEL), spec.get("dtype", "auto"), limits
    )
    device = spec.get("device", "auto")
    if not isinstance(device, str):
        raise Refused("The device must be a name.")
    try:
        workload = Workload.from_json(spec.get("workload"))
    except InvalidRequest as error:
        raise as_the_page_says(error, spec["workload"]["requests"]) from None
    config = spec.get("config", {})
    if not isinstance(config, dict):
        raise Refused("The config must be an object.")
    checked = Spec(workload, EngineConfig.from_json(config), model, device, dtype)
    _check_workload(workload, limits)
    _check_config(checked.config, limits)
    return checked


def check_tokens(prompts: Mapping[str, list[int]], workload: Workload, limits: Limits) -> None:
    """Raises Refused if the tokenized prompts and new tokens are too many."""
    total = sum(map(len, prompts.values())) + sum(r.sampling.max_new_tokens for r in workload)
    _at_most(
        total, limits.total_tokens, "The workload has {} tokens, prompts and new ones together"
    )


def check_upload(size: int, limits: Limits) -> None:
    """Raises Refused for a file that is too large."""
    if size > limits.upload_bytes:
        raise Refused(
            f"The file has {size / 2**20:,.1f} MiB; this page opens files of at most"
            f" {limits.upload_bytes >> 20} MiB."
        )


def as_the_page_says(
    error: InvalidRequest, requests: Iterable[Request | dict[str, Any]]
) -> InvalidRequest:
    """The error about one of these requests, named by its letter on the page if known."""
    asked = [
        r.to_json() if isinstance(r, Request) else r
        for r in requests
        if isinstance(r, (Request, dict))
    ]
    try:
        names = _letters((str(r.get("id")), r.get("arrival", 0)) for r in asked)
    except TypeError:  # arrivals that cannot be sorted
        return error
    return error.called(names[error.request]) if error.request in names else error


def _letters(arrivals: Iterable[tuple[str, float]]) -> dict[str, str]:
    """Each request's letter by order of arrival; given in order of submission."""
    in_order = sorted(arrivals, key=lambda pair: pair[1])
    return {request: letter(i) for i, (request, _) in enumerate(in_order)}


def _check_workload(workload: Workload, limits: Limits) -> None:
    if not len(workload):
        raise Refused("There is nothing to run: add a request.")
    _at_most(len(workload), limits.requests, "The workload has {} requests")
    names = _letters((r.id, r.arrival) for r in workload)
    characters = 0
    for request in workload:
        who = f"Request {names[request.id]}"
        length = len(request.prompt or ())  # ids are counted as tokens, see `check_tokens`
        if request.messages is not None:
            length = sum(len(message["content"]) for message in request.messages)
            _at_most(len(request.messages), 64, f"{who} has {{}} messages")
        characters += length
        _at_most(length, limits.prompt_characters, f"{who} has a prompt of {{}} characters")
        _at_most(
            request.sampling.max_new_tokens, limits.new_tokens, f"{who} asks for {{}} new tokens"
        )
        if workload.arrival_unit == "step":
            _at_most(request.arrival, limits.arrival, f"{who} arrives in step {{}}")
        else:
            _at_most(request.arrival, limits.seconds, f"{who} arrives after {{}} seconds")
        _at_most(len(request.sampling.stop), 8, f"{who} has {{}} stop strings")
    _at_most(characters, limits.total_characters, "The prompts have {} characters together")


def _check_config(config: EngineConfig, limits: Limits) -> None:
    _at_most(config.max_num_seqs, limits.lanes, "The config has {} lanes")
    _at_most(config.max_num_batched_tokens, limits.budget, "The token budget is {}")
    _at_most(config.block_size, limits.block_size, "A block has {} tokens")
    if config.num_blocks is not None:
        _at_most(
            config.num_blocks * config.block_size,
            limits.kv_tokens,
            "The KV pool has room for {} tokens",
        )


def _at_most(value: float, most: float, sentence: str) -> None:
    if value > most:
        raise Refused(f"{sentence.format(f'{value:,}')}; this page takes at most {most:,}.")
