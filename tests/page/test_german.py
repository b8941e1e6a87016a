"""The German page in a real browser: on every part of it, and at every stop of Learn, nothing that
is shown, read aloud, hovered over or drawn is English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from core.config import POLICIES
from visualizer.documents.comparison import RECORDED, document, load, recorded
from visualizer.documents.opening import opening
from visualizer.lessons.document import recorded as recorded_runs
from visualizer.lessons.sheets import KINDS, plan, sheet
from visualizer.lessons.texts import FOLDER, texts
from visualizer.page.bundle import page_html
from visualizer.page.one_file import lesson_html
from visualizer.page.tabs import packed_plotly, part, tab_script
from visualizer.words.language import catalogue
from worlds.browser import chromium, settled, visit  # noqa: F401
from worlds.learn_tab import drawn, learn, world  # noqa: F401
from worlds.live_page import TOKEN, control

# All that is said: texts, the words of attributes, what canvases drew since the last call; not what
# a run holds (prompts, texts, tokens).
SAID = """() => {
    const ink = CanvasRenderingContext2D.prototype, fill = ink.fillText;
    const drawn = window.drawnTexts || [];
    if (!window.drawnTexts) ink.fillText = function (text, ...at) { window.drawnTexts.push(text); return fill.call(this, text, ...at); };
    window.drawnTexts = [];
    const held = '.person-words, .person-name, .house-prompts bdi, .racer-name, .who, .headline .name, .saying, .own-words, .followed-file, .source, .texts, .policy-chip, .run-facts, dialog bdi, .live, .paint, code, style, script, .vllm, .names td, .row .table-holder td:nth-child(5)';
    const said = new Set(drawn), named = ['title', 'aria-label', 'placeholder', 'alt', 'aria-valuetext'];
    const words = (text) => /\\p{L}/u.test(text) && !said.has(text);
    for (const root of document.querySelectorAll('#watch .inflight, .inflight-learn, .inflight-compare, .inflight-live')) if (root.checkVisibility()) {
        const shown = (el) => !el.closest(held) && el.checkVisibility({ visibilityProperty: true });
        const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) if (words(walker.currentNode.data) && shown(walker.currentNode.parentElement)) said.add(walker.currentNode.data);
        for (const name of named) for (const el of root.querySelectorAll(`[${name}]`))
            if (words(el.getAttribute(name)) && shown(el)) said.add(el.getAttribute(name));
    }
    return [...said]; }"""  # noqa: E501


# What German usage takes from English, and what both languages write alike. Whatever else our
# English says must be said otherwise in German.
FIELD_TERMS = set(
    re.findall(
        r"\w+",
        """chat face hub hugging tensor tokenizer adapter attention client batch batches batching goodput block bot bots budget cache caches caching check chunked connector continuous cpu cuda decode decoder decodes drift encoder engine engines
        float bf gpt gguf gpus graph host http inflight itl kib kv log mib ms pad pads player policies policy prefill prefix prompt prompts ragged rank ranks ring scheduler tab tok token
        tokens tpot ttft vllm enter esc escape exit export html ids json link llm mb png seed slos slot static thread threads top trace
        apple code cpus csv gpu logit logits lora max median multimodal numba pipeline pool pooling python qr romeo sandbox server transformers azure browser burstgpt core mini mooncake nano nanogpt perfetto plotly poisson qwen llama sglang priority pyodide sharegpt simd smollm story tensorrt video webassembly""",  # noqa: E501
    )
)
ALIKE = set(
    re.findall(
        r"\w+",
        "also an blocks budgets downloads fast finger hand id in lies live min minus moment name"
        " phase plan per position rest simulation so stand still text was will zoo",
    )
)
NOT_OURS = re.compile(
    r"""(?x) \{[^{}]*\} | \|[^]|]*\] | `[^`]*` | „[^“]*“ | “[^”]*” | \([a-z ]+\) | --[\w-]+ | \b\w+(?:\.[A-Za-z]\w*)+ | \b\w+_\w+\b
    | make\ run | time\ per\ output\ token | time\ to\ first\ token | inter-token\ latency | next\ token"""  # noqa: E501
)


def words(said: list[str]) -> set[str]:
    """The words of some texts; quotations, code, facts to be filled in and a term's English in
    brackets are no words of ours.
    """
    ours = (NOT_OURS.sub(" ", text) for text in said)
    return {word.lower() for text in ours for word in re.findall(r"[^\W\d_]{2,}", text)}


def strings(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for value in (
            [v for k, v in data.items() if k != "vllm"] if isinstance(data, dict) else data
        ):
            yield from strings(value)


def lesson_words(language: str) -> set[str]:
    return words(
        [
            s
            for path in (FOLDER / language).glob("*.toml")
            for s in strings(texts(language, path.stem))
        ]
    )


def forms(template: str) -> str:
    """A template with its plural forms one after the other."""
    return re.sub(r"\[(?:=# )?([^\[\]]*)\]", lambda found: found[1].replace("|", " "), template)


GERMAN = lesson_words("de") | words([forms(german) for german in catalogue("de").values()])
ALL_ENGLISH = lesson_words("en") | words([forms(english) for english in catalogue("de")])
# a policy is called by its name in any language
ENGLISH = ALL_ENGLISH - FIELD_TERMS - ALIKE - words(list(POLICIES))


def test_german_shares_with_english_what_is_stated():
    assert ALL_ENGLISH & GERMAN == FIELD_TERMS | ALIKE


def english(said: list[str], held: set[str]) -> list[str]:
    """Texts with a word that our English uses and our German does not. held: words of the run,
    which may be anything.
    """
    return sorted({text for text in said if words([text]) & ENGLISH - held})


def pieces(page: Page) -> set[str]:
    """Words of the run's tokens, and of its texts up to any of them."""
    return words(
        page.evaluate(
            "Object.values(inflight.run.texts).flatMap((texts) => {"
            " const all = Object.values(texts).flat();"
            " return all.flatMap((piece, n) => [piece, all.slice(0, n + 1).join('')]);"
            " }).filter(Boolean)"
        )
    )


def at_stop(page: Page, views: Sequence[str]) -> list[str]:
    """English at the stop on screen: as it is, and answered; where views are named, also as tables,
    over time, with the keyboard in each of them, with a request selected.
    """

    def shown() -> list[str]:
        settled(page)
        return page.evaluate(SAID)

    def after(script: str, argument: object = None) -> list[str]:
        page.evaluate(script, argument)
        return shown()

    shown()  # drawn so far: of the stop before, perhaps
    said = after("inflight.redraw()")
    said += after(
        "document.querySelectorAll('.stop-ask .option').forEach(b => b.click());"
        " document.querySelector('.show-button')?.click()"
    )
    settled(
        page,
        "!document.querySelector('.stop-ask .show-button') ||"
        " !document.querySelector('.answer[hidden]')",
    )
    if not views:
        return english(said, pieces(page))
    said += after("inflight.tables.toggle(true)") + after("inflight.tables.toggle(false)")
    said += after("inflight.setClock(true)") + after("inflight.setClock(false)")
    said += after("inflight.narration.open(true)") + after("inflight.narration.open(false)")
    for view in views:
        page.keyboard.press("Shift")  # the keyboard is in use
        said += after(
            "(view) =>"
            " inflight[view].surface.canvas.parentElement.querySelector('.cursor').focus()",
            view,
        )
        for key in ("ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
            said += shown()
        page.evaluate("document.activeElement.blur()")
    said += after("inflight.pin(inflight.run.requests[0])") + after("inflight.clear()")
    return english(said, pieces(page))


def walk(learn, world, names: set[str] | None = None, **how) -> None:  # noqa: F811
    page = learn("lang=de", **how)
    settled(page, "inflightLearn.language === 'de'")
    # by an answer
    quoted = words(list(strings(json.loads(world[2]["runs/one-request.json"])["texts"])))
    assert english(page.evaluate(SAID), quoted) == []
    made = json.loads(world[2]["learn/de.json"])
    for lesson in (*made["lessons"], made["questions"]):
        for index, stop in enumerate(
            lesson["stops"] if names is None or lesson["name"] in names else ()
        ):
            page.evaluate(
                "(at) => { location.hash = `part=learn&lesson=${at[0]}&stop=${at[1]}&lang=de`; }",
                [lesson["name"], stop["name"]],
            )
            drawn(page, lesson["name"], stop["name"])
            # their sentences are alike at every stop
            views = () if index else ("row", "mask", "lengths", "blocks")
            assert at_stop(page, views) == [], f"{lesson['name']}/{stop['name']}"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    # a canvas may have drawn tokens meanwhile
    assert english(page.evaluate(SAID), quoted | pieces(page)) == []
    assert page.evaluate("[...inflight.speech.missingKeys]") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "names"), [("desk", None), ("phone", {"one-token", "paged-kv"})], ids=["desk", "phone"]
)
def test_every_stop_is_german_throughout(learn, world, size, names):  # noqa: F811
    """On a desktop; of a phone, whose layout holds the same words, two lessons."""
    walk(learn, world, names, size=size)


def test_watch_is_german_where_a_lesson_leads_to_it(learn):  # noqa: F811
    page = learn("lang=de")
    settled(page, "inflightLearn.language === 'de'")
    page.evaluate("document.querySelector('.inflight-learn .tabs button').click()")
    settled(
        page,
        "document.documentElement.dataset.part === 'watch' && inflight.speech.opened?.name ==="
        " 'de'",
    )
    said = page.evaluate(SAID)
    for button in (".more-button", ".export-button"):
        page.click(f"#watch {button}")
        said += page.evaluate(SAID)
        page.keyboard.press("Escape")
    for button in (".runs-button", ".source"):
        page.click(f"#watch .top {button}")
        said += page.evaluate(SAID)
        page.keyboard.press("Escape")
    page.evaluate("document.querySelector('#watch .drawer').hidden = false")
    said += page.evaluate(SAID)
    assert english(said, pieces(page)) == []


# What a pointer finds on every canvas, in a sample of steps: each kind of words goes through the
# tooltip once.
FOUND = """() => {
    const { run } = inflight, every = Math.max(1, Math.ceil(run.length / 8)), said = window.saidSoFar ??= new Set();
    for (let i = 0; i < run.length; i += every) {
        inflight.seek(i);
        inflight.draw();
        for (const view of [inflight.row, inflight.mask, inflight.lengths, inflight.blocks, inflight.lanes, inflight.strip]) {
            const { w, h } = view.surface;
            for (let x = 1; x < w; x += w / 40) for (let y = 1; y < h; y += h / 16) {
                const lines = view.hit(x, y)?.lines || [];
                const kind = lines.map((line) => line.map((span) => (typeof span === 'string' ? span.replace(/\\d+/g, '#') : '')).join('')).join('/');
                if (said.has(kind)) continue;
                said.add(kind);
                inflight.tooltip.show(lines, 9, 9);
            }
        }
    }
    return said.size; }"""  # noqa: E501


@pytest.mark.slow
def test_whatever_a_pointer_finds_is_told_in_german(visit, world):  # noqa: F811
    options, parts, files = world
    page = visit(
        files={**files, "": page_html(options, parts)}, hash="run=short-and-long&step=9&lang=de"
    )
    settled(page, "inflight.speech.opened?.name === 'de' && inflight.frame")
    names = page.evaluate("inflight.options.catalogue.map((entry) => entry.name)")
    assert len(names) > 10
    for name in names:
        page.evaluate(
            "async (name) => { await inflight.open(inflight.options.catalogue.find((entry) =>"
            " entry.name === name)); inflight.turnDetail?.('full'); }",
            name,
        )
        settled(page, "(name) => inflight.entry?.name === name && inflight.drawn >= 0", name)
        assert page.evaluate(FOUND) > 5, name
    assert page.evaluate("[...inflight.speech.missingKeys]") == []


def test_the_run_of_the_opening_is_told_in_german_although_the_words_come_later(visit, world):  # noqa: F811
    options, parts, files = world
    files = {**files, "opening.json": json.dumps(opening())}
    page = visit(
        files={**files, "": page_html({**options, "opening": {"url": "opening.json"}}, parts)},
        hash="opening=20&lang=de",
        opening=True,
        drawn=False,
    )
    settled(page, "inflight.opening.on && inflight.speech.name === 'de'")
    page.click(".opening-hood")
    expect(page.locator("#watch .sentence").first).to_contain_text("schreiben")


def test_a_link_speaks_german_on_watch_at_once_and_the_menu_changes_the_language(visit, world):  # noqa: F811
    options, parts, files = world
    script = f"window.saidBefore = ({SAID})();\n{files['learn/page.js']}"
    page = visit(
        files={**files, "learn/page.js": script, "": page_html(options, parts)},
        size=(360, 740),
        hash="run=short-and-long&step=16&zoom=2,9,0,20&lang=de",
    )
    settled(page, "inflight.speech.opened?.name === 'de' && inflight.frame")
    assert page.evaluate("[inflight.frame.event.step, inflight.mask.zoom.view.join()]") == [
        16,
        "2,9,0,20",
    ]
    assert page.evaluate("saidBefore") == [], "nothing is said before German is there"
    assert english(page.evaluate(SAID), pieces(page)) == []
    right = (
        "Math.max(...[...document.querySelectorAll('#watch .top button, .inflight .top"
        " button')].map((b) => b.getBoundingClientRect().right))"
    )
    assert page.evaluate(right) <= 360
    settled(page, "location.hash.includes('lang=de') && location.hash.includes('step=16')")
    page.click(".more-button")
    page.click("[role=menuitem] >> text=Englisch")
    settled(
        page,
        "inflight.speech.name === 'en' && inflight.frame?.caption.say.join(' ').includes('prompt"
        " tokens')",
    )
    settled(page, "!location.hash.includes('lang')")
    page.evaluate("location.hash += '&lang=de'")
    settled(page, "inflight.speech.name === 'de' && inflight.speech.opened?.name === 'de'")


def heard(page: Page, act: str = "") -> list[str]:
    """What is said once an act is done and drawn."""
    if act:
        page.evaluate(act)
    page.wait_for_function(
        "![window.inflight, window.inflightCompare?.race, window.inflightLive].some((part) =>"
        " part?.drawsSoon)"
    )
    return page.evaluate(SAID)


def compare_in_german(visit, world, name: str, size: str) -> None:  # noqa: F811
    options, parts, files = world
    made = document(load(RECORDED / name))
    tabs = [*options["tabs"], {"name": "compare", "title": "Compare"}]
    listed = [
        {
            "name": e["name"],
            "title": e["title"],
            "shows": e["shows"],
            "group": e["group"],
            "url": "doc.json",
        }
        for e in recorded()
    ]
    listed.sort(key=lambda entry: entry["name"] != name)
    parts = {
        "learn": {**parts["learn"], "options": {**parts["learn"]["options"], "tabs": tabs}},
        "compare": part(
            "compare",
            "compare.js",
            {"server": False, "comparisons": listed, "plotly": "plotly.js.gz", "tabs": tabs},
        ),
    }
    files = {
        **files,
        "compare.js": tab_script("compare"),
        "doc.json": json.dumps(made),
        "plotly.js.gz": packed_plotly(),
    }
    files[""] = page_html({**options, "tabs": tabs}, parts)
    page = visit(files=files, size=size, hash="part=compare&lang=de", drawn=False)
    page.wait_for_function(
        "window.inflightCompare?.doc && inflightCompare.speech.name === 'de' &&"
        " inflightCompare.race.lastMs !== undefined"
    )
    held = words([*made["names"], *strings([run["texts"] for run in made["runs"].values()])])
    said = heard(page, "inflightCompare.race.redraw()") + heard(
        page, "inflightCompare.race.seek(Infinity)"
    )
    said += heard(page, "inflightCompare.race.setClock(false)") + heard(
        page, "inflightCompare.race.showTable(true)"
    )
    said += heard(
        page, "inflightCompare.race.showTable(false); inflightCompare.equivalence.leak.click()"
    )
    for chart in page.locator(".chart .plot").all():
        chart.scroll_into_view_if_needed()
    expect(page.locator(".chart .plot.waiting")).to_have_count(0)
    said += heard(page, "inflightCompare.present(true)") + heard(
        page, "inflightCompare.present(false)"
    )
    assert (
        english(said, held) == [] and page.evaluate("[...inflightCompare.speech.missingKeys]") == []
    )
    expect(page.locator(".compare .headline")).to_have_text(
        made["translations"]["de"]["says"]["headline"]
    )
    page.wait_for_function(
        "location.hash.includes('lang=de') && location.hash.includes('part=compare')"
    )
    page.evaluate("inflightLearn.speak('en')")
    expect(page.locator(".compare .headline")).to_have_text(made["says"]["headline"])


@pytest.mark.slow
def test_compare_is_german(visit, world):  # noqa: F811
    compare_in_german(visit, world, "gpt2-six", "desk")


@pytest.mark.slow
def test_live_and_what_is_measured_here_are_german(live_url, visit):  # noqa: F811
    """Of a batch as it runs: its card, its steps as they come, the teacher's panel."""
    page = visit(f"{live_url}/", hash=f"part=live&lang=de&teacher={quote(TOKEN)}", drawn=False)
    page.set_default_timeout(60_000)
    page.wait_for_function(
        "window.inflightLive?.batch.state.class && inflightLive.teacher.isOn &&"
        " inflightLive.speech.name === 'de'"
    )
    page.fill("[name=prompt]", "O Romeo, ")
    page.click(".ask-button")
    expect(page.locator(".own-row")).to_have_count(1)
    control(live_url, steps=3)
    page.wait_for_function("inflightLive.batch.run?.length >= 3 && inflight.drawn === 2")
    said = heard(page, "inflight.narration.open(true)")
    assert page.evaluate("inflight.sentence()").startswith("A★ schreibt ein Token")
    page.fill(".limits [name=max_num_seqs]", "9")
    page.evaluate("inflightLearn.speak('en').then(() => inflightLearn.speak('de'))")
    expect(page.locator(".limits [name=max_num_seqs]")).to_have_value("3")  # as it is set
    page.click(".qr-button")
    expect(page.locator(".qr-card code")).to_contain_text("--host 0.0.0.0")
    said += heard(page)
    page.keyboard.press("Escape")
    control(live_url, steps_per_s=None)
    expect(page.locator(".own-state")).to_contain_text("Fertig")
    said += heard(page)
    ids = page.evaluate("inflightLive.batch.run.requests.map(request => request.id)")
    assert (
        english(said, pieces(page) | words([live_url, "localhost", *ids])) == []
        and page.evaluate("[...inflightLive.speech.missingKeys]") == []
    )


def test_english_would_be_found(learn):  # noqa: F811
    page = learn("lang=de&lesson=one-pass&stop=mixed")
    drawn(page, "one-pass", "mixed")
    page.evaluate(
        "document.querySelector('.panel.kv h3').title = 'Positions in each running request\\'s"
        " cache'"
    )
    assert at_stop(page, ()) == ["Positions in each running request's cache"]


def test_a_word_of_the_glossary_explains_itself_in_german(learn):  # noqa: F811
    page = learn("lang=de&lesson=one-pass&stop=mixed")
    drawn(page, "one-pass", "mixed")
    page.hover(".panel.lanes h3 .title", position={"x": 10, "y": 8})
    page.wait_for_selector(".term-hint:not([hidden])")
    assert page.inner_text(".term-hint").startswith(
        "Spur (lane) Ein Platz für eine laufende Anfrage."
    )


def test_paper_and_the_lesson_in_one_file_are_german(visit):  # noqa: F811
    traces = recorded_runs()
    for made in (
        *(sheet("ragged-batching", kind, traces, "de") for kind in KINDS),
        plan(traces, "de"),
    ):
        shown = re.sub(
            r"(?s)<style>.*?</style>|<code>.*?</code>|<p class=\"answered\">.*?</p>|<svg.*?</svg>",
            " ",
            made,
        )
        labels = re.findall(r'aria-label="([^"]*)"|>(lane \d|pad)<', made)
        assert (
            english(
                [re.sub(r"<[^>]*>", " ", shown), *(text for label in labels for text in label)],
                set(),
            )
            == []
        )
    page = visit(files={"": lesson_html("static-batching", traces, "de")}, drawn=False)
    settled(page, "window.inflightLearn && inflightLearn.drawn === 'static-batching/wave'")
    assert english(page.evaluate(SAID), pieces(page)) == []
