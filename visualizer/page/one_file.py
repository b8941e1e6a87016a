"""Pages in a single file that fetch nothing: they open from disk, and in a cell of a notebook."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from core.config import ASSETS
from core.errors import InflightError, shown
from core.measure.compare import Comparison, environment
from core.trace.trace import Trace
from visualizer.documents.catalogue import RUNS, entry
from visualizer.documents.comparison import Shown, document
from visualizer.documents.replay import UPLOADED, captions_in, replay, translated_replay
from visualizer.lessons.document import document as lessons_document
from visualizer.lessons.document import hints
from visualizer.lessons.lessons import LESSONS
from visualizer.page.bundle import brought, inert_json, page_html, page_of
from visualizer.page.tabs import packed_plotly, part, tab_script

_BROUGHT = ASSETS / "site" / "one_file.html"


def html_of(what: object, in_cell: bool, place: dict[str, Any]) -> str:
    """The page of a run, which opens at a place (see `Player`), or of a comparison. in_cell: for a
    notebook. Raises InflightError if there is nothing to show.
    """
    if isinstance(what, Comparison):
        return comparison_html(what, in_cell)
    if not isinstance(what, Trace):
        raise InflightError(f"There is no page of a {type(what).__name__}.")
    if not what.events:
        raise InflightError("An empty trace: nothing has run yet.")
    made = translated_replay(what, "recorded")
    if _is_brought(in_cell, what):
        made = brought(made)
    return page_html({"replay": made, **place, "embedded": in_cell})


def _is_brought(in_cell: bool, *traces: Trace) -> bool:
    """Whether the runs of a page have been in a file, which anyone may have changed."""
    return not in_cell or any(trace.recorded_texts is not None for trace in traces)


def comparison_html(comparison: Comparison, in_cell: bool = False) -> str:
    """The page of a comparison, see `html_of`; raises InflightError without a trace, and if it was
    simulated.
    """
    if comparison.is_simulated:
        raise InflightError(
            "The page of a comparison shows what was measured, and this one is simulated. Each of"
            " its runs has a page."
        )
    traces = list(comparison.traces.values())
    if not traces:
        raise InflightError("No contender of this comparison left a trace that could be shown.")
    header = traces[0].header
    place = environment(header, is_here=not comparison.is_of_traces)
    source = UPLOADED if _is_brought(in_cell, *traces) else "live"
    shown = Shown(comparison, header.workload, place | {"load_average": comparison.load}, source)
    made = document(shown)
    listed = [
        {name: made[name] for name in ("name", "title", "shows")}
        | {"url": "comparison", "group": ""}
    ]
    data = {"comparison": made, "plotly": base64.b64encode(packed_plotly()).decode()}
    return _one_file(
        {},
        data,
        "compare",
        {"server": False, "plotly": "plotly", "comparisons": listed, "tabs": []},
    )


def lesson_html(lesson: str, traces: Callable[[str], Trace], language: str = "en") -> str:
    """One lesson with the player, runs and texts; raises InflightError for an unknown one."""
    chosen = [known for known in LESSONS if known.name == lesson]
    if not chosen:
        raise InflightError(f"There is no lesson {shown(lesson)}.")
    made = lessons_document(traces, language, chosen)
    (found,) = made["lessons"]
    data: dict[str, object] = {"lesson": made | {"languages": {}}}
    catalogue = []
    for run in dict.fromkeys(
        place["run"] for stop in found["stops"] for place in (stop, stop["then"] or stop)
    ):
        data[run] = {**brought(replay(traces(run))), **captions_in(traces(run), language)}
        catalogue.append(entry(RUNS[run], traces(run)) | {"url": run})
    options = {"server": False, "documents": {"en": "lesson"}, "tabs": [], "only": lesson}
    return _one_file({"catalogue": catalogue, "terms": hints(language)}, data, "learn", options)


def _one_file(
    player: dict[str, Any], data: Mapping[str, object], name: str, options: dict[str, Any]
) -> str:
    """A page that opens with one of its parts. player: the options of the player behind it. data:
    what the part would otherwise fetch, by address.
    """
    given = {"<!--DATA-->": inert_json(data), "<!--PART-->": name, "/*SCRIPT*/": tab_script(name)}
    page = page_html(player, {name: part(name, "", options)})
    return page.replace("</head>", page_of(_BROUGHT, given), 1)
