"""A comparison as a folder, as those that ship are kept: written, and held against its runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from core.errors import InflightError, malformed
from core.measure.compare import Comparison, first_parting
from core.measure.cost_curve import CostCurve
from core.trace.header import Header
from visualizer.documents.comparison import SCHEMA, Shown, load
from worlds.comparison_faults import adds_up, fault_of, shape

_TEXTS = ("title", "shows", "group")


def save(shown: Shown, folder: Path) -> Path:
    """Write a comparison with its traces; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for index, (name, run) in enumerate(shown.comparison.runs.items()):
        if run.trace is not None:
            names[name] = (
                f"{index}-{''.join(c if c.isalnum() or c == '-' else '_' for c in name)}.jsonl.gz"
            )
            text = "".join(line + "\n" for line in run.trace.lines())
            # the same run, the same bytes
            (folder / names[name]).write_bytes(gzip.compress(text.encode(), mtime=0))
    for old in set(folder.glob("*.jsonl*")) - {folder / file for file in names.values()}:
        old.unlink()
    (folder / "comparison.json").write_text(
        json.dumps(kept_json(shown, names), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    return folder


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


def checked(folder: Path) -> Shown:
    """The comparison in a folder; raises InflightError for one with contradictions."""
    loaded = load(folder, trusted=False)
    try:
        plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        comparison, files = loaded.comparison, plain["traces"]
        if any(file != Path(file).name for file in files.values()):
            raise InflightError(f"The comparison {folder.name} has runs outside of its folder.")
        if fault := fault_of(comparison, plain):
            raise InflightError(f"The comparison {folder.name} {fault}.")
        headers = [trace.header for trace in comparison.traces.values()]
        for what, holds in (
            ("date, source or workload", _is_of(loaded, headers)),
            ("cost curve", loaded.cost is None or _is_curve(loaded.cost, loaded.environment)),
            ("sweep", loaded.load is None or _is_swept(loaded.load, comparison)),
            ("equivalence", all(_adds_up(loaded, switch) for switch in loaded.equivalence)),
            ("text", all(isinstance(plain[of], str) for of in _TEXTS)),
            ("machine", _is_machine(loaded.environment)),
            ("form", json.loads(json.dumps(kept_json(loaded, files))) == plain),
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
        and shown.workload in (header.workload, f"engines-{header.workload}")
        for header in headers
    )


def _is_machine(where: Mapping[str, Any]) -> bool:
    """Whether such a machine can exist."""
    cpus, busy = where["cpus"], where["load_average"]
    return (
        (cpus is None or (type(cpus) is int and cpus > 0))
        and (busy is None or busy >= 0)
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
            or not 0 <= r["compared"] <= (len(solo) if at is None else at + 1)
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
