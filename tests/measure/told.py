"""`python tests/measure/told.py` writes tests/told anew: what is said and counted of runs, as text.

A test holds the product to these texts, so whoever changes a sentence or a number on purpose reads
here, in what git shows, what else it has changed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["INFLIGHT_MODELS_DIR"] = "/dev/null/no-models"  # as in tests, whatever is here

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measure import script
from worlds.as_told import FOLDER, texts


def write() -> None:
    """Every text, and no other."""
    FOLDER.mkdir(exist_ok=True)
    made = texts()
    for name, make in made.items():
        (FOLDER / f"{name}.txt").write_text(make(), encoding="utf-8", newline="\n")
    for path in FOLDER.iterdir():
        if path.stem not in made:
            path.unlink()
    print(f"{len(made)} texts in {FOLDER.name}/; `git diff` shows what has changed.")


if __name__ == "__main__":
    script(write)
