"""The page on a real model, SmolLM2, which the machine's user has fetched: a vocabulary of 49,152,
30 layers, answers that end. What is asked is answered, what takes long says how far it is, and what
is drawn of it fits and can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from core.workload.presets import PRESETS
from worlds.axe import serious
from worlds.browser import seek, settled
from worlds.live_page import ask, opened
from worlds.page_server import serve

pytestmark = pytest.mark.slow  # they run the model

SHIPS = " ".join(
    f"In the year {1000 + n} a small ship number {n} left the old harbour with salt, wool and"
    " letters."
    for n in range(46)
)


@pytest.fixture(scope="module")
def real_url(users_models) -> Iterator[str]:
    with serve(INFLIGHT_MODELS_DIR=users_models) as url:
        yield url


def ran(page: Page, *asked: list[tuple[str, str]]) -> None:
    """Run these requests, each by its messages, under the limits of the first screen."""
    preset = PRESETS["six-questions"]
    requests = [
        {
            "id": f"r{n}",
            "messages": [{"role": role, "content": content} for role, content in messages],
            "sampling": {"max_new_tokens": 16},
        }
        for n, messages in enumerate(asked)
    ]
    spec = {
        "workload": {**preset.workload.to_json(), "name": "custom", "requests": requests},
        "config": preset.config.to_json(),
        "model": preset.model,
        "device": "cpu",
    }
    page.evaluate(
        "async (spec) => { await inflight.editor.ready(); inflight.editor.fill(spec);"
        " if (!await inflight.editor.runSpec(spec)) throw Error(document.body.innerText); }",
        json.loads(json.dumps(spec)),
    )
    settled(page, "inflight.run.complete && inflight.run.header.source === 'live'")


def test_three_people_ask_and_each_reads_the_answer(visit, real_url):
    """On the page of whoever asked, and beside its lane on the pages of all."""
    asked = {"France": "Paris", "Germany": "Berlin", "Japan": "Tokyo"}
    pages = [opened(visit, real_url, size=size) for size in ("desk", (1280, 800), "phone")]
    for page, country in zip(pages, asked, strict=True):
        page.evaluate("inflightLive.form.temperature = 0")
        ask(page, f"What is the capital of {country}?", 40)
    for page, (country, capital) in zip(pages, asked.items(), strict=True):
        settled(page, "document.querySelector('.own-state').textContent.startsWith('Done')")
        own = page.locator(".own-words").inner_text()
        assert own.startswith(f"What is the capital of {country}? ") and capital in own
        assert "<|" not in own
    for page in pages:
        settled(page, "inflight.run.requests.filter((r) => r.finished).length === 3")
        for capital in asked.values():
            expect(page.locator(".person-words", has_text=capital)).to_have_count(1)
        assert "<|" not in page.inner_text("body")


def test_edited_messages_are_run_and_answered(visit, real_url):
    page = visit(f"{real_url}/", hash="detail=full")
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    for _ in range(5):
        page.get_by_label("Remove this request").last.click()
    page.fill(".request-row textarea", "And of Italy?")
    page.click(".conversation summary")
    for _ in range(2):
        page.get_by_label("Add a message above").first.click()
    for n, (role, content) in enumerate(
        [
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
        ]
    ):
        message = page.locator(".conversation li").nth(n)
        message.locator("select").select_option(role)
        message.locator("textarea").fill(content)
    page.click("#watch .run-button")
    settled(page, "inflight.run.header.source === 'live' && inflight.run.complete")
    assert page.evaluate("inflight.run.said(inflight.run.requests[0]).join('')") == (
        "What is the capital of France?\nThe capital of France is Paris.\nAnd of Italy? "
    )
    assert "Rome" in page.evaluate("inflight.run.answer(inflight.run.requests[0]).join('')")
    seek(page, page.evaluate("inflight.run.length - 1"))
    expect(page.locator(".panel.text .said").first).to_contain_text("Rome")


def test_a_comparison_says_how_far_it_is_until_its_end(visit, real_url):
    page = visit(f"{real_url}/", hash="part=compare", size=(1280, 800), drawn=False)
    form = page.locator(".inflight-compare .drawer")
    page.click(".inflight-compare .new-button")
    form.locator("[name=preset]").select_option("brief-static")
    form.locator("[name=repeats]").fill("1")
    settled(page, "inflightCompare.doc")
    bar = "document.querySelector('.inflight-compare .top')"  # beside the open form
    assert page.evaluate(f"{bar}.scrollWidth <= {bar}.clientWidth")
    page.evaluate("""() => { const at = document.querySelector('.inflight-compare .run-message');
        window.told = []; new MutationObserver(() => told.push(at.textContent))
            .observe(at, { childList: true, characterData: true, subtree: true }); }""")
    form.locator(".run-button").click()
    settled(page, "inflightCompare.doc?.source === 'live'")
    told = page.evaluate("told")
    for run, turn in (
        ("1 of 4: static", "warm-up"),
        ("2 of 4: continuous", "warm-up"),
        ("3 of 4: continuous", "round 1"),
        ("4 of 4: static", "round 1"),
    ):
        begins = f"Run {run}, {turn}. "
        written = [
            int(says.removeprefix(begins).split(", ")[1].split()[0])
            for says in told
            if says.startswith(begins) and " of 6 requests done, " in says
        ]
        assert written and written == sorted(written), (begins, told)
    expect(form.locator(".run-message")).to_contain_text("Done")
    assert page.evaluate("inflightCompare.doc.names") == ["static", "continuous"]


# What does not fit: a page that is too wide, words beyond the window, or beyond their own box.
CUT = """() => {
    const cut = document.documentElement.scrollWidth > innerWidth ? ['the page'] : [];
    const isSeen = (e) => e.getClientRects().length && getComputedStyle(e).visibility === 'visible';
    for (const e of document.querySelectorAll('#watch *')) {
        if (!isSeen(e) || e.childElementCount || !e.textContent.trim()) continue;
        const { left, right } = e.getBoundingClientRect();
        if (right > innerWidth + 1 || left < -1) cut.push(e.textContent);
    }
    for (const box of document.querySelectorAll('#watch :is(.legend, .tools, h3):not(.where-room *)')) {
        const { right, bottom } = box.closest('.panel, .legend, .tools').getBoundingClientRect();
        for (const e of box.children) {
            const at = e.getBoundingClientRect();
            // what wraps below a box that hides it is left out whole
            if (at.top >= bottom && getComputedStyle(box).overflowY === 'hidden') continue;
            if (isSeen(e) && (at.right > right + 1 || at.bottom > bottom + 1)) cut.push(e.textContent);
        }
    }
    return cut; }"""  # noqa: E501

# Of a request's queries in the pass on screen: how strong each of its keys is, from the tint to
# the full colour, as the pixels say; -1 for the grey of what is not on the scale.
STRENGTHS = """(letter) => {
    const { mask: { drawn: { at, pass }, surface: { canvas, d, g } }, palette } = inflight;
    const { data } = g.getImageData(0, 0, canvas.width, canvas.height);
    const item = pass.items.find((i) => i.request.letter === letter);
    const brush = document.createElement('canvas').getContext('2d');
    const rgb = (colour) => { brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
        return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3); };
    const { solid, tint } = palette.ofItem(item), [full, none, grey] = [solid, tint, palette.soft].map(rgb);
    const by = [0, 1, 2].sort((a, b) => Math.abs(full[b] - none[b]) - Math.abs(full[a] - none[a]))[0];
    const middle = (from, end) => Math.floor((from + end) / 2 * d);
    return Array.from({ length: item.length }, (_, row) => Array.from({ length: item.start + row + 1 }, (_, key) => {
        const [q, k] = [item.q0 + row, item.k0 + key];
        const o = (middle(at.y(q), at.y(q + 1)) * canvas.width + middle(at.x(k), at.x(k + 1))) * 4;
        if (grey.every((c, n) => Math.abs(c - data[o + n]) < 3)) return -1;
        return (data[o + by] - none[by]) / (full[by] - none[by]);
    })); }"""  # noqa: E501


def weighed(page: Page, layer: int) -> None:
    page.locator("select[aria-label='Layer of the weights']").select_option(str(layer))
    settled(page, "document.querySelector('.panel.mask.weighed')")


@pytest.mark.parametrize("dark", [False, True])
def test_weights_can_be_read_on_the_first_screen(visit, real_url, dark):
    """Layer 24 attends to the first token almost alone; what is drawn is what was measured."""
    page = visit(
        f"{real_url}/",
        hash="detail=full",
        size=(1280, 800),
        color_scheme="dark" if dark else "light",
    )
    seek(page, 0)
    page.locator(".panel.mask .tools button", has_text="Weights").click()
    weighed(page, 24)
    for _ in range(8):  # past the last head: the first
        page.get_by_role("button", name="head", exact=False).click()
    settled(page, "inflight.weights.head === 8 && document.querySelector('.panel.mask.weighed')")
    measured = page.evaluate("[...inflight.mask.drawn.weights.get('r0').weights]")
    assert np.mean([row[0] for row in measured[5:]]) > 0.85

    drawn = page.evaluate(STRENGTHS, "A")
    # the line below the request lies on its last row
    for row, weights in zip(drawn[1:-1], measured[1:-1], strict=True):
        most = max(weights[1:])
        expected = [(w / most) ** 0.5 for w in weights[1 : len(row)]]
        assert row[0] == -1 and row[1:] == pytest.approx(expected, abs=0.03)
    expect(page.locator(".legend-first")).to_be_visible()
    said = page.evaluate("inflight.mask.explain(7, 0).lines.flat().join('')")
    assert f"Weight {measured[7][0]} in layer 24" in said and "not on the scale" in said
    assert "not on the scale" not in page.evaluate(
        "inflight.mask.explain(7, 1).lines.flat().join('')"
    )
    assert page.evaluate(CUT) == [] and serious(page) == []

    page.get_by_role("button", name="without the first token").click()
    settled(page, "!document.querySelector('.panel.mask.without-first')")
    with_it = page.evaluate(STRENGTHS, "A")
    assert all(row[0] == pytest.approx(1, abs=0.03) for row in with_it[5:-1])
    pale, seen = (
        np.mean([strength > 0.5 for row in rows[5:] for strength in row[1:]])
        for rows in (with_it, drawn)
    )
    assert pale < 0.05 and seen > 0.15
    expect(page.locator(".legend-first")).to_be_hidden()


def test_a_prompt_of_a_thousand_tokens_fits_every_screen(visit, real_url):
    page = visit(f"{real_url}/", hash="detail=full", size=(1280, 800))
    ran(
        page,
        [("user", f"{SHIPS} What did the ships carry?")],
        [("system", "Be brief."), ("user", "What is the capital of France?")],
    )
    assert 1_000 < page.evaluate("inflight.run.promptLength(inflight.run.requests[0])") < 1_400
    assert page.evaluate("inflight.run.header.model.vocab_size") == 49_152
    weights = page.locator(".panel.mask .tools button", has_text="Weights")
    weights.click()
    for size, views in (((1280, 800), 0), ((390, 844), 4)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        seek(page, 3)  # a chunk of the prompt, with more weights than a page can hold
        settled(page, "inflight.weights.error")
        expect(page.locator(".weights-error")).to_contain_text("the page shows at most 60,000.")
        assert page.evaluate(CUT) == []
        seek(page, page.evaluate("inflight.run.length - 3"))
        settled(page, "document.querySelector('.panel.mask.weighed')")
        assert page.evaluate(CUT) == []
        for n in range(views):
            page.locator(".view-tabs button").nth(n).click()
            settled(page)
            assert page.evaluate(CUT) == []


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_ones_own_question_joins_five_under_the_openings_last_picture(visit, real_url, size):
    page = visit(f"{real_url}/", hash="opening=20", size=size, detail=None, opening=True)
    page.get_by_label("Ask your own question").fill("What is the capital of France?")
    page.keyboard.press("Enter")
    line = page.locator(".own-line")
    settled(page, "document.querySelector('.own-line').textContent.startsWith('Your question is')")
    settled(page, "inflight.run.complete && inflight.run.header.source === 'live'")
    asked = page.evaluate("inflight.run.requests.map((r) => inflight.run.said(r).join('').trim())")
    assert asked == [
        *(r.messages[0]["content"] for r in PRESETS["six-questions"].workload.requests[:-1]),
        "What is the capital of France?",
    ]
    waits, enters = page.evaluate("inflight.run.requests.at(-1).waits[0].slice(0, 2)")
    seek(page, waits)
    assert line.inner_text() == "F is you: you wait for a lane. Ahead of you: D E"
    expect(page.locator(".waiter", has_text="you wait")).to_have_count(1)
    seek(page, enters)
    assert line.inner_text() == "F is you: the next free lane is yours."
    seek(page, enters + 1)
    left = page.evaluate(
        "(i) => { const at = inflight.run.frame(i).lanes.find((l) => l.request.letter === 'F');"
        " return inflight.run.frame(i - 1).lanes[at.lane].request.letter; }",
        enters + 1,
    )
    assert re.fullmatch(
        rf"F is you: you waited [\d.]+\sm?s, until {left} was done\..*", line.inner_text()
    )
    seek(page, page.evaluate("inflight.run.requests.at(-1).finished.step"))
    assert " You had your answer after " in line.inner_text()
    first = page.locator(".panel.text .said").first
    expect(first).to_be_visible()
    expect(first).to_contain_text("The capital of France is Paris.")
    page.evaluate("inflight.open(inflight.options.catalogue[0])")
    settled(page, "inflight.entry.name === 'six-questions'")
    expect(line).to_be_hidden()


def test_a_reload_in_the_middle_of_ones_own_question_still_knows_it(visit, real_url):
    page = visit(f"{real_url}/", hash="opening=20", detail=None, opening=True)
    page.get_by_label("Ask your own question").fill("Tell me a long story about a ship.")
    page.keyboard.press("Enter")
    settled(page, "inflight.running && inflight.run.header.source === 'live'")
    page.reload()
    settled(page, "inflight.run && inflight.run.complete && inflight.run.header.source === 'live'")
    expect(page.locator(".own-line")).to_contain_text("F is you")
    seek(page, page.evaluate("inflight.run.requests.at(-1).finished.step"))
    expect(page.locator(".own-line")).to_contain_text("cut at its limit, 160 tokens, after")
    assert page.evaluate("inflight.run.requests.map((r) => r.by)") == [""] * 5 + ["you"]
