"""A preset of each policy, and one under pressure, in a tab of Firefox as in one of Chromium."""

from __future__ import annotations

import pytest

from core.workload.presets import PRESETS
from worlds.tab_runs import RUN_IN_A_TAB, accept, engine_in

pytestmark = pytest.mark.slow

OF_EACH_POLICY = {PRESETS[name].config.policy: name for name in reversed(RUN_IN_A_TAB)}


@pytest.fixture(scope="module")
def engine(firefox, engine_site):
    yield from engine_in(firefox, engine_site)


@pytest.mark.parametrize("name", [*OF_EACH_POLICY.values(), "kv-pressure"])
def test_a_preset(name, engine):
    accept(engine, name, "Firefox")
