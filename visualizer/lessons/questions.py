"""The questions people ask, each with a short answer and the step of a recorded run that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.trace.trace import Trace
from visualizer.lessons.lesson import View
from visualizer.lessons.places import At, Place
from visualizer.lessons.texts import filled, texts

SHOWN: dict[str, tuple[Place, View]] = {}


def questions(traces: Callable[[str], Trace], language: str) -> list[dict[str, Any]]:
    """[{"name", "ask", "answer", "run", "step", "view"}]; answers are filled from the step."""
    if not SHOWN:
        return []
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
