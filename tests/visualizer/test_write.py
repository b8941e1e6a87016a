"""Tasks of Write: a solution reaches the goals of each, where it begins does not, typical mistakes
get their help, and what is wrong names its line or step.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from core.config import ASSETS, POLICIES, EngineConfig
from core.errors import InflightError
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.events import UNRECORDED, Preempted, Sampled, Stalled, Waiting
from core.trace.messages import english, key_of
from core.workload.workload import Workload
from visualizer.browser.answers import Answers
from visualizer.words import language
from visualizer.words.language import catalogue
from visualizer.write import attempt as attempts
from visualizer.write import code as written_code
from visualizer.write import policy_answers, process
from visualizer.write.answers import MOST_PRINTED, Printed
from visualizer.write.cases import AGAIN, Reply
from visualizer.write.grade import Grade, _is_of, graded, judged
from visualizer.write.measures import MEASURES
from visualizer.write.tasks import PolicyTask, tasks
from worlds.by_hand import event
from worlds.visual import record, request

TASKS = {name: task for name, task in tasks().items() if isinstance(task, PolicyTask)}
PROMISED = """\
        promised = sum(capacity.blocks_for(r.max_num_tokens) for r in capacity.held)
        need = capacity.blocks_for(request.max_num_tokens)
        if promised + need > capacity.num_blocks:
            return LimitReached("blocks", capacity.num_blocks - promised, need, capacity.num_blocks)
        return super().admit(request, capacity)
"""
BARRIER = """\
        if capacity.wave:
            return LimitReached("barrier", capacity.wave, 0, capacity.num_lanes)
"""
ALONE = "    mixed_batches: bool = False\n    whole_prompts: bool = True\n"
KEY, VICTIM = "return request.num_prompt_tokens", "return candidates[0]"


class Characters:
    """A token a character; an engine that is simulated knows nothing else of them."""

    unk_token = unk_token_id = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) % 65 for c in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "a" * len(ids)


@pytest.fixture(autouse=True)
def _policies() -> Iterator[None]:
    before = dict(POLICIES)
    yield
    POLICIES.clear()
    POLICIES.update(before)


def _engine(
    model: str, config: EngineConfig, leaks: bool = False, sleep: object = None
) -> SimulatedEngine:
    return SimulatedEngine(
        cost_named("h100:8b"), config, Characters(), vocab_size=65, max_model_len=256
    )


def job(task: str, code: str, **how: Any) -> list[dict[str, Any]]:
    return [
        d
        for d in Answers(_engine).begin("policy", {"task": task, "code": code, **how})
        if d is not None
    ]


def attempt(task: str, code: str) -> dict[str, Any]:
    return job(task, code)[-1]["attempt"]


def changed(task: str, *pairs: tuple[str, str]) -> str:
    code = TASKS[task].code
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return code


def admits(body: str) -> str:
    """The policy of `promise` with another body of `admit`."""
    return TASKS["promise"].code.split("        need =")[0] + textwrap.indent(
        textwrap.dedent(body), " " * 8
    )


SOLVED = {
    "arrival": [changed("arrival", ("-request.num_prompt_tokens", "request.arrival_index"))],
    "refill": [changed("refill", (BARRIER, ""))],
    "shortest": [
        changed("shortest", (KEY, f"{KEY} + 12 * request.arrival_index")),
        changed(
            "shortest",
            ('"shortest prompt first"\n', '"shortest prompt first"\n    aging: int = 8\n'),
        ),
    ],
    "victim": [
        changed("victim", (VICTIM, "return min(candidates, key=lambda r: r.num_computed_tokens)"))
    ],
    "promise": [
        admits(PROMISED),
        changed("promise", ('"mine"\n', '"mine"\n    reserve: str = "output"\n')),
    ],
    "budget": [
        changed("budget", ("256", "32"), (ALONE, "")),
        changed("budget", ("256", "24"), (ALONE, "")),
    ],
}
MISTAKEN = [
    ("arrival", changed("arrival", ("-request", "request")), "The smallest key joins first"),
    (
        "refill",
        changed("refill", ("if capacity.wave", "if capacity.running")),
        "`capacity.running` has everybody",
    ),
    (
        "refill",
        changed("refill", ("if capacity.wave", "if len(capacity.running) > 2")),
        "A lane was free",
    ),
    (
        "shortest",
        changed("shortest", (KEY, f"{KEY} + 4 * request.arrival_index")),
        "let the arrival count for more",
    ),
    ("shortest", changed("shortest", (KEY, "return request.arrival_index")), "Nobody starves, but"),
    (
        "victim",
        changed("victim", (VICTIM, "return candidates[-1]")),
        "compare the candidates' `num_computed_tokens`",
    ),
    ("promise", admits("return super().admit(request, capacity)"), "Somebody still had to leave"),
    (
        "promise",
        admits(
            "return LimitReached('policy') if capacity.running else"
            " super().admit(request, capacity)"
        ),
        "lanes stay empty",
    ),
    ("budget", changed("budget", (ALONE, "")), "Every token waits for the whole step"),
    ("budget", changed("budget", ("256", "16"), (ALONE, "")), "smaller than it needs to be"),
    ("budget", changed("budget", ("256", "32")), "`mixed_batches` says"),
]


@pytest.mark.parametrize(
    ("task", "code"), [(task, code) for task, codes in SOLVED.items() for code in codes]
)
def test_a_solution_reaches_every_goal(task, code):
    found = attempt(task, code)
    assert found["fault"] is None and found["help"] is None
    assert all(goal["met"] for goal in found["goals"]), found["goals"]
    assert found["replay"]["complete"] and len(found["replay"]["letters"]) == len(
        TASKS[task].requests
    )


def test_blocks_that_a_policy_has_promised_are_told_as_reserved():
    """Not as free, beside a picture in which more are."""
    replay = attempt("promise", admits(PROMISED))["replay"]
    told = {True: set[str](), False: set[str]()}
    for caption, step in zip(replay["captions"], replay["events"], strict=True):
        if why := step["waiting"].why:
            free = step["kv"].total - step["kv"].used
            told[why.have == free].add(caption["waits"].partition(",")[0])
    assert "all but 8 of 18 KV blocks are reserved for others" in told[False]
    assert told[True] == {f"{n} of 18 KV blocks are free" for n in (4, 8, 10)}
    assert not any("free" in said for said in told[False])


def test_a_reason_whose_numbers_keep_nobody_out_is_refused():
    told = PROMISED.replace("capacity.num_blocks - promised, need", "capacity.blocks_free, need")
    fault = attempt("promise", admits(told))["fault"]
    assert fault["says"] == "This breaks a rule that every run keeps: {why}"
    assert fault["holes"]["why"] == (
        "the head of the queue is said to wait for “blocks”, but needs 11 and 14 are left."
    )


@pytest.mark.parametrize("task", TASKS)
def test_where_a_task_begins_runs_and_is_said_to_be_unchanged(task):
    found = attempt(task, TASKS[task].code)
    assert found["fault"] is None and not all(goal["met"] for goal in found["goals"])
    assert found["help"].startswith("This is still the code that you were given")
    assert set(SOLVED) == set(TASKS)


def test_blanks_and_empty_lines_make_no_other_code():
    code = TASKS["promise"].code.replace("\n", " \n\n", 3) + "\n"
    assert attempt("promise", code)["help"].startswith("This is still the code that you were given")


@pytest.mark.parametrize(("task", "code", "says"), MISTAKEN)
def test_a_typical_mistake_gets_its_help(task, code, says):
    found = attempt(task, code)
    assert found["fault"] is None and says in found["help"]


def test_what_is_shown_before_the_first_run_does_not_tell_the_requests():
    for task in TASKS.values():
        shown = task.to_json()
        assert set(shown) == {"name", "title", "says", "code", "goals", "kind", "before"}
        assert all(request.prompt[:12] not in str(shown) for request in task.workload)
        assert len(task.code.splitlines()) <= 20


# -- faults ----------------------------------------------------------------------------------------


def fault(task: str, code: str) -> tuple[str, int | None, int | None, int]:
    """The sentence, the line, the step, and how many steps are drawn."""
    found = attempt(task, code)
    assert not any(goal["met"] or goal["says"] for goal in found["goals"]) and found["help"] is None
    said = found["fault"]
    events = found["replay"]["events"] if found["replay"] else []
    if events:
        note = found["replay"]["header"]["notes"][-1]
        assert not found["replay"]["complete"] and said["says"].format(**said["holes"]) in note
    return said["says"].format(**said["holes"]), said["line"], said["step"], len(events)


def test_an_exception_names_its_line_and_the_step_up_to_which_is_drawn():
    says, line, step, drawn = fault(
        "promise", admits("if capacity.running:\n    return requst\nreturn None")
    )
    assert says == "Line 13 raised NameError: name 'requst' is not defined"
    assert (line, step, drawn) == (13, 2, 3)
    says = fault("arrival", changed("arrival", ("-request.num_prompt_tokens", "request.came")))[0]
    lacks = "Line 13 raised AttributeError: 'RequestState' object has no attribute 'came'; it has "
    assert says.startswith(f"{lacks}arrival_index, block_table, ") and ", _" not in says
    says = fault("arrival", changed("arrival", ("-request.num_prompt_tokens", "(1).came")))[0]
    assert says == "Line 13 raised AttributeError: 'int' object has no attribute 'came'"
    assert fault("arrival", "x = = 1")[:2] == ("Line 1 is not Python: invalid syntax.", 1)
    assert fault("arrival", "import os\nos.nope")[1] == 2


def test_time_that_is_up_names_the_line_that_was_running():
    assert (
        "Line 2 was still running"
        in fault("arrival", "while True:\n    raise KeyboardInterrupt")[0]
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1", "There is no policy here"),
        (
            changed("promise", ("@dataclass(frozen=True, kw_only=True)\n", "")),
            "`Mine` needs the line `@dataclass",
        ),
        (f"limits = {{'max_num_seqs': 9}}\n{TASKS['promise'].code}", "its limits stay as they are"),
        (changed("promise", ('"mine"', '"continuous"')), "give yours a name of its own"),
        (
            changed("shortest", ("shortest prompt first", "shortest")),
            "`arrival` and `shortest` are the words for the engine's own orders",
        ),
        ("#" * 20_001, "at most 20,000 characters"),
        ("#" * 20_000, "There is no policy here"),
        (f"limits = 64\n{TASKS['promise'].code}", "`limits` gives limits by name"),
    ],
)
def test_code_that_is_no_policy_is_refused_in_a_sentence(code, says):
    assert says in fault("promise", code)[0]


def test_the_last_policy_of_a_file_is_the_one_that_runs():
    """The one before may be what it builds on; one that is imported is not its own."""
    first, last = (
        f"@dataclass(frozen=True, kw_only=True)\nclass {name}(Policy):\n    name: str = {name!r}\n"
        for name in ("First", "Last")
    )
    head = "from dataclasses import dataclass\n"
    imported = "from core.policy import Policy as Another\n"
    for code, name in (
        (first + last, "Last"),
        (last + first, "First"),
        (first + imported, "First"),
    ):
        made = written_code.written(f"from core.policy import Policy\n{head}{code}").policy
        assert type(made).__name__ == name


def test_limits_are_the_tasks_but_for_those_that_it_is_about():
    assert (
        "not max_num_seqs"
        in fault("budget", changed("budget", ("max_num_batched_tokens", "max_num_seqs")))[0]
    )
    assert "cannot serve 6 lanes" in fault("budget", changed("budget", ("256", "2")))[0]


WITHOUT_BUDGET = "class Mine(Policy):\n    token_budget: bool = False\n"


def test_a_policy_cannot_lift_the_budget_of_a_task_unless_it_is_what_it_is_about():
    """Without a budget whole prompts are read at once, so that first come, first served would do
    for the task "shortest".
    """
    for name in TASKS:
        code = changed(name, ("class Mine(Policy):\n", WITHOUT_BUDGET))
        if name == "budget":
            assert attempt(name, code)["fault"] is None
            continue
        assert fault(name, code)[0] == (
            "This task has a token budget: leave `token_budget` as it is."
        )


def test_a_setting_without_a_type_is_told_to_have_no_effect():
    code = TASKS["shortest"].code.replace("\n    def", "\n    aging = 8\n\n    def")
    assert fault("shortest", code)[0] == (
        "`aging` needs a type after it, as in `aging: int = 8`: without one it has no effect."
    )


def test_a_limit_that_there_is_not_is_named():
    says = fault("refill", changed("refill", (BARRIER, "        return LimitReached('hungry')\n")))[
        0
    ]
    assert "it answers `admit` for 'r0' with limit 'hungry'; it must be None" in says


def test_an_answer_that_cannot_be_followed_is_shown_where_it_was_given():
    says, _, step, drawn = fault("victim", changed("victim", (VICTIM, "return None")))
    assert "lets None give way" in says and step == 9 and drawn == 10
    says, _, step, drawn = fault(
        "promise", admits("return LimitReached('policy') if request.id == 'r5' else None")
    )
    assert (
        "Nobody can go on: 0 running, 3 waiting, and none is ever served." in says
        and step == drawn - 1
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "for other in capacity.running:\n    request.block_table = other.block_table\n"
            "return None",
            "too few blocks",
        ),
        (
            "if len(capacity.running) > 1:\n    capacity.running.pop()\nreturn None",
            "neither computed nor stalled",
        ),
        ("request.max_num_tokens = request.num_tokens + 1\nreturn None", "has not come to its end"),
    ],
)
def test_a_policy_that_tampers_breaks_a_rule_at_a_step(body, says):
    found, _, step, drawn = fault("promise", admits(body))
    assert (
        says in found
        and found.startswith("This breaks a rule that every run keeps")
        and step is not None
        and drawn
    )


def test_a_budget_that_is_exceeded_is_a_broken_rule():
    code = changed(
        "arrival",
        (
            "    def order",
            "    def admit(self, request, capacity):\n        return None\n\n    def order",
        ),
    )
    lies = "import core.policy\nimport core.scheduler.passes as passes\n" + code
    lies = lies.replace(
        "return None",
        "passes._first_chunk.__globals__['_compute'] = self.more\n        return None",
    )
    more = (
        "\n    def more(self, run, state, count, plan):\n        run.grow(state,"
        " state.num_uncomputed_tokens)\n        plan.append((state.held_lane, state,"
        " state.num_uncomputed_tokens))\n"
    )
    import core.scheduler.passes as passes

    kept = passes._compute
    try:
        says, _, step, drawn = fault("arrival", lies + more)
    finally:
        passes._compute = kept
    assert "a rule that every run keeps" in says and "budget" in says and step is not None and drawn


def test_a_task_that_is_not_there_is_refused():
    with pytest.raises(InflightError, match="There is no task"):
        job("nothing", "")


# -- graded from a file ----------------------------------------------------------------------------


def grade(task: str, code: str) -> Grade:
    (found,) = graded([task], code.encode())
    return found


@pytest.mark.parametrize("task", TASKS)
def test_a_solution_passes_and_where_a_task_begins_does_not(task):
    begun = grade(task, TASKS[task].code).to_json()
    assert not begun["passed"] and begun["cases"] < begun["of"] == len(TASKS[task].goals)
    assert "{" not in begun["message"] and begun["case"] is begun["line"] is None
    solved = grade(task, SOLVED[task][0])
    assert solved.to_json()["passed"] and solved.result.trace.complete, solved.said()


@pytest.mark.parametrize(
    ("code", "line", "says"),
    [
        (changed("arrival", ("-request.num_prompt_tokens", "1 / 0")), 13, "ZeroDivisionError"),
        ("def (", 1, "is not Python"),
        ("x = 1", None, "There is no policy here"),
        ("import os\nos._exit(0)\n", None, "ended the Python"),
        ("raise SystemExit", 1, "SystemExit"),
        (SOLVED["refill"][0] + "\nlimits = {'max_num_seqs': 9}\n", None, "stay as they are"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(code, line, says):
    found = grade("arrival", code).to_json()
    assert not found["passed"] and found["line"] == line and says in found["message"]


def test_a_policy_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 0.7)
    code = changed("arrival", ("return -request.num_prompt_tokens", "while True: pass"))
    assert "Line 13 was still running" in str(grade("arrival", code).result.fault)


ENGINE = "from visualizer.write import attempt, policy_answers\n"


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        ("policy_answers.PolicyAnswers.to = lambda self, lines: {}", ""),
        (
            "attempt.Attempt.trace = property(lambda self: None, lambda self, trace: None)",
            "",
        ),
        ("attempt.Checker = None", ""),
        ("from visualizer.write import measures\nmeasures.MEASURES.clear()", ""),
        ("attempt.task_named = None\nimport os\nos.write(3, b'{}')", ""),
    ],
)
def test_a_policy_cannot_grade_itself(attack, says):
    found = grade("arrival", f"{ENGINE}{attack}\n{TASKS['arrival'].code}").to_json()
    assert not found["passed"] and says in found["message"]


RAISED = {"type": "E", "why": "", "line": 1, "missing": None, "is_reading": False}
REPLY = {"values": [1], "raised": RAISED, "printed": ["a"]}


@pytest.mark.parametrize(
    ("text", "is_reply"),
    [
        (json.dumps(REPLY), True),
        (json.dumps(REPLY | {"raised": None}), True),
        *((json.dumps({k: v for k, v in REPLY.items() if k != part}), False) for part in REPLY),
        (json.dumps(REPLY | {"values": 1}), False),
        (json.dumps(REPLY | {"raised": {"why": ""}}), False),
        (json.dumps(REPLY | {"raised": RAISED | {"is_reading": 0}}), False),
        (json.dumps([REPLY]), False),
        pytest.param("[" * 100_000, False, id="too deep"),
    ],
)
def test_a_reply_has_all_its_parts_in_their_forms(text, is_reply):
    with nullcontext() if is_reply else pytest.raises(ValueError):
        assert Reply.of(text).values == [1]


def test_a_policy_that_is_right_by_chance_is_run_once_more(tmp_path):
    """Here in every second process; one that meets the goals each time may do so anyhow."""
    turn = f"open({str(tmp_path / 'turns')!r}, 'a+')"
    said = f"""
with {turn} as turns:
    turns.seek(0)
    runs = len(turns.read()) + turns.write("x")
"""
    late = "    def admit(self, request, capacity):\n        if runs % 2 and capacity.running:\n"
    late += "            return LimitReached('policy', 0, 1, 1)\n"
    late += "        return super().admit(request, capacity)\n"
    code = "from inflight import LimitReached\n" + said + SOLVED["arrival"][0] + late
    lucky = grade("arrival", code)
    assert str(lucky.result.fault) == AGAIN and not lucky.to_json()["passed"]
    steady = grade("arrival", code.replace("runs % 2", "False"))
    assert steady.to_json()["passed"]


def test_the_run_of_another_task_is_none_of_this_one():
    other = grade("refill", SOLVED["refill"][0]).result.trace
    reply = Reply([list(other.lines()), None, None])
    assert judged(TASKS["refill"], reply).is_right
    assert "something else" in str(judged(TASKS["arrival"], reply).fault)
    lines = list(other.lines())
    halved = replace(other, complete=False)
    switched = replace(other.config, chunked_prefill=not other.config.chunked_prefill)
    unlike = replace(other, header=replace(other.header, config=switched))
    for one in (halved, unlike):
        again = Reply([list(one.lines()), None, None])
        assert "something else" in str(judged(TASKS["refill"], again).fault)
    cut = Reply([lines[:-3] + lines[-2:], None, None])
    assert "no run" in str(judged(TASKS["refill"], cut).fault)
    measured = replace(other, header=replace(other.header, source="recorded"))
    assert _is_of(TASKS["refill"], other) and not _is_of(TASKS["refill"], measured)
    for nonsense in ([], [1, 2], [5, None, None], [[], None, None], ["x", None, None]):
        assert not judged(TASKS["refill"], Reply(nonsense)).is_right


def test_a_run_in_which_requests_fail_or_come_early_or_limits_go_is_of_something_else():
    """As code could make it that changes the engine around its policy."""
    for change in (
        "import core.simulate.engine as S\nS.TOKEN = S.Sample(None, 0.0, 0.0)",
        "import core.engine.arrivals as A\n"
        "def take_due(self, now):\n"
        "    while self.first is not None:\n"
        "        yield self.take(self.first.id)\n"
        "A.FutureRequests.take_due = take_due",
        "import visualizer.write.tasks as T\nT.PolicyTask.is_within = lambda task, config: True\n"
        "from core.policy import Policy\n"
        "Policy.__dataclass_fields__['token_budget'].default = False",
    ):
        found = grade("refill", f"{change}\n{SOLVED['refill'][0]}").to_json()
        assert not found["passed"] and "something else" in found["message"]


@pytest.mark.parametrize("what", ["the same", "later", "shorter"])
def test_a_run_whose_requests_came_later_or_were_shorter_is_of_something_else(what: str):
    """As a process could make it that tells of the task's requests and runs others."""
    task = TASKS["refill"]
    first, *others = task.workload
    others_asked = {"later": replace(first, arrival=1), "shorter": first.of_tokens([5])}
    run = policy_answers._engine(task.config("continuous")).run(
        Workload([others_asked.get(what, first), *others], task.workload.name)
    )
    told = {one.id: run.asked[one.id]._replace(request=one) for one in task.workload}
    found = judged(task, Reply([list(replace(run, asked=told).lines()), None, None]))
    assert "no run" not in str(found.fault)
    assert ("something else" in str(found.fault)) == (what != "the same")


# -- beside continuous -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_policy_is_measured_in_turns_with_continuous():
    *progress, last = job("refill", SOLVED["refill"][0], beside=True)
    document = last["comparison"]
    assert document["names"] == ["continuous", "mine"] and set(document["runs"]) == {
        "continuous",
        "mine",
    }
    assert len(document["walls"]["mine"]) == 7 and document["title"] == TASKS["refill"].title
    assert any("index" in delta["progress"] for delta in progress)


def test_a_policy_that_fails_beside_it_says_so():
    assert "ZeroDivisionError" in str(
        job("arrival", changed("arrival", ("-request.num_prompt_tokens", "1 / 0")), beside=True)[-1]
    )


def test_a_run_of_too_many_steps_is_stopped_unless_the_last_one_ends_it(monkeypatch):
    code = SOLVED["refill"][0]
    steps = len(attempt("refill", code)["replay"]["events"])
    monkeypatch.setattr(attempts, "MOST_STEPS", steps)
    assert attempt("refill", code)["fault"] is None
    monkeypatch.setattr(attempts, "MOST_STEPS", steps - 1)
    found = attempt("refill", code)
    beside = job("refill", code, beside=True)[-1]["attempt"]
    for one in (found, beside):
        assert one["fault"]["says"] == "After 1,000 steps not all requests are done."
    assert len(found["replay"]["events"]) == steps - 1


def test_what_a_policy_prints_is_shown():
    printing = changed("shortest", (KEY, f"print(request.id)\n        {KEY}"))
    assert attempt("shortest", printing)["printed"].split()[:3] == ["r0", "r1", "r2"]
    assert attempt("shortest", TASKS["shortest"].code)["printed"] == ""
    failing = changed("shortest", (KEY, "print('before')\n        1 / 0"))
    assert attempt("shortest", failing)["printed"] == "before\n"
    assert "    | before" in grade("shortest", failing).said()


# -- words -----------------------------------------------------------------------------------------


def test_a_grade_is_told_in_german(monkeypatch):
    monkeypatch.setattr(language, "missing_keys", missing := set())
    with language.speaking("de"):
        begun = grade("arrival", TASKS["arrival"].code)
        solved = grade("arrival", changed("arrival", ("-request.num_prompt_tokens", "None")))
        said = begun.said()
        assert "Niemand kommt vor" in said and "höchstens: 6." in said and "wachsen" in said
        assert solved.said().startswith("arrival: richtig. 1 Ziel in 0,")
        assert begun.to_json()["message"] in said
    assert not missing


def test_every_sentence_has_its_german():
    said = [
        text
        for task in TASKS.values()
        for text in (
            task.title,
            task.says,
            task.to_json()["before"],
            *(goal.asks for goal in task.goals),
            *(h.says for h in task.help),
        )
    ]
    said += [measure.says.format(n="3") for measure in MEASURES.values()]
    missing = {key_of(text)[0] for text in said} - set(catalogue("de"))
    assert not missing
    assert all("[" not in english(text) for text in said)
    assert written_code.MOST == 20_000


@pytest.mark.slow
def test_the_editor_is_what_its_script_makes_of_the_locked_packages(tmp_path):
    vendor = ASSETS / "vendor"
    if not (ASSETS.parent / "node_modules" / "esbuild").exists():
        (pytest.fail if os.environ.get("INFLIGHT_REQUIRE_NODE") else pytest.skip)(
            "`npm ci` brings esbuild and CodeMirror."
        )
    subprocess.run(["node", vendor / "build.js", tmp_path], check=True, timeout=120)
    for name in ("codemirror.js", "codemirror.txt"):
        # Not by `assert`: pytest would tell the difference of two such lines for minutes.
        if (tmp_path / name).read_bytes() != (vendor / name).read_bytes():
            pytest.fail(f"{name} differs; `node assets/vendor/build.js` makes it anew.")


A, B, C = request("a", 3, 4), request("b", 9, 2, arrival=1), request("c", 3, 1, arrival=2)
FIRST = dict(overtaken=0, recomputed=0, preempted=0, stalled=0)


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        # A in steps 0 to 3, then B in two, then C in one; B and C wait from steps 1 and 2 on
        (
            EngineConfig(max_num_seqs=1),
            (A, B, C),
            dict(steps=7, empty=0, alone=5, first_token=3.3, largest=1),
        ),
        (
            EngineConfig("shortest-first", max_num_seqs=1),
            (A, B, C),
            dict(steps=7, empty=0, alone=4, first_token=3.0, largest=1, overtaken=1),
        ),
        # the second of two lanes is empty until A's wave is over
        (
            EngineConfig("static", max_num_seqs=2),
            (A, request("b", 9, 1, arrival=1)),
            dict(steps=5, empty=3, alone=3, first_token=2.5, largest=1),
        ),
        (
            EngineConfig(max_num_seqs=2),
            (A, B),
            dict(steps=4, empty=0, alone=0, first_token=1.0, largest=10),
        ),
        (
            EngineConfig(max_num_seqs=2),
            (request("a", 3, 1),),
            dict(steps=1, empty=0, alone=0, first_token=1.0, largest=0),
        ),
    ],
)
def test_what_a_task_asks_for_is_counted_by_hand(config, asked, expected):
    trace = record(config, *asked)
    assert {name: measure.of(trace) for name, measure in MEASURES.items()} == FIRST | expected


def test_who_never_joined_was_overtaken_and_nobody_waits_in_no_step():
    trace = record(EngineConfig("shortest-first", max_num_seqs=1), A, B, C)
    for events, overtaken, waited in ((trace.events[:5], 1, 2.0), ([], 0, 0.0)):
        cut = replace(
            trace, events=events
        )  # B has no token yet, and C got its first in three steps
        assert MEASURES["overtaken"].of(cut) == overtaken
        assert MEASURES["first_token"].of(cut) == waited


def test_who_has_begun_to_write_and_gets_no_token_is_stalled_until_it_gives_way():
    """Three times; the lane of whoever stalls is not empty, and b waits beside it at last."""
    got, gone = (Sampled(0, "a", 7, None, None),), (Preempted("a", 3, 0),)
    stands = {"stalled": (Stalled("a", UNRECORDED),)}
    steps = [stands, {"sampled": got}, stands, {"preempted": gone}, stands, {"sampled": got}]
    steps += [stands, stands | {"waiting": Waiting(1, "b", UNRECORDED)}]
    events = [event(step, **facts) for step, facts in enumerate(steps)]
    trace = replace(record(EngineConfig(max_num_seqs=2), A), events=events)
    assert [MEASURES[name].of(trace) for name in ("stalled", "empty", "alone")] == [3, 1, 1]


def test_of_what_code_prints_the_beginning_is_kept_each_time():
    printed = Printed()
    for _ in range(2):
        for piece in ("a" * (MOST_PRINTED - 3), "bcdef", "g"):
            assert printed.write(piece) == len(piece)
        assert printed.taken() == "a" * (MOST_PRINTED - 3) + "bcd …"
    printed.write("a" * MOST_PRINTED)
    assert printed.taken() == "a" * MOST_PRINTED
