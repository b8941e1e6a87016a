"""The recorded runs and the player as a static site: a folder that any web server serves and that opens from disk as well."""

from __future__ import annotations

from pathlib import Path

from core.errors import InflightError
from core.presets import PRESETS
from core.trace import Trace
from visualizer.bundle import inert_json, page_html
from visualizer.recorded import TRACES, entry
from visualizer.replay import replay

_LOADER = Path(__file__).resolve().parent.parent / "assets" / "site" / "runs.js"


def export_site(folder: Path, traces: Path = TRACES) -> Path:
    """Write the site; its first page. Raises InflightError where nothing is on record or the folder cannot be written."""
    runs = [(preset, traces / f"{preset.name}.jsonl") for preset in PRESETS.values()]
    runs = [(preset, path) for preset, path in runs if path.exists()]
    if not runs:
        raise InflightError("There are no recorded runs: make them with `python -m visualizer record`.")
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        catalogue = []
        for preset, path in runs:
            trace = Trace.load(path)
            file = folder / "runs" / f"{preset.name}.js"
            file.write_text(f"inflightRun({inert_json(preset.name)}, {inert_json(replay(trace))});\n", encoding="utf-8")
            catalogue.append(entry(preset, trace) | {"url": f"runs/{preset.name}.js"})
        page = page_html({"catalogue": catalogue})
        index = folder / "index.html"
        index.write_text(
            page.replace("</head>", f"<script>\n{_LOADER.read_text(encoding='utf-8')}</script>\n</head>", 1), encoding="utf-8"
        )
    except OSError as error:
        raise InflightError(f"{folder} cannot be written: {error.strerror}.") from None
    return index
