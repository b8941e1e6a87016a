"""The exercises: solutions are right, wrong answers are told why in words of the task, with a case
to run by hand, and none can grade itself.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.trace.messages import key_of
from visualizer.__main__ import main as run_command
from visualizer.words.language import catalogue
from visualizer.write import cases, process
from visualizer.write.answers import MOST_VALUES, _told
from visualizer.write.cases import AGAIN, CHANGED, NOTHING, Case, Result, called, here
from visualizer.write.code import Fault
from visualizer.write.exercises import EXERCISES, SAYS, Check, cases_of, checking
from visualizer.write.grade import Grade, ended
from visualizer.write.masks import ChunkInRow, _mask
from visualizer.write.masks import _wrong as _wrong_mask
from visualizer.write.pools import Op, Script, _Rules
from visualizer.write.schedulers import One, State, _wrong_continuous, _wrong_static
from visualizer.write.tasks import starting, tasks
from worlds.wrong_answers import ENDLESS, ENDS, GIVEN, HEAD, RIGHT, WRONG

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def main(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        run_command(["grade", *arguments])
    return left.value.code or 0


def checked(name: str, code: str, seed: int = 0) -> Result:
    return ended(checking(name, here(code), seed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right_and_the_stub_is_not_written(name, seed):
    found = checked(name, RIGHT, seed)
    assert found.is_right and found.right == found.of == len(cases_of(name, seed)) >= 200
    assert (found.trace is not None) == (name in ("static", "continuous"))
    for blank in (starting(EXERCISES), tasks()[name].code):
        assert str(checked(name, blank, seed).fault).startswith("Not written yet: line ")


@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in WRONG.items() for title in titles]
)
def test_a_wrong_answer_is_told_why_and_where_to_see_it(name, title):
    """Whatever the cases are; and who runs the lines of the case sees what it says."""
    code, words = WRONG[name][title]
    found = checked(name, HEAD + code)
    assert not found.is_right and words in str(found.fault), str(found.fault)
    assert not checked(name, HEAD + code, seed=1).is_right
    if found.got is not None:
        scope = {"__name__": "yours"}
        exec(compile(HEAD + code, "yours.py", "exec"), scope)
        for line in found.lines[:-1]:
            exec(line, scope)
        got = eval(found.lines[-1], scope)
        assert ADDRESS.sub("", repr(got)) == ADDRESS.sub("", found.got) or found.got.endswith(
            ("values", "itself")
        )
        assert found.expected is None or repr(got) != found.expected


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([None], None),
        ([None, 2, [1], 2], None),
        ([None, None, [1], 2], (1, NOTHING)),
        ([None, 3], (1, "too many")),
        ([None, 2, [9], 2], (2, CHANGED)),
        ([None, 2, [1], 3], (3, AGAIN)),
    ],
)
def test_a_case_names_the_line_whose_value_is_wrong(values, wrong):
    """The call, what is left of its arguments, or the same call once more."""
    case = called(
        ["a = [1]"], "f(a)", {"a": [1]}, 2, lambda got: Fault("too many") if got > 2 else None
    )
    assert case.lines == ("a = [1]", "f(a)", "a", "f(a)") and case.due == (None, "2", "[1]", "2")
    found = case.judge(values)
    assert wrong == (None if found is None else (found[0], str(found[1])))


def test_what_numpy_counts_and_decides_is_taken_as_python_takes_it():
    code = RIGHT.replace("def ", "import numpy\n\n\ndef ", 1).replace(
        "request == of and key <= position for",
        "numpy.bool_(request == of and key <= position) for",
    )
    assert code != RIGHT and checked("mask", code).is_right


def test_the_run_is_drawn_up_to_the_step_that_differs():
    late = checked("static", HEAD + WRONG["static"]["refills at once"][0])
    assert not late.trace.complete and "where the exercise differs" in late.trace.header.notes[0]
    unseen = checked("continuous", HEAD + WRONG["continuous"]["decodes not first"][0])
    # no run of this engine comes to a decoding request behind a prompt
    assert unseen.trace.complete


def test_a_run_that_comes_out_of_a_sandbox_names_no_address():
    """Its cost model would: whence its numbers are."""
    found = ended(Check("static", RIGHT).run(None))["attempt"]
    header = found["replay"]["header"]
    assert found["fault"] is None and header["source"] == "simulated"
    assert "http" in json.dumps(checked("static", RIGHT).trace.header.cost)
    assert "cost" not in header and "http" not in json.dumps(found["replay"])


def test_an_answer_is_text_of_as_many_characters_as_is_said():
    for code in (f"{RIGHT}{'#' * (20_001 - len(RIGHT))}", 7, None):
        with pytest.raises(Fault, match="An answer is text of at most 20,000 characters"):
            ended(Check("static", code).run(None))
    whole = ended(Check("static", f"{RIGHT}{'#' * (20_000 - len(RIGHT))}").run(None))
    assert whole["attempt"]["fault"] is None


@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        ("10**4400", "int with thousands of digits", "int with thousands of digits"),
        ("[[]] * (MOST_VALUES + 1)", "list of more than", "list of more than"),
        ("x = []\nx.append(x)\nx", "list that contains itself", "list that contains itself"),
        ("{1, 2}", "set", "{1, 2}"),
        ("type('Odd', (), {'__repr__': lambda self: 1 / 0})()", "Odd", "a Odd"),
        ("0.5", "float", "0.5"),
    ],
)
def test_what_is_no_plain_value_is_told_by_its_type(code, name, text):
    *lines, last = code.split("\n")
    scope: dict[str, Any] = {"__name__": "yours", "MOST_VALUES": MOST_VALUES}
    exec("\n".join(lines), scope)
    found = _told(eval(last, scope))
    assert set(found) == {"is", "repr"}
    assert found["is"].startswith(name) and found["repr"].startswith(text)


def test_the_smallest_case_is_shown():
    found = checked("blocks", HEAD + WRONG["blocks"]["forgets release"][0])
    assert [line.split("(")[0] for line in found.lines] == [
        "pool = Blocks",
        "pool.grow",
        "pool.release",
        "pool.table",
    ]
    assert (found.expected, str(found.fault)) == (
        "[]",
        "A gave its blocks back, and its table still has some.",
    )


def test_what_code_prints_does_nothing_to_a_terminal():
    printed = "\x1b[2J\tit’s “right”"
    said = Grade("mask", Result(0, 9, Fault("It is not."), printed=printed), 0.0).said()
    assert said == "mask: It is not.\n    It printed:\n    | \\x1b[2J\\tit’s “right”\n"


# -- in a process of its own -----------------------------------------------------------------------


def graded(folder: Path, code: str, *options: str) -> tuple[int, dict]:
    """As a course's own system does it."""
    (folder / "theirs.py").write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "inflight",
        "grade",
        str(folder / "theirs.py"),
        "--json",
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_grade_is_json_with_the_documented_keys(tmp_path):
    code, grade = graded(tmp_path, RIGHT)
    readme = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `([\w.\[\]]+)`", readme.partition("## The grade")[2], re.MULTILINE))
    keys = {*grade, *(f"exercises[].{key}" for key in grade["exercises"][0])}
    assert (
        code == 0
        and grade["passed"] == grade["of"] == 4
        and [e["name"] for e in grade["exercises"]] == list(EXERCISES)
    )
    assert all(
        e["seconds"] > 0 and e["cases"] == e["of"] and e["case"] is None for e in grade["exercises"]
    )
    code, grade = graded(
        tmp_path, RIGHT.replace("-(-positions //", "(positions //"), "blocks", "static"
    )
    assert (
        code == 1
        and [e["passed"] for e in grade["exercises"]] == [False, True]
        and grade["passed"] == 1
    )
    keys |= {f"exercises[].case.{key}" for key in grade["exercises"][0]["case"]}
    assert said == keys and f"`{grade['schema']}`" in readme


@pytest.mark.parametrize(
    "attack",
    [
        (
            "import sys\nprint('{\"passed\": 4}')\nprint('{\"passed\": 4}',"
            " file=sys.__stdout__)\nsys.__stdout__.flush()\n"
        ),
        (
            'import os\nfor fd in range(1, 9):\n    try:\n        os.write(fd, b\'{"passed":'
            " 4}\\n')\n    except OSError:\n        pass\n"
        ),
        "import os\nos._exit(0)\n",
        (
            "import atexit, os, sys\natexit.register(print, '{\"passed\": 4}')\nraise"
            " KeyboardInterrupt\n"
        ),
        "import json\njson.dumps = None\n",
        (
            "import sys\nsys.modules['visualizer.write.cases'] = sys\n"
            "from visualizer.write.schedulers import *\n"
        ),
        "import sys\nsys.path.insert(0, ROOT)\nfrom visualizer.write.schedulers import *\n",
        (
            "import inspect\nframe = inspect.currentframe()\nwhile frame:\n   "
            " frame.f_globals.update(EXERCISES={}, checking=None, main=print)\n    frame ="
            " frame.f_back\n"
        ),
    ],
)
def test_a_file_cannot_grade_itself(attack, tmp_path):
    code, grade = graded(tmp_path, f"ROOT = {str(ROOT)!r}\n{attack}\n{GIVEN}", "mask")
    assert code == 1 and grade["passed"] == 0 and grade["exercises"][0]["message"]


@pytest.mark.slow
def test_what_was_learned_by_heart_fails_on_other_cases(tmp_path):
    known = {case.lines[0]: ast.literal_eval(case.due[1]) for case in cases_of("mask", 0)}
    code = (
        f"{HEAD}KNOWN = {known!r}\n\n\ndef block_diagonal_mask(chunks):\n    return KNOWN['chunks ="
        " [' + ', '.join(f'Chunk(\"{c.request}\", start={c.start}, end={c.end})' for c in"
        " chunks) + ']']\n"
        f"{GIVEN}"
    )
    assert graded(tmp_path, code, "mask")[0] == 0
    assert graded(tmp_path, code, "mask", "--seed", "7")[0] == 1


def test_a_loop_in_the_file_itself_is_stopped_too(monkeypatch):
    monkeypatch.setattr(process, "READING", 0.5)
    with process.Process(b"import time\nwhile True:\n    time.sleep(0.01)\n") as running:
        found = ended(checking("mask", running.ask))
    assert (
        re.search(r"Line [23] was still running after 0.5 seconds", str(found.fault))
        and found.right == 0
    )


def test_what_code_reads_and_writes_past_python_is_no_part_of_the_answers():
    """A library in C may write so, too."""
    code = (
        b"import os\nread = os.read(0, 9)\nf = lambda: os.write(1, b'2\\n') and read.decode()\nf()"
    )
    with process.Process(code) as running:
        assert [running.ask([line]).values for line in ("f()", "1 + 1")] == [[""], [2]]


def test_reading_the_file_does_not_count_as_computing():
    code = "import time\ntime.sleep(0.3)\n\n\ndef block_diagonal_mask(chunks):\n    pass\n"
    with process.Process(code.encode()) as running:
        assert (
            running.seconds == 0.0 and running.ask(["1 + 1"]).values == [2] and running.seconds > 0
        )


def test_cases_that_take_too_long_together_are_counted_as_far_as_they_came(monkeypatch):
    """The third is asked when the time of all is over."""
    monkeypatch.setattr(process, "_GRACE", 0.0)
    with process.Process(b"import time\n") as running:
        for _ in range(2):
            assert running.ask(["1 + 1"]).values == [2]
        running.seconds = process.SECONDS
        over = running.ask(["time.sleep(60)"]).ended
    assert str(over) == "It takes too long: 2 cases took 5 seconds."


def test_a_loop_without_end_is_stopped_and_its_line_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(process, "SECONDS", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(HEAD + ENDLESS["mask"]["never ends"][0], encoding="utf-8")
    assert main(["yours.py", "mask"]) == 1
    said = capsys.readouterr().out
    assert re.search(
        r"Line [678] was still running after 0.5 seconds: is there a loop that never ends\?", said
    )
    # the case in which it was
    assert "chunks = [Chunk(" in said and "block_diagonal_mask(chunks)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in ENDLESS.items() for title in titles]
)
def test_whatever_does_not_end_is_stopped(name, title, monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 0.7)
    cases_of(name, 0)
    code, words = ENDLESS[name][title]
    with process.Process((HEAD + code).encode()) as running:
        found = ended(checking(name, running.ask))
    assert words in str(found.fault) and found.lines
    assert running._process.poll() is not None


@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in ENDS.items() for title in titles]
)
def test_what_ends_its_python_is_told(name, title):
    code, words = ENDS[name][title]
    with process.Process((HEAD + code).encode()) as running:
        assert words in str(ended(checking(name, running.ask)).fault)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_what_an_answer_started_ends_with_it(tmp_path):
    code = (
        "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time;"
        f" time.sleep(600)'])\nopen({str(tmp_path / 'pid')!r},"
        " 'a').write(f'{child.pid}\\n')\nraise ValueError\n"
    )
    assert graded(tmp_path, code, "mask")[0] == 1
    (pid,) = map(int, (tmp_path / "pid").read_text().split())
    until = time.monotonic() + 30
    while (
        Path(f"/proc/{pid}").exists()
        and "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2]
    ):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "def schedule_static(waiting, running, lanes):\n    return waiting[0].prompt\n",
            "Line 2 raised AttributeError",
        ),
        ("def schedule_static(waiting, running, lanes):\n    print('seen', lanes)\n", "| seen 1"),
        ("", "There is no schedule_static in the file."),
        (
            "def schedule_static(waiting, running, lanes)\n",
            "The file cannot be read, line 1: SyntaxError: expected ':'",
        ),
        ("import nothing_of_that_name\n", "The file cannot be read, line 1: ModuleNotFoundError"),
    ],
)
def test_code_that_breaks_is_told_where(code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(f"{code}\n{GIVEN}")
    assert main(["yours.py", "static"]) == 1 and said in capsys.readouterr().out


def test_a_file_is_begun_and_graded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["mine.py", "mask"]) == 2 and "no file mine.py" in capsys.readouterr().err
    assert main(["mine.py", "--start"]) == 0 and main(["mine.py"]) == 1
    assert "grade mine.py" in (said := capsys.readouterr().out)
    assert said.count("Not written yet") == 4 == len(EXERCISES)
    (tmp_path / "mine.py").write_text(RIGHT)
    assert main(["mine.py", "mask"]) == 0
    assert "mask: right. 200 cases in " in capsys.readouterr().out
    (tmp_path / "other.py").write_text(RIGHT.replace("key <= position", "key < position"))
    assert main(["other.py", "mask"]) == 1
    assert "may look at itself" in capsys.readouterr().out
    for refused in (
        ["mine.py", "--start"],
        ["none.py"],
        ["new.py", "masks", "--start"],
        ["mine.py", "masks"],
        ["mine.py", "--html", "mine.py"],
    ):
        assert main(refused) == 2
    refusals = capsys.readouterr().err.splitlines()
    assert refusals[0] == "There is a file mine.py already." and len(refusals) == 5
    assert "there are arrival, " in refusals[2] and not (tmp_path / "new.py").exists()
    assert (tmp_path / "mine.py").read_text() == RIGHT


def test_the_command_shows_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RIGHT)
    assert main(["mine.py", "static", "--html", "run.html"]) == 0
    assert "static: right." in capsys.readouterr().out
    assert "exercise: static" in (tmp_path / "run.html").read_text()
    # of several the last one that came to a run
    assert main(["mine.py", "static", "continuous", "mask", "--html", "run.html"]) == 0
    shown = (tmp_path / "run.html").read_text()
    assert "exercise: continuous" in shown and "exercise: static" not in shown
    capsys.readouterr()
    code = HEAD + WRONG["continuous"]["decodes not first"][0]
    (tmp_path / "unseen.py").write_text(code, encoding="utf-8")
    assert main(["unseen.py", "continuous", "--html", "run.html"]) == 1
    assert "no run comes to the last case above" in capsys.readouterr().err
    assert main(["mine.py", "mask", "--html", "none.html"]) == 0
    assert "none.html was not written: there was no run." in capsys.readouterr().err
    assert not (tmp_path / "none.html").exists()


def test_a_case_is_seen_by_hand_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(HEAD + WRONG["continuous"]["past the lanes"][0])
    assert main(["yours.py", "continuous"]) == 1
    said = capsys.readouterr().out
    assert "paste its lines into `python -i yours.py`" in said
    lines = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    typed = subprocess.run(
        [sys.executable, "-i", "yours.py"],
        input="\n".join(lines) + "\n",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    (got,) = [line.removeprefix("# got").strip() for line in lines if line.startswith("# got")]
    assert typed.stdout.strip() == got


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_sentence_has_its_german():
    said = {text for name, text in vars(cases).items() if name.isupper() and isinstance(text, str)}
    said |= set(cases.sentences().values())
    told = {
        checked(name, HEAD + code).fault.says
        for name, titles in WRONG.items()
        for code, _ in list(titles.values())[:20]
    }
    tree = ast.parse(Path(process.__file__).read_text(encoding="utf-8"))
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    said |= {
        text for text in strings if isinstance(text, str) and re.match("(It|Line) .*[.?]$", text)
    }
    assert said >= told and len(said) > 40
    for name in EXERCISES:
        task = tasks()[name]
        said |= {task.title, task.says, task.before, *task.asks.values()}
    said.add(SAYS.format(right=1, of=2))
    assert not {key_of(text)[0] for text in said} - set(catalogue("de"))


def test_every_sentence_is_said_somewhere():
    """And what is said by name has its sentence."""
    names = set()
    for module in ("schedulers", "masks", "pools"):
        path = Path(cases.__file__).with_name(f"{module}.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {node.value} if isinstance(node, ast.Constant) else set()
    assert not set(cases.sentences()) - names


def test_the_fault_of_a_plan_names_who_is_concerned_and_what_was_left():
    """R decodes; P and Q wait, who have 4 and 5 tokens."""
    waiting, running = [One("P", 4, 0), One("Q", 5, 0), One("S", 1, 0)], [One("R", 3, 2)]

    def told(lanes: int, budget: int, plan: dict, found: dict) -> dict[str, str]:
        fault = _wrong_continuous(State(waiting, running, lanes, budget), plan, found)
        assert fault is not None
        return fault.holes

    asked = {"R": 1, "P": 4}
    assert told(2, 16, asked, asked | {"Q": 5}) == {"request": "Q", "lanes": "2", "count": "2"}
    left = {"request": "Q", "left": "3", "due": "3", "count": "0"}
    assert told(3, 8, asked | {"Q": 3}, asked) == left
    passed = {"request": "S", "other": "P"}  # whoever came first of those that it passes
    assert told(4, 16, asked | {"Q": 5, "S": 1}, {"R": 1, "S": 1}) == passed


P, Q, S = One("P", 4, 0), One("Q", 5, 0), One("S", 1, 0)
DECODES, READS = One("R", 3, 2), One("T", 6, 2)
WAVE, CALM = State([P, Q, S], [], 2, 4), State([P], [DECODES], 2, 4)
MIXED = State([P, Q], [READS, DECODES], 4, 9)  # 9: one, four, and four of P
NARROW = State([P, Q], [DECODES], 2, 8)


@pytest.mark.parametrize(
    ("judge", "state", "plan", "found", "said"),
    [
        (_wrong_static, WAVE, {"P": 4, "Q": 5}, {"P": 4, "Q": 5, "S": 0}, None),
        (_wrong_static, WAVE, {"P": 4, "Q": 5}, {"P": 4, "Q": 5, "S": 1}, "lanes (3, and 2)"),
        (_wrong_static, WAVE, {"P": 4, "Q": 5}, {"P": 4, "S": 1}, "S joins before Q"),
        (_wrong_static, WAVE, {"P": 4, "Q": 5}, {"P": 4}, "Q waits, no wave runs"),
        (_wrong_static, WAVE, {"P": 4, "Q": 5}, {"P": 3, "Q": 5}, "at once: 4, not 3"),
        (_wrong_static, CALM, {"R": 1}, {"R": 1, "P": 0}, None),
        (_wrong_static, CALM, {"R": 1}, {"R": 1, "P": 4}, "no wave while R still runs"),
        (_wrong_static, CALM, {"R": 1}, {"R": 2}, "in every step, not 2"),
        (_wrong_static, CALM, {"R": 1}, {"P": 0}, "in every step, not 0"),
        (_wrong_static, CALM, {"R": 1}, {"R": 1, "Q": 0}, "It names Q"),
        (_wrong_static, CALM, {"R": 1}, {"R": 1, "P": -1}, "P computes -1 positions"),
        (_wrong_static, CALM, {"R": 1}, {"R": True}, "R computes True positions"),
        (_wrong_static, CALM, {"R": 1}, {3: 1}, "of type int"),
        (_wrong_static, CALM, {"R": 1}, ["R"], "of type list"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"R": 1, "P": 4, "Q": 0}, None),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, ["R"], "of type list"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"R": 2, "P": 4}, "R has 1 left"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"P": 4, "Q": 5}, "9, which is over"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"P": 4, "Q": 4}, "lanes: 2, held: 2"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"P": 4}, "R decodes"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"R": 1, "Q": 5}, "Q is admitted before P"),
        (_wrong_continuous, NARROW, {"R": 1, "P": 4}, {"R": 1, "P": 3}, "7 of the budget are left"),
        (_wrong_continuous, MIXED, {"R": 1, "T": 4, "P": 4}, {"R": 1, "T": 4, "P": 4}, None),
        (_wrong_continuous, MIXED, {"R": 1, "T": 4, "P": 4}, {"T": 4, "P": 4}, "R decodes"),
        (_wrong_continuous, MIXED, {"R": 1, "T": 4, "P": 4}, {"R": 1}, "4 here, not 0"),
        (_wrong_continuous, MIXED._replace(budget=1), {"R": 1}, {"R": 1}, None),
        (_wrong_continuous, MIXED, {"R": 1, "T": 4, "P": 4}, {"R": 1, "T": 3}, "4 here, not 3"),
        (
            _wrong_continuous,
            MIXED,
            {"R": 1, "T": 4, "P": 4},
            {"R": 1, "T": 4},
            "it computes 4, not",
        ),
    ],
)
def test_what_is_said_of_a_plan(judge, state, plan, found, said):
    """P, Q and S wait, R decodes, and four positions of T's prompt are left."""
    fault = judge(state, plan, found)
    assert fault is None if said is None else said in str(fault), str(fault)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("1100 1110 0001", None),
        (
            "110 111 000",
            "columns in row 0: 3; one for each key, the cached ones included, would be 4",
        ),
        ("11000 11100 00010", "columns in row 0: 5"),
        ("1100 1110", "Number of rows: 2; one for each position that is computed now would be 3"),
        ("110 110 010 001", "Rows and columns are swapped"),
        ("1000 0110 0111", "Its chunks are in another order"),
        ("0011 0111 1000", "Its columns are in another order"),
        ("1110 1100 0001", "Its rows are in another order"),
        ("1101 1110 0001", "Position 1 of A must not look at key 0 of B: that is another request"),
        ("1110 1110 0001", "Position 1 of A must not look at key 2 of A, which comes later"),
        ("1000 1110 0001", "Position 1 of A may look at itself"),
        ("1100 1010 0001", "Position 2 of A may look at key 1 of A: it is its own, and earlier"),
        ("1100 1110 0011", "Position 0 of B must not look at key 2 of A"),
        ("1100 1210 0001", "Row 1 has a value of type int in column 1"),
    ],
)
def test_what_is_said_of_a_mask(rows, said):
    """Positions 1 and 2 of A, whose first is cached, and the first of B."""
    chunks = [ChunkInRow("A", 1, 3), ChunkInRow("B", 0, 1)]
    fault = _wrong_mask(chunks, _mask(chunks), [list(map(int, row)) for row in rows.split()])
    assert fault is None if said is None else said in str(fault), str(fault)


@pytest.mark.parametrize(
    ("found", "said"), [({}, "type dict"), ([[1], "10"], "row 1 is of type str")]
)
def test_what_is_no_mask(found, said):
    assert said in str(_wrong_mask([], _mask([ChunkInRow("A", 0, 1)]), found))


def test_the_fault_of_a_pool_is_that_of_its_latest_calls():
    """Two blocks of two positions."""
    rules = _Rules(2, 2)

    def call(kind: Any, name: str, number: int = 0) -> Op:
        rules.call(op := Op(kind, name, number))
        return op

    call("grow", "A", 4), call("grow", "A", 1), call("spoil", "A")
    assert rules._wrong_length("A", 2, 1) == "the caller's list"
    call("release", "A")
    again = call("grow", "A", 2)
    assert rules._wrong_length("A", 1, 0) == "length of a table"  # all that was before is over
    # a refusal is that of blocks that were given back, and nothing at all is none
    refused, nothing = (rules.wrong(again, True, value) for value in (False, None))
    assert refused is not None and refused.holes["other"] == "A"
    assert nothing is not None and "other" not in nothing.holes
    call("grow", "A", 3), call("grow", "A", 1)
    lengths = [rules._wrong_length("A", 2, count) for count in (1, 3)]
    assert lengths == ["took away", "length of a table"]
    # a slot tells its block, but for one that no block has
    slot = call("slot", "A", 1)
    odd = rules.wrong(slot, None, 2)
    assert odd is not None and odd.holes["offset"] == "1" and odd.expected is None
    assert rules.wrong(slot, None, 3) is None
    wrong = rules.wrong(slot, None, 2)
    assert wrong is not None and wrong.expected == "3"
    call("grow", "B", 1)
    assert rules._wrong_length("A", 1, 2) == "refused"


def script(calls: str) -> Case:
    """Calls such as `grow A 3, table A`, on two blocks of two positions."""
    ops = (call.split() for call in calls.split(", "))
    return Script(2, 2, tuple(Op(kind, name, *map(int, n)) for kind, name, *n in ops)).case()


@pytest.mark.parametrize(
    ("calls", "values", "said"),
    [
        ("grow A 4, table A, grow B 1, table B", [True, [1, 0], False, []], None),
        ("grow A 1, table A", [True], None),  # and then it raised
        ("grow A 4", [False], "A lacks: 2; blocks that are free: 2. So `grow` must return True"),
        ("release A, grow B 4", [None, False], "blocks that are free: 2. So"),
        (
            "grow A 2, release A, grow B 2, release B, grow C 4",
            [True, None, True, None, False],
            "since B gave its own back: 2",
        ),
        ("grow A 4", [1], "must return True, not 1"),
        ("grow A 5", [True], "A lacks: 3; blocks that are free: 2. So `grow` must return False"),
        ("grow A 2, grow A 1", [True, False], "A has the blocks for this already"),
        (
            "grow A 4, release A, grow B 4",
            [True, None, False],
            "free, since A gave its own back: 2",
        ),
        (
            "grow A 2, grow B 4, table B",
            [True, False, [1]],
            "the table of B was 0, and is 1 now",
        ),
        (
            "grow A 2, table A, grow B 4, table A",
            [True, [0], False, [0, 1]],
            "the table of A was 1, and is 2 now",
        ),
        ("grow A 2, grow A 6, table A", [True, False, [0, 1]], "was 1, and is 2 now"),
        ("grow A 2, table A", [True, [0, 1]], "asked for (2) in blocks of 2 takes 1"),
        ("grow A 2, release A, table A", [True, None, [0]], "A gave its blocks back"),
        ("table A", [[0]], "A holds nothing"),
        (
            "grow A 4, grow A 1, table A",
            [True, True, [0]],
            "A keeps the blocks that it has: `grow`",
        ),
        ("grow A 4, grow A 4, table A", [True, True, [0]], "asked for (4) in blocks of 2 takes 2"),
        ("grow A 1, table A, spoil A, table A", [True, [0], None, []], "is the caller's"),
        ("grow A 1, table A", [True, 0], "a value of type int, not a list"),
        ("grow A 1, table A", [True, [2]], "only blocks 0 to 1, and the table of A has 2"),
        ("grow A 1, table A", [True, [-1]], "only blocks 0 to 1"),
        (
            "grow A 3, table A, table A",
            [True, [0, 1], [1, 0]],
            "block 0 of its table was 0, and is 1",
        ),
        ("grow A 3, table A", [True, [0, 0]], "Block 0 was handed out twice, both times to A"),
        ("grow A 1, table A, grow B 1, table B", [True, [0], True, [0]], "twice, to A and to B"),
        ("grow A 1, table A, release A, grow B 1, table B", [True, [0], None, True, [0]], None),
        ("grow A 3, table A, slot A 2", [True, [1, 0], 0], None),
        ("grow A 3, table A, slot A 2", [True, [1, 0], 1], "its slot is 0, not 1"),
        ("grow A 3, slot A 1", [True, 3], None),
        ("grow A 3, slot A 1", [True, 2], "offset 1 of a block of 2: its slot is not 2"),
    ],
)
def test_what_is_said_of_a_pool(calls, values, said):
    found = script(calls).judge([None, *values])
    assert (found is None) == (said is None)
    if found and said:
        assert found[0] == len(values) and said in str(found[1]), str(found[1])


@pytest.mark.parametrize(
    ("calls", "without"),
    [("table B, grow A 3, grow A 2, slot A 2, table A", [4, 3, 2, 0]), ("grow A 1, slot A 0", [1])],
)
def test_a_smaller_script_asks_only_for_slots_that_are_there(calls, without):
    """The slot of position 2 needs the call that asks for three."""
    lines = script(calls).lines
    smaller = [case.lines for case in script(calls).smaller()]
    assert smaller == [lines[: at + 1] + lines[at + 2 :] for at in without]
    assert not [*script("table A").smaller()]
