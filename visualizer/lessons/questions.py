"""The questions people ask, each with a short answer and the step of a recorded run that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.trace.trace import Trace
from visualizer.lessons.lesson import View
from visualizer.lessons.places import At, Place, admits, after, before, end, ends, first, start
from visualizer.lessons.texts import filled, texts

SHOWN: dict[str, tuple[Place, View]] = {
    "bound": (Place("poisson-32", first(lambda e: e.budget.binding == "budget" and e.waiting.count)), "queue"),
    "longer-than-budget": (Place("long-prompt-chunked", admits("E")), "row"),
    "chunked-or-continuous": (Place("long-prompt-arrives", admits("E")), "row"),
    "who-first": (Place("chunk-7-7-6", admits("D")), "queue"),
    "temperature-zero": (Place("verses-continuous", ends("B")), "text"),
    "preempted": (Place("kv-pressure", first(lambda e: e.preempted)), "lanes"),
    "itl-or-tpot": (Place("long-prompt-arrives", admits("E")), "lanes"),
    "no-hits": (Place("prefix-too-short", end), "kv"),
    "drop-rows": (Place("verses-static", before(ends("B"))), "lanes"),
    "layers-and-heads": (Place("one-request", end), "kv"),
    "in-and-out": (Place("one-request", after(after(start))), "row"),
}


def questions(traces: Callable[[str], Trace], language: str) -> list[dict[str, Any]]:
    """[{"name", "ask", "answer", "run", "step", "view"}]; answers are filled from the step."""
    words = texts(language, "questions")
    made = []
    for name, (place, view) in SHOWN.items():
        trace = traces(place.run)
        at = At(trace, place.rule(trace))
        made.append({
            "name": name, "ask": words[name]["ask"], "answer": filled(words[name]["answer"], at, {}, language),
            "run": place.run, "step": at.step, "view": view,
        })  # fmt: skip
    return made
