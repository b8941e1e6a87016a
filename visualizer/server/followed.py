"""The Live tab for another engine, which is followed through its growing recordings and takes no
requests: the counterpart of `shared_engine`.

    GET  inflight/live/engines   {"engines": …}: what each has to do now, see `Followed.loads`
    GET  inflight/live/…         see `visualizer.server.live_routes`; `of` names the recording
    POST inflight/collect        see `core.serving.http.collect`
"""

import asyncio
import copy
import itertools
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from core.errors import InvalidTrace
from core.recorders.collected import Collection
from core.recorders.follow import Follower, RecordingBegun, RequestSeen, Update
from core.recorders.growing import EngineThere, engine_of, engines_in, require_followable
from core.recorders.texts import PlainIds, tokenizer_of
from core.serving.event_log import LogEntry, ServedStep
from core.serving.http.collect import collect_endpoint, token_of
from core.torch_engine.models.pretrained import import_tokenizers
from core.trace.events import StepEvent
from core.trace.phrases import ALIGNMENTS
from core.trace.ranks import Placement, RankPlace
from visualizer.jobs.limits import Refused
from visualizer.server.live import Live
from visualizer.server.live_routes import PERIOD, live_app
from visualizer.server.middleware import COLLECT
from visualizer.server.routes import answer
from visualizer.server.shared_engine import class_address


@dataclass(frozen=True)
class Collected:
    """Recordings that engines send, in a followed folder. token: that engines must send."""

    collection: Collection
    token: str

    @classmethod
    def into(cls, folder: Path) -> Self:
        """Raises InflightError if the folder cannot be used, or its token; see `token_of`."""
        return cls(Collection(folder, tell=_tell), token_of(folder))

    def routes(self) -> list[BaseRoute]:
        return [
            Route(COLLECT, collect_endpoint(self.collection, self.token, _tell), methods=["POST"])
        ]

    def announce(self, page: str) -> str:
        """The message for the operator. page: its address, up to the part that a link names."""
        return (
            "Engines send their steps to it if they are started with"
            f" INFLIGHT_TRACE='{page.rstrip('/')}{COLLECT}?token={self.token}'"
        )


def _tell(line: str) -> None:
    print(line, flush=True)


_WINDOW_S = 5.0  # seconds over which the token rate is measured
_IDLE_S = 3.0  # seconds without a step after which the token rate is 0


class EngineLoad:
    """The load of a recorded engine, from its latest steps."""

    def __init__(self) -> None:
        self._last: StepEvent | None = None
        self._running = 0
        # begin, end and tokens of each step in the window
        self._tokens: deque[tuple[float, float, int]] = deque()
        self._at = 0.0

    def take(self, event: StepEvent) -> None:
        if self._tokens and event.t_start < self._tokens[-1][0]:
            self._tokens.clear()  # another recording
        over = {finished.request for finished in event.finished}
        self._running = len(
            {*(s.request for s in event.segments), *(s.request for s in event.stalled)} - over
        )
        self._tokens.append((event.t_start, event.t_end, len(event.sampled)))
        while event.t_end - self._tokens[0][1] > _WINDOW_S:
            self._tokens.popleft()
        self._last, self._at = event, time.monotonic()

    def to_json(self) -> dict[str, Any]:
        """running, waiting: requests after the latest step. kv_used, kv_total: blocks. tokens_s:
        token rate of the latest seconds. silent_s: seconds since the latest step arrived. All are
        None before the first step.
        """
        tokens = tuple(self._tokens)  # a copy, since another thread takes steps meanwhile
        if self._last is None or not tokens:
            return dict.fromkeys(
                ("running", "waiting", "kv_used", "kv_total", "tokens_s", "silent_s")
            )
        silent = time.monotonic() - self._at
        span = max(tokens[-1][1] - tokens[0][0], 1e-6)
        return {
            "running": self._running,
            "waiting": self._last.waiting.count,
            "kv_used": self._last.kv.used if self._running else 0,  # ended requests hold no blocks
            "kv_total": self._last.kv.total,
            "tokens_s": 0.0 if silent > _IDLE_S else sum(count for *_, count in tokens) / span,
            "silent_s": silent,
        }


RECENT_S = 600.0  # seconds without a line after which an engine no longer counts as at work


class _Stream(NamedTuple):
    """The arguments of a `Follower`."""

    place: Path
    rank: int | None = None
    engine: str | None = None


class Followed:
    """One per process. places: growing recordings, and folders of them. shows_texts: whether
    visitors can read the prompts and answers of the engine's users. tokenizer: the model's; by
    default that of the model named in the recording, if it is on this machine. collected:
    recordings that engines send to this page; its folder is among the places.
    """

    def __init__(
        self,
        places: Sequence[Path],
        shows_texts: bool,
        tokenizer: Any = None,
        collected: Collected | None = None,
    ) -> None:
        for place in places:
            require_followable(place)
        self._collected = collected
        self._places, self._shows_texts, self._tokenizer = places, shows_texts, tokenizer
        # now, in one thread: importing transformers in two threads at once fails
        import_tokenizers()
        self._lives: dict[str, Live] = {}
        # by stream: the number of its current run, and the run's place among the ranks
        self._begun: dict[str, tuple[int, RankPlace]] = {}
        self._unplaced: set[str] = set()  # streams whose current run has shown no step yet
        # by stream: the header of its recording
        self._facts: dict[str, dict[str, Any]] = {}
        self._loads: defaultdict[str, EngineLoad] = defaultdict(EngineLoad)
        self._standing: dict[str, dict[str, Any]] = {}
        # by engine: its ranks share the letters, so that no two requests have the same one
        self._letters: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start following, so that the first visitor sees the current state at once."""
        for name in self._streams():
            self.live(name)

    def live(self, name: str = "") -> Live:
        """The stream of a recording, by default the first; raises Refused if unknown."""
        streams = self._streams()
        name = name or next(iter(streams))
        with self._lock:
            if name not in self._lives:
                if name not in streams:
                    raise Refused(f"There is no followed recording named {name}.")
                live = self._lives[name] = Live(
                    partial(self._messages, name, Follower(*streams[name])),
                    self._tokenizer_of,
                    self._shows_texts,
                    lambda run: self._letters[run["of"]] if run["of"] else itertools.count(),
                )
                live.start()
            return self._lives[name]

    def routes(self, address_of: Callable[[Request], str]) -> list[BaseRoute]:
        """address_of: gives the address of a request's client."""

        async def engines(request: Request) -> Response:
            return answer({"engines": await asyncio.to_thread(self.loads)})

        return [
            Route("/inflight/live/engines", engines, methods=["GET"]),
            Mount("/inflight/live", app=live_app(self.live, None, address_of)),
            *(self._collected.routes() if self._collected else ()),
        ]

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
        address = class_address(local, shared, host)
        collects = (
            f"\n{self._collected.announce(address.partition('#')[0])}" if self._collected else ""
        )
        return f"Live: {names} is followed at {address}, {texts}.{collects}"

    def _streams(self) -> dict[str, _Stream]:
        """What can be followed now, by name. A folder's own name stands for the lowest rank of the
        newest engine in it, see `Follower`; every other active engine there, and every other rank,
        is a stream of its own.
        """
        found: dict[str, _Stream] = {}
        for number, place in enumerate(self._places, 1):
            name = f"{place.name} ({number})" if place.name in found else place.name
            found[name] = _Stream(place)
            engines = at_work(place) if place.is_dir() else []
            own = self._facts.get(name) or (engines[-1].header if engines else {})
            for engine in engines:
                called = name
                if engine.key != engine_of(own):
                    called = f"{name}, {title_of(engine.header)}"
                    called = f"{called} ({engine.key})" if called in found else called
                    found[called] = _Stream(place, engine.ranks[0], engine.key)
                found |= {
                    f"{called}, rank {rank}": _Stream(place, rank, engine.key)
                    for rank in engine.ranks[1:]
                }
        return found

    def _engines(self, streams: dict[str, _Stream]) -> list[dict[str, Any]]:
        """The followed engines, as far as known: {name, model, ranks: [{of, rank}]}."""
        found: dict[tuple[Path | None, str], dict[str, Any]] = {}
        for name, stream in streams.items():
            if facts := self._facts.get(name):
                first = {"name": title_of(facts), "model": str(facts.get("model")), "ranks": []}
                folder = stream.place if stream.place.is_dir() else None
                engine = found.setdefault((folder, engine_of(facts)), first)
                engine["ranks"].append({"of": name, "rank": facts.get("rank", 0)})
        return list(found.values())

    def loads(self) -> list[dict[str, Any]]:
        """The followed engines; each rank with its `EngineLoad` and its recording's state."""
        engines = self._engines(self._streams())
        for engine in engines:
            for rank in engine["ranks"]:
                rank |= self._loads[rank["of"]].to_json() | self._standing.get(rank["of"], {})
        return engines

    def _together(self, name: str, streams: dict[str, _Stream]) -> dict[str, Any]:
        """The place of a stream among the ranks of its engine, and among all streams. ranks, all:
        {of: the stream, rank, run: the number of its run, offset: see `Placement`, name: if there
        are several engines}; empty for a single one.
        """
        engines = self._engines(streams)
        titles: dict[str, str] = {}
        mine: list[str] = []
        for engine in engines:
            names = [rank["of"] for rank in engine["ranks"]]
            mine = names if name in names else mine
            for rank in engine["ranks"]:
                which = f", rank {rank['rank']}" if len(names) > 1 else ""
                titles[rank["of"]] = engine["name"] + which
        own, ranks = self._placed(Placement.of, mine)
        are_several = len(engines) > 1
        across, everybody = self._placed(Placement.across, titles if are_several else ())
        return {
            "ranks": ranks,
            "count": own.count if own else 1,
            "says": [*_says(own), *own.faults] if own else [],
            "engines": engines if are_several else [],
            "all": [rank | {"name": titles[rank["of"]]} for rank in everybody],
            "all_says": _says(across) if across else [],
        }

    def _placed(
        self, place: Callable[[Iterable[RankPlace]], Placement], names: Iterable[str]
    ) -> tuple[Placement | None, list[dict[str, Any]]]:
        """The streams that have begun, on a common clock; empty if they have none."""
        begun = {of: self._begun[of] for of in names if of in self._begun}
        try:
            placement = place(where for _, where in begun.values())
        except InvalidTrace:  # two recordings of one rank, say, or none yet
            return None, []
        placed = zip(placement.places, placement.offsets, strict=True)
        return placement, [
            {"of": p.name, "rank": p.rank, "run": begun[p.name][0], "offset": offset}
            for p, offset in placed
        ]

    async def _messages(self, name: str, follower: Follower) -> AsyncIterator[list[LogEntry]]:
        runs, last_state = 0, None
        while True:
            messages: list[LogEntry] = []
            for update in follower.poll():
                runs += isinstance(update, RecordingBegun)
                self._note(name, runs, update)
                messages.append(_message(update, runs, follower.facts))
            self._facts[name] = follower.facts
            self._standing[name] = {"sentence": follower.sentence, "is_over": follower.is_over}
            streams = self._streams()
            for stream in streams.keys() - self._lives.keys():
                self.live(stream)  # follow engines and ranks that appear later, too
            if name not in streams and not follower.has_more:
                self._forget(name)
                return
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

    def _forget(self, name: str) -> None:
        """Forget an engine that is no longer at work; if it returns, it is followed anew."""
        with self._lock:
            for known in (self._lives, self._begun, self._facts, self._loads, self._standing):
                known.pop(name, None)
            self._unplaced.discard(name)

    def _note(self, name: str, run: int, update: Update) -> None:
        """Note when the run of a stream begins; the time is known from its first step."""
        if isinstance(update, RecordingBegun):
            with suppress(InvalidTrace):  # otherwise it has no place among the ranks
                self._begun[name] = run, RankPlace(name, update.header, 0.0)
                self._unplaced.add(name)
        elif isinstance(update, StepEvent) and name in self._unplaced:
            self._unplaced.discard(name)
            self._begun[name] = run, replace(self._begun[name][1], begin=update.t_start)
        if isinstance(update, StepEvent):
            self._loads[name].take(update)

    def _tokenizer_of(self, run: dict[str, Any]) -> Any:
        """The tokenizer of a recording's model, if it is here and prompts were recorded."""
        if "prompts" in run["header"].get("absent", ()):
            return PlainIds()
        return copy.deepcopy(self._tokenizer or tokenizer_of(run["model"])) or PlainIds()


def at_work(folder: Path) -> list[EngineThere]:
    """The engines that were active in the last minutes, but at least the newest."""
    engines = engines_in(folder)
    return [engine for engine in engines if abs(time.time() - engine.at) < RECENT_S] or engines[-1:]


def title_of(facts: dict[str, Any]) -> str:
    """The name of an engine: its host and process id, as far as they are recorded."""
    pid = str(facts.get("pid", "?"))[:12]
    return f"{str(facts['host'])[:40]}:{pid}" if facts.get("host") else pid


def _says(placement: Placement) -> list[str]:
    return [ALIGNMENTS[placement.alignment]] * (len(placement.places) > 1)


def _message(update: Update, run: int, facts: dict[str, Any]) -> LogEntry:
    """The message that our own engine would log, see `core.serving.event_log`. run: the number of
    the recording. facts: its header; `of` in the message is the engine, if it has several ranks.
    """
    if isinstance(update, RecordingBegun):
        return {
            "kind": "run",
            "run": run,
            "header": update.header.to_json(),
            "model": update.model,
            "of": None if facts.get("ranks") == 1 else engine_of(facts),
        }
    if isinstance(update, RequestSeen):
        return {
            "kind": "request",
            "id": update.request,
            "prompt_token_ids": update.prompt,
            "max_new_tokens": update.max_new_tokens,
        }
    return ServedStep(update)
