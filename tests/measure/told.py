"""`python tests/measure/told.py` writes tests/told anew: what is said and counted of runs, as text.

A test holds the product to these texts, so whoever changes a sentence or a number on purpose reads
here, in what git shows, what else it has changed. `--walks` writes tests/walks anew as well, what
is told on walks through the page: a Chromium takes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

os.environ["INFLIGHT_MODELS_DIR"] = "/dev/null/no-models"  # as in tests, whatever is here

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measure import script
from worlds.as_told import FOLDER, texts
from worlds.walks import ANEW


def write(
    walks: Annotated[bool, typer.Option("--walks", help="Walk through the page, too.")] = False,
) -> None:
    """Write tests/told anew: every text, and no other."""
    FOLDER.mkdir(exist_ok=True)
    made = texts()
    for name, make in made.items():
        (FOLDER / f"{name}.txt").write_text(make(), encoding="utf-8", newline="\n")
    for path in FOLDER.iterdir():
        if path.stem not in made:
            path.unlink()
    print(f"{len(made)} texts in {FOLDER.name}/; `git diff` shows what has changed.")
    if walks:
        walked = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/page/test_walks.py"]
        raise typer.Exit(subprocess.run(walked, env=os.environ | {ANEW: "1"}).returncode)


if __name__ == "__main__":
    script(write)
