"""Traces: there and back, small, and never believed when altered; masks against matrices written by
hand.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import InflightError, Trace, Workload
from core.config import ASSETS, POLICIES
from core.errors import InvalidTrace
from core.proof.verify import verify
from core.trace.events import to_microseconds
from core.trace.file import BREAKS_OFF, lines_of
from worlds.examples import examples
from worlds.small import memory_engine, memory_trace, request, requests

SMALL = ((5, 3), (9, 2), (2, 4, 1))


def sealed(rows: list[dict]) -> list[str]:
    """Lines of a trace with checksums made anew."""
    crc, lines = 0, []
    for row in rows:
        body = json.dumps(
            {k: v for k, v in row.items() if k != "crc"}, ensure_ascii=False, separators=(",", ":")
        )[:-1]
        crc = zlib.crc32(body.encode(), crc)
        lines.append(f'{body},"crc":"{crc:08x}"}}')
    return lines


def rows_of(trace: Trace) -> list[dict]:
    return [json.loads(line) for line in trace.lines()]


@pytest.fixture(scope="module")
def small() -> Trace:
    return memory_trace(
        *SMALL, max_num_seqs=2, max_num_batched_tokens=6, block_size=4, num_blocks=6
    )


# -- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(POLICIES))
def test_save_and_load(policy: str, tmp_path: Path) -> None:
    trace = memory_trace(
        *SMALL, policy=policy, max_num_seqs=2, max_num_batched_tokens=6, block_size=4, num_blocks=8
    )
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert (
        loaded.events == trace.events
        and (loaded.header, loaded.asked) == (trace.header, trace.asked)
        and loaded.outputs == trace.outputs
    )
    assert loaded.texts == trace.texts and loaded.complete
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]
    loaded.save(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "t.jsonl").read_bytes()


@pytest.mark.parametrize("seconds", [0.0000005, 12.3456789, 2.0**33 - 0.3, 2.0**33 + 0.3, 1e308])
def test_a_time_is_recorded_in_microseconds_as_long_as_a_float_holds_them(seconds: float) -> None:
    assert to_microseconds(seconds) == round(seconds, 6)


def test_a_text_is_without_the_token_by_which_the_model_ended_it():
    """And has every token where the model did not end it."""
    trace = Trace.load(ASSETS / "traces" / "six-questions.jsonl", trusted=True)
    assert trace.text("r0") == "The capital of France is Paris."
    for name, pieces in trace.texts.output.items():
        assert pieces[-1] == "<|im_end|>" and trace.text(name) == "".join(pieces[:-1])
    cut = [event._replace(finished=()) for event in trace.events]
    assert replace(trace, events=cut).text("r0").endswith("Paris.<|im_end|>")
    model = replace(trace.header.model, eos_token_ids=(7,))
    other = replace(trace, header=replace(trace.header, model=model))
    assert other.text("r0").endswith("Paris.<|im_end|>")


def test_preemption_cancels_and_prefixes_survive_the_disk(tmp_path: Path) -> None:
    engine = memory_engine(
        max_num_seqs=3, max_num_batched_tokens=9, block_size=4, num_blocks=8, prefix_caching=True
    )
    stream = engine.stream(Workload([request(f"r{i}", 8, 14, i) for i in range(5)]))
    for event in stream:
        if event.step == 2:
            engine.cancel("r1")
            engine.cancel("r4")
    assert any(e.preempted for e in engine.trace.events) and any(
        e.kv.prefix_hits for e in engine.trace.events
    )
    engine.trace.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").events == engine.trace.events


def test_a_run_cut_short_saves_as_incomplete(tmp_path: Path) -> None:
    engine = memory_engine()
    stream = engine.stream(Workload(requests(*SMALL)))
    next(stream), next(stream)
    stream.close()
    engine.trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert not loaded.complete and len(loaded.events) == 2


# -- size ------------------------------------------------------------------------------------------


def many(lanes: int, new: int) -> Trace:
    return memory_trace(*((40, new),) * lanes, max_num_seqs=lanes, max_num_batched_tokens=2048)


def test_size_on_disk() -> None:
    for lanes in (1, 32):
        trace = many(lanes, 60)
        size = sum(len(line.encode()) + 1 for line in list(trace.lines())[1:])
        tokens = sum(len(o) for o in trace.outputs.values())
        assert size <= 1024 * len(trace.events) + 100 * tokens


def deep_size(value: object, seen: set[int]) -> int:
    """Bytes of an event and all that it alone holds; what Python shares (small numbers, names)
    counts once.
    """
    if id(value) in seen or (type(value) is int and -6 < value < 257):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, tuple):
        return size + sum(deep_size(v, seen) for v in value)
    if hasattr(value, "__slots__") and hasattr(value, "to_json"):
        return size + sum(deep_size(v, seen) for v in value.to_json().values())
    return size


def test_size_in_memory() -> None:
    trace = many(32, 60)
    seen: set[int] = set()
    size = sum(deep_size(e, seen) for e in trace.events)
    assert size / sum(len(o) for o in trace.outputs.values()) <= 400


# -- never believed when altered -------------------------------------------------------------------


def test_every_single_byte_is_under_seal(small: Trace, tmp_path: Path) -> None:
    """Any byte changed in any way: found, and the line named."""
    good = "".join(line + "\n" for line in small.lines()).encode()
    starts = [0, *(i + 1 for i, b in enumerate(good) if b == 10)]
    draw, path = random.Random(0), tmp_path / "t.jsonl"
    offsets = sorted(
        {*draw.sample(range(len(good)), 80), *(s - 1 for s in starts[1:]), *starts[:-1]}
    )
    for offset in offsets[:-1]:
        for new in {good[offset] ^ 1, 10, draw.choice((13, 32, 0xFF))} - {good[offset]}:
            path.write_bytes(good[:offset] + bytes([new]) + good[offset + 1 :])
            with pytest.raises(InvalidTrace) as caught:
                Trace.load(path)
            assert caught.value.line == sum(s <= offset for s in starts), (offset, new)


def test_reordered_and_doubled(small: Trace) -> None:
    lines = list(small.lines())
    for n in range(len(lines) - 1):
        with pytest.raises(InvalidTrace) as caught:
            Trace.from_lines([*lines[:n], *lines[n + 1 :]])
        assert caught.value.line == (n + 1)
        with pytest.raises(InvalidTrace) as caught:
            Trace.from_lines([*lines[: n + 1], *lines[n:]])
        assert caught.value.line == n + 2
    for n in range(len(lines) - 1):
        with pytest.raises(InvalidTrace) as caught:
            Trace.from_lines([*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]])
        assert caught.value.line == n + 1


@pytest.mark.slow
def test_a_file_that_breaks_off_opens_up_to_its_last_whole_line_and_says_so(
    small: Trace, tmp_path: Path
) -> None:
    whole, path, draw = (
        "".join(line + "\n" for line in small.lines()).encode(),
        tmp_path / "t.jsonl",
        random.Random(0),
    )
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 10]
    for cut in sorted({*draw.sample(range(ends[0], len(whole) - 1), 40), *ends[:-1]}):
        path.write_bytes(whole[:cut])
        found = Trace.load(path)
        lines = whole[: cut + 1]  # a line is whole with its last brace
        num_steps = lines[: lines.rindex(b"\n")].count(b'\n{"step":')
        assert found.events == small.events[:num_steps] and not found.complete
        assert found.header.notes == (BREAKS_OFF,)
        assert found.asked.keys() == found.texts.prompt.keys() <= small.asked.keys()
        texts = [
            json.loads(line)["request"]
            for line in whole[:cut].split(b"\n")[:-1]
            if b'"kind":"texts"' in line
        ]
        assert [found.text(r) for r in texts] == [small.text(r) for r in texts]
        checked = verify(lines_of(path))
        assert checked.breaks_off and checked.num_steps == num_steps
        found.save(path)
        assert Trace.load(path).events == found.events and Trace.load(path).header == found.header
        assert not verify(lines_of(path)).breaks_off
    path.write_bytes(whole[: ends[0] - 2])
    with pytest.raises(InvalidTrace, match="line 1"):
        Trace.load(path)


def test_two_traces_do_not_mix(small: Trace) -> None:
    other = list(memory_trace((4, 3), (9, 2)).lines())
    with pytest.raises(InvalidTrace, match="line 3"):
        Trace.from_lines([*list(small.lines())[:2], *other[2:]])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"\xff\xfe\n",
        b"[" * 100_000,
        b'{"crc":"00000000"}\n',
        b"\x00" * 100,
    ],
)
def test_what_is_no_trace(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidTrace, match="line 1"):
        Trace.load(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="gone.jsonl: it cannot be read"):
        Trace.load(tmp_path / "gone.jsonl")
    with pytest.raises(InvalidTrace):
        Trace.load(tmp_path)


# -- sealed anew, but not true ---------------------------------------------------------------------


def event(rows: list[dict], step: int) -> dict:
    return next(r for r in rows if r.get("step") == step)


def move_left(rows: list[dict]) -> None:
    """A departure told one step too late."""
    steps = [r for r in rows if "step" in r]
    index = next(i for i, e in enumerate(steps) if e["released"])
    steps[index + 1]["released"] = steps[index]["released"] + steps[index + 1]["released"]
    steps[index]["released"] = []


def request_of(rows: list[dict], request: str) -> dict:
    return next(r for r in rows if r.get("kind") == "request" and r["asked"]["id"] == request)


LIES = {
    "a step twice": lambda r: event(r, 1).update(step=0),
    "time": lambda r: event(r, 1).update(t_start=99.0),
    "a token too early": lambda r: event(r, 0)["sampled"].append([0, "r1", 5, -1.0, 0.5]),
    "a token less": lambda r: event(r, 1)["sampled"].pop(),
    "a token of nobody": lambda r: event(r, 0)["sampled"].append([0, "zz", 5, -1.0, 0.5]),
    "a token in no pass": lambda r: event(r, 0)["sampled"].append([7, "r0", 5, -1.0, 0.5]),
    "a lane": lambda r: event(r, 0)["admitted"][0].__setitem__(1, 1),
    "a lane that there is not": lambda r: event(r, 0)["admitted"][0].__setitem__(1, 5),
    "a start": lambda r: event(r, 1)["segments"][0].__setitem__(4, 3),
    "a length": lambda r: event(r, 0)["segments"][0].__setitem__(5, 3),
    "a phase": lambda r: event(r, 0)["segments"][0].__setitem__(3, "decode"),
    "a width": lambda r: event(r, 0)["passes"][0].__setitem__(2, 10**9),
    "padding": lambda r: event(r, 0)["passes"][0].__setitem__(4, 3),
    "a layout": lambda r: event(r, 0)["passes"][0].__setitem__(0, "padded"),
    "the waiting": lambda r: event(r, 1).update(waiting=[0, None, None]),
    "the head": lambda r: event(r, 0).update(waiting=[1, "r0", ["lanes", 0, 1, 2]]),
    "the budget": lambda r: event(r, 0)["budget"].__setitem__(0, 99),
    "the split": lambda r: event(r, 0)["budget"].__setitem__(1, 1),
    "a foreign block": lambda r: event(r, 0)["kv"][2][0].__setitem__(1, [77, 78]),
    "a block of two": (
        lambda r: event(r, 0)["kv"][2][1].__setitem__(1, event(r, 0)["kv"][2][0][1][:1])
    ),
    "blocks in use": lambda r: event(r, 0)["kv"].__setitem__(0, 6),
    "the pool": lambda r: event(r, 0)["kv"].__setitem__(1, 600),
    "too few blocks": lambda r: event(r, 0)["kv"][2].pop(),
    "a prefix": lambda r: event(r, 0)["kv"][3].append(["r0", 4]),
    "an early end": lambda r: event(r, 0)["finished"].append(["r0", "length"]),
    "a reason": (
        lambda r: next(e for e in r if e.get("finished"))["finished"][0].__setitem__(1, "tired")
    ),
    "no end": lambda r: next(e for e in r if e.get("finished"))["finished"].clear(),
    "a preemption": lambda r: event(r, 1)["preempted"].append(["r0", 5, 0]),
    "an arrival": lambda r: event(r, 0)["arrived"].pop(),
    "an arrival again": lambda r: event(r, 1)["arrived"].append(["r0", 0.0]),
    "a stall": lambda r: event(r, 1)["stalled"].append(["r0", ["blocks", 0, 1, 6]]),
    "not a number": lambda r: event(r, 1).update(t_end=float("nan")),
    "a yes for a number": lambda r: event(r, 1)["segments"][0].__setitem__(0, False),
    "a text for a number": lambda r: event(r, 1)["segments"][0].__setitem__(2, "0"),
    "a field too many": lambda r: event(r, 1).update(mood="fine"),
    "a field too few": lambda r: event(r, 1).pop("kv"),
    "the count of steps": lambda r: r[-1].update(events=1),
    "complete": lambda r: r[-1].update(complete="yes"),
    "a text less": lambda r: r[-2]["output"].pop(),
    "texts of nobody": lambda r: r[-2].update(request="zz"),
    "texts of another": lambda r: r[-2].update(request="r0"),
    "no texts": lambda r: r[-2].update(output=[]),
    "texts of another kind": lambda r: r[-2].update(prompt={}, output=3),
    "the schema": lambda r: r[0].update(schema=5),
    "the policy's fields": lambda r: r[0]["batching"].update(admission="barrier"),
    "who left": (
        lambda r: next(e for e in r if e.get("released"))["released"][0].__setitem__(0, "r2")
    ),
    "which lane": (
        lambda r: next(e for e in r if e.get("released"))["released"][0].__setitem__(1, 1)
    ),
    "left before": (
        lambda r: next(e for e in r if e.get("released"))["released"][0].__setitem__(2, "before")
    ),
    "nobody left": lambda r: next(e for e in r if e.get("released"))["released"].clear(),
    "left later": lambda r: move_left(r),
    "the policy": lambda r: r[0].update(policy="static"),
    "the limits": lambda r: r[0]["config"].update(max_num_seqs=0),
    "an unknown limit": lambda r: r[0]["config"].update(speed=9),
    "no policy name": lambda r: r[0]["config"].update(policy=[]),
    "no prompt": lambda r: request_of(r, "r0")["asked"].update(prompt_token_ids=[]),
    "another prompt": lambda r: request_of(r, "r0").update(tokens=[1]),
    "no request": lambda r: request_of(r, "r0").pop("asked"),
    "a request of another name": lambda r: request_of(r, "r0")["asked"].update(id="zz"),
    "a request asked twice": lambda r: request_of(r, "r2")["asked"].update(id="r0"),
    "the workload": lambda r: r[0].update(workload=[]),
    "the unit of arrivals": lambda r: r[0]["workload"].update(arrival_unit="weeks"),
    "windows": lambda r: r[0]["model"].update(windows=[-1, "x"]),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_lie_under_a_good_seal(small: Trace, lie: str) -> None:
    rows = rows_of(small)
    before = copy.deepcopy(rows)
    LIES[lie](rows)
    first = next(
        i
        for i, (a, b) in enumerate(zip(before, rows, strict=True), 1)
        if json.dumps(a) != json.dumps(b)
    )
    with pytest.raises(InvalidTrace) as caught:
        Trace.from_lines(sealed(rows))
    assert first <= caught.value.line <= len(rows)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def replace_somewhere(draw, value):
    """One value, anywhere inside, replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        value[key] = replace_somewhere(draw, value[key])
        return value
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        value[index] = replace_somewhere(draw, value[index])
        return value
    return draw(json_values)


@given(data=st.data())
@examples(60)
def test_only_an_invalid_trace_ever_escapes(small: Trace, data) -> None:
    rows = rows_of(small)
    index = data.draw(st.sampled_from([0, 0, *range(len(rows))]))
    replaced = replace_somewhere(data.draw, rows[index])
    rows[index] = replaced if isinstance(replaced, dict) else {"x": replaced}
    try:
        loaded = Trace.from_lines(sealed(rows))
    except (InvalidTrace, UnicodeEncodeError):
        return
    for step in (loaded.events[0].step, loaded.events[-1].step):  # what passes can be drawn
        loaded.mask(step)


# -- masks -----------------------------------------------------------------------------------------


def picture(mask) -> list[str]:
    return ["".join("#" if cell else "." for cell in row) for row in mask.allowed]


def test_masks_of_small_passes_by_hand() -> None:
    trace = memory_trace((2, 3), (3, 3), (1, 2, 1), max_num_seqs=3)
    assert picture(trace.mask(0)) == ["#....", "##...", "..#..", "..##.", "..###"]
    mask = trace.mask(1)
    assert [(k.request, k.position) for k in mask.keys] == [
        *(("r0", p) for p in range(3)),
        *(("r1", p) for p in range(4)),
        ("r2", 0),
    ]
    assert picture(mask) == ["###.....", "...####.", ".......#"]
    mask = trace.mask(1, order="cached-new")
    assert [(k.request, k.position) for k in mask.keys] == [
        ("r0", 0),
        ("r0", 1),
        ("r1", 0),
        ("r1", 1),
        ("r1", 2),
        ("r0", 2),
        ("r1", 3),
        ("r2", 0),
    ]
    assert picture(mask) == ["##...#..", "..###.#.", ".......#"]


def test_masks_of_a_padded_pass_and_a_window() -> None:
    trace = memory_trace((3, 2), (1, 3), (2, 1, 1), policy="static", max_num_seqs=2)
    assert picture(trace.mask(0)) == ["#...", "##..", "###.", "....", "....", "...#"]
    mask = trace.mask(2)  # r0 has finished: its row is a pad
    assert [(q.request, q.position) for q in mask.queries] == [("r0", None), ("r1", 2)]
    assert picture(mask) == ["...", "###"]
    trace.header = replace(trace.header, model=replace(trace.header.model, windows=(2, None)))
    assert picture(trace.mask(2, layer=0)) == ["...", ".##"] and picture(trace.mask(2)) == [
        "...",
        "###",
    ]
    for step, wrong in ((99, {}), (0, {"pass_index": 1}), (0, {"layer": 2})):
        with pytest.raises(InflightError):
            trace.mask(step, **wrong)


def test_the_two_masks_that_the_article_prints() -> None:
    trace = memory_trace((5, 6), (5, 50), (7, 300), (10, 30), max_num_seqs=3)
    first = trace.mask(0, order="cached-new").allowed
    blocks = np.zeros((17, 17), bool)
    for start, length in ((0, 5), (5, 5), (10, 7)):
        blocks[start : start + length, start : start + length] = np.tri(length, dtype=bool)
    assert np.array_equal(first, blocks)
    mask = trace.mask(6, order="cached-new")
    assert (
        "".join("ABCD"[int(k.request[1])] for k in mask.keys)
        == "B" * 10 + "C" * 12 + "D" * 10 + "BC"
    )
    d, none = [f"{'#' * (i + 1):.<10}" for i in range(10)], "." * 10
    assert picture(mask) == [
        *(none + "." * 12 + row + ".." for row in d),
        "#" * 10 + "." * 12 + none + "#.",
        none + "#" * 12 + none + ".#",
    ]
