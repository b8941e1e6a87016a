"""The opening's two runs: the static and the continuous one of a recorded comparison, as one document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visualizer.documents.comparison import RECORDED, load
from visualizer.documents.replay import captions_in, replay
from visualizer.words.language import OTHERS

COMPARISON, BEFORE, AFTER = "gpt2-six", "static", "continuous"


def opening(folder: Path = RECORDED) -> dict[str, Any] | None:
    """What assets/player/watch/opening/ draws, and the second run as Watch then shows it; None if it is not recorded.

    {"comparison", "title", "before", "after": names of runs, "runs": name → replay, "translations": language → {"spoken": sentences of the second}}
    """
    if not is_recorded(folder):
        return None
    shown = load(folder / COMPARISON)
    traces = {name: shown.comparison.runs[name].trace for name in (BEFORE, AFTER)}
    before, after = (traces[name] for name in (BEFORE, AFTER))
    if before is None or after is None:
        return None
    drawn = {
        key: part for key, part in replay(before).items() if key not in ("captions", "totals", "delays")
    }  # nothing is said of it
    return {
        "comparison": COMPARISON,
        "title": shown.title,
        "before": BEFORE,
        "after": AFTER,
        "runs": {BEFORE: drawn, AFTER: replay(after)},
        "translations": {language: {"spoken": captions_in(after, language)} for language in OTHERS},
    }


def is_recorded(folder: Path = RECORDED) -> bool:
    """Whether there is something to open with."""
    return (folder / COMPARISON / "comparison.json").exists()
