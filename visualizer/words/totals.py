"""A whole run in a few numbers: what its limits cost. Each with its definition, the one of `core.measure.metrics`."""

from __future__ import annotations

from typing import Any

from core.measure.metrics import DEFINITIONS, metrics
from core.trace.trace import Trace
from visualizer.words.language import t
from visualizer.words.vocabulary import milliseconds


def totals(trace: Trace) -> list[dict[str, str]]:
    """`{"name", "value", "means"}` (times: the median and the worst) of a run's latencies, throughput and waste; nothing where no token came."""
    if not any(event.sampled for event in trace.events):
        return []
    found = metrics(trace)
    shown = {
        "ttft_s": ("TTFT", _times(found["ttft_s"])),
        "itl_s": ("ITL", _times(found["itl_s"])),
        "output_tok_s": ("Output", _told(found["output_tok_s"], "{:,.0f} tok/s")),
        "lane_occupancy": ("Lanes in use", _share(found["lane_occupancy"])),
        "padding_waste": ("Padding", _share(found["padding_waste"] or None)),
    }
    return [{"name": t(name), "value": t(value), "means": t(DEFINITIONS[key])} for key, (name, value) in shown.items() if value]


def _told(number: float | None, form: str) -> str | None:
    return None if number is None else form.format(number).replace("%", " %")


def _share(share: float | None) -> str | None:
    """In whole percent, and finer where that would say none or all of what is neither."""
    return _told(share, "{:.0%}" if share in (0, None, 1) or 0.005 < share < 0.995 else "{:.2%}")


def _times(spread: dict[str, Any]) -> str | None:
    """The median and the worst; at least those, where some have not come yet."""
    if not spread["count"]:
        return None
    least = "≥ " if spread["left_out"] else ""
    return f"{least}{_duration(spread['p50'])}, worst {least}{_duration(spread['max'])}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else milliseconds(seconds)
