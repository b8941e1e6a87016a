"""`python tests/measure/vllm_ranks.py --python PYTHON_WITH_VLLM`: records the runs of several ranks
that ship with the page.

`served` is vLLM behind its own HTTP server, with the scheduler that records. Data-parallel ranks
need it: their engines live in processes of their own, and vLLM's balancer deals the requests out
between them.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.cli.output import print_line
from core.config import ASSETS
from core.errors import InflightError
from core.recorders.convert import import_recording
from core.recorders.raw import read_raw
from core.recorders.texts import tokenizer_of
from core.recorders.vllm import inflight_vllm
from core.workload.request import Request
from engines.task import EngineTask
from engines.vllm import require_python
from measure import script
from measure.bench.vllm import ENVIRONMENT
from visualizer.documents.catalogue import RANKED, TRACES

RANKS = 2
RECORDING = "run.raw.jsonl"
_MODEL = "it"  # what its clients call it
_UP_S, _ANSWER_S, _DOWN_S = 600.0, 600.0, 120.0  # after which it counts as stuck
_STEP_S = 0.01  # an arrival counts steps, and clients have clocks


@dataclass(frozen=True)
class Served:
    """A server that is up. log: what it prints."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def complete(
        self, prompt: str | list[int], max_tokens: int, name: str = "", rank: int | None = None
    ) -> str:
        """What it writes, greedily and to the last token. name: of the request. rank: which is to
        compute it; by default vLLM chooses. Raises InflightError.
        """
        asked = {
            "model": _MODEL,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        headers = {"Content-Type": "application/json"} | ({"X-Request-Id": name} if name else {})
        headers |= {} if rank is None else {"X-data-parallel-rank": str(rank)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_S)
        try:
            connection.request("POST", "/v1/completions", json.dumps(asked), headers)
            answer = connection.getresponse()
            data: dict[str, Any] = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise InflightError(f"vLLM did not answer: {error}.") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise InflightError(f"vLLM answered {answer.status}: {str(data)[:200]}")
        return data["choices"][0]["text"]

    def is_up(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def served(python: str, folder: Path, model: Path, *arguments: str) -> Iterator[Served]:
    """A server whose steps are recorded in the folder; stopped as an operator stops it. python: of
    an environment with vLLM. arguments: more of vLLM's own. Raises InflightError where it does not
    come up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        **{
            name: value
            for name, value in ENVIRONMENT.items()
            if name != "VLLM_ENABLE_V1_MULTIPROCESSING"
        },
        "PYTHONPATH": str(Path(inflight_vllm.__file__).parents[1]),
        "INFLIGHT_TRACE": str(folder / RECORDING),
    }
    command = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model),
        "--served-model-name",
        _MODEL,
        "--dtype",
        "float32",
        "--block-size",
        "32",
        "--enforce-eager",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--scheduler-cls",
        "inflight_vllm.RecordingScheduler",
        "--no-async-scheduling",
        *arguments,
    ]
    found = Served(port, folder / "server.log")
    with found.log.open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + _UP_S
            while not found.is_up():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise InflightError(
                        f"vLLM did not come up: {found.log.read_text(errors='replace')[-2000:]}"
                    )
                time.sleep(1)
            yield found
            process.send_signal(signal.SIGINT)
            process.wait(_DOWN_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def record_ranks(asked: EngineTask, python: str, folder: Path, ranks: int) -> list[Path]:
    """Serve the model on data-parallel ranks, ask for the requests as they arrive, a step taken as
    10 ms, and leave a recording for each rank in the folder, by rank. Raises InflightError.
    """
    config = asked.config
    limits = {
        "--data-parallel-size": ranks,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
        "--max-model-len": asked.longest,
        # one of them is vLLM's null block
        "--num-gpu-blocks-override": (config.num_blocks or 0) + 1,
    }
    arguments = [str(part) for pair in limits.items() for part in pair]
    requests = list(asked.workload)
    with (
        served(python, folder, ASSETS / "models" / asked.model, *arguments) as server,
        ThreadPoolExecutor(len(requests)) as clients,
    ):
        begun = time.monotonic()

        def ask(request: Request) -> None:
            time.sleep(max(0.0, begun + request.arrival * _STEP_S - time.monotonic()))
            server.complete(asked.prompts[request.id], request.sampling.max_new_tokens, request.id)

        list(clients.map(ask, requests))
    found = sorted(folder.glob("run.rank*.raw.jsonl"))
    read_raw(found)  # raises for what is none
    if len(found) != ranks:
        raise InflightError(
            f"vLLM left {len(found)} recordings, and not one for each of {ranks} ranks."
        )
    return found


def vllm_ranks(
    names: Annotated[
        list[str] | None, typer.Argument(help="Runs of several ranks; all by default.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Of an environment with vLLM.", show_default="$INFLIGHT_VLLM_PYTHON"),
    ] = None,
) -> None:
    """Record vLLM's data-parallel ranks at work together, and write the trace of each to
    assets/traces. Wants a quiet machine: times are theirs.
    """
    python = require_python(python)
    if unknown := [name for name in names or () if name not in RANKED]:
        raise InflightError(
            f"There is no run of several ranks called {unknown[0]!r}; there is {', '.join(RANKED)}."
        )
    for preset in (RANKED[name] for name in names or RANKED):
        with tempfile.TemporaryDirectory() as place:
            recordings = record_ranks(
                EngineTask.of(preset, tokenizer_of(preset.model)), python, Path(place), RANKS
            )
            for rank, trace in enumerate(map(import_recording, recordings)):
                path = TRACES / f"{preset.name}.rank{rank}.jsonl"
                trace.save(path)
                print_line(f"{preset.name}: {path.name}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    script(vllm_ranks)
