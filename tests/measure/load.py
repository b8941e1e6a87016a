"""Throughput against latency under load, measured or on a cost model; and long simulated streams.

python tests/measure/load.py --rate auto
python tests/measure/load.py --rate 5 --rate 20 --simulate l4:1b --slo ttft=0.5
python tests/measure/load.py --requests 100000 --simulate h100:8b --rate 30
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.account.request_times import SLOs
from core.cli.given import refuse_idle
from core.cli.long import print_totals
from core.cli.options import (
    MORE_POLICIES,
    SLO,
    Burstiness,
    DeviceOptions,
    Json,
    Out,
    Seed,
    Simulate,
    Tokens,
    check_policy,
    cost_for,
    engine_for,
    parse_slos,
    with_options,
)
from core.cli.output import (
    INTERRUPTED,
    ProgressReporter,
    finish,
    number,
    percentile,
    print_line,
    print_note,
    table,
)
from core.cli.report import cost_sentences, measured_on
from core.config import DEFAULT_MODEL, EngineConfig
from core.engine.writing import writing
from core.errors import InflightError
from core.files import require_writable
from core.measure.compare import environment
from core.measure.load import POINT_SECONDS, Sweep, sizes, sweep_load, times
from core.measure.rounds import load_average
from core.simulate.engine import SimulatedEngine
from core.simulate.totals import RunTotals, run_stream
from core.torch_engine.engine import Engine
from core.workload.arrivals import Lengths, request
from core.workload.datasets import read_dataset
from core.workload.request import Request
from measure import script

_DEFAULT = Lengths()
_WINDOW = 20_000  # tokens whose steps a stream keeps; older ones remain in its totals


@with_options
def load(
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="Requests per second, repeatable; or auto: fractions of the measured capacity.",
            show_default="auto",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help=f"{MORE_POLICIES}.", show_default="static, continuous")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Built-in model, local folder or hub id.")
    ] = DEFAULT_MODEL,
    burstiness: Burstiness = 1.0,
    seed: Seed = 0,
    point_seconds: Annotated[
        float, typer.Option(help="Seconds per point, at most 20 where they are measured.")
    ] = POINT_SECONDS,
    prompt_tokens: Tokens = _DEFAULT.prompt,
    output_tokens: Tokens = _DEFAULT.output,
    lengths: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Take lengths and arrivals from this file: JSONL of ours or Mooncake's, CSV of"
                " Azure's or BurstGPT's."
            )
        ),
    ] = None,
    slo: SLO = None,
    simulate: Simulate = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Simulate a stream of this many requests.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the stream's trace here, step by step.")
    ] = None,
    out: Out = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
) -> None:
    """Measure throughput against latency as the load grows, policy by policy. Ctrl-C keeps the
    points so far.
    """
    if simulate:
        refuse_idle("with --simulate, which loads no model", "model", "device", "dtype", "threads")
    if requests:
        refuse_idle("with --requests, which is one run to its end", "slo", "point_seconds")
        if rate == ["auto"]:
            raise InflightError(
                "--rate auto is for points of load: with --requests give a number, or no rate, and"
                " all arrive at the start."
            )
        if not rate:
            refuse_idle("without a rate: all requests arrive at the start", "burstiness")
    if simulate is None and point_seconds > POINT_SECONDS:
        raise InflightError(
            f"A point that is measured takes at most {POINT_SECONDS:g} seconds, not"
            f" {point_seconds:g}; a simulated one may take longer."
        )
    if lengths:
        refuse_idle("with --lengths", "prompt_tokens", "output_tokens")
    if trace is not None and not requests:
        raise InflightError("--trace writes the trace of a stream: give --requests too.")
    require_writable(
        out, trace, read=[*([lengths] if lengths else []), *([Path(simulate)] if simulate else [])]
    )
    sweep = Sweep(
        _rates(rate),
        seconds=point_seconds,
        burstiness=burstiness,
        seed=seed,
        lengths=Lengths(prompt_tokens, output_tokens),
        sizes=read_dataset(lengths).sizes if lengths else None,
        slos=parse_slos(slo) or SLOs(),
    )
    policies = policy or (["continuous"] if requests else ["static", "continuous"])
    for name in policies:
        check_policy(name)
    configs = {name: EngineConfig().under(name, **limits) for name in policies}
    printed: Callable[[dict[str, Any]], None]
    if requests:
        data, printed = _stream(simulate, configs, sweep, requests, trace), _print_stream
    else:
        data, printed = _load(simulate, configs, sweep, model, device_options), _print_load
    finish(data, printed, json, out)
    if not data["complete"]:
        print_note("Interrupted: this is what there was by then.")
        raise typer.Exit(INTERRUPTED)


def _rates(given: list[str] | None) -> tuple[float, ...] | None:
    if not given or given == ["auto"]:
        return None
    try:
        return tuple(float(text) for text in given)
    except ValueError:
        raise InflightError(
            "--rate takes numbers of requests a second, or auto by itself."
        ) from None


def _load(
    simulate: str | None,
    configs: dict[str, EngineConfig],
    sweep: Sweep,
    model: str,
    device_options: DeviceOptions,
) -> dict[str, Any]:
    if simulate:
        cost = cost_for(simulate)
        engines: dict[str, Engine | SimulatedEngine] = {
            name: SimulatedEngine(cost, config) for name, config in configs.items()
        }
    else:
        first = engine_for(model, next(iter(configs.values())), device_options)
        engines = {name: first.under(config) for name, config in configs.items()}
    where = environment(next(iter(engines.values())).trace.header)
    points = len(engines) * len(sweep.rates or sweep.fractions) + (sweep.rates is None)
    done = iter(range(points + 1))
    with ProgressReporter("points", points) as work:
        data = sweep_load(
            engines,
            sweep,
            lambda name, rate: work.update(
                next(done), f"{name}, {'capacity' if math.isinf(rate) else f'{rate:g} requests/s'}"
            ),
            until_interrupted=True,
        )
    data = {"schema": "bench-load/1", **data, "environment": where}
    data["limits"] = {name: config.to_json() for name, config in configs.items()}
    if simulate:
        data["cost"] = cost.to_json()
        data["beyond"] = {
            name: engine.beyond
            for name, engine in engines.items()
            if isinstance(engine, SimulatedEngine)
        }
    return data


def _print_load(data: dict[str, Any]) -> None:
    if data["source"] == "simulated":
        print_line("SIMULATED: a cost model stands in for the forward pass.")
    if data["capacity_requests_per_s"]:
        print_line(
            f"{data['source'].capitalize()} capacity of {data['points'][0]['policy']}:"
            f" {data['capacity_requests_per_s']:.2f}"
            " requests/s."
        )
    has_limits = any(limit is not None for limit in data["slos"].values())
    columns = (
        "policy",
        "rate",
        "offered",
        "finished",
        "req/s",
        "out tok/s",
        "TTFT p50",
        "TTFT p99",
        "TPOT p50",
        "ITL p99",
        "E2E p50",
        "E2E p99",
        *(["good req/s"] if has_limits else []),
        "",
    )
    times = (
        ("ttft_s", "p50"),
        ("ttft_s", "p99"),
        ("tpot_s", "p50"),
        ("itl_s", "p99"),
        ("e2e_s", "p50"),
        ("e2e_s", "p99"),
    )
    rows = []
    for point in data["points"]:
        n = point["numbers"]
        rows.append(
            (
                point["policy"],
                f"{point['rate']:g}",
                str(point["offered"]),
                str(n["finished"]),
                number(n["requests_per_s"]),
                number(n["output_tok_s"]),
                *(percentile(n[name], p) for name, p in times),
                *([number(n["goodput"]["requests_per_s"])] if has_limits else []),
                _left_out(point),
            )
        )
    table(columns, rows, right=columns[1:-1])
    print_line(
        f"Gamma arrivals, burstiness {data['burstiness']:g}, seed {data['seed']}; at most"
        f" {data['seconds_a_point']:g} s per point. Cut: its time was up; ≥ marks lower bounds."
    )
    for text in cost_sentences(data.get("cost")):
        print_line(text)
    for name, beyond in data.get("beyond", {}).items():
        if beyond:
            print_line(f"{name}: {beyond}")
    if data["source"] != "simulated":
        print_line(measured_on(data["environment"]))


def _left_out(point: Mapping[str, Any]) -> str:
    """How many requests a point that was cut left without a first token, and unfinished."""
    n = point["numbers"]
    return (
        f"cut, {n['ttft_s']['left_out']} unserved, {n['e2e_s']['left_out']} unfinished"
        if point["cut"]
        else ""
    )


# -- simulated streams -----------------------------------------------------------------------------


def _stream(
    simulate: str | None,
    configs: dict[str, EngineConfig],
    sweep: Sweep,
    requests: int,
    trace: Path | None,
) -> dict[str, Any]:
    if simulate is None:
        raise InflightError("A stream of requests is simulated: give --simulate too.")
    if len(sweep.rates or (1,)) > 1 or len(configs) > 1:
        raise InflightError("A stream has one rate and one policy.")
    if sweep.sizes and sweep.sizes[0].arrival is not None and len(sweep.sizes) < requests:
        raise InflightError(
            f"--lengths gives the arrivals of {len(sweep.sizes):,} requests, fewer than"
            f" {requests:,}."
        )
    config = next(iter(configs.values()))
    engine = SimulatedEngine(cost_for(simulate), config, window=_WINDOW)
    started, process = time.perf_counter(), time.process_time()
    totals, complete = RunTotals(), True
    with (
        writing(engine, trace) if trace else nullcontext(),
        ProgressReporter("requests", requests) as work,
    ):

        def on_step(so_far: RunTotals) -> None:
            nonlocal totals
            totals = so_far
            work.update(so_far.finished)

        try:
            run_stream(engine, _drawn(sweep, requests), on_step)
        except KeyboardInterrupt:
            if not totals.steps:
                raise
            complete = False
    return {
        "schema": "bench-stream/1",
        "source": "simulated",
        "complete": complete,
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
    for index, (at, size) in enumerate(zip(times(sweep, rate), sizes(sweep), strict=False)):
        if index == requests:
            return
        yield request(index, size, at, 1, None)


def _print_stream(data: dict[str, Any]) -> None:
    print_line("SIMULATED: a cost model stands in for the forward pass.")
    print_totals(data["totals"])
    for text in cost_sentences(data["cost"]):
        print_line(text)
    if data["beyond"]:
        print_line(data["beyond"])
    print_note(
        f"Simulated in {data['took_s']:,.1f} s ({data['cpu_s']:,.1f} s of CPU time);"
        f" {data['events_kept']} events kept."
    )


if __name__ == "__main__":
    script(load)
