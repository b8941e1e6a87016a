"""A model shared out among processes: the same tokens, one voice, and a sentence for whatever would
set the processes apart.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import Engine, EngineConfig, InflightError, Trace, Workload
from core.cli import main
from core.torch_engine.models import tensor_parallel
from core.torch_engine.models.load import load, resolve_device, resolve_dtype
from core.torch_engine.models.tensor_parallel import world_size
from worlds.families import BY_NAME, generate, requests
from worlds.small import MemoryModel
from worlds.small import requests as small_requests

ROOT = Path(__file__).resolve().parents[2]
EVEN = 102  # tokens: some versions of transformers share out only a vocabulary that divides
needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="the package accelerate is not installed"
)


@pytest.fixture
def two_processes(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")


def torchrun(*command: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """`torchrun -m core …` on CPU."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, "-m", "core", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.slow
@needs_accelerate
@pytest.mark.parametrize(
    ("family", "limits"),
    [("llama", ()), ("gemma2", ("--max-num-batched-tokens", "7", "--num-blocks", "12"))],
)
def test_two_processes_give_the_tokens_of_generate(
    tmp_path: Path, family: str, limits: tuple[str, ...]
):
    model = BY_NAME[family].build(vocab_size=EVEN)
    model.save_pretrained(tmp_path / "model")
    asked = requests(vocab=EVEN)
    workload = tmp_path / "asked.json"
    workload.write_text(json.dumps(Workload(asked).to_json()))
    trace_file = tmp_path / "trace.jsonl"
    done = torchrun(
        *(
            "run",
            "--workload",
            str(workload),
            "--model",
            str(tmp_path / "model"),
            "--device",
            "cpu",
            "--max-num-seqs",
            "3",
        ),
        *("--block-size", "4", "--out", str(trace_file), "--json", *limits),
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["requests"]) == len(asked), "one process prints"
    trace = Trace.load(trace_file)
    assert trace.complete and trace.header.tensor_parallel == 2
    assert trace.outputs == {r.id: generate(model, r) for r in asked}


@pytest.mark.slow
@needs_accelerate
def test_what_cannot_be_shared_out_is_refused_once():
    done = torchrun(
        "run", "--preset", "nanogpt-arrivals", "--model", "shakespeare-char", "--device", "cpu"
    )
    assert done.returncode != 0
    assert done.stderr.count("transformers has no plan of tensor parallelism for gpt2 models") == 1


def test_one_process_shares_nothing():
    assert tensor_parallel.world_size() == 1 and tensor_parallel.is_first()
    engine = Engine.from_pretrained("shakespeare-bpe", EngineConfig(), device="cpu")
    assert engine.adapter.tensor_parallel == 1 and engine.trace.header.tensor_parallel == 1
    assert engine.adapter.num_heads == engine.adapter.config.num_attention_heads


@pytest.mark.parametrize(
    ("world_size", "name", "words"),
    [
        ("2", "shakespeare-char", "transformers has no plan of tensor parallelism for gpt2 models"),
        (
            "4",
            "shakespeare-bpe",
            (
                "its 4 heads, 2 of them with K and V of their own, cannot be shared out evenly"
                " among 4 processes"
            ),
        ),
    ],
)
def test_a_model_that_cannot_be_shared_out_says_why(
    monkeypatch, world_size: str, name: str, words: str
):
    monkeypatch.setenv("WORLD_SIZE", world_size)
    device = resolve_device("cpu")
    with pytest.raises(InflightError, match=words):
        load(name, device, resolve_dtype("auto", device))


def test_a_device_that_the_processes_do_not_share_is_refused(two_processes, monkeypatch):
    """What shares out a model also chooses its device; here the whole model stands in for it."""
    monkeypatch.setattr(tensor_parallel, "loading_options", dict)
    load("shakespeare-bpe", torch.device("cpu"), torch.float32)
    with pytest.raises(InflightError, match="tensor parallelism runs on cpu here, not on meta"):
        load("shakespeare-bpe", torch.device("meta"), torch.float32)


def test_without_accelerate_a_sentence_names_it(two_processes, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "accelerate" else found(name, *rest),
    )
    device = resolve_device("cpu")
    with pytest.raises(InflightError, match="tensor parallelism needs the package accelerate"):
        load("shakespeare-bpe", device, resolve_dtype("auto", device))


def test_arrivals_by_the_clock_are_refused():
    model = MemoryModel()
    model.tensor_parallel = 2
    engine = Engine(model, None, EngineConfig(num_blocks=8))
    assert engine.trace.header.tensor_parallel == 2
    with pytest.raises(InflightError, match="the clocks of several would not agree"):
        engine.run(Workload(small_requests((3, 2)), arrival_unit="s"))
    assert engine.run(Workload(small_requests((3, 2)))).complete


def test_only_run_is_there_under_torchrun(two_processes, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["compare", "--preset", "gpt2-six"])
    assert exit.value.code == 2 and "Under torchrun only the command run" in capsys.readouterr().err


def test_the_page_runs_in_one_process(two_processes):
    from visualizer.ui import launch

    with pytest.raises(InflightError, match="start it without torchrun"):
        launch()


@pytest.mark.parametrize("given", ["abc", "-1", "1.5", ""])
def test_a_number_of_processes_that_is_none_is_refused(monkeypatch, given: str):
    monkeypatch.setenv("WORLD_SIZE", given)
    with pytest.raises(
        InflightError, match=f"WORLD_SIZE must be a number of processes, not '{given}'."
    ):
        world_size()
