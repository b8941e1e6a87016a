"""Another language: English is the key, every number stands in its place, and nothing that a
recorded run says is left in English.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise, product
from pathlib import Path

import pytest

from core.account.delays import NOT_RECORDED, SHARE_NAMES, TIME_SHARES
from core.account.metrics import DEFINITIONS
from core.config import POLICIES
from core.errors import TooManyRequests
from core.recorders import recorded_header
from core.serving.limits import Places, ServingLimits
from core.torch_engine.models import gguf, gguf_for_tab
from core.trace import phrases
from core.trace.events import LimitReached
from core.trace.messages import key_of
from core.trace.phrases import (
    ALIGNMENTS,
    LIMITS,
    SETTINGS,
    bound,
    brief,
    queued_by,
    reason,
    setting,
)
from core.trace.rules import blocks, recorded, steps
from core.trace.trace import Trace
from visualizer import words
from visualizer.charts import cost
from visualizer.charts.comparison import FIGURES
from visualizer.documents import catalogue
from visualizer.documents.comparison import COLUMNS, RECORDED, document
from visualizer.documents.comparison import load as load_comparison
from visualizer.documents.replay import captions_in, replay
from visualizer.words import findings, language, verdicts
from visualizer.words.narration import MAX_CHARACTERS
from visualizer.words.vocabulary import plain

# What German says as English does.
SAME = set(
    """# %|# p#|# KiB|# MiB|# ms|# s|# → #|#e-#|#×|, {base} #|Block|Block #: |Budget|CPU|CSV|CUDA|Cache|E#E p#|Engine|Engines
    |Export|HTML|ITL|ITL p#|In vLLM:|Inflight|JSON|KV|Link|Live|O Romeo, |PNG|Pad: |Pads|Perfetto|Phase|Plan|Policies|Policy|Prompt
    |Rank|Rank #|Seed|Story|TPOT|TPOT p#|TTFT|TTFT p#|Tab|Text|Token|Top-k|Top-p|Trace|live""".replace(  # noqa: E501
        "\n    |", "|"
    ).split("|")
) | {"# [CPU|CPUs]", " (# ms)", " (# s)"}

RUNS = [
    *catalogue.RUNS,
    *(
        f"{name}, rank {rank}"
        for name in catalogue.RANKED
        for rank, _ in enumerate(catalogue.rank_files(name))
    ),
]


def run_named(name: str) -> Trace:
    """One of RUNS."""
    name, _, rank = name.partition(", rank ")
    if rank:
        return catalogue.ranks(name).ranks[int(rank)].trace
    return Trace.load(catalogue.TRACES / f"{name}.jsonl")


def strings(said: dict) -> list[str]:
    return [plain(c["say"]) for c in said["captions"]] + [
        plain(why) for c in said["captions"] for why in c["why"]
    ]


@pytest.mark.parametrize("name", RUNS)
def test_every_recorded_run_is_told_in_german_with_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(language, "missing_keys", set())
    trace = run_named(name)
    german, english = captions_in(trace, "de"), replay(trace)
    assert language.missing_keys == set()
    assert (
        len(german["captions"]) == len(english["captions"])
        and german["captions"] != english["captions"]
    )
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
    german = language.catalogue("de")
    said = [preset.shows for preset in (catalogue.RUNS | catalogue.RANKED).values()] + [
        policy.shows for policy in POLICIES.values()
    ]
    said += [
        words for question in catalogue.QUESTIONS.values() for words in question.values()
    ] + list(ALIGNMENTS.values())
    assert [text for text in said if key_of(text)[0] not in german] == []


def test_every_warning_of_a_recorded_step_has_its_german():
    """What the rules return in words: with its number or its quoted name in each hole, a capital
    and a full stop, as `Checker` makes warnings.
    """
    modules = [
        ast.parse(Path(module.__file__).read_text("utf-8")) for module in (steps, recorded, blocks)
    ]
    returned = [
        node.value
        for module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.Return)
    ]
    said = {
        text
        for value in returned
        if isinstance(value, ast.Constant | ast.JoinedStr)
        for text in _templates(_filled(value), {})
    }
    said |= {
        "the prompt of request “…” has a token id beyond the vocabulary of 7",
        "the prompt of request “…” is on record, although the header says that none is",
        "the requests that leave their lanes before the passes are not those that have to",
    }
    said = {text.replace("lanes # the", "lanes after the") for text in said}
    keys = {key_of(f"{text[0].upper()}{text[1:]}.")[0] for text in said}
    assert len(keys) > 40 and sorted(keys - language.catalogue("de").keys()) == []


def test_why_a_tab_does_not_compute_a_file_has_its_german():
    named = {name: [ast.Constant(getattr(gguf, name))] for name in ("_NO_FILE", "_NO_SENSE")}
    raised = {
        text
        for module in (gguf, gguf_for_tab)
        for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "BadWeights"
        for text in _templates(_filled(node.args[0]), named)
    } - {"numbers of the kind “#” are not read here"}  # where torch reads it
    keys = {key_of(f"“a.gguf” cannot be computed in a tab: {text}.")[0] for text in raised}
    assert len(keys) == 13 and sorted(keys - language.catalogue("de").keys()) == []


def test_what_is_not_shown_of_another_engine_has_its_german():
    facts = dict.fromkeys(recorded_header.SENTENCES, "another value")
    said = recorded_header.unshown(facts)
    assert (
        len(said) == len(facts)
        and [text for text in said if key_of(text)[0] not in language.catalogue("de")] == []
    )


def _filled(value: ast.AST) -> ast.AST:
    """An f-string with quoted names in place of calls that quote one."""
    if isinstance(value, ast.JoinedStr):
        value.values = [
            ast.Constant("“…”") if "quoted(" in ast.unparse(part) else part for part in value.values
        ]
    return value


def test_what_stays_english_is_stated():
    assert {
        english for english, german in language.catalogue("de").items() if english == german
    } == SAME


def test_english_is_left_as_it_is_and_comes_back():
    trace = run_named("verses-static")
    before = replay(trace)
    captions_in(trace, "de")
    assert replay(trace) == before == before | captions_in(trace, "en")


def test_what_has_no_entry_is_said_in_english_and_noted(monkeypatch):
    monkeypatch.setattr(language, "missing_keys", set())
    with language.speaking("de"):
        assert language.t("nobody has said this 3 times") == "nobody has said this 3 times"
        assert language.t("all 1,024 lanes are taken") == "alle 1.024 Spuren sind besetzt"
    assert language.missing_keys == {"nobody has said this # times"}


def test_every_entry_has_the_numbers_of_its_key():
    for english, german in language.catalogue("de").items():
        assert english.count("#") == german.count("#") and english.count("“…”") == german.count(
            "“…”"
        ), english
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", german)), (
            english
        )
        kinds = (re.findall(r"\b[Ep]#|#\s?%|#", text) for text in (english, german))
        assert len({"".join("".join(kind).split()) for kind in kinds}) == 1, (
            f"numbers keep their order, and are what they were: {english}"
        )
    assert all(a < b for a, b in pairwise(language.catalogue("de"))), (
        "in order, so that two hands meet at one entry"
    )


def _templates(node: ast.AST, known: dict[str, list[ast.AST]]) -> set[str]:
    """The keys that an expression may be looked up by, a computed part of a text as #; empty for
    what is no text of ours.
    """
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.JoinedStr(values=parts):
            return {
                "".join(chosen)
                for chosen in product(*(_templates(part, known) or {"#"} for part in parts))
            }
        case ast.FormattedValue(value=value):
            return _templates(value, known) or {"#"}
        case ast.IfExp(body=one, orelse=other):
            return _templates(one, known) | _templates(other, known)
        case ast.BinOp(op=ast.Add(), left=one, right=other):
            return {
                "".join(chosen)
                for chosen in product(_templates(one, known), _templates(other, known))
            }
        case ast.Subscript(value=ast.Tuple(elts=among) | ast.Dict(values=among)):
            return set().union(*(_templates(one, known) for one in among))
        case ast.Name(id=name) if name in known:
            return set().union(
                *(
                    _templates(value, {k: v for k, v in known.items() if k != name})
                    for value in known[name]
                )
            )
    return set()


def _assigned(function: ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """What the names of a function may stand for."""
    known: dict[str, list[ast.AST]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for target, value in zip(targets, values, strict=False):
            if isinstance(target, ast.Name):
                known.setdefault(target.id, []).append(value)
    return known


def _functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _looked_up(path: Path) -> set[str]:
    """Every text that a module passes to `t`."""
    found: set[str] = set()
    for function in _functions(path):
        known = _assigned(function)
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "t"
                and node.args
            ):
                found |= _templates(node.args[0], known)
    return found


WORDS = Path(words.__file__).parent
_HOLE = re.compile(r"#|“[^”]*”|\{[^}]*\}")


@pytest.mark.parametrize(
    "path", [*WORDS.glob("*.py"), Path(phrases.__file__)], ids=lambda p: p.stem
)
def test_every_piece_of_a_sentence_occurs_in_one_that_has_its_german(path):
    """Whatever a step may say, whether or not a shipped run does: each text between two numbers or
    names of a sentence is found in an English sentence of the catalogue.
    """
    english = "\n".join(language.catalogue("de"))
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in docstrings
    }
    pieces = {piece.strip() for text in texts for piece in _HOLE.split(key_of(text)[0])}
    of_words = {piece for piece in pieces if re.search(r"[a-z]{2,} [a-z]{2,}", piece)}
    assert sorted(piece for piece in of_words if piece not in english) == []


def test_a_sentence_without_its_german_would_be_found():
    """A control for the test above and the one below."""
    assert "nobody has ever said this" not in "\n".join(language.catalogue("de"))
    (made,) = ast.parse("def f(a):\n  b = 'x' if a else 'y'\n  return [f'is {b}.']").body
    (sentence,) = made.body[1].value.elts
    assert _templates(sentence, _assigned(made)) == {"is x.", "is y."}


def test_every_reason_has_its_german_in_each_of_its_forms():
    german, missing = language.catalogue("de"), set()
    for function in _functions(WORDS / "reasons.py"):
        known = _assigned(function)
        for node in ast.walk(function):
            for text in node.elts if isinstance(node, ast.List) else ():
                missing |= {key_of(said)[0] for said in _templates(text, known)} - german.keys()
    written_by_a_call = {
        "The device waited # for the host before this step.",
        " gives back # [block|blocks]#.",
    }
    assert {text for text in missing if re.search("[a-z]{2}", text)} == written_by_a_call


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("limit", ["max_requests", "max_requests_per_client"])
def test_that_a_server_is_full_has_its_german_in_each_of_its_forms(limit, most):
    """The server itself chooses the form, so each is a sentence of its own."""
    places = Places(ServingLimits(**{limit: most}))
    places.take("a", most)
    with pytest.raises(TooManyRequests) as full:
        places.take("a")
    assert key_of(str(full.value))[0] in language.catalogue("de")


def test_every_template_of_the_phrase_book_that_reaches_the_page_has_its_german():
    rooms = [Path(words.__file__).parents[1] / room for room in ("words", "charts", "documents")]
    said = set().union(*(_looked_up(path) for room in rooms for path in room.glob("*.py")))
    assert len(said) > 100 and "{mine} took {time}, {base} {other}" in said
    said |= {DEFINITIONS[metric.split(".")[0]] for _, metric, _ in COLUMNS} | {
        heading for heading, *_ in COLUMNS
    }
    said |= {
        *verdicts.PARTS.values(),
        *findings.WASTE.values(),
        findings.seconds(2.5),
        findings.percent(0.5),
    }
    said |= {chart.title for chart in FIGURES.values()} | {cost.LOAD_TITLE, cost.COST_TITLE}
    whys = [
        LimitReached(limit, have, need, total)
        for limit in LIMITS
        for have in (0, 1, 2)
        for need in (1, 2)
        for total in (1, 2, 7)
    ]
    said |= {say(why) for why in whys for say in (reason, brief)} | {
        bound(limit) for limit in LIMITS
    }
    said |= {
        setting(name, value)
        for name in SETTINGS
        for value in (1, 16)
        if name.endswith(("seqs", "tokens", "size", "blocks"))
    }
    said |= {
        setting(name, on)
        for name in ("chunked_prefill", "prefix_caching", "prefill_first")
        for on in (True, False)
    }
    said |= {
        *TIME_SHARES.values(),
        *SHARE_NAMES.values(),
        *(queued_by(limit) for limit in (*LIMITS, NOT_RECORDED)),
    }
    german = language.catalogue("de")
    keys = {key_of(text)[0] for text in said}
    assert (
        sorted(
            key
            for key in keys
            if re.search("[A-Za-z]", language._HOLE.sub("", key)) and key not in german
        )
        == []
    )


@pytest.mark.parametrize("name", ["gpt2-six", "equal-lengths", "poisson-32", "engines-kv-pressure"])
def test_a_recorded_comparison_is_told_in_german(name, monkeypatch):
    """With the same numbers, whatever is said, drawn or in the table."""
    monkeypatch.setattr(language, "missing_keys", set())
    shown = load_comparison(RECORDED / name)
    made = document(shown)
    assert language.missing_keys == set()
    german = made["translations"]["de"]
    for key, said in german["says"].items():
        of = (
            [(" ".join(said), " ".join(made["says"][key]))]
            if isinstance(said, list)
            else [(said, made["says"][key])]
        )
        for de, en in of:
            assert sorted(re.findall(r"\d", de)) == sorted(re.findall(r"\d", en)), key
    assert [f["name"] for f in german["figures"]] == [f["name"] for f in made["figures"]]
    assert all(
        de["finding"] != en["finding"]
        for de, en in zip(german["figures"], made["figures"], strict=True)
    )
    assert (
        len(german["table"]["rows"]) == len(made["table"]["rows"])
        and german["table"] != made["table"]
    )
    for contender, told_run in german["runs"].items():
        assert len(told_run["captions"]) == len(made["runs"][contender]["captions"])
