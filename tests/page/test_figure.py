"""A figure: views of one recorded run at a moment from outside or in the hand, as the story and the
embeddable page hold it.
"""

from __future__ import annotations

import re

import pytest

from core.config import EngineConfig
from core.trace.trace import Texts, Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from visualizer.page.bundle import figure_style, inert_json, modules, script
from worlds.browser import settled
from worlds.visual import record, request

RUN = "verses-continuous"
PAGE = """<!doctype html><html lang="en"><title>figure</title><style>{style}</style><div id="figure" style="width: 600px; height: 700px"></div><script>{script}</script>
<script>window.figure = new inflightModules["figure/figure.js"].Figure(document.getElementById("figure"), {replay}, {{ views: ["lanes", "row", "mask", "kv", "text"], claim: "A claim", source: "recorded", play: true }});</script></html>"""  # noqa: E501


@pytest.fixture
def figure(visit):
    html = PAGE.format(
        style=figure_style(),
        script=script("figure/figure.js"),
        replay=inert_json(replay(Trace.load(TRACES / f"{RUN}.jsonl"))),
    )
    page = visit(drawn=False, files={"": html})
    page.evaluate("figure.show({ index: 4 })")
    settled(page, "figure.drawn.at === 5")
    return page


def test_a_figure_brings_nothing_of_the_tabs_and_stays_small():
    found = modules("figure/figure.js")
    assert {name.split("/")[0] for name in found} == {"parts", "run", "views", "figure"}
    assert sum(map(len, found.values())) < 170_000


_DRAWN = """() => {
    const ink = CanvasRenderingContext2D.prototype, { fillText } = ink;
    let drawn = new Set();
    ink.fillText = function (text, ...at) { drawn.add(text); return fillText.call(this, text, ...at); };
    return figure.run.events.map((_, index) => {
        drawn = new Set();
        figure.show({ index });
        figure.draw();
        return [...drawn];
    });
}"""  # noqa: E501


def test_its_lanes_write_a_word_in_the_step_in_which_it_was_written(visit):
    trace = record(
        EngineConfig("continuous", max_num_seqs=3),
        *[request(f"r{i}", 3, 4 + i, i) for i in range(4)],
    )
    words = {
        r: [f"{'abcd'[i]}{n}" for n in range(len(ids))]
        for i, (r, ids) in enumerate(trace.outputs.items())
    }
    trace.recorded_texts = Texts(trace.recorded_texts.prompt, words)
    html = PAGE.format(
        style=figure_style(), script=script("figure/figure.js"), replay=inert_json(replay(trace))
    )
    page = visit(
        drawn=False, files={"": html.replace('"lanes", "row", "mask", "kv", "text"', '"lanes"')}
    )
    page.evaluate("figure.show({ index: 4 })")
    settled(page, "figure.drawn.at === 5")
    written: list[str] = []
    for event, drawn in zip(trace.events, page.evaluate(_DRAWN), strict=True):
        written += [words[r].pop(0) for r, _ in event.tokens]
        assert {text for text in drawn if re.fullmatch(r"[a-d]\d", text)} == set(written), (
            event.step
        )


@pytest.mark.smoke
def test_the_hand_holds_a_figure_until_it_is_given_back(figure):
    trace = Trace.load(TRACES / f"{RUN}.jsonl")
    tokens = sum(s.length for s in trace.event(4).segments)
    assert figure.inner_text(".row .key") == f"{tokens} tokens" and figure.inner_text(
        ".figure-says"
    ).startswith("Step 4.")
    figure.get_by_role("button", name="Next").click()
    settled(figure, "figure.drawn.at === 6")
    figure.evaluate("figure.show({ index: 9, share: 0.5 })")  # the text goes on; the hand holds
    settled(figure, "figure.drawn.at === 6")
    assert figure.inner_text(".figure-says").startswith("Step 5.")
    figure.get_by_role("button", name="Back to the text").click()
    settled(figure, "figure.drawn.at === 9.5")
    assert figure.locator(".figure-back").is_hidden()
    box = figure.locator(".lanes canvas").bounding_box()
    figure.mouse.move(box["x"] + 30, box["y"] + 40)
    figure.mouse.down()
    settled(figure, "figure.drawn.at === 1")
    figure.mouse.up()
    figure.mouse.move(5, 690)
    figure.evaluate("figure.release(false)")
    figure.evaluate("figure.light('B')")
    settled(figure, "figure.lit.letter === 'B' && figure.drawn.at === 9.5")
