"""What other settings would have made of a recorded run: predictions against what is known, when
nothing is ranked, what is said of a recording, and the command.
"""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import inflight
from core import EngineConfig, InflightError, Request, SamplingParams, SLOs, Trace, Workload, page
from core.account.request_times import request_times
from core.cli import main
from core.cli.plan import _print, _signed
from core.measure.plan import _setting, numbers_of, plan
from core.policy import RecordedPolicy
from core.proof.verify import check
from core.recorders.convert import open_run
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear, fit
from core.trace.events import Draft, Resumed
from core.trace.header import EngineFacts
from visualizer.words.language import speaking, t

ROOT = Path(__file__).resolve().parents[2]
HTTP = ROOT / "tests/data/vllm-http"
ASYNC, RESET = HTTP / "async.raw.jsonl.gz", HTTP / "reset-running.raw.jsonl.gz"
SIX = ROOT / "assets/traces/gpt2-six.jsonl"
PRIORITY = HTTP / "priority-smollm2.raw.jsonl.gz"
COST = Linear(0.010, 0.001, 0.0, 1, Load(64, 10_000))


def measured(count: int = 6, new: int = 4, **limits: Any) -> Trace:
    """A run of prompts of 4 tokens in which every pass took what `COST` says, told as measured."""
    sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
    requests = [
        Request(f"r{i}", prompt_token_ids=(1,) * 4, sampling=sampling, arrival=i / 1000)
        for i in range(count)
    ]
    config = EngineConfig(**{"max_num_seqs": 2, "block_size": 4, **limits})
    trace = SimulatedEngine(COST, config).run(Workload(requests, arrival_unit="s"))
    return replace(trace, header=replace(trace.header, source="live", cost=None))


def call(*args: object) -> int:
    """Run a command in this process; its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main([str(arg) for arg in args])
    return exit_.value.code or 0


def test_a_setting_takes_what_the_passes_it_makes_take() -> None:
    """One lane: each request takes 14 ms for its prompt and 11 for each of three more tokens, and
    the second waits for the first, one millisecond less than that takes.
    """
    made = plan(measured(), lanes=[1])
    (alone,) = made.points
    assert made.name_of(alone.config) == "1 lane"
    first, second = alone.requests["r0"], alone.requests["r1"]
    assert (first.ttft_s, first.e2e_s) == pytest.approx((0.014, 0.047), abs=2e-6)
    assert (second.queue_s, second.ttft_s) == pytest.approx((0.046, 0.060), abs=5e-6)
    assert alone.numbers is not None and alone.numbers["most_waiting"] == 5
    assert alone.numbers["wall_s"] == pytest.approx(6 * 0.047, abs=2e-5)
    assert alone.numbers["output_tok_s"] == pytest.approx(24 / (6 * 0.047), rel=1e-4)


def test_the_recorded_setting_is_simulated_too_and_its_error_is_the_plans() -> None:
    made = plan(measured(), lanes=[2, 1, 3])
    assert all(abs(error) < 1e-3 for error in made.errors.values() if error is not None)
    assert made.is_ranked and [p.config.max_num_seqs for p in made.points] == [3, 1]
    assert made.verdict == (
        "The setting that was recorded is simulated with an E2E off by 0 % at p50 and 0 % at p99."
        " By this, E2E at p50 is lowest with 3 lanes."
    )


def test_what_is_not_better_by_more_than_the_error_is_not_called_better() -> None:
    assert plan(measured(), lanes=[1]).verdict.endswith(
        "0 % at p99. No other is better than it by more than that."
    )
    made = plan(measured(), lanes=[3, 1])
    # as if it had been simulated 20 % too long: what is a tenth faster is told from nothing
    numbers = made.measured.numbers
    assert numbers is not None and "3 lanes" in made.verdict
    numbers["e2e_s"] = {key: value / 1.2 for key, value in numbers["e2e_s"].items()}
    assert made.is_ranked and made.verdict.endswith("No other is better than it by more than that.")


def test_what_is_better_by_more_than_the_error_is_called_better() -> None:
    """As above, and one setting takes less than half of the time."""
    made = plan(measured(), lanes=[6])
    numbers, best = made.measured.numbers, made.points[0].numbers
    assert numbers is not None and best is not None
    best["e2e_s"]["p50"] = 0.4 * numbers["e2e_s"]["p50"]
    numbers["e2e_s"] = {key: value / 1.2 for key, value in numbers["e2e_s"].items()}
    assert "E2E at p50 is lowest with 6 lanes" in made.verdict


@pytest.mark.slow
def test_blocks_that_a_recorded_policy_keeps_free_are_kept_free_in_a_plan() -> None:
    trace = open_run(PRIORITY)
    policy = replace(trace.config.policy, watermark=0.25)
    assert isinstance(policy, RecordedPolicy)
    header = replace(trace.header, config=replace(trace.config, policy=policy))
    assert plan(replace(trace, header=header)).again.config.policy.watermark == 0.25


def test_stated_limits_rank_by_goodput() -> None:
    slos = SLOs(ttft_s=0.05)
    made = plan(measured(), lanes=[1, 6], slos=slos)
    best = made.points[0]
    assert best.numbers is not None and best.config.max_num_seqs == 6
    met = sum(one.meets(slos) for one in best.requests.values())
    assert best.numbers["goodput"]["met"] == met and "goodput is highest" in made.verdict
    assert met > sum(one.meets(slos) for one in made.points[1].requests.values())


@pytest.mark.slow
def test_nothing_is_ranked_where_the_recorded_setting_is_far_off() -> None:
    made = plan(open_run(RESET), lanes=[4, 16, 2])
    assert abs(made.errors["e2e_s p50"] or 0) > 0.25 and not made.is_ranked
    assert made.verdict.endswith("That is too much to rank others by.")
    assert [point.config.max_num_seqs for point in made.points] == [4, 16, 2]


def test_a_setting_that_cannot_run_these_requests_says_why() -> None:
    made = plan(measured(), blocks=[1, 20])
    can, cannot = made.points
    assert can.numbers is not None and cannot.numbers is None
    assert cannot.refused is not None and "exceed the whole KV pool of 1 block" in cannot.refused


def test_settings_combine_and_the_recorded_one_is_not_repeated() -> None:
    made = plan(measured(), lanes=[2, 4], budgets=[64, 256], policies=["static", "continuous"])
    names = {made.name_of(point.config) for point in made.points}
    assert (
        made.again.config.max_num_batched_tokens == 256
        and len(names) == 7
        and "static, 4 lanes, budget 64" in names
    )
    with pytest.raises(InflightError, match="65 settings are too many; 64 are the most"):
        plan(measured(), lanes=range(1, 66))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"policies": ["contniuous", "stall"]}, "There is no policy 'contniuous'"),
        ({"lanes": [0, 8]}, "max_num_seqs must be a whole number from 1"),
        ({"budgets": [64, 0]}, "max_num_batched_tokens must be a whole number from 1"),
        ({"blocks": [64, True]}, "num_blocks must be a whole number from 1"),
    ],
)
def test_a_value_that_is_wrong_by_itself_is_a_mistake(settings: Any, says: str) -> None:
    with pytest.raises(InflightError, match=says):
        plan(measured(), **settings)


def test_who_ended_in_steps_that_are_not_shown_is_in_no_number_of_a_plan() -> None:
    """Neither of the recorded run, where it has no E2E, nor of the simulated ones."""
    trace = measured()
    last = trace.events[-1]
    gone = last.finished[0]
    gap = Resumed(last.step, last.step, 1, (), (gone,), (), ())
    back = last._replace(finished=last.finished[1:], resumed=gap)
    made = plan(replace(trace, events=[*trace.events[:-1], back]))
    for point in (made.measured, made.again):
        assert point.numbers is not None and point.numbers["e2e_s"]["count"] == 5


def test_only_what_was_measured_and_ended_can_be_planned() -> None:
    trace = measured()
    with pytest.raises(InflightError, match="A simulated trace measured nothing"):
        plan(replace(trace, header=replace(trace.header, source="simulated")))
    cancelled = [
        event._replace(finished=tuple(f._replace(finish_reason="error") for f in event.finished))
        for event in trace.events
    ]
    with pytest.raises(InflightError, match="No request of this run ended by itself"):
        plan(replace(trace, events=cancelled))


# -- a run as a workload ---------------------------------------------------------------------------


def test_a_recording_is_a_workload_of_what_came_and_went() -> None:
    trace = open_run(ASYNC)
    asked, tokens, times = trace.as_run(), trace.outputs, request_times(trace)
    assert asked.arrival_unit == "s" and len(asked) == len(trace.asked) == 48
    for request in asked:
        one = times[request.id]
        assert list(request.prompt_token_ids or ()) == trace.prompts[request.id]
        assert one.arrival is not None and 0 <= one.arrival - request.arrival < 0.2
        if one.num_tokens:
            assert request.sampling.max_new_tokens == len(tokens[request.id])
            assert request.leaves_after is None
        else:
            assert one.finish_reason == "cancelled" and (request.leaves_after or 0) > 0
    again = SimulatedEngine(fit(trace), trace.config).run(asked)
    assert {r: len(ids) for r, ids in again.outputs.items() if tokens[r]} == {
        r: len(ids) for r, ids in tokens.items() if ids
    }


def test_those_that_a_step_took_up_come_together() -> None:
    """In our own runs by steps they are microseconds apart, by which a wave must not be split."""
    trace = Trace.load(SIX)
    assert len({a.t for a in trace.events[0].arrived}) == 6
    assert {request.arrival for request in trace.as_run()} == {trace.events[0].arrived[0].t}
    planned = measured(3)
    assert [request.arrival for request in planned.as_run()] == [0.0, 0.001, 0.002]


def test_texts_that_have_run_need_no_tokenizer_to_be_simulated() -> None:
    trace = Trace.load(SIX)
    assert all(request.has_text for request in trace.workload)
    again = SimulatedEngine(fit(trace), trace.config).run(trace.workload)
    assert again.prompts == trace.prompts
    with pytest.raises(InflightError, match="a text prompt needs a tokenizer"):
        SimulatedEngine(fit(trace)).run(Workload(list(trace.workload)))


# -- recordings of another engine ------------------------------------------------------------------


def test_the_run_of_a_setting_is_valid_where_another_engine_was_recorded() -> None:
    """Also with clients that leave: one before the step that takes its request up."""
    sampling = SamplingParams(max_new_tokens=4, ignore_eos=True)
    leaves = (None, None, 0.002, None, 0.03)
    requests = [
        Request(f"r{i}", None, (1,) * 4, sampling, arrival=i / 1000, leaves_after=leaf)
        for i, leaf in enumerate(leaves)
    ]
    ran = SimulatedEngine(COST, EngineConfig(max_num_seqs=2)).run(
        Workload(requests, arrival_unit="s")
    )
    theirs = {"source": "live", "cost": None, "engine": EngineFacts(name="vllm")}
    made = plan(replace(ran, header=replace(ran.header, **theirs)), lanes=[1, 4])
    gone = {
        one.id: one.arrival + one.leaves_after
        for one in made.trace.as_run()
        if one.leaves_after is not None
    }
    assert set(gone) == {"r2", "r4"}
    for point in (made.again, *made.points):
        run = made.run(point)
        assert check(run).not_replayed is None
        for name, moment in gone.items():  # at the moment at which it did, or at once
            one = run.asked[name].request
            assert one.leaves_after == pytest.approx(max(1e-6, moment - one.arrival))


@pytest.mark.slow
def test_requests_are_counted_from_the_step_that_takes_them_up() -> None:
    """As the recorder counts, to whom the wait for the step before is not known."""
    made = plan(open_run(HTTP / "long-prefill.raw.jsonl.gz"))
    waits = [one.queue_s for one in made.again.requests.values() if one.queue_s is not None]
    assert median(waits) == 0 and len(waits) == 40
    theirs = [one.queue_s for one in made.measured.requests.values() if one.queue_s is not None]
    assert median(theirs) < 0.001


def test_numbers_are_of_those_that_ended_by_themselves() -> None:
    made = plan(open_run(ASYNC))
    assert made.again.numbers is not None and made.measured.numbers is not None
    done = made.measured.numbers["e2e_s"]["count"]
    assert made.again.numbers["e2e_s"]["count"] == done < 48


def test_others_are_ranked_only_if_both_the_median_and_the_worst_are_simulated_well() -> None:
    made = plan(measured(), lanes=[1])
    assert made.is_ranked and made.again.numbers is not None
    for share in ("p50", "p99"):
        e2e = made.again.numbers["e2e_s"]
        off = replace(
            made.again, numbers=made.again.numbers | {"e2e_s": e2e | {share: 2 * e2e[share]}}
        )
        assert not replace(made, again=off).is_ranked


@pytest.mark.slow
def test_throughput_and_preemptions_are_of_all_requests() -> None:
    """Also of those that are left out of the times, and each of several preempted in one step."""
    trace = measured()
    some = numbers_of(trace, frozenset({"r0"}), SLOs())
    assert some["output_tok_s"] == pytest.approx(24 / some["wall_s"])
    assert some["goodput"]["met"] == 1
    reset = open_run(RESET)  # which sent everybody back at once
    back = [len(event.preempted) for event in reset.events if event.preempted]
    found = numbers_of(reset, frozenset(reset.asked), SLOs())
    assert max(back) > 1 and found["preemptions"] == sum(back)


def test_as_many_settings_as_are_said_are_simulated() -> None:
    assert len(plan(measured(), lanes=range(1, 65)).points) == 63
    with pytest.raises(InflightError, match="65 settings are too many; 64 are the most"):
        plan(measured(), lanes=range(1, 66))


def test_that_no_prefix_is_found_is_said_where_one_could_have_been() -> None:
    for caching in (False, True):
        trace = measured(prefix_caching=caching)
        notes = plan(replace(trace, header=replace(trace.header, absent=("prompts",)))).notes
        assert any("no prefix is found" in note for note in notes) is caching


def test_limits_and_steps_that_a_simulated_run_lacks_are_said() -> None:
    trace = measured()
    assert plan(trace).notes == ()
    engine = EngineFacts(name="vllm", long_prefill_token_threshold=32)
    (note,) = _setting(replace(trace, header=replace(trace.header, engine=engine)))[1]
    assert "chunks of long prompts" in note
    drafted = trace.events[3]._replace(drafts=(Draft("r0", 3, 1),))
    (note,) = _setting(replace(trace, events=[*trace.events[:3], drafted, *trace.events[4:]]))[1]
    assert note == "A simulated run drafts no tokens: a request gets one a pass."
    back = trace.events[3]._replace(resumed=Resumed(2, 2, 1, (), (), (), ()))
    (note,) = _setting(replace(trace, events=[*trace.events[:2], back, *trace.events[4:]]))[1]
    assert note.startswith("Some steps are not on record")


@pytest.mark.slow
def test_what_a_simulated_run_does_otherwise_is_said(tmp_path: Path) -> None:
    made = plan(open_run(PRIORITY))
    assert made.again.config.policy.name == "continuous" and made.notes == (
        "By what the policy “priority” orders requests is not on record: simulated first come,"
        " first served.",
    )
    lines = gzip.decompress(ASYNC.read_bytes()).splitlines(keepends=True)
    header = json.loads(lines[0]) | {"prompts": "hashed", "long_prefill_token_threshold": 32}
    hashed = tmp_path / "run.raw.jsonl"
    with hashed.open("wb") as out:
        out.write(json.dumps(header).encode() + b"\n")
        out.writelines(lines[1:])
    made = plan(open_run(hashed))
    assert not made.again.config.prefix_caching and len(made.notes) == 2
    assert "no prefix is found" in made.notes[0] and "chunks of long prompts" in made.notes[1]


# -- the picture and the command -------------------------------------------------------------------


def test_the_picture_has_a_point_for_every_setting() -> None:
    made = inflight.plan(measured(), lanes=[1, 6], blocks=[1, 40])
    figure = made.plot()
    assert figure.layout.title.text.startswith("Simulated, but for the star.")
    for cell, name in ((0, "ttft_s"), (4, "itl_s")):
        line, circles, diamond, star = figure.data[cell : cell + 4]
        numbers = made.measured.numbers
        assert numbers is not None and star.x[0] == round(numbers["output_tok_s"], 3)
        assert len(diamond.x) == 1 and len(circles.x) == 2
        assert {*line.x} <= {*diamond.x, *circles.x} and list(line.x) == sorted(line.x)
        assert len(circles.text) == 2 and all("tokens per second" in text for text in circles.text)
        assert star.y[0] == numbers[name]["p50"] and list(star.customdata) == [None]
        assert list(diamond.customdata) == [0] and sorted(circles.customdata) == [1, 2]
    # where latencies are far apart, each mark has its unit
    axis = inflight.plan(measured(24, 8), lanes=[1, 6]).plot().layout.yaxis
    assert axis.type == "log" and axis.ticktext[axis.tickvals.index(0.5)] == "500ms"
    with pytest.raises(InflightError, match="There is no view 'waste' of it; there are frontier"):
        page.provided(page.plot)(made, "waste", None)


def test_each_setting_is_a_row_of_its_own_numbers(capsys: Any) -> None:
    """One lane, as above: the first token of request i comes after 14 + 46 i ms, its last 33 ms
    later, and all is over after 282 ms. With two, the second request joins the first in its second
    pass, of 15 ms, and then shares two of 12 ms and the first pass of the third, 15 ms.
    """
    slos = SLOs(ttft_s=0.02)
    _print(plan(measured(), lanes=[1], blocks=[1, 40], slos=slos), ["r1"])
    printed = capsys.readouterr()
    said = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert said[0] == (
        "Simulated, but for the first row: a fitted cost stands in for the forward pass."
    )
    assert said[1] == (
        "setting TTFT p50 p99 ITL p50 p99 E2E p50 p99 tok/s preempted waiting good/s"
    )
    assert said[2].removeprefix("measured ") == said[3].removeprefix("0 as recorded ")
    assert said[4] == "off by" + " 0.0 %" * 7
    assert said[5:7] == [
        "1 1 lane, 40 blocks 129.0 ms 241.7 ms 11.0 ms 11.0 ms 162.0 ms 274.7 ms 85.1 0 5 3.55",
        "2 1 lane, 1 block cannot run" + " –" * 9,
    ]
    assert said[8:] == [
        "",
        "request r1 queued TTFT E2E",
        "measured 13.0 ms 28.0 ms 67.0 ms",
        "as recorded 13.0 ms 28.0 ms 67.0 ms",
        "1 lane, 40 blocks 46.0 ms 60.0 ms 93.0 ms",
    ]
    refused, fit_is = printed.err.splitlines()
    assert refused == (
        "1 lane, 1 block: Request r0: 4 prompt tokens and 4 new ones exceed the whole KV pool of 1"
        " block of 4 tokens."
    )
    assert fit_is.startswith("The fit is off by 0.0 % (median)")
    _print(plan(measured(), lanes=[1]), [])  # without limits nothing is good
    without = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert without[1].endswith("preempted waiting") and without[5].endswith(" 85.1 0 5")
    assert [_signed(error) for error in (None, 0.0004, 0.0006, -0.25)] == [
        "–",
        "0.0 %",
        "+0.1 %",
        "-25.0 %",
    ]


@pytest.mark.slow
def test_the_command_prints_saves_and_draws(tmp_path: Path, capsys: Any) -> None:
    drawn, saved = tmp_path / "plan.html", tmp_path / "plan.json"
    code = call(
        *("plan", SIX, "--lanes", "1,3", "--lanes", "6", "--blocks", "1", "--blocks", "40"),
        *("--slo", "ttft=0.02", "--request", "r1", "--out", saved, "--html", drawn),
        *("--traces", tmp_path),
    )
    told = capsys.readouterr()
    assert code == 0 and "good/s" in told.out and "cannot run" in told.out
    rows = [line[3:].split("  ")[0] for line in told.out.splitlines()]
    assert rows[2:4] == ["measured", "as recorded"] and "6 lanes, 40 blocks" in rows
    assert "request r1" in told.out and "exceed the whole KV pool" in told.err
    data = json.loads(saved.read_text())
    assert data["schema"] == "plan/1" and len(data["settings"]) == 6
    assert [row["setting"] for row in data["requests"]["r1"]][:2] == ["measured", "as recorded"]
    assert "Plotly.newPlot" in drawn.read_text() and '${"."}/${n}.html' in drawn.read_text()
    kept = {path.name: Trace.load(path) for path in tmp_path.glob("*.jsonl")}
    can = [
        n for n, one in enumerate([data["recorded_setting"], *data["settings"]]) if one["numbers"]
    ]
    assert sorted(kept) == [f"{n}.jsonl" for n in can]
    assert all((tmp_path / f"{n}.html").exists() for n in can)
    assert all(trace.header.is_simulated for trace in kept.values())
    assert kept["1.jsonl"].config.to_json() == data["settings"][0]["config"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--lanes", "many"), "--lanes takes whole numbers, as in 8,16,32."),
        (("--lanes", "8,"), "--lanes takes whole numbers, as in 8,16,32."),
        (("--lanes", "0"), "max_num_seqs must be a whole number from 1"),
        (("--policy", "fifo"), "There is no policy 'fifo'"),
        (("--request", "zz"), "gpt2-six.jsonl has no request 'zz'."),
        (("--slo", "ttft"), "'ttft' is no SLO"),
        (("--traces", "nowhere"), "There is no folder nowhere."),
        (("--lanes", "64", "--budget", "32"), "A token budget of 32 cannot serve 64 lanes"),
    ],
)
def test_odd_input_is_refused_in_a_sentence(capsys: Any, given: tuple[str, ...], says: str) -> None:
    assert call("plan", SIX, *given) == 2
    assert says in capsys.readouterr().err


def test_no_run_of_a_plan_takes_the_place_of_what_is_read_or_written(
    tmp_path: Path, capsys: Any
) -> None:
    recording = tmp_path / "0.jsonl"
    shutil.copy(SIX, recording)
    was = recording.read_bytes()
    for given, name in (((), "0.jsonl"), (("--out", tmp_path / "1.jsonl"), "1.jsonl")):
        source = recording if not given else SIX
        assert call("plan", source, "--lanes", "1", "--traces", tmp_path, *given) == 2
        assert f"{name} cannot be written" in capsys.readouterr().err
    assert recording.read_bytes() == was and sorted(tmp_path.iterdir()) == [recording]


def test_too_many_settings_are_refused_at_once(tmp_path: Path, capsys: Any) -> None:
    """Before a file is tried for the run of each."""
    some = ",".join(map(str, range(64, 94)))
    axes = ("--lanes", some, "--budget", some, "--blocks", some)
    assert call("plan", SIX, *axes, "--traces", tmp_path) == 2
    assert "27,000 settings are too many; 64 are the most." in capsys.readouterr().err


def test_settings_that_contradict_each_other_are_left_out_counted_and_named() -> None:
    made = inflight.plan(measured(4), lanes=[1, 64], budgets=[32], blocks=[64, 65])
    assert [point.config.max_num_seqs for point in made.points] == [1, 1]
    (note,) = [note for note in made.notes if "cannot serve 64 lanes" in note]
    (one,) = inflight.plan(measured(4), lanes=[1, 64], budgets=[32]).notes
    assert note.startswith("2 settings are left out: A token budget of 32 cannot serve")
    with speaking("de"):
        assert t(note).startswith("2 Einstellungen fallen weg: Ein Token-Budget von 32 reicht für")
        assert t(one).startswith("1 Einstellung fällt weg: Ein Token-Budget von 32 reicht für 64")


@pytest.mark.slow
def test_any_run_is_a_workload_of_the_commands(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "again.jsonl"
    assert call("run", "--workload", ASYNC, "--simulate", ASYNC, "--out", out) == 0
    again, first = Trace.load(out), open_run(ASYNC)
    assert again.config == first.config and again.prompts == first.prompts
    assert call("run", "--workload", PRIORITY, "--simulate", PRIORITY) == 2
    assert "The policy priority is not installed here" in capsys.readouterr().err
    assert call("run", "--workload", tmp_path / "none.jsonl", "--simulate", ASYNC) == 2
    assert "none.jsonl cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_a_fit_that_predicts_no_pass_says_so(tmp_path: Path, capsys: Any) -> None:
    assert fit(open_run(RESET)).is_useless and not fit(measured()).is_useless
    assert call("fit", RESET, "--out", tmp_path / "cost.json") == 0
    told = capsys.readouterr()
    assert "That is no prediction of a pass" in told.out
    assert told.err.strip().endswith("takes it, for what it is worth.")
    assert call("fit", SIX) == 0
    assert "no prediction" not in capsys.readouterr().out
