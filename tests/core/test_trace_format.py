"""docs/trace-format.md says what the records say of themselves: its tables are made from them, its
examples are lines of a recorded run.

`PYTHONPATH=. python tests/core/test_trace_format.py` writes them anew.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

from core.trace import events
from core.trace.events import RECORDS, BlockChange, Finished, StepEvent
from core.trace.file import SCHEMA
from core.trace.trace import Trace

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "trace-format.md"
EXAMPLE = ROOT / "assets" / "traces" / "three-short.jsonl"
_TABLES = "\n## Records\n"


def tables() -> str:
    """Every record with its own words and its fields, then a line of each kind."""
    parts = []
    for name in RECORDS:
        record = getattr(events, name)
        [written] = ast.parse(inspect.getsource(record)).body
        fields = [field for field in written.body if isinstance(field, ast.AnnAssign)]
        rows = [
            f"| `{field.target.id}` | `{ast.unparse(field.annotation).replace('|', 'or')}` |"
            for field in fields
        ]
        says = (
            inspect.getdoc(record)
            if "__doc__" in vars(record) and not record.__doc__.startswith(f"{name}(")
            else ""
        )
        parts.append(
            "\n".join(
                [
                    f"### {name}",
                    "",
                    *([says, ""] if says else []),
                    "| field | kind |",
                    "|---|---|",
                    *rows,
                ]
            )
        )
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    examples = [
        lines[0],
        lines[1],
        lines[3],
        next(line for line in lines if '"kind":"texts"' in line),
        lines[-1],
    ]
    return (
        f"{_TABLES}\n"
        + "\n\n".join(parts)
        + "\n\n## A line of each kind\n\n```json\n"
        + "\n".join(examples)
        + "\n```\n"
    )


def test_what_a_step_leaves_out_is_what_is_empty_and_nothing_else():
    (event, *_) = Trace.load(EXAMPLE).events
    for changed in (
        {"finished": (Finished("a", "cancelled", 0.0), Finished("b", "length"))},
        {"kv": event.kv._replace(changes=(BlockChange("a", (0,), False, 1),))},
        {"kv": event.kv._replace(changes=(BlockChange("a", (), False, 0, (0,)),))},
        {"warnings": ("Odd.",), "queue": ("a", "b")},
    ):
        told = event._replace(**changed)
        assert StepEvent.from_json(json.loads(json.dumps(told.to_json()))) == told != event
    left_out = {"group": {"default": 0}, "left": {"default": ()}}
    assert {field: RECORDS["BlockChange"][field] for field in left_out} == left_out
    assert RECORDS["Finished"]["t"] == {"default": None} and RECORDS["Finished"]["request"] is None


def test_the_document_has_the_fields_that_the_records_have():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text[text.index(_TABLES) :] == tables(), (
        f"PYTHONPATH=. python {Path(__file__).relative_to(ROOT)} writes it anew"
    )
    assert f"schema {SCHEMA}." in text and set(
        re.findall(r"^### (\w+)", text, re.MULTILINE)
    ) == set(RECORDS)


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(text[: text.index(_TABLES)] + tables(), encoding="utf-8")
