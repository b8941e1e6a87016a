"""The coding exercises as tasks of Write: the code is a function instead of a policy, checked case by case as `python -m exercises` does it, and here in
the sandbox: what it grades itself is its writer's affair.

    {"attempt": {"task", "replay", "goals", "help", "fault", "case"}}   as `visualizer.write.attempt`; case: the smallest that shows what is wrong
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from core.trace.trace import Trace
from exercises.checks import Result, checking, here
from exercises.replies import Ask, Reply
from exercises.replies import Fault as Wrong
from exercises.stubs import stub
from visualizer.jobs.work import Going, Host, Work
from visualizer.write.attempt import drawn
from visualizer.write.code import FILE, MOST, Fault, told
from visualizer.write.tasks import told as told_in_file

_GOAL = "cases"
ASKS = "The right answer in every case."
SAYS = "{right} of {of}"


@dataclass(frozen=True)
class Exercise:
    """See `assets/write/tasks.toml`."""

    name: str
    title: str
    says: str
    before: str

    def to_json(self) -> dict[str, Any]:
        """What the page shows before the first check."""
        shown = {"name": self.name, "title": self.title, "says": self.says, "code": stub(self.name)}
        return shown | {
            "goals": [{"name": _GOAL, "asks": ASKS}],
            "kind": "exercise",
            "before": self.before,
        }


@cache
def exercises() -> dict[str, Exercise]:
    return {one["name"]: Exercise(**one) for one in told_in_file()["exercise"]}


class Check(Work):
    """spec: {"task": an exercise, "code"}."""

    noun = "check"

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.exercise, self.code = exercises()[spec["task"]], spec.get("code", "")
        self.progress, self._last_news = (
            {},
            None,
        )  # it is not about one run, which the spec of other work describes

    def run(self, host: Host) -> Going:
        try:
            if not isinstance(self.code, str) or len(self.code) > MOST:
                raise Fault("An answer is text of at most 20,000 characters.")
            going = checking(self.exercise.name, _stoppable(here(self.code, FILE)))
            while True:
                try:
                    self.progress = {"cases": next(going)}
                except StopIteration as end:
                    return {"attempt": self._told(end.value)}
                yield
        except GeneratorExit:
            raise
        except BaseException as error:
            raise told(error) from None

    def failed(self, error: Exception) -> dict[str, Any]:
        """What ended the check itself."""
        return {"attempt": self._attempt(told(error).to_json())}

    def _told(self, result: Result) -> dict[str, Any]:
        wrong, says = result.fault, SAYS.format(right=result.right, of=result.of)
        if wrong is None:
            return self._attempt(None, says=says, replay=_drawn(result.trace))
        case = None
        if result.lines:
            case = {
                "lines": list(result.lines),
                "expected": wrong.expected,
                "got": result.got,
                "printed": result.printed,
            }
        return self._attempt(
            _fault(wrong, result), says=says, replay=_drawn(result.trace), case=case
        )

    def _attempt(
        self, fault: dict[str, Any] | None, says: str | None = None, **more: Any
    ) -> dict[str, Any]:
        goals = [{"name": _GOAL, "met": fault is None, "says": says}]
        return {
            "task": self.exercise.name,
            "replay": None,
            "goals": goals,
            "help": None,
            "fault": fault,
            "case": None,
            **more,
        }


def _stoppable(ask: Ask) -> Ask:
    """Its time is over in an answer: that is the last, and the case is shown."""

    def asked(lines: Sequence[str]) -> Reply:
        try:
            return ask(lines)
        except KeyboardInterrupt as error:
            over = told(error)
            return Reply(ended=Wrong(over.says, line=over.line, holes=over.holes))

    return asked


def _drawn(trace: Trace | None) -> dict[str, Any] | None:
    """Without what its times were computed from: that names addresses, which the page takes from no sandbox."""
    if trace is None:
        return None
    document = drawn(trace)
    return document | {
        "header": {name: value for name, value in document["header"].items() if name != "cost"}
    }


def _fault(wrong: Wrong, result: Result) -> dict[str, Any]:
    """With the step of the run that is drawn, if that ends where it differs."""
    step = (
        result.trace.events[-1].step
        if result.trace is not None and not result.trace.complete
        else None
    )
    return {"says": wrong.says, "line": wrong.line, "step": step, "holes": dict(wrong.holes)}
