"""Steps of a recording that cannot be shown, and what is known of them. Works on raw records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Raw = dict[str, Any]


class MissingSteps:
    """Steps that cannot be shown: from the first missing one until a snapshot gives the state.

    first: the number of that step. missing: how many so far are not on record. passed: how many are
    on record but not shown. reasons: the finish reasons recorded in the latter, by request.
    """

    def __init__(self, first: int) -> None:
        self.first, self.missing, self.passed = first, 0, 0
        self.reasons: dict[str, str] = {}
        self._expected = first  # the number of the next step
        self._prompts: dict[str, list[int]] = {}

    def reach(self, step: Raw) -> None:
        """Count the steps between the last one on record and this one."""
        self.missing += step["step"] - self._expected
        self._expected = step["step"]

    def with_prompts(self, snapshot: Raw, known: Mapping[str, list[int]]) -> Raw | None:
        """The snapshot with all prompts, which its rows may leave out if an earlier one had them.
        None if one of those is missing. known: prompts from before these steps.
        """
        rows = []
        for row in snapshot["requests"]:
            request = row["request"]
            if "prompt" in row:
                self._prompts[request] = row["prompt"]
            elif row.get("told"):
                prompt = self._prompts.get(request) or known.get(request)
                if prompt is None:
                    return None
                row = row | {"prompt": prompt}
            rows.append(row)
        return snapshot | {"requests": rows}

    def pass_over(self, step: Raw) -> None:
        """Note a step that is on record but cannot be shown."""
        self.passed, self._expected = self.passed + 1, step["step"] + 1
        self._prompts |= {a["request"]: a["prompt"] for a in step["arrived"] if "prompt" in a}
        self.reasons |= dict(step.get("finished", ()))

    def is_damaged(self, step: Raw) -> None:
        """Note a step that is on record but contradicts itself or the state."""
        self.missing, self._expected = self.missing + 1, step["step"] + 1
