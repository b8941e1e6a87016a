"""A sweep of request rates, for throughput against latency.

Any engine that runs a workload with arrivals in seconds can be swept, a simulated one too.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from types import NoneType
from typing import Any

from core.account.metrics import metrics
from core.account.request_times import SLOs
from core.config import POLICIES
from core.engine.engine import EngineCore
from core.errors import InflightError, require, shown
from core.measure.faults import wrong_time
from core.measure.rounds import rotated
from core.trace.header import SIMULATED, ModelFacts
from core.trace.trace import Trace
from core.workload.arrivals import Lengths, RequestSize, arrivals, request
from core.workload.request import is_number
from core.workload.workload import Workload

MOST_REQUESTS = 100_000
"""The most requests of a point: making up more would take longer than running them."""
FRACTIONS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.2)
POINT_SECONDS = 20.0
_ARRIVE_WITHIN = 0.75  # of a point's time; the rest is for finishing answers


@dataclass(frozen=True)
class Sweep:
    """seconds: the most that a point may take. rates: requests per second; None for `fractions` of
    the measured capacity.

    sizes: lengths by request, used in turn; None draws from `lengths`. If they have arrivals, these
    are replayed faster or slower to match each rate.
    """

    rates: tuple[float, ...] | None = None
    fractions: tuple[float, ...] = FRACTIONS
    seconds: float = POINT_SECONDS
    burstiness: float = 1.0
    seed: int = 0
    lengths: Lengths = field(default_factory=Lengths)
    sizes: tuple[RequestSize, ...] | None = None
    slos: SLOs = field(default_factory=SLOs)

    def __post_init__(self) -> None:
        for name, kinds in (("rates", (Sequence, NoneType)), ("fractions", Sequence)):
            for value in require(getattr(self, name), kinds, f"The {name} are a list") or ():
                if not (is_number(value) and value > 0):
                    raise InflightError(f"Each of {name} must be above 0, not {shown(value)}.")
        if not (is_number(self.seconds) and self.seconds > 0):
            raise InflightError(f"A point takes above 0 seconds, not {shown(self.seconds)}.")

    @property
    def has_arrivals(self) -> bool:
        """Whether a file gives the arrivals."""
        return bool(self.sizes and len(self.sizes) > 1 and self.sizes[-1].arrival)


def workload(sweep: Sweep, rate: float, model: ModelFacts) -> Workload:
    """The requests of one point: those that arrive within three quarters of its time, at least one.
    Raises InflightError for more than MOST_REQUESTS.
    """
    vocab_size, context = model.vocab_size or 0, model.context
    until = sweep.seconds * _ARRIVE_WITHIN
    due: list[float] = []
    for at in times(sweep, rate):
        if due and at > until:
            break
        if len(due) == MOST_REQUESTS:
            raise InflightError(
                f"More than {MOST_REQUESTS:,} requests would arrive in {until:g} seconds: give a"
                " lower rate or a higher burstiness."
            )
        due.append(at)
    requests = [
        request(index, size, at, vocab_size, context, sweep.seed)
        for index, (at, size) in enumerate(zip(due, sizes(sweep), strict=False))
    ]
    return Workload(requests, name=f"load {rate:g}/s", arrival_unit="s")


def times(sweep: Sweep, rate: float) -> Iterable[float]:
    """Times of arrivals at a rate, in seconds: endless, or a file's at another speed."""
    if sweep.has_arrivals:
        own = [size.arrival or 0.0 for size in sweep.sizes or ()]
        return [at * (len(own) - 1) / own[-1] / rate for at in own]
    return arrivals(rate, sweep.seed, sweep.burstiness)


def sizes(sweep: Sweep) -> Iterator[RequestSize]:
    """The lengths of requests, without end unless a file gives arrivals."""
    if sweep.sizes is None:
        yield from sweep.lengths.sizes(sweep.seed)
    else:
        while True:
            yield from sweep.sizes
            if sweep.sizes[0].arrival is not None:
                return


def capacity(sweep: Sweep, engine: EngineCore, requests: int = 64) -> float:
    """Requests per second that the engine finishes when all arrive at the start."""
    vocab_size, context = engine.model.vocab_size or 0, engine.model.context
    many = [
        request(i, size, 0.0, vocab_size, context, sweep.seed)
        for i, size in enumerate(islice(sizes(sweep), requests))
    ]
    trace, _ = _run(engine, Workload(many, "capacity", "s"), sweep.seconds)
    return _requests_per_s(trace)


def _requests_per_s(trace: Trace) -> float:
    """Requests per second; an unfinished one counts as the share of its tokens that it got."""
    wanted = {request: one.request.sampling.max_new_tokens for request, one in trace.asked.items()}
    done = sum(len(ids) / wanted[request] for request, ids in trace.outputs.items())
    wall = trace.events[-1].t_end - trace.events[0].t_start if trace.events else 0.0
    if not done or not wall:
        raise InflightError(
            "The engine finished nothing within the time of a point, so its capacity is unknown:"
            " give rates."
        )
    return done / wall


def sweep_load(
    engines: Mapping[str, EngineCore],
    sweep: Sweep,
    on_point: Callable[[str, float], None] = lambda policy, rate: None,
    until: type[BaseException] | tuple[()] = (),
) -> dict[str, Any]:
    """Throughput against latency for each policy at each rate, as JSON; policies take turns.

    A point is a rate under a policy. offered: requests due to arrive. numbers: the metrics of the
    run until it ended or was cut, with a goodput if limits are stated. cut: whether its time was up
    with requests unfinished. All policies are offered the same load: fractions of the largest of
    their capacities, so that each is seen beyond its own. until: exceptions that end the sweep
    early, with the points so far if there are any; `complete` is then false.
    """
    names = list(require(engines, Mapping, "A sweep takes engines by name"))
    for engine in engines.values():
        require(engine, EngineCore, "A sweep runs on engines")
    require(sweep, Sweep, "What is swept is a Sweep, such as Sweep(rates=(1, 2))")
    if not names:
        raise InflightError("A sweep needs an engine.")
    capacities: dict[str, float] = {}
    rates: Sequence[float] = sweep.rates or ()
    if not rates:
        for name in names:
            on_point(name, math.inf)
            capacities[name] = capacity(sweep, engines[name])
        rates = [round(share * max(capacities.values()), 4) for share in sweep.fractions]
    points: list[dict[str, Any]] = []
    complete = True
    try:
        for number, rate in enumerate(rates):
            for name in rotated(names, number):
                on_point(name, rate)
                requests = workload(sweep, rate, engines[name].model)
                trace, cut = _run(engines[name], requests, sweep.seconds)
                point = {"policy": name, "rate": rate, "offered": len(requests), "cut": cut}
                numbers = metrics(trace, None if sweep.slos == SLOs() else sweep.slos)
                points.append({**point, "numbers": numbers})
    except until:
        if not points:
            raise
        complete = False
    points.sort(key=lambda point: (names.index(point["policy"]), point["rate"]))
    source = next(iter(engines.values())).trace.header.source
    return {
        "source": source,
        "complete": complete,
        "capacity_requests_per_s": max(capacities.values(), default=None),
        "capacities": capacities,
        "seconds_a_point": sweep.seconds,
        "burstiness": None if sweep.has_arrivals else sweep.burstiness,
        "seed": sweep.seed,
        "lengths": (
            asdict(sweep.lengths) if sweep.sizes is None else f"{len(sweep.sizes)} from a file"
        ),
        "slos": asdict(sweep.slos),
        "points": points,
    }


def adds_up(load: Mapping[str, Any], model: ModelFacts, is_simulated: bool | None = None) -> bool:
    """Whether a recorded sweep, as from `sweep_load`, agrees with itself and with the requests made
    up for its rates, and has no other fields. model: the one that was measured. is_simulated:
    whether the run was simulated; None if unknown.
    """
    if not _KEYS <= set(load) <= _KEYS | _LATER_KEYS or (
        is_simulated is not None and load["source"] != (SIMULATED if is_simulated else "live")
    ):
        return False
    points, capacities = load["points"], load.get("capacities")
    rates: dict[str, list[float]] = {}
    for point in points:
        rates.setdefault(point["policy"], []).append(point["rate"])
    is_made_up = isinstance(load["lengths"], Mapping)  # not from a file
    sweep = Sweep(
        None,
        seconds=load["seconds_a_point"],
        burstiness=load["burstiness"] or 1.0,
        seed=load["seed"],
        lengths=Lengths(**load["lengths"]) if is_made_up else Lengths(),
        slos=SLOs(**load["slos"]),
    )
    return (
        all(of == sorted(set(of)) for of in rates.values())
        and (not load.get("complete", True) or len(set(map(tuple, rates.values()))) == 1)
        and (not capacities or load["capacity_requests_per_s"] == max(capacities.values()))
        and (not load.get("complete", True) or (capacities or {}).keys() <= rates.keys())
        and (load["capacity_requests_per_s"] is None or load["capacity_requests_per_s"] > 0)
        and type(load.get("complete", True)) is bool
        and all(
            _fits(point, load, workload(sweep, point["rate"], model) if is_made_up else None)
            for point in points
        )
    )


_KEYS = {
    "source",
    "capacity_requests_per_s",
    "seconds_a_point",
    "burstiness",
    "seed",
    "lengths",
    "slos",
    "points",
}
_LATER_KEYS = {"complete", "capacities"}  # not in the first recordings
_COUNTS = (
    "steps",
    "passes",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "tokens_recomputed",
    "overrun_rows",
)


def _fits(point: Mapping[str, Any], load: Mapping[str, Any], asked: Workload | None) -> bool:
    numbers, offered, cut = point["numbers"], point["offered"], point["cut"]
    wall, lanes, positions = numbers["wall_s"], numbers["lane_steps"], numbers["positions"]
    budget, blocks, goodput = numbers["budget_tokens"], numbers["kv_blocks"], numbers.get("goodput")
    policy = POLICIES.get(point["policy"])
    counts = [numbers["finished"], numbers["requests"], offered]
    # each token but a request's last is computed once, and again after a preemption
    computed = numbers["prompt_tokens"] + numbers["output_tokens"] - offered
    computed += numbers["tokens_recomputed"] - numbers["cached_tokens"]
    shares = [
        (numbers["padding_waste"], positions["padding"], positions["computed"]),
        (numbers["lane_occupancy"], lanes["useful"], lanes["total"]),
        (numbers["budget_use"], budget["used"], budget["limit"]),
        *([(goodput["share"], goodput["met"], numbers["requests"])] if goodput else ()),
    ]
    if asked is not None and not cut:
        tokens = [len(r.prompt_token_ids or ()) + r.sampling.max_new_tokens for r in asked]
        several = sum(r.sampling.max_new_tokens > 1 for r in asked)
        if (
            numbers["prompt_tokens"] + numbers["output_tokens"] != sum(tokens)
            or numbers["tpot_s"]["count"] != several
        ):
            return False
    return (
        set(point) == {"policy", "rate", "offered", "cut", "numbers"}
        and (type(offered), type(cut)) == (int, bool)
        and all(type(numbers[name]) is int and numbers[name] >= 0 for name in _COUNTS)
        and numbers["steps"] <= numbers["passes"]
        and (lanes["total"] % numbers["steps"] == 0 if numbers["steps"] else not lanes["total"])
        and (cut or positions["tokens"] == computed)
        and bool(numbers["tokens_recomputed"]) <= bool(numbers["preemptions"])
        and bool(numbers["preemptions"])
        <= (cut or bool(numbers["tokens_recomputed"] + numbers["cached_tokens"]))
        and numbers["overrun_rows"] <= positions["padding"]
        and 0 <= budget["used"] <= budget["limit"]
        and (policy is None or bool(budget["limit"]) == policy.token_budget)
        and counts == sorted(counts)
        and (wall > 0.9 * load["seconds_a_point"] if cut else len(set(counts)) == 1)
        and (asked is None or offered == len(asked))
        and all(share == (part / whole if whole else None) for share, part, whole in shares)
        and positions["computed"] == positions["tokens"] + positions["padding"]
        and 2 * lanes["total"] == sum(lanes.values())
        and 0 <= numbers["kv_use"] * blocks["total"] <= blocks["peak"] * (1 + 1e-9)
        and blocks["peak"] <= blocks["total"]
        and _are_of_all(numbers)
        and (goodput is None or _is_of_met(goodput, load["slos"], numbers))
        and sum(part or 0.0 for part in numbers["time_s"].values()) > 0.99 * wall
        and wrong_time(numbers, [wall], True) is None
    )


def _are_of_all(numbers: Mapping[str, Any]) -> bool:
    """Whether each distribution has one value per request, or per gap between tokens."""
    first, gap, per_token, end, queue = (
        (numbers[of]["count"], numbers[of]["left_out"])
        for of in ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s")
    )
    return (
        all(sum(of) == numbers["requests"] for of in (first, end, queue))
        and per_token[0] <= end[0] == numbers["finished"] <= first[0] <= queue[0]
        and gap == (numbers["output_tokens"] - first[0], 0)
        and not per_token[1]
    )


def _is_of_met(
    goodput: Mapping[str, Any], slos: Mapping[str, Any], numbers: Mapping[str, Any]
) -> bool:
    """Whether a goodput has these limits and follows from the requests that met them."""
    met, wall = goodput["met"], numbers["wall_s"]
    return (
        goodput["slos"] == slos
        and (met == numbers["finished"] or (met < numbers["finished"] and any(slos.values())))
        and math.isclose(goodput["requests_per_s"], met / wall, rel_tol=1e-6 / wall)
    )


def _run(engine: EngineCore, requests: Workload, seconds: float) -> tuple[Trace, bool]:
    """Run to the end or until the time is up; returns the trace and whether it was cut."""
    steps = engine.stream(requests)
    cut = False
    for event in steps:
        if event.t_end >= seconds:
            cut = engine.has_work
            break
    trace = engine.trace
    steps.close()
    return trace, cut
