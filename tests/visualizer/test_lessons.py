"""Lessons are data: every place exists, every number follows the trace, every text is there in
every language.
"""

from __future__ import annotations

import dataclasses
import gzip
import re
from xml.etree import ElementTree

import pytest

from core.account.metrics import metrics
from core.config import EngineConfig
from core.errors import InflightError
from core.trace.trace import Trace
from visualizer.lessons.document import (
    At,
    document,
    faq,
    lesson_document,
    recorded,
    runs_of_lessons,
    stop_document,
)
from visualizer.lessons.facts import FACTS, REQUEST_FACTS, Who, best_seating, best_steps, parts_at
from visualizer.lessons.lessons import LESSONS, SEEN
from visualizer.lessons.pictures import lanes_picture, mask_picture
from visualizer.lessons.sheets import KINDS, plan, sheet
from visualizer.lessons.tasks import check
from visualizer.lessons.texts import FOLDER, LANGUAGES, evaluated, filled, plain, texts
from visualizer.page.one_file import lesson_html
from visualizer.words.language import catalogue
from worlds.visual import record, request

TRACES = recorded()
ALL = [(lesson, stop) for lesson in LESSONS for stop in lesson.stops]
_FILLED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|`[^`]*`|GPT-2|SGLang|vLLM|llama\.cpp|bf16|float32")


def strings(data: object) -> list[str]:
    """Every text in nested tables."""
    if isinstance(data, str):
        return [data]
    return [
        s for value in (data.values() if isinstance(data, dict) else data) for s in strings(value)
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_stop_is_at_a_step_that_exists_and_says_and_asks_something(language):
    made = document(TRACES, language)
    assert len(made["lessons"]) == len(LESSONS)
    for lesson in made["lessons"]:
        assert 4 <= len(lesson["stops"]) <= 9 and lesson["stops"][-1]["name"] == "now-you"
        assert sum(stop["ask"] is not None for stop in lesson["stops"]) >= 2, lesson["name"]
        for stop in lesson["stops"]:
            for place in (stop, stop["then"] or stop):
                TRACES(place["run"]).event(place["step"])
            assert (
                stop["views"]
                and stop["text"]
                and all(plain(spans).strip() for spans in stop["text"])
            )
            if stop["ask"] and stop["ask"]["kind"] == "choose":
                assert sum(o["right"] for o in stop["ask"]["options"]) == 1
                assert all(o["right"] or o["why"] for o in stop["ask"]["options"]), (
                    f"{lesson['name']}/{stop['name']}: a wrong answer gets its reason"
                )
            elif stop["ask"]:
                allowed = stop["ask"]["allowed"]
                assert len(allowed) == len(stop["ask"]["queries"]) and {
                    len(row) for row in allowed
                } == {len(stop["ask"]["keys"])}
                assert len(stop["ask"]["keys"]) <= 12, "small enough to paint by hand"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_number_is_typed(language):
    for path in sorted((FOLDER / language).glob("*.toml")):
        if path.stem not in ("page", "glossary"):
            for text in strings(texts(language, path.stem)):
                assert not re.search(r"\d", _FILLED.sub("", text)), f"{path.stem}: {text}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_of_the_questions_has_a_short_answer_and_a_step_that_shows_it(language):
    made = document(TRACES, language)["questions"]
    assert len(made["stops"]) == 15 and [s["name"] for s in made["stops"]] == [
        q["name"] for q in faq(language)["asked"]
    ]
    for stop in made["stops"]:
        TRACES(stop["run"]).event(stop["step"])
        answer = plain(stop["text"][0])
        sentences = re.findall(r"[.;:?!](?= |$)", answer)
        assert (
            stop["title"].endswith("?")
            and len(stop["text"]) == 1
            and 1 <= len(sentences) <= 7
            and len(answer) < 480
        )
    drift = next(s for s in made["stops"] if s["name"] == "temperature-zero")
    event, letters_of = (
        TRACES(drift["run"]).event(drift["step"]),
        At(TRACES(drift["run"]), drift["step"]).letters,
    )
    assert event.sampled and letters_of  # somebody writes there


def test_no_more_tokens_leak_than_were_compared():
    """A leaking model may write on where the right answer ended: those places count, too."""
    at = At(TRACES("brief-continuous"), 0)
    for fact, fewest in (("leak", 700), ("leak_in_plays", 500)):
        differing, compared, masked = (
            evaluated(f"{fact}.{name}", at, {})[0] for name in ("differing", "compared", "masked")
        )
        assert fewest < differing < compared and masked == 0


def test_what_was_measured_in_company_tells_rounding_from_a_wrong_mask():
    at = At(TRACES("greedy-together-bf16"), 0)

    def of(name: str) -> list:
        return [
            evaluated(f"company.{pair}.{name}", at, {})[0]
            for pair in ("float32", "bf16", "unmasked")
        ]

    exact, rounded, wrong = of("differing")
    assert exact == 0 and rounded > 0 and rounded < wrong and len(set(of("compared"))) == 1
    drifts, leads = of("drift"), of("lead")
    assert drifts[0] < 1e-3 < drifts[1] < drifts[2]
    assert leads[1] <= 0.0625 < leads[2], (
        "bf16 parts at a tie, to its last bit; a wrong mask does not need one"
    )
    parts = parts_at(TRACES("greedy-alone-bf16"), TRACES("greedy-together-bf16"))
    alone, together = (
        [s.token_id for e in TRACES(n).events for s in e.sampled if s.request == "r1"]
        for n in ("greedy-alone-bf16", "greedy-together-bf16")
    )
    upto = sum(
        s.request == "r1"
        for e in TRACES("greedy-together-bf16").events
        if e.step < parts
        for s in e.sampled
    )
    assert alone[:upto] == together[:upto] and alone[upto] != together[upto]


def test_a_changed_trace_changes_the_sentence():
    """Ask for more tokens, and the lesson says so; add padding, and the question has another
    answer.
    """
    trace = TRACES("brief-static")
    first = trace.events[0]
    wider = first.passes[0]._replace(
        width=first.passes[0].width + 2, padding=first.passes[0].padding + 6
    )
    altered = dataclasses.replace(
        trace, events=[first._replace(passes=(wider,)), *trace.events[1:]]
    )

    def padding(of: Trace) -> tuple[str, str]:
        made = lesson_document(
            next(x for x in LESSONS if x.name == "static-batching"),
            lambda n: of if n == "brief-static" else TRACES(n),
            "en",
        )
        stop = next(s for s in made["stops"] if s["name"] == "padding")
        return plain(stop["text"][0]), plain(
            next(o for o in stop["ask"]["options"] if o["right"])["text"]
        )

    width, pads = first.passes[0].width, first.passes[0].padding
    assert f"all {width} positions wide" in padding(trace)[0] and padding(trace)[1] == str(pads)
    assert f"all {width + 2} positions wide" in padding(altered)[0] and padding(altered)[1] == str(
        pads + 6
    )


def test_a_text_that_mentions_what_is_not_there_is_refused():
    at = At(TRACES("brief-static"), 0)
    for template in (
        "{nonsense}",
        "{Z}",
        "{Z.kv_len}",
        "{step.nonsense}",
        "{metrics.steps@elsewhere}",
        "{step.preempted.0.request}",
        "{frame}",
    ):
        with pytest.raises(InflightError):
            filled(template, at, {}, "en")


def test_a_question_has_one_right_answer_among_several():
    """As one that ships has; not two of them, none, or that alone."""
    lesson, stop = next(
        (lesson, stop) for lesson, stop in ALL if "options" in (stop.question or {})
    )
    words = texts("en", lesson.name)[stop.name]
    made = stop_document(stop, words, TRACES, "en")["ask"]["options"]
    named = dict(zip(stop.question["options"].split(), made, strict=True))
    right, wrong = sorted(named, key=lambda name: not named[name]["right"])[:2]
    for options in (f"{right} {wrong} {right}", f"{wrong} {wrong}", right):
        other = dataclasses.replace(stop, question=stop.question | {"options": options})
        with pytest.raises(InflightError, match="does not have one right answer among several"):
            stop_document(other, words, TRACES, "en")


def test_facts_are_those_of_the_trace():
    """Against numbers counted by hand on the article's example: a prompt of 10 joins two rows."""
    trace = TRACES("one-joins-two")
    joins = next(e.step for e in trace.events if e.admitted and e.step)
    at = At(trace, joins)
    expected = {
        "forward.rows": 3,
        "forward.width": 10,
        "positions": 30,
        "forward.padding": 18,
        "forward.tokens": 12,
        "pads_of_join": 18,
        "C.prompt": 10,
        "other_rows": 2,
        "step.admitted.0.request": Who(at.request("C")),
    }
    assert {name: evaluated(name, at, {})[0] for name in expected} == expected


def test_numbers_are_written_as_the_language_writes_them():
    at = At(TRACES("one-request"), TRACES("one-request").events[-1].step)
    assert plain(filled("{model.kv_bytes_per_token} {pass_cost}", at, {}, "en")).translate(
        str.maketrans(",.", ".,")
    ) == plain(filled("{model.kv_bytes_per_token} {pass_cost}", at, {}, "de"))


def test_every_fact_that_is_known_is_used():
    paths = {
        path
        for folder in (*LANGUAGES, "../story")
        for file in (FOLDER / folder).glob("*.toml")
        for path in re.findall(r"\{([\w.]+)", file.read_text(encoding="utf-8"))
    }
    paths |= {
        path
        for _, stop in ALL
        if stop.question
        for asked in stop.question.values()
        for path in re.findall(r"([\w.]+)[%@\w]*", str(asked))
    }
    unused = (set(FACTS) | set(REQUEST_FACTS)) - {
        name for path in paths for name in path.split(".")[:2]
    }
    assert not unused, unused


def test_every_language_has_every_text():
    for path in sorted((FOLDER / "en").glob("*.toml")):
        for language in LANGUAGES:
            assert shape(texts(language, path.stem)) == shape(texts("en", path.stem)), (
                f"{language}/{path.name}"
            )
            assert (FOLDER / language / path.name).exists(), f"{language}/{path.name}"


def shape(data: object) -> object:
    return (
        {key: shape(value) for key, value in data.items() if key not in ("word", "also")}
        if isinstance(data, dict)
        else type(data)
    )


def test_each_term_is_seen_in_a_recorded_run_and_lessons_use_only_terms_there_are():
    words = texts("en", "glossary")
    assert set(words) == set(SEEN)
    for path in (FOLDER / "en").glob("*.toml"):
        for text in strings(texts("en", path.stem)):
            for found in re.findall(r"\[([^\[\]]+)\]", text):
                assert found.split("|")[-1] in SEEN, f"{path.name}: {found}"


def test_runs_of_lessons_are_small():
    size = sum(
        len(gzip.compress((FOLDER.parent / "traces" / f"{run}.jsonl").read_bytes()))
        for run in runs_of_lessons()
    )
    assert size < 2 * 2**20


def test_a_mask_to_paint_is_the_one_of_the_step():
    for _, stop in ALL:
        if stop.question and "paint" in stop.question:
            trace = TRACES(stop.about.run)
            at = At(trace, stop.about.step(trace))
            for segment in at.event.segments:
                rows = [q for q in trace.mask(at.step).queries if q.request == segment.request]
                assert len(rows) == segment.length


@pytest.mark.parametrize("kind", KINDS)
def test_a_sheet_says_what_the_lesson_says_and_keeps_the_answers_apart(kind):
    for lesson in LESSONS:
        made, page = lesson_document(lesson, TRACES, "en"), sheet(lesson.name, kind, TRACES)
        text = ElementTree.fromstring(
            re.search(r"<main>.*</main>", page, re.DOTALL)[0].replace("<br>", "")
        ).itertext()
        said = "".join(text)
        asked = [stop for stop in made["stops"] if stop["ask"]]
        assert all(plain(stop["ask"]["text"]).replace("`", "") in said for stop in asked)
        assert page.count("<svg") >= len(asked) and page.count('<div class="answer">') == len(asked)
        if kind == "learner":
            assert (
                plain(asked[0]["ask"]["why"]).replace("`", "") in said.split("Answers")[1]
                and 'class="answer"' not in page.split('class="apart"')[0]
            )


def test_a_worksheet_can_be_answered_on_paper():
    """What the page shows beside the lanes is printed, and what cannot be pressed is not there."""
    for lesson in LESSONS:
        made, page = lesson_document(lesson, TRACES, "en"), sheet(lesson.name, "learner", TRACES)
        chosen = [s["ask"] for s in made["stops"] if s["ask"] and s["ask"]["kind"] == "choose"]
        boxes = re.findall(r'<ul class="boxes">(.*?)</ul>', page, re.DOTALL)
        assert [b.count("<li>") for b in boxes] == [len(ask["options"]) for ask in chosen]
        # the teacher finds a question by the number that the class reads
        asked = [f"{n}. {stop['title']}" for n, stop in enumerate(made["stops"], 1) if stop["ask"]]
        teachers = sheet(lesson.name, "teacher", TRACES)
        for heading in asked:
            assert page.count(f">{heading}<") == 2 and f">{heading}<" in teachers
    first = sheet("paged-kv", "learner", TRACES)
    held = "Step 4. Lanes: 3 of 5; Token budget: 63 of 96; KV blocks: 25 of 32 · 8 tokens each."
    assert held in first
    row = '<td><span class="chip">A</span></td><td>in lane 0</td><td>61</td><td>1</td><td>65</td>'
    assert row in first
    arrives = "<td>arrives in the next step</td><td>225</td>"
    assert arrives in sheet("long-prompt", "learner", TRACES)
    assert " The answer is 4." in sheet("ragged-batching", "learner", TRACES)


@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_on_a_sheet_is_to_be_pressed_or_pointed_at(language):
    """What a lesson says beside it is printed, up to the sentence and from the next one on."""
    told = [
        span["keys"]
        for lesson in LESSONS
        for stop in lesson_document(lesson, TRACES, language)["stops"]
        for spans in stop["text"]
        for span in spans
        if isinstance(span, dict) and "keys" in span
    ]
    assert len(told) == 5
    for lesson in LESSONS:
        for kind in KINDS:
            page = sheet(lesson.name, kind, TRACES, language)
            assert "#part=" not in page and not any(f"{keys} " in page for keys in told)
    kept = texts(language, "static-batching")["finished-rows"]["text"]
    nothing = re.search(r"(\w+ Pad [^.]*\.)", kept, re.IGNORECASE)[1]
    assert nothing in sheet("static-batching", "teacher", TRACES, language)


def test_a_picture_has_a_cell_for_every_position_that_was_computed():
    at = At(TRACES("brief-static"), TRACES("brief-static").events[-1].step)
    drawn = len(lanes_picture(at).findall("rect")) - at.config.num_lanes
    assert drawn == sum(
        len(e.segments) + len(p.finished_rows) for e in at.trace.events for p in e.passes
    )
    mask = at.trace.mask(at.step)
    assert (
        len([r for r in mask_picture(at).findall("rect") if r.get("fill") != "#fff"])
        == mask.num_allowed
    )
    assert not [r for r in mask_picture(at, blank=True).findall("rect") if r.get("fill") != "#fff"]


@pytest.mark.parametrize("run", ["brief-static", "gpt2-masks", "kv-pressure"])
def test_a_picture_lies_within_its_frame_and_may_be_blank_after_its_step(run):
    trace = TRACES(run)
    step = trace.events[len(trace.events) // 2].step
    at = At(trace, step)
    mask = trace.mask(step, len(at.event.passes) - 1)
    blank = lanes_picture(at, blank_after=True)
    for svg in (lanes_picture(at), blank, mask_picture(at)):
        width, height = map(float, svg.get("viewBox").split()[2:])
        for rect in svg.findall("rect"):
            x, y, wide, high = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
            assert min(x, y) >= 0 and x + wide <= width + 1 and y + high <= height + 1
        assert all(float(text.get("y")) <= height for text in svg.findall("text"))
    marked = float(blank.findall("path")[-1].get("d")[1:].split()[0])
    cells = [r for r in blank.findall("rect") if r.get("fill") != "none"]
    assert max(float(r.get("x")) + float(r.get("width")) for r in cells) == pytest.approx(
        marked, abs=0.2
    )
    assert len(cells) == sum(
        len(e.segments) + sum(len(p.finished_rows) for p in e.passes)
        for e in trace.events
        if e.step <= step
    )
    svg = mask_picture(at)
    legible = float(svg.find("rect").get("width")) >= 10
    assert len(svg.findall("text")) == legible * (len(mask.keys) + len(mask.queries))


def test_sheets_that_there_are_not_are_refused():
    for lesson, kind in (("static-batching", "poster"), ("nonsense", "teacher")):
        with pytest.raises(InflightError):
            sheet(lesson, kind, TRACES)
    with pytest.raises(InflightError):
        lesson_html("nonsense", TRACES)


def test_the_plan_fits_a_lesson_of_45_minutes():
    page = plan(TRACES)
    assert all(texts("en", lesson.name)["title"] in page for lesson in LESSONS)
    times = [tuple(map(int, one)) for one in re.findall(r"<td>(\d+)–(\d+) ", page)]
    assert [end - begin for begin, end in times] == [lesson.minutes for lesson in LESSONS]
    assert [begin for begin, _ in times] == [0, *(end for _, end in times[:-1])]
    assert times[-1][1] == 45


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_lesson_ends_in_a_task_whose_goals_the_recorded_run_does_not_meet(language):
    for lesson in LESSONS:
        *others, last = lesson.stops
        assert last.name == "now-you" and last.goals and not any(stop.goals for stop in others)
        found = check(lesson.name, TRACES(last.place.run), TRACES, language)
        assert [goal["name"] for goal in found] == list(last.goals)
        for goal in found:
            assert not goal["met"] and re.search(r"\d", plain(goal["says"])), (lesson.name, goal)


def test_a_run_of_other_requests_meets_no_goal_and_is_named_so():
    (goal,) = check("dynamic-scheduling", TRACES("one-request"), TRACES)
    assert not goal["met"] and "other requests" in plain(goal["says"])
    (hits,) = check("prefix-caching", TRACES("shared-prefix"), TRACES)  # smaller blocks, and hits
    assert (
        hits["met"]
        and {"n": str(metrics(TRACES("shared-prefix"))["cached_tokens"])} in hits["says"]
    )
    assert TRACES("shared-prefix").events[hits["step"]].kv.prefix_hits  # what the task asks to see
    with pytest.raises(InflightError):
        check("nonsense", TRACES("one-request"), TRACES)


def test_a_later_step_that_computes_more_than_one_token_is_told():
    """A prompt beyond the budget goes on in the second step."""
    made = record(EngineConfig(max_num_batched_tokens=16), request("r0", 18, 5))
    (longer,) = check("one-token", made, TRACES)
    assert longer["met"] and plain(longer["says"]).endswith(
        "Your first step computed 16; each later one computed 2 at most."
    )


def test_what_a_request_finds_of_its_own_after_a_preemption_is_no_hit_of_the_task():
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 64, "block_size": 2, "num_blocks": 8}
    apart = [request(f"r{i}", 3, 9, first=10 * i) for i in range(3)]
    made = record(EngineConfig(prefix_caching=True, **limits), *apart)
    assert metrics(made)["preemptions"] and metrics(made)["cached_tokens"]
    (hits,) = check("prefix-caching", made, TRACES)
    assert not hits["met"] and "newcomers found 0 tokens" in plain(hits["says"])


def test_a_run_without_a_step_is_no_answer_to_a_task():
    nothing = dataclasses.replace(TRACES("one-request"), events=[])
    for lesson in LESSONS:
        with pytest.raises(InflightError, match="This run has no steps") as refused:
            check(lesson.name, nothing, TRACES)
        assert str(refused.value) in catalogue("de")


def test_texts_speak_of_keys_or_of_fingers():
    at = At(TRACES("brief-static"), 0)
    spans = filled("<Press →|Tap the arrow> and watch {A}.", at, {}, "en")
    assert spans == [
        {"keys": "Press →", "touch": "Tap the arrow"},
        " and watch ",
        {"r": "A"},
        ".",
    ] and plain(spans).startswith("Press")
    for path in FOLDER.glob("*/*.toml"):
        for text in strings(texts(path.parent.name, path.stem)):
            rest = re.sub(r"<[^<>|]+\|[^<>|]+>", "", text)
            assert not re.search(
                r"→|[Pp]oint at|[Hh]over|arrow keys|Zeig auf|Pfeiltasten|[<>]", rest
            ), f"{path}: {text}"


def test_the_best_seating_has_the_shortest_longest_lane():
    """6, 3, 2 and 1 tokens on two lanes."""
    lengths = (("r0", 6), ("r1", 3), ("r2", 2), ("r3", 1))
    config = EngineConfig(max_num_seqs=2, block_size=4)
    made = record(config, *(request(name, 4, new) for name, new in lengths))
    assert best_steps(made) == 6 and best_seating(made) == [["r0"], ["r1", "r2", "r3"]]
