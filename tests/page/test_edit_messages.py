"""Edit with a model that has a chat template: requests are messages, nothing of which is lost; and
where a visitor's own requests end.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.workload.presets import PRESETS
from worlds.axe import serious
from worlds.own_models import save

SPEC = "inflight.editor.spec()"
ASKED = f"{SPEC}.workload.requests"
OPENED = ".request-row .conversation"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "chatty", "llama", chat=True)


def edit(page: Page, preset: str) -> None:
    page.click(".edit-button")
    page.wait_for_selector(".request-row")
    page.select_option(".preset-select", preset)
    expect(page.locator("[name=preset]")).to_have_value(preset)


def choose(page: Page, model: object) -> None:
    """A model by hand, until it is known whether it takes messages."""
    page.select_option(
        "#watch .drawer [name=model]",
        index=page.locator("#watch .drawer [name=model] option").count() - 1,
    )
    page.fill("#watch .drawer [name=own_model]", str(model))
    page.press("#watch .drawer [name=own_model]", "Enter")
    expect(page.locator("#watch .model-says")).to_contain_text("LlamaForCausalLM")


def test_a_preset_that_nobody_changed_asks_the_same_again(visit, page_url):
    """Each of them, and what is sent when it is run."""
    page = visit(page_url, hash="detail=full")
    edit(page, "six-questions")
    refused = {"status": 200, "json": {"error": "Not now."}}
    page.route("**/inflight/jobs", lambda route: route.fulfill(**refused))
    with page.expect_request("**/inflight/jobs") as sent:
        page.click("#watch .run-button")
    workload = PRESETS["six-questions"].workload.to_json()
    assert sent.value.post_data_json["spec"]["workload"] == json.loads(json.dumps(workload))
    for name, preset in PRESETS.items():
        spec = page.evaluate(
            "(name) => { const { editor } = inflight; editor.fill(editor.state.presets.find((p) =>"
            f" p.name === name).spec); return {SPEC}; }}",
            name,
        )
        assert spec["workload"] == json.loads(json.dumps(preset.workload.to_json())), name
        assert spec["config"] == preset.config.to_json() and spec["model"] == preset.model, name


def test_a_row_is_what_the_user_says_last_and_earlier_messages_stay(visit, page_url):
    page = visit(page_url, hash="detail=full")
    edit(page, "chat-under-pressure")
    expect(page.locator(OPENED)).to_have_count(5)
    expect(page.locator(f"{OPENED} summary").first).to_have_text("3 messages")
    text = page.locator(".request-row textarea").first
    expect(text).to_have_value("Describe it in one sentence.")
    text.fill("Describe it in two words.")
    first, second = page.evaluate(ASKED)[:2]
    asked = [r.to_json() for r in PRESETS["chat-under-pressure"].workload]
    assert first["messages"] == [
        *asked[0]["messages"][:2],
        {"role": "user", "content": "Describe it in two words."},
    ]
    assert second["messages"] == asked[1]["messages"]
    packed = "inflight.editor.packed(inflight.editor.spec())"
    link = page.evaluate(packed)  # of these requests, not of the preset
    page.uncheck("[name=as_messages]")
    expect(text).to_have_value(
        "What is the capital of France?\nThe capital of France is Paris.\nDescribe it in two words."
    )
    expect(page.locator(OPENED)).to_have_count(0)
    assert all("messages" not in one for one in page.evaluate(ASKED))
    assert text.evaluate("(el) => el.scrollHeight <= el.offsetHeight"), "a line of it is cut"
    page.locator(".request-row textarea").nth(1).fill("Who?")
    page.check("[name=as_messages]")
    expect(text).to_have_value("Describe it in two words.")
    back = page.evaluate(ASKED)
    assert back[0]["messages"] == first["messages"]
    assert back[1]["messages"] == [{"role": "user", "content": "Who?"}]
    page.evaluate("(name) => inflight.editor._preset(name)", "chat-under-pressure")
    assert page.evaluate(ASKED) == json.loads(json.dumps(asked))
    assert page.evaluate(packed) != link
    again = visit(page_url, hash=f"detail=full&spec={link}")
    again.wait_for_function("window.inflight?.editor?.rows.length === 5")
    assert again.evaluate(ASKED)[0]["messages"] == first["messages"]


def said(page: Page, row: int = 0) -> list[tuple[str, str]]:
    """Roles and texts of a request's messages, as it would be sent."""
    return [(one["role"], one["content"]) for one in page.evaluate(ASKED)[row]["messages"]]


def test_a_row_opens_to_its_messages_which_can_be_added_and_removed(visit, page_url):
    """By keys alone; the row's own text stays what the user says last."""
    page = visit(page_url, hash="detail=full")
    edit(page, "chat-under-pressure")
    untouched = page.evaluate(ASKED)[1:]
    row = page.locator(".request-row").first
    last, messages = row.locator("> textarea"), row.locator(".conversation li")
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(messages).to_have_count(3)
    asked = [
        (one["role"], one["content"])
        for one in PRESETS["chat-under-pressure"].workload.requests[0].messages
    ]
    assert (
        said(page)
        == asked
        == [
            (m.locator("select").input_value(), m.locator("textarea").input_value())
            for m in messages.all()
        ]
    )
    assert serious(page) == []
    last.fill("In one word?")
    expect(messages.nth(2).locator("textarea")).to_have_value("In one word?")
    messages.nth(2).locator("textarea").fill("In two words?")
    expect(last).to_have_value("In two words?")

    messages.first.get_by_label("Add a message above").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Be brief.")
    row.get_by_text("Add a message", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Paris")
    expect(row.locator("summary")).to_have_text("5 messages")
    added = [("system", "Be brief."), *asked[:2], ("user", "In two words?"), ("assistant", "Paris")]
    assert said(page) == added
    expect(last).to_have_value("In two words?")  # the user's, not the last of all
    messages.nth(4).locator("select").select_option("user")
    expect(last).to_have_value("Paris")
    messages.nth(3).get_by_label("Remove this message").focus()
    page.keyboard.press("Enter")
    kept = [*added[:3], ("user", "Paris")]
    assert said(page) == kept
    assert page.evaluate("document.activeElement.value") == "Paris"

    link = page.evaluate("inflight.editor.packed(inflight.editor.spec())")
    messages.nth(1).locator("textarea").fill("")
    page.click("#watch .run-button")
    expect(page.locator("#watch .run-message")).to_have_text("Request 1 has an empty message.")
    expect(messages.nth(1).locator("textarea")).to_be_focused()
    assert page.evaluate(ASKED)[1:] == untouched
    again = visit(page_url, hash=f"detail=full&spec={link}")
    again.wait_for_function("window.inflight?.editor?.rows.length === 5")
    assert said(again) == kept


def test_the_only_message_of_a_request_stays(visit, page_url):
    page = visit(page_url, hash="detail=full")
    edit(page, "six-questions")
    page.click(f"{OPENED} summary >> nth=0")
    expect(page.get_by_label("Remove this message")).to_be_disabled()
    page.click(f"{OPENED} >> nth=0 >> text='Add a message'")
    assert [role for role, _ in said(page)] == ["user", "assistant"]
    expect(page.get_by_label("Remove this message").first).to_be_enabled()


def test_who_chooses_a_model_with_a_chat_template_asks_by_messages(visit, page_url, folder):
    """And by prompts, once it is another."""
    page = visit(page_url, hash="detail=full")
    edit(page, "one-joins-two")
    texts = [one["prompt"] for one in page.evaluate(ASKED)]
    expect(page.locator("[name=as_messages]")).to_be_hidden()
    choose(page, folder)
    expect(page.locator("[name=as_messages]")).to_be_checked()
    by_messages = [[{"role": "user", "content": text}] for text in texts]
    assert [one["messages"] for one in page.evaluate(ASKED)] == by_messages
    page.uncheck("[name=as_messages]")
    page.select_option("[name=dtype]", "bfloat16")  # the same model
    expect(page.locator("#watch .model-says")).to_contain_text("bfloat16")
    expect(page.locator("[name=as_messages]")).not_to_be_checked()
    page.check("[name=as_messages]")
    page.select_option(".preset-select", "greedy-alone")  # the model stays, and is asked alike
    expect(page.locator("[name=as_messages]")).to_be_checked()
    page.select_option("#watch .drawer [name=model]", "shakespeare-char")
    expect(page.locator("[name=as_messages]")).to_be_hidden()
    assert all("messages" not in one for one in page.evaluate(ASKED))
    expect(page.locator(".model-nature")).to_be_hidden()
    page.select_option(".preset-select", "six-questions")
    expect(page.locator(".model-nature")).to_be_visible()
    page.evaluate("inflight.editor.model.facts = { has_chat_template: true }")  # as where it is
    page.select_option(".preset-select", "one-joins-two")  # no person brought that model
    expect(page.locator("#watch .drawer [name=model]")).to_have_value("shakespeare-bpe")


IGNORE = "[name=ignore_eos]"
WRITES_ON = f"{ASKED}.map((r) => Boolean(r.sampling.ignore_eos))"


def test_requests_of_ones_own_end_where_the_model_ends_them(visit, page_url, folder):
    page = visit(page_url, hash="detail=full")
    edit(page, "shared-prefix")
    count = len(PRESETS["shared-prefix"].workload)

    def writes_on(on: bool) -> None:
        expect(page.locator(IGNORE)).to_be_checked(checked=on)
        assert page.evaluate(WRITES_ON) == [on] * count

    def again() -> None:
        page.evaluate("inflight.editor._preset('shared-prefix')")
        writes_on(True)

    writes_on(True)
    page.fill("[name=max_num_seqs]", "3")
    writes_on(True)
    page.fill(".request-row textarea >> nth=1", "What now?")
    writes_on(False)
    page.check(IGNORE)
    writes_on(True)
    again()
    page.select_option("#watch .drawer [name=model]", "shakespeare-char")
    writes_on(False)
    again()
    choose(page, folder)
    page.check(IGNORE)
    writes_on(True)
    page.uncheck("[name=as_messages]")
    writes_on(False)


def test_an_added_request_is_as_the_form_says(visit, page_url, folder):
    page = visit(page_url, hash="detail=full")
    edit(page, "six-questions")
    page.fill("[name=temperature]", "0.7")
    page.fill("[name=seed]", "5")
    page.click(".add-request")
    added = page.evaluate(ASKED)[-1]
    sampling = {"max_new_tokens": 64, "temperature": 0.7, "top_k": 0, "top_p": 1, "seed": 11}
    assert added["sampling"] == sampling
    assert [one["role"] for one in added["messages"]] == ["user"]
    page.select_option(".preset-select", "verses-static")
    given = PRESETS["verses-static"].workload.requests
    assert given[0].sampling.temperature > 0
    page.click(".add-request")
    added = page.evaluate(ASKED)[-1]
    assert added["sampling"]["temperature"] == given[0].sampling.temperature
    assert added["sampling"]["seed"] == given[0].sampling.seed + len(given)
    assert added["sampling"]["max_new_tokens"] == 16 and "messages" not in added
