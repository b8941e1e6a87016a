"""The result of the GPU benchmark in a terminal: what each part found, then every bar met or missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.bench.gpu.others import label
from core.cli.bench_report import print_report, versions
from core.cli.output import line, number, percent, seconds, table
from core.measure.baselines.transformers_continuous import Variant


def print_gpu(data: Mapping[str, Any]) -> None:
    """See `core.bench.gpu` for the data."""
    if data["quick"]:
        line("Tiny shapes: this shows that everything runs, no number means anything.")
    for name, part in data["parts"].items():
        if part["status"] != "done":
            line(f"{part['title']}: {part['status']}, {part['why']}.")
            continue
        line(f"{part['title']}, in {part['took_s']:.0f} s")
        _print_result(name, part["result"], data["key"]["scale"])
    line()
    print_report(data["report"])
    line()
    key = data["key"]
    line(f"{key['name']} ({key['device']}), bfloat16, random weights; {versions(key['versions'])}.")


def _print_result(name: str, result: Mapping[str, Any], scale: Mapping[str, Any]) -> None:
    if name == "accuracy":
        _accuracy(result)
    elif name == scale["main"]["name"]:
        _whole(result)
    elif name == "transformers-continuous":
        _probes(result)
        _baseline(result)
    elif name == "generate-waves":
        _baseline(result)
    elif name == "ablation":
        _ablation(result)
    else:
        _decode(result)


def _accuracy(result: Mapping[str, Any]) -> None:
    logits = result["logits"]
    line(
        f"  float32: {result['greedy']['tokens']} greedy tokens compared; bfloat16: {logits['tokens']} rows of logits of size {logits['logits_rms']:.3g}, "
        f"off by {logits['packed_rms']:.3g} packed and {logits['alone_rms']:.3g} alone"
    )


def _whole(result: Mapping[str, Any]) -> None:
    columns = ("  requests", "output tok/s", "run by run", "idle", "peak memory", "schedule", "prepare", "forward", "sample")
    rows = []
    for run in (result["all"], result["compared"]):
        times = (seconds(run["time_s"][name]) for name in ("schedule", "prepare", "forward", "sample"))
        each = " ".join(number(speed) for speed in run["runs_tok_s"])
        rows.append(
            (f"  {run['workload']['requests']}", _speed(run), each, percent(run["idle"]), _gib(run["peak_bytes"]), *times)
        )
    table(columns, rows, right=columns[1:])


def _probes(result: Mapping[str, Any]) -> None:
    for probe in result["probes"]:
        found = f"{seconds(probe['step_s'])} a step" if probe["step_s"] is not None else f"did not run: {probe['error']}"
        line(f"  {label(_variant(probe))}: {found}")
    for failed in result["failed"]:
        line(f"  {label(_variant(failed))}: failed in the whole run: {failed['error']}")
    line(f"  chosen: {label(_variant(result['chosen']))}")


def _baseline(result: Mapping[str, Any]) -> None:
    line(
        f"  {result['workload']['requests']} requests: {_speed(result)} output tok/s in {seconds(result['seconds'])}, "
        f"{result['steps']} steps, peak memory {_gib(result['peak_bytes'])}"
    )


def _decode(result: Mapping[str, Any]) -> None:
    weights, kv = result["weight_bytes"] / 1e9, result["kv_bytes_per_token"] * result["lanes"] * result["context"] / 1e9
    line(
        f"  a step of {seconds(result['seconds'])} ({result['steps']} timed, idle {percent(result['idle'])}) against {seconds(result['floor_s'])}: "
        f"{weights:.2f} GB of weights and {kv:.2f} GB of cache at the {result['bandwidth_bytes_s'] / 1e12:.2f} TB/s of a copy"
    )


def _ablation(result: Mapping[str, Any]) -> None:
    ran = [row for row in result["rows"] if row["error"] is None]
    columns = ("  switch", "output tok/s", f"of {ran[0]['name']}" if ran else "", "idle")
    line(f"  {result['workload']['requests']} requests, {number(result['workload']['output_tokens'])} new tokens")
    rows = [
        (f"  {row['name']}", _speed(row), percent(row["output_tok_s"] / ran[0]["output_tok_s"]), percent(row["idle"]))
        for row in ran
    ]
    table(columns, rows, right=columns[1:])
    for row in result["rows"]:
        if row["error"] is not None:
            line(f"  {row['name']}: {row['error']}")


def _speed(run: Mapping[str, Any]) -> str:
    return number(run["output_tok_s"]) + (" (cut)" if run["cut"] else "")


def _gib(size: int | None) -> str:
    return "–" if size is None else f"{size / 2**30:.1f} GiB"


def _variant(record: Mapping[str, Any]) -> Variant:
    return Variant(*(record[name] for name in Variant._fields))
