"""Decision by decision: recorded workloads of other engines' schedulers, replayed on ours. Runs no model and measures no time.

A line of a recording is a workload: `seqs`, `budget`, `blocks`, `size` and `caching` are its limits, `requests` have `id`, `prompt` (token
ids), `max_tokens` and `arrival` (a step), and `vllm` or `transformers` is what that engine decided in each step that computed anything:
`[admitted, preempted, [[request, start, length], …], finished]`, each sorted. Some settings may differ from the engine's defaults: vLLM's
`reserve_full_isl` and `watermark`, transformers' `margin` (a share of the pool) and `kv_reads` (tokens). There is no model: after n tokens a request's next one is `crc32("request:n") % 1000`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.errors import InflightError, InvalidWorkload
from core.policy import POLICIES, Policy
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.workload.request import Request, SamplingParams

Decisions = list[Any]  # of a step: admitted, preempted, computed, finished
_DECISIONS = ("preempted", "admitted", "computed", "finished")  # in the order in which they are taken
_MOST_STEPS = 100_000
_POLICIES = {"vllm": "continuous", "transformers": "transformers"}  # the engine, and our policy that decides as it does


@dataclass(frozen=True)
class Agreement:
    """steps: that the other engine took. first_differences: by kind of decision, the number of workloads in which the two first differ in it."""

    workloads: int
    identical: int
    steps: int
    first_differences: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "workloads": self.workloads,
            "identical": self.identical,
            "steps": self.steps,
            "first_differences": self.first_differences,
        }


def agree(path: Path) -> Agreement:
    """Replay every workload of a `.jsonl` or `.jsonl.gz` file; raises InvalidWorkload for anything that is not such a recording."""
    workloads = steps = 0
    differences: Counter[str] = Counter()
    for number, recorded in _lines(path):
        try:
            difference = first_difference(recorded[_engine(recorded)], replay(recorded))
        except (InflightError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidWorkload(f"{path}, line {number}: this is not a recorded workload ({error!r}).") from None
        workloads, steps = workloads + 1, steps + len(recorded[_engine(recorded)])
        if difference is not None:
            differences[difference] += 1
    return Agreement(workloads, workloads - differences.total(), steps, dict(differences.most_common()))


def replay(recorded: dict[str, Any]) -> list[Decisions]:
    """What our scheduler decides in each step that computes anything."""
    config = EngineConfig(
        policy=_policy(POLICIES[_POLICIES[_engine(recorded)]], recorded),
        max_num_seqs=recorded["seqs"],
        max_num_batched_tokens=recorded["budget"],
        block_size=recorded["size"],
        num_blocks=recorded["blocks"],
        prefix_caching=recorded["caching"],
    )
    scheduler = Scheduler(config, recorded["blocks"])
    pending = sorted(recorded["requests"], key=lambda r: r["arrival"])
    decided: list[Decisions] = []
    for step in range(_MOST_STEPS):
        if not pending and not scheduler.has_work:
            return decided
        while pending and pending[0]["arrival"] <= step:
            scheduler.add(_state(pending.pop(0)))
        computed = []
        for output in scheduler.schedule():
            computed += [[s.request, s.start, len(s.tokens)] for s in output.scheduled]
            scheduler.update_from_output(output, [next_token(s.request, s.kv_len) for s in output.scheduled if s.samples])
        facts = scheduler.end_step()
        if computed:
            names = (facts.admitted, facts.preempted, facts.finished)
            admitted, preempted, finished = (sorted(record.request for record in records) for records in names)
            decided.append([admitted, preempted, sorted(computed), finished])
    raise InvalidWorkload(f"the workload does not end within {_MOST_STEPS:,} steps.")


def first_difference(theirs: list[Decisions], ours: list[Decisions]) -> str | None:
    """The kind of decision in which the two first differ, or None; "steps" where one goes on after the other has ended."""
    for before, after in zip_longest(theirs, ours):
        if before is None or after is None:
            return "steps"
        if before != after:
            by_kind = dict(zip(("admitted", "preempted", "computed", "finished"), zip(before, after, strict=True), strict=True))
            return next(kind for kind in _DECISIONS if by_kind[kind][0] != by_kind[kind][1])
    return None


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidWorkload(f"{path} cannot be read as recorded workloads: {error}.") from None


def _engine(recorded: dict[str, Any]) -> str:
    """Which engine decided; a workload that none has decided yet is replayed as vLLM's."""
    return next((name for name in _POLICIES if name in recorded), "vllm")


def _policy(policy: Policy, recorded: dict[str, Any]) -> Policy:
    """The engine's rule under the settings of the recording."""
    if policy.preemption == "after":
        pool = recorded["blocks"] * recorded["size"]
        return replace(policy, margin=recorded.get("margin", policy.margin), kv_reads=recorded.get("kv_reads", pool) / pool)
    return replace(
        policy,
        reserve="prompt" if recorded.get("reserve_full_isl", True) else "chunk",
        watermark=float(recorded.get("watermark", 0)),
    )


def _state(recorded: dict[str, Any]) -> RequestState:
    sampling = SamplingParams(max_new_tokens=recorded["max_tokens"], ignore_eos=True)
    request = Request(recorded["id"], prompt_token_ids=tuple(recorded["prompt"]), sampling=sampling)
    return RequestState(request, request.prompt_token_ids or ())


def next_token(request: str, num_tokens: int) -> int:
    """The next token of a request after so many tokens."""
    return zlib.crc32(f"{request}:{num_tokens}".encode()) % 1000
