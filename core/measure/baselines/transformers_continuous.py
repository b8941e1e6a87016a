"""transformers' continuous batching, its loop driven in one thread without waits."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from core.errors import InflightError
from core.measure.baselines.records import BaselineRequest, BaselineRun, Work, prompt_lengths

_PAGE = 32  # tokens in a page of transformers' paged cache
_FLASH_PAGE = 256  # required by its flash attention's fast path for decodes


class Variant(NamedTuple):
    """A way to run it. attention: a name without "paged|"; None: the library chooses."""

    attention: str | None = None
    use_cuda_graph: bool = False
    use_async_batching: bool = False


_PLAIN = Variant()


def continuous_settings(
    work: Work, lanes: int, budget: int, variant: Variant = _PLAIN
) -> dict[str, Any]:
    """The best settings for these requests: a pool that just fits, and no prefix sharing."""
    flash = (variant.attention or "").startswith("flash")
    page = _FLASH_PAGE if flash else _PAGE
    each = max(-(-(len(request.prompt) + request.max_new_tokens) // page) + 1 for request in work)
    wanted = {
        "page_size": page,
        "num_blocks": each * min(lanes, len(work)) + 1,
        "max_batch_tokens": max(budget, lanes),
        "max_requests_per_batch": lanes,
        "allow_block_sharing": False,
        "use_async_batching": variant.use_async_batching,
        "use_cuda_graph": variant.use_cuda_graph,
        **({} if variant.attention is None else {"auto_switch_to_flash": flash}),
    }
    return {name: value for name, value in wanted.items() if name in _continuous_fields()}


def paged_name(attention: str) -> str:
    """The name under which this transformers registers an attention for continuous batching."""
    if attention == "eager" or "auto_switch_to_flash" not in _continuous_fields():
        return f"paged|{attention}"
    return attention  # in newer versions every attention but eager is paged under its own name


def _continuous_fields() -> set[str]:
    """The settings that this version of transformers has."""
    return {f.name for f in fields(ContinuousBatchingConfig)}


class TransformersContinuous:
    """The manager of `generate_batch`, its loop driven by hand in this thread: the same work
    without waiting between threads.

    limits: settings that override the best ones.
    """

    def __init__(
        self,
        model: Any,
        work: Work,
        lanes: int,
        budget: int,
        variant: Variant = _PLAIN,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        longest = max(request.max_new_tokens for request in work)
        config = GenerationConfig(
            do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=longest
        )
        self.model, self.work = model, work
        self._attention_before = model.config._attn_implementation
        settings = ContinuousBatchingConfig(
            **{**continuous_settings(work, lanes, budget, variant), **(limits or {})}
        )
        # it warns if psutil is not installed
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
        self.steps = 0
        self._done: dict[str, Any] = {}
        self._manager: Any = None
        self._processor: Any = None
        self._ahead, self._launched = variant.use_async_batching, False
        try:
            if variant.attention is not None:
                model.set_attn_implementation(paged_name(variant.attention))
            with torch.no_grad():
                self._manager = model.init_continuous_batching(
                    config, continuous_batching_config=settings
                )
                resolved = self._manager.continuous_batching_config.use_cuda_graph
                if variant.use_cuda_graph and not any(
                    resolved if isinstance(resolved, tuple) else (resolved,)
                ):
                    raise InflightError("transformers turns CUDA graphs off here.")
                self._processor = self._manager._create_batch_processor()
                self._manager.batch_processor = self._processor
                if variant.use_cuda_graph and (variant.attention or "").startswith("flash"):
                    # its decode passes have few sizes, all of which can be captured beforehand
                    self._processor.warmup(model)
        except BaseException:
            self.close()
            raise

    def submit(self) -> None:
        """Hand all requests to the manager."""
        for request in self.work:
            self.add(request)

    def add(self, request: BaselineRequest) -> None:
        """Hand one request to the manager."""
        self._manager.add_request(
            list(request.prompt),
            request_id=request.id,
            max_new_tokens=request.max_new_tokens,
            record_timestamps=True,
            eos_token_id=sorted(request.ends) or -1,
        )

    @torch.no_grad()
    def step(self) -> bool:
        """One step of its loop; False once nothing is left to do."""
        if not self._processor.prepare_next_batch():
            return False  # a batch still in flight holds only requests that have finished
        self._processor._generation_step(self.model)
        # when running ahead, the results read are those of the previous batch
        if self._launched or not self._ahead:
            self._processor.update_batch()
        self._launched = True
        self.steps += 1
        return True

    @property
    def has_work(self) -> bool:
        """Whether some of the submitted requests have not ended."""
        return (
            self._manager.input_queue.qsize() > 0
            or self._processor.scheduler.has_pending_requests()
        )

    @property
    def outputs(self) -> dict[str, list[int]]:
        """Generated ids by request, including running ones."""
        running = self._processor.scheduler.active_requests
        return {
            request: list(state.generated_tokens)
            for request, state in (running | self.finished()).items()
        }

    def finished(self) -> dict[str, Any]:
        """The results returned so far, by request."""
        queue = self._manager.output_router.output_queue
        while not queue.empty():
            result = queue.get_nowait()
            if result.is_finished():
                self._done[result.request_id] = result
        return self._done

    def close(self) -> None:
        """Restore the model's own attention, and free the memory."""
        if self.model.device.type == "cuda":
            # a batch in flight still writes to what is freed here
            torch.cuda.synchronize(self.model.device)
        if self._manager is not None:
            self._manager.batch_processor = None
        self._manager = self._processor = None
        if self.model.config._attn_implementation != self._attention_before:
            self.model.set_attn_implementation(self._attention_before)


@contextmanager
def ready(
    model: Any,
    work: Work,
    lanes: int,
    budget: int = 256,
    clock: Callable[[], float] = time.perf_counter,
    variant: Variant = _PLAIN,
    limit_s: float = math.inf,
) -> Iterator[Callable[[], BaselineRun]]:
    """Set up a pool and a loop, and tear them down at the end. The yielded function runs it once.

    A run goes from the first submission to the last result, or is cut after `limit_s` seconds. It
    raises InflightError if a request is dropped.
    """
    driver = TransformersContinuous(model, work, lanes, budget, variant)

    def run() -> BaselineRun:
        started, stamped, cut = clock(), time.perf_counter(), False
        driver.submit()
        while driver.step() and not cut:
            cut = driver.has_work and clock() - started > limit_s
        wall, results = clock() - started, driver.finished()
        lost = [
            request.id for request in work if request.id not in results or results[request.id].error
        ]
        if lost and not cut:
            raise InflightError(f"transformers' continuous batching lost request {lost[0]}.")
        stamps = {request: result.timestamps for request, result in results.items()}
        times = None
        if not cut and all(stamps.values()):
            times = {r: [t - stamped for t in of_request] for r, of_request in stamps.items()}
        about = continuous_settings(work, lanes, budget, variant)
        return BaselineRun(
            outputs=driver.outputs,
            wall_s=wall,
            prompts=prompt_lengths(work),
            token_times=times,
            steps=driver.steps,
            about=about,
            cut=cut,
        )

    try:
        yield run
    finally:
        driver.close()
