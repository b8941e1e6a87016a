"""The same scheduler and the same events without the forward pass: a cost model says how long each pass would have taken.

    cost = fit(trace)                                   # see `core.simulate.cost`
    engine = SimulatedEngine(cost, config)
    trace = engine.run(workload)                        # labelled "source": "simulated"
    totals = flow(engine, requests)                     # a million requests, memory flat

Time is simulated too: the clock moves by what the passes cost and by the waits between arrivals; scheduling itself costs nothing.
Tokens are made up (always the same one), so an end-of-sequence token never comes: every request runs to its full length.
"""

from __future__ import annotations

import gc
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer

from core.attention.kv_pool import KVShape
from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import UnsupportedModel
from core.models.load import BUILTIN_FOLDER, BUILTIN_MODELS
from core.runner.eager import PassResult
from core.runner.sampling import Sample
from core.scheduler.output import SchedulerOutput
from core.scheduler.state import RequestState
from core.simulate.cost import SIMULATED, Cost, Linear, Load, cost_named
from core.trace.events import StepEvent
from core.workload.request import Request, SamplingParams

WINDOW = 20_000  # tokens whose events a flow keeps; older events live on in its totals
_TOKEN = Sample(0, 0.0, 0.0)


class SimulatedClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """By a nanosecond at least: a wait too short to be added to a large number would never end."""
        self.now += max(seconds, 1e-9)


class SimulatedRunner:
    """`ModelRunner` without a model: every pass takes what it costs, every sample is the same token."""

    asynchronous = False
    execution: dict = {}
    notes: Sequence[str] = ()

    def __init__(self, cost: Cost, clock: SimulatedClock) -> None:
        self.cost, self.clock = cost, clock
        self.passes = self.passes_beyond = 0

    def begin(self) -> None:
        """See `Runner`."""

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """See `Runner`."""
        kv = samples = tokens = 0
        for _, _, _, fed, start, _, sampled in output.scheduled:
            tokens += len(fed)
            kv += start + len(fed)
            samples += sampled
        positions = tokens if output.layout == "packed" else output.rows * output.width
        load = Load(positions, kv * self.cost.kv_bytes_per_token)
        started, seconds = self.clock.now, self.cost.seconds(load)
        self.clock.now = started + seconds
        self.passes += 1
        self.passes_beyond += self.cost.beyond(load)
        return PassResult([_TOKEN] * samples, started, self.clock.now, 0.0, seconds, 0.0)


class SimulatedModel:
    """What an engine asks of a model, without one."""

    plug = "none"
    tensor_parallel = 1

    def __init__(self, name: str, cost: Cost, vocab_size: int = 50257, max_model_len: int | None = None) -> None:
        self.name, self.vocab_size, self.max_model_len = name, vocab_size, max_model_len
        self.shapes: dict[int, KVShape] = {}
        self.windows: dict[int, int | None] = {0: None}
        self.eos_token_ids: frozenset[int] = frozenset()
        self.device, self.dtype = torch.device("cpu"), torch.float16
        self.config = SimpleNamespace(model_type=SIMULATED)
        self.num_parameters = round(getattr(cost, "weight_bytes", 0) / 2)


class SimulatedEngine(Engine):
    """An engine whose forward pass is a cost model. name: of the model it stands for. tokenizer: for text prompts."""

    def __init__(
        self,
        cost: Cost,
        config: EngineConfig | None = None,
        tokenizer: Any | None = None,
        *,
        name: str | None = None,
        vocab_size: int = 50257,
        max_model_len: int | None = None,
    ) -> None:
        self.cost = cost
        clock = SimulatedClock()
        self._simulated_clock = clock
        model = SimulatedModel(name or cost.to_json().get("model") or SIMULATED, cost, vocab_size, max_model_len)
        super().__init__(model, tokenizer, config, clock=clock, sleep=clock.advance)

    @property
    def runner(self) -> SimulatedRunner:
        assert isinstance(self._runner, SimulatedRunner)
        return self._runner

    @property
    def beyond(self) -> str | None:
        """A sentence where passes lay beyond what was measured."""
        share = self.runner.passes_beyond / self.runner.passes if self.runner.passes else 0.0
        if not share:
            return None
        if isinstance(self.cost, Linear):
            most = self.cost.most
            return (
                f"{100 * share:.0f} % of the simulated passes lie beyond what was measured (at most {most.tokens:,} positions and "
                f"{most.kv_bytes / 2**20:,.1f} MiB of KV in a pass): there the model is extrapolated."
            )
        return "No pass of this accelerator was measured here: its times follow from data sheets."

    def _new_runner(self, num_blocks: int) -> SimulatedRunner:
        return SimulatedRunner(self.cost, self._simulated_clock)

    @property
    def _kv_bytes_per_token(self) -> int:
        return self.cost.kv_bytes_per_token

    def _num_blocks(self, longest: int) -> int:
        return self.config.num_blocks or self.config.num_lanes * -(-longest // self.config.block_size)

    def _header(self, name: str, num_blocks: int) -> dict:
        header = super()._header(name, num_blocks)
        device = getattr(self.cost, "accelerator", None) or getattr(self.cost, "about", {}).get("device", "cpu")
        return header | {
            "source": SIMULATED,
            "device": f"{SIMULATED} {device}",
            "device_name": SIMULATED,
            "cost": self.cost.to_json(),
        }

    # -- a stream of requests without end ----------------------------------------------------------------------------

    def flow(self, requests: Iterable[Request], window: int = WINDOW) -> Iterator[StepEvent]:
        """Steps over requests that are drawn as they arrive (in seconds, in order) and forgotten as they finish.

        The trace keeps the events of the last `window` tokens at least, and no prompts. Set `num_blocks`, or the pool is as large as
        every lane at the longest context could need.
        """
        self._reset("s", "flow", None)
        coming, order = iter(requests), count()
        kept: deque[StepEvent] = deque()
        tokens = 0  # in the events kept
        head = next(coming, None)
        while head is not None or self.has_work:
            if head is not None and not self._scheduler.has_work:
                self._simulated_clock.now = max(self._simulated_clock.now, self._origin + head.arrival + 1e-9)
            now = self._simulated_clock.now - self._origin
            while head is not None and head.arrival <= now:
                prompt = self._check(head)
                self._check_pool(head, prompt, self._num_pool_blocks)
                state = RequestState(head, prompt, order=next(order))
                self._params[head.id] = head.sampling
                self._arrive(state)
                head = next(coming, None)
            event = self.step()
            if event is None:
                continue
            for finished in event.finished:
                del self._params[finished.request]
            self._trace.events.clear()
            kept.append(event)
            tokens += len(event.sampled)
            while tokens - len(kept[0].sampled) >= window:
                tokens -= len(kept.popleft().sampled)
            yield event
        self._trace.events.extend(kept)


# -- totals ----------------------------------------------------------------------------------------------------------


class Histogram:
    """Counts of positive numbers in bins one percent wide: percentiles of millions in little memory."""

    _STEP = math.log(1.01)

    def __init__(self) -> None:
        self.count, self.total, self.highest = 0, 0.0, 0.0
        self._bins: Counter[int] = Counter()

    def add(self, value: float, times: int = 1) -> None:
        self.count += times
        self.total += value * times
        self.highest = max(self.highest, value)
        self._bins[math.floor(math.log(value) / self._STEP) if value > 0 else -(10**9)] += times

    def percentile(self, share: float) -> float | None:
        """To within one percent."""
        left = share / 100 * self.count
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0:
                return 0.0 if index == -(10**9) else min(self.highest, math.exp((index + 0.5) * self._STEP))
        return None

    def to_json(self) -> dict[str, float | int | None]:
        numbers = {"mean": self.total / self.count if self.count else None, "max": self.highest if self.count else None}
        numbers |= {f"p{p}": self.percentile(p) for p in (50, 90, 99)}
        return {"count": self.count, **{name: None if v is None else round(v, 6) for name, v in numbers.items()}}


class Totals:
    """A run in numbers, fed event by event; holds something of running requests only."""

    def __init__(self) -> None:
        self.steps = self.passes = self.finished = self.output_tokens = self.positions = self.padding = self.preemptions = 0
        self.kv_use = self.first = self.last = 0.0
        self.ttft, self.itl, self.e2e = Histogram(), Histogram(), Histogram()
        self._arrival: dict[str, float] = {}
        self._latest: dict[str, float] = {}

    def add(self, event: StepEvent) -> None:
        self.first = event.t_start if not self.steps else self.first
        self.last = event.t_end
        self.steps += 1
        self.passes += len(event.passes)
        self.positions += sum(p.rows * p.width for p in event.passes)
        self.padding += sum(p.padding for p in event.passes)
        self.preemptions += len(event.preempted)
        self.kv_use += event.kv.used / event.kv.total
        self.output_tokens += len(event.sampled)
        for request, t in event.arrived:
            self._arrival[request] = t
        ends = [p.t_end for p in event.passes]
        latest, gaps = self._latest, Counter[float]()
        for index, request, _, _, _ in event.sampled:
            end = ends[index]
            before = latest.get(request)
            if before is None:
                self.ttft.add(end - self._arrival[request])
            else:
                gaps[end - before] += 1
            latest[request] = end
        for gap, times in gaps.items():
            self.itl.add(gap, times)
        for request, reason in event.finished:
            arrival = self._arrival.pop(request)
            if request in latest:
                ended = latest.pop(request)
                if reason in ("length", "stop"):
                    self.finished += 1
                    self.e2e.add(ended - arrival)

    def to_json(self) -> dict[str, Any]:
        wall = self.last - self.first
        return {
            "wall_s": round(wall, 6),
            "steps": self.steps,
            "passes": self.passes,
            "finished": self.finished,
            "output_tokens": self.output_tokens,
            "output_tok_s": self.output_tokens / wall if wall else None,
            "requests_per_s": self.finished / wall if wall else None,
            "padding_waste": self.padding / self.positions if self.positions else None,
            "kv_use": self.kv_use / self.steps if self.steps else None,
            "preemptions": self.preemptions,
            "ttft_s": self.ttft.to_json(),
            "itl_s": self.itl.to_json(),
            "e2e_s": self.e2e.to_json(),
        }


def flow(
    engine: SimulatedEngine,
    requests: Iterable[Request],
    window: int = WINDOW,
    on_step: Callable[[Totals], None] = lambda totals: None,
) -> Totals:
    """Run a stream of requests to its end; the totals of all events, the last of which are in `engine.trace`."""
    totals = Totals()
    collecting = gc.isenabled()
    gc.disable()  # records are trees: the collector would walk all of them, again and again, and find nothing
    try:
        for event in engine.flow(requests, window):
            totals.add(event)
            on_step(totals)
    finally:
        if collecting:
            gc.enable()
    return totals


def simulated_engine(spec: str, config: EngineConfig, model: str) -> SimulatedEngine:
    """An engine for requests meant for `model`, whose tokenizer and context it uses; its weights are not loaded."""
    cost = cost_named(spec)
    source = str(BUILTIN_FOLDER / model) if model in BUILTIN_MODELS else model
    try:
        tokenizer, described = AutoTokenizer.from_pretrained(source), AutoConfig.from_pretrained(source).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"The tokenizer of {model!r} cannot be loaded: {' '.join(str(error).split())[:200]}") from None
    return SimulatedEngine(
        cost,
        config,
        tokenizer,
        vocab_size=described.vocab_size,
        max_model_len=getattr(described, "max_position_embeddings", None),
    )
