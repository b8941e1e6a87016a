"""Costs fitted to measured passes: the arithmetic, the error on what was left out, other engines'
recordings, files, and whom a cost is for.
"""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from core import EngineConfig, InflightError, Request, SamplingParams, Trace, Workload
from core.cli import main
from core.cli.fit import _print, _time, examples
from core.cli.report import cost_sentences
from core.errors import InvalidTrace
from core.files import save_json
from core.recorders.convert import open_run
from core.simulate import fitted
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import (
    NOT_KNOWN,
    Linear,
    Measured,
    fit,
    fit_passes,
    measured,
    measured_on,
    time_between_steps,
)
from core.simulate.least_squares import least_squares
from core.simulate.named import READ, cost_in, cost_named
from core.trace.events import Arrived, Finished, Resumed

ROOT = Path(__file__).resolve().parents[2]
SIX = ROOT / "assets/traces/gpt2-six.jsonl"
RECORDING = ROOT / "tests/data/vllm-http/speculation.raw.jsonl.gz"
COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))


def passes(
    loads: list[Load], seconds: list[float] | None = None, cost: Linear = COST
) -> list[Measured]:
    """A pass a step, which takes what `cost` says where nothing else is given."""
    return [
        Measured(i, load, seconds[i] if seconds else cost.seconds(load))
        for i, load in enumerate(loads)
    ]


def ran(policy: str = "continuous", count: int = 6, prompt: int = 4, new: int = 8) -> Trace:
    """A simulated run, told as measured."""
    sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
    requests = [
        Request(f"r{i}", prompt_token_ids=(1,) * prompt, sampling=sampling) for i in range(count)
    ]
    trace = SimulatedEngine(COST, EngineConfig(policy=policy, max_num_seqs=2)).run(
        Workload(requests)
    )
    return replace(trace, header=replace(trace.header, source="live", cost=None))


def call(*args: object) -> int:
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main([str(arg) for arg in args])
    return exit_.value.code or 0


# -- arithmetic ------------------------------------------------------------------------------------


def test_a_fit_finds_the_cost_it_was_made_from():
    loads = [
        Load(tokens, kv)
        for tokens, kv in itertools.product((1, 2, 8, 32, 100), (1000, 5000, 40_000, 90_000))
    ]
    found = fit_passes(passes(loads), 100)
    assert (found.base_s, found.per_token_s, found.per_kv_byte_s) == pytest.approx(
        (0.010, 0.001, 1e-6)
    )
    assert found.error["held_out_passes"] == 20 and found.error["p90"] == pytest.approx(0, abs=1e-6)
    assert (found.least, found.most) == (Load(1, 1000), Load(100, 90_000))
    assert (
        not found.beyond(Load(100, 1)) and found.beyond(Load(101, 1)) and found.beyond(Load(0, 1))
    )
    assert not found.beyond(Load(100, 90_000)) and found.beyond(Load(100, 90_001))


def test_a_fit_is_useless_where_half_of_the_passes_are_off_by_more_than_half():
    assert not replace(COST, error={"median": 0.5, "p90": 0.9}).is_useless
    assert replace(COST, error={"median": 0.51, "p90": 0.9}).is_useless


def test_what_is_predicted_adds_up_to_what_was_measured():
    """Half of the passes take three times as long; the sum is what a simulated run is asked for."""
    rows = [(1.0, n) for n in range(1, 41)]
    took = [(0.01 + 0.001 * n) * (3 if n % 2 else 1) for n in range(1, 41)]
    guess = [
        sum(c * x for c, x in zip(least_squares(rows, took), row, strict=True)) for row in rows
    ]
    assert sum(guess) == pytest.approx(sum(took), rel=1e-3)
    typical = [
        sum(c * x for c, x in zip(least_squares(rows, took, typical=True), row, strict=True))
        for row in rows
    ]
    assert sum(typical) < 0.8 * sum(took)


def test_no_coefficient_is_negative():
    loads = [Load(n, 1000 - 10 * n) for n in range(1, 41)]
    found = fit_passes(passes(loads, [0.02 - 0.0001 * n for n in range(1, 41)]), 1)
    assert min(found.base_s, found.per_token_s, found.per_kv_byte_s) >= 0 and found.per_token_s == 0


def test_a_part_left_out_is_harder_to_predict_than_steps_between_those_that_were_seen():
    """The machine becomes slower in the last fifth: no fit to the rest can know."""
    loads = [Load(1 + n % 7, 1000 * (n % 3)) for n in range(100)]
    slow = [COST.seconds(load) * (2 if n >= 80 else 1) for n, load in enumerate(loads)]
    error = fit_passes(passes(loads, slow), 100).error
    assert error["worst"] == pytest.approx(-0.5, abs=0.01) and abs(error["in_turns"]["worst"]) < 0.1
    assert error["median"] < 0.3 < error["p90"]


def test_all_passes_of_a_step_are_left_out_together():
    loads = [Load(1 + n % 7, 1000 * (n % 3)) for n in range(100)]
    found = [p._replace(step=p.step // 10) for p in passes(loads)]
    late = [p._replace(seconds=2 * p.seconds) if p.step == 9 else p for p in found]
    # a step is a tenth of the run here
    assert fit_passes(late, 100).error["in_turns"]["worst"] < -0.2


def test_attention_is_counted_only_where_it_predicts_better():
    lengths = [n % 40 * 25 + 1 for n in range(1, 201)]
    loads = [Load(n, 100 * n, Load.pairs_of(n, n)) for n in lengths]
    cost = replace(COST, per_pair_s=1e-7)
    assert fit_passes(passes(loads, cost=cost), 100).per_pair_s == pytest.approx(1e-7, rel=0.01)
    assert fit_passes(passes(loads), 100).per_pair_s == 0
    assert fit_passes(passes(loads, cost=cost), 100, typical=True).per_pair_s == 0


def test_what_never_varied_is_counted_to_the_pass_and_said():
    same = fit_passes(passes([Load(8, 800)] * 20), 100)
    assert same.per_token_s == same.per_kv_byte_s == 0 and same.base_s == pytest.approx(
        COST.seconds(Load(8, 800))
    )
    told = fit(ran(count=1, prompt=1, new=40)).assumptions
    assert "Every pass computed 1 positions" not in told and any(
        "computed 1 position," in text for text in told
    )
    (said,) = fitted._undetermined(passes([Load(n, 800) for n in range(1, 5)]))
    assert said.startswith("Every pass read as much of the KV cache")
    assert fitted._undetermined(passes([Load(n, n) for n in range(1, 5)])) == []


def test_the_rest_of_a_step_is_shared_by_its_passes():
    event = ran("split", count=1).events[0]
    event = event._replace(t_end=event.t_end + 0.004)
    found = measured([event], 100)
    assert [p.load for p in found] == [Load(4, 400, 10), Load(1, 500, 5)]
    assert sum(p.seconds for p in found) == pytest.approx(event.t_end - event.t_start)


def test_a_padded_pass_costs_every_position_of_its_rows():
    first = ran("static", count=2, prompt=5).events[0]
    (forward,) = first.passes
    assert (forward.rows, forward.width) == (2, 5)
    assert [p.load.tokens for p in measured([first], 100)] == [10]


def test_a_cost_is_beyond_what_was_measured_on_either_side():
    cost = replace(COST, least=Load(2, 0))
    sizes = {tokens: cost.beyond(Load(tokens, 10_000)) for tokens in (1, 2, 8, 9)}
    assert sizes == {1: True, 2: False, 8: False, 9: True}
    assert cost.beyond(Load(8, 10_001))


def test_who_came_before_is_there_until_the_end():
    """Somebody else comes and goes in a step between."""
    first, *_ = ran(count=1).events
    there = first._replace(t_start=0.0, t_end=1.0)
    guest = Arrived("guest", 2.0), Finished("guest", "length")
    second = first._replace(t_start=3.0, t_end=4.0, arrived=guest[:1], finished=guest[1:])
    third = first._replace(t_start=9.0, t_end=9.5, arrived=())
    assert time_between_steps([there, second, third]) == pytest.approx((2.0 + 5.0) / 2)


def test_the_time_in_which_nobody_is_there_is_not_between_steps():
    """One request after the other, ten seconds apart: the second comes to an empty engine."""
    requests = [
        Request(f"r{i}", prompt_token_ids=(1,), sampling=SamplingParams(1), arrival=10.0 * i)
        for i in range(2)
    ]
    trace = SimulatedEngine(COST).run(Workload(requests, arrival_unit="s"))
    assert len(trace.events) == 2 and time_between_steps(trace.events) == 0.0


def test_the_time_of_steps_that_are_not_shown_is_not_between_steps():
    """A step of a tenth of a second, a gap of nine seconds, and from there on somebody who came in
    it: three seconds until the next step.
    """
    first, *_ = ran(count=1).events
    there = first._replace(t_start=0.0, t_end=0.1)
    came = Resumed(1, 4, 4, (Arrived("late", 5.0),), (Finished("r0", "length"),), (), ())
    nothing = first._replace(arrived=())
    after = nothing._replace(t_start=9.1, t_end=9.2, resumed=came)
    last = nothing._replace(t_start=12.2, t_end=12.3)
    assert time_between_steps([there, after]) == 0.0
    assert time_between_steps([there, after, last]) == pytest.approx(3.0)
    # steps that overlap have no time between them
    assert time_between_steps([there, nothing._replace(t_start=0.05, t_end=0.2)]) == 0.0


def test_the_time_between_steps_is_shared_by_the_passes_of_a_step():
    """What is fitted adds up to the passes and the time between them, once a step."""
    trace = ran("split")
    moved = [
        e._replace(
            t_start=e.t_start + 0.002 * i,
            t_end=e.t_end + 0.002 * i,
            passes=tuple(
                p._replace(t_start=p.t_start + 0.002 * i, t_end=p.t_end + 0.002 * i)
                for p in e.passes
            ),
        )
        for i, e in enumerate(trace.events)
    ]
    found, last = fit(replace(trace, events=moved)), moved[-1].t_end + 0.002
    assert any(len(event.passes) > 1 for event in moved)
    told = sum(found.seconds(p.load) for p in measured(moved, 100))
    assert told == pytest.approx(last - moved[0].t_start, rel=1e-3)


def test_the_time_between_steps_is_part_of_a_pass():
    trace = ran()
    later = [
        e._replace(t_start=e.t_start + 0.002 * i, t_end=e.t_end + 0.002 * i)
        for i, e in enumerate(trace.events)
    ]
    moved = [
        e._replace(
            passes=tuple(
                p._replace(t_start=p.t_start + 0.002 * i, t_end=p.t_end + 0.002 * i)
                for p in e.passes
            )
        )
        for i, e in enumerate(later)
    ]
    found, slower = fit(trace), fit(replace(trace, events=moved))
    load = Load(2, 2000)
    assert slower.seconds(load) - found.seconds(load) == pytest.approx(0.002, rel=0.01)
    assert slower.about["between_s"] == pytest.approx(0.002, rel=0.01)


# -- runs ------------------------------------------------------------------------------------------


def test_a_measured_trace_can_be_fitted_and_a_simulated_one_cannot():
    found = fit(ran())
    assert found.kv_bytes_per_token == 100 and found.seconds(Load(2, 2000)) == pytest.approx(
        COST.seconds(Load(2, 2000)), rel=0.01
    )
    simulated = SimulatedEngine(COST).run(Workload([Request("r", prompt_token_ids=(1,))]))
    with pytest.raises(InflightError, match="measured nothing"):
        fit(simulated)
    with pytest.raises(InflightError, match="3 measured passes are too few"):
        fit(ran(count=1, new=3))
    with pytest.raises(InflightError, match="too coarse"):  # whole milliseconds, in some browsers
        fit_passes(passes([Load(n, n) for n in range(8)], [0.001] * 7 + [0.0]), 1)
    still = [
        e._replace(t_end=e.t_start, passes=tuple(p._replace(t_end=p.t_start) for p in e.passes))
        for e in ran().events
    ]
    with pytest.raises(InflightError, match="has no times of its steps"):
        fit(replace(ran(), events=still))
    # of our own runs no step is left out
    with pytest.raises(InflightError, match="too coarse"):
        fit(replace(ran(), events=[*ran().events[:-1], still[-1]]))


def test_what_is_not_recorded_of_the_hardware_is_not_said():
    trace = ran()
    header = replace(trace.header, device="not recorded", device_name="", threads=None)
    told, *more = fit(replace(trace, header=header)).assumptions
    assert not any(word in note for note in more for word in ("drafted", "overlapped", "left out"))
    assert told.endswith(" by this engine, on hardware that is not recorded.")
    for nothing in ("", None, NOT_KNOWN):
        unknown = replace(COST, about={"device": nothing, "dtype": nothing})
        unknown.check_hardware("cuda", "float16")
    with pytest.raises(InflightError, match="with device cpu, and cuda is asked for"):
        replace(COST, about={"device": "cpu"}).check_hardware("cuda", "auto")


@pytest.mark.slow
def test_steps_whose_end_was_not_recorded_are_left_out_or_refused(tmp_path):
    """As where a recording breaks off; of its whole length, where the recorder knew no ends."""
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        header, *steps = (json.loads(line) for line in lines)

    def without_ends(some: slice) -> Path:
        for step in steps[some]:
            step.pop("t_output", None), step.pop("t_end", None)
        (path := tmp_path / "run.raw.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in (header, *steps))
        )
        return path

    found = fit(open_run(without_ends(slice(100, 103))))
    assert (
        found.about["steps"] == 365
        and "3 steps without a recorded end are left out." in found.assumptions
    )
    with pytest.raises(
        InflightError, match=r"^run.raw.jsonl: This recording has no times of its steps"
    ):
        cost_in(without_ends(slice(None)), open_run)


def test_a_first_step_that_takes_far_too_long_is_left_out():
    """Unless it is larger than all others, of whose like nothing is known."""
    loads = [Load(1 + n % 7, 1000 * (n % 3)) for n in range(40)]

    def kept(times: float, first: Load = loads[0], count: int = 40) -> tuple[int, list[str]]:
        took = [times * COST.seconds(first), *map(COST.seconds, loads[1:count])]
        found, told = fitted._without_warm_up(passes([first, *loads[1:count]], took))
        return len(found), told

    number, (said,) = kept(20.0)
    assert number == 39 and said.startswith("The first step took 0.22 s, 20 times")
    assert kept(fitted._WARM_UP + 0.01)[0] == 39 and kept(fitted._WARM_UP - 0.01) == (40, [])
    largest = Load(7, 2000)
    assert kept(fitted._WARM_UP + 0.01, largest)[0] == 39
    assert kept(fitted._WARM_UP - 0.01, largest) == (40, [])
    assert kept(20.0, Load(8, 0)) == kept(20.0, Load(1, 2001)) == (40, [])
    assert [kept(20.0, count=fitted.LEAST + more)[0] for more in (0, 1)] == [fitted.LEAST] * 2


def test_errors_are_of_each_pass_of_all_and_of_the_part_that_is_furthest_off():
    """Off by a tenth, nothing, a quarter and a tenth; the second half by 1.4 of 8 s."""
    errors = fitted._errors([1.1, 2.0, 3.0, 3.6], [1.0, 2.0, 4.0, 4.0], [0, 0, 1, 1])
    assert errors == {"median": 0.1, "p90": 0.205, "total": -0.1182, "worst": -0.175}


@pytest.mark.slow
def test_a_first_step_that_warms_up_is_left_out_and_said():
    found = fit(open_run(RECORDING))
    assert found.about["steps"] == 368 and found.per_token_s < 0.001
    assert any(text.startswith("The first step took 1.6 s, 55 times") for text in found.assumptions)
    assert any("drafted tokens" in text for text in found.assumptions)
    # its first step is its largest
    assert fit(Trace.load(ROOT / "assets/traces/where-padding-costs.jsonl")).about["steps"] == 28


@pytest.mark.slow
def test_an_engine_whose_steps_overlap_is_fitted_to_the_time_between_their_ends():
    trace = open_run(ROOT / "tests/data/vllm-http/true-async.raw.jsonl.gz")
    found = fit(trace)
    guessed = sum(found.seconds(p.load) for p in measured(trace.events, found.kv_bytes_per_token))
    wall = trace.events[-1].t_end - trace.events[0].t_start
    assert 0.7 * wall < guessed < wall  # the rest are waits for requests
    assert abs(found.error["total"]) < 0.02 and any(
        "overlapped" in text for text in found.assumptions
    )


def test_a_cost_knows_its_model_and_a_simulated_engine_takes_what_it_knows():
    cost = fit(Trace.load(SIX))
    trace = SimulatedEngine(cost).run(Workload([Request("r", prompt_token_ids=(5,) * 20)]))
    model = trace.header.model
    assert (model.name, model.context, model.vocab_size, model.parameters) == (
        "shakespeare-bpe",
        1024,
        2048,
        5_048_576,
    )
    assert (trace.header.device, trace.header.dtype) == ("simulated cpu", "float32")
    with pytest.raises(InflightError, match="context of 1024"):
        SimulatedEngine(cost).run(Workload([Request("r", prompt_token_ids=(5,) * 1100)]))
    with pytest.raises(InflightError, match=r"fitted on shakespeare-bpe .* asked for is llama"):
        SimulatedEngine(cost, name="somewhere/llama")
    cost.check_model("somewhere/shakespeare-bpe", vocab_size=2048, layers=None)
    with pytest.raises(
        InflightError, match=r"and what is asked for is shakespeare-bpe \(65 tokens of vocabulary\)"
    ):
        cost.check_model("shakespeare-bpe", vocab_size=65)
    with pytest.raises(InflightError, match=r"asked for is somewhere/shakespeare-bpe \(65 tokens"):
        cost.check_model("somewhere/shakespeare-bpe", vocab_size=65)


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cost_is_saved_and_simulated_with_as_the_run_itself(tmp_path, capsys):
    saved = tmp_path / "cost.json"
    assert call("fit", SIX, "--out", saved) == 0
    said = capsys.readouterr()
    assert (
        "A pass takes 3.17 ms + 62.6 µs for each position computed." in said.out
        and "each fifth of the run in turn" in said.out
    )
    assert (
        "Fitted to 300 steps of shakespeare-bpe in float32 by this engine, on x86_64, cpu, 2"
        " threads." in said.out
    )
    assert (
        "a prompt of 1,000 tokens in one pass" in said.out
        and "beyond what was measured" in said.out
    )
    assert f"--simulate {saved}" in said.err
    cost = fit(Trace.load(SIX))
    from_file = replace(cost, assumptions=(*cost.assumptions, READ))
    assert cost_in(saved) == cost_named(str(saved)) == from_file
    ends = []
    for named in (SIX, saved):
        assert call("run", "--preset", "one-joins-two", "--simulate", named, "--json") == 0
        ends.append(json.loads(capsys.readouterr().out)["metrics"]["wall_s"])
    assert ends[0] == ends[1] > 0
    assert call("fit", saved, "--json") == 0
    trusted = json.loads(saved.read_text()) | {"assumptions": list(from_file.assumptions)}
    assert json.loads(capsys.readouterr().out) == trusted


def test_a_recording_of_another_engine_is_simulated_with(tmp_path, capsys):
    assert call("run", "--preset", "one-joins-two", "--simulate", RECORDING, "--json") == 0
    header = json.loads(capsys.readouterr().out)["header"]
    assert (
        header["cost"]["about"]["engine"] == "vLLM 0.32.0"
        and header["model"]["name"] == "shakespeare-bpe"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("--preset", "nanogpt-arrivals"),
            (
                "fitted on shakespeare-bpe (5,048,576 parameters, 4 layers, 2,048 tokens of"
                " vocabulary), and what is asked for is shakespeare-char: fit"
            ),
        ),
        (
            ("--preset", "one-joins-two", "--device", "cuda"),
            "with device cpu, and cuda is asked for",
        ),
        (
            ("--preset", "one-joins-two", "--dtype", "bfloat16"),
            "with dtype float32, and bfloat16 is asked for",
        ),
        (("--preset", "greedy-alone-bf16"), "with dtype float32, and bfloat16 is asked for"),
    ],
)
def test_a_cost_of_another_model_or_hardware_is_refused(args, says, capsys):
    assert call("run", *args, "--simulate", SIX) == 2
    assert says in (err := capsys.readouterr().err) and err.count("\n") == 1


def test_requests_that_name_no_model_are_meant_for_the_one_that_was_measured(tmp_path, capsys):
    work, ids = tmp_path / "w.json", tmp_path / "ids.json"
    work.write_text('{"requests": [{"id": "a", "prompt": "What is thy name?"}]}')
    ids.write_text('{"requests": [{"id": "a", "prompt_token_ids": [1, 2, 3]}]}')
    char = ROOT / "assets/traces/nanogpt-arrivals.jsonl"
    assert call("run", "--workload", work, "--simulate", char, "--json") == 0
    header = json.loads(capsys.readouterr().out)["header"]
    assert header["model"]["name"] == "shakespeare-char" and len(header["prompts"]["a"]) == len(
        "What is thy name?"
    )
    assert call("run", "--workload", work, "--simulate", char, "--model", "shakespeare-bpe") == 2
    elsewhere = tmp_path / "cost.json"
    data = fit(Trace.load(SIX)).to_json()
    name = data["about"]["model"]["name"]
    data["about"]["model"] = {"name": "Nowhere-7B", "context": 4096}
    data["assumptions"] = [said.replace(name, "Nowhere-7B") for said in data["assumptions"]]
    elsewhere.write_text(json.dumps(data))
    assert call("run", "--workload", ids, "--simulate", elsewhere) == 0
    assert (
        call("run", "--workload", ids, "--simulate", elsewhere, "--model", "someone/Nowhere-7B")
        == 0
    )
    assert (
        call("run", "--workload", ids, "--simulate", elsewhere, "--model", "someone/Nowhere-8B")
        == 2
    )
    capsys.readouterr()
    assert call("run", "--workload", work, "--simulate", elsewhere) == 2
    assert "the tokenizer of Nowhere-7B" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"base_s": float("nan")},
        {"per_token_s": -1},
        {"kv_bytes_per_token": 1.5},
        {"kv_bytes_per_token": 0},
        {"least": {"tokens": 10**6, "kv_bytes": 0, "pairs": 0}},
        {"most": {"tokens": 1}},
        {"about": {"model": "x"}},
        {"about": []},
        {"about": {"model": {"context": "long"}}},
        {"about": {"model": {"odd": 1}}},
        {"about": {"model": {"layers": 0}}},
        {"about": {"model": {"layers": True}}},
        {"about": {"model": {"layers": 2**63, "context": 1}}},
        {"about": {"device": 3}},
        {"error": 1},
        {"kind": "by hand"},
        {"base_s": 0, "per_token_s": 0, "per_kv_byte_s": 0},
        {"assumptions": 7},
        {"assumptions": "none"},
        {"error": {"median": "x"}},
        {"error": {"median": -0.1}},
        {"error": {"median": 0.1, "in_turns": {"p90": "x"}}},
        {"most": {"tokens": 9.5, "kv_bytes": 10_000_000, "pairs": 0}},
        {"most": {"tokens": "9", "kv_bytes": 10_000_000, "pairs": 0}},
        {"base_s": True},
        {"assumptions": [1]},
        {"unheard_of": 1},
        {"base_s": "1"},
        {"base_s": 1e308},
        {"base_s": 1.01e9},
        {"kv_bytes_per_token": 1_010_000_000},
        {"base_s": 0.6e9, "per_token_s": 0.5e9},  # a pass of both: more than a billion seconds
    ],
)
def test_a_saved_cost_that_was_changed_is_refused(change, tmp_path):
    whole = fit(Trace.load(SIX)).to_json()
    assert Linear.from_json(json.loads(json.dumps(whole))).to_json() == whole
    with pytest.raises(
        InflightError, match="no cost that was fitted|not those of a fitted cost|no field"
    ):
        Linear.from_json(json.loads(json.dumps(whole | change)))


@pytest.mark.parametrize(
    "change",
    [
        {"error": {"p90": 0.0001}},
        {"error": {"p90": 1e308}},  # in percent it would be infinite
        {"error": {"worst": -1e308}},
        {"error": {"total": 0.5}},
        {"error": {"total": -1.5, "worst": -2.0}},
        {"error": {"held_out_passes": 9999}},
        {"error": {"folds": 2}},
        {"error": {"verified": 1.0}},
        {"error": {"in_turns": {"median": 0.1}}},
        {"error": {"in_turns": {"median": 0.1, "p90": 0.2, "total": 0.5, "worst": 0.1}}},
        {"about": {"steps": 9999}},
        {"about": {"passes": 9999}},
        {"about": {"passes": "many"}},
        {"about": {"device_name": "H100"}},
        {"about": {"engine": "vLLM 0.32.0"}},
        {"about": {"threads": 0}},
        {"about": {"tensor_parallel": 0}},
        {"about": {"between_s": -1.0}},
        {"about": {"verified": True}},
        {"most": {"kv_bytes": 10_000_001}},
        {"least": {"kv_bytes": 1}},
        {"kv_bytes_per_token": 1},
        {"assumptions": ["Verified by nobody."]},
        {"assumptions": []},
    ],
)
def test_a_saved_cost_that_contradicts_itself_is_refused(change, tmp_path):
    whole = json.loads(json.dumps(fit(Trace.load(SIX)).to_json()))
    assert Linear.from_json(whole).is_one_fit
    for name, facts in change.items():
        if isinstance(facts, dict):
            whole[name] |= facts
        else:
            whole[name] = facts
    saved = tmp_path / "cost.json"
    save_json(saved, whole)
    with pytest.raises(InflightError, match="its numbers are not those of a fitted cost"):
        cost_in(saved)


def test_a_cost_from_a_file_says_once_that_it_is_taken_on_trust(tmp_path):
    saved, again = tmp_path / "cost.json", tmp_path / "again.json"
    fitted = fit(Trace.load(SIX))
    save_json(saved, fitted.to_json())
    read = cost_in(saved)
    assert read == replace(fitted, assumptions=(*fitted.assumptions, READ))
    save_json(again, read.to_json())
    assert cost_in(again) == read and READ in cost_sentences(read.to_json())
    assert READ not in cost_in(SIX).assumptions  # fitted here


def test_a_cost_that_a_later_version_saved_is_not_read_as_if_it_were_ours(tmp_path):
    saved = tmp_path / "cost.json"
    saved.write_text(json.dumps({"schema": "fit/1", **COST.to_json()}), encoding="utf-8")
    assert cost_in(saved) == replace(COST, assumptions=(READ,))
    saved.write_text(json.dumps({"schema": "fit/2", **COST.to_json()}), encoding="utf-8")
    with pytest.raises(InflightError, match="it has schema 'fit/2', and this version reads fit/1"):
        cost_in(saved)
    saved.write_text('{"kind": "fitted", "kind": "fitted"}', encoding="utf-8")
    with pytest.raises(InflightError, match="the key 'kind' stands twice in one object"):
        cost_in(saved)


def test_a_pass_may_take_up_to_a_billion_seconds():
    slow = fit(Trace.load(SIX)).to_json() | {"per_token_s": 0, "per_kv_byte_s": 0, "per_pair_s": 0}
    assert Linear.from_json(slow | {"base_s": 1e9}).seconds(Load(1, 0)) == 1e9


@pytest.mark.parametrize("data", [None, [], "fitted", {}])
def test_what_is_no_cost_at_all_is_refused(data):
    with pytest.raises(InflightError, match="it is no cost that was fitted"):
        Linear.from_json(data)


def test_any_size_that_a_model_can_have_is_taken():
    sizes = {"layers": 1, "parameters": 2**63 - 1}
    told = replace(COST, about={"model": sizes, "device": None, "dtype": None}).to_json()
    found = Linear.from_json(told)
    assert found.to_json() == told and found.model.parameters == 2**63 - 1
    assert (found.deployment.device, found.deployment.hardware) == ("cpu", "")
    found.check_model("anything", layers=7)  # nobody knows which model was measured


def test_an_error_of_a_fit_is_said_if_all_of_it_is_known():
    whole = fit(Trace.load(SIX)).to_json()
    said = cost_sentences(whole)
    assert said[-1].startswith("The fit is off by ") and said[:-1] == [*whole["assumptions"]]
    for part in ("median", "p90", "total", "worst", "held_out_passes"):
        rest = {name: number for name, number in whole["error"].items() if name != part}
        for error in (rest, rest | {part: "1"}, rest | {part: True}):
            assert cost_sentences(whole | {"error": error}) == said[:-1]
    error = {"median": 0.5, "p90": 0.9, "total": -0.6, "worst": 0.7, "held_out_passes": 1000}
    (fit_is_off,) = cost_sentences({"error": error})
    assert fit_is_off == (
        "The fit is off by 50.0 % (median) and 90.0 % (90th percentile) on 1,000 passes that it had"
        " not seen, each fifth of the run in turn; by -60.0 % in total, and 70.0 % in the worst"
        " fifth."
    )
    assert len(cost_sentences({"error": error | {"median": 0.51}})) == 2


def test_files_that_no_cost_is_in_are_refused_in_a_sentence_that_names_them(tmp_path, capsys):
    short, cut, other, raw = (
        tmp_path / name for name in ("short.jsonl", "cut.jsonl", "other.json", "run.raw.jsonl")
    )
    cut.write_text(SIX.read_text(encoding="utf-8")[:5000], encoding="utf-8")
    other.write_text('{"kind": "fitted", "base_s": -1}')
    with gzip.open(RECORDING, "rt", encoding="utf-8") as lines:
        raw.write_text("".join(itertools.islice(lines, 5)), encoding="utf-8")
    SimulatedEngine(COST).run(Workload([Request("r", prompt_token_ids=(1,))])).save(short)
    for file, why in (
        (short, "measured nothing"),
        (cut, "3 measured passes are too few"),
        (other, "its numbers are not those of a fitted cost"),
        (raw, "4 measured passes are too few"),
        (tmp_path / "none.jsonl", "none.jsonl"),
        (tmp_path, "is a folder"),
    ):
        assert call("fit", file) == 2, file
        err = capsys.readouterr().err
        assert why in err and file.name in err and err.count("\n") == 1, err
    assert call("fit", SIX, "--out", SIX) == 2
    bare = short.rename(tmp_path / "short")
    with pytest.raises(InflightError, match=r"^short: A simulated trace measured nothing"):
        cost_named(str(bare))
    other.write_text("[" * 100_000)
    with pytest.raises(InflightError, match=r"what `fit --out` saves: it is no JSON\.$"):
        cost_in(other)
    with pytest.raises(InflightError) as refused:
        cost_in(tmp_path / "none.jsonl")
    assert str(refused.value).count("none.jsonl") == 1
    whole = SIX.read_text(encoding="utf-8").splitlines(keepends=True)
    (odd := tmp_path / "odd.jsonl").write_text("".join([*whole[:2], "{}\n"]), encoding="utf-8")

    def opened(path):
        raise InvalidTrace("this is no step.", 3)

    for read in (Trace.load, opened):
        with pytest.raises(InflightError, match=r"^odd\.jsonl, line 3: "):
            cost_in(odd, read)


def test_what_was_measured_on_is_all_that_the_header_says_of_it():
    header = Trace.load(SIX).header
    made = replace(header, device_name="two cards", threads=3, tensor_parallel=2, dtype="float16")
    facts = {"device": "cpu", "device_name": "two cards", "threads": 3, "dtype": "float16"}
    of_run = {"engine": None, "workload": header.workload, "created": header.created}
    about = measured_on(made)
    model = about.pop("model")
    assert about == {**facts, **of_run, "tensor_parallel": 2}
    assert model == {name: getattr(header.model, name) for name in model} and "vocab_size" in model


def test_typical_errors_are_shares_of_what_was_measured():
    """1 and 3 with weights 1 and 1/9: (1 + 3/9) ÷ (1 + 1/9)."""
    assert least_squares([[1.0], [1.0]], [1.0, 3.0], typical=True) == pytest.approx([1.2])


def test_a_row_of_nothing_tells_nothing():
    assert least_squares([[0.0], [1.0]], [1.0, 2.0]) == pytest.approx([2.0])


def test_a_time_of_a_pass_is_rounded_before_its_unit_is_chosen():
    told = {
        0.0: "0 µs",
        4.56e-7: "0.456 µs",
        9.994e-4: "999 µs",
        9.996e-4: "1 ms",
        0.0123: "12.3 ms",
    }
    told |= {0.1234: "123 ms", 0.9996: "1 s", 1234.0: "1,234 s"}
    assert {seconds: _time(seconds) for seconds in told} == told


def test_what_is_said_of_a_fit_is_worked_out_from_its_coefficients(capsys) -> None:
    """12.3456 ms for each pass and 2 µs for each position, at 100 bytes of KV a token: of three
    passes the first is no larger than those that were measured.
    """
    cost = fitted.Linear(
        base_s=0.0123456,
        per_token_s=2e-6,
        per_kv_byte_s=0.0,
        kv_bytes_per_token=100,
        most=Load(64, 80_000, 800),
        least=Load(1, 0, 0),
        assumptions=("A fitted cost.",),
        error={
            "median": 0.51,
            "p90": 0.6,
            "total": -0.02,
            "worst": 0.7,
            "held_out_passes": 1000,
            "in_turns": {"median": 0.01, "p90": 0.02, "total": 0.03, "worst": 0.04},
        },
    )
    _print(cost, examples(cost))
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "A fitted cost.",
        "",
        "A pass takes 12.3 ms + 2 µs for each position computed.",
        "For each 1,000 tokens of KV cache read no time could be told from the rest.",
        "",
        "a pass takes",
        "a decode step of 1 request, 500 tokens in its cache 12.3 ms",
        "a decode step of 16 requests, 500 tokens in each cache 12.4 ms beyond what was measured",
        "a prompt of 1,000 tokens in one pass 14.3 ms beyond what was measured",
        "",
        "Measured: 1 to 64 positions and 0 to 800 tokens of KV cache in a pass. Beyond that the"
        " line is only drawn on.",
        "The fit is off by 51.0 % (median) and 60.0 % (90th percentile) on 1,000 passes that it had"
        " not seen, each fifth of the run in turn; by -2.0 % in total, and 70.0 % in the worst"
        " fifth.",
        "That is no prediction of a pass: what depends on single passes, as ITL, or TTFT without a"
        " queue, is not to be believed.",
        "With every fifth step left out instead, beside steps that the fit has seen: 1.0 %, 2.0 %,"
        " 3.0 %, 4.0 %.",
    ]
    both = replace(cost, per_kv_byte_s=1e-8, per_pair_s=2e-12)
    _print(both, [])
    said = capsys.readouterr().out
    assert (
        "A pass takes 12.3 ms + 2 µs for each position computed + 1 ms for each 1,000 tokens of KV"
        " cache read + 2 µs for each million pairs of attention.\n"
    ) in said and "no time could be told" not in said
