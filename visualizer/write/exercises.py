"""The cases of each exercise, and the check of an exercise in a browser tab's sandbox. That check
is for the visitor only, who could manipulate it. Its answer is that of `visualizer.write.attempt`,
with "case": the smallest that shows the fault.
"""

from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any

from visualizer.documents.replay import translated_replay
from visualizer.jobs.work import Going, Host, Work
from visualizer.write import cases
from visualizer.write.cases import Ask, Case, Result, here
from visualizer.write.code import MOST, Fault, told
from visualizer.write.masks import mask
from visualizer.write.pools import blocks
from visualizer.write.schedulers import continuous, static
from visualizer.write.tasks import CASES

EXERCISES: dict[str, Callable[[int], Sequence[Case]]] = {
    "static": static,
    "continuous": continuous,
    "mask": mask,
    "blocks": blocks,
}
SAYS = "{right} of {of}"


@cache
def cases_of(name: str, seed: int) -> Sequence[Case]:
    return EXERCISES[name](seed)


def checking(name: str, ask: Ask, seed: int = 0) -> Generator[int, None, Result]:
    """See `visualizer.write.cases`."""
    return cases.checking(cases_of(name, seed), ask)


class Check(Work):
    """task: the name of an exercise."""

    noun = "check"

    def __init__(self, task: str, code: object) -> None:
        self.task, self.code = task, code
        # unlike other work it has no spec of a run
        self.progress, self._last_news = {}, None

    def run(self, host: Host) -> Going:
        try:
            if not isinstance(self.code, str) or len(self.code) > MOST:
                raise Fault("An answer is text of at most 20,000 characters.")
            going = checking(self.task, here(self.code))
            return self._told((yield from self.followed(going, lambda count: {"cases": count})))
        except GeneratorExit:
            raise
        except BaseException as error:
            raise told(error) from None

    def failed(self, error: Exception) -> dict[str, Any]:
        """The answer for an error of the check itself."""
        return self._told(Result(0, 0, told(error)))

    def _told(self, result: Result) -> dict[str, Any]:
        fault, trace, case, replay = result.fault, result.trace, None, None
        says = SAYS.format(right=result.right, of=result.of) if result.of else None
        if result.lines:
            shown = ("lines", "expected", "got", "printed")
            case = {name: getattr(result, name) for name in shown}
        if trace is not None:
            replay = translated_replay(trace)
            # it has addresses, which the page does not accept from a sandbox
            replay["header"] = {k: v for k, v in replay["header"].items() if k != "cost"}
        return {
            "attempt": {
                "task": self.task,
                "replay": replay,
                "goals": [{"name": CASES, "met": fault is None, "says": says}],
                "help": None,
                "fault": None if fault is None else fault.to_json(),
                "case": case,
            }
        }
