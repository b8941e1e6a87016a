"""Turns an engine's messages, numbered by `core.serving.event_log`, into deltas for the Live tab,
once for all viewers.

    messages of an engine ─→ LiveRun (captions, texts, letters) ─→ EventLog ─→ any number of readers

The messages may come from anywhere, such as a growing file. It has a thread of its own, so that
nothing waits for it.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from core.serving.event_log import EventLog, LogEntry, ServedStep
from core.trace.header import Header
from visualizer.documents.live import LiveRun, shown

CHAPTER = 64  # steps between points at which a new viewer can begin
CHAPTERS = 8
_KEPT = CHAPTERS * CHAPTER
log = logging.getLogger("inflight")


class Live:
    """source: the engine's messages, several at a time, from the start of a run on. tokenizer_of:
    gives the tokenizer for a run from the message that begins it; used only in this thread. texts:
    whether they are shown, until a message says otherwise. letters: gives the iterator of a run's
    letters, which runs may share so that letters are unique; by default each run begins with A.
    """

    def __init__(
        self,
        source: Callable[[], AsyncIterator[Sequence[LogEntry]]],
        tokenizer_of: Callable[[dict[str, Any]], Any],
        texts: bool = True,
        letters: Callable[[dict[str, Any]], Iterator[int]] = lambda run: count(),
    ) -> None:
        self._source, self._tokenizer_of, self._letters = source, tokenizer_of, letters
        first_shown = partial(shown, texts=texts, nicknames=True)
        self.event_log = EventLog(chapters=CHAPTERS, shown=first_shown)
        self._run: LiveRun | None = None
        self._steps = 0  # since the beginning of the chapter
        self._hidden = (not texts, False)
        self._is_late = False  # the beginning of the current run was missed
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._follow()), name="live", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    async def _follow(self) -> None:
        try:
            async for messages in self._source():
                self.take(messages)
        except Exception:  # a bug: the engine continues to serve, and viewers are told
            log.exception("the live batch can no longer be shown")
            self._set(
                "broken",
                "The live batch can no longer be shown; the server has said why in its log.",
            )
        finally:
            self.event_log.close()

    def take(self, messages: Sequence[LogEntry]) -> None:
        """Process messages; consecutive steps are sent together."""
        steps: list[ServedStep] = []
        before = ""
        for message in messages:
            kind, before = before, message["kind"] if isinstance(message, dict) else ""
            if kind == "skipped" and before == "run":
                continue  # repeated for a reader that missed the beginning
            if not isinstance(message, dict):
                steps.append(message)
            elif message["kind"] == "request":
                if self._run is not None:
                    prompt, most = message["prompt_token_ids"], message["max_new_tokens"]
                    by, is_bot = message.get("nickname") or "", bool(message.get("is_bot"))
                    self._run.meet(message["id"], prompt, most, by, is_bot, message.get("messages"))
            else:
                self._tell(steps)
                steps = []
                self._other(message)
        self._tell(steps)

    def _other(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "run":
            header, tokenizer = Header.from_json(message["header"]), self._tokenizer_of(message)
            letters = self._letters(message)
            self._run = LiveRun(header, tokenizer, message.get("run", 0), letters)
            self._begin()
            if self._is_late:
                self._is_late = False
                self._set("late", False)
        elif kind == "skipped":
            # wait for the next run: the state of this one is no longer complete
            self._run, self._is_late = None, True
            self._set("late", True)
        elif kind == "pace":
            self._set("pace", message["steps_per_s"])
        elif kind in ("class", "followed"):
            if kind == "class":
                self._hide(bool(message.get("hide_texts")), bool(message.get("hide_nicknames")))
            self._set(kind, message)

    def _set(self, state: str, value: Any) -> None:
        """Set a state; it counts as one step of the chapter."""
        self.event_log.append({state: value}, state=state)
        self._steps += 1

    def _tell(self, steps: Sequence[ServedStep]) -> None:
        if self._run is None:
            return
        # at the start of a long recording: older steps would be dropped at once
        if len(steps) > _KEPT:
            self._delta(steps[:-_KEPT])
            self.event_log.forget()
            self._begin()
        for at in range(0, len(steps[-_KEPT:]) or 1, CHAPTER):
            if self._steps >= CHAPTER:
                self._begin()
            if some := steps[-_KEPT:][at : at + CHAPTER]:
                self.event_log.append(self._delta(some))
                self._steps += len(some)

    def _delta(self, steps: Sequence[ServedStep]) -> dict[str, Any]:
        assert self._run is not None
        return self._run.delta([step.event for step in steps], [step.texts for step in steps])

    def _begin(self) -> None:
        assert self._run is not None
        self.event_log.append(self._run.beginning(), begins=True)
        self._steps = 0

    def _hide(self, texts: bool, nicknames: bool) -> None:
        if (texts, nicknames) != self._hidden:
            self._hidden = (texts, nicknames)
            self.event_log.shown = partial(shown, texts=not texts, nicknames=not nicknames)
            self.event_log.restart()
