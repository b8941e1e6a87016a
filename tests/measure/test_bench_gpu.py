"""The GPU benchmark on a CPU: every part runs on tiny shapes with the real engine and the real
baselines; nothing is timed here.
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import measure.gpu
from core.config import EngineConfig, Execution
from core.errors import InflightError
from core.measure.baselines import baseline_requests
from core.measure.baselines.transformers_continuous import Variant
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.torch_engine.engine import Engine
from core.torch_engine.models.probe import probe
from measure import app_of
from measure.bench import gpu
from measure.bench.gpu import FULL, TINY, Device, report, run
from measure.bench.gpu.parts import (
    SWITCHES,
    BenchmarkPart,
    NoEvents,
    benchmark_parts,
    continuous,
    decode_steps,
    engine_for,
    timed,
    try_settings,
)
from measure.bench.gpu.scale import LLAMA_1B, LLAMA_8B, QWEN3_06B, PartContext, weight_bytes_read
from measure.gpu import print_gpu
from worlds.clock import Clock
from worlds.documented import check, schemas

CPU = torch.device("cpu")
NAMES = [
    "accuracy",
    "qwen3-0.6b",
    "transformers-continuous",
    "llama-3.2-1b-decode",
    "llama-3.1-8b-decode",
    "ablation",
    "generate-waves",
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One run of everything: the file, its content, what was said on the way."""
    out, said = tmp_path_factory.mktemp("gpu") / "gpu.json", []
    data = run(TINY, Device(CPU), out=out, note=said.append)
    return out, data, said


def _model(shape=TINY.main):
    return shape.build(CPU, torch.float32, TINY.context, initializer_range=TINY.accuracy_range)


# -- shapes and scale ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, parameters, read",
    [
        (QWEN3_06B, 596_049_920, 2 * 596_049_920),
        (LLAMA_1B, 1_235_814_400, 2 * 1_235_814_400),
        # an untied table is not read, only rows of it
        (LLAMA_8B, 8_030_261_248, 2 * (8_030_261_248 - 128_256 * 4096)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_shapes_are_those_of_the_published_models(shape, parameters, read):
    model = shape.build(torch.device("meta"), torch.bfloat16, FULL.context)
    assert (
        sum(p.numel() for p in model.parameters()) == parameters and model.dtype == torch.bfloat16
    )
    assert weight_bytes_read(model) == read
    assert model.config.rope_parameters["rope_theta"] == (1e6 if shape is QWEN3_06B else 5e5)


def test_models_are_drawn_from_their_seed():
    first, second, other = (TINY.main.build(CPU, torch.bfloat16, 64, seed) for seed in (0, 0, 1))
    weights = [m.model.layers[1].mlp.down_proj.weight for m in (first, second, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert 0.015 < weights[0].float().std() < 0.025 and not first.training


def test_the_workload_is_the_one_of_nano_vllm():
    whole, compared = FULL.workload(), FULL.workload(FULL.compared)
    assert len(whole) == 256 and list(compared) == list(whole)[:64]
    prompts = [len(r.prompt_token_ids) for r in whole]
    new = [r.sampling.max_new_tokens for r in whole]
    assert all(100 <= n <= 1024 for n in prompts + new) and min(new) < 120 and max(prompts) > 1000
    assert all(r.sampling.ignore_eos and not r.sampling.temperature for r in whole)
    assert max(r.sampling.max_new_tokens for r in FULL.workload(64, 256)) == 256
    assert all(p + n <= FULL.context for p, n in zip(prompts, new, strict=True))


@pytest.mark.parametrize("scale", [FULL, TINY], ids=["full", "tiny"])
def test_the_decode_steps_are_at_the_wanted_context(scale):
    workload = scale.decode_workload(scale.decode[0])
    config = EngineConfig(
        max_num_seqs=scale.lanes,
        max_num_batched_tokens=scale.budget,
        block_size=scale.block_size,
        num_blocks=scale.num_blocks(workload),
    )
    events = SimulatedEngine(cost_named("h100:1b"), config, vocab_size=10**6).run(workload).events
    steps = decode_steps(events, scale.lanes, 10, 1, 1e9)
    assert scale.decode_steps <= steps["steps"] <= 3 * scale.decode_steps
    assert steps["context"] == pytest.approx(scale.decode_context, rel=0.05)
    assert not any(event.preempted for event in events)


def test_the_ablation_turns_every_switch_off_once():
    changed = [name for changes in SWITCHES.values() for name in changes]
    assert sorted(changed) == sorted(
        {f.name for f in fields(Execution)} - {"gpu_memory_utilization"}
    )
    assert all(Execution(**changes) != Execution() for changes in SWITCHES.values() if changes)


# -- every part ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_part_runs_and_is_on_record(measured):
    out, data, said = measured
    assert [part.name for part in benchmark_parts(TINY)] == list(data["parts"]) == NAMES
    assert {
        name: part["why"] for name, part in data["parts"].items() if part["status"] != "done"
    } == {}
    assert json.loads(out.read_text()) == json.loads(json.dumps(data, allow_nan=False))
    assert (
        data["quick"]
        and data["key"]["device"] == "cpu"
        and data["key"]["versions"]["torch"] == torch.__version__
    )
    assert list(out.parent.iterdir()) == [out]
    assert any(
        "ms a step" in line for line in said
    ) and "Accuracy of the packed step, qwen3-0.6b, in " in "".join(said)


@pytest.mark.slow
def test_ratios_compare_the_same_requests(measured):
    _, data, _ = measured
    found = {name: part["result"] for name, part in data["parts"].items()}
    whole, compared = found["qwen3-0.6b"]["all"], found["qwen3-0.6b"]["compared"]
    assert (
        whole["workload"]["requests"] == TINY.requests
        and whole["output_tokens"] == whole["workload"]["output_tokens"]
    )
    for name in ("transformers-continuous", "generate-waves"):
        theirs = found[name]
        assert (
            theirs["workload"] == compared["workload"]
            and theirs["output_tokens"] == compared["output_tokens"]
        )
        assert not theirs["cut"]
        ratio = next(r for r in data["report"]["ratios"] if r["than"] == name)
        assert ratio["median"] == pytest.approx(
            compared["output_tok_s"] / theirs["output_tok_s"], abs=1e-6
        )
        assert theirs["output_tok_s"] == pytest.approx(
            theirs["output_tokens"] / theirs["seconds"], rel=0.01
        )
    assert {row["output_tokens"] for row in found["ablation"]["rows"]} == {
        found["ablation"]["workload"]["output_tokens"]
    }
    assert [row["name"] for row in found["ablation"]["rows"]] == list(SWITCHES)


@pytest.mark.slow
def test_what_the_events_say_is_in_the_result(measured):
    _, data, _ = measured
    found = {name: part["result"] for name, part in data["parts"].items()}
    whole = found["qwen3-0.6b"]
    times = whole["all"]["metrics"]
    assert (
        0 < whole["all"]["idle"] < 1
        and times["time_s"]["forward"] > 0
        and times["output_tokens"] == whole["all"]["output_tokens"]
    )
    assert len(whole["recording"]["slowdowns"]) == TINY.repeats
    for shape in TINY.decode:
        step = found[f"{shape.name}-decode"]
        read = step["weight_bytes"] + step["kv_bytes_per_token"] * step["lanes"] * step["context"]
        expected = read / step["bandwidth_bytes_s"]
        assert step["floor_s"] == pytest.approx(expected, rel=0.1) and 0 < step["share"] < 1
        # K and V, layers, heads, size, bytes
        assert step["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2 and not step["run"]["cut"]
    greedy, logits = found["accuracy"]["greedy"], found["accuracy"]["logits"]
    assert greedy["different_requests"] == 0 and greedy["tokens"] == logits["tokens"] == 18
    assert 0.8 < logits["ratio"] < 1.2 and 0 < logits["packed_rms"] < 0.1 * logits["logits_rms"]


@pytest.mark.slow
def test_the_paged_kernel_running_ahead_is_accurate_too(monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    from worlds.triton_cases import DEVICE

    def engine(*args, **kwargs):
        return Engine(
            *args, **{**kwargs, "execution": Execution(attention="triton", asynchronous=True)}
        )

    monkeypatch.setattr("measure.bench.gpu.parts.Engine", engine)
    # interpreted
    few = replace(TINY, accuracy_requests=2, lengths=(5, 9), accuracy_tokens=3, accuracy_budget=8)
    result = run(few, Device(DEVICE), names=["accuracy"])["parts"]["accuracy"]
    assert result["status"] == "done", result["why"]
    assert (
        result["result"]["greedy"]["different_requests"] == 0
        and 0.8 < result["result"]["logits"]["ratio"] < 1.2
    )


@pytest.mark.slow
def test_settings_that_do_not_run_say_why(measured):
    _, data, _ = measured
    result = data["parts"]["transformers-continuous"]["result"]
    settings = ("attention", "use_cuda_graph", "use_async_batching")
    by_setting = {tuple(p["settings"][name] for name in settings): p for p in result["probes"]}
    assert {"sdpa", "eager"} <= {attention for attention, *_ in by_setting}
    assert all((p["step_s"] is None) != (p["error"] is None) for p in by_setting.values())
    if not torch.cuda.is_available():
        assert (
            "graphs off" in by_setting["sdpa", True, False]["error"]
            and "sync" in by_setting["sdpa", False, True]["error"]
        )
        # not once for every mode
        assert len([key for key in by_setting if key[0] == "flash_attention_2"]) == 1
    assert (
        result["settings"]["attention"] in ("sdpa", "eager")
        and result["settings"]["max_batch_tokens"] == TINY.budget
    )


@pytest.mark.slow
def test_the_result_is_printed(measured, capsys):
    _, data, _ = measured
    print_gpu(data)
    text = capsys.readouterr().out
    assert (
        "no number means anything" in text and "MISSED" not in text and "; the bar is" not in text
    )
    assert (
        "no CUDA graphs" in text
        and "eager, no graphs, step by step" in text
        and "inflight against transformers-continuous" in text
    )
    assert "bfloat16, random weights; python" in text


@pytest.mark.slow
def test_the_docs_describe_the_result(measured):
    text = (Path(__file__).resolve().parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    check(measured[1], schemas(text)[0])
    table = text.split("| part | its result |")[1]
    for name, part in measured[1]["parts"].items():
        row = next(
            row
            for row in table.splitlines()
            if f"`{name}`" in row or ("`*-decode`" in row and name.endswith("-decode"))
        )
        assert all(f"`{key}`" in row or f"`{key}`" in text for key in part["result"]), name


# -- bars ------------------------------------------------------------------------------------------


def _full(measured):
    data = copy.deepcopy(measured[1])
    data["quick"] = False
    return data


@pytest.mark.slow
def test_bars_are_met_or_missed(measured, capsys):
    data = _full(measured)
    found = {name: part["result"] for name, part in data["parts"].items()}
    whole = found["qwen3-0.6b"]
    whole["compared"]["output_tok_s"], found["transformers-continuous"]["output_tok_s"] = (
        5100.0,
        1000.0,
    )
    whole["all"]["idle"], whole["recording"]["slowdown"] = 0.02, 0.005
    found["llama-3.2-1b-decode"]["share"], found["llama-3.1-8b-decode"]["share"] = 0.61, 0.49
    found["accuracy"]["logits"]["ratio"] = 1.3
    verdict = report(data)
    assert {r.than: r.met for r in verdict.ratios} == {
        "transformers-continuous": True,
        "generate-waves": None,
    }
    met = {limit.what: limit.met for limit in verdict.limits}
    assert [what.split(",")[0] for what, value in met.items() if value is False] == [
        "error of packed bf16 logits",
        "decode step of llama-3.1-8b",
    ]
    assert sum(value is True for value in met.values()) == 4 and not verdict.met
    data["report"] = verdict.to_json()
    print_gpu(data)
    text = capsys.readouterr().out
    assert (
        "5.10×; the bar is at least 5.0×: met" in text
        and "49 %; the bar is at least 50: MISSED" in text
    )
    assert "0 requests; the bar is at most 0: met" in text


@pytest.mark.slow
def test_what_did_not_run_has_no_bar(measured):
    data = _full(measured)
    for name in ("accuracy", "transformers-continuous", "llama-3.1-8b-decode"):
        data["parts"][name] = {
            "title": name,
            "status": "failed",
            "why": "x",
            "notes": [],
            "took_s": 1,
            "result": None,
        }
    verdict = report(data)
    assert [r.than for r in verdict.ratios] == ["generate-waves"]
    assert sum(limit.met is not None for limit in verdict.limits) == 3


def test_the_device_is_idle_while_no_pass_runs():
    workload = TINY.workload(3)
    run = timed(engine_for(probe(_model()), TINY, workload), workload, Device(CPU))
    event = run.trace.events[0]

    def at(start, end):
        return event._replace(
            arrived=(),
            t_start=start,
            t_end=end,
            passes=(event.passes[0]._replace(t_start=start, t_end=end),),
        )

    run.trace.events[:] = [at(0.0, 1.0), at(1.5, 2.5), at(2.5, 4.0)]
    assert run.to_json()["idle"] == pytest.approx(0.5 / 4)


def test_a_run_without_events_takes_the_same_steps():
    workload = TINY.workload(2)
    engine = engine_for(probe(_model()), TINY, workload)
    whole = engine.run(workload)
    engine.recorder = NoEvents(whole.events[0])
    without = engine.run(workload)
    assert len(without.events) == len(whole.events) > 3 and all(
        event is whole.events[0] for event in without.events
    )


# -- cuts and fallbacks ----------------------------------------------------------------------------


class Ticking(Clock):
    """A second goes by whenever somebody looks."""

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_run_is_cut_and_counted_up_to_there():
    workload = TINY.workload()
    engine = engine_for(probe(_model()), TINY, workload)
    cut = timed(engine, workload, Device(CPU, Ticking()), limit_s=4)
    told, asked = cut.to_json(), sum(r.sampling.max_new_tokens for r in workload)
    assert told["cut"] and 0 < told["output_tokens"] < asked and cut.seconds == 6
    told = timed(engine, workload, Device(CPU)).to_json()
    assert not told["cut"] and told["output_tokens"] == asked


@pytest.mark.slow
def test_transformers_is_cut_too_and_falls_back_to_the_next_best_setting():
    model, work = _model(), baseline_requests(TINY.workload(4), None)
    context = PartContext(replace(TINY, lanes=4, baseline_s=3.0), Device(CPU, Ticking()))
    tried = [
        {
            "settings": Variant(attention)._asdict(),
            "step_s": step_s,
            "error": None if step_s else "no",
        }
        for attention, step_s in (("sdpa", 0.2), ("magic", 0.1), ("eager", None))
    ]
    result = continuous(context, model, work, tried)
    assert result["settings"]["attention"] == "sdpa" and [
        f["settings"]["attention"] for f in result["failed"]
    ] == ["magic"]
    assert result["cut"] and 0 < result["output_tokens"] < sum(
        request.max_new_tokens for request in work
    )
    with pytest.raises(InflightError, match="none of its settings"):
        continuous(context, model, work, tried[1:])


@pytest.mark.slow
def test_a_switch_that_cannot_be_off_says_why(monkeypatch, capsys):
    monkeypatch.setattr(
        "measure.bench.gpu.parts.SWITCHES",
        {"asynchronous": {"asynchronous": True}, "everything on": {}},
    )
    data = run(TINY, Device(CPU), names=["ablation"])
    rows = data["parts"]["ablation"]["result"]["rows"]
    assert (
        "paged kernel" in rows[0]["error"]
        and rows[1]["error"] is None
        and rows[1]["output_tok_s"] > 0
    )
    print_gpu(data)
    assert "  asynchronous: Asynchronous execution needs" in capsys.readouterr().out


@pytest.mark.slow
def test_probing_ends_when_its_time_is_up():
    work, said = baseline_requests(TINY.workload(2, 4), None), []
    context = PartContext(
        replace(TINY, lanes=2, probe_s=1000.0, probes_s=5.0),
        Device(CPU, Ticking()),
        say=said.append,
    )
    found = try_settings(context, _model(), work)
    assert any("the time for trying was up" in (p["error"] or "") for p in found)
    assert said == [f"  {note}" for note in context.notes] and len(said) == len(found)


# -- parts one after the other ---------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch):
    """Three parts that take ten seconds each; `fails` names those that fail."""
    clock, log, fails = Clock(), [], set()

    def part(name: str) -> BenchmarkPart:
        def work(context):
            log.append(name)
            clock.now += 10
            if name in fails:
                raise RuntimeError("CUDA error: out of memory. And a page of advice.")
            return {"number": len(log)}

        return BenchmarkPart(name, name.upper(), 12.0, work)

    monkeypatch.setattr(
        gpu, "benchmark_parts", lambda scale: [part(name) for name in ("a", "b", "c")]
    )
    monkeypatch.setattr(gpu, "report", lambda data: report({**data, "parts": {}}))
    return clock, log, fails


SLOW = replace(TINY, quick=False)


@pytest.mark.slow
def test_a_part_that_fails_says_why_and_the_next_one_runs(small_parts, tmp_path):
    clock, log, fails = small_parts
    fails.add("b")
    data = run(SLOW, Device(CPU, clock), out=tmp_path / "x.json")
    assert log == ["a", "b", "c"] and [p["status"] for p in data["parts"].values()] == [
        "done",
        "failed",
        "done",
    ]
    assert (
        data["parts"]["b"]["why"] == "RuntimeError: CUDA error: out of memory"
        and data["parts"]["b"]["took_s"] == 10
    )
    assert (
        data["parts"]["b"]["where"][-1].startswith("test_bench_gpu.py:")
        and data["parts"]["a"]["where"] == []
    )


def test_numbers_that_are_none_fail_a_part(monkeypatch, tmp_path):
    monkeypatch.setattr(
        gpu,
        "benchmark_parts",
        lambda scale: [BenchmarkPart("a", "A", 0, lambda context: {"ratio": math.nan})],
    )
    monkeypatch.setattr(gpu, "report", lambda data: report({**data, "parts": {}}))
    data = run(TINY, Device(CPU), out=tmp_path / "x.json")
    assert data["parts"]["a"]["status"] == "failed" and "float" in data["parts"]["a"]["why"]


@pytest.mark.slow
def test_resuming_runs_the_rest_with_what_failed_last(small_parts, tmp_path):
    clock, log, fails = small_parts
    fails.add("b")
    out, device = tmp_path / "x.json", Device(CPU, clock)
    run(SLOW, device, out=out, names=["b", "a"])
    assert log == ["a", "b"] and json.loads(out.read_text())["parts"]["c"]["status"] == "not run"
    fails.clear()
    data = run(SLOW, device, out=out, resume=True)
    assert log == ["a", "b", "c", "b"] and all(
        p["status"] == "done" for p in data["parts"].values()
    )
    assert data["parts"]["a"]["result"] == {"number": 1}
    said = []
    run(replace(SLOW, block_size=8), device, out=out, resume=True, note=said.append)
    assert log[4:] == ["a", "b", "c"] and "a different scale" in said[0]


@pytest.mark.slow
def test_what_does_not_fit_the_time_is_not_begun(small_parts, tmp_path):
    clock, log, _ = small_parts
    data = run(SLOW, Device(CPU, clock), out=tmp_path / "x.json", minutes=0.5)
    assert log == ["a", "b"] and data["parts"]["c"]["status"] == "not run"
    assert data["parts"]["c"]["why"] == "of 0.5 minutes 10 s were left, and it takes about 12"


def test_a_lost_device_ends_the_run(small_parts):
    clock, log, fails = small_parts
    fails.add("a")
    device = Device(CPU, clock)
    device.answers = lambda: False  # type: ignore[method-assign]
    data = run(SLOW, device)
    assert (
        log == ["a"]
        and data["parts"]["b"]["why"]
        == "the device stopped answering in a; run again with --resume"
    )


@pytest.mark.slow
def test_the_file_is_whole_or_as_it_was(small_parts, tmp_path, monkeypatch):
    clock, _, _ = small_parts
    out = tmp_path / "x.json"
    run(SLOW, Device(CPU, clock), out=out, names=["a"])
    before = out.read_text()

    def stops(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stops)
    with pytest.raises(KeyboardInterrupt):
        run(SLOW, Device(CPU, clock), out=out)
    assert out.read_text() == before


def test_what_cannot_be_run_or_resumed_is_refused(tmp_path):
    with pytest.raises(InflightError, match=r"no part 'magic'.*accuracy, qwen3-0.6b"):
        run(TINY, Device(CPU), names=["magic"])
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(InflightError, match="not a result of this benchmark"):
        run(TINY, Device(CPU), out=other, resume=True)


@pytest.mark.slow
def test_the_command_writes_resumes_and_prints(tmp_path, monkeypatch):
    """On a CPU that says it were a GPU."""
    cuda = SimpleNamespace(is_available=lambda: True, current_device=lambda: 0)
    monkeypatch.setattr("measure.gpu.torch", SimpleNamespace(cuda=cuda, device=lambda *args: CPU))
    out = tmp_path / "gpu.json"
    command = ["--quick", "--out", str(out), "--parts"]
    first = CliRunner().invoke(app_of(measure.gpu.gpu), [*command, "generate-waves"])
    assert first.exit_code == 0, first.output
    assert (
        "generate in static waves, qwen3-0.6b, in " in first.stdout
        and "not run, it was not asked for." in first.stdout
    )
    second = CliRunner().invoke(
        app_of(measure.gpu.gpu),
        [*command, "generate-waves, llama-3.2-1b-decode", "--resume", "--json"],
    )
    data = json.loads(second.stdout)
    assert data == json.loads(out.read_text()) and "kept from" in second.stderr
    assert [name for name, part in data["parts"].items() if part["status"] == "done"] == [
        "llama-3.2-1b-decode",
        "generate-waves",
    ]


@pytest.mark.parametrize(
    "args, reason", [([], "needs a CUDA device"), (["--resume"], "give --out too")]
)
def test_the_command_refuses(args, reason):
    if torch.cuda.is_available() and not args:
        pytest.skip("a GPU is here, so the command would run")
    result = CliRunner().invoke(app_of(measure.gpu.gpu), args)
    assert isinstance(result.exception, InflightError) and reason in str(result.exception)
