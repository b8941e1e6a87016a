"""The lessons as JSON for the page, in one language; sentences have numbers from recorded runs.

{"language", "languages", "words": {…}, "lessons": [{"name", "number", "title", "question",
"minutes", "picture": {"run", "step", "view", "clock"}, "stops": [{"name", "title", "text", "run",
"step", "views", "pin", "quiet", "ask", "then", "goals": [{"name", "text"}]}]}], "terms": {…},
"catalogue": the page's texts, by their English, "questions": a lesson, in which every stop is a
question}
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.errors import InflightError, shown
from core.trace.phrases import letter
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.lessons.facts import PAIRS, At, Company, Who, fact, recorded_run
from visualizer.lessons.lessons import HOLDS, LESSONS, QUESTIONS, SEEN, Lesson, Question, Stop
from visualizer.lessons.texts import (
    FOLDER,
    LANGUAGES,
    Span,
    by_pointer,
    evaluated,
    filled,
    languages,
    number,
    plain,
    texts,
)
from visualizer.words.language import catalogue, speaking, t

Traces = Callable[[str], Trace]  # a recorded run by its name
_SHOWN = 56  # characters of a text in a table


def recorded(folder: Path = TRACES) -> Traces:
    """Loads the recorded runs of a folder, each once."""
    return cache(lambda name: Trace.load(folder / f"{name}.jsonl"))


def runs_of_lessons() -> set[str]:
    """The recorded runs that lessons, glossary and questions need."""
    stops = [s for lesson in (*LESSONS, QUESTIONS) for s in lesson.stops]
    places = [p for s in stops for p in (s.place, s.about, *s.places.values())] + [
        x.picture.place for x in LESSONS if x.picture
    ]
    return {place.run for place in (*places, *(p for p, _ in SEEN.values()))}


def document(
    traces: Traces, language: str = "en", lessons: Sequence[Lesson] = LESSONS
) -> dict[str, Any]:
    """The document of the Learn tab in a language; raises InflightError for an unknown language."""
    if language not in LANGUAGES:
        raise InflightError(
            f"There are no lessons in {shown(language)}; there are {', '.join(LANGUAGES)}."
        )
    return {
        "language": language,
        "languages": LANGUAGES,
        "words": {name: by_pointer(text) for name, text in texts(language, "page").items()},
        "lessons": [lesson_document(lesson, traces, language) for lesson in lessons],
        "terms": terms(traces, language),
        "catalogue": catalogue(language),
        "questions": lesson_document(QUESTIONS, traces, language),
    }


def lesson_document(lesson: Lesson, traces: Traces, language: str) -> dict[str, Any]:
    """One lesson, with English texts where a translation is missing."""
    spoken = language if language in languages(lesson.name) else "en"
    words = texts(spoken, lesson.name)
    return {
        "name": lesson.name,
        "number": LESSONS.index(lesson) + 1 if lesson in LESSONS else 0,
        "language": spoken,
        "title": words["title"],
        "question": words["question"],
        "minutes": lesson.minutes,
        "picture": _picture(lesson, traces),
        "simple": lesson.simple,
        "stops": [stop_document(stop, words[stop.name], traces, spoken) for stop in lesson.stops],
    }


def stop_document(
    stop: Stop, words: dict[str, Any], traces: Traces, language: str
) -> dict[str, Any]:
    """One stop: its place in the player, its text and its question."""
    at = stop.place.at(traces)
    places = {name: place.at(traces) for name, place in stop.places.items()}

    def said(template: str) -> list[Span]:
        return filled(template, at, places, language)

    ask = None
    if stop.question is not None:
        about = stop.about.at(traces)
        ask = {
            "text": said(words["ask"]),
            **_question_document(stop.question, about, at, places, words, language),
        }
    return {
        "name": stop.name,
        "title": words["title"],
        "text": [said(paragraph) for paragraph in words["text"].strip().split("\n\n")],
        "run": stop.place.run,
        "step": at.step,
        "views": list(stop.views),
        "pin": stop.pin,
        "quiet": stop.quiet,
        "ask": ask,
        "table": _table(stop.table, language) if stop.table else None,
        "goals": [{"name": name, "text": said(words["goals"][name])} for name in stop.goals],
        "then": stop.then and {"run": stop.then.run, "step": stop.then.at(traces).step},
    }


def _question_document(
    question: Question,
    at: At,
    here: At,
    places: dict[str, At],
    words: dict[str, Any],
    language: str,
) -> dict[str, Any]:
    """Why the answer is right, and the kind of the question with its options: {"why", "kind",
    "options": [{"text", "right", "why"}]}, or the mask to paint. here: the place of the stop.
    """

    def said(template: str) -> list[Span]:
        return filled(template, at, places, language)

    why, reasons = said(words["why"]), words.get("wrong", {})
    if "paint" in question:
        return {"why": why, "kind": "paint", **mask_document(at)}
    if "request" in question:
        answer, among = fact(question["request"], at), _among(question["among"], here)
        wrong = said(reasons["request"])
        options = [_option([{"r": at.letters[r]}], Who(r) == answer, wrong) for r in among]
    elif "number" in question:
        right, _ = evaluated(question["number"], at, places)
        others = {name: evaluated(name, at, places)[0] for name in question["wrong"].split()}
        found = {
            n: said(reasons[name.split("@")[0].split(".")[-1]])
            for name, n in others.items()
            if n != right
        }
        numbers = sorted(n for n in (right, *found) if isinstance(n, (int, float)))
        options = [
            _option([{"n": number(n, language)}], n == right, found.get(n, [])) for n in numbers
        ]
    else:
        holds = HOLDS[question["holds"]](at, places)
        options = [
            _option(said(words["options"][n]), n == holds, said(reasons[n]) if n in reasons else [])
            for n in question["options"].split()
        ]
    if sum(option["right"] for option in options) != 1 or len(options) < 2:
        raise InflightError(
            "This question does not have one right answer among several:"
            f" {plain(said(words['ask']))}"
        )
    return {"why": why, "kind": "choose", "options": options}


def _option(text: list[Span], right: bool, why: list[Span]) -> dict[str, Any]:
    return {"text": text, "right": right, "why": [] if right else why}


def mask_document(at: At) -> dict[str, Any]:
    """The mask of the step's last pass, to be painted: labels, and allowed cells."""
    mask = at.trace.mask(at.step, len(at.event.passes) - 1)
    new = {(q.request, q.position) for q in mask.queries}

    def label(p: Any) -> dict[str, Any]:
        return {
            "r": at.letters[p.request],
            "at": p.position,
            "text": p.text,
            "new": (p.request, p.position) in new,
        }

    return {
        "queries": [label(q) for q in mask.queries],
        "keys": [label(k) for k in mask.keys],
        "allowed": ["".join("1" if cell else "0" for cell in row) for row in mask.allowed],
    }


def _among(whom: str, at: At) -> list[str]:
    if whom == "all":
        return list(at.letters)
    return [r.request for r in (at.frame.waiting if whom == "waiting" else at.frame.lanes)]


def _picture(lesson: Lesson, traces: Traces) -> dict[str, Any] | None:
    drawn = lesson.picture
    if drawn is None:
        return None
    step = drawn.place.at(traces).step
    return {"run": drawn.place.run, "step": step, "view": drawn.view, "clock": drawn.clock}


# -- the glossary, and tables below the text of a stop ---------------------------------------------


def terms(traces: Traces, language: str) -> dict[str, dict[str, Any]]:
    """The glossary by term: `hints`, and a place to see it, {"run", "step", "view"}."""
    return {
        term: {**hint, "run": place.run, "step": place.at(traces).step, "view": view}
        for (term, hint), (place, view) in zip(hints(language).items(), SEEN.values(), strict=True)
    }


def hints(language: str = "en") -> dict[str, dict[str, Any]]:
    """The entry of each term of the glossary: {"word", "means", "vllm", "words": its spellings}."""
    entries = texts(language, "glossary")
    return {term: _hint(entries[term].get("word", term), entries[term]) for term in SEEN}


def faq(language: str = "en") -> dict[str, Any]:
    """Frequently asked questions, as links: {"title", "shows", "asked": [{"name", "title"}]}."""
    words = texts(language, QUESTIONS.name)
    listed = [{"name": stop.name, "title": words[stop.name]["title"]} for stop in QUESTIONS.stops]
    return {"title": words["title"], "shows": words["question"], "asked": listed}


def _hint(word: str, entry: dict[str, Any]) -> dict[str, Any]:
    own = word.split(" (")[0]  # "Spur (lane)" is found as Spur
    return {
        "word": word,
        "means": entry["means"],
        "vllm": entry["vllm"],
        "words": [own, f"{own}s", *entry.get("also", ())],
    }


def _table(name: str, language: str) -> dict[str, Any]:
    """The table of a stop: {"label", "head": [{"name", "url"}], "rows": [[heading, cell, …]]}."""
    if name == "names":  # what the limits are called in other engines
        data = json.loads((FOLDER / "names.json").read_text(encoding="utf-8"))
        with speaking(language):
            rows = [
                [t(what), *(cell if isinstance(cell, str) else t(cell["say"]) for cell in cells)]
                for what, *cells in data["rows"]
            ]
        return {"label": texts(language, "page")["names"], "head": data["engines"], "rows": rows}
    words = texts(language, "tables")[name]
    if name == "company":  # how texts differ in a batch, by number format and under a wrong mask
        columns: tuple[str, ...] = ("tokens", "drift", "lead")
        rows = [_company_row(pair, words, language) for pair in PAIRS]
    else:  # the beginning of each text alone, and under a mask that let rows read their pads
        traces = [recorded_run(run) for run in PAIRS["unmasked"]]
        columns = ("right", "wrong")
        rows = [
            [letter(i), *(_beginning(trace.text(r)) for trace in traces)]
            for i, r in enumerate(traces[0].prompts)
        ]
    return {
        "label": words["label"],
        "head": [{"name": words[column], "url": None} for column in columns],
        "rows": rows,
    }


def _company_row(pair: str, words: dict[str, str], language: str) -> list[str]:
    company = Company(*PAIRS[pair])
    counts = {name: number(getattr(company, name), language) for name in ("differing", "compared")}
    lead = number(company.lead, language) if company.differing else "–"
    return [words[pair], words["of"].format(**counts), number(company.drift, language), lead]


def _beginning(text: str) -> str:
    """The beginning of a text on one line, cut at a word."""
    line = text.strip().replace("\n", "↵")
    return line if len(line) <= _SHOWN else line[:_SHOWN].rsplit(" ", 1)[0] + " …"
