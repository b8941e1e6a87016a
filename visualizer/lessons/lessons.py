"""The ten lessons, the frequently asked questions as an eleventh, and the places where the terms of
the glossary can be seen.

A lesson is a list of stops. Each is a place in a recorded run with the views to look at, and
perhaps a question. They are defined in assets/lessons/lessons.toml; the texts are beside it, by
language, lesson and stop.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from visualizer.lessons.facts import At
from visualizer.lessons.places import Place
from visualizer.lessons.texts import FOLDER

Question = Mapping[str, Any]
"""A question as in lessons.toml: for a number, a request, a statement, or a mask to paint."""
_ASKED = ("number", "wrong", "request", "among", "options", "holds", "paint")


@dataclass(frozen=True)
class Stop:
    """name: the key of its texts. place: what the player shows; then: the place after the answer.

    views: the panels to look at; the others are dimmed. pin: the letter of a request to highlight.
    places: other places, by their names in the texts. table: a table of
    `visualizer.lessons.document`, shown below the text. goals: conditions on the run that the
    learner makes, by name, see `visualizer.lessons.tasks`. quiet: hides the sentence of a step,
    which would give away later answers.
    """

    name: str
    place: Place
    views: tuple[str, ...]
    question: Question | None = None
    then: Place | None = None
    pin: str | None = None
    places: dict[str, Place] = field(default_factory=dict)
    table: str | None = None
    goals: dict[str, str] = field(default_factory=dict)
    quiet: bool = False

    @property
    def about(self) -> Place:
        """The place whose facts the question is about."""
        return self.then or self.place


@dataclass(frozen=True)
class Picture:
    """A view (row, mask, kv, lanes) of a place. clock: its axis is measured time."""

    place: Place
    view: str
    clock: bool = False


@dataclass(frozen=True)
class Lesson:
    """minutes: its duration in class. picture: for the list of lessons; None if it is not listed.
    simple: everything it needs is shown in Simple.
    """

    name: str
    minutes: int
    stops: tuple[Stop, ...]
    picture: Picture | None = None
    simple: bool = False


def _lane_after_finish(at: At, _: Mapping[str, At]) -> str:
    """What happens to a lane in the step after its request has finished."""
    if any(p.finished_rows for p in at.event.passes):
        return "computed"
    return "refilled" if at.event.admitted else "empty"


HOLDS: dict[str, Callable[[At, Mapping[str, At]], str]] = {
    "lane_after_finish": _lane_after_finish,
    "same_text": lambda at, places: (
        "same" if at.trace.outputs == places["alone"].trace.outputs else "differs"
    ),
    "binding": lambda at, _: at.event.budget.binding,
}
"""Functions that compute the answers to questions with words for answers."""


def _stop(name: str, row: Mapping[str, Any]) -> Stop:
    return Stop(
        name,
        Place.of(row["place"]),
        tuple(row["views"].split()),
        {key: row[key] for key in _ASKED if key in row} or None,
        Place.of(row["then"]) if "then" in row else None,
        places={other: Place.of(text) for other, text in row.get("places", {}).items()},
        **{key: row[key] for key in ("pin", "table", "goals", "quiet") if key in row},
    )


def _lesson(name: str, table: dict[str, Any]) -> Lesson:
    minutes, drawn = table.pop("minutes", 0), table.pop("picture", None)
    simple = table.pop("simple", False)
    picture = drawn and Picture(Place.of(drawn.pop("place")), **drawn)
    stops = tuple(_stop(stop, row) for stop, row in table.items())
    return Lesson(name, minutes, stops, picture, simple)


_TABLES = tomllib.loads((FOLDER / "lessons.toml").read_text(encoding="utf-8"))
SEEN: dict[str, tuple[Place, str]] = {
    term: (Place.of(row["place"]), row["view"]) for term, row in _TABLES.pop("seen").items()
}
*LESSONS, QUESTIONS = (_lesson(name, table) for name, table in _TABLES.items())
