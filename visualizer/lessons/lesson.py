"""What a lesson is made of: stops, each a place in a recorded run with the views to look at, and questions. Data; the words are in
assets/lessons, by lesson, stop and language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from visualizer.lessons.places import At, Place, Rule

View = Literal["row", "mask", "queue", "kv", "text", "lanes"]


@dataclass(frozen=True)
class ChooseNumber:
    """How many? answer, wrong: facts as the texts write them (`B.kv_len`, `forward.tokens@packed`), at the place that the question is
    about; a wrong one has its own reason in the texts.
    """

    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class ChooseRequest:
    """Which request? answer: a fact at the question's place; among: whom to choose from, at the stop."""

    answer: str
    among: Literal["running", "waiting", "all"] = "running"


@dataclass(frozen=True)
class ChooseWords:
    """Which statement? The texts have one for each option. answer: names the option that holds, from the place that the question is
    about and the stop's other places.
    """

    options: tuple[str, ...]
    answer: Callable[[At, Mapping[str, At]], str]


@dataclass(frozen=True)
class PaintMask:
    """Paint who may look at whom in the pass of the question's place."""


Question = ChooseNumber | ChooseRequest | ChooseWords | PaintMask


@dataclass(frozen=True)
class Stop:
    """name: the key of its texts. place: what the player shows; goes_to: another place, or step of the same run, once the question is answered.

    views: the panels to look at; the others are dimmed. pin: the letter of a request to light. about: the place whose facts a
    question is about, `then` or else `place`. places: others, by the names under which the texts mention them. table: one of
    the tables that `visualizer.lessons.document` makes, shown below the text.
    """

    name: str
    place: Place
    views: tuple[View, ...]
    question: Question | None = None
    goes_to: Place | Rule | None = None
    pin: str | None = None
    places: dict[str, Place] = field(default_factory=dict)
    table: str | None = None

    @property
    def then(self) -> Place | None:
        """Where the player goes once the question is answered."""
        return Place(self.place.run, self.goes_to) if callable(self.goes_to) else self.goes_to

    @property
    def about(self) -> Place:
        return self.then or self.place


@dataclass(frozen=True)
class Lesson:
    """minutes: how long it takes in class."""

    name: str
    minutes: int
    stops: tuple[Stop, ...]
