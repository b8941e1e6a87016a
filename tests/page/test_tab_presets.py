"""Every preset of the built-in models, run by the engine in a tab of Chromium: its tokens are the
recorded run's, and `check` accepts its trace.
"""

from __future__ import annotations

import pytest

from worlds.tab_runs import RUN_IN_A_TAB, accept, engine_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(chromium, engine_site):
    yield from engine_in(chromium, engine_site)


@pytest.mark.parametrize("name", RUN_IN_A_TAB)
def test_every_preset(name, engine):
    accept(engine, name, "Chromium")
