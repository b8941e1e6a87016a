"""Checks the state from which a run continues after steps that are not shown: whether it can be
followed and, if so, what is odd about it. Independent of recordings.
"""

from core.trace.events import NOT_RECORDED, Carried, Resumed, StepEvent
from core.trace.header import Header
from core.trace.rules.blocks import BY_POSITION
from core.trace.rules.followable import FINISH_REASONS, quoted
from core.trace.run_state import RunState


def followable(event: StepEvent, state: RunState, header: Header) -> str | None:
    """Why the state cannot be followed, or None. state: before the steps that are not shown."""
    resumed = event.resumed
    if resumed is None:
        return None
    if header.engine is None:
        return "steps may be missing only in another engine's recording"
    if (
        not 0 <= resumed.first <= resumed.last < event.step
        or not 1 <= resumed.missing <= resumed.last - resumed.first + 1
    ):
        return "the steps that it names cannot be missing"
    return _people(resumed, state) or next(
        (fault for c in resumed.carried if (fault := _carried(c, header))), None
    )


def _people(resumed: Resumed, state: RunState) -> str | None:
    """Each earlier request must be there or have ended, each other must have arrived."""
    new, ended = [a.request for a in resumed.arrived], [f.request for f in resumed.ended]
    here, lanes = [c.request for c in resumed.carried], [c.lane for c in resumed.running]
    if any(len(set(names)) < len(names) for names in (new, ended, here)):
        return "a request is there twice after the missing steps"
    if any(request not in state.num_tokens or request in state.arrived for request in new):
        return "a request cannot have arrived in the missing steps"
    before = {*state.waiting, *state.lanes.values()} - state.finished.keys()
    if not before <= {*here, *ended} or not {*here, *ended} <= {*before, *new}:
        return "the requests after the missing steps are not those that can be there"
    if any(f.finish_reason not in (*FINISH_REASONS, NOT_RECORDED) for f in resumed.ended):
        return "a request cannot have ended as it says"
    if (
        None in lanes
        or len(set(lanes)) < len(lanes)
        or any(c.lane is not None for c in resumed.waiting)
    ):
        return "the requests that hold lanes are not those that run"
    return None


def _carried(carried: Carried, header: Header) -> str | None:
    request = quoted(carried.request)
    if carried.lane is not None and not 0 <= carried.lane < header.config.num_lanes:
        return f"there is no lane {carried.lane}"
    if (
        carried.computed < 0
        or min(carried.tokens, default=0) < 0
        or len(carried.tables) > len(header.groups)
    ):
        return (
            f"request {request} cannot have the state that it is said to have after the missing"
            " steps"
        )
    if any(
        block is not None and not 0 <= block < header.num_blocks
        for table in carried.tables
        for block in table
    ):
        return f"request {request} has a block that the pool does not have"
    return None


def oddity(resumed: Resumed, state: RunState, header: Header) -> str | None:
    """What is odd about the state, or None. state: the run's, after taking it."""
    tokens = [token for carried in resumed.carried for token in carried.tokens]
    if header.model.vocab_size is not None and max(tokens, default=0) >= header.model.vocab_size:
        return "a token from the missing steps is beyond the vocabulary"
    places: dict[int, tuple[int, int]] = {}  # block -> its group and its place in the table
    for carried in resumed.running:
        request = quoted(carried.request)
        is_over = carried.request in state.finished
        if carried.computed > state.num_tokens[carried.request] and not is_over:
            return f"request {request} goes on with more positions than it has tokens"
        for group, table in enumerate(carried.tables):
            facts = header.groups[group]
            needed = facts.blocks_of(carried.computed, header.config.block_size)
            if facts.kind in BY_POSITION and len(table) < needed:
                return (
                    f"request {request} goes on with too few blocks for {carried.computed}"
                    " positions"
                )
            for place, block in enumerate(table):
                if block is None:
                    continue
                if block in places and (
                    not header.config.prefix_caching or places[block] != (group, place)
                ):
                    return "a block has two owners after the missing steps"
                places[block] = group, place
    return None
