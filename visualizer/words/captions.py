"""Composes every sentence about a step from its event and the state before it, without guessing.

`visualizer.words.vocabulary` defines what a sentence is.
"""

import itertools
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any, Self

from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.phrases import bound, letter, reason
from core.trace.run_state import RunState
from core.trace.trace import Trace
from visualizer.words.context import CaptionContext
from visualizer.words.language import t
from visualizer.words.narration import MAX_CHARACTERS, sentence
from visualizer.words.plainly import plain_sentence
from visualizer.words.reasons import reasons
from visualizer.words.vocabulary import plain, said

__all__ = ["MAX_CHARACTERS", "Captioner", "captions", "plain"]


def captions(trace: Trace) -> list[dict[str, Any]]:
    """The caption of every event; see `caption`."""
    captioner, made = Captioner.of(trace), []
    for event in trace.events:
        with captioner.reading(event) as context:
            made.append(caption(context))
    return made


class Captioner:
    """Follows a run event by event. header: of the trace. `meet` announces requests before the step
    in which they arrive. numbers: an iterator for their letters, which runs may share.
    """

    def __init__(self, header: Header, numbers: Iterator[int] | None = None) -> None:
        self.state = RunState.of({}, header.policy.requeue)
        self._prompt: dict[str, int] = {}  # tokens of each prompt
        self._asked: dict[str, int | None] = {}  # the most new tokens of each
        self.letters: dict[str, str] = {}
        self._numbers = numbers or itertools.count()
        self._header = header
        self._last_end: float | None = None

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """A captioner for a trace, with all requests announced."""
        captioner = cls(trace.header)
        for request, one in trace.asked.items():
            captioner.meet(request, len(one.prompt), one.request.sampling.max_new_tokens)
        return captioner

    def meet(self, request: str, prompt_length: int, max_new_tokens: int | None) -> None:
        """Announce a request that will arrive."""
        self._prompt[request] = self.state.num_tokens[request] = prompt_length
        self._asked[request] = max_new_tokens

    def keep(self, requests: Set[str]) -> None:
        """Forget other requests, which no event names again, unless they just freed a lane."""
        self.state.keep(requests)
        self._prompt = {r: n for r, n in self._prompt.items() if r in requests}
        self._asked = {r: n for r, n in self._asked.items() if r in requests}
        named = {freed.request for freed in self.state.freed.values()}
        self.letters = {r: name for r, name in self.letters.items() if r in requests or r in named}

    @contextmanager
    def reading(self, event: StepEvent) -> Iterator[CaptionContext]:
        """Gives the context of the next event, while its passes run: see `caption`."""
        waited = self._waited(event)
        self.state.begin(event)
        for arrived in event.newcomers:
            self.letters[arrived.request] = letter(next(self._numbers))
        yield CaptionContext(
            event=event,
            state=self.state,
            header=self._header,
            prompt=self._prompt,
            asked=self._asked,
            letters=self.letters,
            waited=waited,
        )
        self.state.end(event)
        self._last_end = event.t_end

    def _waited(self, event: StepEvent) -> float:
        """Seconds that the device waited for the host; 0 if there was nothing to do."""
        if not self._header.is_asynchronous or self._last_end is None or not self.state.has_work:
            return 0.0
        return max(0.0, event.t_start - self._last_end)


def caption(context: CaptionContext) -> dict[str, Any]:
    """The sentences about an event, in the current language. say: the step in one sentence. simple:
    the same in plain words. why: a sentence for every decision. waits: why the head of the queue
    waits. bound: the limit that bound the step.
    """
    event = context.event
    return {
        "say": sentence(context),
        "simple": plain_sentence(context),
        "why": [said(sentence) for sentence in reasons(context)],
        "waits": t(reason(event.waiting.why, context.reserved)) if event.waiting.why else "",
        "bound": t(bound(event.budget.binding)),
    }
