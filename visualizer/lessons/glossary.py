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
    """By term: what `hints` has, and where it can be seen, {"run", "step", "view"}."""
    return {
        term: {**hint, "run": place.run, "step": place.rule(traces(place.run)), "view": view}
        for (term, hint), (place, view) in zip(hints(language).items(), SEEN.values(), strict=True)
    }


def hints(language: str = "en") -> dict[str, dict[str, Any]]:
    """What the page shows where one of its words is pointed at, by term: {"word", "means", "vllm", "words": spellings it goes by}."""
    return {term: _hint(term, texts(language, "glossary")[term]) for term in SEEN}


def _hint(term: str, told: dict[str, Any]) -> dict[str, Any]:
    word = told.get("word", term)
    own = word.split(" (")[0]  # "Spur (lane)" is found as Spur
    return {"word": word, "means": told["means"], "vllm": told["vllm"], "words": [own, f"{own}s", *told.get("also", ())]}
