"""Prompts become token ids here, one at a time, because a tokenizer is not for two threads at once.
The shortest that waits is next: whoever sends long texts keeps others waiting for no more than the
one that is being worked on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Tokenizing:
    """tokenizer: used here alone. Its thread lives while there is something to do."""

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        # size and number of each; a heap
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._lock, self._at_work = threading.Lock(), False

    async def run(self, size: int, work: Callable[[Any], T]) -> T:
        """What `work` makes with the tokenizer. size: of its text, in characters. If the caller is
        cancelled it is not begun.
        """
        done: Future[T] = Future()

        def do() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(self._tokenizer))
                except BaseException as error:
                    done.set_exception(error)

        with self._lock:
            heapq.heappush(self._waiting, (size, next(self._numbers), do))
            begin, self._at_work = not self._at_work, True
        if begin:
            threading.Thread(target=self._work, name="inflight-tokenizing", daemon=True).start()
        return await asyncio.wrap_future(done)

    def _work(self) -> None:
        while (do := self._next()) is not None:
            do()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                return heapq.heappop(self._waiting)[2]
            self._at_work = False
            return None
