"""JSON documents for the browser: replays, comparisons, the catalogue of recorded runs."""

import json
from typing import Any


def as_text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
