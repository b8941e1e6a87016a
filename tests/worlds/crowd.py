"""What strangers do to a page, each visit over HTTP alone, and a ledger of what became of each of
their calls.

A call ends once: answered, refused in one sentence, left by its client, or cut by the death of the
page's process. Any other end is a fault. Knows nothing of how the page is made.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

_SENTENCE = re.compile(r"[^\n]{8,500}[.?!]")
_SMALL = (
    "three-short",
    "nanogpt-chunked-4",
    "gpt2-six",
    "kv-pressure",
    "one-joins-two",
    "short-and-long",
    "prefix-too-short",
)
_POLICIES = ("continuous", "static", "split")
_EXPORTS = ("jsonl", "perfetto", "html", "plotly")
_TIMEOUT = 180.0


class Fault(Exception):
    """What a client saw and should not have, in a sentence."""


@dataclass
class Call:
    """One call. how: its end, "" until then."""

    what: str
    how: str = ""

    def ends(self, how: str) -> None:
        if self.how:
            raise Fault(f"It ended twice: {self.how}, then {how}.")
        self.how = how


@dataclass
class Ledger:
    """life: changes whenever the page's process dies or comes back; calls under way at that moment
    may be cut. tell: is told of each fault.
    """

    tell: Callable[[str], None]
    life: int = 0
    is_up: bool = True
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    sentences: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def call(self, what: str) -> AsyncIterator[Call]:
        life, call = self.life, Call(what)
        try:
            yield call
            if not call.how:
                raise Fault("It was neither answered nor refused.")
        except Exception as error:
            if self.life == life and self.is_up:
                call.how = "lost"
                self.fault(what, error)
            else:
                call.how = "cut by the kill"
        self.ends[what, call.how] += 1

    def fault(self, what: str, error: Exception) -> None:
        self.faults.append(f"{what}: {type(error).__name__}: {error}")
        self.tell(self.faults[-1])

    def answer(self, call: Call, told: httpx.Response) -> Any:
        """The JSON of an answer; None for a refusal, which is one sentence. Ends the call."""
        data = json.loads(told.text)
        error = data.get("error") if isinstance(data, dict) else None
        if error is None and told.status_code < 400:
            call.ends("answered")
            return data
        self.refused(call, error["message"] if isinstance(error, dict) else error)
        return None

    def refused(self, call: Call, sentence: object) -> None:
        if not isinstance(sentence, str) or not _SENTENCE.fullmatch(sentence):
            raise Fault(f"This is no sentence: {str(sentence)[:200]!r}.")
        call.ends("refused")
        self.sentences[re.sub(r"\d[\d,.]*\d|\d", "…", sentence)[:160]] += 1


def reset(connection: socket.socket) -> None:
    """Close so that the other side is told by a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Crowd:
    """url: of the page. Each visit comes from one of a dozen public addresses, as a Space's proxy
    names them.
    """

    def __init__(self, url: str, ledger: Ledger, seed: int) -> None:
        self.url, self.ledger, self.draw = url, ledger, random.Random(seed)
        self.runs: list[dict[str, Any]] = []  # the last that were answered: {"id", "url"}
        self.traces: list[str] = []
        self.left_open: list[socket.socket] = []  # by those who never read and never leave
        self.presets: list[dict[str, Any]] = []
        at = urlsplit(url)
        self._at = (at.hostname or "127.0.0.1", at.port or 80)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"x-forwarded-for": f"8.8.4.{self.draw.randrange(1, 13)}"}
        async with httpx.AsyncClient(
            base_url=self.url, trust_env=False, timeout=_TIMEOUT, headers=headers
        ) as http:
            yield http

    async def get(self, http: httpx.AsyncClient, path: str, what: str) -> str | None:
        """A file or a page; None where it was refused."""
        async with self.ledger.call(what) as call:
            told = await http.get(path)
            if told.status_code < 400:
                call.ends("answered")
                return told.text
            self.ledger.answer(call, told)
        return None

    async def post(self, http: httpx.AsyncClient, path: str, what: str, **sent: Any) -> Any:
        async with self.ledger.call(what) as call:
            return self.ledger.answer(call, await http.post(path, **sent))
        return None

    async def ask(self, http: httpx.AsyncClient, name: str, *args: Any) -> dict[str, Any] | None:
        """One of the page's short calls; None where it was refused."""
        return await self.post(http, f"/inflight/call/{name}", name, json={"args": args})

    async def open_page(self, http: httpx.AsyncClient) -> dict[str, Any] | None:
        """The page's state, once it has been opened as a browser does."""
        await self.get(http, "/", "page")
        state = await self.get(http, "/inflight/state", "state")
        if state is None:
            return None
        data = json.loads(state)
        self.presets = self.presets or [p["spec"] for p in data["presets"] if p["name"] in _SMALL]
        await self.get(http, f"/{self.draw.choice(data['catalogue'])['url']}", "recorded run")
        return data

    # -- jobs --------------------------------------------------------------------------------------

    async def job(
        self, http: httpx.AsyncClient, kind: str, more: dict[str, Any], leaves: float = 0.0
    ) -> dict[str, Any] | None:
        """A job to its end: its last delta. leaves: how likely its visitor goes away in the
        middle.
        """
        spec = self.draw.choice(self.presets) | more
        visitor = secrets.token_hex(8)
        begun = await self.post(
            http,
            "/inflight/jobs",
            f"begin {kind}",
            json={"kind": kind, "spec": spec, "visitor": visitor},
        )
        if begun is None:
            return None
        async with self.ledger.call(kind) as call:
            last: dict[str, Any] = {}
            number = 0
            async with http.stream("GET", f"/inflight/jobs/{begun['job']}?from=0") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        for delta in json.loads(line[6:]):
                            if last.get("done"):
                                raise Fault("Something came after the last delta.")
                            last, number = delta, number + 1
                    if self.draw.random() < leaves:
                        call.ends("left")
                        return None
            if not last.get("done"):
                raise Fault(f"The stream ended after {number} deltas without the last.")
            if sentence := last.get("error") or last.get("stopped") or last.get("unkept"):
                self.ledger.refused(call, sentence)
                return None
            call.ends("answered")
            return last
        return None

    async def visitor(self) -> None:
        async with self.client() as http:
            if not await self.open_page(http):
                return
            leaves = self.draw.choice((0.0, 0.0, 0.05))
            run = await self.job(http, self.draw.choice(("run", "run", "leak")), {}, leaves)
            if run is None or "id" not in run:
                return
            self.runs = [*self.runs[-20:], run]
            await self.get(http, f"/{run['url']}", "run's replay")
            step = self.draw.randrange(5)
            made = await self.ask(http, "export", self.draw.choice(_EXPORTS), run["id"], step)
            if made:
                text = await self.get(http, f"/{made['url']}", "export")
                if text and made["url"].endswith(".jsonl"):
                    self.traces = [*self.traces[-5:], text]
            if self.draw.random() < 0.5:
                await self.ask(http, "attention", run["id"], 0, 0, 0, 0)

    async def comparer(self) -> None:
        async with self.client() as http:
            if not await self.open_page(http):
                return
            await self.get(http, "/inflight/comparisons", "comparisons")
            kind, more = self.draw.choice(
                (
                    ("compare", {"policies": self.draw.sample(_POLICIES, 2), "repeats": 1}),
                    ("fork", {"knob": "max_num_batched_tokens", "value": 16}),
                    ("equivalence", {}),
                )
            )
            done = await self.job(http, kind, more, self.draw.choice((0.0, 0.2)))
            if done and "url" in done:
                await self.get(http, f"/{done['url']}", "comparison")
            if opened := await self.ask(
                http, "open_comparison", self.draw.choice(("gpt2-six", "equal-lengths", "nothing"))
            ):
                await self.get(http, f"/{opened['url']}", "comparison")

    async def uploader(self) -> None:
        text = self.draw.choice(self.traces) if self.traces else '{"kind": "nothing"}\n'
        cut = self.draw.randrange(1, len(text))
        sent = {
            "whole.jsonl": text,
            "cut.jsonl": text[:cut],
            "changed.jsonl": text[:cut] + "7" + text[cut + 1 :],
            "bytes.jsonl": self.draw.randbytes(3000),
            "large.jsonl": b" " * (9 * 2**20),
        }
        name = self.draw.choice(list(sent))
        async with self.client() as http:
            opened = await self.post(
                http, f"/inflight/uploads?name={name}", f"upload {name}", content=sent[name]
            )
            if opened:
                await self.get(http, f"/{opened['url']}", "run's replay")

    async def learner(self) -> None:
        async with self.client() as http:
            language = self.draw.choice(("en", "de", "xx"))
            found = await self.ask(http, "lessons", language)
            text = await self.get(http, f"/{found['url']}", "lessons file") if found else None
            if text is None:
                return
            lesson = self.draw.choice(
                [lesson["name"] for lesson in json.loads(text)["lessons"]] + ["nothing"]
            )
            sheet = await self.ask(
                http,
                "lesson_file",
                lesson,
                self.draw.choice(("teacher", "learner", "offline", "plan")),
                language,
            )
            if sheet:
                await self.get(http, f"/{sheet['url']}", "sheet")
            if self.runs:
                await self.ask(
                    http, "lesson_check", lesson, self.draw.choice(self.runs)["id"], language
                )

    # -- the shared engine -------------------------------------------------------------------------

    async def asker(self) -> None:
        """A live request: read to its end, cancelled, or left to itself."""
        key, then = secrets.token_hex(12), self.draw.choice(("read", "read", "cancel", "leave"))
        asked = {
            "key": key,
            "prompt": "O Romeo, " * self.draw.randrange(1, 5),
            "max_new_tokens": self.draw.randrange(2, 40),
        }
        async with self.client() as http:
            begun = await self.post(http, "/inflight/live/requests", "live request", json=asked)
            if begun is None:
                return
            async with self.ledger.call("live text") as call:
                ends = []
                async with http.stream(
                    "GET", "/inflight/live/requests", params={"places": f"{key}:0"}
                ) as stream:
                    async for line in stream.aiter_lines():
                        for part in json.loads(line[6:]) if line.startswith("data: ") else ():
                            ends += [
                                message["ended"]
                                for message in part.get("messages", ())
                                if "ended" in message
                            ]
                        if then == "cancel" and not ends:
                            then = "read"
                            await self.post(
                                http, f"/inflight/live/requests/{key}/cancel", "live cancel"
                            )
                        if then == "leave":
                            call.ends("left")
                            return
                if len(ends) != 1:
                    raise Fault(f"It ended {len(ends)} times.")
                if "error" in ends[0]:
                    self.ledger.refused(call, ends[0]["error"])
                else:
                    call.ends("answered")

    async def twins(self) -> None:
        """Two windows send the same request at once."""
        asked = {"key": secrets.token_hex(12), "prompt": "Speak", "max_new_tokens": 3}
        async with self.client() as http:
            sent = (
                self.post(http, "/inflight/live/requests", "live twin", json=asked)
                for _ in range(2)
            )
            one, other = await asyncio.gather(*sent)
        if one and other and one != other:
            self.ledger.fault("live twin", Fault("One key was given two requests."))

    async def program(self) -> None:
        """What calls the engine without the page: a stream with its tokens in order, or OpenAI's
        completions.
        """
        asked = {"prompt": "What news? ", "max_tokens": self.draw.randrange(1, 30)}
        async with self.client() as http:
            if self.draw.random() < 0.3:
                await self.post(
                    http,
                    "/serve/v1/completions",
                    "completion",
                    json={"model": "shakespeare-bpe", **asked},
                )
                return
            async with self.ledger.call("generate") as call:
                tokens, last = 0, {}
                async with http.stream(
                    "POST", "/serve/generate", json={**asked, "stream": True, "ignore_eos": True}
                ) as stream:
                    if stream.status_code >= 400:
                        await stream.aread()
                        self.ledger.answer(call, stream)
                        return
                    async for line in stream.aiter_lines():
                        if line.startswith("data: "):
                            if last:
                                raise Fault("Something came after the last event.")
                            event = json.loads(line[6:])
                            if "token_id" not in event:
                                last = event
                            elif event["index"] != tokens:
                                raise Fault(
                                    f"Token {event['index']} came where token {tokens} was due."
                                )
                            else:
                                tokens += 1
                if "error" in last:
                    self.ledger.refused(call, last["error"]["message"])
                elif not last or last["usage"]["completion_tokens"] != tokens:
                    raise Fault(f"The stream ended after {tokens} tokens.")
                else:
                    call.ends("answered")

    async def viewer(self) -> None:
        """Watches the live batch for a while."""
        async with self.client() as http, self.ledger.call("watch") as call:
            stays = asyncio.get_running_loop().time() + self.draw.uniform(1, 40)
            async with http.stream("GET", "/inflight/live/steps?chapters=1") as stream:
                if stream.status_code >= 400:
                    await stream.aread()
                    self.ledger.answer(call, stream)
                    return
                try:
                    async with asyncio.timeout_at(stays):
                        async for _ in stream.aiter_lines():
                            pass
                except TimeoutError:
                    call.ends("left")
                else:
                    raise Fault("The live batch ended.")

    # -- the careless and the rude -----------------------------------------------------------------

    async def returner(self) -> None:
        """Asks again over a connection kept for about as long as servers keep one."""
        async with self.client() as http:
            await self.get(http, "/inflight/state", "state")
            await asyncio.sleep(self.draw.choice((4.99, 5.0, 5.001)))
            await self.post(http, "/inflight/jobs/nothing/cancel", "call over a kept connection")

    async def refused(self) -> None:
        """Calls that are to be refused."""
        path, sent = self.draw.choice(
            (
                ("/inflight/jobs", {"content": b"{" * 2**20}),
                ("/inflight/jobs", {"content": b"["}),
                ("/inflight/jobs", {"json": {"kind": "magic", "spec": {}}}),
                ("/inflight/nowhere", {"json": {}}),
                (
                    "/serve/generate",
                    {"content": b"{" * 2**23, "headers": {"content-type": "application/json"}},
                ),
                ("/serve/generate", {"content": b"x"}),
                ("/serve/generate", {"json": {"prompt": "", "max_tokens": 10**9}}),
                ("/serve/v1/completions", {"json": {"model": "no such model", "prompt": "O"}}),
                ("/inflight/live/requests", {"json": {"key": "short"}}),
            )
        )
        async with self.client() as http, self.ledger.call(f"refusal of {path}") as call:
            if self.ledger.answer(call, await http.post(path, **sent)) is not None:
                raise Fault("It took what it should have refused.")

    async def resetter(self) -> None:
        """Hangs up by a reset: in the middle of a body, or of a stream."""
        in_body = self.draw.random() < 0.5
        head = (
            "POST /inflight/uploads?name=x HTTP/1.1\r\nContent-Length: 100000"
            if in_body
            else "GET /inflight/live/steps HTTP/1.1"
        )
        async with self.ledger.call("reset by the client") as call:
            connection = socket.create_connection(self._at, timeout=20)
            connection.sendall(f"{head}\r\nHost: {self._at[0]}:{self._at[1]}\r\n\r\n".encode())
            await asyncio.sleep(self.draw.uniform(0, 2))
            reset(connection)
            call.ends("left")

    async def sleeper(self) -> None:
        """Asks for a large file, reads nothing and never leaves: a computer that was shut."""
        if not self.runs:
            return
        async with self.client() as http:
            made = await self.ask(http, "export", "plotly", self.draw.choice(self.runs)["id"], 0)
        if made is None:
            return
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with self.ledger.call("reader who sleeps") as call:
            connection.connect(self._at)
            connection.sendall(
                f"GET /{made['url']} HTTP/1.1\r\nHost: {self._at[0]}:{self._at[1]}\r\n\r\n".encode()
            )
            call.ends("left")
            self.left_open.append(connection)

    def leave(self) -> None:
        """Those who sleep are gone."""
        for connection in self.left_open:
            connection.close()
        self.left_open.clear()

    @property
    def habits(self) -> list[tuple[Callable[[], Awaitable[None]], float]]:
        """Each kind of visit, and the mean seconds between the end of one and the next."""
        return [
            (self.visitor, 3.0),
            (self.visitor, 5.0),
            (self.comparer, 30.0),
            (self.uploader, 12.0),
            (self.learner, 15.0),
            (self.asker, 3.0),
            (self.asker, 4.0),
            (self.twins, 10.0),
            (self.program, 4.0),
            (self.viewer, 3.0),
            (self.viewer, 8.0),
            (self.returner, 3.0),
            (self.refused, 4.0),
            (self.resetter, 5.0),
            (self.sleeper, 60.0),
        ]
