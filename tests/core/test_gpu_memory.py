"""How much of a device is left for the KV pool: arithmetic, and the sentence that tells of it."""

from __future__ import annotations

import pytest

from core.runner.pool_size import MemoryBudget

GIB = 2**30


def test_the_pool_gets_what_weights_passes_and_the_reserve_leave():
    room = MemoryBudget(total=80 * GIB, used=20 * GIB, peak=3 * GIB, tokens=8192, utilization=0.9)
    assert room.for_pool == (72 - 20 - 2 * 3) * GIB
    assert room.blocks(GIB) == 46
    assert room.blocks(47 * GIB) == 0
    assert room.sentence == (
        "46.00 GiB are left for it: of 80.00 GiB on the device 90% may be used, 20.00 GiB are taken, "
        "and a pass of 8,192 tokens needs 3.00 GiB, twice with its graph"
    )


@pytest.mark.parametrize(("used", "peak"), [(72, 0), (60, 6), (80, 40)])
def test_never_less_than_nothing(used, peak):
    assert MemoryBudget(80 * GIB, used * GIB, peak * GIB, 1, 0.9).for_pool == 0
