"""Facts for the texts of lessons: attribute paths that start at a step of a recorded run, and a few
numbers that must be computed.

    step.budget.unused, forward.width   the step's event, its last pass
    frame.lanes, B.prompt               the state of the lanes, a request by its letter
    config.block_size, model.layers     the limits of the run, its model
    metrics.steps, company.bf16.drift   metrics of the run, a pair of recorded runs
    shared_prefix                       computed below

A list stands for its length, and a path that ends in `request` for a request, drawn as its letter.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

from core.account.metrics import metrics, preemption_s
from core.account.request_times import request_times
from core.config import ASSETS, SMOLLM2, EngineConfig
from core.errors import InflightError
from core.trace.divergence import divergence
from core.trace.events import Finished, Sampled, Segment, StepEvent
from core.trace.mask import Mask
from core.trace.phrases import letters
from core.trace.run_state import Frame
from core.trace.trace import Trace
from visualizer.documents.comparison import COMPARISON, RECORDED, load
from visualizer.words.findings import num_places


@dataclass(frozen=True)
class At:
    """A step of a trace, from which facts are computed."""

    trace: Trace
    step: int

    @cached_property
    def event(self) -> StepEvent:
        return self.trace.event(self.step)

    @cached_property
    def frame(self) -> Frame:
        return next(found for found in self.trace.frames() if found.step == self.step)

    @cached_property
    def mask(self) -> Mask:
        """The attention mask of the step's first pass."""
        return self.trace.mask(self.step)

    @cached_property
    def config(self) -> EngineConfig:
        return self.trace.config

    @cached_property
    def letters(self) -> dict[str, str]:
        return letters(self.trace)

    def request(self, letter: str) -> str:
        """A request by its letter; raises InflightError if there is none."""
        for request, its in self.letters.items():
            if its == letter:
                return request
        raise InflightError(f"This run has no request {letter}.")

    def of(self, phase: str) -> list[Segment]:
        """The segments of the step in a phase, prefill or decode."""
        return [s for s in self.event.segments if s.phase == phase]


PAIRS = {
    "float32": ("greedy-alone", "greedy-together"),
    "bf16": ("greedy-alone-bf16", "greedy-together-bf16"),
    "unmasked": ("greedy-alone", "mistakes/greedy-unmasked"),
}
"""Recorded runs of the same requests: each of them alone, and all together."""


class Company:
    """Texts generated alone and in a batch, in two recorded runs of the same requests: how far
    rounding moves a logit, how small a lead must be for a token to change, and how large the effect
    of a wrong mask is.
    """

    def __init__(self, alone: str, together: str) -> None:
        self._pairs = _tokens(recorded_run(alone), recorded_run(together))

    @property
    def compared(self) -> int:
        """Tokens of all requests."""
        return sum(len(ours) for ours, _ in self._pairs)

    @property
    def differing(self) -> int:
        """Tokens that differ in the batch."""
        return sum(
            a.token_id != b.token_id
            for ours, theirs in self._pairs
            for a, b in zip(ours, theirs, strict=True)
        )

    @property
    def drift(self) -> float:
        """The largest change in the log-probability of a token after the same text."""
        same = [
            (a, b)
            for ours, theirs in self._pairs
            for a, b in zip(ours[: _parting(ours, theirs)], theirs, strict=False)
        ]
        return max(abs((a.logprob or 0.0) - (b.logprob or 0.0)) for a, b in same)

    @property
    def lead(self) -> float:
        """The largest lead of the best logit, alone, where texts diverge; 0 if none do."""
        parted = [
            ours[n].margin or 0.0
            for ours, theirs in self._pairs
            if (n := _parting(ours, theirs)) < len(ours)
        ]
        return max(parted, default=0.0)


def parts_at(alone: Trace, together: Trace) -> int:
    """The first step of `together` with a token unlike `alone`; the last if there is none."""
    parted = [
        theirs[n]
        for ours, theirs in _tokens(alone, together)
        if (n := _parting(ours, theirs)) < len(ours)
    ]
    return next(
        (e.step for e in together.events if any(s is t for s in e.sampled for t in parted)),
        together.events[-1].step,
    )


@cache
def recorded_run(name: str) -> Trace:
    return Trace.load(ASSETS / "traces" / f"{name}.jsonl")


def _tokens(alone: Trace, together: Trace) -> list[tuple[list[Sampled], list[Sampled]]]:
    """The new tokens of each request, alone and together."""
    ours, theirs = (
        {r: [s for e in t.events for s in e.sampled if s.request == r] for r in t.prompts}
        for t in (alone, together)
    )
    return [(ours[r], theirs[r]) for r in ours]


def _parting(ours: list[Sampled], theirs: list[Sampled]) -> int:
    """The number of equal tokens before two texts diverge."""
    return next(
        (n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.token_id != b.token_id),
        len(ours),
    )


@dataclass(frozen=True)
class Who:
    """A request, drawn as its letter."""

    request: str


Value = int | float | str | Who
NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
PADDED = "comparisons/where-padding-costs/comparison.json"
GAINS = {
    "differing": (COMPARISON, "continuous"),
    "arriving": ("poisson-32", "continuous"),
    "alike": ("equal-lengths", "continuous, budget 256"),
}
"""Recorded comparisons with static batching, and the continuous contender in each."""


@cache
def _json(path: str) -> dict[str, Any]:
    return json.loads((ASSETS / path).read_text(encoding="utf-8"))


FACTS: dict[str, Callable[[At], Any]] = {
    # what is on record
    "step": lambda at: at.event,
    "forward": lambda at: at.event.passes[-1],
    "frame": lambda at: at.frame,
    "config": lambda at: at.config,
    "model": lambda at: at.trace.header.model,
    "metrics": lambda at: metrics(at.trace),
    "measured": lambda at: _measured(at),
    "leak": lambda at: _leak(_measured(at)),
    "leak_in_plays": lambda at: _leak(_json("comparisons/gpt2-six/comparison.json")),
    "company": lambda at: {name: Company(*pair) for name, pair in PAIRS.items()},
    # the step's passes and its mask
    "positions": lambda at: _positions(at.event),
    "other_rows": lambda at: at.event.passes[-1].rows - 1,
    "other_columns": lambda at: at.event.passes[-1].width - 1,
    # a prompt of n among B: (n − 1)(B − 1)
    "pads_of_join": lambda at: (at.event.passes[-1].width - 1) * (at.event.passes[-1].rows - 1),
    "mask": lambda at: at.mask,
    "blocked": lambda at: at.mask.num_cells - at.mask.num_allowed,
    # who computes
    "decoding": lambda at: {s.request: s for s in at.of("decode")},
    "longest_prefill": lambda at: max(at.of("prefill"), key=lambda s: s.length),
    "first_to_finish": lambda at: _first_to_finish(at),
    # what limits the step
    "budget_used": lambda at: at.event.budget.decode + at.event.budget.prefill,
    "budget_after_decodes": lambda at: at.config.max_num_batched_tokens - at.event.budget.decode,
    "blocks_free": lambda at: at.event.kv.total - at.event.kv.used,
    "shared_blocks": lambda at: [
        block for block, owners in at.frame.blocks.items() if len(owners) > 1
    ],
    "hit_blocks": lambda at: at.event.kv.prefix_hits[0].num_cached_tokens // at.config.block_size,
    # the whole run
    "first_hits": lambda at: _first_hits(at.trace),
    "shared_prefix": lambda at: _shared_prefix(list(at.trace.prompts.values())),
    "preemption_ms": lambda at: preemption_s(at.trace) * 1000,
    "widest_step": lambda at: max(map(_positions, at.trace.events)),
    "wasted_lane_steps": lambda at: (
        (counted := metrics(at.trace)["lane_steps"])["total"] - counted["useful"]
    ),
    "decided_alike": lambda at: _decided_alike(at.trace),
    # steps by what held them back
    "bound": lambda at: Counter(e.budget.binding for e in at.trace.events),
    # steps that requests waited, all together
    "queued": lambda at: sum(e.waiting.count for e in at.trace.events),
    "asked": lambda at: sorted(
        (a.request.sampling.max_new_tokens for a in at.trace.asked.values()), reverse=True
    ),
    # tokens of the largest step after this one
    "later_tokens": lambda at: max(
        (sum(p.tokens for p in e.passes) for e in at.trace.events if e.step > at.step), default=0
    ),
    "best_steps": lambda at: best_steps(at.trace),
    "shortest_answer": lambda at: min(map(len, at.trace.outputs.values())),
    "longest_answer": lambda at: max(map(len, at.trace.outputs.values())),
    "times_as_fast": lambda at: {
        name: static / ours for name, (static, ours, *_) in measured_gains().items()
    },
    "budget_of_alike": lambda at: GAINS["alike"][1].split()[-1],
    "seconds_padded": lambda at: _json(PADDED)["policies"]["dynamic"]["wall_s"]["median"],
    "seconds_packed": lambda at: _json(PADDED)["policies"]["continuous"]["wall_s"]["median"],
    "megabytes": lambda at: round(
        (at.trace.header.model.parameters or 0) * NUMBER_BYTES[at.trace.header.dtype] / 1e6
    ),
    # bytes of the cache
    "kv_heads": lambda at: _model_file(at)["num_key_value_heads"],
    "head_dim": lambda at: (
        _model_file(at).get("head_dim")
        or _model_file(at)["hidden_size"] // _model_file(at)["num_attention_heads"]
    ),
    "number_bytes": lambda at: NUMBER_BYTES[at.trace.header.dtype],
    # the cost of a pass, as measured
    "largest_pass": lambda at: _measured_passes(at)[-1]["tokens"],
    "pass_cost": lambda at: (
        _measured_passes(at)[-1]["median_s"] / _measured_passes(at)[0]["median_s"]
    ),  # of the largest, in passes of one token
    # by its number of tokens
    "pass_ms": lambda at: {str(p["tokens"]): p["median_s"] * 1e3 for p in _measured_passes(at)},
    # in the largest
    "ms_a_token": (
        lambda at: _measured_passes(at)[-1]["median_s"] * 1e3 / _measured_passes(at)[-1]["tokens"]
    ),
}
"""Values for the first name of a path, and numbers that have to be computed."""

REQUEST_FACTS: dict[str, Callable[[At, str], Any]] = {
    "prompt": lambda at, r: at.trace.prompts[r],
    "prompt_text": lambda at, r: _shown(asked_text(at.trace, r)),
    "sampling": lambda at, r: at.trace.asked[r].request.sampling,
    "times": lambda at, r: request_times(at.trace)[r],
    "step_after": lambda at, r: (request_times(at.trace)[r].finish_step or 0) + 1,
    "prefill_steps": lambda at, r: _prefill(at, r),
    "segment": lambda at, r: _segment(at, r),  # in the step
    "kv_len": lambda at, r: _kv_len(at, r),  # positions in its cache after the step
    "kv_bytes": lambda at, r: _kv_len(at, r) * (at.trace.header.model.kv_bytes_per_token or 0),
    "block_table": lambda at, r: _block_table(at, r),
    "block_list": lambda at, r: ", ".join(map(str, _block_table(at, r))),
    "unused_in_blocks": (
        lambda at, r: len(_block_table(at, r)) * at.config.block_size - _kv_len(at, r)
    ),
    "written": lambda at, r: _written(at, r),
    "computed": lambda at, r: request_times(at.trace)[r].num_computed,
    # each time everything so far
    "computed_without_cache": lambda at, r: request_times(at.trace)[r].num_read,
    # the longest step that reads its prompt
    "longest_read": lambda at, r: max(e.t_end - e.t_start for e in _prefill(at, r)) * 1e3,
    "first_token_ms": lambda at, r: (request_times(at.trace)[r].ttft_s or 0.0) * 1e3,
    # by its row of the step
    "last_read": lambda at, r: _shown(at.trace.token_text(r, _segment(at, r).kv_len - 1)),
}
"""The attributes of a request, after its letter."""


def measured_gains() -> dict[str, tuple[float, float, float, float]]:
    """For each of `GAINS`: static and continuous median seconds, least and largest ratio."""
    found = {}
    for name, (comparison, policy) in GAINS.items():
        policies = _json(f"comparisons/{comparison}/comparison.json")["policies"]
        ratio = policies[policy]["ratio_to_baseline"]
        found[name] = (
            policies["static"]["wall_s"]["median"],
            policies[policy]["wall_s"]["median"],
            ratio["min"],
            ratio["max"],
        )
    return found


def fact(path: str, at: At) -> Value:
    """The value of a path at a step of a run; raises InflightError for an unknown path."""
    first, *names = path.split(".")
    try:
        if first in FACTS:
            found = FACTS[first](at)
        else:
            found = REQUEST_FACTS[names.pop(0)](at, at.request(first))
        for name in names:
            found = _member(found, name)
        if isinstance(found, (list, tuple, dict)):
            return len(found)
        if not isinstance(found, (int, float, str)):
            raise TypeError(f"{type(found).__name__} is nothing to write")
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise InflightError(
            f"There is no fact {path} in step {at.step} of {at.trace.header.workload}: {error!r}."
        ) from None
    return Who(str(found)) if path.endswith(".request") else found


def _member(of: Any, name: str) -> Any:
    if isinstance(of, Mapping):
        return of[name]
    return of[int(name)] if isinstance(of, Sequence) and name.isdigit() else getattr(of, name)


def _first_to_finish(at: At) -> Finished:
    held = {r.request for r in at.frame.lanes}
    return next(
        f for e in at.trace.events if e.step >= at.step for f in e.finished if f.request in held
    )


def _prefill(at: At, request: str) -> list[StepEvent]:
    return [
        e
        for e in at.trace.events
        if any(s.request == request and s.phase == "prefill" for s in e.segments)
    ]


def best_seating(trace: Trace) -> list[list[str]]:
    """The best assignment of requests to lanes if all lengths were known: for each lane its
    requests, such that the longest lane is as short as possible. A request holds its lane for as
    many steps as it generates tokens.
    """
    lengths = {request: len(tokens) for request, tokens in trace.outputs.items()}
    lanes = range(trace.config.num_lanes)

    def seated(choice: tuple[int, ...]) -> list[list[str]]:
        return [
            [request for request, lane in zip(lengths, choice, strict=True) if lane == n]
            for n in lanes
        ]

    def sizes(seats: list[list[str]]) -> list[int]:
        return sorted((sum(lengths[r] for r in lane) for lane in seats), reverse=True)

    return min((seated(choice) for choice in product(lanes, repeat=len(lengths))), key=sizes)


def best_steps(trace: Trace) -> int:
    return max(sum(len(trace.outputs[r]) for r in lane) for lane in best_seating(trace))


def _segment(at: At, request: str) -> Segment:
    return next(s for s in at.event.segments if s.request == request)


def _kv_len(at: At, request: str) -> int:
    return next(r.kv_len for r in at.frame.lanes if r.request == request)


def _block_table(at: At, request: str) -> list[int]:
    states = at.trace.states()
    return next(state.blocks_of(request) for event, state in states if event.step == at.step)


def _written(at: At, request: str) -> str:
    before = sum(
        s.request == request for e in at.trace.events if e.step < at.step for s in e.sampled
    )
    return _shown(at.trace.texts.output[request][before])


def _shared_prefix(prompts: list[list[int]]) -> int:
    """The length of the prefix that all prompts share."""
    return next(
        (i for i, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1),
        min(map(len, prompts)),
    )


def _first_hits(trace: Trace) -> int:
    """Cached tokens at first admissions; after a preemption a request may find its own."""
    found: dict[str, int] = {}
    for event in trace.events:
        hits = event.kv.cached_tokens
        for admitted in event.admitted:
            found.setdefault(admitted.request, hits.get(admitted.request, 0))
    return sum(found.values())


def _positions(event: StepEvent) -> int:
    """The number of positions that a step computes, including pads."""
    return sum(p.rows * p.width for p in event.passes)


def _decided_alike(trace: Trace) -> int:
    """The number of steps before our engine first decides differently with these limits."""
    found = divergence(_ours(trace.header.workload), trace)
    return len(trace.events) if found is None else found.step


@cache
def _ours(workload: str) -> Trace:
    """Our engine's run of a workload that other engines ran too."""
    ours = load(RECORDED / f"engines-{workload}").comparison.runs["continuous"].trace
    assert ours is not None
    return ours


def _model_file(at: At) -> dict[str, Any]:
    name = at.trace.header.model.name
    if name == SMOLLM2:  # its files are fetched, and not needed to read a lesson
        return {"num_key_value_heads": 3, "head_dim": 64}
    return _json(f"models/{name}/config.json")


def _measured(at: At) -> dict[str, Any]:
    """The comparison in which the run's model was measured."""
    name = COMPARISON if at.trace.header.model.name == SMOLLM2 else "gpt2-six"
    return _json(f"comparisons/{name}/comparison.json")


def _leak(comparison: dict[str, Any]) -> dict[str, int]:
    """How many tokens differ with a leaking mask, of how many places (texts may differ in length),
    and how many differ with the right mask.
    """
    found = comparison["equivalence"]
    return {
        "differing": found["leak"]["differing_tokens"],
        "compared": num_places(found["leak"], "solo"),
        "masked": found["honest"]["differing_tokens"],
    }


def _measured_passes(at: At) -> list[dict[str, Any]]:
    return _measured(at)["cost_curve"]["by_tokens"]


def asked_text(trace: Trace, request: str) -> str:
    """The question of a request: its prompt, or the last of its messages."""
    messages = trace.asked[request].request.messages
    return messages[-1]["content"] if messages else "".join(trace.texts.prompt[request])


def _shown(text: str) -> str:
    return text.replace("\n", "↵").strip()
