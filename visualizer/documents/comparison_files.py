"""Comparisons on disk: a folder each, with `comparison.json` and every run as the trace it is, compressed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from core.assets import ASSETS
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.comparison_faults import fault_of
from core.measure.cost_curve import CostCurve
from core.measure.rounds import Run
from core.recorders.raw import lines_of
from core.trace.trace import Trace
from visualizer.documents.comparison import SCHEMA, Shown

RECORDED = ASSETS / "comparisons"


def save(shown: Shown, folder: Path) -> Path:
    """Write a comparison with its traces; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for index, (name, run) in enumerate(shown.comparison.runs.items()):
        if run.trace is not None:
            names[name] = f"{index}-{''.join(c if c.isalnum() or c == '-' else '_' for c in name)}.jsonl.gz"
            text = "".join(line + "\n" for line in run.trace.lines())
            (folder / names[name]).write_bytes(gzip.compress(text.encode(), mtime=0))  # the same run, the same bytes
    for old in set(folder.glob("*.jsonl*")) - {folder / file for file in names.values()}:
        old.unlink()
    plain = {
        "schema": SCHEMA,
        "title": shown.title,
        "shows": shown.shows,
        "group": shown.group,
        "names": shown.comparison.names,
        "traces": names,
        **shown.data,
        "equivalence": shown.equivalence,
    }
    (folder / "comparison.json").write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return folder


def load(folder: Path) -> Shown:
    """Inverse of `save`; raises InflightError for a folder that is not one, and for one that contradicts itself or its runs."""
    try:
        plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            raise InflightError(
                f"The comparison {folder.name} has schema {plain['schema']!r}; this version reads schema {SCHEMA}."
            )
        names, entries = plain["names"], plain["policies"]
        traces = {name: Trace.from_lines(map(str.rstrip, lines_of(folder / file))) for name, file in plain["traces"].items()}
        runs = {name: Run.of(traces[name]) if name in traces else Run({}, entries[name]["metrics"]) for name in names}
        comparison = Comparison(
            names,
            {name: entries[name]["wall_s"]["runs"] for name in names},
            runs,
            {name: entries[name]["metrics"] for name in names},
            plain["differences"],
            {name: entries[name].get("about", {}) for name in names},
            {name: entries[name]["shown_round"] for name in names if "shown_round" in entries[name]},
            {name: entries[name]["apart"] for name in names if "apart" in entries[name]},
        )
        if fault := fault_of(comparison, plain):
            raise InflightError(f"The comparison {folder.name} {fault}.")
        cost = CostCurve.from_json(plain["cost_curve"]) if "cost_curve" in plain else None
        return Shown(
            comparison, plain["workload"], plain["environment"], plain["source"], plain["title"], plain["shows"], plain["created"], cost,
            plain["equivalence"], plain.get("load"), plain.get("group", ""),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InflightError(f"The comparison {folder.name} cannot be read: {type(error).__name__}.") from None


def recorded(folder: Path = RECORDED) -> list[dict[str, str]]:
    """The comparisons on record, those of a group last and `gpt2-six` first: what the page lists of them, without loading a run."""
    entries = []
    for path in folder.glob("*/comparison.json"):
        plain = json.loads(path.read_text(encoding="utf-8"))
        found = {"name": path.parent.name, "title": plain["title"], "shows": plain["shows"], "recorded": plain["created"][:10]}
        entries.append({**found, "group": plain.get("group", "")})
    return sorted(entries, key=lambda entry: (entry["group"], entry["name"] != "gpt2-six", entry["name"]))
