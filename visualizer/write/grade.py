"""Grades a file for tasks of the Write tab, each in a process of its own. The results are judged
here: the values of the cases of an exercise, or the run of a policy, which must keep all rules.
"""

import hashlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from core import __version__
from core.engine.requests import prompt_ids
from core.errors import InflightError
from core.torch_engine.models.tokenizer import describe_model
from core.trace.events import StepEvent
from core.trace.trace import Trace
from visualizer.words.language import t
from visualizer.write import policy_answers
from visualizer.write.cases import AGAIN, Reply, Result
from visualizer.write.code import Fault
from visualizer.write.exercises import EXERCISES, cases_of, checking
from visualizer.write.process import Process
from visualizer.write.tasks import MODEL, PolicyTask, task_named

SCHEMA = "exercises/1"
BY_DEFAULT = tuple(EXERCISES)  # whose answers fit into one file


class Grade(NamedTuple):
    """seconds: for which the code computed."""

    task: str
    result: Result
    seconds: float

    def to_json(self) -> dict[str, Any]:
        result, fault, case = self.result, self.result.fault, None
        if result.lines:
            case = {"lines": list(result.lines), "expected": result.expected, "got": result.got}
        return {
            "name": self.task,
            "passed": result.is_right,
            "cases": result.right,
            "of": result.of,
            "seconds": round(self.seconds, 4),
            "message": None if fault is None else _told(fault),
            "line": None if fault is None else fault.line,
            "case": case,
        }

    def said(self) -> str:
        """The verdict in the current language, and the case that shows it, as lines of Python."""
        result = self.result
        what = "[case|cases]" if self.task in EXERCISES else "[goal|goals]"
        if result.fault is None:
            return f"{self.task}: {t(f'right. {result.of} {what} in {self.seconds:.2f} s')}"
        lines = [f"{self.task}: {_plain(_told(result.fault))}"]
        if result.lines:
            case = t(f"case {result.right + 1} of {result.of}, {self.seconds:.2f} s")
            lines[0] += f" ({case})"
            lines += ["", *(f"    {line}" for line in result.lines)]
            for mark, text in (("expected", result.expected), ("got", result.got)):
                lines += [f"    # {t(mark):<8} {_plain(text)}"] if text is not None else []
            lines.append("")
        if result.printed.strip():
            printed = (f"    | {_plain(line)}" for line in result.printed.splitlines())
            lines += [f"    {t('It printed:')}", *printed, ""]
        return "\n".join(lines)


def as_json(file: str, source: bytes, seed: int, grades: Sequence[Grade]) -> dict[str, Any]:
    """See docs/grading.md."""
    return {
        "schema": SCHEMA,
        "inflight": __version__,
        "file": file,
        "sha256": hashlib.sha256(source).hexdigest(),
        "seed": seed,
        "passed": sum(grade.result.is_right for grade in grades),
        "of": len(grades),
        "exercises": [grade.to_json() for grade in grades],
    }


def graded(names: Sequence[str], source: bytes, seed: int = 0) -> Iterator[Grade]:
    """The grades, one task after the other. Raises InflightError for an unknown task."""
    for task in [task_named(name) for name in names]:
        if isinstance(task, PolicyTask):
            result, seconds = _run(task, source)
            if result.is_right:  # and not by luck
                again, more = _run(task, source)
                seconds += more
                if _steps(again) != _steps(result):
                    result = again._replace(right=0, fault=Fault(AGAIN))
        else:
            cases_of(task.name, seed)  # cached, so that it takes none of the file's time
            with Process(source) as process:
                result = ended(checking(task.name, process.ask, seed))
            seconds = process.seconds
        yield Grade(task.name, result, seconds)


def _steps(result: Result) -> Sequence[StepEvent]:
    return () if result.trace is None else result.trace.events


def _run(task: PolicyTask, source: bytes) -> tuple[Result, float]:
    """A policy's result in a process of its own, and the seconds that it took."""
    with Process(source, policy_answers.__name__) as process:
        return judged(task, process.ask([task.name])), process.seconds


def ended(going: Generator[int, None, Result]) -> Result:
    while True:
        try:
            next(going)
        except StopIteration as end:
            return end.value


def judged(task: PolicyTask, reply: Reply) -> Result:
    """The result for a policy. right, of: the number of goals met, and of all goals."""
    of = len(task.goals)
    if reply.ended:
        return Result(0, of, reply.ended)
    try:
        lines, says, line = reply.values
        printed = "".join(reply.printed)
        trace = Trace.from_lines(map(str, lines)) if lines else None
    except (InflightError, TypeError, ValueError) as error:
        return Result(0, of, Fault("What came back is no run: {why}", why=error))
    if says is not None or trace is None:
        at = line if isinstance(line, int) else None
        return Result(0, of, Fault("{why}", at, why=says), printed=printed, trace=trace)
    if not (trace.complete and _is_of(task, trace)):
        return Result(0, of, Fault("What came back is a run of something else."))
    missed = [goal for goal in task.goals if not goal.is_met(trace)]
    fault = None
    if missed:
        said = [part for goal in missed for part in (goal.asks, goal.counts.found(trace))]
        said += [one.says for one in task.help if one.is_for(trace, False)][:1]
        fault = Fault("{why}", why=" ".join(map(t, said)))
    return Result(of - len(missed), of, fault, printed=printed, trace=trace)


def _is_of(task: PolicyTask, trace: Trace) -> bool:
    """Whether a trace ran the task's requests, when due, in full, and within the limits."""
    came = [(e.step, trace.asked[a.request].request) for e in trace.events for a in e.arrived]
    tokenizer = describe_model(MODEL).tokenizer
    return (
        trace.workload == task.workload
        and all(tuple(p) == prompt_ids(r, tokenizer) for r, p in trace.asked.values())
        and all(f.finish_reason == "length" for e in trace.events for f in e.ends)
        and all(step == request.arrival for step, request in came)
        and trace.header.engine is None
        and trace.header.is_simulated
        and task.is_within(trace.config)
    )


def _told(fault: Fault) -> str:
    return t(fault.says, **fault.holes)


def _plain(text: str) -> str:
    """A learner's text, which may be anything, safe for a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
