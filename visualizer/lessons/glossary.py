"""The glossary: each term in plain words, its name in vLLM, and a step of a recorded run where it can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.trace.trace import Trace
from visualizer.lessons.lesson import View
from visualizer.lessons.places import Place, admits, chunks, end, first, mixes, start
from visualizer.lessons.texts import texts

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


def terms(traces: Callable[[str], Trace], language: str) -> dict[str, dict[str, Any]]:
    """By term: {"word", "means", "vllm", "run", "step", "view"}."""
    words = texts(language, "glossary")
    return {
        term: {
            "word": words[term].get("word", term),
            "means": words[term]["means"],
            "vllm": words[term]["vllm"],
            "run": place.run,
            "step": place.rule(traces(place.run)),
            "view": view,
        }
        for term, (place, view) in SEEN.items()
    }


def hints() -> dict[str, dict[str, Any]]:
    """What the page shows where one of its words is pointed at, by term: {"means", "vllm", "words": spellings it goes by}."""
    words = texts("en", "glossary")
    return {
        term: {
            "means": words[term]["means"],
            "vllm": words[term]["vllm"],
            "words": [term, f"{term}s", *words[term].get("also", ())],
        }
        for term in SEEN
    }
