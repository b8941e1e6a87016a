"""One event in the context of the earlier ones: all that a sentence about the step needs."""

from dataclasses import dataclass

from core.trace.events import Segment, StepEvent
from core.trace.header import Header
from core.trace.run_state import RunState


@dataclass
class CaptionContext:
    """An event while its passes run.

    state: after all earlier events. prompt: prompt tokens of each request. asked: the most new
    tokens of each. waited: seconds that the device waited for the host before this step.
    """

    event: StepEvent
    state: RunState
    header: Header
    prompt: dict[str, int]
    asked: dict[str, int | None]
    letters: dict[str, str]
    waited: float

    def __post_init__(self) -> None:
        self.config, self.groups = self.header.config, self.header.groups
        self.own = self.header.engine is None  # whether this engine ran
        self.context = self.header.model.context  # the most tokens of a request, if that is known
        # wasted: they neither read nor write
        self.overrun = {o.request for o in self.event.overrun}
        useful = [s for s in self.event.segments if s.request not in self.overrun]
        self.prefills = [s for s in useful if s.phase == "prefill"]
        self.decodes = [s for s in useful if s.phase == "decode"]
        self.leaving = {
            left.request: left.lane for left in self.event.released if left.when == "after"
        }
        self.sampled = {s.request for s in self.event.sampled}
        self.all_prefills = [s for s in self.event.segments if s.phase == "prefill"]
        new = {s.request for s in self.all_prefills}
        # the budget counts these before any prompt
        self.old_decodes = [
            s for s in self.event.segments if s.phase == "decode" and s.request not in new
        ]
        self.by_request: dict[str, Segment] = {s.request: s for s in self.prefills}

    @property
    def reserved(self) -> bool:
        """Whether free KV blocks may be reserved for running requests: by the rule of the policy,
        or because its own count leaves fewer than are free.
        """
        policy, event = self.config.policy, self.event
        why = event.waiting.why
        return policy.reserve == "output" or (
            why is not None
            and why.limit == "blocks"
            and why.have < event.kv.total - event.kv.used
            and not (policy.watermark or event.preempted or event.stalled)
        )

    @property
    def ran_out(self) -> bool:
        """Whether requests are preempted because KV blocks ran out. Another engine may also preempt
        all running requests, and does not record why.
        """
        admitted = {a.request for a in self.event.admitted}
        return self.own or any(r not in admitted for r in self.state.running)

    @property
    def device_waited(self) -> bool:
        """Whether the device waited long enough to say so: a hundredth of the step."""
        return self.waited > 0.01 * (self.event.t_end - self.event.t_start)

    @property
    def prefills_come_first(self) -> bool:
        """Whether prompts are computed in passes of their own, before the decode pass."""
        return (
            bool(self.prefills and self.decodes)
            and self.prefills[0].pass_index < self.decodes[0].pass_index
        )

    def written(self, request: str) -> int:
        """The number of generated tokens once the step is over."""
        now = sum(s.request == request for s in self.event.sampled)
        return self.state.num_tokens.get(request, 0) + now - self.prompt.get(request, 0)

    def fills_context(self, request: str, tokens: int) -> bool:
        """Whether an answer of this length fills the model's context. On import, the limit of
        another engine's request is cut to that length.
        """
        return not self.own and self.prompt.get(request, 0) + tokens == self.context

    def has_stop_string(self, request: str) -> bool:
        """Whether a request that stops does so at a stop string, not at one of its tokens."""
        tokens = [s.token_id for s in self.event.sampled if s.request == request]
        ends = self.header.model.eos_token_ids
        return self.own and ends is not None and bool(tokens) and tokens[-1] not in ends

    def pending_end(self, s: Segment) -> int:
        """The number of tokens of the request when the pass began, where its prefill ends."""
        return self.state.num_tokens.get(s.request, s.kv_len)

    def recomputed(self, s: Segment) -> int:
        """How many of the segment's positions had been computed before a preemption."""
        return max(0, min(self.state.lost.get(s.request, 0), s.kv_len) - s.start)

    def cut_by_budget(self, s: Segment) -> bool:
        """Whether the budget cut a segment: by the record, or it is spent but the pool is not."""
        if any(a.request == s.request and a.why.limit == "budget" for a in self.event.admitted):
            return True
        full = self.event.kv.used == self.event.kv.total and any(
            s.kv_len
            == len(table)
            // (self.groups[group].units or 1)
            * (self.groups[group].block_size or self.config.block_size)
            for group, table in self.state.tables[s.request].items()
        )
        return (
            s.kv_len < self.pending_end(s)
            and self.event.budget.limit is not None
            and self.event.budget.unused == 0
            and not full
        )
