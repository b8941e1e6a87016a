"""The same scheduler and the same events without the forward pass: a cost model says how long each pass would have taken.

    cost = fit(trace)                                   # see `core.simulate.cost`
    engine = SimulatedEngine(cost, config)
    trace = engine.run(workload)                        # labelled "source": "simulated"
    totals = flow(engine, requests)                     # a million requests, see `core.simulate.totals`

Time is simulated too: the clock moves by what the passes cost and by the waits between arrivals; scheduling itself costs nothing.
Tokens are made up (always the same one), so an end-of-sequence token never comes: every request runs to its full length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer

from core.assets import model_source
from core.attention.kv_pool import KVShape
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.recorder import Recorder, Window
from core.errors import UnsupportedModel
from core.runner.base import PassResult, Sample
from core.scheduler.output import SchedulerOutput
from core.simulate.cost import Cost, Linear, Load, cost_named
from core.trace.header import SIMULATED
from core.workload.request import SamplingParams

TOKEN = Sample(0, 0.0, 0.0)


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
    execution = None
    notes: Sequence[str] = ()
    eos_token_ids: frozenset[int] = frozenset()  # of its made-up tokens

    def __init__(self, cost: Cost, clock: SimulatedClock) -> None:
        self.cost, self.clock = cost, clock
        self._passes = self._passes_beyond = 0

    @property
    def share_beyond(self) -> float:
        """Of the passes so far, those beyond what the cost model was made from."""
        return self._passes_beyond / self._passes if self._passes else 0.0

    def begin(self) -> None:
        """See `Runner`."""
        self._passes = self._passes_beyond = 0

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """See `Runner`."""
        kv = samples = tokens = 0
        for _, _, _, fed, start, _, sampled, *_ in output.scheduled:
            tokens += len(fed)
            kv += start + len(fed)
            samples += sampled
        positions = tokens if output.layout == "packed" else output.rows * output.width
        load = Load(positions, kv * self.cost.kv_bytes_per_token)
        started, seconds = self.clock.now, self.cost.seconds(load)
        self.clock.now = started + seconds
        self._passes += 1
        self._passes_beyond += self.cost.beyond(load)
        return PassResult(
            samples=[TOKEN] * samples, t_start=started, t_end=self.clock.now, prepare=0.0, forward=seconds, sample=0.0
        )


class SimulatedModel:
    """What an engine asks of a model, without one."""

    plug = "none"
    tensor_parallel = 1

    def __init__(
        self,
        name: str,
        cost: Cost,
        vocab_size: int = 50257,
        max_model_len: int | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.name, self.vocab_size, self.max_model_len = name, vocab_size, max_model_len
        self.shapes: dict[int, KVShape] = {}
        self.windows: dict[int, int | None] = {0: None}
        self.eos_token_ids = eos_token_ids
        self.device, self.dtype = torch.device("meta"), torch.float16  # nothing is stored anywhere
        self.kv_bytes_per_token = cost.kv_bytes_per_token
        self.config = SimpleNamespace(model_type=SIMULATED)
        self.num_parameters = round(getattr(cost, "weight_bytes", 0) / 2)


class SimulatedEngine(Engine):
    """An engine whose forward pass is a cost model. name: of the model it stands for. tokenizer: for text prompts.

    window: keep the steps of the last so many tokens alone. runner: what makes up the tokens.
    """

    def __init__(
        self,
        cost: Cost,
        config: EngineConfig | None = None,
        tokenizer: Any | None = None,
        *,
        name: str | None = None,
        vocab_size: int = 50257,
        max_model_len: int | None = None,
        window: int | None = None,
        runner: Callable[[Cost, SimulatedClock], SimulatedRunner] = SimulatedRunner,
    ) -> None:
        clock = SimulatedClock()
        self.cost, self._simulated = cost, runner(cost, clock)
        super().__init__(
            SimulatedModel(
                name or cost.to_json().get("model") or SIMULATED, cost, vocab_size, max_model_len, self._simulated.eos_token_ids
            ),
            tokenizer,
            config,
            runner=lambda num_blocks: self._simulated,
            recorder=Window(window, _about(cost)) if window else Recorder(_about(cost)),
            clock=clock,
            sleep=clock.advance,
        )

    @property
    def beyond(self) -> str | None:
        """A sentence where passes lay beyond what was measured."""
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


def _about(cost: Cost) -> dict[str, Any]:
    """What the header of a simulated run says of itself: the label, and the cost model."""
    device = getattr(cost, "accelerator", None) or getattr(cost, "about", {}).get("device", "cpu")
    return {"source": SIMULATED, "device": f"{SIMULATED} {device}", "device_name": SIMULATED, "cost": cost.to_json()}


def simulated_engine(spec: str, config: EngineConfig, model: str) -> SimulatedEngine:
    """An engine for requests meant for `model`, whose tokenizer and context it uses; its weights are not loaded."""
    cost = cost_named(spec)
    source = model_source(model)
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
