"""A comparison measured by the engine in a tab of Firefox, whose clock tells whole milliseconds."""

from __future__ import annotations

import pytest

from worlds.compare_in_tab import accept, measure, site


@pytest.mark.slow
def test_a_comparison_is_measured_and_drawn_in_the_tab(tmp_path, engine_files, firefox):
    with site(tmp_path, engine_files) as address:
        page = firefox.new_page(viewport={"width": 1440, "height": 900})
        page.add_init_script("try { localStorage.setItem('inflight-opening', '1'); } catch {}")
        accept(measure(page, address, repeats=1), page, "Firefox", repeats=1)
        page.close()
