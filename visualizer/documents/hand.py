"""Data of the interactive figure about scheduling (assets/player/figure/hand.js): six requests, and
the scheduler's decisions if one answer is longer, one lane is added, or one request arrives later.

The engine's own scheduler decided every variant in advance, with the settings of two recorded runs;
the page looks the decisions up. No model runs, so there are steps but no times.
"""

import json
from typing import Any

from core.config import ASSETS

HAND = ASSETS / "story" / "hand.json"


def shipped() -> Any:
    """{"letters", "hues": of the requests; "length", "lanes", "arrival": [first, last, increment,
    recorded value]; "decided": policy → a list with an entry for each combination, arrivals
    innermost: each request's lane, first step, last step, and last computed step}
    """
    return json.loads(HAND.read_text(encoding="utf-8"))
