"""The recorded runs that ship with the page, as the player lists them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.config import ASSETS
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from core.workload.presets import GROUPS, PRESETS, Preset
from visualizer.charts.theme import deal

TRACES = ASSETS / "traces"


QUESTIONS: dict[str, dict[str, str]] = json.loads(
    (ASSETS / "presets" / "questions.json").read_text(encoding="utf-8")
)
"""The headings of the list, in order: one per group of `core.workload.presets.GROUPS`, and last one
for runs of other engines. An entry's `question` is an index into them. {"title": a visitor's
question, "answer": one line below it}
"""


def _elsewhere(preset: str, name: str, title: str, shows: str, **limits: Any) -> dict[str, Preset]:
    """The requests of a preset as another engine ran them, by the name of that run."""
    ours = PRESETS[preset]
    config = replace(ours.config, **limits)
    return {name: replace(ours, name=name, title=title, shows=shows, config=config)}


OTHER_ENGINES = _elsewhere(
    "kv-pressure",
    "vllm-kv-pressure",
    "Cache full, in vLLM",
    "vLLM's own steps on the requests of Cache full, recorded inside vLLM.",
)
"""Runs of another engine on a preset's requests; `tests/measure/record_engines.py` records them."""
RUNS = {**PRESETS, **OTHER_ENGINES}

RANKED = _elsewhere(
    "poisson-32",
    "vllm-two-ranks",
    "Two ranks of vLLM",
    "Thirty-two arrivals, divided between two data-parallel ranks of vLLM: both on one clock.",
    max_num_seqs=4,
)
"""Runs of another engine's ranks on a preset's requests; `tests/measure/vllm_ranks.py` records them
as `NAME.rank0.jsonl`, `NAME.rank1.jsonl`.
"""

LEAKS = {name: f"leaks/{name}" for name in ("short-and-long", "three-lengths")}
"""The runs of presets that were also recorded with a leaking mask, for pages without an engine."""


def recorded_runs(folder: Path = TRACES) -> Iterator[tuple[dict[str, Any], Path]]:
    """The list entry and the trace file of each recorded run, in the order of the presets."""
    for name, path in recorded_paths(folder).items():
        yield entry(RUNS[name], Trace.load(path, trusted=True)), path


def recorded_paths(folder: Path = TRACES) -> dict[str, Path]:
    """The file of each recorded run's trace by its name, in the order of the presets."""
    paths = {preset.name: folder / f"{preset.name}.jsonl" for preset in RUNS.values()}
    return {name: path for name, path in paths.items() if path.exists()}


def recorded_ranks(
    folder: Path = TRACES, trusted: bool = False
) -> Iterator[tuple[dict[str, Any], Ranks]]:
    """The list entry of each run of several ranks, and the ranks. trusted: see `Trace.load`."""
    for preset in RANKED.values():
        if rank_files(preset.name, folder):
            found = ranks(preset.name, folder, trusted)
            steps = sum(len(rank.trace.events) for rank in found.ranks)
            first = entry(preset, found.ranks[0].trace)
            yield first | {"steps": steps, "lanes": _stacked(found, steps)}, found


def ranks(name: str, folder: Path = TRACES, trusted: bool = False) -> Ranks:
    """The ranks recorded under a name; raises InvalidTrace for none. trusted: see `Trace.load`."""
    return Ranks.of((path.name, Trace.load(path, trusted)) for path in rank_files(name, folder))


def rank_files(name: str, folder: Path = TRACES) -> list[Path]:
    return sorted(folder.glob(f"{name}.rank*.jsonl"), key=lambda path: (len(path.name), path.name))


def entry(preset: Preset, trace: Trace) -> dict[str, Any]:
    """A recorded run's entry in the player's list, without its address."""
    groups = [{p.name for p in group} for group in GROUPS.values()]
    return {
        "name": preset.name,
        "title": preset.title,
        "shows": preset.shows,
        "policy": trace.config.policy.name,
        "question": next((n for n, g in enumerate(groups) if preset.name in g), len(groups)),
        "steps": len(trace.events),
        "lanes": thumbnail(trace),
        "recorded": trace.header.created[:10],
        "axis": preset.axis,
        "beside": has_both(ASSETS / "comparisons" / preset.name),
    }


def has_both(comparison: Path) -> bool:
    """Whether a recorded comparison has runs of both static and continuous batching."""
    path = comparison / "comparison.json"
    kept = json.loads(path.read_text(encoding="utf-8"))["traces"] if path.exists() else {}
    return {"static", "continuous"} <= kept.keys()


def thumbnail(trace: Trace, places: Sequence[tuple[int, int]] = ()) -> list[list[list[int]]]:
    """For each lane the intervals in which a request computed: [first step, end, hue]; hue -1 is
    wasted work. places: where each step is drawn, by default one after another.
    """
    hues = deal(trace)
    lanes: list[list[list[int]]] = [[] for _ in range(trace.config.max_num_seqs)]
    for i, event in enumerate(trace.events):
        start, end = places[i] if places else (i, i + 1)
        held = {s.lane: hues[s.request] for s in event.segments}
        held |= {row.lane: -1 for forward in event.passes for row in forward.finished_rows}
        for lane, hue in held.items():
            pieces = lanes[lane]
            if pieces and pieces[-1][1:] == [start, hue]:
                pieces[-1][1] = end
            else:
                pieces.append([start, end, hue])
    return [pieces for pieces in lanes if pieces]


def _stacked(found: Ranks, width: int) -> list[list[list[int]]]:
    """The lanes of all ranks, one below the other on their common clock, `width` units wide."""
    each = width / max(rank.span[1] for rank in found.ranks)
    lanes = []
    for rank in found.ranks:
        places = [
            (round((rank.offset + e.t_start) * each), round((rank.offset + e.t_end) * each))
            for e in rank.trace.events
        ]
        lanes += thumbnail(rank.trace, places)
    return lanes
