"""Named expressions: every number and every request that a lesson mentions is one of these, computed from a recorded run. Composes no words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remembered
from typing import Any

from core.assets import ASSETS
from core.errors import InflightError
from core.measure.metrics import metrics
from core.trace.events import Pass, Segment
from core.trace.fold import Fold, prompt_lengths
from visualizer.lessons.places import At


@dataclass(frozen=True)
class Who:
    """A request, drawn as its letter."""

    request: str


@dataclass(frozen=True)
class Share:
    """A part of a whole, written in per cent."""

    value: float


Value = int | float | str | Who | Share
Fact = Callable[..., Value]
FACTS: dict[str, Fact] = {}


def fact(function: Fact) -> Fact:
    FACTS[function.__name__] = function
    return function


def value(name: str, at: At, argument: str | None = None) -> Value:
    """The fact at a place; raises InflightError for one that is unknown or that the run does not have."""
    if name not in FACTS:
        raise InflightError(f"There is no fact {name!r}.")
    try:
        return FACTS[name](at) if argument is None else FACTS[name](at, argument)
    except (IndexError, StopIteration, ValueError, KeyError, TypeError) as error:
        raise InflightError(f"The fact {name} cannot be computed in step {at.step}: {error!r}.") from None


# -- the run ---------------------------------------------------------------------------------------------------------


@fact
def steps(at: At) -> int:
    return len(at.trace.events)


@fact
def requests(at: At) -> int:
    return len(at.trace.prompts)


@fact
def lanes(at: At) -> int:
    return at.config.num_lanes


@fact
def budget(at: At) -> int:
    return at.config.max_num_batched_tokens


@fact
def block_size(at: At) -> int:
    return at.config.block_size


@fact
def blocks(at: At) -> int:
    """In the whole pool."""
    return at.event.kv.total


@fact
def output_tokens(at: At) -> int:
    return sum(len(e.sampled) for e in at.trace.events)


@fact
def padding_share(at: At) -> Share:
    """Padding in all that the run computed."""
    passes = [p for e in at.trace.events for p in e.passes]
    return Share(sum(p.padding for p in passes) / sum(map(_positions, passes)))


@fact
def lane_steps(at: At) -> int:
    return metrics(at.trace)["lane_steps"]["total"]


@fact
def wasted_lane_steps(at: At) -> int:
    counts = metrics(at.trace)["lane_steps"]
    return counts["total"] - counts["useful"]


@fact
def occupancy(at: At) -> Share:
    counts = metrics(at.trace)["lane_steps"]
    return Share(counts["useful"] / counts["total"])


@fact
def preemptions(at: At) -> int:
    return sum(len(e.preempted) for e in at.trace.events)


@fact
def recomputed(at: At) -> int:
    """Positions computed again after preemptions."""
    return metrics(at.trace)["tokens_recomputed"]


@fact
def hits(at: At) -> int:
    """Positions found in the prefix cache."""
    return sum(h.num_cached_tokens for e in at.trace.events for h in e.kv.prefix_hits)


@fact
def shared_prefix(at: At) -> int:
    """Tokens with which all prompts begin alike."""
    prompts = list(at.trace.prompts.values())
    return next((i for i, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1), min(map(len, prompts)))


@fact
def widest_step(at: At) -> int:
    """Most positions that a single step computes."""
    return max(sum(_positions(p) for p in e.passes) for e in at.trace.events)


# -- the step --------------------------------------------------------------------------------------------------------


@fact
def step(at: At) -> int:
    return at.step


@fact
def rows(at: At) -> int:
    return at.event.passes[-1].rows


@fact
def width(at: At) -> int:
    return at.event.passes[-1].width


@fact
def positions(at: At) -> int:
    return sum(_positions(p) for p in at.event.passes)


@fact
def tokens(at: At) -> int:
    """Real positions of the step, without padding."""
    return sum(p.tokens for p in at.event.passes)


@fact
def padding(at: At) -> int:
    return sum(p.padding for p in at.event.passes)


@fact
def pads_of_join(at: At) -> int:
    """(n − 1)(B − 1): what a prompt of n tokens costs the B − 1 rows beside it."""
    return (at.event.passes[-1].width - 1) * (at.event.passes[-1].rows - 1)


@fact
def beside(at: At) -> int:
    """Rows of the pass but one."""
    return at.event.passes[-1].rows - 1


@fact
def width_less_one(at: At) -> int:
    return at.event.passes[-1].width - 1


@fact
def cells(at: At) -> int:
    """Cells of the mask: queries × keys."""
    return int(at.trace.mask(at.step).allowed.size)


@fact
def allowed(at: At) -> int:
    """Cells of the mask that may be looked at."""
    return int(at.trace.mask(at.step).allowed.sum())


@fact
def blocked(at: At) -> int:
    mask = at.trace.mask(at.step).allowed
    return int(mask.size - mask.sum())


@fact
def running(at: At) -> int:
    return len(at.frame.lanes)


@fact
def waiting(at: At) -> int:
    return at.event.waiting.count


@fact
def decode_tokens(at: At) -> int:
    return at.event.budget.decode


@fact
def prefill_tokens(at: At) -> int:
    return at.event.budget.prefill


@fact
def budget_used(at: At) -> int:
    return at.event.budget.decode + at.event.budget.prefill


@fact
def budget_unused(at: At) -> int:
    return at.event.budget.unused


@fact
def budget_after_decodes(at: At) -> int:
    return at.config.max_num_batched_tokens - at.event.budget.decode


@fact
def decoding(at: At) -> int:
    return len({s.request for s in at.of("decode")})


@fact
def finished_rows(at: At) -> int:
    return sum(len(p.finished_rows) for p in at.event.passes)


@fact
def blocks_used(at: At) -> int:
    return at.event.kv.used


@fact
def blocks_free(at: At) -> int:
    return at.event.kv.total - at.event.kv.used


@fact
def tokens_lost(at: At) -> int:
    return sum(p.tokens_lost for p in at.event.preempted)


# -- requests --------------------------------------------------------------------------------------------------------


@fact
def admitted(at: At) -> Who:
    return Who(at.event.admitted[0].request)


@fact
def waits(at: At) -> Who:
    """Who is first among those waiting."""
    if at.event.waiting.request is None:
        raise ValueError("nobody waits")
    return Who(at.event.waiting.request)


@fact
def preempted(at: At) -> Who:
    return Who(at.event.preempted[0].request)


@fact
def prefilling(at: At) -> Who:
    """The request that reads most of its prompt in this step."""
    return Who(max(at.of("prefill"), key=lambda s: s.length).request)


@fact
def first_to_finish(at: At) -> Who:
    """Of those in a lane, who finishes first."""
    held = {r.request for r in at.frame.lanes}
    return Who(next(f.request for e in at.trace.events if e.step >= at.step for f in e.finished if f.request in held))


@fact
def prompt(at: At, letter: str) -> int:
    return len(at.trace.prompts[at.request(letter)])


@fact
def asked(at: At, letter: str) -> int:
    return _asked(at, at.request(letter))


@fact
def cache(at: At, letter: str) -> int:
    """Positions in a request's cache when the step is over."""
    return next(r.kv_len for r in at.frame.lanes if r.request == at.request(letter))


@fact
def cached_before(at: At, letter: str) -> int:
    return _segment(at, letter).start


@fact
def computes(at: At, letter: str) -> int:
    """Positions of a request in this step."""
    return _segment(at, letter).length


@fact
def finish_step(at: At, letter: str) -> int:
    request = at.request(letter)
    return next(e.step for e in at.trace.events if any(f.request == request for f in e.finished))


@fact
def chunk_steps(at: At, letter: str) -> int:
    """Steps in which a request's prompt is computed."""
    request = at.request(letter)
    return sum(any(s.request == request and s.phase == "prefill" for s in e.segments) for e in at.trace.events)


@fact
def word(at: At, letter: str) -> str:
    """The token that a request writes in this step."""
    request = at.request(letter)
    sampled = next(s for s in at.event.sampled if s.request == request)
    written = [s for e in at.trace.events for s in e.sampled if s.request == request].index(sampled)
    return _shown(at.trace.texts.output[request][written])


@fact
def last_read(at: At, letter: str) -> str:
    """The last token that a request's row computes in this step."""
    return _shown(at.trace.token_text(at.request(letter), _segment(at, letter).kv_len - 1))


@fact
def prompt_text(at: At, letter: str) -> str:
    return _shown("".join(at.trace.texts.prompt[at.request(letter)]))


@fact
def blocks_of(at: At, letter: str) -> int:
    return sum(at.request(letter) in owners for owners in at.frame.blocks.values())


@fact
def unused_in_blocks(at: At, letter: str) -> int:
    """Positions of a request's blocks that hold nothing."""
    return int(str(blocks_of(at, letter))) * at.config.block_size - int(str(cache(at, letter)))


@fact
def shared_blocks(at: At) -> int:
    """Blocks that several requests use."""
    return sum(len(owners) > 1 for owners in at.frame.blocks.values())


@fact
def block_list(at: At, letter: str) -> str:
    """The blocks of a request, in the order of its block table."""
    request, fold = at.request(letter), Fold.of(prompt_lengths(at.trace))
    for event in at.trace.events:
        fold.begin(event)
        if event.step == at.step:
            break
        fold.end(event)
    return ", ".join(map(str, fold.tables[request]))


@fact
def hit(at: At) -> int:
    return at.event.kv.prefix_hits[0].num_cached_tokens


@fact
def hit_blocks(at: At) -> int:
    return at.event.kv.prefix_hits[0].num_cached_tokens // at.config.block_size


# -- the cache in bytes ----------------------------------------------------------------------------------------------


@fact
def layers(at: At) -> int:
    return at.trace.header["model"]["layers"]


@fact
def kv_heads(at: At) -> int:
    return _model(at)["num_key_value_heads"]


@fact
def head_dim(at: At) -> int:
    model = _model(at)
    return model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]


@fact
def number_bytes(at: At) -> int:
    """Bytes of one number of the cache."""
    return {"float32": 4, "bfloat16": 2, "float16": 2}[at.trace.header["dtype"]]


@fact
def dtype(at: At) -> str:
    return at.trace.header["dtype"]


@fact
def token_bytes(at: At) -> int:
    """Bytes of a token in the cache: K and V × layers × heads × size of a head × bytes of a number."""
    return at.trace.header["model"]["kv_bytes_per_token"]


@fact
def cache_bytes(at: At, letter: str) -> int:
    return int(str(cache(at, letter))) * at.trace.header["model"]["kv_bytes_per_token"]


@remembered
def _model_file(name: str) -> dict[str, Any]:
    return json.loads((ASSETS / "models" / name / "config.json").read_text(encoding="utf-8"))


def _model(at: At) -> dict[str, Any]:
    return _model_file(at.trace.header["model"]["name"])


# -- what was measured -----------------------------------------------------------------------------------------------


@fact
def batch_cost(at: At) -> float:
    """How many times as long a step of the most tokens takes as a step of one, as the recorded cost curve measured it."""
    points = _measured()["cost_curve"]["by_tokens"]
    return points[-1]["median_s"] / points[0]["median_s"]


@fact
def batch_tokens(at: At) -> int:
    return _measured()["cost_curve"]["by_tokens"][-1]["tokens"]


@fact
def leak_differing(at: At) -> int:
    return _measured()["equivalence"]["leak"]["differing_tokens"]


@fact
def honest_differing(at: At) -> int:
    return _measured()["equivalence"]["honest"]["differing_tokens"]


@fact
def compared_tokens(at: At) -> int:
    return _measured()["equivalence"]["honest"]["tokens"]


@remembered
def _measured() -> dict[str, Any]:
    """The recorded comparison on the article's six requests."""
    return json.loads((ASSETS / "comparisons" / "gpt2-six" / "comparison.json").read_text(encoding="utf-8"))


def _positions(forward: Pass) -> int:
    return forward.rows * forward.width


def _segment(at: At, letter: str) -> Segment:
    return next(s for s in at.event.segments if s.request == at.request(letter))


def _asked(at: At, request: str) -> int:
    asked = {r["id"]: r.get("sampling", {}).get("max_new_tokens", 0) for r in at.trace.header["workload"]["requests"]}
    return asked[request]


def _shown(text: str) -> str:
    return text.replace("\n", "↵").strip()
