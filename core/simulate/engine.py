"""An engine with the same scheduler and events but without a forward pass: a cost model says how
long each pass would have taken.

    cost = fit(trace)                                   # see `core.simulate.fitted`
    engine = SimulatedEngine(cost, config)
    trace = engine.run(workload)                        # labelled "source": "simulated"
    totals = run_stream(engine, requests)               # of millions, see `core.simulate.totals`

Time is simulated too: the clock moves by what the passes cost and by the waits between arrivals;
scheduling itself costs nothing. Tokens are made up (always the same one) and have no text, so
neither an end-of-sequence token nor a stop string ever comes: requests run to their full length.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.config import EngineConfig, PolicyOrName, check_count
from core.engine.engine import EngineCore
from core.engine.loop import ManualClock
from core.engine.outputs import StopStrings
from core.engine.recorder import TraceRecorder, Window
from core.engine.runner import PassResult, Sample
from core.errors import InvalidConfig, require
from core.scheduler.output import SchedulerOutput
from core.simulate.cost import Cost, Load
from core.simulate.fitted import Linear
from core.trace.header import SIMULATED, ModelFacts
from core.workload.request import LATEST, SamplingParams

TOKEN = Sample(0, 0.0, 0.0)
_VOCABULARY = 50257  # where nothing is known of the model


def hardware_of(cost: Cost) -> dict[str, str]:
    """The fields of a header that name the hardware that a cost model stands for."""
    known = cost.deployment
    return {
        "device": f"{SIMULATED} {known.device}",
        "device_name": known.hardware or SIMULATED,
        "dtype": known.dtype,
    }


class SimulatedRunner:
    """A `Runner` without a model: a pass takes what it costs; all samples are one token."""

    asynchronous = own_clock = False
    execution = memory = None
    notes: Sequence[str] = ()

    def __init__(self, cost: Cost, clock: ManualClock) -> None:
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
        kv = samples = tokens = pairs = 0
        for scheduled in output.scheduled:
            tokens += len(scheduled.tokens)
            # a finished row is a pad, and pads attend to nothing
            kv += scheduled.kv_len if scheduled.tokens else 0
            pairs += Load.pairs_of(len(scheduled.tokens), scheduled.kv_len)
            samples += scheduled.samples
        positions = tokens if output.layout == "packed" else output.rows * output.width
        load = Load(positions, kv * self.cost.kv_bytes_per_token, pairs)
        started, seconds = self.clock.now, self.cost.seconds(load)
        self.clock.now = started + seconds
        self._passes += 1
        self._passes_beyond += self.cost.beyond(load)
        return PassResult(
            samples=[TOKEN] * samples,
            t_start=started,
            t_end=self.clock.now,
            prepare=0.0,
            forward=seconds,
            sample=0.0,
        )


class SimulatedExecutor:
    """The `Executor` of a cost model: always the same runner, and the memory of the hardware that
    the cost model stands for. model: the one that it stands for.
    """

    def __init__(
        self, model: ModelFacts, runner: SimulatedRunner, notes: Sequence[str] = ()
    ) -> None:
        self.model, self._runner = model, runner
        cost, self._deployment = runner.cost, runner.cost.deployment
        self.header = {
            "source": SIMULATED,
            **hardware_of(cost),
            "notes": tuple(notes),
            "versions": {"python": platform.python_version()},
            "cost": cost.to_json(),
        }

    @property
    def memory_sentence(self) -> str:
        """See `Executor`."""
        room = self._deployment.kv_bytes
        if room is None:
            return ""
        return f"beside its weights {self._deployment.device} has {room / 1e9:,.1f} GB for it"

    def check_config(self, config: EngineConfig) -> None:
        """See `Executor`: refuses a pool larger than the memory that the weights leave."""
        most = self._most(config)
        if config.num_blocks is not None and most is not None and config.num_blocks > most:
            size = config.num_blocks * self._block_bytes(config)
            raise InvalidConfig(
                f"A KV pool of {config.num_blocks:,} blocks of {config.block_size} tokens takes"
                f" {size / 1e9:,.1f} GB; {self.memory_sentence}, which are {most:,} blocks."
            )

    def most_blocks(
        self, config: EngineConfig, longest: int, drop_pool: Callable[[], None]
    ) -> int | None:
        """See `Executor`."""
        return self._most(config)

    def _most(self, config: EngineConfig) -> int | None:
        if self._deployment.kv_bytes is None:
            return None
        found = self._deployment.kv_bytes // self._block_bytes(config)
        if not found:
            raise InvalidConfig(
                f"Not even one KV block of {config.block_size:,} tokens fits:"
                f" {self.memory_sentence}."
            )
        return found

    def _block_bytes(self, config: EngineConfig) -> int:
        return config.block_size * (self.model.kv_bytes_per_token or 1)

    def new_runner(
        self, config: EngineConfig, num_blocks: int, clock: Callable[[], float]
    ) -> SimulatedRunner:
        """See `Executor`."""
        return self._runner

    def failure(self, error: Exception) -> None:
        """See `Executor`: there is no device to fail."""


class SimulatedEngine(EngineCore):
    """An engine whose forward pass is a cost model. The model it stands for, and the memory for its
    KV pool, are those of the cost model.

    tokenizer: for text prompts. name, vocab_size, max_model_len: used instead of those of the cost
    model. window: keep only the steps of the last `window` tokens.
    """

    _most_sleep = LATEST  # simulated time passes at once

    def __init__(
        self,
        cost: Cost,
        config: EngineConfig | None = None,
        tokenizer: Any | None = None,
        *,
        policy: PolicyOrName | None = None,
        name: str | None = None,
        vocab_size: int | None = None,
        max_model_len: int | None = None,
        window: int | None = None,
    ) -> None:
        require(cost, Cost, "A simulation needs a cost, such as fit(trace) or Roofline.named(…)")
        counts = {"vocab_size": vocab_size, "max_model_len": max_model_len, "window": window}
        for what, count in counts.items():
            if count is not None:
                check_count(what, count)
        if name is not None:
            require(name, str, "A model has a name")
        clock, known, self._window = ManualClock(), cost.deployment, window
        if isinstance(cost, Linear) and name is not None:
            cost.check_model(name, vocab_size=vocab_size)
        self.cost, self._simulated = cost, SimulatedRunner(cost, clock)
        model = ModelFacts(
            name=name or known.model or SIMULATED,
            type=SIMULATED,
            parameters=known.parameters or 0,
            layers=0,
            vocab_size=vocab_size or known.vocab_size or _VOCABULARY,
            context=max_model_len or known.context,
            eos_token_ids=(),
            windows=(None,),
            plug="none",
            kv_bytes_per_token=cost.kv_bytes_per_token,
        )
        notes = []
        if tokenizer is not None and known.vocab_size and not isinstance(cost, Linear):
            notes.append(
                f"Texts were split into tokens by another tokenizer than that of {known.model},"
                " which makes other lengths of them."
            )
        super().__init__(
            SimulatedExecutor(model, self._simulated, notes),
            tokenizer,
            config,
            policy=policy,
            recorder=Window(window) if window else TraceRecorder(),
            clock=clock,
            sleep=clock.advance,
        )
        self.outputs = StopStrings(None)  # made-up tokens have no text, so none is found

    def under(self, config: EngineConfig) -> SimulatedEngine:
        """An engine with other limits and its own clock. Raises InvalidConfig."""
        return SimulatedEngine(
            self.cost,
            config,
            self.tokenizer,
            name=self.model.name,
            vocab_size=self.model.vocab_size,
            max_model_len=self.model.context,
            window=self._window,
        )

    def _num_blocks_for(self, longest: int) -> int:
        """As configured, or all that fit into memory; without a limit, room for every lane."""
        if self.config.num_blocks:
            return self.config.num_blocks
        most = self.executor.most_blocks(self.config, longest, self._drop_pool)
        return most or super()._num_blocks_for(longest)

    @property
    def beyond(self) -> str | None:
        """A sentence if some passes lay beyond what was measured."""
        share = self._simulated.share_beyond
        if not share or not isinstance(self.cost, Linear):
            return None
        most = self.cost.most
        shown = f"{100 * share:.0f}" if share > 0.005 else f"{100 * share:.1g}"  # never 0 %
        return (
            f"{shown} % of the simulated passes lie beyond what was measured (at most"
            f" {most.tokens:,} positions and {most.kv_bytes // self.cost.kv_bytes_per_token:,}"
            " tokens of KV cache in a pass): there the model is extrapolated."
        )
