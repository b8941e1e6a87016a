"""Throughput against latency under load, measured or on a cost model.

python tests/measure/load.py --rate auto
python tests/measure/load.py --rate 5 --rate 20 --simulate l4:1b --slo ttft=0.5
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.account.request_times import SLOs
from core.cli.given import refuse_idle
from core.cli.options import (
    MORE_POLICIES,
    SLO,
    DeviceOptions,
    Json,
    Out,
    Simulate,
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
from core.errors import InflightError
from core.files import require_writable
from core.measure.compare import environment
from core.measure.load import POINT_SECONDS, Sweep, sweep_load
from core.simulate.engine import SimulatedEngine
from core.torch_engine.engine import Engine
from core.workload.arrivals import Lengths
from core.workload.datasets import read_dataset
from measure import Burstiness, Seed, Tokens, script

_DEFAULT = Lengths()


@with_options
def load(
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Requests per second, repeatable; or auto: fractions of the capacity of the policy"
                " that has most."
            ),
            show_default="auto",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help=f"{MORE_POLICIES}.", show_default="static, continuous")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Built in, folder, GGUF file or hub id.")
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
    if simulate is None and point_seconds > POINT_SECONDS:
        raise InflightError(
            f"A point that is measured takes at most {POINT_SECONDS:g} seconds, not"
            f" {point_seconds:g}; a simulated one may take longer."
        )
    if lengths:
        refuse_idle("with --lengths", "prompt_tokens", "output_tokens")
    require_writable(
        out, read=[*([lengths] if lengths else []), *([Path(simulate)] if simulate else [])]
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
    if sweep.has_arrivals:
        refuse_idle(f"with the arrivals of {lengths}", "burstiness")
    policies = policy or ["static", "continuous"]
    for name in policies:
        check_policy(name)
    if len(set(policies)) < len(policies):
        raise InflightError("Give each policy once.")
    configs = {name: EngineConfig().under(name, **limits) for name in policies}
    data = _load(simulate, configs, sweep, model, device_options)
    finish(data, _print_load, json, out)
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
    points = len(engines) * (len(sweep.rates or sweep.fractions) + (sweep.rates is None))
    done = iter(range(points + 1))
    with ProgressReporter("points", points) as work:
        data = sweep_load(
            engines,
            sweep,
            lambda name, rate: work.update(
                next(done), f"{name}, {'capacity' if math.isinf(rate) else f'{rate:g} requests/s'}"
            ),
            until=KeyboardInterrupt,
        )
    data = {"schema": "bench-load/2", **data, "environment": where}
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
    if data["capacities"]:
        parts = [f"{name} {found:.2f}" for name, found in data["capacities"].items()]
        print_line(f"{data['source'].capitalize()} capacity, requests/s: {', '.join(parts)}.")
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
    arrivals = (
        "Arrivals as in the file, faster or slower by one factor"
        if data["burstiness"] is None
        else f"Gamma arrivals, burstiness {data['burstiness']:g}"
    )
    print_line(
        f"{arrivals}; seed {data['seed']}; at most {data['seconds_a_point']:g} s per point. Cut:"
        " its time was up; ≥ marks lower bounds."
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


if __name__ == "__main__":
    script(load)
