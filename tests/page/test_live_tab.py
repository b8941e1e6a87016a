"""The Live tab: real browsers on one real engine. Everybody sees the same steps; what one does, the others see; scrubbing is one's own."""

from __future__ import annotations

from importlib.resources import files

import httpx
import pytest
from playwright.sync_api import Page

from core.trace.trace import Trace
from worlds.live_page import TOKEN, control, live_server, live_url  # noqa: F401

STEPS = "inflightLive.batch.run.events.map(e => e.step)"


def opened(visit, url: str, hash: str = "part=live", **context: object) -> Page:
    page = visit(f"{url}/", hash=hash, drawn=False, **context)
    page.set_default_timeout(60_000)
    page.wait_for_function("() => window.inflightLive && inflightLive.before && inflightLive.batch.state.class")
    return page


def ask(page: Page, prompt: str, tokens: int = 12, name: str = "") -> str:
    """The id of the request that the page's form adds."""
    before = page.locator(".own-row").count()
    page.fill("[name=nickname]", name)
    page.fill("[name=tokens]", str(tokens))
    page.fill("[name=prompt]", prompt)
    page.click(".ask-button")
    page.wait_for_function("(n) => document.querySelectorAll('.own-row').length > n", arg=before)
    return page.evaluate("inflightLive.mine.requests[0].id")


HAVE = (
    "(inflightLive.batch.run && inflightLive.batch.first === inflightLive.batch.chapters[0] ? inflightLive.batch.run.length : 0)"
)


def sees(page: Page, steps: int) -> None:
    """Wait until the page has so many steps of the present run."""
    page.wait_for_function(f"(n) => {HAVE} >= n", arg=steps)


def stepped(url: str, *pages: Page, steps: int) -> None:
    """Let the engine take single steps until the pages have so many."""
    have = pages[0].evaluate(HAVE)
    control(url, steps=steps - have)
    for page in pages:
        sees(page, steps)


def test_two_browsers_see_one_batch(live_url, visit):  # noqa: F811
    """The same steps, letters and colours; one's own request is marked for oneself alone; scrubbing back moves nobody else."""
    ada, bo = opened(visit, live_url), opened(visit, live_url, size="phone")
    assert "Nobody has asked yet" in ada.inner_text(".live-says")
    mine = ask(ada, "O Romeo, ", 40, "Ada")
    theirs = ask(bo, "To be", 40)
    stepped(live_url, ada, bo, steps=5)
    told = "inflightLive.batch.run.requests.map(r => [r.id, r.hue, r.by])"
    assert ada.evaluate(STEPS) == bo.evaluate(STEPS) == [0, 1, 2, 3, 4]
    assert ada.evaluate(told) == bo.evaluate(told) and [r[0] for r in ada.evaluate(told)] == [mine, theirs]
    letters = "inflight.run.requests.map(r => r.letter)"
    assert (ada.evaluate(letters), bo.evaluate(letters)) == (["A★", "B"], ["A", "B★"])
    assert "yours:" in ada.inner_text(".own-head") and "in lane 0" in ada.inner_text(".own-state")
    assert "Ada" in bo.inner_text(".panel.text")
    ada.evaluate("document.activeElement.blur()")
    ada.keyboard.press("Home")
    ada.wait_for_function("() => inflight.drawn === 0")
    assert "4 behind" in ada.inner_text(".live-badge")
    stepped(live_url, ada, bo, steps=9)
    ada.wait_for_function("() => document.querySelector('.live-badge').textContent.startsWith('8 behind')")
    bo.wait_for_function("() => inflight.drawn === 8")
    assert ada.evaluate("inflight.index") == 0
    ada.click(".live-badge")
    ada.wait_for_function("() => inflight.drawn === 8 && inflight.following")
    bo.click(".own-cancel")  # on the phone: its lane is free in the next step
    stepped(live_url, ada, bo, steps=10)
    ada.wait_for_function("() => inflight.drawn === 9")
    assert ada.evaluate("inflight.frame.lanes.filter(l => l.request).map(l => l.request.id)") == [mine]
    bo.wait_for_function("() => document.querySelector('.own-state').textContent.startsWith('cancelled')")
    control(live_url, steps_per_s=None)
    ada.wait_for_function("() => document.querySelector('.own-state').textContent.startsWith('finished')")
    ada.wait_for_function("(id) => inflightLive.batch.run.request(id).finished", arg=mine)
    pieces = ada.evaluate("(id) => inflightLive.batch.run.texts.output[id].join('')", mine)
    assert ada.evaluate("inflightLive.mine.requests[0].text") == pieces != ""
    solo = httpx.post(  # the same request, alone
        f"{live_url}/serve/generate",
        json={
            "prompt": "O Romeo, ",
            "max_tokens": 40,
            **ada.evaluate("({seed: inflightLive.mine.requests[0].seed, temperature: 0.8})"),
        },
        trust_env=False,
        timeout=60,
    )
    assert solo.json()["text"] == pieces
    ada.click(".live nav.tabs >> text=Watch")  # and Watch is as it was
    ada.wait_for_function("() => inflight.run.header.source === 'recorded' && inflight.drawn >= 0 && !inflight.running")
    ada.click("#watch nav.tabs >> text=Live")
    ada.wait_for_function("() => inflight.run === inflightLive.batch.run")


@pytest.mark.slow
def test_a_reload_finds_ones_own_request_again(live_url, visit):  # noqa: F811
    page = opened(visit, live_url)
    mine = ask(page, "O Romeo, ", 30)
    stepped(live_url, page, steps=4)
    page.reload()
    page.wait_for_function("() => window.inflightLive && inflightLive.batch.run && inflight.run === inflightLive.batch.run")
    page.wait_for_function("() => document.querySelector('.own-state')?.textContent === 'in lane 0'")
    assert page.evaluate("inflight.run.requests.map(r => [r.id, r.letter])") == [[mine, "A★"]]
    control(live_url, steps_per_s=None)
    page.wait_for_function("() => document.querySelector('.own-state').textContent.startsWith('finished, first token after')")
    page.wait_for_function("(id) => inflightLive.batch.run.request(id).finished", arg=mine)
    assert page.evaluate("(id) => inflightLive.batch.run.texts.output[id].join('') === inflightLive.mine.requests[0].text", mine)
    with page.expect_download() as saved:
        page.click(".save-button")
    trace = Trace.load(saved.value.path())
    assert trace.complete and trace.text(mine).endswith(page.evaluate("inflightLive.mine.requests[0].text"))
    page.click(".live nav.tabs >> text=Watch")
    page.wait_for_function("() => inflight.run.header.source === 'recorded' && inflight.drawn >= 0")
    page.click("#watch .export-button")
    with page.expect_file_chooser() as chooser:
        page.click("text=Open a trace")
    chooser.value.set_files(saved.value.path())
    page.wait_for_function("() => inflight.run.header.source === 'uploaded'")
    assert page.evaluate("inflight.run.length") == len(trace.events)


def test_the_teacher_sets_for_everybody_and_what_is_hidden_is_not_sent(live_url, visit):  # noqa: F811
    """By the printed link; the limits change at a barrier; hidden texts and names are in nothing that a viewer is sent."""
    teacher, pupil = opened(visit, live_url, hash=f"teacher={TOKEN}"), opened(visit, live_url)
    teacher.wait_for_selector(".teacher:not([hidden])")
    assert TOKEN not in teacher.url and pupil.locator(".teacher").is_hidden()
    ids = [ask(pupil, prompt, 8, "Wilhelmina") for prompt in ("O Romeo, ", "To be", "What news", "The king is dead")]
    stepped(live_url, teacher, pupil, steps=2)
    teacher.select_option(".live [name=policy]", "static")
    teacher.fill(".live [name=max_num_seqs]", "2")
    teacher.click(".limits .button")
    for page in (teacher, pupil):
        page.wait_for_function(
            "() => document.querySelector('.live-says').textContent.startsWith('At the barrier: 3 still running. Then comes static')"
        )
    pupil.evaluate("document.activeElement.blur()")
    control(live_url, steps=20)
    for page in (teacher, pupil):
        page.wait_for_function(
            "() => inflight.run.header.policy === 'static' && inflight.run.numLanes === 2 && inflight.drawn >= 0"
        )
        assert "static · 2 lanes" in page.inner_text(".now")
    pupil.wait_for_function("(id) => inflight.run.request(id)", arg=ids[3])  # who waited came along
    assert teacher.evaluate("(id) => inflight.run.request(id).by", ids[3]) == "Wilhelmina"
    teacher.check("[name=hide_texts]")
    teacher.check("[name=hide_nicknames]")
    pupil.wait_for_function("() => document.querySelector('.live-says').textContent.includes('hides texts')")
    late = opened(visit, live_url)
    ask(late, "Zounds and gadzooks", 12, "Ethelred")
    control(live_url, steps=3)
    late.wait_for_function("() => inflight.run === inflightLive.batch.run && inflight.drawn >= 0")
    sent = late.evaluate("JSON.stringify(inflightLive.batch.chapters)")
    assert "•" in sent and not any(text in sent for text in ("Wilhelmina", "Ethelred", "king is dead", '"Z"', '"k"'))
    with httpx.stream("GET", f"{live_url}/inflight/live/steps", trust_env=False) as raw:
        first = next(raw.iter_raw()).decode()
    assert "Wilhelmina" not in first and '"T","h","e"' not in first
    control(live_url, steps_per_s=None)
    late.wait_for_function("() => inflightLive.mine.requests[0].ended")
    assert (
        late.inner_text(".own-words").startswith("Zounds and gadzooks")
        and late.evaluate("inflightLive.mine.requests[0].text.length") > 4
    )
    teacher.uncheck("[name=hide_nicknames]")
    teacher.uncheck("[name=hide_texts]")
    late.wait_for_function(
        "() => Object.values(inflightLive.batch.run.texts.prompt).some(p => p.join('') === 'Zounds and gadzooks')"
    )


def test_what_the_server_refuses_is_said_beside_the_form(live_url, visit):  # noqa: F811
    page = opened(visit, live_url)
    page.errors = _Without("status of")
    control(live_url, accepting=False)
    page.fill("[name=prompt]", "O Romeo")
    page.click(".ask-button")
    page.wait_for_function(
        "() => document.querySelector('.ask-error').textContent === 'No requests are taken just now. Try again in 5 s.'"
    )
    control(live_url, accepting=True)
    page.fill("[name=nickname]", "<img src=x>")
    page.click(".ask-button")
    page.wait_for_function("() => document.querySelector('.ask-error').textContent.startsWith('A nickname has at most')")
    assert page.evaluate("document.querySelectorAll('.live img, #watch img').length") == 0


def test_hostile_prompts_and_texts_are_text(live_url, visit):  # noqa: F811
    page = opened(visit, live_url, size="phone")
    prompt = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\u202e"
    ask(page, prompt, 6, "O'Neil")
    control(live_url, steps_per_s=None)
    page.wait_for_function("() => inflightLive.mine.requests[0].ended && inflight.drawn >= 0")
    assert page.evaluate("window.hacked") is None and page.inner_text(".own-words .prompt") == prompt
    assert page.evaluate("document.querySelectorAll('#watch .stage img, .live img').length") == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", ["desk", "phone"])
def test_axe_finds_nothing_serious_and_fingers_hit(live_url, visit, size):  # noqa: F811
    """With the teacher's panel open, another policy simulated beside, and a request of one's own."""
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    control(live_url, shadow="static")
    for scheme in ("light", "dark"):
        page = opened(visit, live_url, hash=f"teacher={TOKEN}&theme={scheme}", size=size, color_scheme=scheme)
        page.wait_for_selector(".teacher:not([hidden])")
        ask(page, "O Romeo", 8, "Ada")
        control(live_url, steps=24)
        page.wait_for_function("() => inflight.drawn >= 0 && document.querySelector('.shadow td').isConnected")
        page.evaluate(axe + ";0")
        found = page.evaluate(
            "axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]))"
        )
        assert found == [], scheme
        if size == "desk":  # what the teacher shows is on the screen beside what sets it
            bottom, top = (
                f"document.querySelector('.live {what}').getBoundingClientRect()" for what in (".shadow table", ".ask")
            )
            assert page.evaluate(f"{bottom}.bottom <= {top}.top")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if size == "phone":
            small = "[...document.querySelectorAll('.live button, .live input:not([type=checkbox]), .live select, .live textarea')].filter(e => e.getClientRects().length && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 90))"
            assert page.evaluate(small) == []


class _Without(list):
    """The console's errors but for those that are meant to be."""

    def __init__(self, meant: str) -> None:
        super().__init__()
        self._meant = meant

    def append(self, text: str) -> None:
        if self._meant not in text:
            super().append(text)
