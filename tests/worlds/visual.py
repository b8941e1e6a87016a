"""A small world for tests of the page: the real engine with a runner that invents tokens, every
step ten milliseconds long.
"""

from __future__ import annotations

from dataclasses import replace

from core.config import EngineConfig
from core.engine.recorder import TraceRecorder
from core.engine.runner import PassResult, Sample
from core.torch_engine.engine import Engine
from core.trace.trace import Texts, Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from worlds.small import MemoryModel

TOKEN = 7


def request(name: str, prompt: int, new: int, arrival: int = 0, first: int = 0) -> Request:
    """A request with `prompt` made-up tokens that writes `new` tokens; equal `first` gives equal
    prompts.
    """
    ids = tuple(first + i for i in range(prompt))
    return Request(
        name,
        prompt_token_ids=ids,
        sampling=SamplingParams(max_new_tokens=new, ignore_eos=True),
        arrival=arrival,
    )


class _Inventing:
    """A runner and its clock: a pass takes a millisecond, and every token is `TOKEN`."""

    asynchronous, own_clock, execution, notes, memory = False, False, None, (), None
    now = 0.0

    def begin(self) -> None: ...

    def launch(self, output, params) -> PassResult:
        samples = [Sample(TOKEN, -1.0, 0.5) for s in output.scheduled if s.samples]
        start, self.now = self.now, self.now + 0.001
        return PassResult(
            samples=samples,
            t_start=start,
            t_end=self.now,
            prepare=0.0002,
            forward=0.0005,
            sample=0.0003,
        )


class _EvenSteps(TraceRecorder):
    """A step begins every ten milliseconds and lasts nine, one of them for scheduling."""

    def __init__(self, clock: _Inventing) -> None:
        super().__init__()
        self._clock = clock

    def record(self, event):
        def even():
            made = event()
            return made._replace(
                t_end=round(made.t_start + 0.009, 6), timings=made.timings._replace(schedule=0.001)
            )

        made = super().record(even)
        self._clock.now = (made.step + 1) / 100
        return made


class _Nameless(MemoryModel):
    """No model: a vocabulary for any prompt, and a name."""

    def __init__(self) -> None:
        super().__init__(context=None)
        self.name = "invented"
        self.config.vocab_size = 2**31


def record(config: EngineConfig, *requests: Request, num_blocks: int | None = None) -> Trace:
    """Run the requests to their end."""
    config = replace(config, num_blocks=num_blocks or config.num_blocks or 64)
    runner = _Inventing()
    engine = Engine(
        _Nameless(),
        None,
        config,
        runner=lambda num_blocks: runner,
        recorder=_EvenSteps(runner),
        clock=lambda: runner.now,
    )
    trace = engine.run(Workload(requests))
    trace.recorded_texts = Texts(
        {r: [f"p{i} " for i in ids] for r, ids in trace.prompts.items()},
        {r: [f"w{i} " for i in range(len(ids))] for r, ids in trace.outputs.items()},
    )
    return trace
