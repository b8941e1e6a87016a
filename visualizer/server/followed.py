"""Another engine on the Live tab, watched by the recordings that it writes: what `shared_engine` is for our own. Nobody can ask it for anything.

GET inflight/live/…   see `visualizer.server.live_routes`; `of` names the recording where there are several
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Mount

from core.errors import InvalidTrace
from core.recorders.follow import Begun, Follower, Met, News, ranks_in
from core.recorders.texts import PlainIds, import_tokenizers, tokenizer_of
from core.serving.event_log import LogEntry, ServedStep
from core.trace.events import StepEvent
from core.trace.phrases import ALIGNMENTS
from core.trace.ranks import Placement, RankPlace
from visualizer.server.limits import Refused
from visualizer.server.live import Live
from visualizer.server.live_routes import PERIOD, live_app
from visualizer.server.shared_engine import class_address

_Streams = dict[str, tuple[Path, int | None]]  # by name: the place, and whose recording of a folder


class Followed:
    """One of a process. places: recordings that may still be written, and folders of them. shows_texts: whether visitors read what the
    engine's own users wrote and were answered. tokenizer: the model's; by default that of the model which the recording names, where it is on this machine.
    """

    def __init__(self, places: Sequence[Path], shows_texts: bool, tokenizer: Any = None) -> None:
        self._places, self._shows_texts, self._tokenizer = places, shows_texts, tokenizer
        import_tokenizers()  # while there is one thread: of two that import transformers at once, one finds half of it
        self._lives: dict[str, Live] = {}
        self._begun: dict[str, tuple[int, RankPlace]] = {}  # by stream: the number of the run that it shows, and that run's place
        self._letters = itertools.count()  # no two requests of all ranks have the same one
        self._lock = threading.Lock()

    def start(self) -> None:
        """Follow from now on, so that who comes first finds the engine as it is."""
        for name in self._streams():
            self.live(name)

    def live(self, name: str = "") -> Live:
        """One of the recordings, by default the first. Raises Refused for a name that is none's."""
        streams = self._streams()
        name = name or next(iter(streams))
        with self._lock:
            if name not in self._lives:
                if name not in streams:
                    raise Refused(f"Nothing is followed that is called {name}.")
                place, rank = streams[name]
                live = self._lives[name] = Live(
                    partial(self._messages, name, Follower(place, rank)), self._tokenizer_of, self._shows_texts, self._letters
                )
                live.start()
            return self._lives[name]

    def routes(self, whom: Callable[[Request], str]) -> list[BaseRoute]:
        """whom: where a request comes from."""
        return [Mount("/inflight/live", app=live_app(self.live, None, whom))]

    @property
    def options(self) -> dict[str, Any]:
        """What the page's Live tab is told; see assets/player/live/live.js."""
        return {"asks": False}

    def announce(self, local: str, shared: str | None, host: str | None) -> str:
        """What is said at the start; see `SharedEngine.announce`."""
        names = ", ".join(str(place) for place in self._places)
        texts = (
            "as it was asked and answered"
            if self._shows_texts
            else "its texts hidden, as others reach this page (--trust-visitors shows them)"
        )
        return f"Live: {names} is followed at {class_address(local, shared, host)}, {texts}."

    def _streams(self) -> _Streams:
        """What there is to follow now, by name: of a folder every rank; the lowest goes by the folder's own name, as it is there from the start."""
        found: _Streams = {}
        for number, place in enumerate(self._places, 1):
            name = f"{place.name} ({number})" if place.name in found else place.name
            found[name] = (place, None)
            found |= {f"{name}, rank {rank}": (place, rank) for rank in ranks_in(place)[1:]}
        return found

    def _together(self, name: str, streams: _Streams) -> dict[str, Any]:
        """Where it lies among the ranks of its engine, which are those of its folder, or all files that are followed one by one.

        ranks: {of: their stream, rank, run: the number of the run that is meant, offset: see `Placement`}; none where it is alone.
        """
        folder = _folder(streams[name][0]) if name in streams else None
        begun = {of: self._begun[of] for of, (place, _) in streams.items() if of in self._begun and _folder(place) == folder}
        try:
            placement = Placement.of(place for _, place in begun.values())
        except InvalidTrace:  # recordings of several engines, or none yet
            return {"ranks": [], "count": 1, "says": []}
        placed = zip(placement.places, placement.offsets, strict=True)
        return {
            "ranks": [{"of": p.name, "rank": p.rank, "run": begun[p.name][0], "offset": offset} for p, offset in placed],
            "count": placement.count,
            "says": [ALIGNMENTS[placement.alignment]] * (len(placement.places) > 1) + placement.faults,
        }

    async def _messages(self, name: str, follower: Follower) -> AsyncIterator[list[LogEntry]]:
        runs, last_state = 0, None
        while True:
            messages: list[LogEntry] = []
            for news in follower.look():
                runs += isinstance(news, Begun)
                self._note(name, runs, news)
                messages.append(_message(news, runs))
            streams = self._streams()
            for stream in streams.keys() - self._lives.keys():
                self.live(stream)  # a rank that comes later is followed from then on
            state = {
                "kind": "followed",
                "of": name,
                "file": follower.name,
                "sentence": follower.sentence,
                "is_over": follower.is_over,
                "texts": self._shows_texts,
                "streams": list(streams),
                **self._together(name, streams),
            }
            if state != last_state:
                messages.append(state)
            last_state = state
            yield messages
            if not follower.has_more:
                await asyncio.sleep(PERIOD)

    def _note(self, name: str, run: int, news: News) -> None:
        """Keep where its run lies in time: its first step tells when it begins."""
        if isinstance(news, Begun):
            with suppress(InvalidTrace):  # then it has no place among others
                self._begun[name] = run, RankPlace(name, news.header, 0.0)
        elif isinstance(news, StepEvent) and news.step == 0 and name in self._begun:
            self._begun[name] = run, replace(self._begun[name][1], begin=news.t_start)

    def _tokenizer_of(self, run: dict[str, Any]) -> Any:
        """Of a recording's model, where it is on this machine; prompts that were left out have no texts to be had."""
        if "prompts" in run["header"].get("absent", ()):
            return PlainIds()
        return copy.deepcopy(self._tokenizer or tokenizer_of(run["model"])) or PlainIds()


def _folder(place: Path) -> Path | None:
    return place if place.is_dir() else None


def _message(news: News, run: int) -> LogEntry:
    """As an engine of our own tells it, see `core.serving.event_log`. run: the number of the recording."""
    if isinstance(news, Begun):
        return {"kind": "run", "run": run, "header": news.header.to_json(), "model": news.model}
    if isinstance(news, Met):
        return {"kind": "request", "id": news.request, "prompt_token_ids": news.prompt, "max_new_tokens": news.max_new_tokens}
    return ServedStep(news)
