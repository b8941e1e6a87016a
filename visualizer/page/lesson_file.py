"""One lesson as one file: the player, its recorded runs and the lesson's texts, with nothing to fetch. Opens from disk."""

from __future__ import annotations

import re
from collections.abc import Callable

from core.config import ASSETS
from core.errors import InflightError
from core.trace.trace import Trace
from visualizer.documents.catalogue import RUNS, entry
from visualizer.documents.replay import captions_in, replay
from visualizer.lessons.document import document, hints
from visualizer.lessons.lessons import LESSONS
from visualizer.page.bundle import inert_json, page_html
from visualizer.page.tabs import part, tab_script

_HEAD = ASSETS / "site" / "lesson.html"


def lesson_html(lesson: str, traces: Callable[[str], Trace], language: str = "en") -> str:
    """The page; raises InflightError for a lesson that there is not."""
    chosen = [known for known in LESSONS if known.name == lesson]
    if not chosen:
        raise InflightError(f"There is no lesson {lesson!r}.")
    made = document(traces, language, chosen)
    (found,) = made["lessons"]
    data: dict[str, object] = {"lesson": made | {"languages": {}}}
    catalogue = []
    for run in dict.fromkeys(place["run"] for stop in found["stops"] for place in (stop, stop["then"] or stop)):
        data[run] = {**replay(traces(run)), **captions_in(traces(run), language)}
        catalogue.append(entry(RUNS[run], traces(run)) | {"url": run})
    learn = part("learn", "", {"server": False, "documents": {"en": "lesson"}, "tabs": [], "only": lesson})
    head = {"<!--DATA-->": inert_json(data), "/*SCRIPT*/": tab_script("learn")}
    brought = re.sub("|".join(map(re.escape, head)), lambda m: head[m.group()], _HEAD.read_text(encoding="utf-8"))
    return page_html({"catalogue": catalogue, "terms": hints(language)}, {"learn": learn}).replace("</head>", brought, 1)
