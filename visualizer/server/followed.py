"""Another engine on the Live tab, followed through the recordings that it writes: the counterpart of `shared_engine`. It takes no requests.

GET inflight/live/…   see `visualizer.server.live_routes`; `of` names the recording if there are several
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

_Streams = dict[str, tuple[Path, int | None]]  # by name: the path, and the rank within a folder


class Followed:
    """One per process. places: recordings that may still grow, and folders of them. shows_texts: whether visitors can read the prompts and
    answers of the engine's users. tokenizer: the model's; by default that of the model named in the recording, if it is on this machine.
    """

    def __init__(self, places: Sequence[Path], shows_texts: bool, tokenizer: Any = None) -> None:
        self._places, self._shows_texts, self._tokenizer = places, shows_texts, tokenizer
        import_tokenizers()  # while there is one thread: importing transformers in two threads at once fails
        self._lives: dict[str, Live] = {}
        self._begun: dict[str, tuple[int, RankPlace]] = {}  # by stream: the number of its current run, and that run's place
        self._unplaced: set[str] = set()  # streams whose current run has shown no step yet
        self._letters = itertools.count()  # shared by all ranks, so that no two requests have the same
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start following, so that the first visitor already sees the engine's current state."""
        for name in self._streams():
            self.live(name)

    def live(self, name: str = "") -> Live:
        """One of the recordings, by default the first. Raises Refused for an unknown name."""
        streams = self._streams()
        name = name or next(iter(streams))
        with self._lock:
            if name not in self._lives:
                if name not in streams:
                    raise Refused(f"There is no followed recording named {name}.")
                place, rank = streams[name]
                live = self._lives[name] = Live(
                    partial(self._messages, name, Follower(place, rank)), self._tokenizer_of, self._shows_texts, self._letters
                )
                live.start()
            return self._lives[name]

    def routes(self, whom: Callable[[Request], str]) -> list[BaseRoute]:
        """whom: gives the address of a request's client."""
        return [Mount("/inflight/live", app=live_app(self.live, None, whom))]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the page's Live tab; see assets/player/live/live.js."""
        return {"asks": False}

    def announce(self, local: str, shared: str | None, host: str | None) -> str:
        """The message printed at the start; see `SharedEngine.announce`."""
        names = ", ".join(str(place) for place in self._places)
        texts = (
            "as it was asked and answered"
            if self._shows_texts
            else "its texts hidden, as others reach this page (--trust-visitors shows them)"
        )
        return f"Live: {names} is followed at {class_address(local, shared, host)}, {texts}."

    def _streams(self) -> _Streams:
        """What can be followed now, by name: for a folder every rank; the lowest has the folder's name, since it is there from the start."""
        found: _Streams = {}
        for number, place in enumerate(self._places, 1):
            name = f"{place.name} ({number})" if place.name in found else place.name
            found[name] = (place, None)
            found |= {f"{name}, rank {rank}": (place, rank) for rank in ranks_in(place)[1:]}
        return found

    def _together(self, name: str, streams: _Streams) -> dict[str, Any]:
        """Its place among the ranks of its engine, which are those of its folder, or all single files that are followed.

        ranks: {of: their stream, rank, run: the number of their run, offset: see `Placement`}; empty if it is alone.
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
                self.live(stream)  # follow ranks that appear later, too
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
        """Note when its run begins, which its first step shows."""
        if isinstance(news, Begun):
            with suppress(InvalidTrace):  # otherwise it has no place among the ranks
                self._begun[name] = run, RankPlace(name, news.header, 0.0)
                self._unplaced.add(name)
        elif isinstance(news, StepEvent) and name in self._unplaced:
            self._unplaced.discard(name)
            self._begun[name] = run, replace(self._begun[name][1], begin=news.t_start)

    def _tokenizer_of(self, run: dict[str, Any]) -> Any:
        """The tokenizer of a recording's model, if it is on this machine; needed only if prompts were recorded."""
        if "prompts" in run["header"].get("absent", ()):
            return PlainIds()
        return copy.deepcopy(self._tokenizer or tokenizer_of(run["model"])) or PlainIds()


def _folder(place: Path) -> Path | None:
    return place if place.is_dir() else None


def _message(news: News, run: int) -> LogEntry:
    """The message that our own engine would log, see `core.serving.event_log`. run: the number of the recording."""
    if isinstance(news, Begun):
        return {"kind": "run", "run": run, "header": news.header.to_json(), "model": news.model}
    if isinstance(news, Met):
        return {"kind": "request", "id": news.request, "prompt_token_ids": news.prompt, "max_new_tokens": news.max_new_tokens}
    return ServedStep(news)
