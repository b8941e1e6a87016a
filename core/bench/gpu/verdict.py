"""From what the parts found to the bars: which were met. Reads the result's JSON, measures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.bench.report import Limit, Ratio, Report

NAME, TITLE = "gpu", "GPU benchmark"
OURS = "inflight"


def report(data: Mapping[str, Any]) -> Report:
    """Bars of the parts that are done; of a quick run the numbers alone."""
    done = {name: part["result"] for name, part in data["parts"].items() if part["status"] == "done"}
    found = Report(NAME, TITLE)
    main = data["key"]["scale"]["main"]["name"]
    if "accuracy" in done:
        _accuracy(found, done["accuracy"])
    if main in done:
        _whole(found, done[main])
        for name, at_least in (("transformers-continuous", 5.0), ("generate-waves", None)):
            if name in done:
                ours, theirs = done[main]["compared"], done[name]
                count = ours["workload"]["requests"]
                found.times |= {f"{OURS}, {count} requests": [ours["seconds"]], f"{name}, {count} requests": [theirs["seconds"]]}
                if theirs["output_tok_s"]:  # a run that was cut at once wrote nothing
                    found.ratios.append(Ratio(OURS, name, (ours["output_tok_s"] / theirs["output_tok_s"],), at_least))
    for shape in data["key"]["scale"]["decode"]:
        part = done.get(f"{shape['name']}-decode")
        if part is not None:
            what = (
                f"decode step of {shape['name']}, {part['lanes']} lanes × {part['context']:,.0f} tokens, of the bandwidth floor"
            )
            found.limits.append(Limit(what, round(100 * part["share"], 1), "%", at_least=50.0))
    if data["quick"]:
        found.ratios = [Ratio(r.faster, r.than, r.runs, None) for r in found.ratios]
        found.limits = [limit._replace(at_most=None, at_least=None) for limit in found.limits]
    return found


def _accuracy(found: Report, part: Mapping[str, Any]) -> None:
    greedy, logits = part["greedy"], part["logits"]
    found.limits += [
        Limit(
            f"requests of {greedy['requests']} whose float32 greedy tokens differ", greedy["different_requests"], "requests", 0
        ),
        Limit("error of packed bf16 logits, against each request alone", round(logits["ratio"], 3), "×", 1.2),
    ]


def _whole(found: Report, part: Mapping[str, Any]) -> None:
    whole = part["all"]
    found.times[f"{OURS}, {whole['workload']['requests']} requests"] = [whole["seconds"]]
    found.limits += [
        Limit(f"output of {whole['workload']['requests']} requests", whole["output_tok_s"], "tok/s"),
        Limit(f"output of {part['compared']['workload']['requests']} requests", part["compared"]["output_tok_s"], "tok/s"),
        Limit("slower for recording events", round(100 * part["recording"]["slowdown"], 3), "%", 1.0),
        Limit(
            "host time that goes into events, mostly beside the device's", round(100 * part["recording"]["host_share"], 3), "%"
        ),
    ]
    if whole["idle"] is not None:
        found.limits.append(Limit("device idle between decode steps", round(100 * whole["idle"], 2), "%", 5.0))
