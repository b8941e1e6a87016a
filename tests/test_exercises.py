"""The exercises: solutions are right, wrong answers are told why in words of the task, with a case to run by hand, and none can grade itself."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.trace.messages import key_of
from exercises import process
from exercises.__main__ import SOLUTIONS, main
from exercises.checks import EXERCISES, Result, cases_of, checking, here
from exercises.stubs import BLANK, stub
from visualizer.words.language import catalogue
from visualizer.write.exercises import ASKS, SAYS, exercises
from worlds.wrong_answers import ENDLESS, ENDS, HEAD, WRONG

RIGHT = SOLUTIONS.read_text(encoding="utf-8")
ROOT = BLANK.parent.parent
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def ended(going) -> Result:
    while True:
        try:
            next(going)
        except StopIteration as end:
            return end.value


def checked(name: str, code: str, seed: int = 0) -> Result:
    return ended(checking(name, here(code, "yours.py"), seed))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right_and_the_stub_is_not_written(name, seed):
    found = checked(name, RIGHT, seed)
    assert found.is_right and found.right == found.of == len(cases_of(name, seed)) >= 200
    assert (found.trace is not None) == (name in ("static", "continuous"))
    for blank in (BLANK.read_text(encoding="utf-8"), stub(name)):
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
        assert found.fault.expected is None or repr(got) != found.fault.expected


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
    assert (
        unseen.trace.complete
    )  # no run of this engine comes to a decoding request behind a prompt


def test_the_smallest_case_is_shown():
    found = checked("blocks", HEAD + WRONG["blocks"]["forgets release"][0])
    assert [line.split("(")[0] for line in found.lines] == [
        "pool = Blocks",
        "pool.grow",
        "pool.release",
        "pool.table",
    ]
    assert (found.fault.expected, str(found.fault)) == (
        "[]",
        "A gave its blocks back, and its table still has some.",
    )


# -- in a process of its own -------------------------------------------------------------------------------------------


def graded(folder: Path, code: str, *options: str) -> tuple[int, dict]:
    """As a course's own system does it."""
    (folder / "theirs.py").write_text(code, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "exercises",
        "--file",
        str(folder / "theirs.py"),
        "--json",
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def test_a_grade_is_json_with_the_documented_keys(tmp_path):
    code, grade = graded(tmp_path, RIGHT)
    readme = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `([\w.\[\]]+)`", readme.partition("## Grades")[2], re.MULTILINE))
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
        "import sys\nprint('{\"passed\": 4}')\nprint('{\"passed\": 4}', file=sys.__stdout__)\nsys.__stdout__.flush()\n",
        "import os\nfor fd in range(1, 9):\n    try:\n        os.write(fd, b'{\"passed\": 4}\\n')\n    except OSError:\n        pass\n",
        "import os\nos._exit(0)\n",
        "import atexit, os, sys\natexit.register(print, '{\"passed\": 4}')\nraise KeyboardInterrupt\n",
        "import json\njson.dumps = None\n",
        "import sys\nsys.modules['exercises.checks'] = sys\nfrom exercises.solutions import *\n",
        "import sys\nsys.path.insert(0, ROOT)\nfrom exercises.solutions import *\n",
        "import inspect\nframe = inspect.currentframe()\nwhile frame:\n    frame.f_globals.update(EXERCISES={}, checking=None, main=print)\n    frame = frame.f_back\n",
    ],
)
def test_a_file_cannot_grade_itself(attack, tmp_path):
    code, grade = graded(tmp_path, f"ROOT = {str(ROOT)!r}\n{attack}", "mask")
    assert code == 1 and grade["passed"] == 0 and grade["exercises"][0]["message"]


def test_what_was_learned_by_heart_fails_on_other_cases(tmp_path):
    known = {case.lines[0]: case.expected for case in cases_of("mask", 0)}
    code = f"{HEAD}KNOWN = {known!r}\n\n\ndef block_diagonal_mask(chunks):\n    return KNOWN['chunks = [' + ', '.join(f'Chunk(\"{{c.request}}\", start={{c.start}}, end={{c.end}})' for c in chunks) + ']']\n"
    assert graded(tmp_path, code, "mask")[0] == 0
    assert graded(tmp_path, code, "mask", "--seed", "7")[0] == 1


def test_a_loop_in_the_file_itself_is_stopped_too(monkeypatch):
    monkeypatch.setattr(process, "READING", 0.5)
    with process.Process(
        b"import time\nwhile True:\n    time.sleep(0.01)\n", "yours.py"
    ) as running:
        found = ended(checking("mask", running.ask))
    assert (
        re.search(r"Line [23] was still running after 0.5 seconds", str(found.fault))
        and found.right == 0
    )


def test_reading_the_file_does_not_count_as_computing():
    code = "import time\ntime.sleep(0.3)\n\n\ndef block_diagonal_mask(chunks):\n    pass\n"
    with process.Process(code.encode(), "yours.py") as running:
        assert (
            running.seconds == 0.0 and running.ask(["1 + 1"]).values == [2] and running.seconds > 0
        )


def test_a_loop_without_end_is_stopped_and_its_line_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(process, "SECONDS", 0.5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(HEAD + ENDLESS["mask"]["never ends"][0], encoding="utf-8")
    assert main(["mask"]) == 1
    said = capsys.readouterr().out
    assert re.search(
        r"Line [678] was still running after 0.5 seconds: is there a loop that never ends\?", said
    )
    assert (
        "chunks = [Chunk(" in said and "block_diagonal_mask(chunks)" in said
    )  # the case in which it was


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in ENDLESS.items() for title in titles]
)
def test_whatever_does_not_end_is_stopped(name, title, monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 0.7)
    code, words = ENDLESS[name][title]
    with process.Process((HEAD + code).encode(), "yours.py") as running:
        found = ended(checking(name, running.ask))
    assert words in str(found.fault) and found.lines
    assert running._process.poll() is not None


@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, titles in ENDS.items() for title in titles]
)
def test_what_ends_its_python_is_told(name, title):
    code, words = ENDS[name][title]
    with process.Process((HEAD + code).encode(), "yours.py") as running:
        assert words in str(ended(checking(name, running.ask)).fault)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
def test_what_an_answer_started_ends_with_it(tmp_path):
    code = (
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'a').write(f'{{child.pid}}\\n')\nraise ValueError\n"
    )
    assert graded(tmp_path, code, "mask")[0] == 1
    (pid,) = map(int, (tmp_path / "pid").read_text().split())
    until = time.monotonic() + 30
    while (
        Path(f"/proc/{pid}").exists()
        and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    ):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)


# -- the command -------------------------------------------------------------------------------------------------------


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
    (tmp_path / "yours.py").write_text(code)
    assert main(["static"]) == 1 and said in capsys.readouterr().out


def test_answers_are_those_of_this_folder_or_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["mask"])
    assert (
        capsys.readouterr().err
        == "There is no yours.py in this folder: `python -m exercises --begin` writes one.\n"
    )
    assert main(["--begin"]) == 0 and main(["mask"]) == 1
    (tmp_path / "yours.py").write_text(RIGHT)
    assert main(["mask"]) == 0 and "mask: right. 200 cases in " in capsys.readouterr().out
    (tmp_path / "other.py").write_text(RIGHT.replace("key <= position", "key < position"))
    assert (
        main(["mask", "--file", "other.py"]) == 1
        and "may look at itself" in capsys.readouterr().out
    )
    for refused in (
        ["--begin"],
        ["--file", "none.py"],
        ["--file", "other.py", "--solution"],
        ["masks"],
        ["--show", "."],
    ):
        with pytest.raises(SystemExit) as code:
            main(refused)
        assert code.value.code == 2
    refusals = capsys.readouterr().err.splitlines()
    assert refusals[0] == "There is a yours.py in this folder." and len(refusals) == 5


def test_the_command_shows_the_run(tmp_path, capsys):
    assert main(["static", "--solution", "--show", str(tmp_path / "run.html")]) == 0
    assert (
        "static: right." in capsys.readouterr().out
        and "exercise: static" in (tmp_path / "run.html").read_text()
    )
    (tmp_path / "unseen.py").write_text(
        HEAD + WRONG["continuous"]["decodes not first"][0], encoding="utf-8"
    )
    assert (
        main(
            [
                "continuous",
                "--file",
                str(tmp_path / "unseen.py"),
                "--show",
                str(tmp_path / "run.html"),
            ]
        )
        == 1
    )
    assert "no run comes to the last case above" in capsys.readouterr().out
    assert main(["mask", "--solution", "--show", str(tmp_path / "none.html")]) == 0
    assert (
        "none.html was not written: no scheduler ran." in capsys.readouterr().err
        and not (tmp_path / "none.html").exists()
    )


def test_a_case_is_seen_by_hand_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(HEAD + WRONG["continuous"]["past the lanes"][0])
    assert main(["continuous"]) == 1
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


# -- words -------------------------------------------------------------------------------------------------------------


def sentences() -> set[str]:
    """What the exercises say: first arguments of a fault, what is named `says`, and sentences that are constants."""
    found = set()
    for path in (ROOT / "exercises").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("fault", "Fault"):
                found.update(
                    each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)
                )
            elif (
                isinstance(node, ast.Assign)
                and isinstance(name := node.targets[0], ast.Name)
                and (name.id == "says" or name.id.isupper())
            ):
                found.update(
                    each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)
                )
    return {text for text in found if isinstance(text, str) and " " in text}


def test_every_sentence_has_its_german():
    said = sentences()
    told = {
        checked(name, HEAD + code).fault.says
        for name, titles in WRONG.items()
        for code, _ in list(titles.values())[:20]
    }
    assert said >= told and len(said) > 40
    said |= {
        text for task in exercises().values() for text in (task.title, task.says, task.before, ASKS)
    } | {SAYS.format(right=1, of=2)}
    assert not {key_of(text)[0] for text in said} - set(catalogue("de"))
