"""What each exercise begins with: its part of `blank.py`."""

from __future__ import annotations

import ast
from pathlib import Path

BLANK = Path(__file__).with_name("blank.py")
WRITTEN = {
    "static": "schedule_static",
    "continuous": "schedule_continuous",
    "mask": "block_diagonal_mask",
    "blocks": "Blocks",
}


def stub(name: str) -> str:
    """The function or class to be written, with the imports that it needs."""
    source = BLANK.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    given = next(
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
    )
    (node,) = (
        n
        for n in tree.body
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == WRITTEN[name]
    )
    text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    used = [alias.name for alias in given.names if alias.name in text]
    head = f"from {given.module} import {', '.join(used)}\n\n\n" if used else ""
    return f"{head}{text}\n"
