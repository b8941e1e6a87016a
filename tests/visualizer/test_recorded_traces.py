"""The runs that ship with the page are what the engine does: all presets are run again and
compared, but for the times.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from core.config import SMOLLM2
from core.errors import InvalidTrace
from core.proof.mistakes import leaky_engine
from core.proof.verify import verify
from core.recorders.raw import lines_of
from core.torch_engine.engine import Engine
from core.torch_engine.models.cache import ModelCache
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from measure.record import MISTAKES, SHOWN_BY_BOTH, compared, run_preset
from visualizer.documents.catalogue import LEAKS, RANKED, RUNS, TRACES, _stacked, thumbnail
from visualizer.documents.comparison import RECORDED
from visualizer.server.recorded_runs import promise_recorded_runs
from visualizer.server.store import Store
from worlds.ranks import ranks, text

QUICK = ("nanogpt-chunked-2", "nanogpt-chunked-4", "chunk-7-by-4", "one-joins-two")


@pytest.fixture(scope="module")
def models() -> ModelCache:
    return ModelCache()


def engine_of(header: Header, *parts) -> Engine:
    return leaky_engine(*parts) if header.leak else Engine(*parts)


def recorded(name: str) -> Trace:
    return Trace.load(TRACES / f"{name}.jsonl")


_LIMITS = ("config", "num_blocks", "workload", "arrival_unit", "dtype")
_FACTS = tuple(name for name in StepEvent._fields if name not in ("t_start", "t_end", "timings"))


def differences(recorded: Trace, again: Trace) -> list[str]:
    """Where two runs of a preset differ in anything but times, dates, machine and rounding of
    logits, which in 16 bits may choose a token.
    """
    exact = recorded.header.dtype == "float32"
    found = [
        f"header: {name}"
        for name in _LIMITS
        if getattr(recorded.header, name) != getattr(again.header, name)
    ]
    if recorded.asked != again.asked:
        found.append("what was asked")
    if len(recorded.events) != len(again.events):
        found.append(f"{len(recorded.events)} steps recorded, {len(again.events)} run")
    for old, new in zip(recorded.events, again.events, strict=False):
        found += [
            f"step {old.step}: {name}"
            for name in _FACTS
            if _facts(old, name, exact) != _facts(new, name, exact)
        ]
    return found


def _facts(event: StepEvent, name: str, exact: bool) -> Any:
    """A field of an event without its times and measured floats. exact: with which tokens were
    chosen.
    """
    value = getattr(event, name)
    if name == "arrived":
        return [a.request for a in value]
    if name == "passes":
        return [p._replace(t_start=0.0, t_end=0.0) for p in value]
    if name == "sampled":
        return [(s.pass_index, s.request, s.token_id if exact else None) for s in value]
    return value


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PRESETS]
)
def test_the_engine_does_again_what_is_recorded(name, models: ModelCache, request, monkeypatch):
    if PRESETS[name].model == SMOLLM2:
        monkeypatch.setenv("INFLIGHT_MODELS_DIR", request.getfixturevalue("users_models"))
    assert differences(recorded(name), run_preset(PRESETS[name], models)) == []


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_recording_says_when_where_and_on_what(name: str):
    trace = recorded(name)
    header = trace.header
    assert header.source == "recorded" and trace.complete
    assert header.created and header.device and header.model.name == PRESETS[name].model
    assert header.config == PRESETS[name].config
    assert trace.workload == PRESETS[name].workload


@pytest.mark.parametrize("name", SHOWN_BY_BOTH)
def test_watch_shows_the_round_that_the_comparison_shows(name: str):
    """The opening, the story and Compare tell of the same seconds as Watch."""
    assert list(recorded(name).lines()) == list(compared(name).lines())


@pytest.mark.slow
def test_a_recording_that_is_opened_and_saved_is_the_same_file():
    """Those of other engines, whose headers another program wrote, and those of comparisons among
    them.
    """
    paths = [*TRACES.rglob("*.jsonl"), *RECORDED.glob("*/*.jsonl.gz")]
    assert len(paths) > len(RUNS)
    for path in paths:
        lines = [line.rstrip("\n") for line in lines_of(path)]
        assert list(Trace.from_lines(lines).lines()) == lines, path.name


def test_nothing_is_on_record_but_presets_engines_leaks_and_mistakes():
    assert {str(p.relative_to(TRACES).with_suffix("")) for p in TRACES.rglob("*.jsonl")} == {
        *RUNS,
        *(f"{name}.rank{number}" for name in RANKED for number in (0, 1)),
        *LEAKS.values(),
        *MISTAKES,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_on_record_as_one_and_a_rerun_finds_it(name: str, models: ModelCache):
    trace = recorded(LEAKS[name])
    assert trace.header.leak and trace.header.source == "recorded"
    assert differences(trace, run_preset(PRESETS[name], models, engine=leaky_engine)) == []
    assert trace.outputs != recorded(name).outputs
    for one, leaks in ((trace, True), (recorded(name), False)):
        model, config = models.get(one.header.model.name, "cpu"), one.config
        assert verify(
            one.lines(), engine=lambda header, m=model, c=config: engine_of(header, *m, c)
        ).rerun
        one.header = dataclasses.replace(one.header, leak=not leaks)
        with pytest.raises(InvalidTrace, match="the model"):
            verify(one.lines(), engine=lambda header, m=model, c=config: engine_of(header, *m, c))


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_on_record_as_one_and_a_rerun_finds_it(name: str, models: ModelCache):
    trace, mistake = recorded(name), MISTAKES[name]
    assert trace.header.notes == (mistake.note,)
    assert (
        differences(
            trace, run_preset(mistake.preset, models, engine=mistake.engine, note=mistake.note)
        )
        == []
    )
    right = run_preset(mistake.preset, models)
    assert right.outputs == recorded("greedy-alone").outputs != trace.outputs
    with pytest.raises(InvalidTrace, match="the model"):
        verify(
            trace.lines(),
            engine=lambda header: Engine(
                *models.get(mistake.preset.model, "cpu"), mistake.preset.config
            ),
        )


def test_a_difference_is_named():
    trace = recorded("chunk-7-by-4")
    event = trace.events[1]
    altered = event._replace(
        sampled=tuple(s._replace(token_id=s.token_id + 1) for s in event.sampled)
    )
    later = event._replace(t_end=event.t_end + 1)
    events = trace.events
    assert differences(
        trace, dataclasses.replace(trace, events=[events[0], altered, *events[2:]])
    ) == ["step 1: sampled"]
    assert (
        differences(trace, dataclasses.replace(trace, events=[events[0], later, *events[2:]])) == []
    )
    assert differences(trace, dataclasses.replace(trace, events=events[:-1])) == [
        f"{len(events)} steps recorded, {len(events) - 1} run"
    ]


def test_the_catalogue_lists_them_in_order(tmp_path):
    store = Store(tmp_path, 2**24, lambda path: f"file={path.name}")
    entries = promise_recorded_runs(store)
    assert [e["name"] for e in entries] == [*RUNS, *RANKED]
    for entry in entries:
        assert (
            entry["title"]
            and entry["shows"]
            and entry["steps"] > 0
            and entry["url"] == f"file={entry['id']}.json"
        )
        assert store.is_pinned(f"{entry['id']}.json")


def test_ranks_in_small_fill_their_picture_whichever_runs_longest():
    """From the earliest start to the latest end of all on their common clock, and not beyond."""
    for first in (0, 1):
        found = ranks(text(first, rank=0), text(1 - first, rank=1))
        longest = max(rank.span[1] for rank in found.ranks)
        lanes = _stacked(found, 1000)
        assert len(lanes) == sum(len(thumbnail(rank.trace)) for rank in found.ranks)
        assert max(lane[-1][1] for lane in lanes) == 1000
        assert min(lane[0][0] for lane in lanes) == min(
            round(1000 * rank.span[0] / longest) for rank in found.ranks
        )
