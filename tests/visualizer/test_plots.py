"""Figures and animations of a script: what each lane did, by hand; what they refuse."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw

import inflight
from core import Engine
from core.errors import InflightError
from core.simulate.engine import SimulatedEngine
from core.simulate.roofline import Roofline
from core.trace.events import Admitted, Finished, LaneReleased, LimitReached
from core.trace.mask import Position
from core.trace.phrases import letter
from core.workload.workload import Workload
from visualizer.charts.step_figure import CELLS, _token
from visualizer.charts.theme import HUES, Hues, escaped, tint
from worlds.by_hand import event
from worlds.small import MemoryModel, memory_trace, request, requests

ROWS = ((3, 2), (2, 1), (2, 1, 3))  # prompt, new tokens, arrival


@pytest.fixture(scope="module")
def trace():
    """r0 reads, then writes in lane 0; r1 reads in lane 1. Nothing runs in step 2; r2 reads."""
    return memory_trace(*ROWS, max_num_seqs=2, block_size=4)


def test_lanes_are_drawn_as_they_were_held(trace):
    figure = trace.plot()
    (cells,) = figure.data
    colours = [[CELLS[code] for code in row] for row in cells.z]
    empty = CELLS[0]
    assert colours == [
        [tint(HUES[0], 0.5), HUES[0], empty, tint(HUES[2], 0.5)],
        [tint(HUES[1], 0.5), empty, empty, empty],
    ]
    assert (list(cells.x), cells.text[0][1]) == (
        [0, 1, 2, 3, 4],
        "r0: decode, 4 in its cache",
    )
    assert figure.layout.title.text.startswith("small under continuous: 3 requests, 3 steps")


@pytest.mark.parametrize(
    ("left", "step"),
    [
        ({"released": (LaneReleased("r3", 3, "before"),)}, 1),
        ({"finished": (Finished("r3", "cancelled"),)}, 1),
        ({"released": (LaneReleased("r3", 3, "after"),)}, 0),
    ],
)
def test_a_newcomer_has_the_hue_of_who_has_just_left(left, step):
    """With as many requests as hues: whoever left before a step or after the one before."""
    why = LimitReached("none")
    first = event(0, admitted=tuple(Admitted(f"r{n}", n, why) for n in range(len(HUES))))
    second = event(1, admitted=(Admitted("new", 3, why),))
    hues, events = Hues(), [first, second]
    events[step] = events[step]._replace(**left)
    assert hues.deal(events[0]) == {f"r{n}": n for n in range(len(HUES))}
    assert hues.deal(events[1]) == {"new": 3}


def test_kv_and_mask_are_those_of_the_trace(trace):
    (line,) = trace.plot("kv").data
    assert list(line.y) == [e.kv.used for e in trace] + [trace[-1].kv.used]
    mask = trace.plot("mask", step=0).data[1]
    assert [[bool(cell) for cell in row] for row in mask.z] == [
        list(row) for row in trace.mask(step=0).allowed
    ]


@pytest.mark.slow
def test_a_comparison_races_over_one_time(trace):
    other = memory_trace(*ROWS, max_num_seqs=1, block_size=4)
    found = inflight.compare(trace, other, names=["two", "one"])
    race = found.plot()
    assert [len(cells.z) for cells in race.data] == [2, 1]
    assert race.layout.xaxis.range == race.layout.xaxis2.range
    assert race.layout.yaxis2.ticktext == ("one",)
    assert found.plot("latency").data
    simulated = SimulatedEngine(Roofline.named("h100", "8b")).run(Workload(requests((3, 2))))
    assert inflight.compare(simulated).plot().layout.title.text.startswith("Simulated: ")


@pytest.mark.parametrize(
    ("view", "step", "refusal"),
    [
        ("pie", None, r"^There is no view 'pie' of it; there are lanes, kv, mask\.$"),
        ("mask", None, "Which step"),
        ("lanes", 1, r"^step= is for the mask; 'lanes' shows all of them\.$"),
        ("mask", 9, "no step 9"),
    ],
)
def test_a_view_that_is_not_there_is_refused(trace, view, step, refusal):
    with pytest.raises(InflightError, match=refusal):
        trace.plot(view, step)


def test_an_animation_has_a_picture_for_each_step(trace, tmp_path):
    trace.animate(tmp_path / "run.gif", seconds=0.2)
    with Image.open(tmp_path / "run.gif") as film:
        assert film.n_frames == 3 and film.info["duration"] == 200
        seen = []
        for number in range(3):
            film.seek(number)
            picture = film.convert("RGB")
            seen.append([_hex(picture.getpixel((x, 145))) for x in (200, 500, 790)])
    reads, writes, other, empty = (
        colour.upper() for colour in (tint(HUES[0], 0.5), HUES[0], tint(HUES[2], 0.5), CELLS[0])
    )
    assert seen == [[reads, empty, empty], [reads, writes, empty], [reads, writes, other]]
    trace.animate(tmp_path / "last.gif", steps=slice(-1, None))
    with Image.open(tmp_path / "last.gif") as film:
        assert film.n_frames == 1


def test_an_animation_names_some_of_those_who_wait_and_counts_the_rest(tmp_path, monkeypatch):
    """Thirty for one lane: the second to the twenty-fifth by letter, and five more."""
    told, draw = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw,
        "text",
        lambda ink, at, text, *how, **more: told.append(text) or draw(ink, at, text, *how, **more),
    )
    many = memory_trace(*[(3, 2)] * 30, max_num_seqs=1)
    many.animate(tmp_path / "run.gif", steps=slice(0, 1))
    (waiting,) = (text for text in told if text.startswith("waiting: "))
    assert waiting == f"waiting: {' '.join(map(letter, range(1, 25)))} and 5 more"
    assert "Step 0" in told and letter(0) in told


def _hex(pixel: tuple[int, ...]) -> str:
    return "#" + "".join(f"{c:02X}" for c in pixel)


def test_an_animation_that_cannot_be_made_is_refused_and_leaves_no_file(
    trace, tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    for name, given, refusal in (
        ("run.webm", {}, r"^An animation is a \.gif or an \.mp4, not 'run\.webm'\.$"),
        ("run.mp4", {}, "needs the program ffmpeg"),
        ("run.gif", {"steps": slice(9, 12)}, "these are 0: choose some"),
        ("run.gif", {"seconds": 0}, "0.02 to 60 seconds, not 0"),
        ("none/run.gif", {}, "there is no folder"),
    ):
        with pytest.raises(InflightError, match=refusal):
            trace.animate(tmp_path / name, **given)
    assert list(tmp_path.iterdir()) == []


def test_names_and_texts_of_a_trace_are_data_in_a_figure():
    assert escaped("a\n<b>\tc\x00&") == "a↵&lt;b&gt;→c␀&amp;"
    ran = Engine(MemoryModel()).run(Workload([request("<b>a</b>", 3, 2)], "<i>w</i>"))
    figure = ran.plot()
    assert figure.data[0].text[0][1].startswith("&lt;b&gt;a&lt;/b&gt;: decode")
    assert figure.layout.title.text.startswith("&lt;i&gt;w&lt;/i&gt;")
    (times, *_) = inflight.compare(ran, ran, names=["one", "two"]).plot("latency").data
    assert list(times.text) == ["&lt;b&gt;a&lt;/b&gt;"]
    assert (
        _token(Position("a", 0, "aaaaaaaaaaaa<<<")) == "aaaaaaaaaaaa&lt;&lt;"
    )  # cut, then escaped
