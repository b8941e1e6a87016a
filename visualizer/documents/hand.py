"""Six requests, and what the scheduler decides for them when one answer is longer, a lane more is
there or one of them comes later: the figure that a hand can change (assets/player/figure/hand.js).

Every setting was decided by the engine's own scheduler, on the settings of two recorded runs, when
the runs were recorded; the page looks them up. No model runs, so there are steps and no times.
"""

from __future__ import annotations

import json
from typing import Any

from core.config import ASSETS

HAND = ASSETS / "story" / "hand.json"


def shipped() -> Any:
    """{"letters", "hues": of the requests; "length", "lanes", "arrival": [first, last, step, as
    recorded]; "decided": policy → a list for each setting, arrivals innermost: of each request its
    lane, its first step, its last, and the last in which its row was computed}
    """
    return json.loads(HAND.read_text(encoding="utf-8"))
