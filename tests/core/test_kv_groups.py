"""Layers with tables of their own: which blocks a window gives back, in real recordings and by
hand, and what is said of older recordings that do not record it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from core.errors import InflightError, InvalidTrace
from core.measure.baselines.records import BaselineRequest
from core.measure.baselines.transformers_continuous import TransformersContinuous
from core.recorders import transformers_batching as batching
from core.recorders.convert import checked_trace
from core.recorders.groups import kv_groups
from core.recorders.raw import Recording, read_raw
from core.recorders.transformers_batching import ContinuousBatchProcessor, _Observer
from core.recorders.transformers_batching import recording as recording_transformers
from core.recorders.vllm.inflight_vllm.groups import Leaving
from core.trace.events import (
    KV,
    Admitted,
    Arrived,
    BlockChange,
    Carried,
    LimitReached,
    Resumed,
    Segment,
    StepEvent,
)
from core.trace.header import GroupFacts, windows_of
from core.trace.rules.blocks import PoolRules
from core.trace.rules.resumption import oddity
from core.trace.run_state import RunState
from core.trace.trace import Trace

DATA = Path(__file__).resolve().parents[1] / "data"
KINDS = {
    "hybrid": ["sliding_window"] * 3 + ["full_attention"],
    "sliding-window": ["sliding_window"],
}


def recording(name: str) -> Recording:
    return read_raw([DATA / f"vllm-0.32-{name}.raw.jsonl.gz"])[0]


def used_as_recorded(trace: Trace, raw: Recording) -> bool:
    total = raw.header["num_blocks"]
    return [e.kv.used for e in trace.events] == [total - step["blocks_free"] for step in raw.steps]


def left_of(trace: Trace) -> list[set[tuple[str, int, int]]]:
    return [{(c.request, c.group, b) for c in e.kv.changes for b in c.left} for e in trace.events]


@pytest.mark.parametrize("name", KINDS)
def test_every_group_is_there_and_every_block_in_use(name):
    raw = recording(name)
    trace = checked_trace(raw)
    assert [group.kind for group in trace.header.groups] == KINDS[name]
    assert {group.window for group in trace.header.groups if group.kind == "sliding_window"} == {64}
    assert len(trace.events) == len(raw.steps) and not any(e.warnings for e in trace.events)
    assert used_as_recorded(trace, raw) and any(left_of(trace))
    again = Trace.from_lines(trace.lines())
    assert again.header == trace.header and again.events == trace.events


@pytest.mark.parametrize("name", KINDS)
def test_what_left_unrecorded_is_said_and_not_made_up(name):
    """A recording as the first recorders wrote it: only the number of groups, and how many blocks
    are free.
    """
    raw = recording(name)
    raw.header["kv_groups"] = len(KINDS[name])
    for step in raw.steps:
        step.pop("left", None)
    trace = checked_trace(raw)
    assert not any(left_of(trace)) and trace.header.notes[-1] == (
        "Some blocks left their requests unrecorded, so more blocks are drawn than were in use."
    )


OF_ALL = GroupFacts(kind="full_attention", block_size=4)
OF_WINDOW = GroupFacts(kind="sliding_window", window=8, block_size=4, layers=(0, 2))
FULL_GROUP = {"kind": "full_attention", "window": None, "block_size": 4, "layers": None}
WINDOW = {"kind": "sliding_window", "window": 8, "block_size": 4, "layers": [0, 2]}


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        (None, ()),
        (1, ()),
        (2, (GroupFacts(block_size=4),) * 2),
        (1024, (GroupFacts(block_size=4),) * 1024),
        ([FULL_GROUP], ()),
        ([WINDOW], (OF_WINDOW,)),
        ([FULL_GROUP, WINDOW], (OF_ALL, OF_WINDOW)),
    ],
)
def test_the_groups_that_a_header_names(said, groups):
    assert kv_groups({"kv_groups": said, "block_size": 4}) == groups


@pytest.mark.parametrize("count", [-1, 0, 1025])
def test_a_number_of_groups_that_there_cannot_be_is_refused(count):
    with pytest.raises(InvalidTrace, match=f"there cannot be {count} KV cache groups"):
        kv_groups({"kv_groups": count, "block_size": 4})


def test_a_block_that_left_unrecorded_is_noticed():
    """The control: one block that leaves, and is kept from the recording, is handed on later and
    has two owners then.
    """
    raw = recording("sliding-window")
    at = next(i for i, step in enumerate(raw.steps) if step.get("left"))
    gone = raw.steps[at].pop("left")
    trace = checked_trace(raw)
    assert gone and not used_as_recorded(trace, raw)


# -- by hand ---------------------------------------------------------------------------------------

NOTHING = LimitReached("none", 0, 0, 0)


@pytest.fixture(scope="module")
def template() -> Trace:
    return checked_trace(recording("sliding-window"))


def state_of(blocks: int, computed: int) -> RunState:
    """Request r in lane 0 with blocks 0, 1, … of four tokens each in group 0, all of them in group
    1.
    """
    state = RunState.of({"r": computed})
    state.arrive(0, Arrived("r", 0.0))
    state.admit(Admitted("r", 0, NOTHING), 0)
    added = tuple(range(blocks))
    state.take_blocks(
        KV(
            0,
            40,
            (
                BlockChange("r", added, False, 0),
                BlockChange("r", tuple(b + 20 for b in added), False, 1),
            ),
        )
    )
    state.computed["r"] = computed
    return state


WINDOW = GroupFacts(kind="sliding_window", window=6, block_size=4)
WHOLE = GroupFacts(kind="full_attention", block_size=4)


def pool(template: Trace, state: RunState, *groups: GroupFacts) -> PoolRules:
    """Of a group with a window and one without, or of others."""
    config = replace(template.header.config, block_size=4, num_blocks=40)
    header = replace(template.header, kv_groups=groups or (WINDOW, WHOLE), num_blocks=40)
    rules = PoolRules(replace(header, config=config))
    rules.go_on_from(state)
    return rules


def with_changes(template: Trace, used: int, *changes: BlockChange) -> StepEvent:
    return template.events[0]._replace(kv=KV(used, 40, changes), released=(), preempted=())


SINGLES = {"block_size": 1}
PAIRS = {"units": 2}


@pytest.mark.parametrize(
    ("group", "computed", "left", "fault"),
    [
        (WINDOW, 9, (0,), None),  # position 9 looks back to 4: block 0 held 0 to 3
        (WINDOW, 8, (0,), "it still needs"),  # position 8 looks back to 3
        (WINDOW, 13, (0, 1), None),
        (WINDOW, 12, (0, 1), "it still needs"),
        (WINDOW, 13, (7,), "does not hold"),
        (WINDOW, 13, (20,), "does not hold"),  # the other group's
        (replace(WINDOW, **SINGLES), 8, (0, 1, 2), None),
        (replace(WINDOW, **SINGLES), 8, (0, 1, 2, 3), "it still needs"),
        (replace(WINDOW, **PAIRS), 9, (0, 1), None),
        (replace(WINDOW, **PAIRS), 9, (0, 1, 2), "it still needs"),
        (replace(WHOLE, **SINGLES), 8, (0,), "it still needs"),
        (GroupFacts(**SINGLES), 8, (0,), "it still needs"),
        (GroupFacts(kind="mamba"), 8, (0, 1), None),
    ],
)
def test_a_block_leaves_once_the_window_has_passed_it(template, group, computed, left, fault):
    state = state_of(4, computed)

    def found(used: int) -> str | None:
        change = BlockChange("r", (), False, 0, left)
        return pool(template, state, group, WHOLE).fault(
            with_changes(template, used, change), state
        )

    assert fault in (found(8 - len(left)) or "") if fault else found(8 - len(left)) is None
    assert fault or found(9 - len(left)) == f"{9 - len(left)} of 40 blocks cannot be in use"


def test_a_block_that_left_may_join_another_table_in_the_same_step(template):
    state = state_of(4, 13)
    changes = (
        BlockChange("r", (), False, 0, (0, 1)),
        BlockChange("r", (0,), False, 0),
        BlockChange("r", (24,), False, 1),
    )
    assert pool(template, state).fault(with_changes(template, 8, *changes), state) is None
    state.take_blocks(KV(8, 40, changes))
    assert state.tables["r"] == {0: [None, None, 2, 3, 0], 1: [20, 21, 22, 23, 24]}
    assert sorted(state.blocks_of("r")) == [0, 2, 3, 20, 21, 22, 23, 24]


def test_places_that_are_empty_from_the_start_are_no_blocks(template):
    state = state_of(4, 13)
    change = BlockChange("r", (None, None, 30), False, 0)
    assert pool(template, state).fault(with_changes(template, 9, change), state) is None


FEW, MORE, KEEPS, LACKS = "too few blocks", "more blocks than", "has passed", "window spans"
GONE = (None, None)


@pytest.mark.parametrize(
    ("group", "table", "start", "ahead", "fault"),
    [
        (WINDOW, (*GONE, 2, 3), 13, 0, None),  # it looks back to position 8, where block 2 begins
        (WINDOW, (*GONE, 2, 3), 12, 0, LACKS),
        (WINDOW, (*GONE, 2, None), 13, 0, LACKS),
        (WINDOW, (*GONE, 2, 3), 16, 0, FEW),
        (WINDOW, (None, 1, 2, 3), 13, 0, None),  # the position before it looks back to 7
        (WINDOW, (0, 1, 2, 3), 13, 0, KEEPS),
        (WINDOW, (None, 1, 2, 3), 14, 0, KEEPS),
        (WINDOW, (None, 1, 2, 3), 14, 1, None),
        (WINDOW, (0, 1), 0, 0, MORE),
        (WINDOW, (0, 1), 0, 3, MORE),
        (WINDOW, (0, 1), 0, 4, None),
        (replace(WINDOW, **PAIRS), (*GONE, *GONE, 4, 5, 6, 7), 13, 0, None),
        (replace(WINDOW, **PAIRS), (*GONE, *GONE, None, 5, 6, 7), 13, 0, LACKS),
        (replace(WINDOW, **PAIRS), (*GONE, None, 3, 4, 5, 6, 7), 14, 0, KEEPS),
        (WHOLE, (0, 1, 2, 3), 15, 0, None),
        (WHOLE, (0, 1, 2, 3), 16, 0, FEW),
        (WHOLE, (0, 1, 2, None), 15, 0, FEW),
        (WHOLE, (0, 1, 2, 3), 11, 0, MORE),
        (replace(WHOLE, **PAIRS), (0, 1, 2, 3), 7, 0, None),
        (replace(WHOLE, **PAIRS), (0, 1, 2), 7, 0, FEW),
        (replace(WHOLE, **PAIRS), (0, 1, 2, 3, 4), 7, 0, None),  # half of one is none
        (replace(WHOLE, **PAIRS), (0, 1, 2, 3, 4, 5), 7, 0, MORE),
        (GroupFacts(kind="ring", window=6), (0, 1), 19, 0, None),
        (GroupFacts(kind="ring", window=6), (0,), 19, 0, FEW),
        (GroupFacts(kind="ring", window=6), (0, 1, 2), 19, 0, MORE),
        (GroupFacts(kind="mamba"), (), 19, 0, None),
    ],
)
def test_a_request_needs_the_blocks_of_its_window_and_no_others(
    template, group, table, start, ahead, fault
):
    """It computes one position. ahead: positions for which it may have blocks, too."""
    state = RunState({}, tables={"r": {0: [*table]}})
    found = pool(template, state, group).misfit(
        Segment(0, "r", 0, "decode", start, 1, start + 1), state, ahead
    )
    assert found is None if fault is None else found is not None and fault in found


@pytest.mark.parametrize(
    ("group", "computed", "needed"),
    [
        (GroupFacts(kind="full_attention"), 9, 3),
        (GroupFacts(kind="full_attention", block_size=8), 9, 2),
        (GroupFacts(kind="full_attention", block_size=8, units=2), 9, 4),
        (GroupFacts(kind="sliding_window", window=6), 9, 3),  # those behind keep empty places
        (GroupFacts(kind="ring", window=6), 9, 2),
        (GroupFacts(kind="mamba"), 9, 0),
    ],
)
def test_who_goes_on_after_a_gap_has_the_blocks_of_its_positions(template, group, computed, needed):
    config = replace(template.header.config, block_size=4)
    header = replace(template.header, kv_groups=(group,), config=config)
    state = RunState.of({"r": 20})

    def odd(blocks: int) -> str | None:
        one = Carried("r", 0, computed, tables=(tuple(range(blocks)),))
        return oddity(Resumed(1, 3, 3, (), (), (one,), ()), state, header)

    assert odd(needed) is None
    assert not needed or "too few blocks for 9 positions" in (odd(needed - 1) or "")


@pytest.mark.parametrize(
    ("groups", "windows"),
    [
        ([("full_attention", 6, (0, 1))], (None, None)),
        ([("sliding_window", 6, (0, 2)), ("full_attention", None, (1,))], (6, None, 6)),
        ([("ring", 6, (1,)), ("sliding_window_mla", 5, (0,))], (5, 6)),
        ([("sliding_window", 6, (0, 2))], None),  # layer 1 is in no group
        ([("sliding_window", 6, None)], None),
        ([("sliding_window", 6, (0,)), ("mamba", None, (1,))], None),
        ([("chunked_local_attention", 6, (0,))], None),
        ([], None),
    ],
)
def test_the_windows_of_layers_are_those_of_their_groups_if_all_are_known(groups, windows):
    made = [GroupFacts(kind=kind, window=size, layers=layers) for kind, size, layers in groups]
    assert windows_of(made) == windows


# -- what the recorder notices ---------------------------------------------------------------------


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id, self.is_null = block_id, not block_id


class Manager:
    def __init__(self) -> None:
        self.req_to_blocks: dict[str, list[Block]] = {}


@pytest.mark.parametrize("kind", ["sliding_window", "mamba"])
def test_the_recorder_names_what_left(kind):
    """A window moves on; a state leaves from the middle. Places that were empty from the start have
    never left.
    """
    manager, blocks = Manager(), {b: Block(b) for b in range(10)}
    scheduler = type("S", (), {})()
    scheduler.kv_cache_manager = type(
        "M", (), {"coordinator": type("C", (), {"single_type_managers": [Manager(), manager]})}
    )
    leaving = Leaving(scheduler, [{"kind": "full_attention"}, {"kind": kind}])
    table = manager.req_to_blocks["r"] = [blocks[b] for b in (0, 3, 4, 5)]
    assert leaving.of_step({"r": 9}, [["r", [[1, 2], [0, 3, 4, 5]], "table"]]) == []
    table[1] = blocks[0]
    table.append(blocks[6])
    assert leaving.of_step({"r": 1}, [["r", [[], [6]], "append"]]) == [["r", 1, [3]]]
    assert leaving.of_step({"r": 1}, []) == []
    place = 2 if kind == "sliding_window" else 3
    table[place] = blocks[0]
    assert leaving.of_step({"r": 1}, []) == [["r", 1, [place + 2]]]
    leaving.forget("r")
    manager.req_to_blocks["r"] = [blocks[7]]
    assert leaving.of_step({"r": 1}, [["r", [[8], [7]], "table"]]) == []


def test_a_recording_of_before_is_not_changed_where_nothing_left():
    raw = read_raw([DATA / "vllm-0.32.raw.jsonl.gz"])[0]
    before = deepcopy(raw.steps)
    trace = checked_trace(raw)
    assert trace.header.kv_groups == () and raw.steps == before
    assert not any(change.left or change.group for e in trace.events for change in e.kv.changes)


# -- transformers ----------------------------------------------------------------------------------


def test_a_table_of_transformers_is_recorded_by_what_is_new_in_it(tmp_path):
    """Two groups: a block of the first is two units of the pool, of the second one. A table is
    whole where a request has none yet, or where one of its tables no longer begins as it did.
    """
    observer = _Observer(tmp_path / "run.raw.jsonl", "m", {})

    def changes(**tables):
        """tables: by request, its blocks in each group."""
        allocators = {
            group: SimpleNamespace(
                blocks_per_sector=2 - group,
                block_table={r: blocks[group] for r, blocks in tables.items() if blocks[group]},
            )
            for group in (0, 1)
        }
        cache = SimpleNamespace(cache_allocators=allocators, num_sectors=9)
        return observer._blocks(cache)

    assert changes(a=([0], [3])) == [["a", [[0], [6, 7]], "table"]]
    assert changes(a=([0], [3]), b=([1], [])) == [["b", [[1], []], "table"]]
    assert changes(a=([0, 2], [3]), b=([1], [])) == [["a", [[2], []], "append"]]
    assert changes(a=([0, 2], [3, 4]), b=([1], [5])) == [
        ["a", [[], [8, 9]], "append"],
        ["b", [[], [10, 11]], "append"],
    ]
    assert changes(a=([0, 2], [5, 4])) == [["a", [[0, 2], [10, 11, 8, 9]], "table"]]
    assert changes(a=([0, 2], [5, 4])) == []
    assert changes() == []
    assert changes(a=([0, 2], [5])) == [["a", [[0, 2], [10, 11]], "table"]]


def test_where_nothing_runs_no_file_is_left_and_transformers_is_as_it_was(tmp_path):
    """Only while it is recorded is it patched; and asynchronous batches are refused."""
    processor, schedulers = ContinuousBatchProcessor, batching.schedulers.SCHEDULER_MAPPING
    before, classes = processor.update_batch, dict(schedulers)
    with recording_transformers(path := tmp_path / "run.raw.jsonl", "m"):
        assert processor.update_batch is not before and schedulers.keys() == classes.keys()
        assert not set(schedulers.values()) & set(classes.values())
        with pytest.raises(InflightError, match="set use_async_batching=False"):
            processor.update_batch(SimpleNamespace(use_async_batching=True))
    assert (processor.update_batch, schedulers) == (before, classes) and not path.exists()


@pytest.mark.slow
def test_transformers_keeps_a_ring_for_layers_with_a_window(tmp_path):
    """A small random Gemma 3 with three layers of a window and one without: a block of the ring is
    three of the pool's.
    """
    layers = ["sliding_attention"] * 3 + ["full_attention"]
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=40,
        layer_types=layers,
        max_position_embeddings=256,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    work = [BaselineRequest(f"r{n}", tuple(range(1, 1 + n)), 30) for n in (5, 50, 20, 40)]
    path = tmp_path / "run.raw.jsonl"
    with recording_transformers(path, "gemma3"):
        driver = TransformersContinuous(
            Gemma3ForCausalLM(config).eval(), work, 3, 32, limits={"num_blocks": 24}
        )
        for one in work:
            driver.add(one)
        while driver.has_work:
            assert driver.step()
        driver.close()
    (raw,) = read_raw([path])
    come = [arrived["t"] for step in raw.steps for arrived in step["arrived"]]
    # one after the other, and before the step that takes them up
    assert raw.complete and [0, *come] == sorted({0, *come}) and len(come) == 4
    assert come[-1] <= raw.steps[0]["t_start"]
    trace = checked_trace(raw)
    ring, full = trace.header.groups
    assert (ring.kind, ring.window, ring.layers, ring.units) == ("ring", 40, (0, 1, 2), 3)
    assert (full.kind, full.window, full.layers, full.units) == ("full_attention", None, (3,), 1)
    assert trace.header.model.windows == (40, 40, 40, None)
    assert used_as_recorded(trace, raw) and not any(e.warnings for e in trace.events)
    state, longest = RunState.of(trace.prompt_lengths), 0
    for event in trace.events:
        state.begin(event)
        for s in event.segments:  # pages of 32: a ring of 40 never has more than two
            tables = state.tables[s.request]
            assert len(tables[0]) == 3 * min(2, -(-s.kv_len // 32)) and len(tables[1]) == -(
                -s.kv_len // 32
            )
            longest = max(longest, s.kv_len)
        state.end(event)
    assert longest > 64
