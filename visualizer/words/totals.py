"""A whole run in a few numbers: what its limits cost. Each with its definition, the one of `core.measure.metrics`."""

from __future__ import annotations

from core.measure.metrics import DEFINITIONS, metrics
from core.trace.trace import Trace
from visualizer.words.vocabulary import milliseconds


def totals(trace: Trace) -> list[dict[str, str]]:
    """`{"name", "value", "means"}` (times: the median and the worst) of a run's latencies, throughput and waste; nothing where no token came."""
    if not any(event.sampled for event in trace.events):
        return []
    found = metrics(trace)
    shown = [("TTFT", _times(found["ttft_s"]), "ttft_s")]
    if found["itl_s"]:
        shown.append(("ITL", _times(found["itl_s"]), "itl_s"))
    shown.append(("Output", f"{found['output_tok_s']:,.0f} tok/s", "output_tok_s"))
    shown.append(("Lanes in use", f"{found['lane_occupancy']:.0%}".replace("%", " %"), "lane_occupancy"))
    if found["padding_waste"]:
        shown.append(("Padding", f"{found['padding_waste']:.0%}".replace("%", " %"), "padding_waste"))
    return [{"name": name, "value": value, "means": DEFINITIONS[key]} for name, value, key in shown]


def _times(spread: dict[str, float]) -> str:
    return f"{milliseconds(spread['p50'])}, worst {milliseconds(spread['max'])}"
