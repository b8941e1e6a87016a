"""What a walk in Node is answered, in order: by a server, with jobs from their first delta to the
last, its refusals and the teacher's settings, and by the engine in a tab or in a sandbox. The code
that answers makes it here, of runs that were recorded or simulated; no model computes.

Only the progress of a leak, a fork, a comparison and a load is written by hand, since these end
with what was recorded. Whatever is asked for once more than is listed here is not found.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fastapi.testclient import TestClient

from core.account.request_times import request_times
from core.config import BUILTIN_FOLDER, POLICIES, EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError
from core.serving.engine import ServingEngine
from core.serving.event_log import COMMENT, Hidden
from core.serving.http.app import create_app
from core.serving.limits import Places, ServingLimits
from core.simulate.engine import SimulatedEngine
from core.torch_engine.models.forecast import forecast
from core.trace.events import StepEvent
from core.trace.header import SIMULATED
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from core.workload.workload import Workload
from visualizer.browser.answers import Answers as TabAnswers
from visualizer.browser.tab import Tab
from visualizer.documents.comparison import fork_document
from visualizer.documents.replay import replay
from visualizer.jobs.limits import IN_TAB, Spec, check
from visualizer.jobs.offers import preset_entry
from visualizer.jobs.planned import PlanJob, SettingJob
from visualizer.jobs.work import Run, Work
from visualizer.server.followed import Followed
from visualizer.server.live import Live
from visualizer.server.routes import refused
from visualizer.write.tasks import task_named
from worlds.gguf_files import write
from worlds.ranks import records

TOKEN = "blackboard"
KEY = "07" * 16  # of a request, made by the random numbers of `tests/js/page.js`


class Answers:
    """The answers in order, by address, and the documents that stay. runs: the recorded ones."""

    def __init__(self, runs: Callable[[str], Trace]) -> None:
        self.runs = runs
        self.streams: dict[str, list[Any]] = {}
        self._jobs = 0
        self.kept: dict[str, Any] = {}

    def refuses(self, path: str, error: InflightError) -> None:
        """The next time, it refuses."""
        answer = refused(error)
        wait = answer.headers.get("retry-after")
        self.add(path, [answer.status_code, bytes(answer.body).decode(), wait])

    def add(self, path: str, answer: Any) -> None:
        """The next answer of an address."""
        self.streams.setdefault(path, []).append(answer)

    def job(self, *connections: list[Any]) -> None:
        """The next job, whose deltas come over these connections; the last one ends it."""
        self._jobs += 1
        name = f"j{self._jobs}"
        self.add("POST inflight/jobs", json.dumps({"job": name}))
        count = 0
        for deltas in connections:
            sent = ""
            for delta in deltas:
                sent += f"id: {count}\ndata: {json.dumps([delta])}\n\n"
                count += 1
            self.add(f"inflight/jobs/{name}", sent)

    def refused_job(self, preset: str, limits: dict[str, int]) -> None:
        """The next job is refused for its limits."""
        spec = preset_entry(PRESETS[preset])["spec"]
        try:
            check(spec | {"config": spec["config"] | limits}, IN_TAB)
        except InflightError as refusal:
            self.add("POST inflight/jobs", json.dumps({"error": str(refusal)}))

    # -- as `visualizer.jobs.work.Host` ------------------------------------------------------------

    def keep_document(self, document: dict[str, Any]) -> str:
        url = f"kept-{len(self.kept)}"
        self.kept[url] = document | ({"created": "2026"} if "created" in document else {})
        return url

    def keep(self, trace: Trace) -> dict[str, Any]:
        url = self.keep_document(without_place(replay(trace)))
        return {"id": url, "url": url}

    def recorded(self, run: object) -> Trace:
        return self.runs(str(run))

    def engine(self, spec: Spec, config: EngineConfig, leaks: bool = False) -> Any:
        return Again(self.runs(spec.workload.name))

    def between(self) -> None:
        pass


def without_place(shown: dict[str, Any]) -> dict[str, Any]:
    """A run as the page gets it; a simulated one forgets this machine and the date."""
    if shown["header"]["source"] == SIMULATED:
        here = ("created", "device_name", "threads", "versions")
        shown["header"] = {k: v for k, v in shown["header"].items() if k not in here}
    return shown


class Again:
    """An engine that does again what was recorded."""

    def __init__(self, recorded: Trace) -> None:
        self.trace, self.tokenizer = replace(recorded, events=[]), recorded.tokenizer
        self._events = recorded.events

    @property
    def has_work(self) -> bool:
        return len(self.trace.events) < len(self._events)

    def turns(self, workload: Workload) -> Iterator[StepEvent]:
        for event in self._events:
            self.trace.events.append(event)
            yield event


def told(work: Work, answers: Answers) -> list[dict[str, Any]]:
    """A job's deltas, as a server gives them; its answer is in the last one."""
    deltas, doing = [], work.run(answers)
    try:
        while True:
            next(doing)
            if news := work.news():
                deltas.append(news)
    except StopIteration as ended:
        answer = ended.value
    except InflightError as error:
        answer = work.failed(error)
    return [*deltas, {"done": True, **answer, **work.keep(answers)}]


def again(recorded: Trace, steps: int = 1000) -> Run:
    """The run that was recorded, on a page that runs so many steps."""
    asked = Workload((one.request for one in recorded.asked.values()), recorded.header.workload)
    limits = replace(IN_TAB, steps=steps)
    return Run(Spec(asked, recorded.header.config, "", "cpu"), limits)


def of_jobs(answers: Answers, leak: str, compared: str) -> None:
    """What the walk `served` is answered, in this order. leak, compared: the addresses of its first
    run with a leaking mask, and of a comparison.
    """
    runs = answers.runs
    answers.refused_job("three-lengths", {"max_num_seqs": 100_000})
    deltas = told(again(runs("three-lengths")), answers)
    answers.job(deltas[:3], [], deltas[3:])
    answers.job([{"progress": {"step": 4}}, {"done": True, "id": "leak", "url": leak}])
    plan = {"run": "three-lengths", "lanes": [1, 2], "slos": {"e2e_s": 1.0}}
    answers.job(told(PlanJob(plan, IN_TAB), answers))
    config = runs("three-lengths").header.config.to_json() | {"max_num_seqs": 1}
    answers.job(told(SettingJob({"run": "three-lengths", "config": config}, IN_TAB), answers))
    answers.job(told(again(runs("kv-pressure"), 5), answers))
    stopped = again(runs("kv-pressure")).stopped()
    answers.job([{"progress": {"ahead": 2}}, {"done": True, "stopped": stopped}])
    answers.job(told(again(runs("kv-pressure"), 2), answers)[:2])
    pair = runs("long-prompt-arrives"), runs("long-prompt-chunked")
    answers.refused_job("long-prompt-arrives", {"max_num_seqs": 0})
    forked = {
        "url": answers.keep_document(fork_document(*pair)),
        "runs": [*map(answers.keep, pair)],
    }
    for _ in ("by hand", "by its link"):
        answers.job([{"progress": {"index": 1, "total": 2}}, {"done": True, **forked}])
    answers.refused_job("equal-lengths", {"max_num_batched_tokens": 1})
    turn = {"round": 1, "contender": "static", "index": 2, "total": 4}
    so_far = turn | {"ended": 1, "requests": 8, "tokens": 30}
    answers.job(
        [{"progress": turn}, {"progress": so_far}, {"done": True, "url": compared, "rounds": 1}]
    )


def of_questions(answers: Answers, run: str, own: str) -> None:
    """What a visitor of Live is answered: once that there is no place, then with the text of a
    request of a recorded run, token by token; first that only this machine can open the page, and
    in the end how others do.
    """
    places = Places(ServingLimits(max_requests=2))
    places.take("somebody", 2)
    try:
        places.take("you")
    except InflightError as error:
        said = refused(error)
        wait = said.headers["retry-after"]
        answers.add(
            "POST inflight/live/requests", [said.status_code, bytes(said.body).decode(), wait]
        )
    answers.add("POST inflight/live/requests", json.dumps({"id": own}))
    trace = answers.runs(run)
    times = request_times(trace)[own]
    ended = {"finish_reason": "length", "tokens": times.num_tokens, "queue_s": times.queue_s}
    pieces = trace.texts.output[own]
    messages = [*({"id": own, "text": text} for text in pieces), {"id": own, "ended": ended}]
    delta = {"of": KEY, "last": len(pieces), "messages": messages}
    answers.add("inflight/live/requests", f"data: {json.dumps([delta])}\n\n")
    file = "".join(trace.lines())
    answers.add("serve/session", file)
    answers.add("serve/session", file)
    answers.add("POST inflight/uploads", json.dumps({"id": run, "url": run}))
    alone = json.dumps({"address": "http://127.0.0.1:7860/", "qr": None})
    for _ in range(2):
        answers.add("inflight/class", alone)
    answers.kept["inflight/class"] = {"address": "http://192.0.2.7:7860/", "qr": "<svg></svg>"}


def of_models(answers: Answers) -> None:
    """What a page that takes any model is told of two that are named: nothing is at the first, in
    another number format neither. Half a GiB of memory is free.
    """
    nowhere = "/nowhere/model"
    for name in (nowhere, nowhere, str(BUILTIN_FOLDER / "shakespeare-char")):
        try:
            found = asdict(forecast(name, "cpu"))
            said = found | {"name": "shakespeare", "free": 2**29, "pool": 2**28, "loaded": False}
        except InflightError as error:
            said = {"error": str(error)}
        answers.add("POST inflight/call/model", json.dumps(said))


WRITTEN = (
    ("refill", "", ""),
    ("refill", "capacity.wave, 0", "1 // 0, 0"),
    ("refill", "if capacity.wave:", "if False:"),
    ("static", "", ""),
    ("static", "raise NotImplementedError", "return {r.id: r.left for r in running or waiting}"),
    ("mask", "raise NotImplementedError", 'print("no mask"); return []'),
)
"""What is written on the walk through Write, in this order: words of the task's code, and what
takes their place."""


class Characters:
    """A token a character."""

    unk_token_id = unk_token = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) % 65 for character in text]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "a" * len(ids)


def deltas_of(job: Iterator[Any]) -> list[Any]:
    """All that a job says, on a clock that stands: a busy machine tells its progress more often."""
    with patch("visualizer.browser.answers.time.monotonic", return_value=0.0):
        return [delta for delta in job if delta is not None]


def of_attempts(cost: Any) -> dict[str, list[Any]]:
    """What the engine of a sandbox says to what is written, on a cost that is simulated."""

    def engine(_model: str, config: EngineConfig, *_: Any) -> SimulatedEngine:
        return SimulatedEngine(cost, config, Characters(), vocab_size=65, max_model_len=256)

    said: dict[str, list[Any]] = {
        "load shakespeare-char": [
            [*[{"kind": "loading"}] * 9, {"kind": "ready"}] for _ in range(20)
        ]
    }
    known = dict(POLICIES)
    for task, words, others in WRITTEN:
        code = task_named(task).code.replace(words, others)
        job = TabAnswers(engine).begin("policy", {"task": task, "code": code})
        deltas = deltas_of(job)
        POLICIES.clear()
        POLICIES.update(known)
        if shown := deltas[-1]["attempt"]["replay"]:
            without_place(shown)
        heard = [{"kind": "delta", "delta": delta} for delta in deltas]
        said.setdefault(f"begin policy {task} {code}", []).append(heard)
    return said


class _Piece(bytes):
    """Of a file, as JavaScript gives it."""

    def to_bytes(self) -> bytes:
        return self


TOO_LARGE = {"size": 134_000_000, "arrived": 21_000_000, "kept": True}


def of_tab(answers: Answers) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """What the engine in a visitor's tab says on the walk `tab`, and the files that are brought
    there, in base64.
    """
    # the names that a tab gives to its runs are random
    with patch("secrets.token_hex", side_effect=map(str, count())):
        return _of_tab(answers)


def _of_tab(answers: Answers) -> tuple[dict[str, list[Any]], dict[str, str]]:
    trace = answers.runs("three-lengths")
    text = "".join(f"{line}\n" for line in trace.lines())
    tab = TabAnswers(lambda *_: Again(trace))

    def call(name: str, *args: Any) -> list[Any]:
        value = tab.call(name, args)
        if "url" in value:
            answers.kept[value["url"]] = json.loads(tab.document(value["url"]))
        return [{"kind": "answer", "value": value}]

    def job(kind: str, spec: dict[str, Any]) -> list[Any]:
        deltas = deltas_of(tab.begin(kind, spec))
        if url := deltas[-1].get("url"):
            answers.kept[url] = json.loads(tab.document(url))
        return [{"kind": "delta", "delta": delta} for delta in deltas]

    asked = {**preset_entry(PRESETS["three-lengths"])["spec"]}
    fetching = [
        {"kind": "loading", "what": what, "done": done * 10**6, "total": 6 * 10**6, "kept": False}
        for done, what in enumerate(("python.zip", "py.wasm", "sources.json", "m/weights", "", ""))
    ]
    failed = {"kind": "failed", "sentence": "Out of reach.", "lasting": False, "more": {}}
    offered = {"kind": "failed", "sentence": "Not here.", "lasting": False, "more": TOO_LARGE}
    half = text[: len(text) // 2]
    said = {
        "load shakespeare-bpe": [
            [failed],
            [failed],
            [*fetching, {"kind": "ready"}],
            fetching,
            [{"kind": "ready"}],
        ],
        "load": [[{"kind": "ready"}]] * 3,
        "load smollm2": [[offered], [offered], [*fetching, failed], [offered]],
        "begin run": [job("run", asked), [{"broke": True}]],
        "call upload": [
            call("upload", "nonsense", ["nonsense.txt"]),
            call("upload", half, ["half.jsonl.gz"]),
            call("upload", text, ["run.jsonl"]),
        ],
    }
    shown = json.dumps(without_place(replay(trace)))
    with TemporaryDirectory() as folder:
        gguf = Path(write(Path(folder) / "mine.gguf")).read_bytes()
    opens = Tab(json.dumps({"device_name": "Node", "versions": {}})).open
    for name, content in (("mine.gguf", gguf), ("half.gguf", gguf[:200])):
        facts = json.loads(opens(name, lambda at, size, of=content: _Piece(of[at : at + size])))
        answer = {"kind": "answer", "value": facts}
        if "error" in facts:
            answer = {"kind": "failed", "sentence": facts["error"], "more": {}}
        said[f"open {name}"] = [[answer]]
    said["remove mine.gguf"] = [[{"kind": "answer", "value": 0}]]
    files = {
        "mine.gguf": gguf,
        "half.gguf": gguf[:200],
        "run.jsonl": text.encode(),
        "half.jsonl.gz": gzip.compress(half.encode(), mtime=0),
        "broken.gz": gzip.compress(text.encode(), mtime=0)[:200],
        "nonsense.txt": b"nonsense",
        "replay.json": shown.encode(),
    }
    return said, {name: base64.b64encode(content).decode() for name, content in files.items()}


def of_followed(answers: Answers) -> None:
    """What is sent of two engines that are followed, the first of two ranks, to who watches its
    first rank, the other engine, all engines, one rank, all ranks, and one again.
    """
    with TemporaryDirectory() as temporary, patch.object(Live, "start"):
        (folder := Path(temporary) / "engines").mkdir()
        for number, (rank, instance) in enumerate(((0, "b"), (0, "a"), (1, "a"))):
            header, *steps = records(rank)
            facts = {"instance": instance, "host": "node", "pid": number, "created": f"{number}"}
            lines = [header | facts, *steps[:90]]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{number}.raw.jsonl").write_text(text)
        followed = Followed([folder], shows_texts=True)
        followed.start()
        lives = {name: followed.live(name) for name in followed._streams()}
        asyncio.run(_read(lives))
        for load in followed._loads.values():
            load._at = time.monotonic()  # its steps have just come, however slow this machine is
        engines = followed.loads()
    for engine in engines:
        for one in engine["ranks"]:
            one["silent_s"] = 0
    answers.kept["inflight/live/engines"] = {"engines": engines}
    ranks = "engines", "engines, rank 1"
    for names in (ranks[:1], ("engines, node:0",), (*ranks, "engines, node:0"), (), ranks, ()):
        _stays(answers, lives, *names)


async def _read(lives: dict[str, Live]) -> None:
    """What is in the files is read twice, since the first does not know yet of the last."""
    read = {name: live._source() for name, live in lives.items()}
    for _ in range(2):
        for name, messages in read.items():
            lives[name].take(await anext(messages))


def _stays(answers: Answers, lives: dict[str, Live], *names: str) -> None:
    """The next connection is to these streams, or has nothing new."""
    taken = {name: lives[name].event_log.take(None, 8)[0] for name in names}
    told = [
        {"of": name, "last": excerpt.last, "messages": json.loads(excerpt.messages)}
        for name, excerpt in taken.items()
    ]
    text = COMMENT.decode()
    if len(told) == 1:
        text = f"id: {told[0]['last']}\ndata: {json.dumps(told[0]['messages'])}\n\n"
    elif told:
        text = f"data: {json.dumps(told)}\n\n"
    answers.add("inflight/live/steps", {"stays": text})


def of_teacher(answers: Answers, engine: EngineCore, sets: Iterable[dict[str, Any]]) -> str:
    """What a server answers a teacher: first a wrong token, then the token, then what is set.
    Returns what everybody is sent of the settings as they were before.
    """
    hidden = Hidden(texts=False, nicknames=False)
    serving = ServingEngine(engine, None, "shakespeare-char", hidden)
    serving.start()
    before = f"data: {json.dumps([{'class': serving.class_state}])}\n\n"
    client = TestClient(create_app(serving, teacher_token=TOKEN))
    for token in ("wrong", TOKEN):
        said = client.get("/control", headers={"X-Teacher-Token": token})
        answers.add("serve/control", [said.status_code, said.text, None])
    for what in sets:
        said = client.post("/control", json=what, headers={"X-Teacher-Token": TOKEN})
        answers.add("POST serve/control", [said.status_code, said.text, None])
    serving.close()
    return before
