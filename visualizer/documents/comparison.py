"""A comparison as the page shows it, one JSON document: walls, sentences, figures, the table, and the runs that race.

    {"schema", "kind": "comparison", "name", "title", "source", "names", "hues", "walls", "says", "figures", "table", "csv", "data",
     "runs": {contender: {"header", "complete", "letters", "events"}}, "cost", "equivalence"}

`document` makes it from a `Comparison`; `save` and `load` keep one in a folder, every run as the trace it is. Knows no engine and no page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from core.assets import ASSETS
from core.config import POLICIES
from core.errors import InflightError
from core.measure.compare import Comparison, Run
from core.measure.cost_curve import CostCurve
from core.measure.metrics import DEFINITIONS
from core.trace.phrases import letter, letters
from core.trace.trace import Trace
from visualizer.charts import cost_curve, kv_use, lane_steps, latency, throughput, total_time
from visualizer.charts.contenders import hue_of
from visualizer.documents.replay import plain_event, public_header
from visualizer.words import findings

RECORDED = ASSETS / "comparisons"
SCHEMA = 1
NOT_OBSERVABLE = "not observable"
BASELINES = {
    "generate-waves": "model.generate in left-padded waves: the article's static batching",
    "generate-serial": "model.generate, one request at a time",
    "transformers-continuous": "the continuous batching of transformers",
}

FIGURES: dict[str, Callable[[Comparison], go.Figure]] = {
    "total_time": total_time.figure,
    "throughput": throughput.figure,
    "latency": latency.figure,
    "lane_steps": lane_steps.figure,
    "kv_use": kv_use.figure,
}


@dataclass
class Shown:
    """A comparison and what is shown beside it.

    workload: name of what ran. environment: see `core.measure.compare.environment`. source: "recorded" or "live". equivalence: by switch,
    "honest" and "leak": `Equivalence.to_json()` and its sentence `says`.
    """

    comparison: Comparison
    workload: str
    environment: dict[str, Any]
    source: str = "live"
    title: str = ""
    shows: str = ""
    created: str = ""
    cost: CostCurve | None = None
    equivalence: dict[str, dict] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        """What the JSON download holds: all that was measured, no pictures."""
        return {
            "workload": self.workload,
            "created": self.created,
            "source": self.source,
            "environment": self.environment,
            **self.comparison.to_json(),
            **({"cost_curve": self.cost.to_json()} if self.cost else {}),
        }


# -- the table -----------------------------------------------------------------------------------------------------------


def _share(value: float | None) -> str:
    return findings.percent(value)


def _number(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and (value >= 100 or float(value).is_integer()) else f"{value:,.3g}"


COLUMNS: tuple[tuple[str, str, tuple[str, ...], Callable[[Any], str]], ...] = (
    # heading, metric, where in the metrics, how it is written
    ("wall time", "wall_s", (), findings.seconds),
    ("min to max", "wall_s", (), str),
    ("as fast", "wall_s", (), str),
    ("steps", "steps", ("steps",), _number),
    ("output tok/s", "output_tok_s", ("output_tok_s",), _number),
    ("TTFT p50", "ttft_s", ("ttft_s", "p50"), findings.seconds),
    ("TTFT p99", "ttft_s", ("ttft_s", "p99"), findings.seconds),
    ("ITL p50", "itl_s", ("itl_s", "p50"), findings.seconds),
    ("ITL p99", "itl_s", ("itl_s", "p99"), findings.seconds),
    ("TPOT p50", "tpot_s", ("tpot_s", "p50"), findings.seconds),
    ("E2E p50", "e2e_s", ("e2e_s", "p50"), findings.seconds),
    ("padding waste", "padding_waste", ("padding_waste",), _share),
    ("lane occupancy", "lane_occupancy", ("lane_occupancy",), _share),
    ("KV use", "kv_use", ("kv_use",), _share),
    ("recomputed", "tokens_recomputed", ("tokens_recomputed",), _number),
)


def table(comparison: Comparison) -> dict[str, Any]:
    """`{"columns": [{"title", "definition"}], "rows": [[contender, cell, …]]}`, every cell a text."""
    entries = comparison.to_json()["policies"]
    rows = []
    for name in comparison.names:
        wall, ratio, numbers = entries[name]["wall_s"], entries[name]["ratio_to_baseline"], entries[name]["metrics"]
        special = {
            "wall time": findings.seconds(wall["median"]),
            "min to max": f"{findings.seconds(wall['min'])} to {findings.seconds(wall['max'])}",
            "as fast": f"{ratio['median']:.2f}×",
        }
        rows.append([name, *(special.get(title) or _cell(numbers, keys, write) for title, _, keys, write in COLUMNS)])
    base = comparison.baseline
    columns = [
        {
            "title": "contender",
            "definition": "Who served the requests: a batching policy of this engine, or something else on the same model.",
        }
    ]
    for title, metric, _, _ in COLUMNS:
        definition = DEFINITIONS[metric]
        if title == "min to max":
            definition = "The fastest and the slowest of the runs."
        elif title == "as fast":
            definition = f"Wall time of {base} ÷ wall time of this one, within each round; the median of the rounds."
        columns.append({"title": title, "definition": definition})
    return {"columns": columns, "rows": rows}


def csv_text(comparison: Comparison) -> str:
    """One line a contender, plain numbers: wall times, ratios and every metric, nested ones as `ttft_s.p50`."""
    entries = comparison.to_json()["policies"]
    lines = []
    for name in comparison.names:
        wall, ratio = entries[name]["wall_s"], entries[name]["ratio_to_baseline"]
        measured = {f"wall_s.{k}": wall[k] for k in ("median", "min", "max")} | {"ratio_to_baseline": ratio["median"]}
        lines.append(
            {"contender": name, **measured, **_flat({k: v for k, v in entries[name]["metrics"].items() if k != "wall_s"})}
        )
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for one in lines for key in one)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _cell(numbers: Any, keys: tuple[str, ...], write: Callable[[Any], str]) -> str:
    for key in keys:
        numbers = numbers.get(key) if isinstance(numbers, Mapping) else None
    return NOT_OBSERVABLE if numbers is None else write(numbers)


def _flat(numbers: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat


# -- the document --------------------------------------------------------------------------------------------------------


def document(shown: Shown) -> dict[str, Any]:
    """All that the page needs, without a server behind it."""
    comparison = shown.comparison
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "name": shown.workload,
        "title": shown.title or shown.workload,
        "shows": shown.shows,
        "source": shown.source,
        "created": shown.created,
        "names": comparison.names,
        "hues": {name: hue_of(name, comparison.names) for name in comparison.names},
        "about": {name: POLICIES[name].shows if name in POLICIES else BASELINES.get(name, "") for name in comparison.names},
        "walls": comparison.walls,
        "says": {
            "headline": findings.total_time(comparison),
            "outputs": findings.outputs(comparison),
            "warnings": comparison.warnings + busy(shown.environment),
            "method": method(comparison),
            "where": where(shown.environment),
            "notes": notes(comparison),
        },
        "figures": _figures(shown),
        "table": table(comparison),
        "csv": csv_text(comparison),
        "data": shown.data,
        "runs": {name: race_replay(run.trace) for name, run in comparison.runs.items() if run.trace is not None},
        "equivalence": {switch: lettered(found) for switch, found in shown.equivalence.items()},
    }


def lettered(found: dict) -> dict:
    """An equivalence (`Equivalence.to_json`) whose requests have the letters that the page gives them."""
    return {**found, "requests": [{**r, "letter": letter(i)} for i, r in enumerate(found.get("requests", ()))]}


def race_replay(trace: Trace) -> dict[str, Any]:
    """A run without its texts and sentences: what lanes are drawn from."""
    return {
        "header": public_header(trace.header),
        "complete": trace.complete,
        "letters": letters(trace),
        "events": [plain_event(e) for e in trace.events],
    }


def method(comparison: Comparison) -> str:
    count = len(comparison.walls[comparison.baseline])
    runs = (
        "one run of each"
        if count == 1
        else f"{count} runs of each, in rotated order; the race shows the run of median time, from its first step on"
    )
    greedy = " Everybody chooses greedily, as the baselines do." if any(name not in POLICIES for name in comparison.names) else ""
    return f"After a warm-up, {runs}.{greedy}"


def where(environment: Mapping[str, Any]) -> str:
    """The machine, in one line."""
    versions = environment.get("versions", {})
    return (
        f"{environment['hardware']} ({environment['device']}), {_counted(environment['cpus'], 'CPU')}, {_counted(environment['threads'], 'thread')}, "
        f"{environment['dtype']}, {environment['model']['name']}, torch {versions.get('torch', '?')}"
    )


def notes(comparison: Comparison) -> list[str]:
    """What the engines had to say about the machine, each sentence once."""
    headers = [run.trace.header for run in comparison.runs.values() if run.trace is not None]
    return list(dict.fromkeys(note for header in headers for note in header.get("notes") or ()))


def busy(environment: Mapping[str, Any]) -> list[str]:
    """A warning where the machine had more to do than this."""
    load, cpus = environment.get("load_average"), environment.get("cpus")
    if not load or not cpus or load <= cpus:
        return []
    return [f"The machine was busy (load {load:g} on {_counted(cpus, 'CPU')}): these times are not those of a quiet one."]


def _counted(number: int | None, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _figures(shown: Shown) -> list[dict[str, Any]]:
    made = []
    for name, make in FIGURES.items():
        try:
            made.append((name, make(shown.comparison)))
        except InflightError:  # nothing on record to draw it from
            continue
    if shown.cost is not None:
        made.append(("cost_curve", cost_curve.figure(shown.cost)))
    return [
        {
            "name": name,
            "finding": f.layout.meta["finding"],
            "definitions": f.layout.meta["definitions"],
            "figure": json.loads(f.to_json()),
        }
        for name, f in made
    ]


# -- on disk -------------------------------------------------------------------------------------------------------------


def save(shown: Shown, folder: Path) -> Path:
    """Write a comparison with its traces; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for index, (name, run) in enumerate(shown.comparison.runs.items()):
        if run.trace is not None:
            names[name] = f"{index}-{''.join(c if c.isalnum() or c == '-' else '_' for c in name)}.jsonl"
            run.trace.save(folder / names[name])
    for old in set(folder.glob("*.jsonl")) - {folder / file for file in names.values()}:
        old.unlink()
    plain = {
        "schema": SCHEMA,
        "title": shown.title,
        "shows": shown.shows,
        "names": shown.comparison.names,
        "traces": names,
        **shown.data,
        "equivalence": shown.equivalence,
    }
    (folder / "comparison.json").write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return folder


def load(folder: Path) -> Shown:
    """Inverse of `save`; raises InflightError for a folder that is not one."""
    try:
        plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            raise InflightError(
                f"The comparison {folder.name} has schema {plain['schema']!r}; this version reads schema {SCHEMA}."
            )
        names, entries = plain["names"], plain["policies"]
        traces = {name: Trace.load(folder / file) for name, file in plain["traces"].items()}
        runs = {name: Run.of(traces[name]) if name in traces else Run({}, entries[name]["metrics"]) for name in names}
        comparison = Comparison(
            names,
            {name: entries[name]["wall_s"]["runs"] for name in names},
            runs,
            {name: entries[name]["metrics"] for name in names},
            plain["differences"],
            {name: entries[name].get("about", {}) for name in names},
        )
        cost = CostCurve.from_json(plain["cost_curve"]) if "cost_curve" in plain else None
        return Shown(
            comparison, plain["workload"], plain["environment"], plain["source"], plain["title"], plain["shows"], plain["created"], cost,
            plain["equivalence"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InflightError(f"The comparison {folder.name} cannot be read: {type(error).__name__}.") from None


def recorded(folder: Path = RECORDED) -> list[dict[str, str]]:
    """The comparisons on record, `gpt2-six` first: what the page lists of them, without loading a run."""
    entries = []
    for path in sorted(folder.glob("*/comparison.json"), key=lambda p: (p.parent.name != "gpt2-six", p.parent.name)):
        plain = json.loads(path.read_text(encoding="utf-8"))
        entries.append(
            {"name": path.parent.name, "title": plain["title"], "shows": plain["shows"], "recorded": plain["created"][:10]}
        )
    return entries
