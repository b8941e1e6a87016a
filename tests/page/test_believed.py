"""What Write takes from a sandbox: what visualizer/write makes, and nothing that only looks like
it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from core.config import EngineConfig
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from visualizer.browser.answers import Answers
from visualizer.page.bundle import script
from visualizer.write.tasks import tasks
from worlds.browser import chromium, fresh  # noqa: F401
from worlds.wrong_answers import HEAD, RIGHT, WRONG

TASK = next(iter(tasks().values()))
PAGE = (
    "<!doctype html><script>%s\nwindow.believed ="
    " inflightModules['write/believed.js'].believed;</script>"
)
MASK = "\n\ndef block_diagonal_mask(chunks):\n    {said}\n"
REFUSED = "This code answered with something that is not an answer."
ASK = (
    "(text) => { try { believed(JSON.parse(text)); return ''; } catch (error) { return"
    " error.message; } }"
)


class Letters:
    """A token a character; an engine that is simulated knows nothing else of them."""

    unk_token = unk_token_id = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) % 65 for c in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "a" * len(ids)


COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))


def _engine(
    model: str, config: EngineConfig, leaks: bool = False, sleep: object = None
) -> SimulatedEngine:
    return SimulatedEngine(COST, config, Letters(), vocab_size=65, max_model_len=256)


def answered(**how: Any) -> list[dict[str, Any]]:
    return [
        d
        for d in Answers(_engine).begin("policy", {"task": TASK.name, "code": TASK.code} | how)
        if d is not None
    ]


@pytest.fixture
def asked(fresh: Callable[..., Any]) -> Callable[[Any], str]:  # noqa: F811
    page = fresh()
    page.set_content(PAGE % script("write/believed.js"))
    return lambda delta: page.evaluate(ASK, json.dumps(delta))


def test_every_answer_of_ours_is_believed(asked):
    faulty = answered(code=TASK.code.replace("request.num_prompt_tokens", "request.nothing"))
    assert faulty[-1]["attempt"]["fault"]
    deltas = [
        *answered(),
        *answered(beside=True),
        *faulty,
        *answered(code="def ("),
        *answered(task="static", code=HEAD + WRONG["static"]["refills at once"][0]),
        *answered(task="mask", code=RIGHT),
        {"loading": {"what": "x", "done": 1, "total": 2}},
    ]
    assert any("comparison" in delta for delta in deltas)
    assert {asked(delta) for delta in deltas} == {""}


@pytest.mark.parametrize(
    "said",
    [
        'print("see https://elsewhere.test, <a href=//elsewhere.test>")',
        'raise ValueError("https://elsewhere.test")',
        'return [["https://elsewhere.test"], print("https://elsewhere.test")]',
    ],
)
def test_the_learners_own_words_may_name_an_address(asked, said):
    """They are written as text; a run or a chart that names one is refused, see below."""
    policy = answered(code=TASK.code.replace("        return", f"        {said}\n        return"))[
        -1
    ]
    mask = answered(task="mask", code=RIGHT + MASK.format(said=said))[-1]
    assert asked(policy) == asked(mask) == ""
    assert "elsewhere" in str(policy) and "elsewhere" in str(mask)


@pytest.mark.slow
def test_what_only_looks_like_one_is_refused(asked):
    attempt, comparison = answered()[-1], answered(beside=True)[-1]
    exercise = answered(task="blocks", code=HEAD + WRONG["blocks"]["a set"][0])[-1]

    def changed(delta: dict, way: str, value: Any) -> dict:
        delta = copy.deepcopy(delta)
        *path, last = way.split(".")
        at = delta
        for name in path:
            at = at[int(name) if name.isdigit() else name]
        at[last] = value
        return delta

    picture = [{"source": "/x.png"}]
    styled = '<span style="cursor:url(//elsewhere.test/x),auto">fast</span>'
    forged = [
        {"done": True},
        {"progress": {"step": "<b>"}},
        {"done": True, "error": {"toString": 1}},
        changed(attempt, "attempt.goals", "<b>"),
        changed(attempt, "attempt.fault", {"says": 1}),
        changed(exercise, "attempt.case", {"lines": ["<b>"]}),
        changed(exercise, "attempt.case.lines", "<b>"),
        changed(exercise, "attempt.case.got", {"toString": 1}),
        changed(attempt, "attempt.replay", {"events": []}),
        changed(attempt, "attempt.replay.events", [{"step": 0}]),
        changed(attempt, "attempt.replay.header.config.max_num_seqs", 10**9),
        changed(attempt, "attempt.replay.header.note", "see https://elsewhere.test"),
        changed(comparison, "comparison.figures.0.figure.data.0.type", "scattergeo"),
        changed(comparison, "comparison.figures.0.figure.layout.title", {"text": styled}),
        changed(comparison, "comparison.figures.0.figure.layout.images", picture),
        changed(comparison, "comparison.translations.de.figures.0.figure.layout.images", picture),
        changed(comparison, "comparison.runs.continuous.header", None),
        changed(comparison, "comparison.about.url", "/elsewhere"),
    ]
    assert [asked(delta) for delta in forged] == [REFUSED] * len(forged)
