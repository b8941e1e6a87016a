"""The rules of another engine's step that follow from its header: from the rules by which lanes,
queue and reasons were inferred, from its order and its limits, and from arithmetic. They read the
events and the state before each part.

Facts that an engine does not record, such as that it skipped a request, are believed;
`assets/checks.toml` lists them.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from core.trace.events import NOT_RECORDED, SKIPPED, UNRECORDED, Resumed, StepEvent
from core.trace.header import Header, windows_of
from core.trace.inferred import inferred_by, inferred_reasons, lowest_free
from core.trace.rules.blocks import BY_POSITION
from core.trace.rules.bounds import ROUNDING, plausible_reason
from core.trace.rules.followable import quoted
from core.trace.run_state import RunState

_MAY_BE_ABSENT = ("prepare", "sample", "logprob", "margin", "tokens", "prompts")


def oddity(header: Header) -> str | None:
    """What is wrong with a header, or None: its lanes, queue and reasons are always inferred, by
    the rules known here, and each absent fact has a known name.
    """
    if header.inferred != inferred_by(header.policy):
        return (
            "the header does not name the rules by which lanes, queue and reasons are inferred here"
        )
    if header.model.windows != windows_of(header.kv_groups):
        return "the model's windows are not those of its KV cache groups"
    if unknown := [fact for fact in header.absent if fact not in _MAY_BE_ABSENT]:
        return f"the header says that {quoted(unknown[0])} is absent, which no step has"
    return None


class RecordedRules:
    """The rules of a run, each for a part of a step; a rule says what is wrong, or None."""

    def __init__(self, header: Header) -> None:
        engine = header.engine
        self._header, self._config, self._policy = header, header.config, header.policy
        self._groups = header.groups
        self._longest = engine.long_prefill_token_threshold if engine else None
        self._holds_blocks = bool(engine and engine.kv_connector)
        self._proposes = engine.num_spec_tokens if engine else None
        self.ahead = 2 * (self._proposes or 0)
        """Positions beyond its tokens for which a request may have blocks: proposed tokens, and
        those of the step before that were not accepted.
        """
        self._step = -1
        # the head of the queue after the step before, if it is known why it waited
        self._next: str | None = None

    def numbering(self, event: StepEvent, state: RunState) -> str | None:
        """Steps are consecutive, except where the record says that some are missing."""
        before, self._step, resumed = self._step, event.step, event.resumed
        self.ahead = max(self.ahead, *(2 * draft.drafted for draft in event.drafts), 0)
        if resumed is not None:
            self._next = None
            follows = resumed.last + 1 == event.step and (before < 0 or resumed.first == before + 1)
        else:
            follows = event.step == before + 1
        return None if follows else "steps are missing before it, and it does not say so"

    def times(self, event: StepEvent, state: RunState) -> str | None:
        """The recorded durations are the differences of the recorded times."""
        if not event.passes:
            return None
        scheduling = event.passes[0].t_start - event.t_start
        computing = event.passes[-1].t_end - event.passes[0].t_start
        taken = event.timings
        if max(abs(taken.schedule - scheduling), abs(taken.forward - computing)) > ROUNDING:
            return "scheduling and the pass do not take as long as its times say"
        return None

    def lanes_after(self, resumed: Resumed, before: RunState) -> str | None:
        """Requests from before the steps that are not shown keep their lanes."""
        held = {r: lane for lane, r in before.lanes.items() if r not in before.finished}
        kept = {c.request: held[c.request] for c in resumed.running if c.request in held}
        new = ((c.request, c.lane) for c in resumed.running if c.request not in kept)
        moved = [c.request for c in resumed.running if kept.get(c.request, c.lane) != c.lane]
        return self._lowest(new, kept.values()) or (self._elsewhere(moved[0]) if moved else None)

    def preemptions(self, event: StepEvent, state: RunState) -> str | None:
        """Requests are preempted for lack of blocks only: the newest by rule, or all."""
        running, gone = state.running, {p.request for p in event.preempted}
        if not gone or gone == set(running):
            return None
        older = gone - set(running[-len(gone) :])
        if self._policy.victim == "newest" and older:
            return f"request {quoted(min(older))} was preempted but is not the newest"
        free = self._header.num_blocks - len(state.used_blocks)
        kept = int(self._policy.watermark * (self._header.num_blocks + 1))
        if not self._holds_blocks and free - kept >= (
            need := sum([self._lacks(request, event, state) for request in running])
        ):
            return (
                f"request {quoted(event.preempted[0].request)} was preempted although {free} blocks"
                f" were free and {need} needed"
            )
        return None

    def admissions(self, event: StepEvent, state: RunState) -> str | None:
        """Lanes are taken from the lowest on, and the queue is left in its order."""
        if fault := self._lowest(((a.request, a.lane) for a in event.admitted), state.lanes):
            return fault
        # whoever is passed over waits for something that is not recorded
        skips = event.waiting.why in (SKIPPED, UNRECORDED)
        first = set(islice(state.waiting, len(event.admitted)))
        early = [a.request for a in event.admitted if a.request not in first]
        if early and not skips and self._policy.order_by == "arrival":
            return f"request {quoted(early[0])} was admitted before another that came first"
        return None

    def queue(self, event: StepEvent, state: RunState) -> str | None:
        """The head is the first to arrive or, by another order, stays until one joins or comes."""
        head, before = event.waiting.request, self._next
        self._next = None if event.waiting.why in (SKIPPED, UNRECORDED) else head
        if head is None or self._holds_blocks or self._policy.order_by == NOT_RECORDED:
            return None
        if self._policy.order_by == "arrival":
            is_next = head == state.waiting[0] if state.waiting else False
        else:
            new = {a.request for a in event.arrived} | {p.request for p in event.preempted}
            stays = before is not None and before in state.waiting
            is_next = not stays or (
                head in {before, *new} and {a.request for a in event.admitted} <= new
            )
        if is_next:
            return None
        return f"request {quoted(head)} is said to be the head of the queue, but is not"

    def reasons(self, event: StepEvent, state: RunState) -> str | None:
        """Each reason follows from lanes, budget and blocks, or is not recorded if none does; but
        the head of the queue may have been skipped. state: while the passes run.
        """
        why = event.waiting.why
        totals = {
            "lanes": self._config.num_lanes,
            "budget": event.budget.limit,
            "blocks": self._header.num_blocks,
            "chunk": self._longest,
        }
        stated = [why, *(a.why for a in event.admitted), *(s.why for s in event.stalled)]
        if not all([plausible_reason(reason, totals) for reason in stated]):
            return "a reason has numbers that do not fit its limit"
        if event.budget.binding != (why.limit if why else "none"):
            return f"it was not held back by “{event.budget.binding}”"
        follows = inferred_reasons(event, state, self._header)
        if stated[why == SKIPPED :] != follows[why == SKIPPED :]:
            return "a reason does not follow from the lanes, budget and blocks that are free"
        return None

    def chunks(self, event: StepEvent, state: RunState) -> str | None:
        """What a pass may hold, and how much of a request. state: before its passes."""
        over = {row.request for row in event.overrun}
        drafted = Counter({d.request: d.drafted for d in event.drafts})
        longest, context = self._longest, self._header.model.context
        alone = len(state.running) + len(state.waiting) < 2
        if len(event.passes) > 1:
            return "it has more than one pass"
        if any(forward.layout != self._policy.layout for forward in event.passes):
            return "its passes are not laid out as the header says"
        if self._proposes is not None and max(drafted.values(), default=0) > self._proposes:
            return f"more than {self._proposes} tokens were proposed for a request"
        for s in event.segments:
            if s.request in over:
                continue
            length, end = s.length - drafted[s.request], s.kv_len - drafted[s.request]
            if context is not None and end > context:
                return (
                    f"request {quoted(s.request)} computes more positions than the model's context"
                    f" of {context}"
                )
            if longest and not alone and length > longest:
                return (
                    f"request {quoted(s.request)} computes more than {longest} tokens of its prompt"
                    " in one step"
                )
            is_whole = end >= state.num_tokens[s.request]
            if not is_whole and not longest and not self._config.chunked_prefill:
                return (
                    f"request {quoted(s.request)} computes a prompt in chunks although that is off"
                )
        return None

    def _lowest(self, joining: Iterable[tuple[str, int | None]], held: Iterable[int]) -> str | None:
        """The first of these requests that does not take the lowest free lane, in words."""
        taken = set(held)
        for request, lane in joining:
            if lane != lowest_free(taken):
                return self._elsewhere(request)
            taken.add(lane)
        return None

    def _elsewhere(self, request: str) -> str:
        return f"request {quoted(request)} does not take the lane that the header's rule gives it"

    def _lacks(self, request: str, event: StepEvent, state: RunState) -> int:
        """The most blocks that the request may have needed in this step beyond its own."""
        ends = [s.kv_len for s in event.segments if s.request == request]
        most = max([state.num_tokens[request], *ends]) + self.ahead
        lacks = 0
        for index, group in enumerate(self._groups):
            held = len(state.tables.get(request, {}).get(index, ()))
            least = 0 if group.kind in BY_POSITION else (1 + self.ahead) * (group.units or 1)
            lacks += max(group.blocks_of(most, self._config.block_size) - held, least)
        return lacks
