"""A recorded comparison that was altered by hand is refused: its rounds, what is said of them, and
the runs that they left behind.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import InflightError
from core.measure.baselines.records import BaselineRun
from core.measure.compare import Comparison, environment, first_differences
from core.measure.faults import _fault_of_turns, _may_differ, fault_of, wrong_time
from core.measure.rounds import RunResult
from core.trace.header import ExecutionFacts
from core.trace.trace import Trace
from visualizer.documents.comparison import RECORDED, load
from visualizer.words.findings import outputs
from worlds.comparison import measured

Told = dict[str, Any]
SUMS = (
    "tokens",
    "differing_tokens",
    "generated_tokens",
    "differing_from_generate",
    "max_logit_difference",
)


@pytest.fixture(scope="module")
def real() -> Comparison:
    return measured()


def told_of(comparison: Comparison) -> Told:
    return json.loads(json.dumps(comparison.to_json()))


def entry(told: Told) -> Any:
    return told["policies"]["continuous"]


def test_a_client_that_leaves_sooner_in_one_run_than_in_the_other_is_no_difference() -> None:
    left = measured(leaves_after=6)
    static, continuous = (run.outputs["r2"] for run in left.runs.values())
    assert len(static) == 0 < len(continuous) < 6
    assert left.outputs_identical and left.is_cut and fault_of(left, told_of(left)) is None
    assert outputs(left) == "Every run wrote the same tokens, as long as the clients stayed."
    whole = measured()
    assert whole.outputs_identical and not whole.is_cut
    one, other = (RunResult({"r": tokens}, cut=frozenset("r")) for tokens in ([1, 2, 3], [1, 9]))
    assert [found["position"] for found in first_differences(one, other, "b")] == [1]
    assert not first_differences(one, replace(other, outputs={"r": [1, 2]}), "b")
    whole = RunResult({"r": [1, 2]})
    assert not first_differences(one, whole, "b") and not first_differences(whole, one, "b")
    assert first_differences(replace(one, cut=frozenset()), whole, "b")


SAID: dict[str, tuple[Callable[[Told], Any], str]] = {
    "another winner": (lambda t: t.update(fastest="nobody"), "fastest"),
    "more rounds": (lambda t: t.update(repeats=50), "repeats"),
    "outputs that differ": (lambda t: t.update(outputs_identical=False), "outputs_identical"),
    "a better median": (lambda t: entry(t)["wall_s"].update(median=1e-9), "wall_s of continuous"),
    "a better ratio": (
        lambda t: entry(t)["ratio_to_baseline"].update(median=9.9),
        "ratio_to_baseline of continuous",
    ),
    "no doubt": (lambda t: t.update(warnings=["It is sure."]), "warnings"),
    "a surer verdict": (lambda t: entry(t)["verdict"].update(chance=0.0), "verdict of continuous"),
}


@pytest.mark.parametrize("lie", SAID)
def test_what_is_said_follows_from_the_rounds(real: Comparison, lie: str) -> None:
    told = told_of(real)
    assert fault_of(real, told) is None
    tell, fact = SAID[lie]
    tell(told)
    assert fact in str(fault_of(real, told))


def test_all_contenders_have_the_same_rounds(real: Comparison) -> None:
    fewer = replace(real, walls=real.walls | {"static": real.walls["static"][1:]})
    assert fault_of(fewer, told_of(real)) == "has more rounds of one contender than of another"


def slower(comparison: Comparison) -> None:
    comparison.walls["static"] = [wall + 1 for wall in comparison.walls["static"]]


def quicker(comparison: Comparison) -> None:
    comparison.walls["continuous"] = [wall / 10 for wall in comparison.walls["continuous"]]


def another_round(comparison: Comparison) -> None:
    comparison.shown["static"] = comparison.shown["static"] % 3 + 1


def less_waste(comparison: Comparison) -> None:
    comparison.medians["static"] = comparison.medians["static"] | {"padding_waste": 0.0}


def another_token(comparison: Comparison) -> None:
    run = comparison.runs["continuous"]
    request, tokens = next(iter(run.outputs.items()))
    comparison.runs["continuous"] = replace(
        run, outputs={**run.outputs, request: [tokens[0] + 1, *tokens[1:]]}
    )


def otherwise(fact: str, value: Any, of: str | None = None) -> Callable[[Comparison], None]:
    def lie(comparison: Comparison) -> None:
        told = comparison.medians["continuous"]
        (told[of] if of else told)[fact] = value

    lie.__doc__ = of or fact  # which the refusal names
    return lie


def more_lanes(comparison: Comparison) -> None:
    about = comparison.about["static"]
    comparison.about["static"] = {**about, "max_num_seqs": about["max_num_seqs"] + 1}


def less_told(comparison: Comparison) -> None:
    del comparison.about["static"]["num_blocks"]  # type: ignore[attr-defined]


def without(fact: str, of: str | None = None) -> Callable[[Comparison], None]:
    def lie(comparison: Comparison) -> None:
        told = comparison.medians["continuous"]
        del (told[of] if of else told)[fact]

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        less_told,
        lambda comparison: comparison.names.append("static"),
        lambda comparison: comparison.shown.pop("static"),
        lambda comparison: comparison.apart.pop("static"),
        lambda comparison: comparison.apart["static"].update(setup_s=-1.0),
        without("budget_use"),
        without("p90", "itl_s"),
        without("sample", "time_s"),
        lambda comparison: comparison.apart["static"].update(setup_s=True),
        otherwise("preemptions", False),
        otherwise("goodput", {"met": 4}),
        otherwise("forward", 1e3, "time_s"),
        otherwise("schedule", 1e3, "time_s"),
        otherwise("mean", 0.0, "itl_s"),
        otherwise("output_tok_s", None),
        slower,
        quicker,
        another_round,
        less_waste,
        another_token,
        more_lanes,
        otherwise("wall_s", 9.0),
        otherwise("output_tok_s", 1e9),
        otherwise("total_tok_s", 1e9),
        otherwise("requests_per_s", 0.1),
        otherwise("count", 5000, "ttft_s"),
        otherwise("left_out", 1, "itl_s"),
        otherwise("p50", 1e3, "itl_s"),
        otherwise("p99", 0.0, "tpot_s"),
        otherwise("max", 1e3, "e2e_s"),
        otherwise("mean", 1e3, "queue_s"),
    ],
)
def test_what_is_said_of_a_contender_is_what_its_run_shows(
    real: Comparison, lie: Callable[[Comparison], None]
) -> None:
    forged = replace(
        real,
        names=list(real.names),
        walls=dict(real.walls),
        runs=dict(real.runs),
        medians=copy.deepcopy(real.medians),
        shown=dict(real.shown),
        about={name: dict(about) for name, about in real.about.items()},
        apart=copy.deepcopy(real.apart),
    )
    assert fault_of(forged, told_of(forged)) is None
    lie(forged)
    found = fault_of(forged, told_of(forged))
    assert found is not None and (lie.__doc__ or "") in found


DIFFERENCE = {
    "policy": "continuous",
    "request": "r0",
    "position": 1,
    "expected": 3,
    "got": 4,
    "margin": 0.1,
}


@pytest.mark.parametrize(
    "lie",
    [
        {"policy": "nobody"},
        {"request": "nobody"},
        {"position": -1},
        {"position": "<b>"},
        {"position": 12},  # of twelve tokens
        {"got": 3},
        {"got": 10**9},
        {"expected": -1},
        {"got": "<b>"},
        {"margin": -1.0},
        {"more": 1},
    ],
    ids=str,
)
def test_a_difference_is_one_that_a_run_can_have(real: Comparison, lie: Told) -> None:
    run = real.runs["continuous"].trace
    assert run is not None
    true = DIFFERENCE | {"request": next(iter(run.asked))}
    twice = replace(real, differences=[true, true])
    assert fault_of(twice, told_of(twice)) == "has a difference that none of its runs can have"
    unknown: list[Told] = [{"got": None}, {"expected": None}, {"margin": None}]
    for told in (true, *(true | nothing for nothing in unknown), true | lie):
        other = replace(real, differences=[told])
        assert (fault_of(other, told_of(other)) is None) == (told != true | lie)


def test_a_difference_of_a_run_without_a_trace_is_bounded_by_the_others(real: Comparison) -> None:
    """A baseline has none, whose requests could be looked up."""
    bare = {name: replace(run, trace=None) for name, run in real.runs.items()}
    one = replace(real, runs=real.runs | {"continuous": bare["continuous"]})
    none = replace(real, runs=bare)
    for told, is_of_one in ((DIFFERENCE, True), (DIFFERENCE | {"request": "nobody"}, False)):
        assert _may_differ(one, told) is is_of_one and _may_differ(none, told)
        assert not _may_differ(none, told | {"got": told["expected"]})


def test_a_baseline_leaves_out_what_is_not_seen_from_outside_and_no_more(
    real: Comparison,
) -> None:
    told = BaselineRun({"r": [0, 0]}, 1.0, {"r": 1}, {"r": [0.5, 1.0]}, 1).metrics()
    run, apart = replace(real.runs["static"], trace=None), {"setup_s": 0.0, "teardown_s": 0.0}

    def is_taken(**altered: Any) -> bool:
        other = replace(
            real,
            walls={"generate-serial": [1.0]},
            runs={"generate-serial": run},
            medians={"generate-serial": told | altered},
            shown={"generate-serial": 1},
            apart={"generate-serial": apart},
        )
        return _fault_of_turns(other, "generate-serial") is None

    assert is_taken()
    known = {name for name, value in told.items() if value is not None}
    assert {name for name in known if is_taken(**{name: None})} == {
        *("steps", "ttft_s", "itl_s", "tpot_s", "e2e_s")
    }


RUN: Told = {
    "wall_s": 2.0,
    "finished": 4,
    "prompt_tokens": 10,
    "output_tokens": 30,
    "output_tok_s": 15.0,
    "total_tok_s": 20.0,
    "requests_per_s": 2.0,
    "queue_s": {
        "count": 4,
        "left_out": 0,
        "mean": 0.1,
        "p50": 0.1,
        "p90": 0.2,
        "p99": 0.2,
        "max": 0.2,
    },
    "ttft_s": {
        "count": 4,
        "left_out": 0,
        "mean": 0.3,
        "p50": 0.3,
        "p90": 0.4,
        "p99": 0.4,
        "max": 0.4,
    },
    "time_s": {
        "schedule": 0.5,
        "prepare": 0.5,
        "forward": 1.0,
        "sample": 0.5,
        "other": 0.3,
        "between": 0.2,
    },
}


@pytest.mark.parametrize(
    ("altered", "walls", "wrong"),
    [
        ({}, [2.0], None),
        ({"output_tok_s": 15.01}, [2.0], "output_tok_s"),
        ({"requests_per_s": 2.01}, [2.0], "requests_per_s"),
        ({"output_tok_s": 15.01}, [2.0, 2.0], "output_tok_s"),
        # in 1.5 s it is 20 a second, in 2.5 s it is 12: 16 in the mean, and no more
        ({"output_tok_s": 16.0}, [1.5, 2.5], None),
        ({"output_tok_s": 16.01}, [1.5, 2.5], "output_tok_s"),
        ({"output_tok_s": 14.99}, [1.5, 2.5], "output_tok_s"),
        ({"output_tok_s": 16.01}, [1.4, 2.6], None),
        ({"output_tok_s": 1e6}, [0.0, 4.0], None),
        ({"ttft_s": RUN["ttft_s"] | {"p50": 0.41}}, [2.0], "ttft_s"),
        ({"ttft_s": RUN["ttft_s"] | {"max": 2.1}}, [2.0], "ttft_s"),
        ({"ttft_s": RUN["ttft_s"] | {"mean": 0.14}}, [2.0], "ttft_s"),
        ({"ttft_s": RUN["ttft_s"] | {"mean": 0.41}}, [2.0], "ttft_s"),
        ({"queue_s": RUN["queue_s"] | {"p90": 0.41, "p99": 0.42, "max": 0.43}}, [2.0], "queue_s"),
        ({"time_s": RUN["time_s"] | {"schedule": 2.1}}, [2.0], "time_s"),
        ({"time_s": RUN["time_s"] | {"schedule": 2.0, "prepare": 2.0}}, [2.0], None),
        ({"time_s": RUN["time_s"] | {"forward": 1.2}}, [2.0], "time_s"),
        # the sum of the medians of three rounds is at most half the time of all
        ({"time_s": RUN["time_s"] | {"forward": 1.2}}, [2.0] * 3, None),
        ({"time_s": RUN["time_s"] | {"forward": 1.9, "sample": 0.7}}, [2.0] * 3, "time_s"),
        ({"time_s": RUN["time_s"] | {"prepare": -0.1}}, [2.0], "time_s"),
        # where the parts are not told
        *(({"time_s": parts}, [2.0], None) for parts in (None, {}, {"forward": None})),
    ],
)
def test_times_and_rates_fit_each_other(altered: Told, walls: list[float], wrong: str) -> None:
    assert wrong_time(RUN | altered, walls, True) == wrong


def test_rates_of_rounds_that_wrote_otherwise_may_be_any() -> None:
    assert wrong_time(RUN | {"output_tok_s": 99.0}, [2.0], False) is None


def test_a_mean_may_differ_in_its_last_digit_and_no_more(real: Comparison) -> None:
    """Pythons before 3.12 add the same numbers to another one."""
    told, medians = told_of(real), copy.deepcopy(real.medians)
    metrics = medians["static"]
    metrics["kv_use"] = math.nextafter(metrics["kv_use"], 1)
    assert fault_of(replace(real, medians=medians), told) is None
    metrics["kv_use"] += 1e-9
    assert "kv_use otherwise than the run of static" in str(
        fault_of(replace(real, medians=medians), told)
    )


def test_where_it_was_measured_is_where_its_runs_ran(real: Comparison) -> None:
    trace = real.runs["static"].trace
    assert trace is not None
    where = environment(trace.header)
    assert fault_of(real, {**told_of(real), "environment": where}) is None
    for fact in ("device", "threads", "dtype", "model", "versions"):
        other = {**told_of(real), "environment": {**where, fact: "another"}}
        assert f"{fact} otherwise than the run of static" in str(fault_of(real, other))


def with_header(**facts: Any) -> Callable[[Trace], Trace]:
    return lambda trace: replace(trace, header=replace(trace.header, **facts))


def asked_otherwise(trace: Trace) -> Trace:
    first, *others = trace.asked.values()
    other = first._replace(request=replace(first.request, priority=3))
    return replace(trace, asked={one.request.id: one for one in (other, *others)})


def another_prompt(trace: Trace) -> Trace:
    first, *others = trace.asked.values()
    other = first._replace(prompt=[first.prompt[0] + 1, *first.prompt[1:]])
    return replace(trace, asked={one.request.id: one for one in (other, *others)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (asked_otherwise, "was asked for other requests in the run"),
        (another_prompt, "was asked for other requests in the run"),
        (with_header(device_name="another"), "has device_name otherwise than the run"),
        (with_header(tensor_parallel=2), "has tensor_parallel otherwise than the run"),
        (with_header(leak=True), "has leak otherwise than the run"),
        (
            with_header(execution=ExecutionFacts(attention="fused")),
            "has execution otherwise than the run",
        ),
        (with_header(more={"unheard_of": 1}), "has a field 'unheard_of', which no recording has,"),
    ],
)
def test_all_runs_are_of_the_same_requests_on_the_same_machine(
    real: Comparison, change: Callable[[Trace], Trace], says: str
) -> None:
    run = real.runs["continuous"]
    assert run.trace is not None
    forged = replace(real, runs={**real.runs, "continuous": replace(run, trace=change(run.trace))})
    fault = fault_of(forged, told_of(forged))
    assert fault is not None and fault.startswith(says) and fault.endswith(" of continuous")


def test_a_run_has_the_name_of_its_own_policy(real: Comparison) -> None:
    def called(name: str) -> Comparison:
        def renamed(by_name: Any) -> Any:
            return {name if of == "continuous" else of: value for of, value in by_name.items()}

        every = ("walls", "runs", "medians", "about", "shown", "apart")
        other = {of: renamed(getattr(real, of)) for of in every}
        return replace(real, names=["static", name], **other)

    for own in ("continuous", "continuous, budget 8"):
        assert fault_of(called(own), told_of(called(own))) is None
    for other in ("dynamic", "vLLM", "continuous (better)", "mine", ""):
        forged = called(other)
        assert fault_of(forged, told_of(forged)) == f"has policy otherwise than the run of {other}"
    bare = {name: replace(run, trace=None) for name, run in real.runs.items()}
    for other in ("continuous", "vLLM", "SGLang on 8 GPUs"):
        forged = called(other)
        forged.runs[other] = bare["continuous"]
        assert fault_of(forged, told_of(forged)) == f"has no run of {other}"


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_every_round_took_time(real: Comparison, seconds: float) -> None:
    walls = copy.deepcopy(real.walls)
    hidden = real.shown["static"] % 3
    walls["static"][hidden] = seconds
    forged = replace(real, walls=walls)
    assert fault_of(forged, told_of(real)) == "has a round that took no time"


def copied(name: str, into: Path) -> tuple[Path, Told]:
    """A comparison that ships, which is believed, to be altered: its folder, and what it says."""
    folder = into / name
    shutil.copytree(RECORDED / name, folder)
    load(folder)
    return folder, json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_what_is_said_beside_the_runs_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of a step and the texts written alone, of a comparison that ships. Its runs, which
    stay as they are, are read once.
    """
    read = functools.cache(Trace.from_lines)
    monkeypatch.setattr(Trace, "from_lines", lambda lines: read(tuple(lines)))
    folder, true = copied("gpt2-six", tmp_path)
    point, alone = ("cost_curve", "by_tokens", 0), ("equivalence", "leak")
    for way, fact in [
        *((point, fact) for fact in ("median_s", "min_s", "max_s")),
        *((alone, fact) for fact in true["equivalence"]["leak"] if fact in SUMS),
        *(((*alone, "requests", 0), f"differing_{of}") for of in ("tokens", "from_generate")),
        ((*alone, "requests", 0, "parting"), "position"),
    ]:
        told = copy.deepcopy(true)
        holder = functools.reduce(lambda inner, key: inner[key], way, told)
        holder[fact] += 1
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(InflightError, match="does not add up"):
            load(folder)
    honest = ("equivalence", "honest")
    waves = ("policies", "generate-waves", "metrics")
    for way, value in [
        (("unheard_of",), 1),
        (("policies", "static", "unheard_of"), 1),
        (("environment", "unheard_of"), 1),
        (("environment", "cpus"), -2),
        (("environment", "load_average"), -1.0),
        (("environment", "system"), 5),
        (("title",), ["a", "b"]),
        (("traces", "static"), "../gpt2-six/0-static.jsonl.gz"),
        (("policies", "static", "wall_s", "runs", 0), 0.0),
        (("source",), "live"),
        (("workload",), "another"),
        (("created",), "2020-01-01T00:00:00+00:00"),
        (("cost_curve", "model", "name"), "another"),
        (("cost_curve", "device"), "cuda:0"),
        ((*point, "tokens"), 3),
        ((*honest, "leak"), True),
        ((*honest, "config", "max_num_seqs"), 4),
        ((*honest, "requests", 0, "batched_text"), "Other words."),
        ((*alone, "requests", 0, "request"), "r1"),
        ((*alone, "requests", 0, "solo_text"), "Other words."),
        ((*alone, "requests", 0, "parting", "solo"), 0),
        ((*alone, "requests", 0, "compared"), 2),  # they part at once
        ((*waves, "requests"), 7),
        ((*waves, "padding_waste"), 0.0),
        (("policies", "generate-waves", "shown_round"), 99),
        (("environment", "load_average"), True),
        (("schema",), True),
        (("repeats",), float(true["repeats"])),
        (("policies", "static", "verdict", "decided"), 0),
        (("policies", "static", "about", "prefix_caching"), 0),
        ((*honest, "requests", 0, "compared"), 0),
        ((*alone, "requests", 0, "parting", "margin"), -0.1),
    ]:
        told = copy.deepcopy(true)
        *inside, last = way
        functools.reduce(lambda inner, key: inner[key], inside, told)[last] = value
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(InflightError):
            load(folder)
    for name, metric in (("generate-waves", "padding_waste"), ("static", "budget_use")):
        told = copy.deepcopy(true)
        del told["policies"][name]["metrics"][metric]
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(InflightError, match=f"{metric} in another form than its run"):
            load(folder)
    for seconds in (-0.1, 0.0, True):
        told = copy.deepcopy(true)
        first = told["cost_curve"]["by_tokens"][0]
        first |= dict.fromkeys(("median_s", "min_s", "max_s"), seconds)
        first["runs_s"] = [seconds] * len(first["runs_s"])
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(InflightError, match="The cost curve of the comparison"):
            load(folder)
    told = copy.deepcopy(true)
    for one in (told["equivalence"]["honest"], *told["equivalence"]["honest"]["requests"]):
        one["max_logit_difference"] = -1.0
    (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(InflightError, match="The equivalence of the comparison"):
        load(folder)
    text = json.dumps(true)
    for more, says in (('"title": "A", ', "'title' stands twice"), ('"group": NaN, ', "NaN is no")):
        (folder / "comparison.json").write_text("{" + more + text[1:], encoding="utf-8")
        with pytest.raises(InflightError, match=says):
            load(folder)
    # the same false words in every place that has them
    told = copy.deepcopy(true)
    for switch, names in (("honest", ("solo_text", "batched_text")), ("leak", ("solo_text",))):
        for name in names:
            told["equivalence"][switch]["requests"][0][name] = "Other words."
    (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(InflightError, match="does not add up"):
        load(folder)


@pytest.mark.slow
def test_a_point_of_a_sweep_has_the_numbers_of_a_run_and_no_others(tmp_path: Path) -> None:
    folder, told = copied("poisson-32", tmp_path)
    cut = next(point["numbers"] for point in told["load"]["points"] if point["cut"])
    # nobody had ended before the time was up, as far as times per token say
    cut["tpot_s"] = dict.fromkeys(cut["tpot_s"]) | {"count": 0, "left_out": 0}
    (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
    load(folder)
    point = told["load"]["points"][0]
    numbers = point["numbers"]
    for inside, name, value in (
        (numbers["ttft_s"], "p999", 0.1),
        (numbers["time_s"], "other", -0.001),
        (point, "cut", 0),
        (point, "offered", float(point["offered"])),
        (told["load"], "complete", 1),
        (told["load"], "capacity_requests_per_s", -1.0),
    ):
        before = dict(inside)
        inside[name] = value
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(InflightError, match="sweep"):
            load(folder)
        inside.clear()
        inside.update(before)
    # the first recordings have none; they name the contenders, too
    told["load"].pop("capacities", None)
    told_of = point["policy"]
    for name in (told_of, "nobody"):
        for one in told["load"]["points"]:
            one["policy"] = name if one["policy"] == told_of else one["policy"]
        (folder / "comparison.json").write_text(json.dumps(told), encoding="utf-8")
        with nullcontext() if name != "nobody" else pytest.raises(InflightError, match="sweep"):
            load(folder)
