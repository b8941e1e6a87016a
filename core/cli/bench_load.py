"""`bench load`: throughput against latency under load, measured or on a cost model; and long simulated streams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import (
    SLO,
    Burstiness,
    DeviceOptions,
    Json,
    Out,
    Seed,
    Tokens,
    check_policy,
    engine_for,
    parse_slos,
    require_writable,
    with_options,
)
from core.cli.output import ProgressReporter, finish, number, percent, percentile, print_line, print_note, seconds, table
from core.cli.report import fit_error, measured_on
from core.config import DEFAULT_MODEL, EngineConfig
from core.errors import InflightError
from core.measure.compare import environment
from core.measure.load import POINT_SECONDS, Sweep, sweep_load
from core.measure.metrics import SLOs
from core.measure.rounds import load_average
from core.runner.engine import Engine
from core.simulate.cost import cost_named
from core.simulate.engine import SimulatedEngine
from core.simulate.totals import run_stream
from core.workload.arrivals import Lengths, arrivals, request
from core.workload.datasets import read_dataset
from core.workload.request import Request

_SIMULATE = "Simulation"
_DEFAULT = Lengths()
_WINDOW = 20_000  # tokens whose steps a stream keeps; older ones remain in its totals


@with_options
def load(
    rate: Annotated[
        list[str] | None,
        typer.Option(help="Requests per second, repeatable; or auto: fractions of the measured capacity.", show_default="auto"),
    ] = None,
    policy: Annotated[list[str] | None, typer.Option(help="A policy; repeatable.", show_default="static, continuous")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Built-in model, local folder or hub id.")] = DEFAULT_MODEL,
    burstiness: Burstiness = 1.0,
    seed: Seed = 0,
    point_seconds: Annotated[float, typer.Option(help="Seconds per point, at most 20.")] = POINT_SECONDS,
    prompt_tokens: Tokens = _DEFAULT.prompt,
    output_tokens: Tokens = _DEFAULT.output,
    lengths: Annotated[
        Path | None,
        typer.Option(help="Take lengths and arrivals from this file: JSONL of ours or Mooncake's, CSV of Azure's or BurstGPT's."),
    ] = None,
    slo: SLO = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            help="Simulate without a forward pass: a trace to fit a cost model to, or ACCELERATOR:SIZE such as h100:8b.",
            rich_help_panel=_SIMULATE,
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Simulate a stream of this many requests.", rich_help_panel=_SIMULATE)
    ] = None,
    out: Out = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
) -> None:
    """Measure throughput against latency as the load grows, policy by policy."""
    require_writable(out)
    sweep = Sweep(
        _rates(rate), seconds=point_seconds, burstiness=burstiness, seed=seed, lengths=Lengths(prompt_tokens, output_tokens),
        sizes=read_dataset(lengths).sizes if lengths else None, slos=parse_slos(slo) or SLOs(),
    )  # fmt: skip
    policies = policy or (["continuous"] if requests else ["static", "continuous"])
    for name in policies:
        check_policy(name)
    configs = {name: EngineConfig().under(name, **limits) for name in policies}
    printed: Callable[[dict[str, Any]], None]
    if requests:
        data, printed = _stream(simulate, configs, sweep, requests), _print_stream
    else:
        data, printed = _load(simulate, configs, sweep, model, device_options), _print_load
    finish(data, printed, json, out)


def _rates(given: list[str] | None) -> tuple[float, ...] | None:
    if not given or given == ["auto"]:
        return None
    try:
        return tuple(float(text) for text in given)
    except ValueError:
        raise InflightError("--rate takes numbers of requests a second, or auto by itself.") from None


def _load(
    simulate: str | None, configs: dict[str, EngineConfig], sweep: Sweep, model: str, device_options: DeviceOptions
) -> dict[str, Any]:
    if simulate:
        cost = cost_named(simulate)
        engines: dict[str, Engine | SimulatedEngine] = {name: SimulatedEngine(cost, config) for name, config in configs.items()}
    else:
        first = engine_for(model, next(iter(configs.values())), device_options)
        engines = {name: Engine(first.adapter, first.tokenizer, config) for name, config in configs.items()}
    where = environment(next(iter(engines.values())).trace.header)
    points = len(engines) * len(sweep.rates or sweep.fractions) + (sweep.rates is None)
    done = iter(range(points + 1))
    with ProgressReporter("points", points) as work:
        data = sweep_load(
            engines,
            sweep,
            lambda name, rate: work.update(next(done), f"{name}, {'capacity' if math.isinf(rate) else f'{rate:g} requests/s'}"),
        )
    data["environment"] = where
    data["limits"] = {name: config.to_json() for name, config in configs.items()}
    if simulate:
        data["cost"] = cost.to_json()
        data["beyond"] = {name: engine.beyond for name, engine in engines.items() if isinstance(engine, SimulatedEngine)}
    return data


def _print_load(data: dict[str, Any]) -> None:
    if data["source"] == "simulated":
        print_line("SIMULATED: a cost model stands in for the forward pass.")
    if data["capacity_requests_per_s"]:
        print_line(f"Measured capacity: {data['capacity_requests_per_s']:.2f} requests/s.")
    columns = (
        "policy", "rate", "offered", "finished", "req/s", "out tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "ITL p99", "E2E p50", "E2E p99",
        "good req/s", "",
    )  # fmt: skip
    times = (("ttft_s", "p50"), ("ttft_s", "p99"), ("tpot_s", "p50"), ("itl_s", "p99"), ("e2e_s", "p50"), ("e2e_s", "p99"))
    rows = []
    for point in data["points"]:
        n = point["numbers"]
        rows.append(
            (
                point["policy"], f"{point['rate']:g}", str(point["offered"]), str(n["finished"]), number(n["requests_per_s"]),
                number(n["output_tok_s"]), *(percentile(n[name], p) for name, p in times), number(n["goodput"]["requests_per_s"]), _left_out(point),
            )
        )  # fmt: skip
    table(columns, rows, right=columns[1:-1])
    print_line(
        f"Gamma arrivals, burstiness {data['burstiness']:g}, seed {data['seed']}; at most {data['seconds_a_point']:g} s per point. Cut: its time was up; ≥ marks lower bounds."
    )
    for name, beyond in data.get("beyond", {}).items():
        if beyond:
            print_line(f"{name}: {beyond}")
    if data["source"] != "simulated":
        print_line(measured_on(data["environment"]))


def _left_out(point: Mapping[str, Any]) -> str:
    """How many requests a point that was cut left without a first token, and unfinished."""
    n = point["numbers"]
    return f"cut, {n['ttft_s']['left_out']} unserved, {n['e2e_s']['left_out']} unfinished" if point["cut"] else ""


# -- simulated streams -------------------------------------------------------------------------------------------------


def _stream(simulate: str | None, configs: dict[str, EngineConfig], sweep: Sweep, requests: int) -> dict[str, Any]:
    if simulate is None:
        raise InflightError("A stream of requests is simulated: give --simulate too.")
    if len(sweep.rates or (1,)) > 1 or len(configs) > 1:
        raise InflightError("A stream has one rate and one policy.")
    config = next(iter(configs.values()))
    engine = SimulatedEngine(cost_named(simulate), config, window=_WINDOW)
    started, process = time.perf_counter(), time.process_time()
    with ProgressReporter("requests", requests) as work:
        totals = run_stream(engine, _drawn(sweep, requests), on_step=lambda so_far: work.update(so_far.finished))
    return {
        "source": "simulated",
        "requests": requests,
        "policy": config.policy.name,
        "limits": config.to_json(),
        "cost": engine.cost.to_json(),
        "beyond": engine.beyond,
        "totals": totals.to_json(),
        "took_s": round(time.perf_counter() - started, 2),
        "cpu_s": round(time.process_time() - process, 2),
        "events_kept": len(engine.trace.events),
        "load_average": load_average(),
    }


def _drawn(sweep: Sweep, requests: int) -> Iterator[Request]:
    """Made-up requests, each drawn when needed; without a rate all arrive at the start."""
    rate = sweep.rates[0] if sweep.rates else math.inf
    sizes = iter(sweep.sizes) if sweep.sizes else sweep.lengths.sizes(sweep.seed)
    for index, (at, size) in enumerate(zip(arrivals(rate, sweep.seed, sweep.burstiness), sizes, strict=False)):
        if index == requests:
            return
        yield request(index, size, at, 1, None)


def _print_stream(data: dict[str, Any]) -> None:
    totals = data["totals"]
    print_line("SIMULATED: a cost model stands in for the forward pass.")
    print_line(
        f"{totals['finished']:,} requests, {totals['output_tokens']:,} tokens in {totals['steps']:,} steps: {totals['wall_s']:,.1f} simulated seconds, "
        f"{number(totals['output_tok_s'])} tok/s, {number(totals['requests_per_s'])} requests/s, {totals['preemptions']:,} preemptions, "
        f"KV use {percent(totals['kv_use'])}"
    )
    for name in ("ttft_s", "itl_s", "e2e_s"):
        n = totals[name]
        print_line(
            f"{name.removesuffix('_s').upper()}: p50 {seconds(n['p50'])}, p90 {seconds(n['p90'])}, p99 {seconds(n['p99'])}, at most {seconds(n['max'])}"
        )
    for text in fit_error(data["cost"]):
        print_line(text)
    if data["beyond"]:
        print_line(data["beyond"])
    print_note(f"Simulated in {data['took_s']:,.1f} s ({data['cpu_s']:,.1f} s of CPU time); {data['events_kept']} events kept.")
