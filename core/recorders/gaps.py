"""Finds where a recording can be followed again after missing steps: at a snapshot of the engine's whole state, or at the first step at which every
request arrived after the gap, so that the state can be worked out. Works on raw records; independent of traces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from core.recorders.groups import kv_groups
from core.recorders.raw import Recording

Raw = dict[str, Any]


class State(NamedTuple):
    """The state before a step, in the form of a snapshot with all prompts. source: where it comes from."""

    snapshot: Raw
    source: Literal["snapshot", "steps"]


class Gap:
    """Steps that cannot be shown: from the first missing one until the state is known again.

    first: the number of that step. missing: how many so far are not on record. passed: how many are on record but not shown. reasons: the finish
    reasons recorded in the latter, by request.
    """

    def __init__(self, first: int, recording: Recording) -> None:
        self.first, self.missing, self.passed = first, 0, 0
        self.reasons: dict[str, str] = {}
        self._next = first  # the number of the step that is expected
        self._prompts: dict[str, list[int]] = {}
        self._newcomers = _Newcomers(recording.header, recording.requeues)

    def state_before(
        self,
        step: Raw,
        snapshot: Raw | None,
        aborts: Iterable[Raw],
        prompts: Mapping[str, list[int]],
    ) -> State | None:
        """The whole state before this step, or None if it is not known. snapshot: the one before this step. prompts: of requests from before the gap."""
        self.missing, self._next = self.missing + step["step"] - self._next, step["step"]
        if self.missing and self._newcomers.is_behind(step["step"]):
            self._newcomers.forget()
        self._newcomers.leave(aborts, step["t_start"])
        if snapshot is not None:
            rows = [self._with_prompt(row, prompts) for row in snapshot["requests"]]
            if None not in rows:
                return State(snapshot | {"requests": rows}, "snapshot")
        worked_out = self._newcomers.state_before(step)
        return None if worked_out is None else State(worked_out, "steps")

    def pass_over(self, step: Raw) -> None:
        """Note a step that is on record but cannot be shown."""
        self.passed, self._next = self.passed + 1, step["step"] + 1
        self._prompts |= {a["request"]: a["prompt"] for a in step["arrived"] if "prompt" in a}
        self.reasons |= dict(step.get("finished", ()))
        self._newcomers.take(step)

    def is_damaged(self, step: Raw) -> None:
        """Note a step that is on record but contradicts itself or the state."""
        self.missing, self._next = self.missing + 1, step["step"] + 1
        self._newcomers.forget()

    def _with_prompt(self, row: Raw, prompts: Mapping[str, list[int]]) -> Raw | None:
        """A row of a snapshot with its prompt, which a row may leave out if an earlier one had it. None if that one is missing."""
        request = row["request"]
        if "prompt" in row:
            self._prompts[request] = row["prompt"]
        elif row.get("told"):
            prompt = self._prompts.get(request) or prompts.get(request)
            return None if prompt is None else row | {"prompt": prompt}
        return row


class _Newcomers:
    """Requests that arrived after the gap, which are wholly on record. Once no others are left, the state is known."""

    def __init__(self, header: Raw, requeues: bool) -> None:
        self._num_blocks, self._requeues = header.get("num_blocks"), requeues
        self._is_able = not kv_groups(header)
        self.forget()

    def forget(self) -> None:
        """Start again: another step is missing, so requests from before it are no longer wholly known."""
        self._rows: dict[str, Raw] = {}
        self._running: list[str] = []
        self._waiting: deque[str] = deque()
        self._last: int | None = None

    def is_behind(self, number: int) -> bool:
        return self._last is not None and number != self._last + 1

    def leave(self, aborts: Iterable[Raw], t: float) -> None:
        """Drop requests that were ended from outside by then."""
        for abort in aborts:
            for request in abort["requests"] if abort["t"] <= t else ():
                self._drop(request)

    def state_before(self, step: Raw) -> Raw | None:
        arrived = {a["request"] for a in step["arrived"]}
        there, computing = self._rows.keys() | arrived, {s["request"] for s in step["segments"]}
        running = (set(self._running) - {p[0] for p in step["preempted"]}) | {
            a["request"] for a in step["admitted"]
        }
        if not self._is_able or not computing or not computing <= there or not running <= there:
            return None
        if len(there - running) != step.get("waiting", 0) or not self._holds_all_blocks(step):
            return None
        return {
            "running": list(self._running),
            "waiting": list(self._waiting),
            "requests": [row | {"output": list(row["output"])} for row in self._rows.values()],
        }

    def _holds_all_blocks(self, step: Raw) -> bool:
        """Whether the known requests hold all blocks that are in use while the step runs."""
        if self._num_blocks is None or "blocks_free" not in step:
            return True
        gone = {p[0] for p in step["preempted"]}
        held = {
            b
            for request, row in self._rows.items()
            if request not in gone
            for b in row["blocks"][0]
        }
        held |= {b for _, groups, _ in step["blocks"] for b in (groups[0] if groups else ())}
        return len(held) == self._num_blocks - step["blocks_free"]

    def take(self, step: Raw) -> None:
        self._last = step["step"]
        for arrived in step["arrived"]:
            self._rows[arrived["request"]] = arrived | {"computed": 0, "output": [], "blocks": [[]]}
            self._waiting.append(arrived["request"])
        order = list(self._rows)
        for request in sorted(
            (p[0] for p in step["preempted"] if p[0] in self._rows), key=lambda r: -order.index(r)
        ):
            self._running.remove(request)
            self._waiting.append(request) if self._requeues else self._waiting.appendleft(request)
            self._rows[request] |= {"computed": 0, "blocks": [[]], "preemptions": 1}
        for admitted in step["admitted"]:
            if admitted["request"] in self._waiting:
                self._waiting.remove(admitted["request"])
                self._running.append(admitted["request"])
        for request, groups, kind in step["blocks"]:
            if request in self._rows and groups:
                before = [] if kind == "table" else self._rows[request]["blocks"][0]
                self._rows[request]["blocks"] = [[*before, *groups[0]]]
        for segment in step["segments"]:
            if segment["request"] in self._rows:
                self._compute(
                    self._rows[segment["request"]],
                    segment,
                    step.get("sampled", {}).get(segment["request"], []),
                )
        for request, _ in step.get("finished", ()):
            self._drop(request)

    def _compute(self, row: Raw, segment: Raw, tokens: list[int]) -> None:
        refused = segment["draft"] - max(0, len(tokens) - 1) if segment["draft"] else 0
        row["computed"] = segment["start"] + segment["length"] - refused
        row["output"] = [*row["output"], *tokens]

    def _drop(self, request: str) -> None:
        if self._rows.pop(request, None) is not None:
            for queue in (self._running, self._waiting):
                if request in queue:
                    queue.remove(request)
