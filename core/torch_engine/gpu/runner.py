"""Runs passes on a GPU: lays them out on the host, copies, computes and samples without waiting for
the device.

A pass of few tokens is padded to the next bucket and replayed as a CUDA graph; a longer one keeps
the device busy anyway. The last token of every lane stays on the device, so a pass can be launched
before the host has read its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from core.config import EngineConfig, Execution
from core.engine.runner import PassResult, Sample, as_samples, current_observer, sampling_rows
from core.scheduler.output import SchedulerOutput
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.choose import AttentionChoice
from core.torch_engine.gpu.buffers import Buffers, HostPass, LaneTables, PassShape, Staged, lay_out
from core.torch_engine.gpu.fused_norms import rms_norm
from core.torch_engine.gpu.paged_layout import (
    Tiles,
    decode_capacity,
    plan_tiles,
    prefill_capacity,
    queries_per_tile,
)
from core.torch_engine.gpu.rotary import fused_rotations, rotations_replaced
from core.torch_engine.gpu.sampling_kernel import sample_rows
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.pool_size import memory_used
from core.torch_engine.sampling import choose_tokens, moved
from core.torch_engine.stand_ins import forwards_replaced, fused_norms
from core.trace.header import ExecutionFacts
from core.workload.request import SamplingParams

# positions of the largest CUDA graph: a longer pass takes longer to compute than to launch
MOST_GRAPH = 2048
LEAST_GRAPH = 64  # positions of the smallest graph for prompts


Capture = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]
"""Turns a function over fixed tensors into one that repeats its work and returns the same tensor.
"""

# libraries choose kernels and allocate workspaces in their first calls, which must not be captured
_WARM_UPS = 2


class CudaCapture:
    """A `Capture` into CUDA graphs, which share one pool of memory because they run in turn."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Raises RuntimeError if the function does something that cannot be captured, as a wait."""
        current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                function()
        current.wait_stream(aside)
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.default_generators[current.device.index]
        random_before = random.clone_state()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = function()
        except RuntimeError:
            # a failed capture leaves its stream current and the generator still capturing
            torch.cuda.set_stream(current)
            random.graphsafe_set_state(random_before)
            raise

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay


class HostClock:
    """For a device that computes while the host waits: `mark` a point after all work submitted so
    far, `wait` until the device reaches it, and read its `time` in seconds on the engine's clock.
    Marks are read in the order in which they were made.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def mark(self) -> float:
        """The time now."""
        return self._clock()

    def wait(self, mark: Any) -> None:
        """Nothing to wait for."""

    def time(self, mark: Any) -> float:
        """Seconds at a mark."""
        return mark


class _CudaMark(NamedTuple):
    """recorded: when the host put the event into the stream; the device reaches it later."""

    event: torch.cuda.Event
    recorded: float


class CudaClock:
    """Events on the current stream. Each is timed from the one before, since float32 milliseconds
    lose precision over a long span. If their sum falls so far behind the engine's clock that an
    event would precede its recording, the time of the recording counts.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        torch.cuda.synchronize()
        before = clock()
        self._last = self.mark()
        self._last.event.synchronize()
        self._time = (before + clock()) / 2

    def mark(self) -> _CudaMark:
        """An event in the stream, whose time is known once the device has reached it."""
        event = torch.cuda.Event(enable_timing=True)
        recorded = self._clock()
        event.record()
        return _CudaMark(event, recorded)

    def wait(self, mark: Any) -> None:
        """Wait until the device has reached a mark."""
        mark.event.synchronize()

    def time(self, mark: Any) -> float:
        """Seconds at a mark that the device has passed; ask for marks in order."""
        elapsed = self._last.event.elapsed_time(mark.event) / 1000
        self._last, self._time = mark, max(self._time + elapsed, mark.recorded)
        return self._time


DeviceClock = HostClock | CudaClock
"""When the device reached a point of its work, on the engine's clock, without waiting for it."""


class _Planned(NamedTuple):
    """bucket: positions of the graph that `compute` replays, None if it runs eagerly."""

    buffers: Buffers
    staged: Staged
    compute: Callable[[], torch.Tensor]
    bucket: int | None


class PagedRunner:
    """A model and its KV pool, read by the paged kernel. See `Runner`.

    config: of the engine. capture: how passes become graphs; None runs each eagerly. choice: its
    backend reads only `PackedBatch.paged`.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        num_blocks: int,
        config: EngineConfig,
        execution: Execution,
        choice: AttentionChoice,
        clock: Callable[[], float],
        capture: Capture | None,
    ) -> None:
        self.adapter = adapter
        self.asynchronous = choice.asynchronous
        self.notes = list(choice.notes)
        self._clock = clock
        self._execution = execution
        self._capture = capture
        self._backend = choice.backend
        self.num_lanes = num_lanes = config.num_lanes
        block_size = config.block_size
        longest = adapter.max_model_len or num_blocks * block_size
        self._place = device = adapter.device  # looking it up on the model takes microseconds
        self.pool = KVPool(adapter.shapes, num_blocks, block_size, adapter.dtype, device)
        self._device_clock: DeviceClock
        self._tables = LaneTables(num_lanes, max(1, min(num_blocks, -(-longest // block_size))))
        self.begin()
        self._device_tables = torch.zeros(
            self._tables.blocks.shape, dtype=torch.int32, device=device
        )
        self._last_tokens = torch.zeros(num_lanes, dtype=torch.int64, device=device)
        # temperatures where every row is greedy
        self._cold = torch.zeros(num_lanes, dtype=torch.float32, device=device)
        self._no_keys = torch.zeros(num_lanes, dtype=torch.int64, device=device)
        self._num_kv_heads = min(shape.num_kv_heads for shape in adapter.shapes.values())
        self._queries = queries_per_tile(-(-adapter.num_heads // self._num_kv_heads))
        self._processors = (
            torch.cuda.get_device_properties(device).multi_processor_count
            if device.type == "cuda"
            else 1
        )
        self._norms = tuple(fused_norms(adapter.model, rms_norm)) if execution.fused_norms else ()
        self._rotations = (
            fused_rotations(adapter.model, adapter.dtype) if execution.fused_rotary else ()
        )
        self._replays: dict[PassShape, tuple[Buffers, Callable[[], torch.Tensor]]] = {}

    def begin(self) -> None:
        """See `Runner`."""
        self._tables.forget()
        with self._device():
            self._device_clock = (
                CudaClock(self._clock) if self.own_clock else HostClock(self._clock)
            )
            if self.own_clock:
                torch.cuda.reset_peak_memory_stats()

    def prepare(self, most_tokens: int) -> None:
        """Capture the graphs of packed passes of up to `most_tokens` while no request waits."""
        with self._device():
            for mixed in (False, True):
                tokens = 1
                while self._capture is not None and tokens <= min(
                    most_tokens if mixed else self.num_lanes, MOST_GRAPH
                ):
                    shape = self._bucket("packed", tokens, mixed)
                    self._replay(shape)
                    tokens = shape.positions + 1

    @property
    def own_clock(self) -> bool:
        """See `Runner`."""
        return self._place.type == "cuda"

    @property
    def memory(self) -> dict[str, int] | None:
        """See `Runner`."""
        return memory_used(self.adapter, self.pool)

    @property
    def execution(self) -> ExecutionFacts:
        """See `Runner`."""
        graphs = self._capture is not None
        return ExecutionFacts(
            attention="triton",
            cuda_graphs=graphs,
            min_graph_positions=LEAST_GRAPH if graphs else None,
            max_graph_positions=MOST_GRAPH if graphs else None,
            asynchronous=self.asynchronous,
            fused_sampling=self._execution.fused_sampling,
            fused_norms=bool(self._norms),
            fused_rotary=bool(self._rotations),
        )

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PagedPass:
        """See `Runner`. Nothing here waits for the device."""
        with self._device():
            return self._launch(output, params)

    def _device(self) -> AbstractContextManager[Any]:
        """Events and kernels belong to the current device, which need not be the model's."""
        return torch.cuda.device(self._place) if self._place.type == "cuda" else nullcontext()

    def _launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PagedPass:
        began = self._clock()
        changed, blocks = self._tables.update(output)
        host = lay_out(output, self._tables, self.pool.block_size, self.pool.trash_slot)
        planned = self._plan(host)
        tables = [moved(each, self._place) for each in (changed, blocks)] if len(changed) else None
        start = self._device_clock.mark()  # from here on the device has work
        if tables is not None:
            self._device_tables.view(-1).index_copy_(0, *tables)
        planned.buffers.load(planned.staged)
        logits = planned.compute()[: len(host.sample_rows)]
        forward = self._device_clock.mark()
        observer = current_observer()
        if observer is not None:
            observer(sampling_rows(output, params), logits)
        lanes = planned.buffers.sample_lanes[: len(host.sample_lanes)]
        facts = self._sample(logits, lanes, output, params) if len(lanes) else None
        marks = (start, forward, self._device_clock.mark())
        prepare = self._clock() - began
        return PagedPass(self._device_clock, marks, prepare, facts, planned.bucket)

    # -- the forward pass --------------------------------------------------------------------------

    def _plan(self, host: HostPass) -> _Planned:
        """The buffers for a pass, their contents, and how logits are computed from them."""
        positions, graph = host.rows * host.width, None
        # padded passes only if they decode
        suits = positions <= MOST_GRAPH and (host.layout == "packed" or host.width == 1)
        if self._capture is not None and suits:
            mixed = bool((host.query_lens > 1).any())
            graph = self._replay(self._bucket(host.layout, positions, mixed))
        if graph is not None:
            buffers, replay = graph
            shape = buffers.shape
            tiles = self._tiles(host, shape.prefill_tiles, shape.decode_tiles)
            return _Planned(buffers, buffers.stage(host, tiles), replay, shape.positions)
        tiles = self._tiles(host)
        samples, prefills = len(host.sample_rows), len(tiles.prefill_first)
        decodes = len(tiles.decode_first)
        shape = PassShape(
            layout=host.layout,
            rows=host.rows,
            width=host.width,
            samples=samples,
            prefill_tiles=prefills,
            decode_tiles=decodes,
        )
        buffers = self._buffers(shape)
        return _Planned(buffers, buffers.stage(host, tiles), lambda: self._forward(buffers), None)

    def _forward(self, buffers: Buffers) -> torch.Tensor:
        with self.adapter.lock, forwards_replaced(self._norms), rotations_replaced(self._rotations):
            return self.adapter.forward(buffers.batch(self._last_tokens), self.pool, self._backend)

    def _tiles(
        self, host: HostPass, prefill: int | None = None, decode: int | None = None
    ) -> Tiles:
        kv_heads, queries = self._num_kv_heads, self._queries
        return plan_tiles(
            host.query_lens, host.kv_lens, kv_heads, queries, prefill, decode, self._processors
        )

    def _buffers(self, shape: PassShape) -> Buffers:
        return Buffers(
            shape, self._device_tables, self.pool.block_size, self._queries, self.pool.trash_slot
        )

    # -- graphs ------------------------------------------------------------------------------------

    def _bucket(self, layout: str, positions: int, mixed: bool) -> PassShape:
        """The shape that passes of about this size share: the next power of two in tokens, or in
        the padded layout exactly these rows.
        """
        tokens = positions if layout == "padded" else 1 << (positions - 1).bit_length()
        if mixed:
            tokens = max(tokens, LEAST_GRAPH)
        lanes = min(tokens, self.num_lanes)
        decodes = decode_capacity(lanes, self._num_kv_heads, self._processors)
        if layout == "padded":
            return PassShape(
                layout=layout,
                rows=tokens,
                width=1,
                samples=tokens,
                prefill_tiles=0,
                decode_tiles=decodes,
            )
        prefills = prefill_capacity(tokens, lanes, self._queries) if mixed else 0
        return PassShape(
            layout=layout,
            rows=1,
            width=tokens,
            samples=lanes,
            prefill_tiles=prefills,
            decode_tiles=decodes,
        )

    def _replay(self, shape: PassShape) -> tuple[Buffers, Callable[[], torch.Tensor]] | None:
        """The graph of a shape, captured now if it is new; a model that cannot be captured runs
        eagerly from then on.
        """
        found = self._replays.get(shape)
        if found is None and self._capture is not None:
            buffers = self._buffers(shape)
            try:
                found = buffers, self._capture(lambda: self._forward(buffers))
            except RuntimeError as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                self._capture = None
                reason = str(error).strip().splitlines()[0].rstrip(".")
                self.notes.append(
                    f"Without CUDA graphs: this model's pass cannot be captured ({reason})."
                )
                return None
            self._replays[shape] = found
        return found

    # -- sampling ----------------------------------------------------------------------------------

    def _sample(
        self,
        logits: torch.Tensor,
        lanes: torch.Tensor,
        output: SchedulerOutput,
        params: Mapping[str, SamplingParams],
    ) -> torch.Tensor:
        """Choose and keep the tokens; token, logprob and margin for the host, float64 `[3, n]`."""
        chosen = [params[s.request] for s in output.scheduled if s.samples]
        if not self._execution.fused_sampling or any(p.filters or p.adjusts for p in chosen):
            tokens, logprobs, margins = choose_tokens(
                logits, sampling_rows(output, params), unread=self._last_tokens[lanes]
            )
        elif any(p.temperature for p in chosen):
            keys = [row.noise_key for row in sampling_rows(output, params)]
            tokens, logprobs, margins = sample_rows(
                logits,
                moved([p.temperature for p in chosen], self._place, torch.float32),
                moved(keys, self._place, torch.int64),
            )
        else:
            tokens, logprobs, margins = sample_rows(
                logits, self._cold[: len(chosen)], self._no_keys[: len(chosen)]
            )
        self._last_tokens.index_copy_(0, lanes, tokens)
        facts = torch.stack((tokens.double(), logprobs.double(), margins.double()))
        if facts.device.type != "cuda":
            return facts
        return torch.empty(facts.shape, dtype=facts.dtype, pin_memory=True).copy_(
            facts, non_blocking=True
        )


@dataclass
class PagedPass:
    """A pass in flight: marks before it, after its logits, after its tokens and `facts`."""

    _clock: DeviceClock
    _marks: tuple[object, object, object]
    _prepare: float
    _facts: torch.Tensor | None
    _bucket: int | None

    def result(self) -> PassResult:
        """Wait for the tokens. Passes are read in the order in which they were launched."""
        self._clock.wait(self._marks[-1])
        start, forward, end = map(self._clock.time, self._marks)
        samples: list[Sample] = [] if self._facts is None else as_samples(*self._facts.tolist())
        return PassResult(
            samples=samples,
            t_start=start,
            t_end=end,
            prepare=self._prepare,
            forward=forward - start,
            sample=end - forward,
            bucket=self._bucket,
        )
