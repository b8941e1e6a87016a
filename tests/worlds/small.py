"""Small worlds for tests: requests from lengths, a scheduler driven by counted tokens, and an
engine on a model that only remembers.

`SchedulerWorld` drives a scheduler with no model at all. `memory_engine` is the real engine on
`MemoryModel`, whose next token is a hash of the whole sequence as the KV pool holds it: whoever
reads a wrong, stale or foreign slot says a wrong token.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from core import Engine, EngineConfig, Request, SamplingParams, Trace, Workload
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler, StepFacts
from core.scheduler.state import RequestState
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.kv_pool import KVPool, KVShape
from core.torch_engine.models.adapter import ModelAdapter
from core.trace.rules.checker import Checker
from worlds.integrity import check_integrity

VOCAB_SIZE = 50
EOS = 3


def request(
    id: str,
    prompt: int | Sequence[int],
    new: int = 4,
    arrival: float = 0,
    *,
    ignore_eos: bool = True,
    **sampling,
) -> Request:
    """A request of token ids; `prompt` is how many, or which."""
    ids = tuple(range(4, 4 + prompt)) if isinstance(prompt, int) else tuple(prompt)
    params = SamplingParams(max_new_tokens=new, ignore_eos=ignore_eos, **sampling)
    return Request(id, prompt_token_ids=ids, sampling=params, arrival=arrival)


def requests(*rows: tuple) -> list[Request]:
    """Requests r0, r1, … from (prompt, new tokens[, arrival])."""
    return [request(f"r{i}", *row) for i, row in enumerate(rows)]


@dataclass
class Step:
    """What one step did: its passes, as ((request, tokens), …) each, and the scheduler's facts."""

    number: int
    outputs: list[SchedulerOutput]
    facts: StepFacts

    @property
    def passes(self) -> list[tuple[tuple[str, int], ...]]:
        return [
            tuple((s.request, len(s.tokens)) for s in output.scheduled) for output in self.outputs
        ]

    @property
    def admitted(self) -> list[str]:
        return [a.request for a in self.facts.admitted]


@dataclass
class SchedulerWorld:
    """A scheduler, fed as arrivals fall due (in steps) and answered with token 1; integrity is
    checked after every step.
    """

    config: EngineConfig
    requests: Iterable[Request]
    num_blocks: int = 1000
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.config, self.num_blocks)
        self.pending = sorted(self.requests, key=lambda r: r.arrival)
        self.states: dict[str, RequestState] = {}

    @property
    def has_work(self) -> bool:
        return bool(self.pending) or self.scheduler.has_work

    def step(self) -> Step:
        while self.pending and self.pending[0].arrival <= len(self.steps):
            due = self.pending.pop(0)
            self.states[due.id] = RequestState(due, due.prompt_token_ids)
            self.scheduler.add(self.states[due.id])
        outputs = []
        for output in self.scheduler.schedule():
            outputs.append(output)
            self.scheduler.update_from_output(
                output, [1] * sum(s.samples for s in output.scheduled)
            )
        step = Step(len(self.steps), outputs, self.scheduler.end_step())
        check_integrity(self.scheduler)
        self.steps.append(step)
        return step

    def run(self, limit: int = 2000) -> SchedulerWorld:
        while self.has_work:
            assert len(self.steps) < limit, "the run does not come to an end"
            self.step()
        return self

    @property
    def finish_steps(self) -> dict[str, int]:
        return {f.request: step.number for step in self.steps for f in step.facts.finished}

    def chunks(self, request: str) -> list[int]:
        """The tokens that each pass computed of a request."""
        return [n for step in self.steps for p in step.passes for r, n in p if r == request and n]


def world_of(
    policy: str, rows: Sequence[tuple], num_blocks: int = 1000, **limits
) -> SchedulerWorld:
    """Rows as in `requests`."""
    return SchedulerWorld(EngineConfig(policy=policy, **limits), requests(*rows), num_blocks)


def checker_of(trace: Trace) -> Checker:
    """The rules, given all requests."""
    checker = Checker(trace.header)
    assert [checker.fault_of_request(*asked) for asked in trace.asked.values()] == [None] * len(
        trace.asked
    )
    return checker


def next_token(ids: Sequence[int]) -> int:
    """What `MemoryModel` says after a sequence."""
    return zlib.crc32(array("i", ids).tobytes()) % VOCAB_SIZE


def generate(request: Request, eos: int | None = EOS) -> list[int]:
    """What a request yields when it runs alone."""
    ids = list(request.prompt_token_ids)
    for _ in range(request.sampling.max_new_tokens):
        ids.append(next_token(ids))
        if ids[-1] == eos and not request.sampling.ignore_eos:
            break
    return ids[len(request.prompt_token_ids) :]


class MemoryModel(ModelAdapter):
    """An adapter whose cache holds token ids as keys and positions as values, and whose logits read
    them back.

    fails_after: sequences of this length get logits that are not finite.
    """

    def __init__(self, context: int | None = 4096, fails_after: int | None = None) -> None:
        self.model, self.lock = None, threading.RLock()
        self.name, self.plug = "memory", "none"
        self.shapes, self.windows = {0: KVShape(1, 1, 1)}, {0: None}
        self.config = SimpleNamespace(
            model_type="memory", vocab_size=VOCAB_SIZE, max_position_embeddings=context
        )
        self.fails_after = fails_after

    device = torch.device("cpu")
    dtype = torch.float32
    num_parameters = 0
    eos_token_ids = frozenset({EOS})

    def forward(self, batch: PackedBatch, pool: KVPool, backend=None) -> torch.Tensor:
        keys, values = (t.view(-1) for t in pool.layers[0])
        keys[batch.slot_mapping] = batch.input_ids.flatten().float()
        values[batch.slot_mapping] = batch.position_ids.flatten().float()
        wanted = batch.sample_rows.tolist()
        logits = torch.zeros(len(wanted), VOCAB_SIZE)
        width = batch.input_ids.shape[1]
        for segment in batch.segments:
            flat = segment.row * width + segment.end - 1
            if flat in wanted and segment.end > segment.first:
                held = slice(None, segment.kv_len)
                ids = [int(i) for i in keys[segment.slots][held].tolist()]
                assert [int(i) for i in values[segment.slots][held].tolist()] == list(
                    range(segment.kv_len)
                ), "a slot of somebody else"
                logits[wanted.index(flat), next_token(ids)] = 9.0
                if self.fails_after == segment.kv_len:
                    logits[wanted.index(flat)] = torch.nan
        return logits


class Words:
    """Every token is a word with its id."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(f"w{i} " for i in ids)

    def __call__(self, text: str) -> dict[str, list[int]]:
        raise AssertionError("no prompt was given as a text")


def memory_engine(
    policy: str = "continuous", tokenizer=None, model: MemoryModel | None = None, **limits
) -> Engine:
    """The real engine on a `MemoryModel`."""
    return Engine(model or MemoryModel(), tokenizer, EngineConfig(policy=policy, **limits))


def memory_trace(*rows: tuple, policy: str = "continuous", **limits):
    """The trace of a small run; rows as in `requests`."""
    return memory_engine(policy, **limits).run(Workload(requests(*rows), name="small"))
