"""Compares a trace with the raw lines that it was made from, step by step, and its totals with the
counters of vLLM's own `/metrics`.

The lines are read again here without the code of the conversion, and the state is that of the
trace, from which everything is drawn. What a recording does not say is not compared.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace, shown
from core.files import open_file
from core.recorders.convert import REST_IS_MISSING
from core.recorders.raw import lines_of
from core.trace.events import StepEvent
from core.trace.run_state import RunState
from core.trace.trace import Trace

STEP_FACTS = {
    "positions": "what each request computes",
    "tokens": "the tokens that each request gets",
    "waiting": "how many wait",
    "head": "who is next",
    "queue": "the order of the queue, where a snapshot has it",
    "preempted": "who is preempted, and with how many tokens",
    "blocks": "KV blocks in use",
    "shown": "steps on record that are shown, or said not to be",
}
"""The facts that are compared in every step."""
TOTALS = {
    "generation_tokens": "generated tokens",
    "num_preemptions": "preemptions",
    "prefix_cache_hits": "tokens found in the prefix cache",
}
"""The totals that are compared with vLLM's counters, by their names without `vllm:` and `_total`.
vLLM counts tokens that a KV connector found separately; here they are added.
"""


@dataclass
class Compared:
    """One fact. count: how often it was compared. differ: how often it differed. first: the first
    difference, with its step. apart: the last tokens of requests ended from outside, which the
    trace has but the engine did not count.
    """

    fact: str
    means: str
    count: int = 0
    differ: int = 0
    first: str = ""
    apart: int = 0

    def note(self, where: str, raw: Any, trace: Any) -> None:
        """Compare a recorded fact with the trace's; `where` names the first difference."""
        self.count += 1
        if raw != trace:
            self.differ += 1
            self.first = self.first or f"{where}: {raw} on record, {trace} in the trace"


def compare_steps(paths: Iterable[Path], trace: Trace) -> list[Compared]:
    """Compare all parts of one rank's recording with its trace. Damaged lines are not compared."""
    found = {fact: Compared(fact, means) for fact, means in STEP_FACTS.items()}
    header, steps, queues = _read(paths)
    first = min(steps, default=0)
    shown = set[int]()
    for event, state in trace.states():
        number = event.step if event.step in steps else event.step + first
        if (resumed := event.resumed) is not None:
            shown |= set(range(resumed.first, resumed.last + 1))
        shown.add(number)
        if number in steps:
            _compare(steps[number], event, state, header, found)
        if number in queues:
            both = set(queues[number]) & set(state.waiting)
            orders = ([r for r in queue if r in both] for queue in (queues[number], state.waiting))
            found["queue"].note(f"step {number}", *orders)
    for number in sorted(steps):
        found["shown"].note(
            f"step {number}",
            "there",
            "there" if number in shown else "neither shown nor said to be missing",
        )
    return [compared for compared in found.values() if compared.count]


def _compare(
    raw: Mapping[str, Any],
    event: StepEvent,
    state: RunState,
    header: Mapping[str, Any],
    found: dict[str, Compared],
) -> None:
    where = f"step {raw['step']}"
    computed = {s.request: (s.start, s.length) for s in event.segments}
    found["positions"].note(
        where, {s["request"]: (s["start"], s["length"]) for s in raw["segments"]}, computed
    )
    tokens: dict[str, list[int]] = {}
    for s in event.sampled:
        tokens.setdefault(s.request, []).append(s.token_id)
    in_vain = {row.request for row in event.overrun}
    of_raw = {}
    for r, ids in raw.get("sampled", {}).items():
        if ids and r not in in_vain:
            # the engine takes no more of the guesses than a request asked for
            most = len(tokens[r]) if len(ids) > 1 and r in tokens else None
            of_raw[r] = [int(i) for i in ids[:most]]
    found["tokens"].note(where, of_raw, tokens)
    if "waiting" in raw:
        found["waiting"].note(
            where, (raw["waiting"],) * 2, (event.waiting.count, len(state.waiting))
        )
    if "head" in raw:
        found["head"].note(where, raw["head"], event.waiting.request)
    found["preempted"].note(
        where,
        sorted(map(tuple, raw.get("preempted", ()))),
        sorted((p.request, p.tokens_lost) for p in event.preempted),
    )
    if "blocks_free" in raw and header.get("num_blocks") is not None:
        used = header["num_blocks"] - raw["blocks_free"]
        found["blocks"].note(where, (used, used), (event.kv.used, len(state.used_blocks)))


def rank_of(path: Path) -> int:
    """The rank that the header of a file names; 0 if it names none."""
    try:
        return int(json.loads(next(_lines(path), "{}")).get("rank", 0))
    except (ValueError, TypeError, AttributeError):
        return 0


def compare_totals(metrics: Path, traces: Iterable[Trace]) -> list[Compared]:
    """Compare the totals of all ranks with their engine's counters since its start. A request that
    was ended from outside may have one more token for each step that was in flight then. Nothing is
    compared if steps are missing, because the counters include requests in them that are not on
    record. Raises InflightError for a file without vLLM's counters.
    """
    try:
        with open_file(metrics) as file:
            counters = _counters(file.read().decode())
    except (OSError, UnicodeDecodeError) as error:
        raise InflightError(
            f"{metrics.name} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}."
        ) from None
    if not counters.keys() & TOTALS.keys():
        raise InflightError(f"{metrics.name} has no counters of vLLM.")
    if "prefix_cache_hits" in counters:
        counters["prefix_cache_hits"] += counters.get("external_prefix_cache_hits", 0)
    traces = list(traces)
    events = [event for trace in traces for event in trace.events]
    notes = [note for trace in traces for note in trace.header.notes]
    if any(event.resumed for event in events) or any(n.endswith(REST_IS_MISSING) for n in notes):
        return []
    tokens = sum(len(event.sampled) for event in events)
    cancelled = sum(f.finish_reason == "cancelled" for event in events for f in event.finished)
    depth = max(
        (2 if trace.header.engine and trace.header.engine.async_ else 1 for trace in traces),
        default=1,
    )
    ours = {
        "generation_tokens": tokens,
        "num_preemptions": sum(len(event.preempted) for event in events),
        "prefix_cache_hits": sum(_first_hits(trace) for trace in traces),
    }
    apart = tokens - counters.get("generation_tokens", tokens)
    found = []
    for name, means in TOTALS.items():
        if name in counters:
            is_apart = name == "generation_tokens" and 0 <= apart <= cancelled * depth
            compared = Compared(name, means, apart=apart if is_apart else 0)
            compared.note("in all", counters[name], ours[name] - compared.apart)
            found.append(compared)
    return found


def _first_hits(trace: Trace) -> int:
    """Prefix-cache hits at first admissions; vLLM does not count those after a preemption."""
    seen, total = set[str](), 0
    for event in trace.events:
        hits = event.kv.cached_tokens
        for admitted in event.admitted:
            total += hits.get(admitted.request, 0) if admitted.request not in seen else 0
            seen.add(admitted.request)
    return total


def _counters(text: str) -> dict[str, int]:
    counters: dict[str, int] = {}
    for name, value in re.findall(r"^vllm:(\w+?)_total(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE):
        is_count = re.fullmatch(r"\d+(\.\d*)?(e[+]?\d+)?", value) and float(value).is_integer()
        if not is_count:
            raise InflightError(f"The counter {name} is {shown(value)}, which is no count.")
        counters[name] = counters.get(name, 0) + int(float(value))
    return counters


def _read(
    paths: Iterable[Path],
) -> tuple[dict[str, Any], dict[int, dict[str, Any]], dict[int, list[str]]]:
    """The header, and by number the steps and, from snapshots, the queues before them."""
    header: dict[str, Any] = {}
    steps: dict[int, dict[str, Any]] = {}
    queues: dict[int, list[str]] = {}
    for path in paths:
        for line in _lines(path):
            try:
                data = json.loads(line)
                kind = data["kind"]
                if kind == "step":
                    steps[int(data["step"])] = data
                elif kind == "snapshot":
                    queues[int(data["step"])] = list(data["waiting"])
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            header = data if kind == "header" and not header else header
    return header, steps, queues


def _lines(path: Path) -> Iterator[str]:
    with suppress(InvalidTrace):  # the file is truncated, and what it has was yielded
        yield from lines_of(path)
