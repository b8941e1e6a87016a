"""The questions people ask, as a lesson of its own: each stop is the step of a recorded run that shows its two sentences of answer."""

from __future__ import annotations

from typing import Any

from visualizer.lessons.facts.company import PAIRS, parts_at, run
from visualizer.lessons.lesson import Lesson, Stop
from visualizer.lessons.places import Place, admits, after, before, end, ends, first, start
from visualizer.lessons.texts import texts

_ALONE, _TOGETHER = PAIRS["bf16"]

QUESTIONS = Lesson(
    "questions",
    0,
    (
        Stop("bound", Place("poisson-32", first(lambda e: e.budget.binding == "budget" and e.waiting.count)), ("queue",)),
        Stop("longer-than-budget", Place("long-prompt-chunked", admits("E")), ("row",)),
        Stop("chunked-or-continuous", Place("long-prompt-arrives", admits("E")), ("row",)),
        Stop(
            "who-first",
            Place("prefill-first", admits("F")),
            ("lanes", "queue"),
            places={"decode": Place("decode-first", admits("F"))},
        ),
        Stop(
            "temperature-zero",
            Place(_TOGETHER, lambda together: parts_at(run(_ALONE), together)),
            ("text", "row"),
            table="company",
        ),
        Stop("preempted", Place("kv-pressure", first(lambda e: e.preempted)), ("lanes", "kv")),
        Stop("itl-or-tpot", Place("long-prompt-arrives", admits("E")), ("lanes",)),
        Stop("no-hits", Place("prefix-too-short", end), ("kv", "text")),
        Stop(
            "drop-rows",
            Place("verses-dropped", before(ends("B"))),
            ("lanes", "queue"),
            places={"kept": Place("verses-static", end)},
        ),
        Stop("layers-and-heads", Place("one-request", end), ("kv",)),
        Stop("in-and-out", Place("one-request", after(after(start))), ("row", "text")),
    ),
)


def asked(language: str = "en") -> dict[str, Any]:
    """The questions alone, for a list of links: {"title", "shows", "asked": [{"name", "title"}]}. Reads no run."""
    words = texts(language, QUESTIONS.name)
    listed = [{"name": stop.name, "title": words[stop.name]["title"]} for stop in QUESTIONS.stops]
    return {"title": words["title"], "shows": words["question"], "asked": listed}
