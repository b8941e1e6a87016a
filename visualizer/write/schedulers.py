"""The cases of both schedulers: the engine's decisions in small states and in random runs."""

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from core.config import EngineConfig
from core.scheduler.passes import passes
from core.scheduler.scheduler_state import SchedulerState
from core.scheduler.state import RequestState
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.run_state import RunState
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.write.cases import Case, Where, called, is_number, typed, wrong
from visualizer.write.code import Fault

RUNS = 12
_NAMES = "PQRSTUVW"  # in small cases; in runs, requests have the letters of the page
Plan = dict[str, int]


class One(NamedTuple):
    """A request with the fields of the learner's `RequestProgress`."""

    id: str
    tokens: int
    computed: int

    def __repr__(self) -> str:
        return f"RequestProgress(id={self.id!r}, tokens={self.tokens}, computed={self.computed})"

    @property
    def left(self) -> int:
        return self.tokens - self.computed

    @property
    def decodes(self) -> bool:
        """Of a request that runs, so that a part of it has been computed."""
        return self.left == 1


class State(NamedTuple):
    waiting: list[One]
    running: list[One]
    lanes: int
    budget: int


def static(seed: int) -> list[Case]:
    """Cases of static batching. A running wave only decodes, so there are few kinds of states."""
    draw = random.Random(f"static {seed}")
    states = [
        _state(draw, "d" * running, waiting, lanes, 2 * lanes)
        for lanes, running, waiting, _ in product((1, 2, 3, 4), (0, 1, 2), range(6), range(3))
        if running <= lanes and running + waiting
    ]
    return _cases("static", states, draw, _wrong_static)


def continuous(seed: int) -> list[Case]:
    """Cases of continuous batching, with decodes and begun prompts in every order, since runs of
    this engine always have decodes first.
    """
    draw = random.Random(f"continuous {seed}")
    kinds = ["".join(kind) for length in range(4) for kind in product("dp", repeat=length)]
    states = []
    for running, waiting, free, more in product(kinds, range(4), range(3), (0, 1, 3, 6)):
        if running or waiting:
            lanes = max(1, len(running)) + free
            states.append(_state(draw, running, waiting, lanes, lanes + more))
    return _cases("continuous", states, draw, _wrong_continuous)


def _state(draw: random.Random, running: str, waiting: int, lanes: int, budget: int) -> State:
    """A random state. running: d for a request that decodes, p for one whose prompt is begun."""
    names = iter(draw.sample(_NAMES, len(running) + waiting))
    runs = []
    for kind, name in zip(running, names, strict=False):
        tokens = draw.randint(2, 6) if kind == "d" else draw.randint(3, 8)
        runs.append(One(name, tokens, tokens - 1 if kind == "d" else draw.randint(1, tokens - 2)))
    return State([One(name, draw.randint(1, 5), 0) for name in names], runs, lanes, budget)


Judge = Callable[[State, Plan, Any], Fault | None]


def _cases(policy: str, states: list[State], draw: random.Random, judge: Judge) -> list[Case]:
    """The small cases, the smallest first, then those of runs."""

    def size(state: State) -> tuple[int, ...]:
        every = state.waiting + state.running
        return len(every), state.lanes, sum(one.left for one in every), state.budget

    small = [(state, decided(policy, state), None) for state in sorted(states, key=size)]
    return [_case(policy, *case, judge) for case in (*small, *_runs(policy, draw))]


_LIMITS = {"static": "lanes", "continuous": "lanes, budget"}
"""The arguments of each scheduler besides the requests."""


def _case(policy: str, state: State, plan: Plan, where: Where | None, judge: Judge) -> Case:
    waiting, running, lanes, budget = state
    known = {"lanes": lanes, "budget": budget}
    limits = _LIMITS[policy]
    given = ", ".join(str(known[limit]) for limit in limits.split(", "))
    lists = {"waiting": waiting, "running": running}
    made = (*(f"{name} = {_made(ones)}" for name, ones in lists.items()), f"{limits} = {given}")
    call = f"schedule_{policy}(waiting, running, {limits})"
    return called(made, call, lists, plan, lambda found: judge(state, plan, found), where)


def _made(requests: list[One]) -> str:
    made = (f'"{r.id}", tokens={r.tokens}, computed={r.computed}' for r in requests)
    return f"[{', '.join(f'RequestProgress({one})' for one in made)}]"


# -- the engine's decisions ------------------------------------------------------------------------


def decided(policy: str, asked: State) -> Plan:
    """How many positions of each request the engine's scheduler computes in this state."""
    config = EngineConfig(
        policy=policy, max_num_seqs=asked.lanes, max_num_batched_tokens=asked.budget
    )
    state = SchedulerState(config, 1000)
    for one in asked.running:
        prompt = one.tokens - one.decodes
        known = RequestState(_request(one.id, prompt), tuple(range(prompt)))
        state.waiting.add(known)
        state.start(known)
        known.token_ids += [0] * one.decodes
        state.grow(known, one.computed)
        known.num_computed_tokens = one.computed
    for one in asked.waiting:
        state.waiting.add(RequestState(_request(one.id, one.tokens), tuple(range(one.tokens))))
    output = next(passes(state, False), None)
    found = () if output is None else output.scheduled
    return {one.request: len(one.tokens) for one in found if one.tokens}


def _request(name: str, prompt: int, answer: int = 8, arrival: float = 0) -> Request:
    sampling = SamplingParams(max_new_tokens=answer, ignore_eos=True)
    tokens = tuple(range(1, prompt + 1))
    return Request(name, prompt_token_ids=tokens, sampling=sampling, arrival=arrival)


def _runs(policy: str, draw: random.Random) -> Iterator[tuple[State, Plan, Where]]:
    """Every step of random runs of the engine without preemptions."""
    for _ in range(RUNS):
        lanes, budget = draw.randint(1, 4), draw.randint(4, 20)
        config = EngineConfig(
            policy=policy, max_num_seqs=lanes, max_num_batched_tokens=budget, num_blocks=32
        )
        names = "ABCDEFG"[: draw.randint(2, 7)]
        arrivals = sorted(draw.choice((0, 0, i)) for i in range(len(names)))
        requests = [
            _request(name, draw.randint(1, 23), draw.randint(1, 9), at)
            for name, at in zip(names, arrivals, strict=True)
        ]
        workload = Workload(requests, name=f"exercise: {policy}")
        trace = SimulatedEngine(cost_named("h100:8b"), config).run(workload)
        state = RunState.of(trace.prompt_lengths)

        def seen(names: list[str], state: RunState = state) -> list[One]:
            return [One(r, state.num_tokens[r], state.computed.get(r, 0)) for r in names]

        for index, event in enumerate(trace.events):
            waiting = seen([*state.waiting, *(arrived.request for arrived in event.arrived)])
            running = seen(state.running)
            plan: Plan = {}
            for segment in event.segments:
                plan[segment.request] = plan.get(segment.request, 0) + segment.length
            yield State(waiting, running, lanes, budget), plan, Where(trace, index)
            state.begin(event)
            state.end(event)


# -- faults of an answer ---------------------------------------------------------------------------


def _no_plan(state: State, found: Any) -> Fault | None:
    """The fault of a value that is not a number of positions for each of these requests."""
    known = {r.id: r.left for r in (*state.running, *state.waiting)}
    if not isinstance(found, dict):
        return wrong("no plan", got=typed(found), example=dict(list(known.items())[:2]))
    for request, count in found.items():
        if not isinstance(request, str):
            return wrong("no id", got=typed(request))
        if request not in known:
            return wrong("nobody", request=request)
        if not is_number(count) or count < 0:
            return wrong("no count", request=request, count=count)
    return None


def _overtaken(waiting: list[One], found: Plan) -> dict[str, str] | None:
    """A request that is admitted before one that came earlier, with that one."""
    passed = None
    for r in waiting:
        if passed is not None and found.get(r.id):
            return {"request": r.id, "other": passed}
        if not found.get(r.id):
            passed = passed or r.id
    return None


def _wrong_static(state: State, plan: Plan, found: Any) -> Fault | None:
    if fault := _no_plan(state, found):
        return fault
    waiting, running, lanes, _ = state
    joining = [r.id for r in waiting if found.get(r.id)]
    if running and joining:
        return wrong("joins a wave that runs", request=joining[0], other=running[0].id)
    for r in running:
        if (count := found.get(r.id, 0)) != 1:
            return wrong("not one position", request=r.id, count=count)
    if len(joining) > lanes:
        return wrong("a wave too large", count=len(joining), lanes=lanes)
    if passed := _overtaken(waiting, found):
        return wrong("joins too early", **passed)
    for r in waiting:
        count = found.get(r.id, 0)
        if r.id in plan and not count:
            return wrong("left out of a wave", request=r.id)
        if count and count != r.left:
            return wrong("part of a prompt", request=r.id, left=r.left, count=count)
    return None


def _wrong_continuous(state: State, plan: Plan, found: Any) -> Fault | None:
    if fault := _no_plan(state, found):
        return fault
    waiting, running, lanes, budget = state
    for r in (*running, *waiting):
        if (count := found.get(r.id, 0)) > r.left:
            return wrong("more than is left", request=r.id, left=r.left, count=count)
    if (total := sum(found.values())) > budget:
        return wrong("over the budget", total=total, budget=budget)
    joining = [r.id for r in waiting if found.get(r.id)]
    if (held := len(running) + len(joining)) > lanes:
        return wrong("no lane", request=joining[-1], lanes=lanes, count=held - 1)
    for r in running:
        if r.decodes and not found.get(r.id):
            return wrong("decodes go first", request=r.id)
    for r in running:
        if (count := found.get(r.id, 0)) != (due := plan.get(r.id, 0)):
            return wrong("prompts go on", request=r.id, due=due, count=count)
    if passed := _overtaken(waiting, found):
        return wrong("admitted too early", **passed)
    left = budget - sum(plan.get(r.id, 0) for r in running)
    for r in waiting:
        if (count := found.get(r.id, 0)) != (due := plan.get(r.id, 0)):
            return wrong("next in line", request=r.id, left=left, due=due, count=count)
        left -= due
    return None
