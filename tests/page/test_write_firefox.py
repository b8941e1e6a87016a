"""Write in Firefox: a policy typed there runs in the sandbox, and one without end is stopped."""

from __future__ import annotations

import pytest

from visualizer.write.tasks import tasks
from worlds.browser import PATIENCE, settled
from worlds.pyodide import engine_files  # noqa: F401
from worlds.writing import put, ran

pytestmark = pytest.mark.usefixtures("engine_files")


@pytest.mark.slow
def test_a_policy_runs_in_firefox_and_a_loop_without_end_is_stopped(firefox, page_url):
    page = firefox.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.goto(f"{page_url}/#part=write&task=arrival")
    page.wait_for_selector(".inflight-write .cm-content")
    settled(page, "inflightWrite.task")
    put(
        page, tasks()["arrival"].code.replace("-request.num_prompt_tokens", "request.arrival_index")
    )
    assert all(goal["met"] for goal in ran(page)["goals"]) and page.is_visible(
        "#watch .panel.lanes"
    )
    page.evaluate("inflightWrite._put('while True:\\n    pass\\n')")
    assert ran(page)["fault"]["line"] in (1, 2)
    page.close()
