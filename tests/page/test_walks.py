"""Whoever walks through the page is told what was kept of it: see `worlds.walks`."""

from __future__ import annotations

import os
from difflib import unified_diff

import pytest

from worlds.walks import ANEW, FOLDER, begun, walked


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_walk_is_told_what_was_kept(visit, page_url, path):
    kept = path.read_text(encoding="utf-8").splitlines()
    page = begun(visit, page_url, kept[0])
    anew = ANEW in os.environ
    told: list[str] = []
    for part in walked(page, kept, anew):
        told += part
        differs = list(unified_diff(kept[: len(told)], told, lineterm="", n=0))[2:]
        assert anew or not differs, "If it was meant: python tests/measure/told.py --walks\n" + (
            "\n".join(differs[:40])
        )
    if anew:
        path.write_text("\n".join(told) + "\n", encoding="utf-8", newline="\n")
