"""`python tests/measure/threads.py`: how a run's threads should wait for each other. Every way of
`WAYS` on a quiet machine, beside a busy neighbour, and beside other runs in the same process.

OpenMP reads its settings once, so each way has a process of its own: this script again, told over
stdin how many runs to start at once. The ways take turns round by round; the neighbour is a process
that does nothing but keep a core busy.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.cli.options import Json, Out
from core.cli.output import ProgressReporter, finish, print_line, seconds, table
from core.errors import InflightError
from core.files import require_writable
from core.torch_engine.cpu.threads import CORE_SHARES, PASSIVE
from measure import Quick, script

RUNNER = "--runner"
WAYS: dict[str, dict[str, str]] = {
    "one": {"OMP_NUM_THREADS": "1"},
    "spinning": {},
    "passive": PASSIVE,
    "spinning briefly": {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "1"},
}
"""Ways in which a run's threads may wait, as settings of OpenMP."""
SERVING = "passive"  # how they wait where people are served
SETTINGS = frozenset(name for way in WAYS.values() for name in way)


class Condition(NamedTuple):
    """runs: at work at once, in one process. neighbours: busy processes beside it."""

    name: str
    runs: int
    neighbours: int


CONDITIONS = (
    Condition("quiet", 1, 0),
    Condition("a busy neighbour", 1, 1),
    Condition("two runs", 2, 0),
    Condition("four runs", 4, 0),
)


@dataclass(frozen=True)
class Waits:
    """seconds: medians, by way and condition, until all runs of the condition had ended."""

    seconds: dict[str, dict[str, float]]

    def worst(self, way: str) -> float:
        """How many times the best way's seconds this one takes where it fares worst."""
        return max(
            own / min(w[name] for w in self.seconds.values())
            for name, own in self.seconds[way].items()
        )

    @property
    def best(self) -> str:
        """The way that fares best where it fares worst: nobody who serves knows what runs
        beside.
        """
        return min(self.seconds, key=self.worst)


def measure(
    repeats: int, quick: bool, on_run: Callable[[int, str], None] = lambda done, what: None
) -> Waits:
    """repeats: timed rounds, after one to warm up. on_run: told how many measurements are done and
    which comes next.
    """
    taken: dict[str, dict[str, list[float]]] = {
        way: {c.name: [] for c in CONDITIONS} for way in WAYS
    }
    with ExitStack() as stack:
        runners = {
            way: stack.enter_context(_runner(settings, quick)) for way, settings in WAYS.items()
        }
        done = 0
        for index in range(repeats + 1):
            for condition in CONDITIONS:
                for way in WAYS if index % 2 else reversed(WAYS):
                    on_run(done, f"{way}, {condition.name}")
                    with _neighbours(condition.neighbours):
                        seconds = _asked(runners[way], condition.runs)
                    if index:
                        taken[way][condition.name].append(seconds)
                    done += 1
    return Waits(
        {
            way: {name: statistics.median(runs) for name, runs in of.items()}
            for way, of in taken.items()
        }
    )


def threads(
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")] = 5,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure how threads should wait: alone on the machine, beside a busy neighbour, and among
    other runs. Wants a quiet machine.
    """
    require_writable(out)
    with ProgressReporter("measurements", len(WAYS) * len(CONDITIONS) * (repeats + 1)) as work:
        waits = measure(repeats, quick, work.update)
    data = {
        "seconds": waits.seconds,
        "worst": {way: waits.worst(way) for way in WAYS},
        "best": waits.best,
        "serving": SERVING,
    }
    finish(data | {"repeats": repeats, "quick": quick}, _print, json, out)


def _print(data: dict[str, Any]) -> None:
    names = [condition.name for condition in CONDITIONS]
    rows = [
        (way, *(seconds(of[name]) for name in names), f"{data['worst'][way]:.2f}×")
        for way, of in data["seconds"].items()
    ]
    table(("threads", *names, "at worst"), rows, right=(*names, "at worst"))
    print_line(
        "At worst: against the best way under the same condition. Runs are of eight mixed requests;"
        " all have ended."
    )
    best, serving = data["best"], data["serving"]
    print_line(
        f"Best where it fares worst: {best}. What serves (core/torch_engine/cpu/threads.py) uses"
        f" {'it' if best == serving else serving}."
    )


# -- processes -------------------------------------------------------------------------------------


@contextmanager
def _runner(settings: dict[str, str], quick: bool) -> Iterator[subprocess.Popen[str]]:
    environment = {
        name: value for name, value in os.environ.items() if name not in SETTINGS
    } | settings
    command = [sys.executable, __file__, RUNNER, *(["quick"] if quick else [])]
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _asked(child: subprocess.Popen[str], runs: int) -> float:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{runs}\n")
    child.stdin.flush()
    answer = child.stdout.readline()
    if not answer:
        raise InflightError(f"A run that was to be timed broke off with exit code {child.wait()}.")
    return float(answer)


@contextmanager
def _neighbours(number: int) -> Iterator[None]:
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def _serve(quick: bool) -> None:
    """The program: as many runs at once as each line of stdin says, as the page runs them; the
    seconds they took together.
    """
    from core.config import EngineConfig
    from core.torch_engine.engine import Engine
    from core.torch_engine.models.probe import probe
    from measure.bench.synthetic import gpt2, mixed

    model = gpt2(1, 24, 2, 97) if quick else gpt2(4, 384, 6, 8192)
    adapter = probe(model, "bench")
    requests = (2, (3, 8), (2, 4)) if quick else (8, (20, 120), (10, 30))
    workload = mixed(requests[0], adapter.vocab_size, *requests[1:])

    def run() -> None:
        engine = Engine(adapter, None, EngineConfig(max_num_seqs=8, max_num_batched_tokens=256))
        with CORE_SHARES.at_work():
            CORE_SHARES.apply()
            for _ in engine.stream(workload):
                CORE_SHARES.apply()

    for runs in sys.stdin:
        threads = [threading.Thread(target=run) for _ in range(int(runs))]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    if RUNNER in sys.argv:
        _serve("quick" in sys.argv)
    else:
        script(threads)
