"""The whole state of vLLM's scheduler at one moment, from which a reader can continue."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

# the scheduler's own finish reasons; all others are recorded as aborts
_BY_ITSELF = ("length", "stop", "repetition")


class Snapshot:
    """The state before a step is scheduled: all requests and what each has.

    With asynchronous scheduling, earlier steps may still be in flight. Their positions count as
    computed, as in vLLM, and their tokens as sampled: the snapshot is finished when their outputs
    are back, and describes the state after all steps before its own.

    step: the number of that step. t: seconds. requests: running ones first. computed: positions, in
    the order of `requests`. tables: for requests that hold blocks, in the same order, the blocks in
    each KV cache group. waits_for: the steps in flight, by id() of their scheduler output.
    """

    def __init__(
        self, scheduler: Any, step: int, t: float, arriving: set[str], in_flight: Collection[int]
    ) -> None:
        """arriving: requests that the step itself records as arrivals; they are left out."""
        self.step, self.t, self.waits_for = step, t, set(in_flight)
        self.blocks_free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        self.num_running = len(scheduler.running)
        queues = getattr(scheduler, "kv_holding_waiting", ()), scheduler.waiting
        waiting = [
            [r for r in getattr(queue, "_heap", queue) if r.request_id not in arriving]
            for queue in queues
        ]
        # the writer's thread sorts them
        self.are_heaps = [hasattr(queue, "_heap") for queue in queues]
        self.num_waiting = list(map(len, waiting))
        self.requests = [*scheduler.running, *(request for queue in waiting for request in queue)]
        self.computed = [request.num_computed_tokens for request in self.requests]
        holding = self.num_running + self.num_waiting[0]
        blocks_of = scheduler.kv_cache_manager.get_blocks
        self.tables = [
            [list(group) for group in blocks_of(r.request_id).blocks]
            for r in self.requests[:holding]
        ]
        self.num_tokens = 0
        self.lengths: list[int] = []
        self.ended: list[str | None] = []

    def back(self, output: Any, results: Any) -> None:
        """Take the output of a step in flight: rejected draft tokens do not count as computed."""
        self.waits_for.discard(id(output))
        drafts = output.scheduled_spec_decode_tokens
        if drafts and results.sampled_token_ids:
            sampled = dict(zip(results.req_ids, results.sampled_token_ids, strict=False))
            for at, request in enumerate(self.requests[: self.num_running]):
                guessed, got = drafts.get(request.request_id), sampled.get(request.request_id)
                if guessed and got is not None and len(got):
                    self.computed[at] -= len(guessed) - len(got) + 1

    def finish(self) -> None:
        """Read the tokens of the requests, once all earlier steps have their outputs."""
        self.lengths = [len(request.output_token_ids) for request in self.requests]
        self.num_tokens = sum(self.lengths) + sum(
            request.num_prompt_tokens for request in self.requests
        )
        self.ended = [
            str(r.get_finished_reason()) if r.is_finished() else None for r in self.requests
        ]

    def record(self, facts_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The snapshot as JSON; called on the writer's thread, which converts the requests one by
        one. facts_of: gives a request's prompt, limits and arrival.
        """
        waiting, at = [], self.num_running
        for number, is_heap in zip(self.num_waiting, self.are_heaps, strict=True):
            queue = self.requests[at : at + number]
            waiting += [request.request_id for request in (sorted(queue) if is_heap else queue)]
            at += number
        return {
            "kind": "snapshot",
            "step": self.step,
            "t": self.t,
            "running": [request.request_id for request in self.requests[: self.num_running]],
            "waiting": waiting,
            "blocks_free": self.blocks_free,
            "requests": self._rows(facts_of),
        }

    def _rows(self, facts_of: Callable[[Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for at, request in enumerate(self.requests):
            row = facts_of(request) | {
                "computed": self.computed[at],
                "output": list(request.output_token_ids[: self.lengths[at]]),
            }
            if at < len(self.tables):
                row["blocks"] = [[block.block_id for block in group] for group in self.tables[at]]
            if request.num_preemptions:
                row["preemptions"] = request.num_preemptions
            if self.ended[at] in _BY_ITSELF:
                row["finished"] = self.ended[at]
            yield row
