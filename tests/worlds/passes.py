"""Random passes for the tests of attention: a few requests, blocks scattered or not, in either
layout.
"""

from __future__ import annotations

from hypothesis import strategies as st

from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable

BLOCK = 4


@st.composite
def passes(draw, longest: int = 7, furthest: int = 13):
    """A pass of up to five requests of up to `longest` tokens after `furthest`, and how many blocks
    it uses.
    """
    layout = draw(st.sampled_from(["packed", "padded"]))
    rows, next_block = [], 0
    for lane in range(draw(st.integers(1, 5))):
        length, start = draw(st.integers(1, longest)), draw(st.integers(0, furthest))
        count = -(-(start + length) // BLOCK)
        blocks = list(range(next_block, next_block + count))
        next_block += count
        if draw(st.booleans()):
            blocks.reverse()
        table = BlockTable().extend(tuple(blocks))
        rows.append(
            ScheduledRequest(f"r{lane}", lane, "prefill", tuple(range(length)), start, table, True)
        )
    if layout == "padded" and draw(st.booleans()):  # a row that has finished
        rows.append(
            ScheduledRequest(
                "done",
                len(rows),
                "decode",
                (),
                5,
                BlockTable().extend((next_block, next_block + 1)),
                False,
            )
        )
        next_block += 2
    return SchedulerOutput(layout, tuple(rows)), next_block
