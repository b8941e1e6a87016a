"""Checks a run event by event against the rules that hold for every recorded run
(`core.trace.rules.steps`), and its requests, texts and end. Reads only the events.

A run of ours must obey all rules. Another engine's recording is evidence: a step that breaks a rule
gets a warning, and checking continues. Whether the policy would have decided the same is checked
in `core.proof.replay`, which runs the scheduler again and compares.
"""

import math
from typing import Any

from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.rules import followable
from core.trace.rules.followable import quoted
from core.trace.rules.recorded import oddity
from core.trace.rules.steps import StepRules
from core.trace.run_state import RunState
from core.workload.request import Request, is_text


class Checker:
    """Follows a run from its header on. Call `fault_of_request` for each request before the step in
    which it arrives, then `fault(event)`; both return a sentence that says what is wrong, or None.
    warnings: for the latest step of another engine: a sentence for each rule that it breaks
    although it can be followed.
    """

    def __init__(self, header: Header) -> None:
        self.warnings: tuple[str, ...] = ()
        self._header, self._config, self._own = header, header.config, header.engine is None
        self._vocab_size = header.model.vocab_size
        self._num_blocks = header.num_blocks
        self._ids: set[str] = set()  # of all requests, finished ones included
        self._requests: dict[str, Request] = {}
        self._num_prompt: dict[str, int] = {}
        self._longest = 1  # the most tokens that a request may have
        self._rules = StepRules(header, self._requests, self._num_prompt)
        # another engine's state by its events alone, even where they break rules
        self._plain = RunState.of({}, header.policy.requeue)
        odd = None if self._own else oddity(header)
        # warnings about the header, and about requests that arrive in the next step
        self._early = [odd] if odd else []
        # requests whose texts have been read, and that still hold their lanes
        self._texts_read: set[str] = set()
        self._cut_off: str | None = None  # the first unfinished request whose texts were read
        self._step, self._t = -1, 0.0

    @property
    def _state(self) -> RunState:
        return self._rules.state

    def fault_of_request(self, request: Request, prompt: Any) -> str | None:
        """What is wrong with a request, or None: its id must be new, its prompt inside the
        vocabulary, and its tokens at most what model and pool hold.
        """
        if request.id in self._ids:
            return f"two requests are called {quoted(request.id)}."
        of = f"the prompt of request {quoted(request.id)}"
        is_list = isinstance(prompt, list) and bool(prompt)
        if not is_list or not all([type(i) is int and i >= 0 for i in prompt]):
            return f"{of} is not a list of token ids."
        if request.prompt_token_ids not in (None, tuple(prompt)):
            return f"{of} is not the workload's."
        if self._vocab_size is not None and max(prompt) >= self._vocab_size:
            beyond = f"{of} has a token id beyond the vocabulary of {self._vocab_size}"
            if self._own:
                return f"{beyond}."
            self._early.append(beyond)
        if "prompts" in self._header.absent and any(prompt):
            self._early.append(f"{of} is on record, although the header says that none is")
        tokens = len(prompt) + request.sampling.max_new_tokens
        if self._own and tokens > min(
            self._header.model.context or math.inf, self._num_blocks * self._config.block_size
        ):
            return (
                f"request {quoted(request.id)} may come to {tokens} tokens, more than the model or"
                " the pool can hold."
            )
        self._ids.add(request.id)
        self._requests[request.id], self._num_prompt[request.id] = request, len(prompt)
        self._state.num_tokens[request.id] = self._plain.num_tokens[request.id] = len(prompt)
        self._longest = max(self._longest, tokens)
        return None

    def fault(self, event: StepEvent) -> str | None:
        """Why this step is refused, or None: it cannot be followed, or ours breaks a rule."""
        if self._cut_off is not None:
            return "a step stands among the texts of unfinished requests."
        if fault := followable.shape(event, self._step, self._t) or self._fault_of_parts(event):
            return f"step {event.step}: {fault}."
        self._step, self._t = event.step, event.t_end
        for request in self._texts_read.difference(self._state.lanes.values()):
            self._forget(request)
        return None

    def _fault_of_parts(self, event: StepEvent) -> str | None:
        """Check part by part. Each rule updates the rules' own state; `_plain` takes each part
        unchecked, and replaces that state if a rule is broken.
        """
        if self._own and event.warnings:
            return "only steps of another engine may have warnings"
        odd: list[str] = []
        state = self._state if self._own else self._plain
        for can_follow, rule, take in self._rules.parts:
            if can_follow and (fault := can_follow(event, state, self._header)):
                return fault
            fault = rule(event)
            if self._own:
                if fault:
                    return fault
                continue
            if take:
                take(state, event)
            if fault:
                odd.append(fault)
                self._rules.state = state.copy()
        if odd:
            self._rules.go_on_from(state.copy(), event)
        self.warnings = tuple(f"{fault[0].upper()}{fault[1:]}." for fault in self._early + odd)
        self._early = []
        return None

    def fault_of_texts(self, request: Any, prompt: Any, output: Any) -> str | None:
        """What is wrong with the texts of a request, or None: every token must have its piece of
        text. A finished request is then forgotten.
        """
        if (
            not isinstance(request, str)
            or request not in self._num_prompt
            or request in self._texts_read
        ):
            return "these are the texts of no request."
        counts = (
            self._num_prompt[request],
            self._state.num_tokens[request] - self._num_prompt[request],
        )
        for pieces, count in zip((prompt, output), counts, strict=True):
            if (
                not isinstance(pieces, list)
                or len(pieces) != count
                or not all([isinstance(p, str) for p in pieces])
            ):
                return f"the texts of request {quoted(request)} do not match its tokens."
            if not is_text("".join(pieces)):
                return f"the texts of request {quoted(request)} are no text."
        if self._header.is_simulated and any(output):
            return f"request {quoted(request)} has a text, but no model ran that wrote it."
        if (
            self._own
            and self._requests[request].sampling.stop
            and (fault := self._stop_strings(request, output))
        ):
            return fault
        if request not in self._state.finished:
            self._cut_off = self._cut_off or request
        self._texts_read.add(request)
        if request not in self._state.lanes.values():
            self._forget(request)
        return None

    def forget_finished(self) -> None:
        """Forget finished requests without lanes: in an endless run, ids are used again."""
        for request in self._state.finished.keys() - set(self._state.lanes.values()):
            self._forget(request)
            self._ids.discard(request)

    def _forget(self, request: str) -> None:
        self._texts_read.discard(request)
        self._rules.ends_by.pop(request, None)
        self._rules.came.pop(request, None)
        del self._requests[request], self._num_prompt[request]
        self._state.forget(request)
        self._plain.forget(request)

    def _stop_strings(self, request: str, output: list[str]) -> str | None:
        """What is wrong with the end, or None: it is where the text first has a stop string."""
        reason, by_token = self._rules.ends_by.get(request, ("", False))
        stops = self._requests[request].sampling.stop
        has = [any(stop in "".join(pieces) for stop in stops) for pieces in (output[:-1], output)]
        must = reason == "stop" and not by_token
        if has[0] or (must and not has[1]) or (has[1] and reason not in ("stop", "error")):
            return f"request {quoted(request)} does not end with its stop string."
        return None

    def fault_at_end(self, complete: object) -> str | None:
        """What is wrong with the last line, or None: in a complete run all requests must have
        finished, every request must have its texts, and the pool must not be larger than is of use.
        """
        if type(complete) is not bool:
            return "the last line does not say whether the run is complete."
        left = min(self._num_prompt.keys() - self._state.finished.keys(), default=self._cut_off)
        if complete and left is not None:
            return f"the run is said to be complete, but request {quoted(left)} has not finished."
        if missing := self._num_prompt.keys() - self._texts_read:
            return f"the texts of request {min(missing)!r} are missing."
        return self._fault_of_pool() if self._own else None

    def _fault_of_pool(self) -> str | None:
        """A pool that is not configured has room for all lanes and no more; with a cost model that
        knows its memory, it takes all of that.
        """
        config = self._config
        room = (self._header.cost or {}).get("kv_bytes")
        per_token = self._header.model.kv_bytes_per_token
        if isinstance(room, int) and per_token:
            most, of = room // (config.block_size * per_token), "its memory has room for"
        elif config.num_blocks is None and not self._header.is_interactive:
            most = max(1, -(-self._longest // config.block_size) * config.num_lanes)
            of = f"{config.num_lanes} lanes can use"
        else:
            return None
        if self._num_blocks <= most:
            return None
        return f"a pool of {self._num_blocks} blocks is more than {of}."
