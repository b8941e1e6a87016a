"""How reports read in a terminal: contenders, ratios and limits, each bar met or missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.cli.output import line, seconds, table


def print_benchmarks(data: Mapping[str, Any]) -> None:
    """Every report of a result, then where it was measured."""
    for report in data["benchmarks"]:
        print_report(report)
        line()
    where = data["environment"]
    line(
        f"Medians of {data['repeats']} rounds; ratios round by round, so that their median is not the quotient of two medians. {where['hardware']}, {where['cpus']} CPUs, "
        f"{where['threads']} threads; {versions(where['versions'])}."
    )


def print_report(report: Mapping[str, Any]) -> None:
    """A `core.bench.report.Report` as JSON."""
    line(report["title"])
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
        line(
            f"  {ratio['faster']} against {ratio['than']}: {ratio['median']:.2f}×{spread}"
            + _verdict(ratio["met"], f"at least {ratio['at_least']}×")
        )
    for limit in report["limits"]:
        bars = [
            f"{word} {limit[key]:g}" for word, key in (("at least", "at_least"), ("at most", "at_most")) if limit[key] is not None
        ]
        line(f"  {limit['what']}: {limit['value']:g} {limit['unit']}" + _verdict(limit["met"], " and ".join(bars)))
    if report["outputs_identical"] is not None:
        line(f"  outputs: {'identical, token for token' if report['outputs_identical'] else 'THEY DIFFER'}")
    if report["load_average"]:
        line(f"  load average {report['load_average'][0]} before, {report['load_average'][1]} after")


def versions(found: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items() if version is not None)


def _verdict(met: bool | None, bar: str) -> str:
    return "" if met is None else f"; the bar is {bar}: {'met' if met else 'MISSED'}"
