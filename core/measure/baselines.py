"""What else could serve the same requests: transformers' own ways, and the GPT-2 article's. No engine of ours is used here.

Each baseline answers every request greedily, goes on past end-of-sequence tokens as `ignore_eos` does, and hands back plain
records. What it cannot show stays None, "not observable". Setting up (caches, threads) comes before the stopwatch, as it does for us.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig, StoppingCriteria
from transformers.cache_utils import DynamicLayer

from core.errors import InflightError
from core.measure.compare import Contender, Run
from core.measure.metrics import distribution
from core.workload.workload import Workload

NAMES = ("generate-waves", "generate-serial", "transformers-continuous", "article")
_PAGE = 32  # tokens in a page of transformers' paged cache
_FLASH_PAGE = 256  # what its flash attention's fast path for decodes asks for


class Job(NamedTuple):
    """A request as a baseline sees it."""

    request: str
    prompt: tuple[int, ...]
    max_new_tokens: int


class Variant(NamedTuple):
    """A way to run transformers' continuous batching. attention: a name without "paged|", None for what the library chooses."""

    attention: str | None = None
    use_cuda_graph: bool = False
    use_async_batching: bool = False


_PLAIN = Variant()


@dataclass(frozen=True)
class BaselineRun:
    """outputs: generated ids by request. token_times: seconds from the start to each of a request's tokens, None where not observable.

    steps: forward passes of the model, None where not observable. about: settings worth printing.
    """

    outputs: Mapping[str, list[int]]
    wall_s: float
    prompts: Mapping[str, int]
    token_times: Mapping[str, list[float]] | None = None
    steps: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def metrics(self) -> dict[str, Any]:
        """The numbers of `core.measure.metrics` that can be seen from outside; None for the others. All requests arrive at 0."""
        output, prompt = sum(map(len, self.outputs.values())), sum(self.prompts.values())
        numbers: dict[str, Any] = {
            "wall_s": round(self.wall_s, 6),
            "steps": self.steps,
            "requests": len(self.outputs),
            "finished": len(self.outputs),
            "prompt_tokens": prompt,
            "output_tokens": output,
            "output_tok_s": output / self.wall_s if self.wall_s else None,
            "total_tok_s": (output + prompt) / self.wall_s if self.wall_s else None,
            "requests_per_s": len(self.outputs) / self.wall_s if self.wall_s else None,
        }
        for name in (
            "ttft_s",
            "itl_s",
            "tpot_s",
            "e2e_s",
            "queue_s",
            "padding_waste",
            "lane_occupancy",
            "budget_use",
            "kv_use",
            "time_s",
        ):
            numbers[name] = None
        if self.token_times is not None:
            times = list(self.token_times.values())
            numbers["ttft_s"] = distribution(t[0] for t in times)
            numbers["itl_s"] = distribution(b - a for t in times for a, b in pairwise(t))
            numbers["tpot_s"] = distribution((t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1)
            numbers["e2e_s"] = distribution(t[-1] for t in times)
        return numbers


def jobs(workload: Workload, tokenizer: Any | None) -> list[Job]:
    """A workload for the baselines, which know no arrivals, sampling or stops; raises InflightError for requests that ask for them."""
    found = []
    for request in workload:
        sampling = request.sampling
        if sampling.temperature or sampling.stop or not sampling.ignore_eos or request.arrival:
            raise InflightError(
                f"Request {request.id}: outside baselines run greedily, to the full length, and everything arrives at the start."
            )
        if request.prompt_token_ids is None and tokenizer is None:
            raise InflightError(f"Request {request.id}: a text prompt needs a tokenizer.")
        ids = request.prompt_token_ids or tokenizer(request.prompt)["input_ids"]  # type: ignore[misc]
        found.append(Job(request.id, tuple(ids), sampling.max_new_tokens))
    return found


def contender(name: str, model: Any, work: Sequence[Job], lanes: int, budget: int = 256) -> Contender:
    """A baseline by name, for `core.measure.compare`; raises InflightError for an unknown one."""
    starts: dict[str, Callable[[], BaselineRun]] = {
        "generate-waves": lambda: generate_waves(model, work, lanes),
        "generate-serial": lambda: generate_serial(model, work),
        "transformers-continuous": lambda: transformers_continuous(model, work, lanes, budget),
        "article": lambda: article(model, work, lanes),
    }
    if name not in starts:
        raise InflightError(f"There is no baseline {name!r}; the baselines are {', '.join(NAMES)}.")
    about = continuous_settings(work, lanes, budget) if name == "transformers-continuous" else {"lanes": lanes}
    return Contender(name, starts[name], lambda run: Run(run.outputs, run.metrics()), about)


# -- model.generate --------------------------------------------------------------------------------------------------


class _Clock(StoppingCriteria):
    """Notes when each token of a wave was there; stops it at `deadline`, on the same clock."""

    def __init__(self, rows: int, device: torch.device, clock: Callable[[], float], deadline: float) -> None:
        self.times: list[float] = []
        self._go_on, self._clock, self._deadline = torch.zeros(rows, dtype=torch.bool, device=device), clock, deadline

    def __call__(self, input_ids, scores, **kwargs) -> torch.Tensor:
        self.times.append(self._clock())
        return self._go_on if self.times[-1] < self._deadline else ~self._go_on


def generate_waves(
    model: Any, work: Sequence[Job], lanes: int, clock: Callable[[], float] = time.perf_counter, limit_s: float = math.inf
) -> BaselineRun:
    """`model.generate` on left-padded waves of `lanes` requests, each wave as long as its longest answer: static batching.

    After `limit_s` seconds it is cut: outputs are then shorter, or missing, and `about["cut"]` says so.
    """
    outputs, times, steps, cut = {}, {}, 0, False
    started = clock()
    with _greedy(model), torch.inference_mode():
        for first in range(0, len(work), lanes):
            wave = work[first : first + lanes]
            observer = _Clock(len(wave), model.device, clock, started + limit_s)
            rows = _generate(model, wave, observer)
            steps += len(observer.times)
            for job, row in zip(wave, rows, strict=True):
                outputs[job.request] = row[: job.max_new_tokens]
                times[job.request] = [t - started for t in observer.times[: job.max_new_tokens]]
            cut = any(len(outputs[job.request]) < job.max_new_tokens for job in wave)
            if cut:
                break
    about = {"lanes": lanes, "padding": "left", **({"cut": True} if cut else {})}
    return BaselineRun(outputs, clock() - started, _prompts(work), times, steps, about)


def generate_serial(model: Any, work: Sequence[Job], clock: Callable[[], float] = time.perf_counter) -> BaselineRun:
    """`model.generate` on one request after the other."""
    return generate_waves(model, work, 1, clock)


def _generate(model: Any, wave: Sequence[Job], observer: _Clock) -> list[list[int]]:
    width = max(len(job.prompt) for job in wave)
    ids = torch.tensor([[0] * (width - len(job.prompt)) + list(job.prompt) for job in wave], device=model.device)
    mask = torch.tensor([[0] * (width - len(job.prompt)) + [1] * len(job.prompt) for job in wave], device=model.device)
    longest = max(job.max_new_tokens for job in wave)
    out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=longest, stopping_criteria=[observer])
    return out[:, width:].tolist()


@contextmanager
def _greedy(model: Any) -> Iterator[None]:
    """Greedy decoding without an end-of-sequence token, whatever the model's own generation settings say."""
    before = model.generation_config
    model.generation_config = GenerationConfig(do_sample=False, pad_token_id=0)
    try:
        yield
    finally:
        model.generation_config = before


# -- transformers' continuous batching -------------------------------------------------------------------------------


def continuous_settings(work: Sequence[Job], lanes: int, budget: int, variant: Variant = _PLAIN) -> dict[str, Any]:
    """What serves these requests best: a pool that just fits, no prefix hashing, and the variant's own choices."""
    flash = (variant.attention or "").startswith("flash")
    page = _FLASH_PAGE if flash else _PAGE
    each = max(-(-(len(job.prompt) + job.max_new_tokens) // page) + 1 for job in work)
    wanted = {
        "page_size": page,
        "block_size": page,  # what older versions call a page
        "num_blocks": each * min(lanes, len(work)) + 1,
        "max_batch_tokens": max(budget, lanes),
        "max_requests_per_batch": lanes,
        "allow_block_sharing": False,
        "use_async_batching": variant.use_async_batching,
        "use_cuda_graph": variant.use_cuda_graph,
        **({} if variant.attention is None else {"auto_switch_to_flash": flash}),
    }
    known = _continuous_fields()
    return {name: value for name, value in wanted.items() if name in known and (name != "block_size" or "page_size" not in known)}


def paged_name(attention: str) -> str:
    """The name under which this version of transformers keeps an attention for continuous batching."""
    if attention == "eager" or "auto_switch_to_flash" not in _continuous_fields():
        return f"paged|{attention}"
    return attention  # newer versions page every attention but eager under its own name


def _continuous_fields() -> set[str]:
    return {f.name for f in fields(ContinuousBatchingConfig)}


class TransformersContinuous:
    """`generate_batch`'s manager, its own loop turned by hand in this thread: the same work without the waiting between threads."""

    def __init__(self, model: Any, work: Sequence[Job], lanes: int, budget: int, variant: Variant = _PLAIN) -> None:
        config = GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(j.max_new_tokens for j in work)
        )
        self.model, self.work = model, work
        self._attention_before = model.config._attn_implementation
        settings = ContinuousBatchingConfig(**continuous_settings(work, lanes, budget, variant))
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)  # it complains that psutil is not there
        self.steps = 0
        self._done: dict[str, Any] = {}
        self._manager: Any = None
        self._processor: Any = None
        self._ahead, self._launched = variant.use_async_batching, False
        try:
            if variant.attention is not None:
                model.set_attn_implementation(paged_name(variant.attention))
            with torch.no_grad():
                self._manager = model.init_continuous_batching(config, continuous_batching_config=settings)
                resolved = self._manager.continuous_batching_config.use_cuda_graph
                if variant.use_cuda_graph and not any(resolved if isinstance(resolved, tuple) else (resolved,)):
                    raise InflightError("transformers turns CUDA graphs off here.")
                self._processor = self._manager._create_batch_processor()
                self._manager.batch_processor = self._processor
                if variant.use_cuda_graph and (variant.attention or "").startswith("flash"):
                    self._processor.warmup(
                        model
                    )  # its decode passes come in a few sizes, all of which can be captured beforehand
        except BaseException:
            self.close()
            raise

    def submit(self) -> None:
        for job in self.work:
            self._manager.add_request(
                list(job.prompt),
                request_id=job.request,
                max_new_tokens=job.max_new_tokens,
                record_timestamps=True,
                eos_token_id=-1,
            )

    @torch.no_grad()
    def step(self) -> bool:
        """One turn of its loop; False once nothing is left to do."""
        if not self._processor.prepare_next_batch():
            return False  # a batch still in flight holds only requests that have finished
        self._processor._generation_step(self.model)
        if self._launched or not self._ahead:  # running ahead, the results read are those of the batch before
            self._processor.update_batch()
        self._launched = True
        self.steps += 1
        return True

    @property
    def all_decode(self) -> bool:
        """Whether every request has its first token and none its last."""
        running = self._processor.scheduler.active_requests
        return len(running) == len(self.work) and all(state.generated_tokens for state in running.values())

    @property
    def outputs(self) -> dict[str, list[int]]:
        """Generated ids by request, of those that run and those that are done."""
        running = self._processor.scheduler.active_requests
        return {request: list(state.generated_tokens) for request, state in (running | self.finished()).items()}

    def finished(self) -> dict[str, Any]:
        """What has been handed out, by request."""
        queue = self._manager.output_router.output_queue
        while not queue.empty():
            result = queue.get_nowait()
            if result.is_finished():
                self._done[result.request_id] = result
        return self._done

    def close(self) -> None:
        """Give the model its own attention back, and the memory free."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # a batch in flight still writes to what is freed here
        if self._manager is not None:
            self._manager.batch_processor = None
        self._manager = self._processor = None
        if self.model.config._attn_implementation != self._attention_before:
            self.model.set_attn_implementation(self._attention_before)


def transformers_continuous(
    model: Any, work: Sequence[Job], lanes: int, budget: int = 256, clock: Callable[[], float] = time.perf_counter
) -> BaselineRun:
    """transformers' continuous batching, timed from the first submission to the last result; raises InflightError if it drops one."""
    driver = TransformersContinuous(model, work, lanes, budget)
    try:
        started, stamped = clock(), time.perf_counter()
        driver.submit()
        while driver.step():
            pass
        wall = clock() - started
        results = driver.finished()
    finally:
        driver.close()
    lost = [job.request for job in work if job.request not in results or results[job.request].error]
    if lost:
        raise InflightError(f"transformers' continuous batching lost request {lost[0]}.")
    outputs = {job.request: list(results[job.request].generated_tokens) for job in work}
    stamps = {job.request: results[job.request].timestamps for job in work}
    times = {r: [t - stamped for t in s] for r, s in stamps.items()} if all(stamps.values()) else None
    return BaselineRun(outputs, wall, _prompts(work), times, driver.steps, continuous_settings(work, lanes, budget))


# -- the GPT-2 article's way -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Row:
    """A running request: the tokens to feed next, and its own cache, per layer keys and values `[1, H, n, D]`."""

    job: Job
    feed: list[int]
    layers: list[tuple[torch.Tensor, torch.Tensor]] | None = None
    output: list[int] = field(default_factory=list)

    @property
    def cached(self) -> int:
        return 0 if self.layers is None else self.layers[0][0].shape[2]


def article(model: Any, work: Sequence[Job], lanes: int, clock: Callable[[], float] = time.perf_counter) -> BaselineRun:
    """Continuous batching as the GPT-2 article writes it; see `article_step`."""
    waiting = [_Row(job, list(job.prompt)) for job in work]
    running: list[_Row] = []
    times: dict[str, list[float]] = {job.request: [] for job in work}
    outputs, steps = {}, 0
    started = clock()
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.pop(0))
        article_step(model, running)
        steps, now = steps + 1, clock() - started
        for row in running:
            times[row.job.request].append(now)
            if len(row.output) == row.job.max_new_tokens:
                outputs[row.job.request] = row.output
        running = [row for row in running if len(row.output) < row.job.max_new_tokens]
    return BaselineRun(outputs, clock() - started, _prompts(work), times, steps, {"lanes": lanes})


@torch.inference_mode()
def article_step(model: Any, rows: Sequence[_Row]) -> None:
    """One packed pass over one cache: all rows' caches joined end to end, a dense block-diagonal mask, new entries dealt out again."""
    device, dtype = model.device, model.dtype
    fed, cached = [len(r.feed) for r in rows], [r.cached for r in rows]
    owner = torch.arange(len(rows), device=device)
    q_owner = owner.repeat_interleave(torch.tensor(fed, device=device))
    k_owner = torch.cat([owner.repeat_interleave(torch.tensor(cached, device=device)), q_owner])
    q_position = torch.cat([torch.arange(c, c + n, device=device) for c, n in zip(cached, fed, strict=True)])
    k_position = torch.cat([*(torch.arange(c, device=device) for c in cached), q_position])
    allowed = (q_owner[:, None] == k_owner) & (k_position <= q_position[:, None])
    mask = torch.zeros(1, 1, *allowed.shape, dtype=dtype, device=device).masked_fill_(~allowed, torch.finfo(dtype).min)
    past = DynamicCache()
    held = [r.layers for r in rows if r.layers is not None]
    for layer in range(len(held[0]) if held else 0):
        joined = DynamicLayer()
        keys, values = (torch.cat([layers[layer][i] for layers in held], dim=2) for i in (0, 1))
        joined.lazy_initialization(keys, values)
        joined.keys, joined.values = keys, values
        past.layers.append(joined)
    ids = torch.tensor([[token for r in rows for token in r.feed]], device=device)
    ends = torch.tensor(fed, device=device).cumsum(0) - 1
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=q_position[None],
        past_key_values=past,
        use_cache=True,
        logits_to_keep=ends,
    )
    tokens = out.logits[0].argmax(-1).tolist()
    at = sum(cached)
    for row, count, token in zip(rows, fed, tokens, strict=True):
        new = [(layer.keys[:, :, at : at + count], layer.values[:, :, at : at + count]) for layer in out.past_key_values.layers]
        if row.layers is not None:
            new = [(torch.cat([a, c], 2), torch.cat([b, d], 2)) for (a, b), (c, d) in zip(row.layers, new, strict=True)]
        row.layers, row.feed = new, [token]
        row.output.append(token)
        at += count


def article_rows(work: Sequence[Job]) -> list[_Row]:
    """Rows to drive `article_step` by hand."""
    return [_Row(job, list(job.prompt)) for job in work]


def _prompts(work: Sequence[Job]) -> dict[str, int]:
    return {job.request: len(job.prompt) for job in work}
