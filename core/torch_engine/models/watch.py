"""Watches a model being loaded: a watcher is told the progress, and may stop the loading by raising
an exception. transformers draws no bars of its own meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from tqdm import tqdm
from transformers.utils import logging

Watch = Callable[[str, int, int], None]
"""phase ("fetch": bytes from the hub, "wait": for another model, "load": tensors), how much is
done, of how much (0 if that is unknown).
"""


class Stopped(Exception):
    """Raised by a watcher to stop the loading."""


def nobody(phase: str, done: int, total: int) -> None:
    """Watches nothing."""


class ProgressBar:
    """Draws a bar on stderr, in a shell or below a notebook's cell, once something takes longer
    than `after` seconds, unless transformers' bars are switched off.
    """

    def __init__(self, name: str, after: float = 1.0) -> None:
        self._name, self._after, self._phase = name, after, ""
        self._bar: tqdm[Any] | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self.close()
            self._phase = phase
            self._bar = tqdm(
                desc=f"{self._name}: {phase}",
                total=total or None,
                unit="B" if phase == "fetch" else "it",
                unit_scale=True,
                delay=self._after,
                leave=False,
                disable=not logging.is_progress_bar_enabled(),
            )
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_watch: ContextVar[Watch | None] = ContextVar("inflight_watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Report what transformers loads inside as the phase "load"."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def _bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    watch = _watch.get()
    if watch is None or not args:
        return factory(*args, **kwargs)
    return _reported(args[0], watch)


def _reported(items: Iterable[Any], watch: Watch) -> Iterator[Any]:
    total = len(items) if hasattr(items, "__len__") else 0  # type: ignore[arg-type]
    for done, item in enumerate(items):
        watch("load", done, total)
        yield item


class FetchBar:
    """What `hf_hub_download` takes for a progress bar."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance

    def __call__(self, *args: Any, **kwargs: Any) -> Self:
        self._advance(int(kwargs.get("initial") or 0))
        return self

    def update(self, n: float | None = 1) -> None:
        """n: more bytes."""
        self._advance(int(n or 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


logging.set_tqdm_hook(_bar)
