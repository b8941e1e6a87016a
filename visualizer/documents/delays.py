"""Where the time of each request went, for the browser: numbers by request, and sentences in every
language about the worst delays.

    {"parts": [[name, label, meaning], …], "requests": {request: {"us": […], "steps": […], "queued":
        {limit: us}, "uncompared": us, "ended": …}, …},
     "limits": {limit: words}, "worst": [{"kind": "gap" or "wait", "us", "step", "request", "say":
         {language: sentence}}, …]}

us and steps: by part, in the order of `parts`. Labels, meanings and names of limits are English,
and keys of the page's translations.
"""

from typing import Any

from core.account.delays import QUEUED, SHARE_NAMES, TIME_SHARES, Delay, Gap, delays
from core.trace.phrases import queued_by
from core.trace.trace import Trace
from visualizer.words.delays import gap_sentence, wait_sentence
from visualizer.words.language import elsewhere


def delays_document(trace: Trace) -> dict[str, Any]:
    """The delays of a run that is over, or of the recorded part of a run."""
    found = delays(trace)
    return {
        "parts": [[name, SHARE_NAMES[name], meaning] for name, meaning in TIME_SHARES.items()],
        "requests": {
            d.request: {
                "us": d.us,
                "steps": d.steps,
                "queued": d.queued_us,
                "uncompared": d.uncompared_us,
                "ended": d.reason is not None,
            }
            for d in found.requests
        },
        "limits": {
            limit: queued_by(limit)
            for limit in sorted({limit for d in found.requests for limit in d.queued_us})
        },
        "worst": [_gap(gap) for gap in found.gaps] + [_wait(delay) for delay in found.waits],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    say = {"en": gap_sentence(gap)} | elsewhere(lambda: gap_sentence(gap))
    return {"kind": "gap", "us": gap.whole_us, "step": gap.step, "request": gap.request, "say": say}


def _wait(delay: Delay) -> dict[str, Any]:
    say = {"en": wait_sentence(delay)} | elsewhere(lambda: wait_sentence(delay))
    return {
        "kind": "wait",
        "us": delay.us[QUEUED],
        "step": delay.first_step,
        "request": delay.request,
        "say": say,
    }
