"""What Python and the page both have to know, and neither can ask the other, is the same in
both.
"""

from __future__ import annotations

import re

import pytest

from core import SamplingParams
from core.trace.events import Timings
from core.trace.trace import NOT_USED
from visualizer.charts.theme import HUES
from visualizer.jobs.limits import HERE
from visualizer.page.bundle import PLAYER
from visualizer.server.live import CHAPTER

_DEFAULTS = {
    name: getattr(SamplingParams(), name) for name in ("temperature", "top_k", "top_p", "seed")
}


@pytest.mark.parametrize(
    ("file", "constant", "here"),
    [
        ("parts/colours.js", "HUES", list(HUES)),
        ("run/passes.js", "NOT_USED", NOT_USED),
        ("views/queue.js", "PARTS", [*Timings._fields, "other"]),
        ("live/batch.js", "CHAPTER", CHAPTER),
        ("watch/open_file.js", "MOST", HERE.upload_bytes),
        ("watch/address.js", "SAMPLING_DEFAULTS", _DEFAULTS),
    ],
)
def test_a_constant_is_the_same_on_the_page(file, constant, here):
    (written,) = re.findall(
        rf"^(?:export )?const {constant} = (.*?);",
        (PLAYER / file).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert eval(re.sub(r"(\w+):", r'"\1":', written), {"__builtins__": {}}) == here
