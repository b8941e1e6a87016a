"""Turns a visitor's code into a policy, and its errors into sentences. For sandboxes only."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from core.errors import InflightError, InvalidConfig, PolicyFailed
from core.policy import Policy, register_policy
from visualizer.write.answers import FILE, MODULE, executed, line_of

MOST = 20_000  # characters of code
_THEIRS = re.compile(r"^The policy \S+ ")
_STUCK = re.compile(r"lets nobody go on: (\d+) run and (\d+) wait")


class Fault(InflightError):
    """An error in the code or in its behaviour. The sentence is a template from the page's texts,
    with {holes}. line: of the code, from 1. step: of the run. expected: the right value of a case's
    line, if only the fault knows it.
    """

    expected: str | None = None

    def __init__(
        self, says: str, line: int | None = None, step: int | None = None, /, **holes: object
    ) -> None:
        self.holes = {name: str(hole) for name, hole in holes.items()}
        if line is not None:
            self.holes.setdefault("line_number", str(line))
        super().__init__(says.format(**self.holes))
        self.says, self.line, self.step = says, line, step

    def to_json(self) -> dict[str, Any]:
        return {"says": self.says, "line": self.line, "step": self.step, "holes": self.holes}


class Written(NamedTuple):
    """policy: of the last class that the code defines. limits: of the engine, by the code."""

    policy: Policy
    limits: Mapping[str, Any]


def written(code: object) -> Written:
    """Run a visitor's code; raises Fault."""
    if not isinstance(code, str) or len(code) > MOST:
        raise Fault("A policy is text of at most 20,000 characters.")
    try:
        scope = executed(compile(code, FILE, "exec", dont_inherit=True))
        found = [
            value
            for value in scope.values()
            if isinstance(value, type) and issubclass(value, Policy)
        ]
        mine = [one for one in found if one.__module__ == MODULE]
        policy = _made(mine[-1]) if mine else None
    except BaseException as error:
        raise told(error) from None
    if policy is None:
        raise Fault("There is no policy here: a class that inherits from Policy.")
    limits = scope.get("limits", {})
    if not isinstance(limits, dict):
        raise Fault(
            "`limits` gives limits by name, as in `{example}`.",
            example='limits = {"max_num_batched_tokens": 64}',
        )
    return Written(policy, limits)


def _made(policy: type[Policy]) -> Policy:
    if "__dataclass_params__" not in vars(policy):
        raise Fault(
            "`{name}` needs the line `{decorator}` above it.",
            name=policy.__name__,
            decorator="@dataclass(frozen=True, kw_only=True)",
        )
    ours = {field.name for field in dataclasses.fields(Policy)}
    for name, value in vars(policy).items():
        if name in ours and name not in inspect.get_annotations(policy):
            raise Fault(
                "`{name}` needs a type after it, as in `{example}`: without one it has no effect.",
                name=name,
                example=f"{name}: {type(value).__name__} = {value!r}",
            )
    made = policy() if hasattr(policy, "name") else policy(name="mine")  # type: ignore[call-arg]
    return register_policy(made.name, made)  # under a name that is not taken


def overdue(line: int | None, step: int | None = None) -> Fault:
    """The fault of code that was running at this line when its time was up."""
    if line is None:
        return Fault("The run took too long and was stopped.", None, step)
    return Fault(
        "Line {line_number} was still running when time was up: is there a loop that never ends?",
        line,
        step,
    )


def told(error: BaseException, step: int | None = None) -> Fault:
    """The fault for an exception from code or engine. step: of the run, if it has begun."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, SyntaxError) and error.filename == FILE:
        why = (error.msg or "").rstrip(".")
        return Fault("Line {line_number} is not Python: {why}.", error.lineno, why=why)
    line = line_of(error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        return overdue(line, step)
    if isinstance(error, PolicyFailed):
        if stuck := _STUCK.search(str(error)):
            running, waiting = stuck.groups()
            says = (
                "Nobody can go on: {running} running, {waiting} waiting, and none is ever served."
            )
            return Fault(says, line, step, running=running, waiting=waiting)
        why = _THEIRS.sub("it ", str(error))
        return Fault("The engine cannot follow this policy: {why}", line, step, why=why)
    if isinstance(error, InflightError) and (line is None or isinstance(error, InvalidConfig)):
        return Fault("The engine refuses this: {why}", line, step, why=str(error))
    name, why = type(error).__name__, " ".join(str(error).split())[:300]
    said = f"{name}: {why}" if why else name
    if line is None:
        says = (
            "The engine could not go on ({why}): does this policy change the requests or the room"
            " that it is given?"
        )
    elif isinstance(error, AttributeError) and dataclasses.is_dataclass(error.obj):
        names = ", ".join(n for n in dir(error.obj) if n[0] != "_")
        return Fault(
            "Line {line_number} raised {why}; it has {names}", line, step, why=said, names=names
        )
    else:
        says = "Line {line_number} raised {why}"
    return Fault(says, line, step, why=said)
