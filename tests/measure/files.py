"""`python tests/measure/files.py` writes docs/files.md: what each file says of itself first."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measure import script
from measure.size import PRODUCT, ROOT, files

PAGE = ROOT / "docs" / "files.md"
_HEAD = """# Every file

What each file says of itself in its first paragraph. What each folder is for, and which of them
may import which: [the map](architecture.md#the-map). `python tests/measure/files.py` writes this
page from the files.
"""
_COMMENT = re.compile(r"(?:\s*/\*(?:.|\n)*?\*/|(?://.*\n)+)")
_SIGNS = re.compile(r"^\s*(?://|/\*+|\*+/?)? ?|\s*\*/$", re.MULTILINE)


def described() -> Iterator[tuple[Path, str]]:
    """Every file of the product that is written by hand, from its root, with the first paragraph
    of its docstring or of the comment at its top.
    """
    every = [path for ending in ("py", "js", "css", "c", "h") for path in files(ending, *PRODUCT)]
    for path in sorted(every, key=lambda path: (path.parent, path.name)):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            said = ast.get_docstring(ast.parse(text)) or ""
        else:
            comment = _COMMENT.match(text)
            said = _SIGNS.sub("", comment[0]).strip() if comment else ""
        yield path.relative_to(ROOT), " ".join(said.split("\n\n")[0].split())


def page() -> str:
    """docs/files.md."""
    rooms = groupby(described(), key=lambda file: file[0].parent.as_posix())
    return _HEAD + "".join(
        f"\n## `{'.' if room == '.' else f'{room}/'}`\n\n"
        + "".join(f"- `{path.name}`: {_escaped(said)}\n" for path, said in of_room)
        for room, of_room in rooms
    )


def _escaped(said: str) -> str:
    """As Markdown that shows what was written."""
    return re.sub(r"(`[^`]*`)|([*<\[])", lambda m: m[1] or f"\\{m[2]}", said)


def write() -> None:
    """Write docs/files.md anew."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    script(write)
