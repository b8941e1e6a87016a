"""A comparison as the page shows it, one JSON document: walls, sentences, figures, the table, and the runs that race.

    {"schema", "kind": "comparison", "name", "title", "source", "names", "race", "hues", "walls", "says", "figures", "table", "csv", "data",
     "runs": {contender: its replay}, "cost", "equivalence", "told": {language: what stands for "says", "figures", "table" and in each of "runs"}}

`document` makes it from a `Comparison`. Knows no engine and no page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.config import POLICIES
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.cost_curve import CostCurve
from core.trace.phrases import letter
from visualizer.charts import cost_curve, difference, kv_use, lane_steps, latency, load, pressure, throughput, total_time
from visualizer.charts.contenders import hues
from visualizer.documents.comparison_table import csv_text, table
from visualizer.documents.replay import replay, spoken
from visualizer.words import engines, findings, verdicts
from visualizer.words.language import elsewhere, t

SCHEMA = 1
BASELINES = {
    "generate-waves": "model.generate in left-padded waves: the article's static batching",
    "generate-serial": "model.generate, one request at a time",
    "transformers-continuous": "the continuous batching of transformers",
    "transformers": "the continuous batching of transformers, on the same CPU",
    "vLLM": "vLLM in a process of its own, on the same CPU",
}

FIGURES = {
    "total_time": total_time,
    "difference": difference,
    "throughput": throughput,
    "latency": latency,
    "lane_steps": lane_steps,
    "kv_use": kv_use,
    "pressure": pressure,
}
"""Pictures of a comparison: a module each, with `TITLE` and `figure(comparison)`."""


@dataclass
class Shown:
    """A comparison and what is shown beside it.

    workload: name of what ran. load: of a sweep of rates, as `core.measure.load.sweep_load` tells it. environment: see `core.measure.environment`. source: "recorded" or "live". equivalence: by switch,
    "honest" and "leak": `Equivalence.to_json()`. group: under which heading it is listed, if under any.
    """

    comparison: Comparison
    workload: str
    environment: dict[str, Any]
    source: str = "live"
    title: str = ""
    shows: str = ""
    created: str = ""
    cost: CostCurve | None = None
    equivalence: dict[str, dict[str, Any]] = field(default_factory=dict)
    load: dict[str, Any] | None = None
    group: str = ""

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
            **({"load": self.load} if self.load else {}),
        }


def document(shown: Shown) -> dict[str, Any]:
    """All that the page needs, without a server behind it."""
    comparison = shown.comparison
    traces = {name: run.trace for name, run in comparison.runs.items() if run.trace is not None}
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "name": shown.workload,
        "title": shown.title or shown.workload,
        "shows": shown.shows,
        "source": shown.source,
        "created": shown.created,
        "names": comparison.names,
        "hues": hues(comparison.names),
        "about": {name: about(name, comparison) for name in comparison.names},
        "race": comparison.names if engines.others(comparison) else verdicts.racing(comparison),
        "walls": comparison.walls,
        **_said(shown),
        "csv": csv_text(comparison),
        "data": shown.data,
        "runs": {name: replay(trace) for name, trace in traces.items()},
        "equivalence": {switch: lettered(found) for switch, found in shown.equivalence.items()},
        "told": elsewhere(lambda: {**_said(shown), "runs": {name: spoken(trace) for name, trace in traces.items()}}),
    }


def _said(shown: Shown) -> dict[str, Any]:
    """What depends on the language that is spoken."""
    comparison = shown.comparison
    return {
        "says": {
            "headline": engines.decisions(comparison) or verdicts.total_time(comparison),
            "outputs": findings.outputs(comparison),
            "sure": verdicts.sure(comparison, shown.environment),
            "method": verdicts.method(comparison),
            "where": where(shown.environment),
            "notes": [*map(t, notes(comparison)), *engines.caveats(comparison)],
        },
        "figures": _figures(shown),
        "table": table(comparison),
    }


def lettered(found: dict[str, Any]) -> dict[str, Any]:
    """An equivalence (`Equivalence.to_json`) with its sentence, and with requests that have the letters that the page gives them."""
    return {
        **found,
        "says": findings.equivalence(found),
        "told": elsewhere(lambda: {"says": findings.equivalence(found)}),
        "requests": [{**r, "letter": letter(i)} for i, r in enumerate(found["requests"])],
    }


def about(name: str, comparison: Comparison) -> str:
    """A contender in one line."""
    run = comparison.runs.get(name)
    if name in BASELINES and (run is None or run.trace is None or run.trace.header.engine):
        return BASELINES[name]  # another engine, which may be called as the policy of ours that follows it
    policy = comparison.about.get(name, {}).get("policy", name)
    return POLICIES[policy].shows if policy in POLICIES else ""


def where(environment: Mapping[str, Any]) -> str:
    """The machine, in one line."""
    versions = environment.get("versions", {})
    return (
        f"{environment['hardware']} ({environment['device']}), {t(_counted(environment['cpus'], 'CPU'))}, {t(_counted(environment['threads'], 'thread'))}, "
        f"{environment['dtype']}, {environment['model']['name']}, torch {versions.get('torch', '?')}"
    )


def notes(comparison: Comparison) -> list[str]:
    """The engines' notes about the machine, each once."""
    headers = [run.trace.header for run in comparison.runs.values() if run.trace is not None]
    return list(dict.fromkeys(note for header in headers for note in header.notes))


def _counted(number: int | None, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _figures(shown: Shown) -> list[dict[str, Any]]:
    made = []
    if shown.load is not None:
        made.append(("load", load.TITLE, load.figure(shown.load)))
    for name, module in FIGURES.items():
        try:
            made.append((name, module.TITLE, module.figure(shown.comparison)))
        except InflightError:  # nothing on record to draw it from
            continue
    if shown.cost is not None:
        made.append(("cost_curve", cost_curve.TITLE, cost_curve.figure(shown.cost)))
    return [
        {
            "name": name,
            "title": t(title),
            "finding": f.layout.meta["finding"],
            "definitions": f.layout.meta["definitions"],
            "figure": json.loads(f.to_json()),
        }
        for name, title, f in made
    ]
