"""Every preset of the built-in models in a tab of Firefox, as in Chromium."""

from __future__ import annotations

import pytest

from worlds.tab_runs import RUN_IN_A_TAB, accept, engine_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(firefox, engine_site):
    yield from engine_in(firefox, engine_site)


@pytest.mark.parametrize("name", RUN_IN_A_TAB)
def test_every_preset(name, engine):
    accept(engine, name, "Firefox", RUN_IN_A_TAB[name])
