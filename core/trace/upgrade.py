"""Traces of schema 1 as traces of schema 2. What schema 1 leaves to be inferred is inferred here, once, and nowhere else.

Schema 2 says who left which lane and when, names the token budget as the binding limit wherever it is spent and somebody is held back,
carries the fields of the policy, and has the texts in a line for each request.
"""

from __future__ import annotations

from typing import Any

from core.config import POLICIES
from core.trace.events import Left, StepEvent

_AS_IT_WAS: dict[str, dict[str, Any]] = {"continuous": {"preemption": "idle"}}  # where a policy has changed since


class FromSchema1:
    """Follows a run of schema 1 line by line. What is malformed stays as it is, for the rules to find."""

    def __init__(self) -> None:
        self._barrier = False
        self._lanes: dict[str, int] = {}

    def header(self, data: dict[str, Any]) -> dict[str, Any]:
        """The header with the fields of its policy."""
        policy = data.get("policy")
        if not isinstance(policy, str) or policy not in POLICIES:
            return data
        self._barrier = POLICIES[policy].keeps_finished
        return {**data, "batching": POLICIES[policy].to_json() | _AS_IT_WAS.get(policy, {})}

    def event(self, event: StepEvent) -> StepEvent:
        """The event with its binding limit, and with who left which lane: those that gave back blocks without being preempted.

        A cancelled request left before the passes. At the barrier so did the rest of a wave that ended with it: every request that computed
        nothing in these passes.
        """
        preempted = {p.request for p in event.preempted}
        cancelled = {f.request for f in event.finished if f.when == "before"}
        at_work = {s.request for s in event.segments} | {s.request for s in event.stalled}
        at_work |= {row.request for forward in event.passes for row in forward.finished_rows}
        early = {c.request for c in event.kv.changes if c.released} - at_work if cancelled and self._barrier else cancelled
        for request in preempted:
            self._lanes.pop(request, None)
        released = [c.request for c in event.kv.changes if c.released and c.request not in preempted]
        before = [Left(r, self._lanes.pop(r, -1), "before") for r in released if r in early]
        for request, lane, _ in event.admitted:
            self._lanes[request] = lane
        after = [Left(r, self._lanes.pop(r, -1), "after") for r in released if r not in early]
        budget, is_held_back = event.budget, event.waiting.why is not None or event.budget.binding == "budget"
        if budget.decode + budget.prefill == budget.limit and is_held_back:
            budget = budget._replace(binding="budget")
        return event._replace(budget=budget, left=(*before, *after))
