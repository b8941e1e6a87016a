"""How the report of a benchmark reads in a terminal: contenders, ratios and limits, each bar met or
missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.cli.output import print_line, seconds, table
from measure.bench.floor import FLOOR


def print_report(report: Mapping[str, Any]) -> None:
    """A `measure.bench.report.Report` as JSON."""
    print_line(report["title"])
    if report["seconds"]:
        rows = [
            (
                f"  {name}",
                seconds(t["median"]),
                f"{seconds(t['min'])} to {seconds(t['max'])}",
                *map(seconds, (t.get("setup_s"), t.get("teardown_s"))),
            )
            for name, t in report["seconds"].items()
        ]
        columns = ("  contender", "median", "min to max", "setup", "teardown")
        table(columns, rows, right=columns[1:])
    for ratio in report["ratios"]:
        spread = f" ({ratio['min']:.2f} to {ratio['max']:.2f})" if len(ratio["runs"]) > 1 else ""
        of_floor = ratio["than"] == FLOOR
        sign, found = ("", "share of the floor") if of_floor else ("×", f"against {ratio['than']}")
        print_line(
            f"  {ratio['faster']} {found}: {ratio['median']:.2f}{sign}{spread}"
            + _verdict(ratio["met"], f"at least {ratio['at_least']}{sign}")
        )
        if of_floor:
            parts = report["about"][FLOOR]
            print_line(
                f"  {FLOOR}: matrix products {seconds(parts['products_s'])}, reading the KV cache"
                f" {seconds(parts['cache_s'])} ({parts['cache_bytes'] / 1e9:.2f} GB at"
                f" {parts['bytes_per_s'] / 1e9:.1f} GB/s)"
            )
    for limit in report["limits"]:
        bars = [
            f"{word} {limit[key]:g}"
            for word, key in (("at least", "at_least"), ("at most", "at_most"))
            if limit[key] is not None
        ]
        print_line(
            f"  {limit['what']}: {limit['value']:g} {limit['unit']}"
            + _verdict(limit["met"], " and ".join(bars))
        )
    if report["outputs_identical"] is not None:
        same = "".join(
            f"; {name} wrote {same} of {whole} as the first"
            for name, (same, whole) in report["outputs_same"].items()
        )
        print_line(
            "  outputs:"
            f" {'identical, token for token' if report['outputs_identical'] else 'THEY DIFFER'}"
            f"{same}"
        )
    if report["load_average"]:
        print_line(
            f"  load average {report['load_average'][0]} before, {report['load_average'][1]} after"
        )


def _verdict(met: bool | None, bar: str) -> str:
    return "" if met is None else f"; the bar is {bar}: {'met' if met else 'MISSED'}"
