"""The exercises: solutions are right, wrong answers are told where and why, nothing written is said to be so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from exercises import solutions, yours
from exercises.__main__ import main
from exercises.checks import EXERCISES
from exercises.given import RequestProgress


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_is_right_and_the_stub_is_not_written(name):
    assert EXERCISES[name](solutions).fault is None
    with pytest.raises(NotImplementedError):
        EXERCISES[name](yours)


def refills_at_once(waiting: list[RequestProgress], running: list[RequestProgress], lanes: int) -> dict[str, int]:
    return {r.id: r.left for r in (*running, *waiting[: lanes - len(running)])}


def prompts_first(waiting, running, lanes, budget):
    return solutions.schedule_continuous(
        waiting, [r for r in running if not r.decodes] + [r for r in running if r.decodes], lanes, budget - 1
    )


def not_causal(chunks):
    return [
        [query.request == key.request for key in chunks for _ in range(key.end)]
        for query in chunks
        for _ in range(query.start, query.end)
    ]


class HandsOutTwice(solutions.Blocks):
    def release(self, request):
        self.free += self.tables.get(request, [])


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("static", {"schedule_static": refills_at_once}, "the engine computes"),
        ("continuous", {"schedule_continuous": prompts_first}, "a budget of"),
        ("mask", {"block_diagonal_mask": not_causal}, "must not look at key"),
        ("blocks", {"Blocks": HandsOutTwice}, "needs 0 blocks"),
    ],
)
def test_a_wrong_answer_is_told_where_it_goes_wrong(name, answer, words):
    found = EXERCISES[name](SimpleNamespace(**answer))
    assert words in found.fault
    assert found.trace is None or not found.trace.complete


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "def schedule_static(waiting, running, lanes):\n    return waiting[0].prompt\n",
            "it raised AttributeError in line 2 of yours.py",
        ),
        ("def schedule_static(waiting, running, lanes): pass\n", "It returned None, not the number of positions by request"),
        ("", "there is no schedule_static in yours.py."),
    ],
)
def test_code_that_breaks_is_told_where(code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yours.py").write_text(code)
    assert main(["static"]) == 1 and said in capsys.readouterr().out


def test_answers_are_those_of_this_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--begin"]) == 0 and main(["mask"]) == 1
    mine = tmp_path / "yours.py"
    mine.write_text(mine.read_text() + "\n\nfrom exercises.solutions import block_diagonal_mask  # noqa\n")
    assert main(["mask"]) == 0 and main(["blocks"]) == 1
    with pytest.raises(SystemExit):
        main(["--begin"])
    assert "there is a yours.py" in capsys.readouterr().err


def test_the_command_checks_and_shows_the_run(tmp_path, capsys):
    assert main(["static", "--solution", "--show", str(tmp_path / "run.html")]) == 0
    assert "static: right." in capsys.readouterr().out and "exercise: static" in (tmp_path / "run.html").read_text()
    assert main(["mask"]) == 1 and "not written yet" in capsys.readouterr().out
