"""`python tests/measure/serve.py`: what serving costs. The same requests, at the same arrivals,
over HTTP from a server of its own process and by the same engine offline.

Clients stream, each on a connection of its own, and time what they read: the server's share is all
that lies between a token's pass and its line at the client. Each makes sure that it is answered
whole, once, and in order; outputs must be equal, token for token. Meanwhile the server's memory is
read.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.account.metrics import distribution, metrics
from core.cli.options import DeviceOptions, Json, Model, Out, engine_for, with_options
from core.cli.output import ProgressReporter, finish, number, print_line, seconds, table
from core.cli.serve import LANES
from core.config import DEFAULT_MODEL, EngineConfig
from core.errors import InflightError
from core.files import require_writable
from core.measure.compare import environment
from core.torch_engine.engine import Engine
from core.workload.arrivals import Lengths, arrivals, request
from core.workload.request import Request
from core.workload.workload import Workload
from measure import Burstiness, Seed, Tokens, script

ROOT = Path(__file__).resolve().parents[2]
START_S = 180.0  # a server may take to load its model
CLIENTS = 100  # at once
_READINGS = 20  # of the server's memory
_DEFAULT = Lengths()


@dataclass
class Answer:
    """What a client read. sent, times: of the call and of each token, on the client's clock, in
    seconds. id, engine: the request's name and the times that the engine took, as the server says
    with the last event.
    """

    sent: float
    id: str = ""
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    engine: dict[str, float] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        """The next event. Raises InflightError for one that is out of order, another request's, or
        behind the last.
        """
        if "error" in event:
            raise InflightError(f"The server failed: {event['error']['message']}")
        self.id = self.id or event["id"]
        if self.engine or event["id"] != self.id:
            raise InflightError("The server answered twice.")
        if "token_id" in event:
            if event["index"] != len(self.tokens):
                raise InflightError(
                    f"Token {event['index']} came where token {len(self.tokens)} was due."
                )
            self.times.append(time.perf_counter())
            self.tokens.append(event["token_id"])
        else:
            if event["usage"]["completion_tokens"] != len(self.tokens):
                raise InflightError(
                    f"{len(self.tokens)} of {event['usage']['completion_tokens']} tokens came."
                )
            self.engine = {
                name: event[name] if event[name] is not None else math.nan
                for name in ("queue_s", "ttft_s", "e2e_s")
            }


def serve_beside_offline(
    engine: Engine,
    workload: Workload,
    options: Sequence[str],
    on_run: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Both runs in numbers. engine: as the server makes it of `options`, those of `python -m
    inflight serve`. workload: greedy, arrivals in seconds. Raises InflightError where the server
    does not start or does not answer.
    """
    on_run("starting the server")
    with started(options) as (url, process):
        memory = _Memory(process, len(workload))
        _clients(url, Workload(list(workload)[:4], arrival_unit="s"))  # to warm up
        on_run(f"{len(workload)} clients")
        memory.read(0)
        began = time.perf_counter()
        answers = _clients(url, workload, memory.answered)
        wall = time.perf_counter() - began
    on_run("offline")
    engine.run(Workload(list(workload)[:4], arrival_unit="s"))
    trace = engine.run(workload)
    offline = metrics(trace)
    differing = sum(answers[r].tokens != ids for r, ids in trace.outputs.items())
    served = _numbers(answers.values(), wall)
    return {
        "requests": len(workload),
        "differing_requests": differing,
        "served": served,
        "offline": {
            name: offline[name] for name in ("wall_s", "output_tok_s", "ttft_s", "itl_s", "e2e_s")
        },
        "engine_while_serving": {
            "ttft_s": distribution(a.engine["ttft_s"] for a in answers.values())
        },
        "server_memory": memory.readings,
        "header": trace.header,
    }


class _Memory:
    """What a server's process has resident, read now and then: [{"answered", "mib"}], empty where
    the system does not tell.
    """

    def __init__(self, process: int, requests: int) -> None:
        self._file, self._every = Path(f"/proc/{process}/status"), max(1, requests // _READINGS)
        self._answered = 0
        self.readings: list[dict[str, float]] = []

    def answered(self) -> None:
        """One more request was."""
        self._answered += 1
        if self._answered % self._every == 0:
            self.read(self._answered)

    def read(self, answered: int) -> None:
        if self._file.exists():
            found = re.search(r"^VmRSS:\s*(\d+) kB", self._file.read_text(), re.MULTILINE)
            if found:
                self.readings.append({"answered": answered, "mib": round(int(found[1]) / 1024, 1)})


def _numbers(answers: Any, wall: float) -> dict[str, Any]:
    answers = list(answers)
    return {
        "wall_s": round(wall, 4),
        "output_tok_s": round(sum(len(a.tokens) for a in answers) / wall, 1),
        "ttft_s": distribution(a.times[0] - a.sent for a in answers),
        "itl_s": distribution(
            after - before for a in answers for before, after in pairwise(a.times)
        ),
        "e2e_s": distribution(a.times[-1] - a.sent for a in answers),
    }


@contextmanager
def server(options: Sequence[str]) -> Iterator[str]:
    """A server in a process of its own, at any free port; its address."""
    with started(options) as (url, _):
        yield url


@contextmanager
def started(options: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The same, with its process."""
    command = [sys.executable, "-m", "core", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        address = _address(process)
        # a full pipe would stop the server
        threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
        yield address, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline, said = time.monotonic() + START_S, ""
    for printed in process.stderr:
        said = printed.strip() or said
        if found := re.search(r"Serving .* at (http://\S+)", printed):
            return found[1]
        if time.monotonic() > deadline:
            break
    raise InflightError(f"The server did not start: {said or 'it said nothing'}")


def _clients(
    url: str, workload: Workload, answered: Callable[[], None] = lambda: None
) -> Mapping[str, Answer]:
    """Every request sent when it is due, or as soon as fewer than `CLIENTS` are under way; what
    came back. answered: called for each.
    """
    return asyncio.run(_all(url, list(workload), answered))


async def _all(
    url: str, requests: Sequence[Request], answered: Callable[[], None]
) -> Mapping[str, Answer]:
    at_once = asyncio.Semaphore(CLIENTS)
    began = time.perf_counter()

    async def one(request: Request) -> Answer:
        await asyncio.sleep(max(0.0, began + request.arrival - time.perf_counter()))
        async with at_once:
            answer = await _ask(url, request)
        answered()
        return answer

    try:
        answers = await asyncio.gather(*map(one, requests))
    except OSError as error:
        raise InflightError(
            f"The server did not answer: {error.strerror or type(error).__name__}."
        ) from None
    if len({answer.id for answer in answers}) < len(answers):
        raise InflightError("Two requests got one answer.")
    return {request.id: answer for request, answer in zip(requests, answers, strict=True)}


async def _ask(url: str, request: Request) -> Answer:
    """Written to the socket in one piece and read line by line: a library's time for a call would
    be counted as the server's.
    """
    asked = {
        "prompt": list(request.prompt_token_ids or ()),
        "max_tokens": request.sampling.max_new_tokens,
    }
    body = json.dumps({**asked, "stream": True, "ignore_eos": request.sampling.ignore_eos})
    at = urlsplit(url)
    head = (
        f"POST /generate HTTP/1.1\r\nHost: {at.netloc}\r\nConnection: close\r\nContent-Type:"
        f" application/json\r\nContent-Length: {len(body)}"
    )
    answer = Answer(time.perf_counter())
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=2**20)
    try:
        writer.write(f"{head}\r\n\r\n{body}".encode())
        status = (await reader.readline()).decode()
        if " 200 " not in status:
            told = (await reader.read()).decode().partition("\r\n\r\n")[2]
            raise InflightError(
                f"The server refused a request: {told or status.strip() or 'it hung up'}"
            )
        async for event in reader:
            if event.startswith(b"data: "):
                answer.take(json.loads(event[6:]))
    finally:
        writer.close()
    if not answer.engine:
        raise InflightError(f"The server hung up after {len(answer.tokens)} tokens.")
    return answer


# -- the command -----------------------------------------------------------------------------------


@with_options
def serve(
    requests: Annotated[
        int,
        typer.Option(min=1, help="How many, each with a client of its own, at most 100 at once."),
    ] = 100,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests a second; 0 sends all at once.")
    ] = 8.0,
    burstiness: Burstiness = 1.0,
    seed: Seed = 0,
    prompt_tokens: Tokens = _DEFAULT.prompt,
    output_tokens: Tokens = _DEFAULT.output,
    model: Model = None,
    out: Out = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
) -> None:
    """Measure what serving costs: streaming clients over HTTP against the same engine offline, at
    the same arrivals.
    """
    require_writable(out)
    name = model or DEFAULT_MODEL
    config = EngineConfig(**{"max_num_seqs": LANES, **limits})
    engine = engine_for(name, config, device_options)
    sizes, times = (
        Lengths(prompt_tokens, output_tokens).sizes(seed),
        arrivals(rate or math.inf, seed, burstiness),
    )
    drawn = islice(zip(sizes, times, strict=False), requests)
    adapter = engine.adapter
    asked = [
        request(i, size, at, adapter.vocab_size, adapter.max_model_len)
        for i, (size, at) in enumerate(drawn)
    ]
    # The server sizes its pool for the longest context; offline it must be the same pool.
    blocks = config.num_blocks or engine.kv_blocks[1]
    engine = type(engine)(
        adapter, engine.tokenizer, EngineConfig(**{**config.to_json(), "num_blocks": blocks})
    )
    given = {**limits, "max_num_seqs": config.max_num_seqs, "num_blocks": blocks}
    options = options_of(name, device_options, given)
    with ProgressReporter("runs", 3) as work:
        steps = iter(range(3))
        workload = Workload(asked, name="serve", arrival_unit="s")
        data = serve_beside_offline(
            engine, workload, options, lambda what: work.update(next(steps), what)
        )
    header = data.pop("header")
    data |= {
        "rate": rate or None,
        "seed": seed,
        "limits": config.to_json(),
        "environment": environment(header),
    }
    finish(data, _print, json, out)


def options_of(model: str, where: DeviceOptions, limits: Mapping[str, Any]) -> list[str]:
    """Of `python -m inflight serve`, for the same engine."""
    options = ["--model", model, "--device", where.device, "--dtype", where.dtype]
    options += ["--threads", str(where.threads)] if where.threads else []
    for option, value in limits.items():
        flag = option.replace("_", "-")
        options += (
            [f"--{flag}" if value else f"--no-{flag}"]
            if isinstance(value, bool)
            else [f"--{flag}", str(value)]
        )
    return options


def _print(data: dict[str, Any]) -> None:
    rows = []
    for name, title in (("served", "over HTTP, at the client"), ("offline", "offline")):
        n = data[name]
        ttft, itl, e2e = (n[key] for key in ("ttft_s", "itl_s", "e2e_s"))
        rows.append(
            (
                title,
                seconds(n["wall_s"]),
                number(n["output_tok_s"]),
                seconds(ttft["p50"]),
                seconds(ttft["p99"]),
                seconds(itl["p50"]),
                seconds(itl["p99"]),
                seconds(e2e["p50"]),
                seconds(e2e["p99"]),
            )
        )
    columns = (
        "",
        "wall",
        "out tok/s",
        "TTFT p50",
        "TTFT p99",
        "ITL p50",
        "ITL p99",
        "E2E p50",
        "E2E p99",
    )
    table(columns, rows, right=columns[1:])
    ttft = data["engine_while_serving"]["ttft_s"]
    print_line(
        f"By the engine's own clock, while it served: TTFT p50 {seconds(ttft['p50'])}, p99"
        f" {seconds(ttft['p99'])}."
    )
    rate = "all at once" if data["rate"] is None else f"{data['rate']:g} requests/s"
    same = (
        "the same tokens in each"
        if not data["differing_requests"]
        else f"OTHER TOKENS in {data['differing_requests']}"
    )
    print_line(f"{data['requests']} requests, {rate}, seed {data['seed']}; {same}.")
    if memory := data["server_memory"]:
        curve = ", ".join(f"{m['mib']:,.0f} after {m['answered']:,}" for m in memory)
        print_line(f"The server's memory in MiB: {curve}.")


if __name__ == "__main__":
    script(serve)
