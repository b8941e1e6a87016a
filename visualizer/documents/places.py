"""The place at which a saved page opens: a step, perhaps of a rank, or a common moment."""

from typing import Any

from core.errors import InflightError, shown


def checked_place(
    document: dict[str, Any],
    step: int | None = None,
    rank: int | None = None,
    at: float | None = None,
) -> dict[str, float]:
    """The place as options of the player, without None; raises InflightError for a step or rank
    that does not exist. document: a replay, or that of all ranks. at: seconds on the ranks' common
    clock, clipped to the length of the run.
    """
    ranks = {one["rank"]: one for one in document.get("ranks", ())}
    if rank is not None and rank not in ranks:
        raise InflightError(f"There is no rank {shown(rank)} here.")
    chosen = ranks.values() if rank is None else [ranks[rank]]
    runs = [(one["offset"], one["replay"]["events"]) for one in chosen] or [
        (0.0, document.get("events", ()))
    ]
    steps = [(event["step"], offset, event) for offset, events in runs for event in events]
    if not steps:  # the page opens at its beginning
        return {} if rank is None else {"rank": rank}
    if step is not None and step not in {number for number, _, _ in steps}:
        raise InflightError(f"This run has no step {shown(step)}.")
    if at is not None:
        first = min(offset + event["t_start"] for _, offset, event in steps)
        at = max(first, min(at, max(offset + event["t_end"] for _, offset, event in steps)))
    return {
        name: value
        for name, value in (("step", step), ("rank", rank), ("at", at))
        if value is not None
    }
