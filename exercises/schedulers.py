"""The cases of the two schedulers: what the engine's own scheduler decides, in small states of every kind and in each step of random runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from core.config import EngineConfig
from core.scheduler.passes import passes
from core.scheduler.scheduler_state import SchedulerState
from core.scheduler.state import RequestState
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.events import StepEvent
from core.trace.run_state import RunState
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from exercises.cases import Call, Where
from exercises.given import RequestProgress
from exercises.replies import Fault, fault, is_number, typed

RUNS = 12
_NAMES = "PQRSTUVW"  # of small cases; those of a run have the letters by which the page draws them
Plan = dict[str, int]
Requests = list[RequestProgress]


def static(seed: int) -> list[Call]:
    """A wave that runs decodes, so there are few kinds of states."""
    draw = random.Random(f"static {seed}")
    states = [
        _state(draw, "d" * running, waiting, lanes, 2 * lanes)
        for lanes, running, waiting, _ in product((1, 2, 3, 4), (0, 1, 2), range(6), range(3))
        if running <= lanes and running + waiting
    ]
    return _cases("static", states, draw, _wrong_static)


def continuous(seed: int) -> list[Call]:
    """Decoding requests and prompts begun, in every order: runs of this engine have the decoding ones first, others do not."""
    draw = random.Random(f"continuous {seed}")
    kinds = ["".join(kind) for length in range(4) for kind in product("dp", repeat=length)]
    states = [
        _state(
            draw, running, waiting, max(1, len(running)) + free, max(1, len(running)) + free + more
        )
        for running, waiting, free, more in product(kinds, range(4), range(3), (0, 1, 3, 6))
        if running or waiting
    ]
    return _cases("continuous", states, draw, _wrong_continuous)


State = tuple[Requests, Requests, int, int]  # waiting, running, lanes, budget


def _state(draw: random.Random, running: str, waiting: int, lanes: int, budget: int) -> State:
    """running: d for a request that decodes, p for one whose prompt is begun."""
    names = draw.sample(_NAMES, len(running) + waiting)
    decoding = iter(names)
    runs = []
    for kind in running:
        tokens = draw.randint(2, 6) if kind == "d" else draw.randint(3, 8)
        runs.append(
            RequestProgress(
                next(decoding), tokens, tokens - 1 if kind == "d" else draw.randint(1, tokens - 2)
            )
        )
    return [RequestProgress(name, draw.randint(1, 5), 0) for name in decoding], runs, lanes, budget


def _cases(
    policy: str,
    states: list[State],
    draw: random.Random,
    wrong: Callable[[State, Plan, Any], Fault | None],
) -> list[Call]:
    """From the smallest on, then run by run."""
    states.sort(
        key=lambda state: (
            len(state[0]) + len(state[1]),
            state[2],
            sum(r.left for r in state[0] + state[1]),
            state[3],
        )
    )
    found = [(state, decided(policy, *state), None) for state in states]
    return [_case(policy, *case, wrong) for case in (*found, *_runs(policy, draw))]


def _case(
    policy: str,
    state: State,
    plan: Plan,
    where: Where | None,
    wrong: Callable[[State, Plan, Any], Fault | None],
) -> Call:
    waiting, running, lanes, budget = state
    is_static = policy == "static"
    limits = f"lanes = {lanes}" if is_static else f"lanes, budget = {lanes}, {budget}"
    given = (f"waiting = {_written(waiting)}", f"running = {_written(running)}", limits)
    call = f"schedule_{policy}(waiting, running, {'lanes' if is_static else 'lanes, budget'})"
    return Call(
        given,
        call,
        ("waiting, running", [waiting, running]),
        plan,
        lambda found: wrong(state, plan, found),
        where,
    )


def _written(requests: Requests) -> str:
    return (
        "["
        + ", ".join(
            f'RequestProgress("{r.id}", tokens={r.tokens}, computed={r.computed})' for r in requests
        )
        + "]"
    )


# -- the engine's decisions ----------------------------------------------------------------------------------------------


def decided(policy: str, waiting: Requests, running: Requests, lanes: int, budget: int) -> Plan:
    """What the engine's scheduler computes in this state, by request."""
    state = SchedulerState(
        EngineConfig(policy=policy, max_num_seqs=lanes, max_num_batched_tokens=budget), 1000
    )
    for one in running:
        known = RequestState(
            _request(one.id, one.tokens - one.decodes), tuple(range(one.tokens - one.decodes))
        )
        state.waiting.add(known)
        state.start(known)
        known.token_ids += [0] * one.decodes
        state.grow(known, one.computed)
        known.num_computed_tokens = one.computed
    for one in waiting:
        state.waiting.add(RequestState(_request(one.id, one.tokens), tuple(range(one.tokens))))
    output = next(passes(state, False), None)
    return (
        {} if output is None else {s.request: len(s.tokens) for s in output.scheduled if s.tokens}
    )


def _request(name: str, prompt: int, answer: int = 8, arrival: float = 0) -> Request:
    sampling = SamplingParams(max_new_tokens=answer, ignore_eos=True)
    return Request(
        name, prompt_token_ids=tuple(range(1, prompt + 1)), sampling=sampling, arrival=arrival
    )


def _runs(policy: str, draw: random.Random) -> Iterator[tuple[State, Plan, Where]]:
    """Every step of random runs of the engine."""
    for _ in range(RUNS):
        lanes, budget = draw.randint(1, 4), draw.randint(4, 20)
        config = EngineConfig(
            policy=policy, max_num_seqs=lanes, max_num_batched_tokens=budget, num_blocks=32
        )  # none gives way
        names = "ABCDEFG"[: draw.randint(2, 7)]
        arrivals = sorted(draw.choice((0, 0, i)) for i in range(len(names)))
        requests = [
            _request(name, draw.randint(1, 23), draw.randint(1, 9), at)
            for name, at in zip(names, arrivals, strict=True)
        ]
        trace = SimulatedEngine(cost_named("h100:8b"), config).run(
            Workload(requests, name=f"exercise: {policy}")
        )
        state = RunState.of(trace.prompt_lengths)
        for index, event in enumerate(trace.events):
            waiting = [
                _seen(state, r) for r in (*state.waiting, *(a.request for a in event.arrived))
            ]
            running = [_seen(state, r) for r in state.running if r not in state.finished]
            yield (waiting, running, lanes, budget), _computed(event), Where(trace, index)
            state.begin(event)
            state.end(event)


def _seen(state: RunState, request: str) -> RequestProgress:
    return RequestProgress(request, state.num_tokens[request], state.computed.get(request, 0))


def _computed(event: StepEvent) -> Plan:
    computed: Plan = {}
    for segment in event.segments:
        computed[segment.request] = computed.get(segment.request, 0) + segment.length
    return computed


# -- what is wrong with an answer ----------------------------------------------------------------------------------------


def _no_plan(state: State, found: Any) -> Fault | None:
    """It is not how many positions each of these requests computes."""
    waiting, running, *_ = state
    if not isinstance(found, dict):
        example = "{" + ", ".join(f"'{r.id}': {r.left}" for r in [*running, *waiting][:2]) + "}"
        says = "It returned a value of type {got}, not the number of positions by request id, as in {example}."
        return fault(says, 0, got=typed(found), example=example)
    known = {r.id for r in (*waiting, *running)}
    for request, count in found.items():
        if not isinstance(request, str):
            return fault(
                "It counts positions by values of type {got}, not by the ids of the requests.",
                0,
                got=typed(request),
            )
        if request not in known:
            return fault("It names {request}, which neither waits nor runs.", 0, request=request)
        if not is_number(count) or count < 0:
            says = "{request} computes {count} positions: that must be a whole number, and not below 0."
            return fault(says, 0, request=request, count=count)
    return None


def _overtaken(waiting: Requests, found: Plan) -> tuple[str, str] | None:
    """Who joins before someone that came first."""
    passed = next((r for r in waiting if not found.get(r.id)), None)
    later = (
        [] if passed is None else [r for r in waiting[waiting.index(passed) :] if found.get(r.id)]
    )
    return (later[0].id, passed.id) if passed is not None and later else None


def _wrong_static(state: State, plan: Plan, found: Any) -> Fault | None:
    if fits := _no_plan(state, found):
        return fits
    waiting, running, lanes, _ = state
    joining = [r for r in waiting if found.get(r.id)]
    if running and joining:
        says = "{request} waits, and joins no wave while {other} still runs."
        return fault(says, 0, request=joining[0].id, other=running[0].id)
    for r in running:
        if (count := found.get(r.id, 0)) != 1:
            return fault(
                "{request} runs and computes one position in every step, not {count}.",
                0,
                request=r.id,
                count=count,
            )
    if len(joining) > lanes:
        says = "More requests join the wave than there are lanes ({count}, and {lanes})."
        return fault(says, 0, count=len(joining), lanes=lanes)
    if passed := _overtaken(waiting, found):
        return fault(
            "{request} joins before {other}, which came first.",
            0,
            request=passed[0],
            other=passed[1],
        )
    for r in waiting:
        count = found.get(r.id, 0)
        if r.id in plan and not count:
            return fault(
                "{request} waits, no wave runs, and the new one has a lane for it.", 0, request=r.id
            )
        if count and count != r.left:
            says = "{request} joins the wave, and its whole prompt is computed at once: {left}, not {count}."
            return fault(says, 0, request=r.id, left=r.left, count=count)
    return None


def _wrong_continuous(state: State, plan: Plan, found: Any) -> Fault | None:
    if fits := _no_plan(state, found):
        return fits
    waiting, running, lanes, budget = state
    for r in (*running, *waiting):
        if (count := found.get(r.id, 0)) > r.left:
            return fault(
                "{request} has {left} left to compute, not {count}.",
                0,
                request=r.id,
                left=r.left,
                count=count,
            )
    if (total := sum(found.values())) > budget:
        return fault(
            "Together they compute {total}, which is over the budget of {budget}.",
            0,
            total=total,
            budget=budget,
        )
    joining = [r for r in waiting if found.get(r.id)]
    if len(running) + len(joining) > lanes:
        says = "{request} is admitted, and no lane is left for it (lanes: {lanes}, held: {count})."
        return fault(
            says, 0, request=joining[-1].id, lanes=lanes, count=len(running) + len(joining) - 1
        )
    for r in running:
        if r.decodes and not found.get(r.id):
            says = "{request} decodes, and every decoding request gets its one position first, before any prompt."
            return fault(says, 0, request=r.id)
    for r in running:
        if (count := found.get(r.id, 0)) != (due := plan.get(r.id, 0)):
            says = "The prompt of {request} has begun, so it goes on first, with as much as fits: it computes {due} here, not {count}."
            return fault(says, 0, request=r.id, due=due, count=count)
    if passed := _overtaken(waiting, found):
        return fault(
            "{request} is admitted before {other}, which came first.",
            0,
            request=passed[0],
            other=passed[1],
        )
    left = budget - sum(plan.get(r.id, 0) for r in running)
    for r in waiting:
        if (count := found.get(r.id, 0)) != (due := plan.get(r.id, 0)):
            says = "{request} is next, a lane is free, and {left} of the budget are left: it computes {due}, not {count}."
            return fault(says, 0, request=r.id, left=left, due=due, count=count)
        left -= due
    return None
