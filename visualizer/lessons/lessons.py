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
    last_chunk,
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


def _waits_for_lane(event: StepEvent) -> bool:
    return event.budget.binding == "lanes" and event.waiting.count > 0 and bool(event.segments)


def _two_prompts_join(event: StepEvent) -> bool:
    return len(event.admitted) > 1 and any(s.phase == "decode" for s in event.segments)


# -- the lessons -----------------------------------------------------------------------------------------------------

_STATIC = Place("verses-static", end)
_DYNAMIC = Place("verses-dynamic", end)
_CONTINUOUS = Place("verses-continuous", end)
_ALONE = Place("verses-sequential", end)

_JOIN = admits("D")  # of the six verses: the first that takes the place of another
_LONG = admits("E")  # the long prompt
_PREEMPTS = first(lambda e: e.preempted)
_HIT = first(lambda e: e.kv.prefix_hits)
_SHORT_OF_BLOCKS = first(lambda e: e.budget.binding == "blocks" and e.segments)

LESSONS: tuple[Lesson, ...] = (
    Lesson(
        "one-token",
        5,
        (
            Stop("prompt", Place("one-request", start), ("row", "text")),
            Stop("mask", Place("one-request", start), ("mask",), question=ChooseNumber("allowed", ("cells", "prompt:A"))),
            Stop(
                "paint",
                Place("one-request", start),
                ("mask", "row"),
                question=PaintMask(),
                then=Place("one-request", after(start)),
            ),
            Stop("cache", Place("one-request", after(start)), ("kv", "row")),
            Stop(
                "size",
                Place("one-request", end),
                ("kv",),
                question=ChooseNumber("cache_bytes:A", ("token_bytes", "cache:A")),
            ),
            Stop("in-and-out", Place("one-request", after(after(start))), ("row", "text")),
            Stop("now-you", Place("one-request", start), ("row", "kv")),
        ),
    ),
    Lesson(
        "one-at-a-time",
        3,
        (
            Stop("queue", Place("verses-sequential", start), ("queue", "lanes")),
            Stop(
                "order",
                Place("verses-sequential", start),
                ("queue", "lanes"),
                question=ChooseRequest("admitted", "waiting"),
                then=Place("verses-sequential", admits("B")),
            ),
            Stop("small", Place("verses-sequential", after(admits("B"))), ("row",)),
            Stop(
                "cost",
                Place("verses-sequential", after(admits("B"))),
                ("row",),
                question=ChooseNumber("batch_cost", ("batch_tokens", "tokens")),
            ),
            Stop("sum", Place("verses-sequential", end), ("lanes",), places={"static": _STATIC, "continuous": _CONTINUOUS}),
            Stop("now-you", Place("verses-sequential", start), ("lanes", "queue")),
        ),
    ),
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
            Stop(
                "drop",
                Place("verses-static", before(ends("B"))),
                ("lanes", "queue"),
                question=ChooseNumber("start_step:D", ("step_after:A", "step_after:C")),
                then=Place("verses-dropped", admits("D")),
            ),
            Stop("dropped", Place("verses-dropped", before(ends("B"))), ("lanes", "row"), places={"kept": _STATIC}),
            Stop("sum", Place("verses-static", end), ("lanes",), places={"continuous": _CONTINUOUS}),
            Stop("now-you", Place("verses-static", start), ("lanes", "queue")),
        ),
    ),
    Lesson(
        "dynamic-scheduling",
        4,
        (
            Stop(
                "refill",
                Place("verses-dynamic", ends("A")),
                ("queue", "lanes"),
                question=ChooseRequest("admitted", "waiting"),
                then=Place("verses-dynamic", _JOIN),
            ),
            Stop(
                "price",
                Place("verses-dynamic", before(_JOIN)),
                ("row", "mask"),
                question=ChooseNumber("padding", ("width_less_one", "tokens", "positions")),
                then=Place("verses-dynamic", _JOIN),
            ),
            Stop("formula", Place("one-joins-two", admits("C")), ("row", "mask")),
            Stop("larger", Place("padding-693", admits("H")), ("row", "lanes")),
            Stop("sum", _DYNAMIC, ("lanes",), places={"static": _STATIC}),
            Stop("now-you", Place("verses-dynamic", _JOIN), ("row", "lanes")),
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
            Stop("pads", Place("verses-static", start), ("mask",), table="unmasked"),
            Stop("now-you", Place("verses-continuous", admits("D")), ("mask", "row")),
        ),
    ),
    Lesson(
        "one-pass",
        5,
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
    Lesson(
        "long-prompt",
        5,
        (
            Stop("arrives", Place("long-prompt-arrives", before(_LONG)), ("row", "lanes")),
            Stop(
                "stall",
                Place("long-prompt-arrives", before(_LONG)),
                ("row", "lanes"),
                question=ChooseNumber("positions", ("prompt:E", "decode_tokens")),
                then=Place("long-prompt-arrives", _LONG),
            ),
            Stop(
                "chunked",
                Place("long-prompt-chunked", before(_LONG)),
                ("queue", "row"),
                question=ChooseNumber("computes:E", ("prompt:E", "budget")),
                then=Place("long-prompt-chunked", _LONG),
            ),
            Stop(
                "paint",
                Place("chunk-7-by-4", start),
                ("mask", "row"),
                question=PaintMask(),
                then=Place("chunk-7-by-4", after(start)),
            ),
            Stop(
                "trade",
                Place("long-prompt-chunked", after(_LONG)),
                ("lanes", "row"),
                places={"whole": Place("long-prompt-arrives", _LONG)},
            ),
            Stop(
                "order",
                Place("decode-first", admits("F")),
                ("queue", "row"),
                question=ChooseNumber("computes:F", ("computes:F@decode", "prompt:F")),
                then=Place("prefill-first", admits("F")),
                places={"decode": Place("decode-first", admits("F"))},
            ),
            Stop(
                "price",
                Place("prefill-first", last_chunk("F")),
                ("lanes", "text"),
                places={"decode": Place("decode-first", last_chunk("F"))},
            ),
            Stop("now-you", Place("long-prompt-chunked", _LONG), ("queue", "lanes")),
        ),
    ),
    Lesson(
        "paged-kv",
        5,
        (
            Stop("blocks", Place("kv-pressure", admits("C")), ("kv",), pin="A"),
            Stop(
                "waste",
                Place("kv-pressure", admits("C")),
                ("kv",),
                question=ChooseNumber("unused_in_blocks:A", ("block_size", "cache:A")),
                pin="A",
            ),
            Stop("place", Place("kv-pressure", admits("C")), ("mask", "kv"), pin="B"),
            Stop(
                "full",
                Place("kv-pressure", before(_PREEMPTS)),
                ("kv", "lanes"),
                question=ChooseRequest("preempted"),
                then=Place("kv-pressure", _PREEMPTS),
            ),
            Stop("lost", Place("kv-pressure", _PREEMPTS), ("queue", "lanes")),
            Stop("again", Place("kv-pressure", end), ("lanes",)),
            Stop("now-you", Place("kv-pressure", before(_PREEMPTS)), ("kv", "queue")),
        ),
    ),
    Lesson(
        "prefix-caching",
        4,
        (
            Stop("alike", Place("shared-prefix", start), ("row", "kv")),
            Stop(
                "hit",
                Place("shared-prefix", before(_HIT)),
                ("kv", "row"),
                question=ChooseNumber("hit", ("shared_prefix", "prompt:B")),
                then=Place("shared-prefix", _HIT),
            ),
            Stop("share", Place("shared-prefix", _HIT), ("kv", "mask")),
            Stop(
                "too-short",
                Place("prefix-too-short", start),
                ("kv", "text"),
                question=ChooseNumber("hits", ("shared_prefix", "block_size")),
                then=Place("prefix-too-short", end),
            ),
            Stop("now-you", Place("prefix-too-short", start), ("kv", "row")),
        ),
    ),
    Lesson(
        "production",
        4,
        (
            Stop("names", Place("short-and-long", first(mixes)), ("queue", "row"), table="names"),
            Stop(
                "which-setting",
                Place("chunk-7-7-6", admits("D")),
                ("queue", "row"),
                question=ChooseWords(("lanes", "budget", "blocks"), _binding),
            ),
            Stop(
                "which-now",
                Place("kv-pressure", _SHORT_OF_BLOCKS),
                ("queue", "kv"),
                question=ChooseWords(("lanes", "budget", "blocks"), _binding),
            ),
            Stop("more", Place("poisson-32", first(mixes, 3)), ("lanes", "row")),
            Stop("vllm", Place("vllm-kv-pressure", _PREEMPTS), ("lanes", "queue")),
            Stop("now-you", Place("poisson-32", first(mixes, 3)), ("lanes", "queue")),
        ),
    ),
)
