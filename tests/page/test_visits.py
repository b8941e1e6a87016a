"""What tests of the page rely on: contexts of the browser are used again, and a visit finds nothing
of an earlier one.
"""

from __future__ import annotations

from worlds.browser import HERE

STORED = "[localStorage.length, sessionStorage.length, document.cookie]"


def opened(context):
    page = context.new_page()
    page.route("**/*", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto(HERE)
    return page


def test_a_context_that_is_given_back_is_empty_and_nobody_elses(contexts):
    first = contexts.take(HERE, {})
    page = opened(first)
    page.evaluate("localStorage.a = 1, sessionStorage.a = 1, document.cookie = 'a=1'")
    assert opened(first).evaluate(STORED) == [1, 0, "a=1"]  # another tab of the same visitor
    second = contexts.take(HERE, {})
    assert second is not first and opened(second).evaluate(STORED) == [0, 0, ""]
    contexts.give_back(first)
    assert page.is_closed()
    assert contexts.take(HERE, {}) is first and opened(first).evaluate(STORED) == [0, 0, ""]
    assert contexts.take(HERE, {"is_mobile": True}) not in (first, second)
