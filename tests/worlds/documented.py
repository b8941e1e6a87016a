"""What the documents promise: the Python in them, and tables of keys, with whether some JSON has
them: `| key | type | meaning |`, `[]` for items of a list, `*` for any name, `?` after a key that
may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IN_PYTHON = (
    "README.md",
    "docs/python.md",
    "docs/policies.md",
    "docs/first-policy.md",
    "docs/simulation.md",
)
"""Pages for those who import it."""


def examples(page: str) -> str:
    """The Python of a page, one example after the other."""
    found = re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / page).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert found, page
    return "\n".join(found)


def schemas(text: str) -> list[dict[str, bool]]:
    """The tables of keys in a text: each key, and whether it may be missing."""
    tables = re.findall(
        r"^\| key \| type \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    cells = [[row.split(" | ")[0] for row in table.splitlines()] for table in tables]
    return [
        {
            key: bool(optional)
            for cell in table
            for key, optional in re.findall(r"`([^`]+)`(\??)", cell)
        }
        for table in cells
    ]


def _at(data: Any, path: str) -> Iterator[Any]:
    """What lies under a dotted path: `[]` are the items of a list, `*` the values of an object."""
    here, _, rest = path.removeprefix(".").partition(".")
    name, is_list = here.removesuffix("[]"), here.endswith("[]")
    found = list(data.values()) if name == "*" else [data[name]] if name else [data]
    for value in (item for one in found for item in (one if is_list else [one])):
        yield from _at(value, rest) if rest else [value]


def check(data: Any, schema: dict[str, bool]) -> None:
    """Each key that is listed is there, and no other at the top."""
    one = data[0] if isinstance(data, list) else data
    top = {key.removeprefix("[].") for key in schema}
    assert set(one) <= {re.split(r"[.\[]", key)[0] for key in top}
    for key, optional in schema.items():
        if optional and key not in one:
            continue
        assert list(_at(data, key)), key
