"""`bench serve`: the same requests over HTTP and offline."""

from __future__ import annotations

import math
from itertools import islice
from typing import Annotated, Any

import typer

from core.assets import DEFAULT_MODEL
from core.bench.serve import serve_beside_offline
from core.cli.options import Burstiness, Json, Model, Out, Place, Seed, Tokens, engine_for, with_options, writable
from core.cli.output import Work, finish, line, number, seconds, table
from core.cli.serve import LANES
from core.config import EngineConfig
from core.measure.environment import environment
from core.workload.arrivals import Lengths, arrivals, request
from core.workload.workload import Workload

_DEFAULT = Lengths()


@with_options
def serve(
    requests: Annotated[int, typer.Option(min=1, help="How many, each with a client of its own, at most 100 at once.")] = 100,
    rate: Annotated[float, typer.Option(help="Requests a second; inf sends all at once.")] = 8.0,
    burstiness: Burstiness = 1.0,
    seed: Seed = 0,
    prompt_tokens: Tokens = _DEFAULT.prompt,
    output_tokens: Tokens = _DEFAULT.output,
    model: Model = None,
    out: Out = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    place: Place,
) -> None:
    """Measure what serving costs: streaming clients over HTTP against the same engine offline, at the same arrivals."""
    writable(out)
    name = model or DEFAULT_MODEL
    config = EngineConfig(**{"max_num_seqs": LANES, **limits})
    engine = engine_for(name, config, place)
    shapes, times = Lengths(prompt_tokens, output_tokens).shapes(seed), arrivals(rate, seed, burstiness)
    drawn = islice(zip(shapes, times, strict=False), requests)
    adapter = engine.adapter
    asked = [request(i, shape, at, adapter.vocab_size, adapter.max_model_len) for i, (shape, at) in enumerate(drawn)]
    # The server sizes its pool for the longest context; offline it must be the same pool.
    blocks = config.num_blocks or engine.kv_blocks[1]
    engine = type(engine)(adapter, engine.tokenizer, EngineConfig(**{**config.to_json(), "num_blocks": blocks}))
    given = {**limits, "max_num_seqs": config.max_num_seqs, "num_blocks": blocks}
    options = ["--model", name, "--device", place.device, "--dtype", place.dtype]
    options += ["--threads", str(place.threads)] if place.threads else []
    for option, value in given.items():
        flag = option.replace("_", "-")
        options += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    with Work("runs", 3) as work:
        steps = iter(range(3))
        workload = Workload(asked, name="serve", arrival_unit="s")
        data = serve_beside_offline(engine, workload, options, lambda what: work.update(next(steps), what))
    header = data.pop("header")
    data |= {
        "rate": None if math.isinf(rate) else rate,
        "seed": seed,
        "limits": config.to_json(),
        "environment": environment(header),
    }
    finish(data, _print, out, json)


def _print(data: dict[str, Any]) -> None:
    rows = []
    for name, title in (("served", "over HTTP, at the client"), ("offline", "offline")):
        n = data[name]
        ttft, itl, e2e = (n[key] for key in ("ttft_s", "itl_s", "e2e_s"))
        rows.append(
            (
                title, seconds(n["wall_s"]), number(n["output_tok_s"]), seconds(ttft["p50"]), seconds(ttft["p99"]), seconds(itl["p50"]),
                seconds(itl["p99"]), seconds(e2e["p50"]), seconds(e2e["p99"]),
            )
        )  # fmt: skip
    columns = ("", "wall", "out tok/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "E2E p50", "E2E p99")
    table(columns, rows, right=columns[1:])
    ttft = data["engine_while_serving"]["ttft_s"]
    line(f"By the engine's own clock, while it served: TTFT p50 {seconds(ttft['p50'])}, p99 {seconds(ttft['p99'])}.")
    rate = "all at once" if data["rate"] is None else f"{data['rate']:g} requests/s"
    same = "the same tokens in each" if not data["differing_requests"] else f"OTHER TOKENS in {data['differing_requests']}"
    line(f"{data['requests']} requests, {rate}, seed {data['seed']}; {same}.")
    if memory := data["server_memory"]:
        curve = ", ".join(f"{m['mib']:,.0f} after {m['answered']:,}" for m in memory)
        line(f"The server's memory in MiB: {curve}.")
