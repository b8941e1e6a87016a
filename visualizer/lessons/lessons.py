"""The ten lessons: what each stop shows and asks; the questions that people ask, as an eleventh; and where each term of the glossary is seen.
The words are in assets/lessons, `<language>/<lesson>.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.trace.events import StepEvent
from visualizer.lessons.facts import PAIRS, parts_at, recorded_run
from visualizer.lessons.lesson import ChooseNumber, ChooseRequest, ChooseWords, Lesson, PaintMask, Stop, View
from visualizer.lessons.places import At, Place, admits, after, before, chunks, end, ends, first, last_chunk, mixes, start

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
            Stop(
                "mask", Place("one-request", start), ("mask",), ChooseNumber("mask.num_allowed", ("mask.num_cells", "A.prompt"))
            ),
            Stop("paint", Place("one-request", start), ("mask", "row"), PaintMask(), goes_to=after(start)),
            Stop("cache", Place("one-request", after(start)), ("kv", "row")),
            Stop(
                "size", Place("one-request", end), ("kv",), ChooseNumber("A.kv_bytes", ("model.kv_bytes_per_token", "A.kv_len"))
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
                ChooseRequest("step.admitted.0.request", "waiting"),
                goes_to=admits("B"),
            ),
            Stop("small", Place("verses-sequential", after(admits("B"))), ("row",)),
            Stop(
                "cost",
                Place("verses-sequential", after(admits("B"))),
                ("row",),
                ChooseNumber("pass_cost", ("largest_pass", "forward.tokens")),
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
                ChooseNumber("forward.padding", ("forward.width", "forward.tokens")),
            ),
            Stop(
                "first-done",
                Place("verses-static", start),
                ("lanes", "text"),
                ChooseRequest("first_to_finish.request"),
                goes_to=ends("A"),
            ),
            Stop(
                "barrier",
                Place("verses-static", ends("A")),
                ("queue", "lanes"),
                ChooseWords(("refilled", "empty", "computed"), _lane_after_finish),
                goes_to=after(ends("A")),
            ),
            Stop("finished-rows", Place("verses-static", before(ends("B"))), ("row", "mask")),
            Stop(
                "drop",
                Place("verses-static", before(ends("B"))),
                ("lanes", "queue"),
                ChooseNumber("D.times.first_step", ("A.step_after", "C.step_after")),
                goes_to=Place("verses-dropped", admits("D")),
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
                ChooseRequest("step.admitted.0.request", "waiting"),
                goes_to=_JOIN,
            ),
            Stop(
                "price",
                Place("verses-dynamic", before(_JOIN)),
                ("row", "mask"),
                ChooseNumber("forward.padding", ("other_columns", "forward.tokens", "positions")),
                goes_to=_JOIN,
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
                ChooseNumber("forward.tokens", ("positions@rectangle", "D.segment.length")),
                goes_to=Place("verses-continuous", admits("D")),
                places={"rectangle": Place("verses-dynamic", admits("D"))},
            ),
            Stop("apart", Place("verses-continuous", admits("D")), ("mask",)),
            Stop("paint", Place("three-short", before(admits("C"))), ("mask", "row"), PaintMask(), goes_to=admits("C")),
            Stop(
                "same-text",
                Place("verses-continuous", ends("B")),
                ("text",),
                ChooseWords(("same", "differs"), _same_text),
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
                ChooseNumber("forward.tokens", ("step.budget.prefill", "config.max_num_batched_tokens", "step.budget.decode")),
                goes_to=first(_two_prompts_join),
            ),
            Stop("gauge-lanes", Place("short-and-long", first(_waits_for_lane)), ("queue",)),
            Stop(
                "gauge-budget",
                Place("chunk-7-7-6", before(admits("D"))),
                ("queue",),
                ChooseNumber("D.segment.length", ("D.prompt", "config.max_num_batched_tokens", "step.budget.decode")),
                goes_to=admits("D"),
            ),
            Stop(
                "which-binds",
                Place("short-and-long", first(_waits_for_lane, 3)),
                ("queue", "lanes"),
                ChooseWords(("lanes", "budget", "blocks", "none"), _binding),
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
                ChooseNumber("positions", ("E.prompt", "step.budget.decode")),
                goes_to=_LONG,
            ),
            Stop(
                "chunked",
                Place("long-prompt-chunked", before(_LONG)),
                ("queue", "row"),
                ChooseNumber("E.segment.length", ("E.prompt", "config.max_num_batched_tokens")),
                goes_to=_LONG,
            ),
            Stop("paint", Place("chunk-7-by-4", start), ("mask", "row"), PaintMask(), goes_to=after(start)),
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
                ChooseNumber("F.segment.length", ("F.segment.length@decode", "F.prompt")),
                goes_to=Place("prefill-first", admits("F")),
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
                ChooseNumber("A.unused_in_blocks", ("config.block_size", "A.kv_len")),
                pin="A",
            ),
            Stop("place", Place("kv-pressure", admits("C")), ("mask", "kv"), pin="B"),
            Stop(
                "full",
                Place("kv-pressure", before(_PREEMPTS)),
                ("kv", "lanes"),
                ChooseRequest("step.preempted.0.request"),
                goes_to=_PREEMPTS,
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
                ChooseNumber("step.kv.prefix_hits.0.num_cached_tokens", ("shared_prefix", "B.prompt")),
                goes_to=_HIT,
            ),
            Stop("share", Place("shared-prefix", _HIT), ("kv", "mask")),
            Stop(
                "too-short",
                Place("prefix-too-short", start),
                ("kv", "text"),
                ChooseNumber("metrics.cached_tokens", ("shared_prefix", "config.block_size")),
                goes_to=end,
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
                ChooseWords(("lanes", "budget", "blocks"), _binding),
            ),
            Stop(
                "which-now",
                Place("kv-pressure", _SHORT_OF_BLOCKS),
                ("queue", "kv"),
                ChooseWords(("lanes", "budget", "blocks"), _binding),
            ),
            Stop("more", Place("poisson-32", first(mixes, 3)), ("lanes", "row")),
            Stop("vllm", Place("vllm-kv-pressure", _PREEMPTS), ("lanes", "queue")),
            Stop("now-you", Place("poisson-32", first(mixes, 3)), ("lanes", "queue")),
        ),
    ),
)

# -- questions, each answered at the step of a recorded run that shows it, and the glossary -------------------------------

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
            Place(PAIRS["bf16"][1], lambda together: parts_at(recorded_run(PAIRS["bf16"][0]), together)),
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

SEEN: dict[str, tuple[Place, View]] = {
    "request": (Place("short-and-long", start), "text"),
    "waiting": (Place("short-and-long", first(lambda e: e.waiting.count > 1)), "queue"),
    "running": (Place("short-and-long", first(mixes)), "lanes"),
    "preemption": (Place("kv-pressure", first(lambda e: e.preempted)), "lanes"),
    "step": (Place("short-and-long", first(mixes)), "row"),
    "lane": (Place("short-and-long", first(mixes)), "lanes"),
    "prefill": (Place("short-and-long", start), "row"),
    "decode": (Place("short-and-long", first(mixes)), "row"),
    "chunk": (Place("chunk-7-7-6", first(chunks)), "row"),
    "token budget": (Place("budget-512", admits("D")), "queue"),
    "packed": (Place("verses-continuous", admits("D")), "row"),
    "padding": (Place("verses-static", start), "row"),
    "wave": (Place("verses-static", start), "lanes"),
    "mask": (Place("verses-continuous", admits("D")), "mask"),
    "KV cache": (Place("one-request", end), "kv"),
    "block": (Place("kv-pressure", first(mixes)), "kv"),
    "block table": (Place("kv-pressure", first(mixes)), "kv"),
    "slot": (Place("one-request", end), "kv"),
    "prefix caching": (Place("shared-prefix", first(lambda e: e.kv.prefix_hits)), "kv"),
    "TTFT": (Place("poisson-32", first(mixes)), "lanes"),
    "ITL": (Place("long-prompt-arrives", admits("E")), "lanes"),
    "TPOT": (Place("short-and-long", end), "lanes"),
    "throughput": (Place("verses-continuous", end), "lanes"),
    "goodput": (Place("poisson-32", end), "lanes"),
    "lane occupancy": (Place("verses-static", end), "lanes"),
}
