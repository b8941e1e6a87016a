"""A plan as one JSON document for the page.

{"schema", "kind": "plan", "run": the recorded one, "named": its name, "created",
 "configs": of the simulated rows, "says": {"headline", "notes"}, "figures", "table": {"columns",
 "rows"}, "requests": [{"letter", "rows": of each: its cells}], "data": see `Plan.to_json`,
 "translations": {language: its "says", "figures", "table" and "requests"}}
"""

import datetime
from typing import Any

from core.account.metrics import DEFINITIONS
from core.measure.plan import Plan, Point
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.charts.plots import frontier
from visualizer.words.findings import percent, seconds
from visualizer.words.language import elsewhere, t

_TIMES = ("ttft_s", "itl_s", "e2e_s")


def plan_document(plan: Plan, trace: Trace, run: str) -> dict[str, Any]:
    """The document of a plan. trace: the recorded run. run: its id, to simulate it again."""
    header = trace.header
    return {
        "schema": 1,
        "kind": "plan",
        "name": "plan",
        "run": run,
        "named": " · ".join(
            map(str, filter(None, (header.workload, header.engine, header.policy)))
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "configs": [
            p.config.to_json() if p.numbers is not None else None
            for p in (plan.again, *plan.points)
        ],
        **_in_language(plan, trace),
        "data": plan.to_json(),
        "translations": elsewhere(lambda: _in_language(plan, trace)),
    }


def _in_language(plan: Plan, trace: Trace) -> dict[str, Any]:
    """The parts that depend on the current language."""
    rows = [(t("measured"), plan.measured)]
    rows += [(plan.name_of(p.config, t), p) for p in (plan.again, *plan.points)]
    figure = frontier(plan)
    meta = {**figure.layout["meta"], "finding": t("Simulated, but for the star.")}
    fit = percent(plan.cost.error["median"])
    told: dict[str, list[str]] = {}
    for name, point in rows:
        if said := point.refused or point.beyond:
            told.setdefault(said, []).append(name)
    notes = [
        *map(t, plan.notes),
        t("A pass that the fit had not seen is off by {share} in the median.", share=fit),
        *(f"{'; '.join(names)}: {t(said)}" for said, names in told.items()),
    ]
    defined = [(f"{n} p{p}", f"{n.lower()}_s") for n in ("TTFT", "ITL", "E2E") for p in (50, 99)]
    defined += [("output tok/s", "output_tok_s"), ("preemptions", "preemptions")]
    columns = [{"title": t(title), "definition": t(DEFINITIONS[key])} for title, key in defined]
    setting = {"title": t("setting"), "definition": t("Where it differs from the recorded one.")}
    good = [{"title": t("good/s"), "definition": t(DEFINITIONS["goodput"])}] * plan.has_slos
    queue = {"title": t("waiting"), "definition": t("The most requests that waited in a step.")}
    return {
        "says": {"headline": plan.told(t), "notes": notes},
        "figures": [
            {
                "name": "frontier",
                "title": t("Throughput against latency"),
                **meta,
                "figure": figure.to_json(),
            }
        ],
        "table": {
            "columns": [setting, *columns, queue, *good],
            "rows": [[name, *_cells(point, plan)] for name, point in rows],
        },
        "requests": [
            {"letter": letter, "rows": [_times(point, request) for _, point in rows]}
            for request, letter in letters(trace).items()
        ],
    }


def _cells(point: Point, plan: Plan) -> list[str]:
    numbers = point.numbers
    if numbers is None:
        return [t("cannot run"), *["–"] * (8 + plan.has_slos)]
    good = [t(f"{numbers['goodput']['requests_per_s']:,.2f}")] * plan.has_slos
    return [
        *(seconds(numbers[name][share]) for name in _TIMES for share in ("p50", "p99")),
        t(f"{numbers['output_tok_s']:,.1f}"),
        t(f"{numbers['preemptions']:,}"),
        t(f"{numbers['most_waiting']:,}"),
        *good,
    ]


def _times(point: Point, request: str) -> list[str]:
    one = point.requests.get(request)
    return ["–"] * 3 if one is None else [*map(seconds, (one.queue_s, one.ttft_s, one.e2e_s))]
