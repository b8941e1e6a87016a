"""Sheets to print, one for the teacher and one for the learner, made from the document of a lesson
and pictures of its runs.

The learner's sheet has the questions, each with the facts it needs, room to write, boxes to tick
and masks to fill in; the answers are on a separate page. The teacher's sheet has the content of
each stop, and the answers. Questions are numbered by stop on both. Instructions for using the page
are left out.
"""

import re
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.sax.saxutils import escape

from core.errors import InflightError, shown
from core.trace.trace import Trace
from visualizer.lessons.document import lesson_document
from visualizer.lessons.facts import At
from visualizer.lessons.lessons import LESSONS
from visualizer.lessons.pictures import lanes_picture, mask_picture
from visualizer.lessons.texts import FOLDER, Span, plain, texts
from visualizer.words.language import speaking, t

KINDS = ("teacher", "learner")


def sheet(lesson: str, kind: str, traces: Callable[[str], Trace], language: str = "en") -> str:
    """A page of HTML; raises InflightError for an unknown lesson."""
    found = next((one for one in LESSONS if one.name == lesson), None)
    if found is None or kind not in KINDS:
        raise InflightError(f"There is no sheet {shown(kind)} for a lesson {shown(lesson)}.")
    made = lesson_document(found, traces, language)
    words = texts(language, "page")
    body = Element("main")
    _add(body, "p", made["question"], class_="where")
    with speaking(language):
        (_teacher if kind == "teacher" else _learner)(body, made, traces, words)
    return page(f"{made['number']}. {made['title']}", words[kind], body, language)


def plan(traces: Callable[[str], Trace], language: str = "en") -> str:
    """The plan of all lessons, with the minutes each takes."""
    words = texts(language, "page")
    body = Element("main")
    _add(body, "p", words["plan_lead"])
    table = SubElement(body, "table")
    at = 0
    for lesson in LESSONS:
        made = lesson_document(lesson, traces, language)
        row = SubElement(table, "tr")
        for text in (
            f"{at}–{at + lesson.minutes} {words['minutes']}",
            f"{made['number']}. {made['title']}",
            made["question"],
        ):
            _add(row, "td", text)
        at += lesson.minutes
    _add(body, "p", words["plan_end"])
    return page(words["plan"], words["title"], body, language)


def page(title: str, kind: str, body: Element, language: str) -> str:
    html = tostring(body, encoding="unicode", method="html")
    parts = {"title": escape(title), "kind": escape(kind), "lang": language, "body": html}
    template = (FOLDER / "sheet.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)


def _teacher(
    body: Element, made: dict[str, Any], traces: Callable[[str], Trace], words: dict[str, str]
) -> None:
    for number, stop in enumerate(made["stops"], 1):
        section = _section(body, f"{number}. {stop['title']}")
        section.append(_picture(stop, traces))
        _add_paragraphs(section, stop["text"])
        if stop["ask"]:
            _add_sentence(section, "p", stop["ask"]["text"], class_="asked")
            _answer(section, stop, traces, words)


def _learner(
    body: Element, made: dict[str, Any], traces: Callable[[str], Trace], words: dict[str, str]
) -> None:
    questions = [(n, stop) for n, stop in enumerate(made["stops"], 1) if stop["ask"]]
    for number, stop in questions:
        section = _section(body, f"{number}. {stop['title']}", stop["text"])
        place = stop["then"] or stop
        if stop["ask"]["kind"] == "paint":
            section.append(mask_picture(At(traces(place["run"]), place["step"]), blank=True))
        elif stop["views"] == ["mask"]:
            section.append(_picture(stop, traces))
        else:
            at = At(traces(stop["run"]), stop["step"])
            section.append(lanes_picture(at, blank_after=True))
            _state(section, at, "text" in stop["views"])
        _add_sentence(section, "p", stop["ask"]["text"])
        if stop["ask"]["kind"] == "choose":
            options = SubElement(section, "ul", {"class": "boxes"})
            for option in stop["ask"]["options"]:
                _add_sentence(options, "li", option["text"])
        SubElement(section, "div", {"class": "line"})
        SubElement(section, "div", {"class": "line"})
    answers = _section(body, words["answers"])
    answers.set("class", "apart")
    for number, stop in questions:
        _add(answers, "p", f"{number}. {stop['title']}")
        _answer(answers, stop, traces, words)


def _section(body: Element, title: str, text: list[list[Span]] | None = None) -> Element:
    section = SubElement(body, "section")
    _add(section, "h2", title)
    _add_paragraphs(section, text or [])
    return section


def _add_paragraphs(section: Element, text: list[list[Span]]) -> None:
    """Add a text without the sentences that begin with an instruction for using the page."""
    for spans in text:
        kept: list[Span] = []
        done_on_the_page = False
        for span in spans:
            if done_on_the_page and isinstance(span, str) and ". " in span:
                span, done_on_the_page = span.split(". ", 1)[1], False
            done_on_the_page |= isinstance(span, dict) and "keys" in span
            kept += [span] * (not done_on_the_page)
        if kept:
            _add_sentence(section, "p", kept)


def _answer(
    section: Element, stop: dict[str, Any], traces: Callable[[str], Trace], words: dict[str, str]
) -> None:
    ask, place = stop["ask"], stop["then"] or stop
    holder = SubElement(section, "div", {"class": "answer"})
    if ask["kind"] == "paint":
        holder.append(mask_picture(At(traces(place["run"]), place["step"])))
    else:
        _add_sentence(holder, "p", next(o["text"] for o in ask["options"] if o["right"]))
    _add_sentence(holder, "p", ask["why"])


def _state(section: Element, at: At, has_texts: bool) -> None:
    """The step in numbers, as the page shows it: its limits, and for each request its prompt, what
    the step computed, and its cache. has_texts: also the outputs of finished requests.
    """
    event, frame, config = at.event, at.frame, at.config
    used, limit = event.budget.decode + event.budget.prefill, event.budget.limit
    blocks = f"{event.kv.used:,} of {event.kv.total:,} · {config.block_size} [token|tokens] each"
    limits = {
        "Lanes": f"{len(frame.lanes)} of {config.num_lanes}",
        "Token budget": "no limit" if limit is None else f"{used:,} of {limit:,}",
        "KV blocks": blocks,
    }
    said = "; ".join(f"{t(name)}: {t(value)}" for name, value in limits.items())
    _add(section, "p", f"{t(f'Step {at.step}.')} {said}.", class_="where")
    table = SubElement(section, "table")
    head = SubElement(table, "tr")
    for name in ("Request", "", "Prompt", "In this step", "Cache"):
        _add(head, "th", t(name) if name else "")
    for lane in frame.lanes:
        where = t(f"in lane {lane.lane}")
        _request_row(table, at, lane.request, where, str(lane.length), str(lane.kv_len))
    for waiting in frame.waiting:
        _request_row(table, at, waiting.request, t("waits"), "", "")
    events = at.trace.events
    for arrived in next((e.arrived for e in events if e.step > at.step), ()):
        _request_row(table, at, arrived.request, t("arrives in the next step"), "", "")
    done = {f.request for e in events if e.step <= at.step for f in e.finished}
    for request in sorted(done, key=at.letters.__getitem__) if has_texts else ():
        answer: list[Span] = [{"r": at.letters[request]}, f" {at.trace.text(request)}"]
        _add_sentence(section, "p", answer, class_="answered")


def _request_row(table: Element, at: At, request: str, *cells: str) -> None:
    row, (where, *numbers) = SubElement(table, "tr"), cells
    _add_sentence(row, "td", [{"r": at.letters[request]}])
    for text in (where, f"{at.trace.prompt_lengths[request]:,}", *numbers):
        _add(row, "td", text)


def _picture(stop: dict[str, Any], traces: Callable[[str], Trace]) -> Element:
    """The mask if the stop shows it and it is legible, otherwise the lanes."""
    at = At(traces(stop["run"]), stop["step"])
    if (
        "mask" in stop["views"]
        and at.trace.mask(at.step, len(at.event.passes) - 1).num_cells <= 900
    ):
        return mask_picture(at)
    return lanes_picture(at)


def _add(parent: Element, tag: str, text: str, class_: str = "") -> Element:
    element = SubElement(parent, tag, {"class": class_} if class_ else {})
    element.text = text
    return element


def _add_sentence(parent: Element, tag: str, spans: list[Span], class_: str = "") -> None:
    """Add spans as text, with letters of requests in a frame and code as code."""
    element = _add(parent, tag, "", class_)
    for span in spans:
        if isinstance(span, str):
            for index, part in enumerate(span.split("`")):
                if index % 2:
                    _add(element, "code", part)
                else:
                    _append(element, part)
        elif "r" in span:
            _add(element, "span", span["r"], "chip")
        elif "n" in span:
            _add(element, "b", span["n"])
        else:
            _append(element, plain([span]))


def _append(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
