"""Real pages of other sites, in a real browser, against a page that a class reaches over plain
HTTP: of it browsers say nothing but the origin.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from worlds.browser import FLAGS, PATIENCE, executable
from worlds.page_server import begin, call
from worlds.static_host import hosted
from worlds.visitors import endless

SEND = """async ([to, spec, visitor, options]) => {
  const body = JSON.stringify({ kind: "run", spec, visitor });
  return fetch(to + "/inflight/jobs", { method: "POST", body, ...options }).then(async (r) => [r.status, await r.text()], () => null);
}"""  # noqa: E501
READ = """async ([to, headers]) => Promise.all(["inflight/state", "serve/sessions", "config"].map(
  (path) => fetch(`${to}/${path}`, { headers }).then((r) => r.status, () => null)))"""


@pytest.mark.slow
def test_pages_of_other_sites_neither_send_nor_read_and_its_own_do_both(
    chromium, page_url, http, tmp_path
):
    """`class.lan` is the page's name in its network; `evil.example` is another site, which then
    points its name to the page.
    """
    (tmp_path / "index.html").write_text("<title>evil</title>", encoding="utf-8")
    port = urlsplit(page_url).port
    rules = "--host-resolver-rules=MAP class.lan 127.0.0.1, MAP evil.example 127.0.0.1"
    browser = chromium.browser_type.launch(
        executable_path=executable(), args=[*FLAGS.split(), rules, "--no-proxy-server"]
    )
    with hosted(tmp_path) as site:
        try:
            page = browser.new_page()
            page.set_default_timeout(PATIENCE)
            to = f"http://class.lan:{port}"
            page.goto(f"http://evil.example:{urlsplit(site.url).port}/")
            proxys = {
                "content-type": "application/json",
                "x-forwarded-host": urlsplit(page.url).netloc,
            }
            for number, options in enumerate(
                (
                    {"mode": "no-cors"},
                    {"mode": "no-cors", "headers": {"content-type": "text/plain"}},
                    {"headers": {"content-type": "application/json"}},
                    {"headers": proxys},
                )
            ):
                page.evaluate(SEND, [to, endless(), f"of evil {number}", options])
                begun = begin(http, page_url, "run", endless(), f"of evil {number}")
                assert "job" in begun, "a run of this visitor was begun by the other site"
                call(http, page_url, "cancel", begun["job"])
            assert page.evaluate(READ, [to, {}]) == page.evaluate(READ, [to, proxys]) == [None] * 3

            rebound = page.goto(f"http://evil.example:{port}/")
            assert rebound and rebound.status == 403
            here = f"http://evil.example:{port}"
            assert page.evaluate(READ, [here, {}]) == [403] * 3
            as_json = {"headers": {"content-type": "application/json"}}
            assert page.evaluate(SEND, [here, endless(), "rebound", as_json])[0] == 403

            page.goto(to)
            assert page.evaluate(READ, [to, {}]) == [200] * 3
            status, told = page.evaluate(SEND, [to, endless(), "of its own", as_json])
            assert status == 200 and '"job"' in told
            call(http, page_url, "cancel", page.evaluate("(text) => JSON.parse(text).job", told))
        finally:
            browser.close()
