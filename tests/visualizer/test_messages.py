"""Sentences with numbers: Python and the page find the same entries and write the same, in every
language.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess

import pytest

from core.trace.messages import english, fill, key_of
from visualizer.page.bundle import PLAYER
from visualizer.words.language import OTHERS, catalogue

NUMBERS = ("0", "1", "2", "1,234", "1.5", "1 + 1", "1 + 0")
_OF_NODE = """
import { english, fill, keyOf } from %s;
const [texts, entries] = JSON.parse(await new Promise((done) => { let all = ""; process.stdin.on("data", (c) => (all += c)).on("end", () => done(all)); }));
console.log(JSON.stringify([texts.map((text) => [...keyOf(text), english(text)]), entries.map(([template, given, language]) => fill(template, given, language))]));
"""  # noqa: E501


def samples() -> list[str]:
    """Every entry that counts, with numbers in its holes: all the same, then in turn."""
    keys = [key for language in OTHERS for key in catalogue(language) if "|" in key]
    texts = [
        "all 1,024 lanes are taken",
        "“2 [a|b] of 3” is one text, 4 [step|steps]",
        "nothing counts",
        "job #1 [or|and] more, [=# who|whose] #",
    ]
    for key in keys:
        for turn in range(len(NUMBERS)):
            numbers = itertools.cycle(NUMBERS[turn:] + NUMBERS[:turn])
            texts.append(
                re.sub("#", lambda _, numbers=numbers: next(numbers), key).replace("“…”", "“a 2”")
            )
        texts += [key.replace("#", number).replace("“…”", "“a”") for number in ("1", "3")]
    return texts


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_page_and_python_find_the_same_entries_and_write_the_same():
    texts = samples()
    keyed = [(*key_of(text), english(text)) for text in texts]
    entries = [
        (catalogue(language)[key], given, language)
        for key, given, _ in keyed
        for language in OTHERS
        if key in catalogue(language)
    ]
    assert len(texts) > 500 and len(entries) > 500
    program = _OF_NODE % json.dumps((PLAYER / "parts" / "messages.js").as_uri())
    run = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        input=json.dumps([texts, entries]),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs, filled = json.loads(run.stdout)
    assert [tuple(one) for one in theirs] == keyed
    assert filled == [fill(*entry) for entry in entries]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1 [query|queries]", "1 query"),
        ("1,200 [token|tokens]", "1,200 tokens"),
        ("0 [token|tokens]", "0 tokens"),
        ("1 of 7 KV [block|blocks] [=1 is|are] free", "1 of 7 KV blocks is free"),
        ("[=2 adds|add] 1 [token|tokens]", "add 1 token"),
        ("1 + 1 [position|positions]", "1 + 1 positions"),
        ("[is|are] 1", "is 1"),
        ("“3 [a|b]”", "“3 [a|b]”"),
        ("# [a|b]", "# b"),
    ],
)
def test_a_form_goes_with_its_number(text, written):
    assert english(text) == written


def test_every_entry_that_counts_has_a_form_for_each_plural_category():
    """Two in English and in German; and numbers stand outside of the forms."""
    for key, german in catalogue("de").items():
        for template in (key, german):
            for own, forms in re.findall(r"\[(=# )?([^\[\]]*\|[^\[\]]*)\]", template):
                assert len(forms.split("|")) == 2 and "#" not in forms, (own, template)
            assert "#" in template or "|" not in template, template


def test_no_entry_repeats_another_for_its_plural():
    """One entry stands for one and for many."""
    nouns = {forms for key in catalogue("de") for forms in re.findall(r"\[(\w+)\|(\w+)\]", key)}
    for key in catalogue("de"):
        for one, many in nouns:
            assert (
                f"# {one}" not in key
                or key.replace(f"# {one}", f"# {many}") == key
                or key.replace(f"# {one}", f"# {many}") not in catalogue("de")
            ), key
