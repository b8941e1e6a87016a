"""A recording of which steps are missing. With snapshots, what is shown before and after each gap
is what the whole recording shows; without them it is refused.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from core import Trace
from core.account.metrics import metrics
from core.account.perfetto import chrome_trace
from core.account.request_times import request_times
from core.errors import InvalidTrace
from core.measure.rounds import RunResult
from core.proof.verify import verify
from core.recorders.convert import checked_trace, to_trace
from core.recorders.follow import Follower, RecordingBegun
from core.recorders.raw import gathered
from core.trace.events import NOT_RECORDED, StepEvent
from visualizer.documents.live import LiveRun, shown
from visualizer.documents.replay import Deltas
from visualizer.words.captions import captions, plain
from visualizer.words.language import speaking

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = DATA / "vllm-0.32-snapshots.raw.jsonl.gz"  # asynchronous, a snapshot every 16 steps


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [f"{line}\n" for line in gzip.decompress(RECORDED.read_bytes()).decode().splitlines()]


@pytest.fixture(scope="module")
def whole(lines) -> dict[int, StepEvent]:
    return {event.step: event for event in opened(lines)[0].events}


@pytest.fixture(scope="module")
def followed(lines) -> Trace:
    """With steps that are not shown, for which five of its requests run."""
    return opened(without(lines, range(50, 63)))[0]


def opened(lines: list[str]) -> tuple[Trace, list[str]]:
    """The trace, which obeys its rules, and what is said of the recording."""
    (recording,) = gathered([("run.raw.jsonl", iter(lines))])
    return checked_trace(recording), recording.faults


def without(lines: list[str], steps: Collection[int]) -> list[str]:
    """The recording without these steps."""
    return [
        line
        for line in lines
        if not (line.startswith('{"kind":"step"') and json.loads(line)["step"] in steps)
    ]


def facts(event: StepEvent, apart_from: Collection[str] = ()) -> StepEvent:
    """All that an engine records of a step: lanes are inferred, and after a gap another may be
    free.
    """

    def kept(records):
        return tuple(
            r._replace(lane=0) if hasattr(r, "lane") else r
            for r in records
            if r.request not in apart_from
        )

    return event._replace(
        resumed=None,
        admitted=kept(event.admitted),
        preempted=kept(event.preempted),
        segments=kept(event.segments),
        finished=kept(event.finished),
        released=kept(event.released),
        kv=event.kv._replace(changes=kept(event.kv.changes)),
    )


def agrees(event: StepEvent, other: StepEvent) -> bool:
    """Whether a step is the same in a recording with a gap. Requests that were ended from outside
    just before it goes on are gone there.
    """
    left = {f.request for f in other.finished if f.when == "before"} if event.resumed else set()
    return facts(event, left) == facts(other, left)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_shown_beside_gaps_is_what_the_whole_recording_shows(lines, whole, seed):
    rng = random.Random(seed)
    missing: set[int] = set()
    for _ in range(rng.choice([1, 1, 2, 3])):
        first = rng.randrange(1, len(whole))
        missing |= set(range(first, first + rng.choice([1, 1, 2, 5, 20])))
    trace, faults = opened(without(lines, missing))
    assert all(agrees(event, whole[event.step]) and not event.warnings for event in trace.events)
    shown = {event.step for event in trace.events}
    for event in trace.events:
        if gap := event.resumed:
            steps = set(range(gap.first, gap.last + 1))
            assert (
                steps.isdisjoint(shown)
                and gap.missing == len(steps & missing)
                and gap.last == event.step - 1
            )
            assert gap.last - gap.first < 16 + len(steps & missing)
    unshown = whole.keys() - shown
    told = set().union(
        *(range(e.resumed.first, e.resumed.last + 1) for e in trace.events if e.resumed)
    )
    end = set(range(max(shown) + 1, max(whole) + 1))
    assert unshown <= told | end and missing & whole.keys() <= unshown
    assert (
        len(faults) == sum(e.resumed is not None for e in trace.events) + bool(end - missing)
        and not trace.complete
    ) or not end


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda line, step: None if step == 41 else line, "Step 41 is missing in run.raw.jsonl"),
        (
            lambda line, step: None if step in (41, 42, 44) else line,
            "Steps 41 to 42 are missing in run.raw.jsonl",
        ),
        (lambda line, step: None if step < 60 else line, "Steps 0 to 59 are missing"),
        (lambda line, step: "{]\n" if step == 41 else line, "Step 41 is missing in run.raw.jsonl"),
        (
            lambda line, step: (
                line.replace('"segments":[', '"segments":[[],') if step == 41 else line
            ),
            "Step 41 is damaged in run.raw.jsonl",
        ),
    ],
    ids=["one", "several", "beginning", "no record", "damaged"],
)
def test_a_recording_with_a_hole_and_no_snapshot_is_refused(lines, spoil, says):
    """In one sentence, however it goes on; with the snapshots it opens."""

    def spoiled(line: str) -> str | None:
        data = json.loads(line)
        return spoil(line, data["step"]) if data["kind"] == "step" else line

    left = [line for line in map(spoiled, lines) if line is not None]
    bare = [line for line in left if not line.startswith('{"kind":"snapshot"')]
    with pytest.raises(InvalidTrace) as refused:
        opened(bare)
    assert str(refused.value).startswith(says)
    assert str(refused.value).endswith(", and there is no snapshot to go on from.")
    assert any(event.resumed for event in opened(left)[0].events)


def test_a_hole_after_the_last_snapshot_costs_the_rest(lines):
    last = max(json.loads(line)["step"] for line in lines if '"kind":"snapshot"' in line[:20])
    trace, faults = opened(without(lines, {last + 1}))
    assert trace.events[-1].step == last and not trace.complete
    assert faults == [
        f"After step {last} steps are missing, and no snapshot after them gives the whole state:"
        " the rest is not shown."
    ]


def test_tokens_and_texts_go_on_and_times_across_a_gap_are_not_known(lines, whole):
    before, (trace, faults) = opened(lines)[0], opened(without(lines, {41}))
    (gap,) = [event.resumed for event in trace.events if event.resumed]
    assert faults == [
        "Steps 41 to 47 are not shown, as 1 of them is missing in this recording; the run goes on"
        " from a snapshot."
    ]
    ended = {f.request: f.finish_reason for f in gap.ended}
    shared = [r for r in trace.asked if r not in ended]
    assert {r: trace.outputs[r] for r in shared} == {r: before.outputs[r] for r in shared}
    assert {r: trace.texts.output[r] for r in shared} == {r: before.texts.output[r] for r in shared}
    true_times, times = request_times(before), request_times(trace)
    carried = {c.request: len(c.tokens) for c in gap.carried}
    assert sum(carried.values()) > 0
    for request in shared:
        mine, theirs = times[request].token_times, true_times[request].token_times
        assert len(mine) == len(theirs) and all(
            a is None or a == b for a, b in zip(mine, theirs, strict=True)
        )
        assert mine.count(None) == carried.get(request, 0)
        assert times[request].ttft_s in (None, true_times[request].ttft_s)
        assert set(times[request].itl_s) <= set(true_times[request].itl_s)
    assert metrics(trace)["output_tokens"] == sum(map(len, trace.outputs.values()))
    margins = RunResult.of(trace).margins
    assert {r: len(known) for r, known in margins.items()} == {
        r: len(tokens) for r, tokens in trace.outputs.items()
    }
    reasons = {f.request: f.finish_reason for event in whole.values() for f in event.finished}
    assert all(reason in (reasons[request], NOT_RECORDED) for request, reason in ended.items())
    marks = [e["name"] for e in chrome_trace(trace)["traceEvents"]]
    assert "steps 41 to 47 are not shown" in marks


def test_what_was_written_and_ended_in_steps_that_are_not_shown_is_checked_and_counted(lines):
    trace, _ = opened(without(lines, {41}))
    (at,) = [n for n, event in enumerate(trace.events) if event.resumed]
    gap = trace.events[at].resumed
    left = tuple(f._replace(finish_reason="cancelled") for f in gap.ended)
    trace.events[at] = trace.events[at]._replace(resumed=gap._replace(ended=left))
    ended = [f.finish_reason for event in trace.events for f in event.finished]
    found = verify(trace.lines(), lambda name: None)
    assert left and found.from_outside == {"cancelled": len(left) + ended.count("cancelled")}
    assert found.num_tokens == sum(len(tokens) for tokens in trace.outputs.values())


def live(trace: Trace) -> Iterator[tuple[LiveRun, dict]]:
    """The run as the Live tab follows it, and its deltas, a step each."""
    run = LiveRun(trace.header, None)
    for request, asked in trace.asked.items():
        run.meet(request, asked.prompt, asked.request.sampling.max_new_tokens)
    for event in trace.events:
        yield run, run.delta([event], [{}])


def test_how_a_request_went_is_not_told_if_it_ran_in_steps_that_are_not_shown(lines, followed):
    (gap,) = [event.resumed for event in followed.events if event.resumed]
    before, told = (
        {r: how for _, delta in live(one) for r, how in delta["ended"].items()}
        for one in (opened(lines)[0], followed)
    )
    ran = {carried.request for carried in gap.carried}
    assert len(ran) == 5 and told == {r: how for r, how in before.items() if r not in ran}


def test_times_are_not_invented_where_a_followed_run_goes_on(followed):
    (at,) = [event for event in followed.events if event.resumed]
    run = next(run for run, delta in live(followed) if delta["events"][0]["step"] == at.step)
    unseen = {arrived.request for arrived in at.resumed.arrived}
    assert [
        (told["computed"], told["isUnseen"], told["token"])
        for told in run.beginning()["begin"]["requests"]
        if told["id"] in unseen
    ] == [(None, True, None)]


def test_tokens_of_steps_that_are_not_shown_are_hidden_as_those_of_others_are(followed):
    ((gap, sent),) = [
        (event.resumed, shown(delta, texts=False, nicknames=True)["events"][0]["resumed"])
        for event, (_, delta) in zip(followed.events, live(followed), strict=True)
        if event.resumed
    ]
    assert [len(c.tokens) for c in sent.carried] == [len(c.tokens) for c in gap.carried]
    assert {token for c in sent.carried for token in c.tokens} == {None}


def test_it_is_said_where_the_run_goes_on(lines):
    trace, _ = opened(without(lines, {47}))
    at = next(i for i, event in enumerate(trace.events) if event.resumed)
    caption = captions(trace)[at]
    assert plain(caption["say"]).startswith("Step 47 is missing in this recording; ")
    assert (
        plain(caption["why"][0])
        == "Step 47 is missing in this recording; the run goes on from a snapshot."
    )
    with speaking("de"):
        assert (
            plain(captions(trace)[at]["why"][0])
            == "Schritt 47 fehlt in dieser Aufnahme; der Lauf geht von einer Momentaufnahme aus"
            " weiter."
        )


@pytest.mark.parametrize("seed", range(4))
def test_damaged_lines_cost_no_more_than_until_the_next_snapshot(lines, whole, seed):
    rng = random.Random(seed)
    damaged = list(lines)
    for at in rng.sample(range(1, len(lines) - 1), 3):
        damaged[at] = damaged[at][: rng.randrange(1, len(damaged[at]) - 2)] + "\n"
    trace, faults = opened(damaged)
    aborted = any(
        line.startswith('{"kind":"abort')
        for line, is_there in zip(lines, damaged, strict=True)
        if line != is_there
    )
    assert aborted or all(agrees(event, whole[event.step]) for event in trace.events)
    assert (
        len(trace.events) > len(whole) - 3 * 33
        and "this is no record. So are 2 more lines." in faults[0]
    )


def test_an_old_part_is_enough(lines, whole):
    """The first files of a ring are gone: the run begins at the first snapshot."""
    later = [
        line
        for line in without(lines, range(60))
        if '"kind":"snapshot"' not in line[:20] or json.loads(line)["step"] > 60
    ]
    header = json.dumps(json.loads(lines[0]) | {"part": 3}) + "\n"
    trace, faults = opened([header, *later[1:]])
    first = trace.events[0]
    assert first.resumed and (first.step, first.resumed.first, first.resumed.missing) == (64, 0, 60)
    assert not first.resumed.ended and faults[0].startswith(
        "Steps 0 to 63 are not shown, as 60 of them are missing"
    )
    assert [e.sampled for e in trace.events] == [whole[e.step].sampled for e in trace.events]
    assert [e.kv.used for e in trace.events] == [whole[e.step].kv.used for e in trace.events]


@pytest.mark.slow
def test_a_snapshot_that_contradicts_the_steps_is_told(lines):
    """Each agrees with the steps before it; one that is forged does not, and from it a run goes on
    with a warning.
    """
    assert opened(lines)[1] == []

    def forged(line: str) -> str:
        data = json.loads(line)
        if data["kind"] != "snapshot" or data["step"] != 48:
            return line
        data["requests"][0]["computed"] -= 1
        return json.dumps(data, separators=(",", ":")) + "\n"

    spoiled = [forged(line) for line in lines]
    trace, faults = opened(spoiled)
    assert len(faults) == 1 and faults[0].startswith(
        "The snapshot before step 48 does not agree with the steps before it: "
    )
    assert not any(event.warnings for event in trace.events)
    (odd,) = [event for event in opened(without(spoiled, {47}))[0].events if event.warnings]
    assert odd.step == 48 and "positions that do not follow its cache" in odd.warnings[0]


def drop(data: dict, request: str) -> None:
    data["requests"] = [row for row in data["requests"] if row["request"] != request]
    data["running"].remove(request)


def linger(data: dict) -> None:
    """One that has ended by itself may still be among those that run."""
    data["running"].append("ended")
    data["requests"].append(data["requests"][0] | {"request": "ended", "finished": "stop"})


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda data: drop(data, data["running"][0]), "{} does not run in both"),
        (
            lambda data: data["waiting"].append(data["running"][0]),
            "{} does not wait in both",
        ),
        (linger, ""),
        (lambda data: data["requests"][0]["output"].append(1), "does not have the same tokens"),
        (lambda data: data["requests"][0]["blocks"][0].pop(), "does not have the same blocks"),
    ],
)
def test_each_fact_of_a_snapshot_is_held_against_the_steps(lines, forge, says):
    snapshots = [json.loads(line) for line in lines if line.startswith('{"kind":"snapshot"')]
    chosen = next(s for s in snapshots if s["step"] == 96)
    forged = json.loads(json.dumps(chosen))
    forge(forged)
    spoiled = [json.dumps(forged) + "\n" if json.loads(line) == chosen else line for line in lines]
    faults = [f.partition(": ") for f in opened(spoiled)[1]]
    start = f"The snapshot before step {chosen['step']} does not agree with the steps before it"
    assert [start for start, _, _ in faults] == [start] * bool(says)
    assert all(says.format(chosen["running"][0]) in why for _, _, why in faults)


def test_a_snapshot_that_cannot_be_read_costs_the_steps_until_the_next(lines):
    at = next(n for n, line in enumerate(lines) if line.startswith('{"kind":"snapshot","step":48,'))
    data = json.loads(lines[at])
    data["requests"][0]["blocks"] = 5
    trace, faults = opened([*lines[:at], json.dumps(data) + "\n", *lines[at + 1 :]])
    assert faults[0].startswith("Step 48 is damaged: ") and len(faults) == 2
    assert [event.resumed[:3] for event in trace.events if event.resumed] == [(48, 63, 1)]


def test_a_state_that_nobody_can_have_is_refused(lines):
    (recording,) = gathered([("run.raw.jsonl", iter(without(lines, {47})))])
    made = to_trace(recording)
    at = next(i for i, event in enumerate(made.events) if event.resumed)
    gap = made.events[at].resumed
    assert gap is not None
    one, *others = gap.running
    for wrong, says in (
        (gap._replace(running=(one._replace(lane=99), *others)), "there is no lane 99"),
        (
            gap._replace(running=tuple(others)),
            "the requests after the missing steps are not those that can be there",
        ),
        (
            gap._replace(running=(one._replace(tables=((9999,),)), *others)),
            "has a block that the pool does not have",
        ),
        (gap._replace(missing=0), "the steps that it names cannot be missing"),
        (
            gap._replace(arrived=gap.arrived + made.events[0].arrived),
            "cannot have arrived in the missing steps",
        ),
    ):
        made.events[at] = made.events[at]._replace(resumed=wrong)
        with pytest.raises(InvalidTrace, match=says):
            Trace.from_lines(made.lines())


def test_who_follows_goes_on_at_the_next_snapshot(tmp_path, lines, whole):
    """In the same run, with the same events as of the file; the live page's texts are the whole
    ones.
    """
    path = tmp_path / "run.raw.jsonl"
    damaged = without(lines, {41})
    cut = next(i for i, line in enumerate(damaged) if '"step":46,' in line[:40])
    path.write_text("".join(damaged[:cut]))
    follower = Follower(path)
    updates = list(follower.poll())
    for _ in range(30):
        updates += follower.poll()  # nothing more comes: the one that is expected is given up
    assert (
        follower.sentence
        == "Step 41 is missing in run.raw.jsonl: steps are shown again from the next snapshot on."
        " At least 2 steps have passed meanwhile."
    )
    with path.open("a") as file:
        file.write("".join(damaged[cut:]))
    while more := follower.poll():
        updates += more
    for _ in range(30):
        updates += follower.poll()
    found = [one for one in updates if isinstance(one, StepEvent)]
    assert sum(isinstance(one, RecordingBegun) for one in updates) == 1
    trace, _ = opened(damaged)
    assert [e.step for e in found] == [e.step for e in trace.events] and [
        e.sampled for e in found
    ] == [e.sampled for e in trace.events]
    assert [e.resumed and e.resumed.carried for e in found] == [
        e.resumed and e.resumed.carried for e in trace.events
    ]
    deltas = Deltas.of(trace, trace.tokenizer or _Ids())
    texts: dict[str, int] = {}
    for event in trace.events:
        for request, pieces in deltas.delta([event])["texts"]["output"].items():
            texts[request] = texts.get(request, 0) + len(pieces)
    assert texts == {request: len(output) for request, output in trace.outputs.items() if output}


def test_who_follows_begins_anew_after_a_step_that_cannot_be(tmp_path, lines, whole):
    """Nothing follows from a state that is not believed: steps are shown again from the first
    snapshot on whose prompts are all on record after it.
    """

    def forged(line: str) -> str:
        data = json.loads(line)
        if data["kind"] != "step" or data["step"] != 41:
            return line
        beyond = [data["segments"][0]["request"], [[10**6]], "table"]
        return json.dumps(data | {"blocks": [*data["blocks"], beyond]}) + "\n"

    path = tmp_path / "run.raw.jsonl"
    spoiled = [forged(line) for line in lines]
    cut, end = (
        next(i for i, line in enumerate(lines) if f'"step":{step},' in line[:40])
        for step in (46, 100)
    )
    path.write_text("".join(spoiled[:cut]))
    follower = Follower(path)

    def polled() -> list:
        return [update for _ in range(30) for update in follower.poll()]

    updates = polled()
    assert follower.sentence.startswith("step 41: request “cmpl-")
    assert follower.sentence.endswith(
        "” got a block that the pool does not have: steps are shown again from the next snapshot"
        " on. At least 2 steps have passed meanwhile."
    )
    with path.open("a") as file:
        file.write("".join(spoiled[cut:end]))
    updates += polled()
    assert follower.sentence == ""
    found = [one for one in updates if isinstance(one, StepEvent)]
    assert [e.step for e in found] == [*range(41), *range(64, 100)]
    assert [e.sampled for e in found] == [whole[e.step].sampled for e in found]
    first, second = (one.header.notes for one in updates if isinstance(one, RecordingBegun))
    assert not first and [note[:7] for note in second] == ["step 41"]


class _Ids:
    def decode(self, token_ids, **_):
        return "".join(f"<{i}>" for i in token_ids)
