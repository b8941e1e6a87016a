"""The sandbox in Firefox: the tests of test_sandbox.py again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from test_sandbox import (  # noqa: F401
    elsewhere,
    site,
    test_no_code_in_it_reaches_the_network_the_page_or_a_storage,
    test_what_cannot_be_interrupted_is_ended_and_the_next_job_runs,
    test_what_is_no_answer_ends_it_with_a_sentence,
    test_without_its_policy_the_same_code_reaches_the_network,
)

from worlds.sandboxed import Listener

pytestmark = pytest.mark.slow


@pytest.fixture
def page(firefox: Browser, site: Listener) -> Iterator[Page]:  # noqa: F811
    context = firefox.new_context()
    page = context.new_page()
    page.goto(site.url + "index.html")
    yield page
    context.close()
