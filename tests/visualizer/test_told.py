"""What is said and counted of runs is what is kept of it: see `worlds.as_told`."""

from __future__ import annotations

import shutil
from difflib import unified_diff
from itertools import count

import pytest

from worlds.as_told import COST, DRAWN, FOLDER, PAGE, texts
from worlds.served import of_attempts

MADE = texts()
LONG = (
    "commands",
    "comparisons",
    *(f"drawn-walk-{name}" for name in ("editor", "menus", "opening", "served", "story", "tab")),
    "refused-http",
    "refused-recording",
    "refused-steps",
    "refused-trace",
)
QUICK = [name for name in MADE if "vllm-http" not in name and name not in LONG]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in MADE if name not in QUICK]


@pytest.mark.parametrize("name", QUICK + SLOW)
def test_what_is_said_is_what_was_kept(name: str) -> None:
    if name.startswith((PAGE, DRAWN)) and shutil.which("node") is None:
        pytest.skip("node is not installed")
    then = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    differs = list(unified_diff(then, MADE[name]().splitlines(), lineterm="", n=0))
    assert not differs, "If it was meant: python tests/measure/told.py\n" + "\n".join(differs[:20])


def test_every_text_that_is_kept_is_compared() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(MADE)


@pytest.mark.slow
def test_on_a_busy_machine_a_sandbox_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = of_attempts(COST)
    seconds = count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    assert of_attempts(COST) == quiet
