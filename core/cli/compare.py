"""`compare`: times the same requests under two or more policies."""

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.given import refuse_idle
from core.cli.options import (
    LOADED,
    MORE_POLICIES,
    Chat,
    DeviceOptions,
    Html,
    Json,
    Model,
    PresetName,
    Simulate,
    WorkloadFile,
    asked_for,
    check_policy,
    engine_for,
    refuse_idle_limits,
    require_page,
    simulated_engine,
    with_options,
)
from core.cli.output import (
    INTERRUPTED,
    ProgressReporter,
    finish,
    number,
    percent,
    print_line,
    print_note,
    saved,
    seconds,
    table,
)
from core.cli.report import cost_sentences, measured_on
from core.errors import InflightError
from core.files import require_writable
from core.measure.baselines import NAMES as BASELINES
from core.measure.baselines import baseline_requests
from core.measure.baselines import contender as baseline_contender
from core.measure.compare import Comparison, engine_contender, environment, greedily
from core.measure.compare import compare as timed
from core.measure.rounds import Progress
from core.trace.header import SIMULATED
from core.trace.messages import english
from core.workload.workload import Workload


@with_options
def compare(
    preset: PresetName = None,
    workload: WorkloadFile = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{MORE_POLICIES}, the first one is the baseline.",
            show_default="static, continuous",
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                f"Compare with {', '.join(BASELINES)} too; then all decode greedily, without stop"
                " strings."
            )
        ),
    ] = None,
    model: Model = None,
    chat: Chat = False,
    simulate: Simulate = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed runs of each policy, after one to warm up.")
    ] = 5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Save the comparison here as JSON.")
    ] = None,
    html: Html = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Save the trace of each policy's run nearest to its median time here."),
    ] = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
) -> None:
    """Time the same requests under each policy in turn, and compare the outputs token by token.

    After a warm-up, every round runs all policies in rotating order; ratios are taken within a
    round. A simulation is the same each time, so each policy then runs once. Options override the
    preset. Ctrl-C keeps the rounds so far.
    """
    require_page(html)
    policies = policy or ["static", "continuous"]
    for name in policies:
        check_policy(name)
    if len(set(policies)) < len(policies):
        raise InflightError("Each policy can be compared once.")
    if traces is not None and not traces.is_dir():
        raise InflightError(f"There is no folder {traces}.")
    kept = {name: traces / f"{name}.jsonl" for name in policies} if traces else {}
    source = Path(simulate) if simulate else None
    read = [path for path in (workload, source) if path is not None]
    require_writable(out, html, *kept.values(), read=read)
    outside = list(dict.fromkeys(baseline or []))
    for name in outside:
        if name not in BASELINES:
            raise InflightError(
                f"There is no baseline {name!r}; the baselines are {', '.join(BASELINES)}."
            )
    if simulate is not None:
        refuse_idle(
            "with --simulate, which loads no model and is the same each time", "repeats", *LOADED
        )
    if simulate is not None and outside:
        raise InflightError(
            "A baseline runs a model, which a simulation does not: give --baseline or --simulate."
        )
    if simulate is not None and html:
        raise InflightError(
            "A simulated comparison has no page; --traces saves its runs, and `show --html` makes a"
            " page of each."
        )
    asked = asked_for(preset, workload, model, limits, device_options, chat)
    configs = [asked.config(name) for name in policies]
    if not outside:
        refuse_idle_limits(*configs)
    if simulate is not None:
        one = simulated_engine(simulate, configs[0], asked)
        simulated = [one, *map(one.under, configs[1:])]
        with ProgressReporter("runs", len(simulated)) as bar:
            result = timed(
                [engine_contender(engine, asked.workload) for engine in simulated],
                1,
                warmup=0,
                on_run=lambda progress: bar.update(progress.index, progress.contender),
            )
        data = _data(asked.workload, environment(simulated[0].trace.header), result, 1)
        data |= {
            "cost": simulated[0].cost.to_json(),
            "beyond": {engine.config.policy.name: engine.beyond for engine in simulated},
        }
        finish(data, lambda _: _print_simulated(result, data), json, out, _keep(result, kept, None))
        return
    first = engine_for(asked.model, configs[0], asked.device_options)
    engines = [first, *map(first.under, configs[1:])]
    requests = greedily(asked.workload) if outside else asked.workload
    contenders = [engine_contender(engine, requests) for engine in engines]
    if outside:
        ends, limits_of_all = first.adapter.eos_token_ids, configs[-1]
        work = baseline_requests(requests, first.tokenizer, ends)
        lanes, budget = limits_of_all.max_num_seqs, limits_of_all.max_num_batched_tokens
        contenders += [
            baseline_contender(name, first.adapter.model, work, lanes, budget) for name in outside
        ]
    where = environment(first.trace.header)
    with ProgressReporter("runs", (repeats + 1) * len(contenders)) as bar:

        def on_run(progress: Progress) -> None:
            bar.update(progress.index, f"{progress.turn}: {progress.contender}")

        result = timed(contenders, repeats, on_run=on_run, until=KeyboardInterrupt)
    data = _data(asked.workload, where, result, repeats)
    finish(data, lambda _: _print_comparison(result, data), json, out, _keep(result, kept, html))
    if not data["complete"]:
        print_note(
            f"Interrupted after {data['repeats']} of {repeats} rounds: these are the rounds that"
            " are whole."
        )
        raise typer.Exit(INTERRUPTED)


def _data(
    workload: Workload, where: dict[str, Any], result: Comparison, repeats: int
) -> dict[str, Any]:
    """The result as plain data. repeats: how many rounds were planned."""
    found = result.to_json()
    return {
        "schema": "compare/1",
        "workload": workload.name,
        "source": SIMULATED if result.is_simulated else "measured",
        "complete": found["repeats"] == repeats,
        "environment": where,
        **found,
    }


def _keep(result: Comparison, traces: dict[str, Path], html: Path | None) -> list[InflightError]:
    """Save the runs, by policy, and the page; returns the errors."""
    kept = [(result.runs[name].trace, path) for name, path in traces.items()]
    return [
        error for trace, path in kept if trace is not None for error in saved(trace.save, path)
    ] + saved(result.save_html, html)


def _print_simulated(result: Comparison, data: dict[str, Any]) -> None:
    """Print one row per policy, and the assumptions behind its times."""
    print_line("SIMULATED: a cost model stands in for the forward pass.")
    columns = ("policy", "time", f"faster than {result.baseline}", *_METRICS)
    rows = [
        (
            name,
            seconds(entry["wall_s"]["median"]),
            f"{entry['ratio_to_baseline']['median']:.2f}×",
            *_metrics(entry["metrics"]),
        )
        for name, entry in data["policies"].items()
    ]
    table(columns, rows, right=columns[1:])
    print_line()
    traces = [run.trace for run in result.runs.values() if run.trace is not None]
    notes = dict.fromkeys(note for trace in traces for note in trace.header.notes)
    for text in (*cost_sentences(data["cost"]), *notes):
        print_line(text)
    for name, beyond in data["beyond"].items():
        if beyond:
            print_line(f"{name}: {beyond}")


_METRICS = ("steps", "tok/s", "TTFT p50", "ITL p50", "ITL p99", "padding waste", "lane occupancy")


def _metrics(numbers: dict[str, Any]) -> list[str]:
    """The cells of `_METRICS`; a baseline lacks some."""
    times = (("ttft_s", "p50"), ("itl_s", "p50"), ("itl_s", "p99"))
    return [
        *(number(numbers.get(name)) for name in ("steps", "output_tok_s")),
        *(seconds((numbers.get(name) or {}).get(share)) for name, share in times),
        *(percent(numbers.get(name)) for name in ("padding_waste", "lane_occupancy")),
    ]


def _print_comparison(result: Comparison, data: dict[str, Any]) -> None:
    """Print a row per contender, the findings on outputs and spread, and the environment."""
    columns = (
        "policy",
        "wall time",
        "min to max",
        f"faster than {result.baseline}",
        "in rounds",
        "run by run",
        *_METRICS,
    )
    rows = []
    for name, entry in data["policies"].items():
        wall, ratio, verdict = entry["wall_s"], entry["ratio_to_baseline"], entry["verdict"]
        rows.append(
            (
                name,
                seconds(wall["median"]),
                f"{seconds(wall['min'])} to {seconds(wall['max'])}",
                f"{ratio['median']:.2f}×",
                f"{verdict['faster']} of {verdict['rounds']}",
                f"{ratio['min']:.2f} to {ratio['max']:.2f}",
                *_metrics(entry["metrics"]),
            )
        )
    table(columns, rows, right=columns[1:])
    print_line()
    print_line(
        english(f"Medians of {data['repeats']} [run|runs] each, after a warm-up, in rotated order;")
        + " the ratio is the median of the rounds' own ratios."
    )
    apart = ", ".join(
        f"{name} {seconds(a['setup_s'])} and {seconds(a['teardown_s'])}"
        for name, a in result.apart.items()
    )
    print_line(f"Setup and teardown, not in these times: {apart}.")
    print_line(_outputs_sentence(result))
    if len(result.names) > 2:
        print_line(_fastest_sentence(result))
    for warning in result.warnings:
        print_line(f"Warning: {warning}")
    print_line(measured_on(data["environment"]))


def _fastest_sentence(result: Comparison) -> str:
    """Which contender was fastest, and the others for which the rounds do not show it."""
    fastest = result.fastest
    others = [name for name in result.names if name != fastest]
    close = ", ".join(name for name in others if result.verdict(fastest, name).is_open)
    but = f" by its median, but the rounds do not decide between it and {close}" if close else ""
    return f"The fastest: {fastest}{but}."


def _outputs_sentence(result: Comparison) -> str:
    """That outputs are identical, or the first difference and its margin."""
    if result.outputs_identical:
        stayed = ", as long as the clients stayed" if result.is_cut else ""
        return f"Outputs: identical, token for token{stayed}."
    first = result.differences[0]
    margin = (
        "" if first["margin"] is None else f", where the best logit led by {first['margin']:.3g}"
    )
    others = (
        f" ({len(result.differences)} differences in all)" if len(result.differences) > 1 else ""
    )
    return (
        f"Outputs differ: {first['policy']} departs from {result.baseline} in request"
        f" {first['request']} at token {first['position']}{margin}{others}."
    )
