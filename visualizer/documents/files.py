"""Files that are whole or not there, named by their content. Knows nothing of what is in them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_whole(path: Path, pieces: Iterable[str]) -> Path:
    """Write a text completely or not at all; raises OSError, and then leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def as_text(data: dict[str, Any]) -> str:
    """Data as JSON, as the page fetches it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_by_content(folder: Path, data: dict[str, Any]) -> Path:
    """Write JSON under the hash of its content; the file. One that is there already is not written again."""
    text = as_text(data)
    path = folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.json"
    return path if path.exists() else write_whole(path, [text])
