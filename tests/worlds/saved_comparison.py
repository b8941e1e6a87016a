"""A comparison as a folder, as those that ship are kept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from visualizer.documents.comparison import Shown, kept_json


def save(shown: Shown, folder: Path) -> Path:
    """Write a comparison with its traces; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for index, (name, run) in enumerate(shown.comparison.runs.items()):
        if run.trace is not None:
            names[name] = (
                f"{index}-{''.join(c if c.isalnum() or c == '-' else '_' for c in name)}.jsonl.gz"
            )
            text = "".join(line + "\n" for line in run.trace.lines())
            # the same run, the same bytes
            (folder / names[name]).write_bytes(gzip.compress(text.encode(), mtime=0))
    for old in set(folder.glob("*.jsonl*")) - {folder / file for file in names.values()}:
        old.unlink()
    (folder / "comparison.json").write_text(
        json.dumps(kept_json(shown, names), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    return folder
