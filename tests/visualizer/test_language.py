"""Another language: English is the key, every number stands in its place, and nothing that a recorded run says is left in English."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from core.config import POLICIES
from core.trace.phrases import ALIGNMENTS
from core.trace.trace import Trace
from visualizer.documents import catalogue
from visualizer.documents.replay import replay, told
from visualizer.words import language
from visualizer.words.narration import MAX_CHARACTERS
from visualizer.words.vocabulary import plain

# What German says as English does.
SAME = set(
    """CPU|CUDA|Cache|Engine|Export|ITL|In vLLM:|Inflight|KV|Live|PNG|Pad: |Pads|Perfetto|Phase|Policy|Prompt|Rank|Rank #|Seed|TPOT|TTFT|Tab|Text|Top-k|Top-p|Trace
    |Block|Block #: |# KiB|# MiB|# ms|# s""".replace("\n    |", "|").split("|")
)

RUNS = {name: Trace.load(catalogue.TRACES / f"{name}.jsonl") for name in catalogue.RUNS}
RUNS |= {f"{name}, rank {rank.number}": rank.trace for name in catalogue.RANKED for rank in catalogue.ranks(name).ranks}


def strings(said: dict) -> list[str]:
    return [plain(c["say"]) for c in said["captions"]] + [plain(why) for c in said["captions"] for why in c["why"]]


@pytest.mark.parametrize("name", RUNS)
def test_every_recorded_run_is_told_in_german_with_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(language, "missing", set())
    german, english = told(RUNS[name], "de"), replay(RUNS[name])
    assert language.missing == set()
    assert len(german["captions"]) == len(english["captions"]) and german["captions"] != english["captions"]
    for de, en in zip(german["captions"], english["captions"], strict=True):
        assert [[s["r"] for s in w if isinstance(s, dict)] for w in de["why"]] == [
            [s["r"] for s in w if isinstance(s, dict)] for w in en["why"]
        ]
        for mine, theirs in zip(de["why"], en["why"], strict=True):
            assert sorted(re.findall(r"\d+", plain(mine, lambda r: ""))) == sorted(
                re.findall(r"\d+", plain(theirs, lambda r: ""))
            )
        assert len(plain(de["say"], lambda r: "A")) <= MAX_CHARACTERS


def test_what_the_page_says_of_runs_policies_and_questions_has_its_german():
    labels = language.catalogue("de")["labels"]
    said = [preset.shows for preset in (catalogue.RUNS | catalogue.RANKED).values()] + [
        policy.shows for policy in POLICIES.values()
    ]
    said += [words for question in catalogue.questions() for words in question.values()] + list(ALIGNMENTS.values())
    assert [text for text in said if re.sub(r"\d+(?:[.,]\d+)*", "#", text) not in labels] == []


def test_what_stays_english_is_stated():
    parts = language.catalogue("de").values()
    assert {english for part in parts for english, german in part.items() if english == german} == SAME


def test_english_is_left_as_it_is_and_comes_back():
    before = replay(RUNS["verses-static"])
    told(RUNS["verses-static"], "de")
    assert replay(RUNS["verses-static"]) == before == before | told(RUNS["verses-static"], "en")


def test_what_has_no_entry_is_said_in_english_and_noted(monkeypatch):
    monkeypatch.setattr(language, "missing", set())
    with language.speaking("de"):
        assert language.t("nobody has said this 3 times") == "nobody has said this 3 times"
        assert language.t("all 1,024 lanes are taken") == "alle 1.024 Spuren sind besetzt"
    assert language.missing == {"nobody has said this # times"}


def test_every_entry_has_the_numbers_of_its_key():
    for part in language.catalogue("de").values():
        for english, german in part.items():
            assert english.count("#") == german.count("#") and english.count("“…”") == german.count("“…”"), english
        assert all(a < b for a, b in pairwise(part)), "in order, so that two hands meet at one entry"
