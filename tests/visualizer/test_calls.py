"""What a page may ask for by name: each call with arguments of its types and no others, whoever
answers it.
"""

from __future__ import annotations

import math

import pytest

from visualizer.jobs.calls import answered
from visualizer.jobs.limits import Refused

FUNCTIONS = {
    name: lambda *args: {"given": args} for name in ("state", "export", "export_ranks", "attention")
}


def test_what_may_be_left_out_at_the_end_is_none():
    assert answered(FUNCTIONS, "state", [])["given"] == ()
    assert answered(FUNCTIONS, "export", ["html", "run"])["given"] == ("html", "run", None)
    assert answered(FUNCTIONS, "export", ("html", "run", 3))["given"] == ("html", "run", 3)
    assert answered(FUNCTIONS, "export_ranks", ["run", None, 1, 0.5])["given"] == (
        "run",
        None,
        1,
        0.5,
    )


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("state", [None]),
        ("state", None),
        ("state", {}),
        ("export", "ab"),
        ("export", ["html"]),
        ("export", ["html", 7]),
        ("export", ["html", "run", True]),
        ("export", ["html", "run", 2**53]),
        ("export", ["html", "run", 1.0]),
        ("export", ["html", "run", 1, None]),
        ("export_ranks", ["run", 1, 0, math.nan]),
        ("export_ranks", ["run", 1, 0, -math.inf]),
        ("attention", ["run", 1, 0, 0]),
    ],
)
def test_arguments_of_other_types_reach_nobody(name, args):
    with pytest.raises(Refused, match=rf"^A call of {name} is given \("):
        answered(FUNCTIONS, name, args)


@pytest.mark.parametrize("name", ["nonsense", "upload", "x" * 1000])
def test_what_nobody_answers_here_is_refused_in_few_words(name):
    with pytest.raises(Refused, match="^There is nothing called '.* to ask for here") as refused:
        answered(FUNCTIONS, name, [])
    assert len(str(refused.value)) < 100
