"""Two data-parallel ranks of vLLM as they were recorded, and the same with something changed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from core.recorders.convert import open_texts
from core.trace.ranks import Ranks

FILES = [
    Path(__file__).parents[1] / "data" / f"vllm-0.32-two-ranks.rank{rank}.raw.jsonl.gz"
    for rank in (0, 1)
]


def records(rank: int) -> list[dict[str, Any]]:
    """The lines of a rank's recording: its header, then its steps."""
    return [json.loads(line) for line in gzip.decompress(FILES[rank].read_bytes()).splitlines()]


def text(rank: int, /, drop: tuple[str, ...] = (), **header: Any) -> str:
    """A rank's file, its header without some fields and with others."""
    first, *steps = records(rank)
    changed = {name: value for name, value in (first | header).items() if name not in drop}
    return "".join(json.dumps(record) + "\n" for record in (changed, *steps))


def ranks(*texts: str) -> Ranks:
    """Files opened together; they are called 0.raw.jsonl, 1.raw.jsonl, …"""
    opened = open_texts((f"{number}.raw.jsonl", content) for number, content in enumerate(texts))
    return Ranks.of(opened.traces, opened.refused)
