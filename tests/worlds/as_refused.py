"""What is made of a document when one of its values is another, as text: a line for each place and
value, with the sentence that refuses it or a digest of what it becomes.

Whoever changes a bound, a default or a sentence of a reader finds it in the diff of `tests/told`.
The values are those next to the one that was there, and those of other types.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from core import Engine
from core.config import ASSETS, EngineConfig, Execution
from core.errors import InflightError
from core.proof.verify import verify
from core.recorders.convert import checked_trace
from core.recorders.raw import gathered, lines_of
from core.serving.limits import ServingLimits
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.roofline import Roofline
from core.trace.header import SIMULATED
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import SavedWorkload, Workload
from visualizer.jobs.limits import IN_TAB, Limits, check
from visualizer.jobs.planned import PlanJob
from visualizer.server.limits import SPACE
from worlds.digests import digest
from worlds.forging import MIXED, Rows, rows_of, sealed
from worlds.serving import MODEL, chat_engine, served
from worlds.small import MemoryModel, requests

DATA = Path(__file__).parents[1] / "data"
GONE = object()
MANY = 10  # values of a list
LINES = 20  # of a recording
WORDS_OF_PYTHON = re.compile(r"(?<=wrong kind) \(.*\)")  # which differ from version to version
# of the machine and the day on which a run was made
PLACE = {
    "created": "2026-11-30T00:00:00+00:00",
    "device_name": "a machine",
    "threads": 2,
    "versions": {"torch": "2"},
}
TOKEN = {"X-Teacher-Token": "blackboard"}


def refusals() -> dict[str, Callable[[], str]]:
    """What makes each text, by its name."""
    made = {
        "trace": of_traces,
        "steps": of_steps,
        "recording": of_recordings,
        "spec": of_specs,
        "http": of_http,
        "cost": of_costs,
    }
    return {f"refused-{name}": partial(in_lines, of) for name, of in made.items()}


def in_lines(of: Callable[[], Iterable[str]]) -> str:
    return "".join(f"{line}\n" for line in of())


def others(value: Any) -> Iterator[Any]:
    """Values near this one, and of other types; last none at all."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1, 10**9, "x")
    elif isinstance(value, str):
        yield from ("", f"{value}x", 7)
    elif value is None:
        yield from (0, 1, "x")
    else:
        yield type(value)()
    yield from (() if value is None else (None,))
    yield GONE


def places(document: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document; of a list of records or of many values to its last."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (key,)
            yield from ((key, *way) for way in places(value))
    elif isinstance(document, list | tuple):
        size = len(document)
        has_records = any(isinstance(value, dict | list | tuple) for value in document[:1])
        for at in range(max(0, size - 1) if has_records or size > MANY else 0, size):
            yield (at,)
            yield from ((at, *way) for way in places(document[at]))


def changed(document: Any, seen: set[str]) -> Iterator[tuple[str, Any]]:
    """What was done, and the document with one value changed, for each place and value. seen: the
    places that are passed over, whatever the index of a record; those passed now are added.
    """
    for *before, last in places(document):
        there, shape = document, []
        for key in (*before, last):
            is_record = isinstance(there, list) and isinstance(there[key], dict | list)
            shape.append("*" if is_record else str(key))
            there = there[key]
        if (where := ".".join(shape)) in seen:
            continue
        seen.add(where)
        for other in others(there):
            made = holder = copy.deepcopy(document)
            for key in before:
                holder = holder[key]
            if other is GONE:
                del holder[last]
            else:
                holder[last] = other
            yield f"{where} {'gone' if other is GONE else json.dumps(other)}", made


def told(document: Any, read: Callable[[Any], Any], seen: set[str] | None = None) -> Iterator[str]:
    """A line for each change: how it is refused, or what is made of it."""
    as_it_is = digest(read(copy.deepcopy(document)))
    yield f"as it is: {as_it_is}"
    for what, made in changed(document, set() if seen is None else seen):
        try:
            found = digest(read(made))
        except InflightError as error:
            found = WORDS_OF_PYTHON.sub("", str(error))
        if found != as_it_is:
            yield f"{what}: {found}"


# -- files -----------------------------------------------------------------------------------------


def proved(rows: Rows) -> dict[str, Any]:
    """What `check` proves of a trace, and its header."""
    found = vars(verify(sealed(rows)))
    return found | {"header": found["header"].to_json()}


def anywhere(rows: Rows) -> Rows:
    """A run without the machine and the day."""
    header = rows[0]
    if header["source"] == SIMULATED:
        return [header | PLACE | {"device_name": header["device_name"]}, *rows[1:]]
    return [header | {name: PLACE[name] for name in PLACE if name in header}, *rows[1:]]


def simulated(cost: Linear | Roofline) -> Trace:
    """Two requests, one that leaves, on a small pool."""
    asked = [
        Request("a", prompt_token_ids=[5, 6, 7], sampling=SamplingParams(4, ignore_eos=True)),
        Request("b", prompt_token_ids=[8] * 9, sampling=SamplingParams(5), leaves_after=3.0),
    ]
    return SimulatedEngine(cost, EngineConfig("continuous", 2, 8, 4, 8)).run(Workload(asked, "two"))


def told_of_rows(rows: Rows, kinds: Callable[[dict[str, Any]], bool]) -> Iterator[str]:
    """Every place of these rows of a run, each changed in the first row that has it."""
    rows, seen = anywhere(rows), dict[str, set[str]]()
    for at, row in enumerate(rows):
        if kinds(row):
            kind = row.get("kind", "step")

            def read(made: Any, at: int = at) -> Any:
                return proved([*rows[:at], made, *rows[at + 1 :]])

            yield f"-- row {at}, {kind}"
            yield from told(row, read, seen.setdefault(kind, set()))


def of_traces() -> Iterator[str]:
    """Headers, requests, texts and ends of our own run, another engine's and simulated ones."""
    runs = {
        "ours": Trace.load(ASSETS / "traces" / "one-request.jsonl"),
        "transformers": recording("transformers-5.23"),
        "fitted": simulated(LINEAR),
        "by data sheet": simulated(Roofline.named("h100", "8b")),
    }
    for name, trace in runs.items():
        yield f"-- {name}"
        yield from told_of_rows(rows_of(trace), lambda row: "step" not in row)


def of_steps() -> Iterator[str]:
    """Steps of runs in which all is scarce, or much is shared."""
    for name, policy, rows, more in (
        ("preempted", "continuous", ((6, 14), (6, 14), (6, 9, 1)), {"num_blocks": 7}),
        ("prefixes", "continuous", ((9, 4), (9, 4, 3), (5, 3, 5)), {"prefix_caching": True}),
        ("static", "static", MIXED, {"num_blocks": 12}),
        ("split-chunked", "split-chunked", MIXED, {"num_blocks": 12}),
    ):
        config = EngineConfig(policy, 3, 9, 4, **more)
        ticks = count()  # a tenth of a millisecond whenever the engine looks at its clock
        engine = Engine(MemoryModel(), None, config, clock=lambda ticks=ticks: next(ticks) / 10_000)
        trace = engine.run(Workload(requests(*rows), "small"))
        yield f"-- {name}"
        yield from told_of_rows(rows_of(trace), lambda row: "step" in row)


def recording(name: str) -> Trace:
    """The trace of a recording of another engine."""
    return imported(name, list(lines_of(DATA / f"{name}.raw.jsonl.gz")))


def imported(name: str, lines: Iterable[str]) -> Trace:
    return checked_trace(gathered([(name, lines)])[0])


def of_recordings() -> Iterator[str]:
    """Every kind of record in recordings of vLLM and of transformers."""
    for name in ("transformers-5.23", "vllm-0.32-two-ranks.rank0", "vllm-0.32-snapshots"):
        lines, seen = list(lines_of(DATA / f"{name}.raw.jsonl.gz"))[:LINES], dict[str, set[str]]()
        for at, line in enumerate(lines):

            def read(made: Any, lines: list[str] = lines, at: int = at) -> Any:
                trace = imported("a", [*lines[:at], json.dumps(made) + "\n", *lines[at + 1 :]])
                return [trace.header.to_json(), trace.header.notes, list(trace.lines())]

            kind = (row := json.loads(line))["kind"]
            yield f"-- {name}, line {at + 1}, {kind}"
            yield from told(row, read, seen.setdefault(kind, set()))


# -- what a page is asked --------------------------------------------------------------------------


def of_specs() -> Iterator[str]:
    """Runs that a page is asked for, at home, in a tab and on a Space; workloads and settings."""
    sampling = {  # at their limits, so that the value next to each is refused
        "max_new_tokens": 1,
        "temperature": 100.0,
        "top_k": 0,
        "top_p": 1.0,
        "seed": 0,
        "stop": ["x"],
        "ignore_eos": True,
        "min_p": 1.0,
        "repetition_penalty": 100.0,
        "presence_penalty": 2.0,
        "frequency_penalty": -2.0,
        "logit_bias": [[0, 100.0]],
    }
    messages = [{"role": "user", "content": "Hark"}]
    more = {"sampling": sampling, "arrival": 2, "priority": 1, "leaves_after": 1.0}
    asked = [
        {"id": "a", "prompt": "Hark"},
        {"id": "b", "prompt_token_ids": [5, 6], "arrival": 1},
        {"id": "c", "messages": messages, **more},
    ]
    spec = {
        "workload": {"schema": 1, "name": "three", "arrival_unit": "step", "requests": asked},
        "config": {**EngineConfig(num_blocks=64).to_json(), "policy": "continuous"},
        "model": "shakespeare-bpe",
        "device": "cpu",
    }

    def on_pages(made: Any) -> Any:
        return [str(check(made, limits)) for limits in (IN_TAB, SPACE)]

    yield from told(spec, on_pages)
    yield "-- as a file"
    yield from told(spec, lambda made: str(SavedWorkload.from_json(made)))
    yield from told({**vars(Execution()), "asynchronous": True}, lambda it: str(Execution(**it)))
    yield "-- each limit of a page, kept and just not kept"
    for where, limits in (("in a tab", IN_TAB), ("on a Space", SPACE)):
        for what, made in at_the_limits(spec, limits):
            yield f"{where}, {what}: {refused(partial(check, made, limits))}"


def at_the_limits(spec: dict[str, Any], limits: Limits) -> Iterator[tuple[str, Any]]:
    """What asks for as much as a page takes, and for one more."""
    workload, config = spec["workload"], spec["config"]
    plain = {"id": "a", "prompt": "x"}

    def asks(requests: list[Any], **more: Any) -> dict[str, Any]:
        return spec | {"workload": workload | {"requests": requests} | more}

    words = [{"role": "user", "content": "x"}]
    few = limits.total_characters // limits.prompt_characters - 1
    full = [{"id": str(n), "prompt": "x" * limits.prompt_characters} for n in range(few)]
    held = few * limits.prompt_characters
    most: dict[str, tuple[int, Callable[[int], Any]]] = {
        "requests": (limits.requests, lambda n: asks([plain | {"id": str(i)} for i in range(n)])),
        "characters": (
            limits.prompt_characters,
            lambda n: asks([plain | {"prompt": "x" * n}]),
        ),
        "messages": (64, lambda n: asks([{"id": "a", "messages": words * n}])),
        "characters together": (
            limits.total_characters,
            lambda n: asks([*full, plain | {"prompt": "x" * (n - held - 1)}, plain | {"id": "b"}]),
        ),
        "new tokens": (
            limits.new_tokens,
            lambda n: asks([plain | {"sampling": {"max_new_tokens": n}}]),
        ),
        "steps": (limits.arrival, lambda n: asks([plain | {"arrival": n}])),
        "seconds": (
            int(limits.seconds),
            lambda n: asks([plain | {"arrival": n}], arrival_unit="s"),
        ),
        "stop strings": (8, lambda n: asks([plain | {"sampling": {"stop": ["x"] * n}}])),
        "lanes": (limits.lanes, lambda n: spec | {"config": config | {"max_num_seqs": n}}),
        "budget": (
            limits.budget,
            lambda n: spec | {"config": config | {"max_num_batched_tokens": n}},
        ),
        "tokens of a block": (
            limits.block_size,
            lambda n: spec | {"config": config | {"block_size": n, "num_blocks": None}},
        ),
        "tokens of KV": (
            limits.kv_tokens,
            lambda n: spec | {"config": config | {"block_size": 1, "num_blocks": n}},
        ),
    }
    for what, (n, make) in most.items():
        yield from ((f"{asked:,} {what}", make(asked)) for asked in (n, n + 1))


def refused(do: Callable[[], Any]) -> str:
    """The sentence with which it is refused."""
    try:
        do()
    except InflightError as error:
        return str(error)
    return "taken"


def of_http() -> Iterator[str]:
    """What a server is asked in OpenAI's forms and in ours, and by a teacher."""
    sampling = {
        "max_tokens": 1,
        "temperature": 100.0,
        "top_p": 1.0,
        "seed": 0,
        "stop": ["x"],
        "presence_penalty": 2.0,
        "frequency_penalty": -2.0,
        "logit_bias": {"5": 100.0},
        "top_k": 0,
        "min_p": 1.0,
        "repetition_penalty": 100.0,
        "ignore_eos": True,
    }
    asked = {
        "/generate": {"prompt": "Hark", **sampling},
        "/v1/completions": {
            "model": MODEL,
            "prompt": ["Hark", "Ho"],
            **sampling,
            "n": 4,
            "logprobs": 20,
            "user": "me",
        },
        "/v1/chat/completions": {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Hark"},
                {"role": "user", "content": [{"type": "text", "text": "Ho"}]},
            ],
            **sampling,
            "n": 2,
            "logprobs": True,
            "top_logprobs": 20,
        },
        "/control": {
            "policy": "static",
            "max_num_seqs": 256,
            "max_num_batched_tokens": 16_384,
            "chunked_prefill": True,
            "prefix_caching": False,
            "when": "idle",
            "system": "Be brief.",
            "clear": False,
            "hide_texts": True,
            "hide_nicknames": True,
            "accepting": True,
            "steps_per_s": 1000.0,
            "steps": 1000,
        },
    }
    limits = ServingLimits(max_choices=8, max_new_tokens=16)
    with served(chat_engine(), limits, teacher_token=TOKEN["X-Teacher-Token"]) as server:
        for path, body in asked.items():

            def read(made: Any, path: str = path) -> Any:
                answer = server.post(path, made, headers=TOKEN)
                if answer.status_code != 200:
                    raise InflightError(f"{answer.status_code} {answer.text}")
                return "taken"

            yield f"-- {path}"
            yield from told(body, read)


# -- costs and plans -------------------------------------------------------------------------------

LINEAR = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))


def of_costs() -> Iterator[str]:
    """Costs of a step as they are saved, and plans as a page asks for them."""
    for name, cost in (("fitted", LINEAR), ("by data sheet", Roofline.named("h100", "8b"))):
        yield f"-- {name}"
        yield from told(cost.to_json(), type(cost).from_json)
    plan = {
        "run": "x",
        "lanes": [1, 2],
        "budgets": [8],
        "blocks": [4],
        "policies": ["static"],
        "slos": {"ttft_s": 1.0, "tpot_s": 0.1, "e2e_s": 2.0},
    }
    yield "-- a plan"
    yield from told(plan, lambda made: str(vars(PlanJob(made, IN_TAB))))
