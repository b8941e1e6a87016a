"""The tasks of `assets/write/tasks.toml`: initial code, requests, goals, typical mistakes."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, ClassVar

from core.config import ASSETS, BUILTIN_MODELS, EngineConfig
from core.errors import InflightError, shown
from core.policy import Policy
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.write.measures import MEASURES, Measure

MODEL = BUILTIN_MODELS[1]  # one token per character: small, and fast on a phone
BEFORE = "The requests stay hidden until you run your policy. Then every step of it is drawn here."
CASES = "cases"  # the goal of an exercise
ASKS = "The right answer in every case."
_FILE = ASSETS / "write" / "tasks.toml"


@dataclass(frozen=True)
class Goal:
    """measure: the name of the measure. most: the most that it may be."""

    measure: str
    most: float

    @property
    def counts(self) -> Measure:
        return MEASURES[self.measure]

    @property
    def asks(self) -> str:
        return self.counts.goal(self.most)

    def is_met(self, trace: Trace) -> bool:
        return self.counts.of(trace) <= self.most


@dataclass(frozen=True)
class Help:
    """A hint for a mistake. holds: "same", for unchanged code, or a measure with its limit."""

    holds: str
    says: str
    above: float = 0

    def is_for(self, trace: Trace, is_same: bool) -> bool:
        return is_same if self.holds == "same" else MEASURES[self.holds].of(trace) > self.above


@dataclass(frozen=True, kw_only=True)
class Task:
    """See `assets/write/tasks.toml`. before: shown in place of a run before the first one."""

    kind: ClassVar[str]
    name: str
    title: str
    says: str
    code: str
    before: str

    @property
    def asks(self) -> dict[str, str]:
        """Each goal by name, in words."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The data that the page shows before the first run, without the requests."""
        goals = [{"name": name, "asks": asks} for name, asks in self.asks.items()]
        shown = {name: getattr(self, name) for name in ("name", "title", "says", "code", "before")}
        return shown | {"kind": self.kind, "goals": goals}


@dataclass(frozen=True, kw_only=True)
class PolicyTask(Task):
    """A task whose answer is a batching policy. may_change: the limits that the code may set."""

    kind = "policy"
    limits: Mapping[str, Any]
    requests: tuple[tuple[float, int, int], ...]
    passage: str
    goals: tuple[Goal, ...]
    help: tuple[Help, ...]
    before: str = BEFORE
    may_change: tuple[str, ...] = ()

    @property
    def asks(self) -> dict[str, str]:
        return {goal.measure: goal.asks for goal in self.goals}

    def config(self, policy: Policy | str, **limits: Any) -> EngineConfig:
        """Raises InvalidConfig for limits that contradict each other or the policy."""
        return EngineConfig(policy=policy, **{**self.limits, **limits})

    def is_within(self, config: EngineConfig) -> bool:
        """Whether the limits are the task's, except for those that the code may set. A policy
        without a token budget lifts one of them.
        """
        bound = {f.name for f in fields(EngineConfig)} - {"policy", *self.may_change}
        bound |= {"token_budget"} if "max_num_batched_tokens" in bound else set()
        due = self.config("continuous")
        return all(getattr(config, name) == getattr(due, name) for name in bound)

    @cached_property
    def workload(self) -> Workload:
        """The requests. Their prompts begin at the lines of the passage in turn, and each runs to
        its full length, so that decisions alone make a difference.
        """
        lines = self.passage.splitlines(keepends=True)
        requests = []
        for index, (arrival, prompt, new) in enumerate(self.requests):
            turned = "".join(lines[index % len(lines) :] + lines[: index % len(lines)])
            sampling = SamplingParams(
                max_new_tokens=new, temperature=0.7, seed=index, ignore_eos=True
            )
            requests.append(
                Request(f"r{index}", prompt=turned[:prompt], sampling=sampling, arrival=arrival)
            )
        return Workload(requests, name=f"write: {self.name}")

    def helped(self, trace: Trace, code: object) -> str | None:
        """The hint for the first typical mistake that the run shows, or None."""
        is_same = str(code).split() == self.code.split()
        return next((one.says for one in self.help if one.is_for(trace, is_same)), None)


@dataclass(frozen=True, kw_only=True)
class Exercise(Task):
    """A task whose answer is a function or class, checked by cases. given: code by name."""

    kind = "exercise"
    answer: str
    given: Mapping[str, str]

    @property
    def asks(self) -> dict[str, str]:
        return {CASES: ASKS}


@cache
def tasks() -> dict[str, Task]:
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    found: dict[str, Task] = {}
    for one in data["task"]:
        given = {
            **one,
            "code": one["code"].lstrip("\n"),
            "requests": tuple(map(tuple, one["requests"])),
            "goals": tuple(Goal(**goal) for goal in one["goals"]),
            "help": tuple(Help(**sentence) for sentence in one["help"]),
            "may_change": tuple(one.get("may_change", ())),
        }
        found[one["name"]] = PolicyTask(passage=data["passage"], **given)
    for one in data["exercise"]:
        given = {name: data["given"][name] for name in one["given"]}
        code = _file(given, [one["code"]])
        found[one["name"]] = Exercise(**one | {"given": given, "code": code}, answer=one["code"])
    return found


def task_named(name: object) -> Task:
    """Raises InflightError for an unknown one."""
    found = tasks().get(name) if isinstance(name, str) else None
    if found is None:
        raise InflightError(f"There is no task {shown(name)}; there are {', '.join(tasks())}.")
    return found


def starting(names: Iterable[str]) -> str:
    """A file with the initial code of these tasks."""
    chosen = [task_named(name) for name in names]
    given = {name: code for task in chosen for name, code in getattr(task, "given", {}).items()}
    return _file(given, [getattr(task, "answer", task.code) for task in chosen])


def _file(given: Mapping[str, str], codes: Iterable[str]) -> str:
    head = ["from dataclasses import dataclass"] if given else []
    return "\n\n\n".join(part.strip("\n") for part in (*head, *given.values(), *codes)) + "\n"
