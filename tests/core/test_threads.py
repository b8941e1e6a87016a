"""CPU threads: passive waiting is said in time, and cores are shared out among those at work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from core.torch_engine.cpu.threads import PASSIVE, CoreShares, wait_passively


def test_what_the_environment_says_stays():
    environment = {"OMP_WAIT_POLICY": "active"}
    wait_passively(environment)
    assert environment == {**PASSIVE, "OMP_WAIT_POLICY": "active"}


def test_it_is_too_late_once_torch_is_loaded():
    import torch  # noqa: F401

    assert not wait_passively({})


@pytest.mark.slow
def test_the_page_is_there_before_torch_is_loaded():
    """So that what it says of waiting is read in time."""
    said = "import visualizer.ui, sys; print({'torch', 'transformers'} & set(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "set()"


@pytest.mark.slow
def test_every_command_that_runs_a_model_waits_passively():
    """It says so before torch is loaded; a command that loads no model does not."""
    say = "print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"
    said = "import os, sys\nfrom core.cli import main, options\n"
    said += f"def load():\n    {say}\n    os._exit(0)\noptions.load_libraries = load\n"
    said += f"try: main(sys.argv[1:])\nexcept SystemExit: {say}"
    environment = {name: value for name, value in os.environ.items() if name not in PASSIVE}
    environment["PYTHONUNBUFFERED"] = "1"
    for command, expected in (
        (["serve", "--policy", "magic"], "passive True"),
        (["run", "--preset", "gpt2-six"], "passive False"),
        (["compare", "--preset", "gpt2-six"], "passive False"),
        (["check", "assets/traces/gpt2-six.jsonl", "--rerun"], "passive False"),
        (["run", "--preset", "gpt2-six", "--simulate", "h100:8b", "--steps", "--json"], "None"),
    ):
        answer = subprocess.run(
            [sys.executable, "-c", said, *command], capture_output=True, text=True, env=environment
        )
        assert answer.stdout.startswith(expected), answer.stderr
    alone = subprocess.run(
        [sys.executable, "-c", "import core.cli.serve, sys; print('torch' in sys.modules)"],
        capture_output=True,
    )
    assert alone.stdout.strip() == b"False"


def test_shares_follow_the_number_of_runs(monkeypatch):
    import torch

    given: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    shares = CoreShares()
    with shares.at_work():
        assert shares.apply() == 8
        with shares.at_work(), shares.at_work():
            assert shares.apply() == 2 and shares.apply() == 2
        assert shares.apply() == 8
    assert given == [8, 2, 8]


def test_more_runs_than_cores_have_one_thread_each(monkeypatch):
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    shares, taken = CoreShares(), []
    ready = threading.Barrier(5)

    def run():
        with shares.at_work():
            ready.wait()
            taken.append(shares.apply())
            ready.wait()

    threads = [threading.Thread(target=run) for _ in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert taken == [1] * 5


FORK = """
import os, signal, torch
from core import Engine, InflightError, Request, SamplingParams, Workload

torch.set_num_threads(2)
asked = Request("a", prompt="O Romeo, ", sampling=SamplingParams(max_new_tokens=3))
make = lambda: Engine.from_pretrained("shakespeare-char")
engine = make()
tokens = engine.run(Workload([asked])).outputs["a"]
if not (child := os.fork()):
    signal.alarm(60)  # ends it where it waits for ever
    for use in (make, lambda: engine.run(Workload([asked])), engine.begin):
        try:
            print(use())
        except InflightError as error:
            print(error)
    torch.set_num_threads(1)
    print(make().run(Workload([asked])).outputs["a"] == tokens, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(engine.run(Workload([asked])).outputs["a"] == tokens)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
def test_a_process_forked_from_one_that_has_computed_is_refused():
    """It waited for ever. On one thread it computes, and whoever forked it goes on."""
    said = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True)
    *refused, alone, parent = said.stdout.splitlines()
    assert len(refused) == 3 and len(set(refused)) == 1, said
    assert refused[0].startswith("This process was forked from one in which torch has computed")
    assert alone == parent == "True"
