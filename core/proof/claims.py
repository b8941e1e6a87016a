"""What `check` claims of each fact of a trace, as `assets/checks.toml` lists it: one table for
every run, and one for another engine's. The console and docs/checks.md show both.
"""

from __future__ import annotations

import tomllib
from typing import Literal

from core.config import ASSETS

Proof = Literal["replayed", "bounded", "decoded", "rerun", "sealed"]

_TABLES = tomllib.loads((ASSETS / "checks.toml").read_text(encoding="utf-8"))

PROOFS: dict[str, tuple[Proof, str]] = {
    fact: (row["proof"], row["how"]) for fact, row in _TABLES["proofs"].items()
}
"""By fact: how it is known, and what exactly is known of it."""

OTHERS: dict[str, tuple[str, str]] = {
    fact: (row["enforced"], row.get("believed", "")) for fact, row in _TABLES["others"].items()
}
"""By fact of another engine's run: what is enforced, by a refusal or a warning, and what is taken
on trust, if anything is.
"""
