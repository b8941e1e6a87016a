"""The ten lessons: what each stop shows and asks. Their words are in assets/lessons, `<language>/<lesson>.toml`."""

from __future__ import annotations

from collections.abc import Mapping

from core.trace.events import StepEvent
from visualizer.lessons.lesson import ChooseNumber, ChooseRequest, ChooseWords, Lesson, PaintMask, Stop
from visualizer.lessons.places import (
    At,
    Place,
    admits,
    after,
    before,
    end,
    ends,
    first,
    mixes,
    start,
)

# -- answers to questions in words ---------------------------------------------------------------------------------------


def _lane_after_finish(at: At, _: Mapping[str, At]) -> str:
    """What becomes of a lane in the step after its request has finished."""
    if any(p.finished_rows for p in at.event.passes):
        return "computed"
    return "refilled" if at.event.admitted else "empty"


def _same_text(at: At, places: Mapping[str, At]) -> str:
    return "same" if at.trace.outputs == places["alone"].trace.outputs else "differs"


def _binding(at: At, _: Mapping[str, At]) -> str:
    return at.event.budget.binding


def _held_by(limit: str):
    def test(event: StepEvent) -> bool:
        return event.budget.binding == limit and bool(event.segments)

    return test


def _waits_for_lane(event: StepEvent) -> bool:
    return event.budget.binding == "lanes" and event.waiting.count > 0 and bool(event.segments)


def _two_prompts_join(event: StepEvent) -> bool:
    return len(event.admitted) > 1 and any(s.phase == "decode" for s in event.segments)


# -- the lessons -----------------------------------------------------------------------------------------------------

_STATIC = Place("verses-static", end)
_DYNAMIC = Place("verses-dynamic", end)
_CONTINUOUS = Place("verses-continuous", end)
_ALONE = Place("verses-sequential", end)

LESSONS: tuple[Lesson, ...] = (
    Lesson(
        "static-batching",
        5,
        (
            Stop("wave", Place("verses-static", start), ("queue", "lanes")),
            Stop(
                "padding",
                Place("verses-static", start),
                ("row", "mask"),
                question=ChooseNumber("padding", ("width", "tokens")),
            ),
            Stop(
                "first-done",
                Place("verses-static", start),
                ("lanes", "text"),
                question=ChooseRequest("first_to_finish"),
                then=Place("verses-static", ends("A")),
            ),
            Stop(
                "barrier",
                Place("verses-static", ends("A")),
                ("queue", "lanes"),
                question=ChooseWords(("refilled", "empty", "computed"), _lane_after_finish),
                then=Place("verses-static", after(ends("A"))),
            ),
            Stop("finished-rows", Place("verses-static", before(ends("B"))), ("row", "mask")),
            Stop("drop", Place("verses-static", before(ends("B"))), ("lanes", "queue"), places={"all": _STATIC}),
            Stop("sum", Place("verses-static", end), ("lanes",), places={"continuous": _CONTINUOUS}),
            Stop("now-you", Place("verses-static", start), ("lanes", "queue")),
        ),
    ),
    Lesson(
        "ragged-batching",
        5,
        (
            Stop("rectangle", Place("verses-dynamic", admits("D")), ("row", "mask")),
            Stop(
                "one-row",
                Place("verses-dynamic", admits("D")),
                ("row", "mask"),
                question=ChooseNumber("tokens", ("positions@rectangle", "computes:D")),
                then=Place("verses-continuous", admits("D")),
                places={"rectangle": Place("verses-dynamic", admits("D"))},
            ),
            Stop("apart", Place("verses-continuous", admits("D")), ("mask",)),
            Stop(
                "paint",
                Place("three-short", before(admits("C"))),
                ("mask", "row"),
                question=PaintMask(),
                then=Place("three-short", admits("C")),
            ),
            Stop(
                "same-text",
                Place("verses-continuous", ends("B")),
                ("text",),
                question=ChooseWords(("same", "differs"), _same_text),
                pin="B",
                places={"alone": _ALONE},
            ),
            Stop("leak", Place("three-short", admits("C")), ("mask",)),
            Stop("now-you", Place("verses-continuous", admits("D")), ("mask", "row")),
        ),
    ),
    Lesson(
        "one-pass",
        6,
        (
            Stop("mixed", Place("short-and-long", first(mixes, 1)), ("row", "mask")),
            Stop(
                "count",
                Place("budget-512", before(first(_two_prompts_join))),
                ("row", "queue"),
                question=ChooseNumber("tokens", ("prefill_tokens", "budget", "decode_tokens")),
                then=Place("budget-512", first(_two_prompts_join)),
            ),
            Stop("gauge-lanes", Place("short-and-long", first(_waits_for_lane)), ("queue",)),
            Stop(
                "gauge-budget",
                Place("chunk-7-7-6", before(admits("D"))),
                ("queue",),
                question=ChooseNumber("computes:D", ("prompt:D", "budget", "decode_tokens")),
                then=Place("chunk-7-7-6", admits("D")),
            ),
            Stop(
                "which-binds",
                Place("short-and-long", first(_waits_for_lane, 3)),
                ("queue", "lanes"),
                question=ChooseWords(("lanes", "budget", "blocks", "none"), _binding),
            ),
            Stop("now-you", Place("short-and-long", first(mixes, 1)), ("row", "queue")),
        ),
    ),
)
