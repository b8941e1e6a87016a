"""Comparisons as JSON for the page (wall times, sentences, figures, the table, and the racing
runs), and as folders on disk.

    {"schema", "kind": "comparison", "name", "title", "source", "names", "race", "hues", "walls",
        "says", "figures", "table", "csv", "data",
     "runs": {contender: its replay}, "cost", "equivalence", "translations": {language: its "says",
         "figures", "table" and texts of "runs"}}

On disk it is a folder: `comparison.json`, and the trace of every run, compressed.
"""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from core.account.metrics import DEFINITIONS
from core.config import ASSETS, POLICIES
from core.errors import InflightError, malformed
from core.files import read_json
from core.measure.compare import Comparison, environment, first_parting
from core.measure.cost_curve import CostCurve
from core.measure.faults import as_text, fault_of, shape
from core.measure.load import adds_up
from core.measure.rounds import RunResult
from core.recorders.raw import lines_of
from core.trace.divergence import divergence, knobs
from core.trace.header import Header
from core.trace.phrases import letter
from core.trace.trace import Trace
from core.workload.request import is_number
from visualizer.charts import cost
from visualizer.charts.comparison import FIGURES
from visualizer.charts.theme import contender_hues
from visualizer.documents.replay import UPLOADED, replay, spoken
from visualizer.words import findings, verdicts
from visualizer.words.language import elsewhere, t

RECORDED = ASSETS / "comparisons"
COMPARISON = "six-questions"
"""The comparison that the page opens with."""
SCHEMA = 1
NOT_OBSERVABLE = "not observable"
BASELINES = {
    "generate-waves": "model.generate in left-padded waves: the article's static batching",
    "generate-serial": "model.generate, one request at a time",
    "transformers-continuous": "the continuous batching of transformers",
    "transformers": "the continuous batching of transformers, on the same CPU",
    "vLLM": "vLLM in a process of its own, on the same CPU",
}


@dataclass
class Shown:
    """A comparison and everything that is shown with it.

    workload: its name. load: a sweep of request rates, from `core.measure.load.sweep_load`.
    environment: see `core.measure.compare`. source: "recorded", "live" or "uploaded". equivalence:
    the results of `core.proof.equivalence`, "honest" and "leak". group: its heading in the list, if
    any.
    """

    comparison: Comparison
    workload: str
    environment: dict[str, Any]
    source: str = "live"
    title: str = ""
    shows: str = ""
    created: str = ""
    cost: CostCurve | None = None
    equivalence: dict[str, dict[str, Any]] = field(default_factory=dict)
    load: dict[str, Any] | None = None
    group: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """The content of the JSON download: all measurements, no figures."""
        return {
            "workload": self.workload,
            "created": self.created,
            "source": self.source,
            "environment": self.environment,
            **self.comparison.to_json(),
            **({"cost_curve": self.cost.to_json()} if self.cost else {}),
            **({"load": self.load} if self.load else {}),
        }


def document(shown: Shown) -> dict[str, Any]:
    """Everything that the page needs to show a comparison without a server."""
    comparison = shown.comparison
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "name": shown.workload,
        "title": shown.title or shown.workload,
        "shows": shown.shows,
        "source": shown.source,
        "created": shown.created,
        "names": comparison.names,
        "hues": contender_hues(comparison.names),
        "about": {name: about(name, comparison) for name in comparison.names},
        "race": comparison.names if verdicts.others(comparison) else verdicts.racing(comparison),
        "walls": comparison.walls,
        **_in_language(shown),
        "csv": csv_text(comparison),
        "data": shown.data,
        "runs": {name: replay(trace) for name, trace in comparison.traces.items()},
        "equivalence": {switch: lettered(found) for switch, found in shown.equivalence.items()},
        "translations": elsewhere(
            lambda: {
                **_in_language(shown),
                "runs": {name: spoken(trace) for name, trace in comparison.traces.items()},
            }
        ),
    }


def _in_language(shown: Shown) -> dict[str, Any]:
    """The parts that depend on the current language."""
    comparison = shown.comparison
    return {
        "says": {
            "headline": verdicts.headline(comparison),
            "pairs": verdicts.pairs(comparison),
            "verdict": verdicts.total_time(comparison),
            "outputs": findings.outputs(comparison),
            "sure": verdicts.sure(comparison, shown.environment),
            "method": verdicts.method(comparison),
            "where": _places(shown),
            "notes": [
                *map(t, notes(comparison)),
                *verdicts.caveats(comparison),
                *([t(verdicts.TRUST)] if shown.source == UPLOADED else []),
            ],
        },
        "figures": _figures(shown),
        "table": table(comparison),
    }


def lettered(found: dict[str, Any]) -> dict[str, Any]:
    """The results of `core.proof.equivalence`, with a sentence and the letters of the page."""
    return {
        **found,
        "says": findings.equivalence(found),
        "translations": elsewhere(lambda: {"says": findings.equivalence(found)}),
        "requests": [{**r, "letter": letter(i)} for i, r in enumerate(found["requests"])],
    }


def about(name: str, comparison: Comparison) -> str:
    """One line about a contender."""
    run = comparison.runs.get(name)
    if name in BASELINES and (run is None or run.trace is None or run.trace.header.engine):
        return BASELINES[name]  # another engine; its name may be that of a policy
    policy = comparison.about.get(name, {}).get("policy", name)
    return POLICIES[policy].shows if policy in POLICIES else ""


def where(environment: Mapping[str, Any]) -> str:
    """One line about the machine, as far as it is known: a browser does not tell how many CPUs it
    has, and another engine's recording tells nothing of its machine.
    """
    versions, hardware = environment.get("versions", {}), environment["hardware"]
    by = "Pyodide" if "pyodide" in versions else "torch"
    told = [
        hardware if hardware == environment["device"] else f"{hardware} ({environment['device']})",
        environment["cpus"] and t(f"{environment['cpus']} [CPU|CPUs]"),
        environment["threads"] and t(f"{environment['threads']} [thread|threads]"),
        environment["dtype"],
        environment["model"]["name"],
        by.lower() in versions and f"{by} {versions[by.lower()]}",
    ]
    return ", ".join(filter(None, told))


def _places(shown: Shown) -> str:
    """One line about the machine, or about several if the runs were made before."""
    if not shown.comparison.is_of_traces:
        return where(shown.environment)
    traces = shown.comparison.traces.values()
    return "; ".join(dict.fromkeys(where(environment(of.header, False)) for of in traces))


def notes(comparison: Comparison) -> list[str]:
    """The engines' notes about the machine, without repetitions."""
    headers = [trace.header for trace in comparison.traces.values()]
    return list(dict.fromkeys(note for header in headers for note in header.notes))


def _figures(shown: Shown) -> list[dict[str, Any]]:
    drawn = [] if shown.load is None else [("load", cost.LOAD_TITLE, cost.load(shown.load))]
    for name, chart in FIGURES.items():
        with contextlib.suppress(InflightError):  # the comparison has no data for it
            drawn.append((name, chart.title, chart.draw(shown.comparison)))
    if shown.cost is not None:
        drawn.append(("cost_curve", cost.COST_TITLE, cost.cost(shown.cost)))
    return [
        {"name": name, "title": t(title), **figure.layout["meta"], "figure": figure.to_json()}
        for name, title, figure in drawn
    ]


# -- the table, for people and as CSV: one row per contender ---------------------------------------


def _number(value: float) -> str:
    return t(f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:,.3g}")


COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    # heading, metric, its format
    ("wall time", "wall_s", findings.seconds),
    ("min to max", "wall_s", str),
    ("as fast", "wall_s", str),
    ("steps", "steps", _number),
    ("output tok/s", "output_tok_s", _number),
    ("TTFT p50", "ttft_s.p50", findings.seconds),
    ("TTFT p99", "ttft_s.p99", findings.seconds),
    ("ITL p50", "itl_s.p50", findings.seconds),
    ("ITL p99", "itl_s.p99", findings.seconds),
    ("TPOT p50", "tpot_s.p50", findings.seconds),
    ("E2E p50", "e2e_s.p50", findings.seconds),
    ("padding waste", "padding_waste", findings.percent),
    ("lane occupancy", "lane_occupancy", findings.percent),
    ("KV use", "kv_use", findings.percent),
    ("recomputed", "tokens_recomputed", _number),
)


def table(comparison: Comparison) -> dict[str, Any]:
    """`{"columns": [{"title", "definition"}], "rows": [[contender, cell, …]]}`, as text."""
    entries = comparison.to_json()["policies"]
    base = entries[comparison.baseline]["wall_s"]["median"]
    rows = []
    for name in comparison.names:
        wall, numbers = entries[name]["wall_s"], _flat(entries[name]["metrics"])
        low, high = findings.seconds(wall["min"]), findings.seconds(wall["max"])
        cells = {
            title: t(NOT_OBSERVABLE) if numbers.get(metric) is None else write(numbers[metric])
            for title, metric, write in COLUMNS
        }
        of_all_rounds = {
            "wall time": findings.seconds(wall["median"]),
            "min to max": t("{low} to {high}", low=low, high=high),
            "as fast": t(f"{findings.divided(base, wall['median']):.2f}×"),
        }
        rows.append([name, *(cells | of_all_rounds).values()])
    definitions = {
        "contender": t(
            "Who served the requests: a batching policy of this engine, or something else on the"
            " same model."
        ),
        **{title: t(DEFINITIONS[metric.split(".")[0]]) for title, metric, _ in COLUMNS},
        "min to max": t("The fastest and the slowest of the runs."),
        "as fast": t(
            "Wall time of {base} ÷ wall time of this one: the two medians as they stand here. The"
            " ratio within each round is in the downloads.",
            base=comparison.baseline,
        ),
    }
    columns = [
        {"title": t(title), "definition": definition} for title, definition in definitions.items()
    ]
    return {"columns": columns, "rows": rows}


def csv_text(comparison: Comparison) -> str:
    """A row per contender: wall times, ratios and every metric, nested ones as `ttft_s.p50`."""
    entries = comparison.to_json()["policies"]
    lines = []
    for name in comparison.names:
        wall, ratio = entries[name]["wall_s"], entries[name]["ratio_to_baseline"]
        measured = {
            "contender": name,
            "wall_s": {k: wall[k] for k in ("median", "min", "max")},
            "ratio_to_baseline": ratio["median"],
        }
        others = {k: v for k, v in entries[name]["metrics"].items() if k != "wall_s"}
        lines.append(_flat(measured | others))
    out = io.StringIO()
    keys = list(dict.fromkeys(key for one in lines for key in one))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_no_formula, keys))
    writer.writerows([_no_formula(one.get(key)) for key in keys] for one in lines)
    return out.getvalue()


def _no_formula(value: Any) -> Any:
    """A text that a spreadsheet might compute gets a quote before it: it may be anyone's."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def _flat(numbers: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat


# -- a fork ----------------------------------------------------------------------------------------


def fork_document(before: Trace, after: Trace) -> dict[str, Any]:
    """Two runs of the same requests that differ in one setting, and where they diverge; raises
    InflightError for different requests. {"schema", "kind": "fork", "names": [before, after],
    "step": the first that differs or None, "says": where they diverge, as spans, then the outcome,
    "runs": two replays, "translations": {language: its "names", "says" and texts of "runs"}}
    """
    found = divergence(before, after)
    changed, steps = knobs(before, after), (len(before.events), len(after.events))

    def said() -> dict[str, Any]:
        was = ", ".join(findings.limit(k.name, k.before) for k in changed)
        becomes = ", ".join(findings.limit(k.name, k.after) for k in changed)
        return {"names": [was, becomes], "says": findings.fork(found, steps)}

    return {
        "schema": 2,
        "kind": "fork",
        **said(),
        "step": found.step if found else None,
        "runs": [replay(before), replay(after)],
        "translations": elsewhere(lambda: {**said(), "runs": [spoken(before), spoken(after)]}),
    }


# -- on disk ---------------------------------------------------------------------------------------


def kept_json(shown: Shown, traces: Mapping[str, str]) -> dict[str, Any]:
    """The content of `comparison.json`. traces: the files of the runs, by contender."""
    return {
        "schema": SCHEMA,
        "title": shown.title,
        "shows": shown.shows,
        "group": shown.group,
        "names": shown.comparison.names,
        "traces": traces,
        **shown.data,
        "equivalence": shown.equivalence,
    }


_TEXTS = ("title", "shows", "group")


def load(folder: Path) -> Shown:
    """The comparison in a folder; raises InflightError for none, or one with contradictions."""
    try:
        plain = read_json((folder / "comparison.json").read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            raise InflightError(
                f"The comparison {folder.name} has schema {plain['schema']!r}; this version reads"
                f" schema {SCHEMA}."
            )
        names, entries = plain["names"], plain["policies"]
        files = {name: file for name, file in plain["traces"].items() if name in names}
        if any(file != Path(file).name for file in files.values()):
            raise InflightError(f"The comparison {folder.name} has runs outside of its folder.")
        traces = {
            name: Trace.from_lines(map(str.rstrip, lines_of(folder / file)))
            for name, file in files.items()
        }
        runs = {name: RunResult({}, entries[name]["metrics"]) for name in names}
        runs |= {name: RunResult.of(trace) for name, trace in traces.items()}

        def known(key: str) -> dict[str, Any]:
            return {name: entries[name][key] for name in names if key in entries[name]}

        comparison = Comparison(
            names=names,
            walls={name: entries[name]["wall_s"]["runs"] for name in names},
            runs=runs,
            medians={name: entries[name]["metrics"] for name in names},
            differences=plain["differences"],
            about={name: {} for name in names} | known("about"),
            shown=known("shown_round"),
            apart=known("apart"),
        )
        if fault := fault_of(comparison, plain):
            raise InflightError(f"The comparison {folder.name} {fault}.")
        curve = CostCurve.from_json(plain["cost_curve"]) if "cost_curve" in plain else None
        as_it_stands = ("workload", "environment", "source", "created", "equivalence", *_TEXTS)
        facts = {name: plain[name] for name in as_it_stands}
        loaded = Shown(comparison, **facts, cost=curve, load=plain.get("load"))
        for what, holds in (
            ("date, source or workload", _is_of(loaded, [t.header for t in traces.values()])),
            ("cost curve", loaded.cost is None or _is_curve(loaded.cost, loaded.environment)),
            ("sweep", loaded.load is None or _is_swept(loaded.load, comparison)),
            ("equivalence", all(_adds_up(loaded, switch) for switch in loaded.equivalence)),
            ("text", all(isinstance(plain[of], str) for of in _TEXTS)),
            ("machine", _is_machine(loaded.environment)),
            ("form", as_text(kept_json(loaded, files)) == as_text(plain)),
        ):
            if not holds:
                raise InflightError(f"The {what} of the comparison {folder.name} does not add up.")
        return loaded
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise InflightError(
            f"The comparison {folder.name} cannot be read: {malformed(error)}."
        ) from None


def _is_of(shown: Shown, headers: Sequence[Header]) -> bool:
    """Whether a comparison was made from these runs, and after them."""
    return all(
        datetime.fromisoformat(shown.created) >= datetime.fromisoformat(header.created)
        and header.source == shown.source
        and shown.workload.removeprefix("engines-").removeprefix("gpu-") == header.workload
        for header in headers
    )


def _is_machine(where: Mapping[str, Any]) -> bool:
    """Whether such a machine can exist."""
    cpus, busy = where["cpus"], where["load_average"]
    return (
        (cpus is None or (type(cpus) is int and cpus > 0))
        and (busy is None or (is_number(busy) and busy >= 0))
        and all(isinstance(where[of], str) for of in ("hardware", "system"))
    )


def _is_curve(cost: CostCurve, where: Mapping[str, Any]) -> bool:
    """Whether a cost curve is of this machine, and has the form that `measuring_cost` gives."""
    tokens, kv = ([(p.tokens, p.kv_read) for p in of] for of in (cost.by_tokens, cost.by_kv))
    return (
        all(getattr(cost, name) == where[name] for name in ("model", "device", "dtype"))
        and all(of == sorted(set(of)) for of in (tokens, kv))
        and len({read / n for n, read in tokens}) == len({n for n, _ in kv}) == 1
        and all(len({len(p.step_s) for p in of}) == 1 for of in (cost.by_tokens, cost.by_kv))
        and all(read % n == 0 for n, read in kv)
        and all(
            type(p.tokens) is type(p.kv_read) is int
            and p.tokens > 0
            and all(is_number(seconds) and seconds > 0 for seconds in p.step_s)
            for p in (*cost.by_tokens, *cost.by_kv)
        )
    )


def _is_swept(load: Mapping[str, Any], comparison: Comparison) -> bool:
    """Whether a sweep is of these contenders, and possible for the model of their runs."""
    headers, points = [t.header for t in comparison.traces.values()], load["points"]
    return (
        {point["policy"] for point in points} <= set(comparison.names)
        and all(
            _is_of_form(
                {name: value for name, value in point["numbers"].items() if name != "goodput"},
                comparison.runs[point["policy"]].metrics,
            )
            for point in points
            if point["policy"] in comparison.traces
        )
        and (not headers or adds_up(load, headers[0].model, headers[0].is_simulated))
    )


def _is_of_form(told: Any, run: Any) -> bool:
    """Whether numbers have the form of a run's; there are none if no request got that far."""
    if isinstance(told, Mapping) and isinstance(run, Mapping):
        return told.keys() == run.keys() and all(_is_of_form(told[key], run[key]) for key in told)
    return told is None or run is None or shape(told) == shape(run)


_SUMS = {"tokens", "differing_tokens", "generated_tokens", "differing_from_generate"}
_TOGETHER = {"config", "leak", "dtype", "device", "requests", "max_logit_difference"} | _SUMS


def _adds_up(shown: Shown, switch: str) -> bool:
    """Whether an equivalence result fits a run: its sums are those of its requests, and theirs
    those of their tokens. With a leak the batch differs from any run, so only the texts written
    alone can be checked.
    """
    own = {"request", "compared", "max_logit_difference", "generated", "solo", "solo_text"}
    own |= {"batched", "batched_text"}
    found, is_leak = shown.equivalence[switch], switch == "leak"
    requests, honest = found["requests"], shown.equivalence["honest"]["requests"]
    traces = shown.comparison.traces.values()
    trace = next((t for t in traces if t.header.config.to_json() == found["config"]), None)
    if (
        trace is None
        or switch not in ("honest", "leak")
        or set(found) != _TOGETHER
        or (found["leak"], found["dtype"], found["device"])
        != (is_leak, trace.header.dtype, trace.header.device)
        or [r["request"] for r in requests] != list(trace.asked)
    ):
        return False
    for r, alone in zip(requests, honest, strict=True):
        solo, batched, known = r["solo"], r["batched"], r["request"]
        at = first_parting(solo, batched)
        parting = None
        if at is not None:
            both = {"solo": solo[at:], "batched": batched[at:]}
            parting = {name: next(iter(tokens), None) for name, tokens in both.items()}
            parting |= {"position": at, "margin": r["parting"]["margin"]}
        follows = {
            "parting": parting,
            "differing_tokens": sum(a != b for a, b in zip_longest(solo, batched)),
            "differing_from_generate": None
            if r["generated"] is None
            else sum(a != b for a, b in zip_longest(r["generated"], batched)),
            **(
                {name: alone[name] for name in ("solo", "solo_text", "generated")}
                if is_leak
                else {"batched": list(trace.outputs[known]), "batched_text": trace.text(known)}
            ),
            **({"solo_text": r["batched_text"]} if at is None else {}),
        }
        if (
            set(r) != own | follows.keys()
            or r != r | follows
            or type(r["compared"]) is not int
            or not 0 <= r["compared"] <= (len(solo) if at is None else at + 1)
            or bool(r["compared"]) != _is_distance(r["max_logit_difference"])
            or (parting and parting["margin"] is not None and not _is_distance(parting["margin"]))
        ):
            return False
    return bool(
        found["tokens"] == sum(len(r["solo"]) for r in requests)
        and found["generated_tokens"] == sum(len(r["generated"] or ()) for r in requests)
        and all(
            found[name] == sum(r[name] or 0 for r in requests)
            for name in ("differing_tokens", "differing_from_generate")
        )
        and found["max_logit_difference"]
        == max((d for r in requests if (d := r["max_logit_difference"]) is not None), default=None)
    )


def _is_distance(value: object) -> bool:
    """Whether this is how far two logits are apart."""
    return is_number(value) and value >= 0  # type: ignore[operator]  # a number, then


def trace_in(folder: Path, name: str) -> tuple[str, Trace]:
    """The title and one run of a comparison that ships; raises KeyError for an unknown run."""
    plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    return plain["title"], Trace.from_lines(
        map(str.rstrip, lines_of(folder / plain["traces"][name])), trusted=True
    )


def recorded(folder: Path = RECORDED) -> list[dict[str, str]]:
    """The list entries of recorded comparisons: `COMPARISON` first, grouped ones last."""
    entries = []
    for path in folder.glob("*/comparison.json"):
        plain = json.loads(path.read_text(encoding="utf-8"))
        entries.append(
            {
                "name": path.parent.name,
                "title": plain["title"],
                "shows": plain["shows"],
                "recorded": plain["created"][:10],
                "group": plain["group"],
            }
        )
    return sorted(entries, key=lambda e: (e["group"], e["name"] != COMPARISON, e["name"]))
