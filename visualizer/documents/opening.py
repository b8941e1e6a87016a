"""The document of the opening: the static and the continuous run of a recorded comparison."""

from pathlib import Path
from typing import Any

from visualizer.documents.catalogue import has_both
from visualizer.documents.comparison import COMPARISON, RECORDED, trace_in
from visualizer.documents.replay import drawn, replay, spoken
from visualizer.words.language import elsewhere

BEFORE, AFTER = "static", "continuous"


def opening(folder: Path = RECORDED) -> dict[str, Any] | None:
    """The data of assets/player/watch/opening/, and the second run as Watch then shows it; None if
    they are not recorded. {"comparison", "title", "before", "after": names of runs, "runs": name →
    replay, "translations": language → {"runs": name → sentences of the second}}
    """
    if not is_recorded(folder):
        return None
    (title, before), (_, after) = (trace_in(folder / COMPARISON, name) for name in (BEFORE, AFTER))
    return {
        "comparison": COMPARISON,
        "title": title,
        "before": BEFORE,
        "after": AFTER,
        "runs": {BEFORE: drawn(before), AFTER: replay(after)},
        "translations": elsewhere(lambda: {"runs": {AFTER: spoken(after)}}),
    }


def is_recorded(folder: Path = RECORDED) -> bool:
    """Whether the runs of the opening are recorded."""
    return has_both(folder / COMPARISON)
