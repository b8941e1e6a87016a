"""A visitor's own GGUF file in their tab: read there and sent nowhere, and what its model writes is
what torch writes; or refused in a sentence.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from core import Engine
from core.torch_engine.models.load import load_adapter
from core.trace.trace import Trace
from worlds.browser import PATIENCE, open_editor, settled
from worlds.gguf_files import FITTING, Kind, write
from worlds.own_models import spec
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine

pytestmark = pytest.mark.slow

OPEN = """async ([name, address]) => {
    window.file = new File([await (await fetch(address)).blob()], name);
}"""
TRIMS = (
    "{% for m in messages %}<|start|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)
MIXED = {"attn_v": Kind.Q6_K, "ffn_down": Kind.Q6_K, "token_embd": Kind.Q6_K}
FILES = {
    "q4_0": {"arch": "llama", "kind": Kind.Q4_0},
    "q4_1": {"arch": "llama", "kind": Kind.Q4_1, "own_head": True, "rope": FITTING},
    "q5_0": {"arch": "llama", "kind": Kind.Q5_0, "kinds": {"ffn_down": Kind.Q5_1}},
    "q5_k": {"arch": "llama", "kind": Kind.Q5_K, "kinds": MIXED, "hidden": 256},
    "q8_0": {"arch": "qwen2", "kind": Kind.Q8_0, "pre": "qwen2"},
    "f16": {"arch": "qwen3", "kind": Kind.F16, "pre": "qwen2"},
    "f32": {"arch": "smollm3", "kind": Kind.F32, "pre": "smaug-bpe", "layers": 4},
    "k_m": {"arch": "llama", "kind": Kind.Q4_K, "kinds": MIXED, "hidden": 256, "pre": "llama-bpe"},
}


@pytest.fixture(scope="module")
def site(site_folder):
    folder = site_folder
    (folder / "blank.html").write_text("<!doctype html><title>An engine</title>")
    for name, given in FILES.items():
        write(folder / f"{name}.gguf", template=TRIMS, **given)
    write(folder / "plain.gguf", template=None)
    write(folder / "gemma.gguf", "gemma")
    write(folder / "tekken.gguf", pre="tekken")
    write(folder / "bf16.gguf", kind=Kind.BF16)
    (folder / "broken.gguf").write_bytes((folder / "q4_0.gguf").read_bytes()[:-1000])
    with hosted(folder) as host:
        yield host


def asked(name):
    """Conversations whose template looks at what is said, in three lanes."""
    said = spec(f"{name}.gguf", "  hell 12 the ", "he", "the 3 hells", "t h e l l", new=12)
    del said["device"]
    for request in said["workload"]["requests"]:
        request["messages"] = [{"role": "user", "content": request.pop("prompt")}]
    said["config"]["max_num_seqs"] = 3
    return said


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_each_kind_of_file_is_computed_as_torch_computes_it(
    request, site, browser, tmp_path, monkeypatch
):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path))
    page = request.getfixturevalue(browser).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{site.url}blank.html")
    [worker] = (site.folder / "engine").glob("*/worker.js")
    engine = TabEngine(page, f"engine/{worker.parent.name}/worker.js")
    engine.ask("load")
    for name in FILES:
        model = f"{name}.gguf"
        page.evaluate(OPEN, [model, model])
        for do in ("open", "load"):
            said = page.evaluate("([model, do_]) => tab.ask({ do: do_, model, file })", [model, do])
            assert "failed" not in said, said
        found = Trace.from_lines(engine.trace(asked(name)))
        adapter, tokenizer = load_adapter(str(site.folder / model), "cpu", "float32")
        torchs = Engine(adapter, tokenizer, found.header.config).run(found.workload)
        assert found.prompts == torchs.prompts and found.outputs == torchs.outputs, name
        assert len(set(map(tuple, found.outputs.values()))) > 1, name
    page.close()


FIELD = ".drawer input[type=file][accept='.gguf']"
SAYS = ".drawer .model-says"


def opened(page, site, hash=""):
    page.asked = []
    page.on("request", lambda r: page.asked.append((r.method, r.url)))
    page.goto(f"{site.url}watch.html#detail=full{hash}")
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")


def choose(page, file):
    page.locator(".drawer [name=model]").first.select_option(label="Your own GGUF file …")
    page.locator(FIELD).first.set_input_files(file)


def ended(page):
    settled(
        page,
        "!inflight.live.going && inflight.live.ended && inflight.run === inflight.live.ended.run",
    )


def test_a_file_is_chosen_run_removed_and_sent_nowhere(site, returning, tmp_path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path))
    page = returning(site.url, viewport={"width": 1440, "height": 900})
    opened(page, site)
    open_editor(page)
    choose(page, site.folder / "k_m.gguf")
    says = page.locator(SAYS).first
    expect(says).to_contain_text("Stored inQ4_K, Q6_K")
    expect(page.locator(".drawer [name=model]").first).to_have_value("k_m.gguf")
    expect(page.locator("[name=as_messages]")).to_be_checked()
    rows = page.locator(".request-row textarea")
    for row, words in zip(rows.all(), ("hell 12", " the ", "he 3", "t h e l l"), strict=False):
        row.fill(words)
    page.locator(".drawer .run-button").first.click()
    ended(page)
    lines = page.evaluate(
        "inflight.engines.call('export', 'jsonl', inflight.entry.id).then(({ url }) =>"
        " fetch(url)).then(f => f.text())"
    ).splitlines()
    found = Trace.from_lines(lines)
    assert found.header.model.name == "k_m.gguf" and all(r.messages for r in found.workload)
    torchs = load_adapter(str(site.folder / "k_m.gguf"), "cpu", "float32")
    assert found.outputs == Engine(*torchs, found.header.config).run(found.workload).outputs
    assert {method for method, _ in page.asked} == {"GET"}
    assert all(url.startswith((site.url, "data:", "blob:")) for _, url in page.asked)
    assert not [url for _, url in page.asked if "gguf" in url.partition("#")[0]]

    page.reload()
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    expect(page.locator(".run-message").first).to_contain_text("k_m.gguf is a file on a disk")
    choose(page, site.folder / "k_m.gguf")
    says.get_by_role("button", name="Remove").click()
    expect(page.locator(".drawer [name=model] option[value='k_m.gguf']")).to_have_count(0)


def test_files_that_are_not_computed_here_are_refused(site, returning):
    page = returning(site.url, viewport={"width": 1440, "height": 900})
    opened(page, site)
    open_editor(page)
    for file, said in (
        (
            "gemma.gguf",
            "GGUF files of Llama, Qwen 2, Qwen 3 and SmolLM3 are read here, not of the kind"
            " “gemma”.",
        ),
        ("bf16.gguf", "numbers of the kind “BF16” are not computed in a tab."),
        ("broken.gguf", "it is no GGUF file, or not a whole one."),
        ("blank.html", "it is no GGUF file, or not a whole one."),  # named as one, all the same
        (
            "tekken.gguf",
            "tokenizers of Llama 3, Qwen, SmolLM and GPT-2 are read here, not of the kind “gpt2”,"
            " “tekken”.",
        ),
    ):
        choose(page, site.folder / file)
        name = f"{file.removesuffix('.gguf')}.gguf"
        expect(page.locator(SAYS).first).to_have_text(
            f"“{name}” cannot be computed in a tab: {said}"
        )


def test_one_that_is_too_large_is_refused_before_it_is_read(site, returning):
    page = returning(site.url, viewport={"width": 1440, "height": 900})
    page.route(
        "**/worker.js",
        lambda r: r.fulfill(
            body="Object.defineProperty(navigator, 'deviceMemory', { value: 1 });\n"
            + r.fetch().text(),
            content_type="text/javascript",
        ),
    )
    opened(page, site)
    open_editor(page)
    choose(page, site.folder / "q4_0.gguf")
    expect(page.locator(SAYS).first).to_have_text(
        "This browser has too little memory for the model: 1 MB."
    )


def test_a_file_that_is_dropped_is_chosen_and_one_without_a_template_takes_text(site, returning):
    page = returning(site.url, viewport={"width": 1440, "height": 900})
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, site)
    page.evaluate(OPEN, ["plain.gguf", "plain.gguf"])
    page.evaluate(
        """() => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(file);
            for (const kind of ['dragover', 'drop'])
                inflight.root.dispatchEvent(
                    new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator(SAYS).first).to_contain_text("It has no chat template: prompts are text.")
    page.locator(".drawer .run-button").first.click()
    ended(page)
    assert page.evaluate("inflight.run.header.model.name") == "plain.gguf"
