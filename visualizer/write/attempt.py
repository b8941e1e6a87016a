"""An attempt at a task: runs the visitor's policy on the task's requests, checks each step against
the rules of every run, and measures the result. It must run where the code can do no harm: see
`assets/engine/sandbox.js`.

    {"attempt": {"task", "replay", "goals", "help", "fault", "printed"}}   the answer of `Attempt`;
        fault: the error, its line and its step, where the replay ends
    {"comparison": a document}   the answer of `Beside`, if the policy ran without a fault
"""

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.measure.compare import comparing, engine_contender, environment
from core.trace.events import StepEvent
from core.trace.rules.checker import Checker
from core.trace.trace import Trace
from core.workload.workload import Workload
from visualizer.documents.comparison import Shown, document
from visualizer.documents.replay import translated_replay
from visualizer.jobs.limits import Limits, Spec
from visualizer.jobs.work import Going, Host, Work
from visualizer.write.answers import Printed
from visualizer.write.code import Fault, told, written
from visualizer.write.tasks import MODEL, PolicyTask

MOST_STEPS = 1000  # no task needs a fifth of it
BASELINE = "continuous"
_ROUNDS = 7  # many, since the runs are short and three could agree by chance
_STEP = re.compile(r"^step \d+: ")


class Attempt(Work):
    """One run of the visitor's code."""

    noun = "trial"

    def __init__(self, task: PolicyTask, code: object, limits: Limits) -> None:
        self.task, self.code = task, code
        config = self.task.config(BASELINE)
        super().__init__(Spec(self.task.workload, config, MODEL, "cpu"), limits)
        self.trace: Trace | None = None
        self.printed = Printed()

    def run(self, host: Host) -> Going:
        for step in self.steps_taken(partial(host.engine, self.spec)):
            self.progress = {"step": step}
            yield
        return {"attempt": self._report(self.trace, None)}

    def steps_taken(self, made: Callable[[EngineConfig], EngineCore]) -> Iterator[int]:
        """The number of each step as it ends. Raises Fault if the code is wrong, breaks a rule,
        raises, or takes too many steps. The output of the code is kept.
        """
        with contextlib.redirect_stdout(self.printed):
            yield from self._steps_taken(made)

    def _steps_taken(self, made: Callable[[EngineConfig], EngineCore]) -> Iterator[int]:
        engine = made(configured(self.task, self.code))
        number: int | None = None
        try:
            turns = engine.turns(self.spec.workload)
            self.trace = trace = engine.trace
            number, checker = 0, Checker(trace.header)
            for one in trace.asked.values():
                checker.fault_of_request(one.request, one.prompt)
            for event in turns:
                if event is None:
                    continue
                number = event.step
                if broken := checker.fault(event):
                    says = "This breaks a rule that every run keeps: {why}"
                    raise Fault(says, None, number, why=_STEP.sub("", broken))
                yield number
                number += 1
                if len(trace.events) >= MOST_STEPS and engine.has_work:
                    raise Fault("After 1,000 steps not all requests are done.", None, number)
        except GeneratorExit:
            raise
        except BaseException as error:
            raise told(error, number) from None

    def failed(self, error: Exception) -> dict[str, Any]:
        """The answer for an error; a fault shows the run up to it."""
        if not isinstance(error, Fault):
            return super().failed(error)
        trace = self.trace if self.trace is not None and self.trace.events else None
        if trace and error.step is not None:  # it may have failed while deciding the next step
            error.step = min(error.step, trace.events[-1].step)
        return {"attempt": self._report(trace, error)}

    def _report(self, trace: Trace | None, fault: Fault | None) -> dict[str, Any]:
        return report(self.task, self.code, trace, fault) | {"printed": self.printed.taken()}


class Beside(Attempt):
    """Compares the policy with `continuous` in timed turns. The answer has an attempt, as above,
    only if the policy has a fault.
    """

    noun = "comparison"

    def run(self, host: Host) -> Going:
        try:
            own = configured(self.task, self.code)
            configs = {BASELINE: self.task.config(BASELINE), own.policy.name: own}
            engines = {name: host.engine(self.spec, config) for name, config in configs.items()}
            timed = partial(self._timed, host)
            contenders = [
                engine_contender(e, self.spec.workload, partial(timed, e), name)
                for name, e in engines.items()
            ]
            where = environment(engines[BASELINE].trace.header)
            turns = comparing(contenders, _ROUNDS)
            result = yield from self.followed(
                turns, lambda turn: {"index": turn.index, "total": turn.total}
            )
        except GeneratorExit:
            raise
        except BaseException as error:
            raise told(error) from None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        workload, title = self.spec.workload.name, self.task.title
        return {"comparison": document(Shown(result, workload, where, title=title, created=now))}

    def _timed(self, host: Host, engine: EngineCore, workload: Workload) -> Iterator[StepEvent]:
        for count, event in enumerate(engine.stream(workload), 1):
            host.between()
            yield event
            if count >= MOST_STEPS and engine.has_work:
                raise Fault("After 1,000 steps not all requests are done.")


def configured(task: PolicyTask, code: object) -> EngineConfig:
    """The task's limits under the code's policy, changed as the code says; raises Fault."""
    own = written(code)
    if other := sorted(set(map(str, own.limits)) - set(task.may_change)):
        if not task.may_change:
            raise Fault("This task is about the policy: its limits stay as they are.")
        may = ", ".join(task.may_change)
        raise Fault("This task lets you change {may}, not {other}.", may=may, other=other[0])
    try:
        config = task.config(own.policy, **own.limits)
    except Exception as error:
        raise told(error) from None
    if not task.is_within(config):
        raise Fault("This task has a token budget: leave `token_budget` as it is.")
    return config


def report(
    task: PolicyTask, code: object, trace: Trace | None, fault: Fault | None
) -> dict[str, Any]:
    """The data that the page shows about a run, the whole of it or up to a fault."""
    done = trace if fault is None else None
    goals = [
        {
            "name": goal.measure,
            "met": done is not None and goal.is_met(done),
            "says": None if done is None else goal.counts.found(done),
        }
        for goal in task.goals
    ]
    is_open = not all(goal["met"] for goal in goals)
    return {
        "task": task.name,
        "replay": None if trace is None else translated_replay(_marked(trace, fault)),
        "goals": goals,
        "help": task.helped(done, code) if done is not None and is_open else None,
        "fault": None if fault is None else fault.to_json(),
    }


def _marked(trace: Trace, fault: Fault | None) -> Trace:
    """The trace with a note about the fault that stopped it, if any."""
    if fault is None:
        return trace
    header = dataclasses.replace(trace.header, notes=(*trace.header.notes, str(fault)))
    return dataclasses.replace(trace, header=header, complete=False)
