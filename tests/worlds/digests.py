"""Plain data in a line, cut where nobody reads on, and whether it is the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def compact(value: Any) -> str:
    """JSON in a line; floats to six digits, which every machine has alike."""
    return json.dumps(rounded(value), ensure_ascii=False, default=vars)


def digest(value: Any) -> str:
    """Whether it is the same, without what it is."""
    return hashlib.sha256(compact(value).encode()).hexdigest()[:12]


def rounded(value: Any) -> Any:
    """Plain data whose floats have six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {str(key): rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    return value


def shortened(text: str, most: int = 6000) -> str:
    """A text that nobody reads to its end, by its beginning and a digest of the whole."""
    return text if len(text) < most else f"{text[: most // 2]} … {digest(text)}"
