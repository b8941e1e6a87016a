"""`compare`: times the same requests under two or more policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import (
    DeviceOptions,
    Json,
    Model,
    PresetName,
    WorkloadFile,
    check_policy,
    engine_for,
    plan,
    require_writable,
    with_options,
)
from core.cli.output import ProgressReporter, finish, number, percent, print_line, seconds, table
from core.cli.report import measured_on
from core.errors import InflightError
from core.measure.baselines import NAMES as BASELINES
from core.measure.baselines import baseline_requests
from core.measure.baselines import contender as baseline_contender
from core.measure.compare import Comparison, engine_contender, environment, greedily
from core.measure.compare import compare as timed
from core.measure.rounds import Progress
from core.runner.engine import Engine


@with_options
def compare(
    preset: PresetName = None,
    workload: WorkloadFile = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy; repeatable, the first one is the baseline.", show_default="static, continuous"),
    ] = None,
    baseline: Annotated[
        list[str] | None, typer.Option(help=f"Compare with {', '.join(BASELINES)} too; then all decode greedily, to full length.")
    ] = None,
    model: Model = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs of each policy, after one to warm up.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the comparison here as JSON.")] = None,
    traces: Annotated[Path | None, typer.Option(help="Save the trace of each policy's median run in this folder.")] = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
) -> None:
    """Time the same requests under each policy in turn, and compare the outputs token by token.

    After a warm-up, every round runs all policies in rotating order; ratios are taken within a round. Options override the preset.
    """
    policies = policy or ["static", "continuous"]
    for name in policies:
        check_policy(name)
    if len(set(policies)) < len(policies):
        raise InflightError("Each policy can be compared once.")
    outside = list(dict.fromkeys(baseline or []))
    for name in outside:
        if name not in BASELINES:
            raise InflightError(f"There is no baseline {name!r}; the baselines are {', '.join(BASELINES)}.")
    asked = plan(preset, workload, model, limits, device_options)
    configs = [asked.config(name) for name in policies]
    require_writable(out)
    if traces is not None and not traces.is_dir():
        raise InflightError(f"There is no folder {traces}.")
    first = engine_for(asked.model, configs[0], asked.device_options)
    engines = [first, *(Engine(first.adapter, first.tokenizer, config) for config in configs[1:])]
    requests = greedily(asked.workload) if outside else asked.workload
    contenders = [engine_contender(engine, requests) for engine in engines]
    if outside:
        work, limits_of_all = baseline_requests(requests, first.tokenizer), configs[-1]
        lanes, budget = limits_of_all.max_num_seqs, limits_of_all.max_num_batched_tokens
        contenders += [baseline_contender(name, first.adapter.model, work, lanes, budget) for name in outside]
    where = environment(first.trace.header)
    with ProgressReporter("runs", (repeats + 1) * len(contenders)) as bar:

        def on_run(progress: Progress) -> None:
            bar.update(progress.index, f"{progress.turn}: {progress.contender}")

        result = timed(contenders, repeats, on_run=on_run)
    data = {"workload": asked.workload.name, "environment": where, **result.to_json()}
    if traces is not None:
        for name, run in result.runs.items():
            if run.trace is not None:
                run.trace.save(traces / f"{name}.jsonl")
    finish(data, lambda _: _print_comparison(result, data), json, out)


def _print_comparison(result: Comparison, data: dict[str, Any]) -> None:
    """One row per contender, then the findings on outputs and spread, and where it was measured."""
    columns = ("policy", "wall time", "min to max", f"faster than {result.baseline}", "in rounds", "run by run", "steps", "tok/s", "TTFT p50", "ITL p50", "ITL p99", "padding waste", "lane occupancy")  # fmt: skip
    rows = []
    for name in result.names:
        entry = data["policies"][name]
        wall, ratio, numbers = entry["wall_s"], entry["ratio_to_baseline"], entry["metrics"]
        rows.append(
            (
                name,
                seconds(wall["median"]),
                f"{seconds(wall['min'])} to {seconds(wall['max'])}",
                f"{ratio['median']:.2f}×",
                f"{entry['verdict']['faster']} of {entry['verdict']['rounds']}",
                f"{ratio['min']:.2f} to {ratio['max']:.2f}",
                *(number(_get(numbers, key)) for key in ("steps", "output_tok_s")),
                *(seconds(_get(numbers, *keys)) for keys in (("ttft_s", "p50"), ("itl_s", "p50"), ("itl_s", "p99"))),
                *(percent(_get(numbers, key)) for key in ("padding_waste", "lane_occupancy")),
            )
        )
    table(columns, rows, right=columns[1:])
    print_line()
    print_line(
        f"Medians of {data['repeats']} runs each, after a warm-up, in rotated order; the ratio is the median of the rounds' own ratios."
    )
    apart = ", ".join(f"{name} {seconds(a['setup_s'])} and {seconds(a['teardown_s'])}" for name, a in result.apart.items())
    print_line(f"Setup and teardown, not in these times: {apart}.")
    print_line(_outputs_sentence(result))
    if len(result.names) > 2:
        print_line(f"The fastest: {result.fastest}.")
    for warning in result.warnings:
        print_line(f"Warning: {warning}")
    print_line(measured_on(data["environment"]))


def _outputs_sentence(result: Comparison) -> str:
    """Identical, or the first difference and its margin."""
    if result.outputs_identical:
        return "Outputs: identical, token for token."
    first = result.differences[0]
    margin = "" if first["margin"] is None else f", where the best logit led by {first['margin']:.3g}"
    others = f" ({len(result.differences)} differences in all)" if len(result.differences) > 1 else ""
    return (
        f"Outputs differ: {first['policy']} departs from {result.baseline} in request {first['request']} at token {first['position']}"
        f"{margin}{others}."
    )


def _get(numbers: Any, *keys: str) -> Any:
    for key in keys:
        numbers = numbers.get(key) if isinstance(numbers, dict) else None
    return numbers
