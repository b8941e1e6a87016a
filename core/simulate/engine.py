"""The same scheduler and the same events without the forward pass: a cost model says how long each pass would have taken.

    cost = fit(trace)                                   # see `core.simulate.cost`
    engine = SimulatedEngine(cost, config)
    trace = engine.run(workload)                        # labelled "source": "simulated"
    totals = run_stream(engine, requests)                     # a million requests, see `core.simulate.totals`

Time is simulated too: the clock moves by what the passes cost and by the waits between arrivals; scheduling itself costs nothing.
Tokens are made up (always the same one), so an end-of-sequence token never comes: every request runs to its full length.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.config import EngineConfig, PolicyOrName
from core.engine.engine import EngineCore
from core.engine.recorder import TraceRecorder, Window
from core.engine.runner import PassResult, Sample
from core.scheduler.output import SchedulerOutput
from core.simulate.cost import Cost, Linear, Load
from core.trace.header import SIMULATED, ModelFacts
from core.workload.request import SamplingParams

TOKEN = Sample(0, 0.0, 0.0)


class SimulatedClock:
    """A clock that moves only by `advance`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock, by at least a nanosecond: a wait too short to change a large float would never end."""
        self.now += max(seconds, 1e-9)


class SimulatedRunner:
    """A `Runner` without a model: every pass takes what it costs, every sample is the same token."""

    asynchronous = own_clock = False
    execution = memory = None
    notes: Sequence[str] = ()
    eos_token_ids: frozenset[int] = frozenset()  # the made-up tokens have none

    def __init__(self, cost: Cost, clock: SimulatedClock) -> None:
        self.cost, self.clock = cost, clock
        self._passes = self._passes_beyond = 0

    @property
    def share_beyond(self) -> float:
        """The share of passes so far that lie outside what the cost model was fitted to."""
        return self._passes_beyond / self._passes if self._passes else 0.0

    def begin(self) -> None:
        """See `Runner`."""
        self._passes = self._passes_beyond = 0

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """See `Runner`."""
        kv = samples = tokens = 0
        for scheduled in output.scheduled:
            tokens += len(scheduled.tokens)
            kv += scheduled.kv_len
            samples += scheduled.samples
        positions = tokens if output.layout == "packed" else output.rows * output.width
        load = Load(positions, kv * self.cost.kv_bytes_per_token)
        started, seconds = self.clock.now, self.cost.seconds(load)
        self.clock.now = started + seconds
        self._passes += 1
        self._passes_beyond += self.cost.beyond(load)
        return PassResult(
            samples=[TOKEN] * samples, t_start=started, t_end=self.clock.now, prepare=0.0, forward=seconds, sample=0.0
        )


class SimulatedExecutor:
    """The `Executor` of a cost model: unlimited memory, and always the same runner. model: the one it stands for."""

    memory_sentence = ""

    def __init__(self, model: ModelFacts, runner: SimulatedRunner) -> None:
        self.model, self._runner = model, runner
        cost = runner.cost
        device = getattr(cost, "accelerator", None) or getattr(cost, "about", {}).get("device", "cpu")
        self.header = {
            "source": SIMULATED,
            "device": f"{SIMULATED} {device}",
            "device_name": SIMULATED,
            "dtype": "float16",
            "versions": {"python": platform.python_version()},
            "cost": cost.to_json(),
        }

    def check_config(self, config: EngineConfig) -> None:
        """See `Executor`."""

    def most_blocks(self, config: EngineConfig, longest: int, drop_pool: Callable[[], None]) -> None:
        """See `Executor`: nothing is stored anywhere."""

    def new_runner(self, config: EngineConfig, num_blocks: int, clock: Callable[[], float]) -> SimulatedRunner:
        """See `Executor`."""
        return self._runner

    def failure(self, error: Exception) -> None:
        """See `Executor`: there is no device to fail."""


class SimulatedEngine(EngineCore):
    """An engine whose forward pass is a cost model. name: of the model it stands for. tokenizer: for text prompts.

    window: keep only the steps of the last `window` tokens. runner: makes up the tokens.
    """

    def __init__(
        self,
        cost: Cost,
        config: EngineConfig | None = None,
        tokenizer: Any | None = None,
        *,
        policy: PolicyOrName | None = None,
        name: str | None = None,
        vocab_size: int = 50257,
        max_model_len: int | None = None,
        window: int | None = None,
        runner: Callable[[Cost, SimulatedClock], SimulatedRunner] = SimulatedRunner,
    ) -> None:
        clock = SimulatedClock()
        self.cost, self._simulated = cost, runner(cost, clock)
        model = ModelFacts(
            name=name or cost.to_json().get("model") or SIMULATED,
            type=SIMULATED,
            parameters=round(getattr(cost, "weight_bytes", 0) / 2),
            layers=0,
            vocab_size=vocab_size,
            context=max_model_len,
            eos_token_ids=tuple(self._simulated.eos_token_ids),
            windows=(None,),
            plug="none",
            kv_bytes_per_token=cost.kv_bytes_per_token,
        )
        super().__init__(
            SimulatedExecutor(model, self._simulated),
            tokenizer,
            config,
            policy=policy,
            recorder=Window(window) if window else TraceRecorder(),
            clock=clock,
            sleep=clock.advance,
        )

    @property
    def beyond(self) -> str | None:
        """A sentence if some passes lay beyond what was measured."""
        share = self._simulated.share_beyond
        if not share:
            return None
        if isinstance(self.cost, Linear):
            most = self.cost.most
            return (
                f"{100 * share:.0f} % of the simulated passes lie beyond what was measured (at most {most.tokens:,} positions and "
                f"{most.kv_bytes / 2**20:,.1f} MiB of KV in a pass): there the model is extrapolated."
            )
        return "No pass of this accelerator was measured here: its times follow from data sheets."
