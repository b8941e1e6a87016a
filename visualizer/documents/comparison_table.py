"""A comparison as a table for people and as CSV for programs: a line a contender. Knows no page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from core.measure.compare import Comparison
from core.measure.metrics import DEFINITIONS
from visualizer.words import findings
from visualizer.words.language import t

NOT_OBSERVABLE = "not observable"


def _share(value: float | None) -> str:
    return findings.percent(value)


def _number(value: float | None) -> str:
    return t(f"{value:,.0f}" if value is not None and (value >= 100 or float(value).is_integer()) else f"{value:,.3g}")


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
            "min to max": t("{low} to {high}", low=findings.seconds(wall["min"]), high=findings.seconds(wall["max"])),
            "as fast": t(f"{ratio['median']:.2f}×"),
        }
        rows.append([name, *(special.get(title) or _cell(numbers, keys, write) for title, _, keys, write in COLUMNS)])
    base = comparison.baseline
    columns = [
        {
            "title": t("contender"),
            "definition": t("Who served the requests: a batching policy of this engine, or something else on the same model."),
        }
    ]
    for title, metric, _, _ in COLUMNS:
        definition = t(DEFINITIONS[metric])
        if title == "min to max":
            definition = t("The fastest and the slowest of the runs.")
        elif title == "as fast":
            definition = t(
                "Wall time of {base} ÷ wall time of this one, within each round; the median of the rounds, which is not the quotient of the two median times.",
                base=base,
            )
        columns.append({"title": t(title), "definition": definition})
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
    return t(NOT_OBSERVABLE) if numbers is None else write(numbers)


def _flat(numbers: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat
