"""The class at the door, small: all visitors are served, and a row shows how long they waited."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from core.errors import InflightError
from measure.visitors import HEADING, measure


@pytest.mark.slow
def test_a_small_class_is_served(page_url):
    with ThreadPoolExecutor(1) as pool:
        row = pool.submit(measure, page_url, 12, 0.0, browser=True).result()
    print(f"\n{HEADING}\n{row.line()}")
    assert row.served == 12 and not row.refusals and 0 < row.in_line <= 8 and (row.browser or 0) > 0
    assert row.picture_p95 > 0 and 0 < row.first_step_p95 <= row.end_p95


def test_no_page_is_said_in_a_sentence():
    with pytest.raises(InflightError, match="No page answers at"):
        measure("http://127.0.0.1:9", 1, 0.0)
