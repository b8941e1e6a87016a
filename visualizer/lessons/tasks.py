"""The tasks at the end of the lessons: whether the run that a learner made meets the goals, and
what it shows, with numbers from that run.

A goal is a list of conditions that must all hold: `D.prompt > D.prompt@recorded; config.policy.name
== dynamic`. The left side is a fact of the learner's run; the right side is a fact of that run or
of the recorded one, a number times a fact, a number, or a word.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from core.errors import InflightError, shown
from core.trace.trace import Trace
from visualizer.lessons.document import Traces
from visualizer.lessons.facts import At, Value
from visualizer.lessons.lessons import LESSONS, Stop
from visualizer.lessons.texts import LANGUAGES, Span, evaluated, filled, texts

_CONDITION = re.compile(r"(?P<left>\S+) (?P<is>==|>=|<=|>|<) (?:(?P<times>[\d.]+) )?(?P<right>\S+)")
_IS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def runs_of_tasks() -> set[str]:
    """The recorded runs that the tasks compare a learner's run with."""
    return {stop.place.run for lesson in LESSONS for stop in lesson.stops if stop.goals}


def check(lesson: str, run: Trace, traces: Traces, language: str = "en") -> list[dict[str, Any]]:
    """The goals of a lesson's task: [{"name", "met", "says": a sentence, "step": the step it is
    about}]. run: made by the learner. Raises InflightError for an unknown lesson or language.
    """
    stops = [stop for one in LESSONS if one.name == lesson for stop in one.stops if stop.goals]
    if not stops or language not in LANGUAGES:
        raise InflightError(f"There is no task of a lesson {shown(lesson)}.")
    (stop,) = stops
    places = {"recorded": stop.place.at(traces)}
    at, words = _same_place(stop, run), texts(language, lesson)[stop.name]["says"]
    return [
        {
            "name": name,
            "met": _holds(goal, at, places),
            "says": _said(words[name], at, places, language),
            "step": at.step,
        }
        for name, goal in stop.goals.items()
    ]


def _same_place(stop: Stop, run: Trace) -> At:
    """The place that the stop's rule finds in the learner's run; its beginning if there is none."""
    try:
        return At(run, stop.place.step(run))
    except (InflightError, IndexError):
        if not run.events:
            raise InflightError("This run has no steps: no request was ever computed.") from None
        return At(run, run.events[0].step)


def _holds(goal: str, at: At, places: Mapping[str, At]) -> bool:
    try:
        return all(_condition(text, at, places) for text in goal.split("; "))
    except InflightError:
        # the learner's run has no such request, or nothing of the kind happened in it
        return False


def _condition(text: str, at: At, places: Mapping[str, At]) -> bool:
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise ValueError(f"This is not a condition: {text}")
    left, right = evaluated(parts["left"], at, places)[0], _value(parts["right"], at, places)
    if parts["times"]:
        assert isinstance(right, (int, float))
        right *= float(parts["times"])
    return bool(_IS[parts["is"]](left, right))


def _value(text: str, at: At, places: Mapping[str, At]) -> Value:
    if text.isdecimal():
        return int(text)
    # a fact has a path or a place, a word has not
    return evaluated(text, at, places)[0] if "." in text or "@" in text else text


def _said(template: str, at: At, places: Mapping[str, At], language: str) -> list[Span]:
    try:
        return filled(template, at, places, language)
    except InflightError:
        return [texts(language, "page")["another_run"]]
