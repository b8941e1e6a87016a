"""A model of one's own on the page in a real browser: named, foreseen, run, remembered; prompts as
messages; and what cannot be run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from worlds.browser import settled
from worlds.own_models import alibi, save

ANOTHER = "\0own"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("mine and yours") / "chatty", "llama", chat=True)


def name_it(page: Page, name: object, drawer: str = "#watch .drawer") -> None:
    page.select_option(
        f"{drawer} [name=model]", index=page.locator(f"{drawer} [name=model] option").count() - 1
    )
    page.fill(f"{drawer} [name=own_model]", str(name))
    page.press(f"{drawer} [name=own_model]", "Enter")


def edit(page: Page) -> None:
    page.click(".edit-button")
    page.wait_for_selector(".request-row")


def test_a_folder_is_named_foreseen_run_and_remembered(visit, page_url, folder, tmp_path):
    page = visit(page_url, hash="detail=full")
    edit(page)
    says = page.locator("#watch .model-says")
    before = page.evaluate("inflight.run.length")
    name_it(page, alibi(tmp_path / "alibi"))
    expect(says).to_contain_text("ALiBi")
    for dtype in ("bfloat16", "auto"):  # of which it is asked again
        with page.expect_response("**/call/model"):
            page.select_option("[name=dtype]", dtype)
    name_it(page, f' "{folder}" ')
    expect(says).to_contain_text("LlamaForCausalLM")
    expect(says).to_contain_text("34,720, 2 layers")
    expect(page.locator("#watch [name=model]")).to_have_value(str(folder))
    assert page.evaluate("inflight.run.length") == before, "nothing was run"
    page.fill(".request-row textarea >> nth=0", "To be?")
    page.select_option("[name=dtype]", "bfloat16")
    page.click(".run-button")
    settled(page, "!inflight.running && inflight.run.header.source === 'live'")
    header = page.evaluate(
        "[inflight.run.header.model.name, inflight.run.header.dtype, inflight.run.complete]"
    )
    assert header == [str(folder), "bfloat16", True]
    first = page.evaluate("inflight.run.texts.prompt[inflight.run.requests[0].id].join('')")
    assert first == "<|user|>To be?<|end|><|assistant|>"
    settled(page, "location.hash.includes('spec=')")
    page.reload()
    settled(page, "inflight.run.header.model.name === arg && inflight.run.complete", str(folder))
    if page.locator("#watch .drawer").is_hidden():
        edit(page)
    expect(page.locator(f"#watch [name=model] option[value='{folder}']")).to_have_count(1)


@pytest.mark.slow  # a phone, in German, on a link that names a model
def test_a_link_loads_nothing_by_itself(visit, page_url, folder):
    page = visit(page_url, hash="detail=full")
    link = page.evaluate(
        "(model) => inflight.editor.ready().then(() => inflight.editor.packed({"
        " ...inflight.editor.state.presets[0].spec, model }))",
        str(folder),
    )
    again = visit(page_url, size="phone", hash=f"spec={link}&lang=de")
    expect(again.locator("#watch .run-message")).to_contain_text("Dieser Link verlangt das Modell")
    expect(again.locator("#watch .model-says")).to_contain_text("ist noch nichts bekannt")
    assert again.evaluate("inflight.run.header.source") != "live"
    again.click("#watch .model-says .link")
    expect(again.locator("#watch .model-says")).to_contain_text("Gewichte")
    again.click("#watch .run-button")
    settled(again, "!inflight.running && inflight.run.header.source === 'live'")


@pytest.mark.slow
def test_new_comparison_takes_it_alike(visit, page_url, folder):
    page = visit(page_url, hash="part=compare", drawn=False)
    page.wait_for_function("window.inflightCompare?.doc")
    page.click(".inflight-compare .new-button")
    name_it(page, folder, ".inflight-compare .drawer")
    expect(page.locator(".inflight-compare .model-says")).to_contain_text("LlamaForCausalLM")
    page.fill(".inflight-compare [name=repeats]", "1")
    page.click(".inflight-compare .run-button")
    expect(page.locator(".inflight-compare .run-message")).to_contain_text("Done")
    assert page.evaluate("Object.values(inflightCompare.doc.runs)[0].header.model.name") == str(
        folder
    )
