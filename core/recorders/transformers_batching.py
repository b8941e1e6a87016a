"""Records transformers' own continuous batching, step by step, in the raw format of
`inflight_vllm`. transformers is patched only while it records.

    with recording(Path("run.raw.jsonl"), model.name_or_path):
        # config: of the scheduler type "fifo" or "prefill_first"
        model.generate_batch(prompts, continuous_batching_config=config)

A subclass of the configured scheduler observes `schedule_batch` and `finish_request`. Tokens and
the time at which they are ready are known to the processor only, and are read around
`update_batch`. Asynchronous batching is refused, since its tokens cannot be assigned to steps.

Source: transformers 5.23, `generation/continuous_batching/scheduler.py` and `continuous_api.py`.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import transformers
from transformers.generation.continuous_batching import scheduler as schedulers
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

from core.errors import InflightError
from core.recorders.vllm.inflight_vllm.recorder import RAW
from core.recorders.vllm.inflight_vllm.writer import Parts, RawWriter

TESTED = ("5.23.0", "5.24.0")


def _units(cache: Any) -> int:
    """Units per sector, such that a block of each attention type is a whole number of units."""
    return math.lcm(*(a.blocks_per_sector for a in cache.cache_allocators.values()))


def _free(cache: Any) -> int:
    """Units of the pool that no request holds, in free sectors and in the others."""
    units = _units(cache)
    held = [
        units // a.blocks_per_sector * cache.pool.count_free_blocks(a.index)
        for a in cache.cache_allocators.values()
    ]
    return units * int(cache.pool.num_free_sectors) + sum(held)


class _Observer:
    """Facts about one processor's scheduler, kept between its steps."""

    def __init__(self, path: Path, model: str, facts: Mapping[str, Any]) -> None:
        self.path, self.model, self.facts = path, model, facts
        self.writer: RawWriter | None = None
        self.start = time.perf_counter()
        self.steps = 0
        self.known: set[str] = set()
        self.tables: dict[str, list[list[int]]] = {}  # by request, a table for each attention type
        self.active: frozenset[str] = frozenset()  # before the step
        self.finished: list[list[str]] = []
        # since the last step was recorded, with the positions they lost
        self.preempted: list[list[Any]] = []
        self.arrived: list[dict[str, Any]] = []
        self.step: dict[str, Any] | None = None

    def now(self) -> float:
        return time.perf_counter() - self.start

    def open(self, scheduler: Any, name: str, token_budget: int) -> RawWriter:
        """Create the writer. The scheduler must be ready, as the header needs its facts."""
        cache = scheduler.cache
        allocators = list(cache.cache_allocators.values())
        units = _units(cache)
        version = transformers.__version__
        windows = [getattr(a, "sliding_window", None) for a in allocators]
        header = {
            "kind": "header",
            "raw": RAW,
            "engine": "transformers",
            "version": version,
            "tested": version in TESTED,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "scheduler": name,
            "executor": "process",
            "async_scheduling": False,
            "model": self.model,
            "dtype": str(cache.dtype).removeprefix("torch."),
            "max_num_seqs": scheduler.max_requests_per_batch,
            "max_num_batched_tokens": token_budget,
            "chunked": True,
            "prefix_caching": cache.use_prefix_sharing,
            "block_size": allocators[0].tokens_per_page,
            "num_blocks": cache.num_sectors * units,
            "first_block": 2 * units,  # two trash sectors come first
            "kv_groups": [
                {
                    "kind": "ring" if window else "full_attention",
                    "window": window,
                    "block_size": a.tokens_per_page,
                    "layers": list(a.layer_indices),
                    "units": units // a.blocks_per_sector,
                }
                for a, window in zip(allocators, windows, strict=True)
            ],
            "missing": [],
            **self.facts,
        }
        return RawWriter(Parts(self.path, header))

    def to_schedule(self, scheduler: Any) -> None:
        """Note new and running requests before scheduling, perhaps several times a step."""
        waiting = scheduler.waiting_requests
        new = [state for request, state in waiting.items() if request not in self.known]
        self.known |= {state.request_id for state in new}
        self.active = frozenset(scheduler.active_requests)
        self.arrived += [
            {
                "request": state.request_id,
                "t": max(0.0, state.created_time - self.start),
                "prompt": list(state.initial_tokens),
                "max_tokens": state.max_new_tokens,
            }
            for state in new
        ]

    def scheduled(
        self, scheduler: Any, t_start: float, result: Any, token_budget: int, cache_budget: int
    ) -> None:
        if self.writer is None:
            self.writer = self.open(scheduler, type(scheduler).__mro__[1].__name__, token_budget)
        scheduled, fast, _, read = result
        if not scheduled:
            return
        segments = [
            {
                "request": future.state.request_id,
                "start": future.state.position_offset,
                "length": future.query_length,
                "num_tokens": len(future.state.initial_tokens) + len(future.state.generated_tokens),
                "draft": 0,
            }
            for future in scheduled
        ]
        self.step = {
            "kind": "step",
            "step": self.steps,
            "t_start": t_start,
            "t_scheduled": self.now(),
            "arrived": self.arrived,
            "preempted": self.preempted,
            "admitted": [
                {"request": s["request"], "cached": s["start"]}
                for s in segments
                if s["request"] not in self.active
            ],
            "segments": segments,
            "blocks": self._blocks(scheduler.cache),
            "waiting": len(scheduler.waiting_requests_order),
            "head": next(iter(scheduler.waiting_requests_order), None),
            "starved": [[state.request_id, length] for state, length in scheduler.starved_requests],
            "budget": token_budget,
            "cache_budget": cache_budget,
            "cache_read": read,
            "decode_fast_path": fast,
            "blocks_free": _free(scheduler.cache),
            "total_tokens": sum(s["length"] for s in segments),
        }
        self.arrived, self.preempted = [], []

    def _blocks(self, cache: Any) -> list[list[Any]]:
        """Changes of the block tables. Ids count units of the pool; a block has several."""
        units = _units(cache)
        tables: dict[str, list[list[int]]] = {}
        for index, allocator in enumerate(cache.cache_allocators.values()):
            each = units // allocator.blocks_per_sector
            for request, blocks in allocator.block_table.items():
                of = tables.setdefault(request, [[] for _ in cache.cache_allocators])
                of[index] = [block * each + n for block in blocks for n in range(each)]
        changes: list[list[Any]] = []
        for request, now in tables.items():
            old = self.tables.get(request, [[] for _ in now])
            pairs = list(zip(now, old, strict=True))
            is_new = not any(old) or any(table[: len(was)] != was for table, was in pairs)
            added = now if is_new else [table[len(was) :] for table, was in pairs]
            if any(added):
                changes.append([request, added, "table" if is_new else "append"])
        self.tables = tables
        return changes

    def computed(self, sampled: dict[str, list[int]], t_output: float) -> None:
        step, self.step = self.step, None
        if step is None or self.writer is None:
            return
        step |= {
            "t_output": t_output,
            "t_end": self.now(),
            "row_order": [s["request"] for s in step["segments"]],
        }
        step |= {"sampled": sampled, "finished": self.finished}
        self.steps += 1
        self.finished = []
        self.writer.put(lambda: step)


@contextmanager
def recording(path: Path, model: str, facts: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Record every batch that runs inside the context. model: its name, for the header. facts:
    further facts for the header. Raises InflightError for asynchronous batching.
    """
    observer = _Observer(path, model, facts or {})
    schedulers_before = dict(schedulers.SCHEDULER_MAPPING)
    processor: Any = ContinuousBatchProcessor
    update_before = processor.update_batch

    def update_batch(self: Any) -> None:
        if self.use_async_batching:
            raise InflightError(
                "Asynchronous batching cannot be recorded from outside: set"
                " use_async_batching=False."
            )
        t_output = observer.now()
        states = {
            s["request"]: self.scheduler.active_requests.get(s["request"])
            for s in (observer.step or {}).get("segments", ())
        }
        counts = {
            r: len(state.generated_tokens) for r, state in states.items() if state is not None
        }
        update_before(self)
        sampled = {r: states[r].generated_tokens[count:] for r, count in counts.items()}
        observer.computed({r: tokens for r, tokens in sampled.items() if tokens}, t_output)

    schedulers.SCHEDULER_MAPPING.update(
        {name: _listening(base, observer) for name, base in schedulers_before.items()}
    )
    processor.update_batch = update_batch
    try:
        yield
    finally:
        processor.update_batch = update_before
        schedulers.SCHEDULER_MAPPING.update(schedulers_before)
        if observer.writer is not None:
            observer.writer.close()


def _listening(base: Any, observer: _Observer) -> Any:
    class Listening(base):
        def schedule_batch(self, token_budget: int, cache_budget: int) -> Any:
            t_start = observer.now()
            observer.to_schedule(self)
            result = super().schedule_batch(token_budget, cache_budget)
            observer.scheduled(self, t_start, result, token_budget, cache_budget)
            return result

        def finish_request(self, request_id: str) -> None:
            state = self.active_requests.get(request_id)
            super().finish_request(request_id)
            if state is not None:
                last = state.generated_tokens[-1:]
                ended = bool(last) and last[0] in state._eos_token_ids
                observer.finished.append([request_id, "stop" if ended else "length"])
                self._positions = {request_id: state.position_offset}

        def add_waiting_request(self, state: Any) -> None:
            """A request that waits again just after `finish_request` was preempted."""
            super().add_waiting_request(state)
            request = state.request_id
            if any(finished == request for finished, _ in observer.finished):
                observer.finished = [f for f in observer.finished if f[0] != request]
                observer.preempted.append([request, self._positions[request]])

    return Listening
