"""The replay has the trace's facts, and piece by piece adds up to the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from core.config import BUILTIN_FOLDER, EngineConfig
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.torch_engine.engine import Engine
from core.trace.events import Arrived, StepEvent
from core.trace.phrases import letters
from core.trace.ranks import Rank, Ranks
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.documents.replay import Deltas, ranks_document, replay
from visualizer.server.store import write_by_content as write
from worlds.small import memory_trace
from worlds.visual import record, request

SCRIPT = Path(__file__).parents[1] / "js" / "events.js"


@pytest.fixture(scope="module")
def ran() -> Trace:
    """A real run on the tiny model, with texts that are not ASCII tokens by themselves."""
    if not (BUILTIN_FOLDER / "shakespeare-bpe").exists():
        pytest.skip("assets/models/shakespeare-bpe is not built yet")
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=12, block_size=4)
    prompts = ("To be, ", "Ωmega 😀 é", "O Romeo,\n\x00 <img src=x onerror=alert(1)>", "‏שלום")
    requests = [
        Request(
            f"r{i}",
            prompt=p,
            sampling=SamplingParams(max_new_tokens=6 + i, temperature=1.5, seed=i, ignore_eos=True),
            arrival=i,
        )
        for i, p in enumerate(prompts)
    ]
    return Engine.from_pretrained("shakespeare-bpe", config, device="cpu").run(Workload(requests))


def test_a_replay_is_json_and_has_every_fact(ran: Trace):
    data = json.loads(json.dumps(replay(ran), allow_nan=False))
    assert set(data) == {
        "schema",
        "records",
        "header",
        "complete",
        "letters",
        "texts",
        "events",
        "captions",
        "totals",
        "delays",
    }
    assert [StepEvent.from_json(event) for event in data["events"]] == ran.events
    in_file = [json.loads(line) for line in ran.lines() if line.startswith('{"step"')]
    assert data["events"] == [
        {name: value for name, value in event.items() if name != "crc"} for event in in_file
    ]
    assert (
        data["complete"]
        and "prompts" not in data["header"]
        and data["header"]["policy"] == "continuous"
    )
    assert {r: "".join(t) for r, t in data["texts"]["output"].items()} == {
        r: ran.text(r) for r in ran.prompts
    }
    assert len(data["captions"]) == len(data["events"])


def check_deltas(trace: Trace, size: int) -> None:
    """What comes piece by piece, so many steps at a time, adds up to the replay."""
    deltas, whole = Deltas.of(trace, trace.tokenizer), replay(trace)
    events, captions = [], []
    named: dict[str, str] = {}
    texts: dict[str, dict[str, list[str]]] = {
        "prompt": {},
        "said": {},
        "output": {r: [] for r in trace.prompts},
    }
    for start in range(0, len(trace.events), size):
        delta = json.loads(json.dumps(deltas.delta(trace.events[start : start + size])))
        events += delta["events"]
        captions += delta["captions"]
        named |= delta["letters"]
        for kind in ("prompt", "said"):
            texts[kind] |= delta["texts"][kind]
        for request_id, pieces in delta["texts"]["output"].items():
            texts["output"][request_id] += pieces
    assert (events, captions, texts) == (
        json.loads(json.dumps(whole["events"])),
        whole["captions"],
        whole["texts"],
    )
    assert named == whole["letters"]


def test_a_source_is_named_anew_and_a_simulation_stays_one(ran: Trace):
    assert (
        replay(ran)["header"]["source"] == "live"
        and replay(ran, "recorded")["header"]["source"] == "recorded"
    )
    cost = Linear(0.01, 0.001, 0.0, 100, Load(8, 10_000))
    simulated = SimulatedEngine(cost).run(Workload([request("r0", 3, 2)]))
    header = replay(simulated, "uploaded")["header"]
    assert header["source"] == "simulated" and header["brought"] == "uploaded"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_deltas_add_up_to_the_replay(ran: Trace, size: int):
    check_deltas(ran, size)


class Bytes:
    """A tokenizer of one character a token; of every four tokens one is the first byte of a
    character.
    """

    def decode(self, ids, **options):
        return "".join("xyz\ufffd"[i % 4] for i in ids)


def test_characters_that_are_never_completed_are_in_the_deltas_and_letters_go_by_arrival():
    """They end prompts and answers alike; who is asked for first comes last."""
    lengths = ((4, 5, 9), (1, 7, 6), (8, 2, 3), (5, 6, 0), (4, 4, 0))
    trace = memory_trace(*lengths, max_num_seqs=3)
    trace.tokenizer = Bytes()
    texts = trace.texts
    assert all(
        any(pieces[-1].endswith("\ufffd") for pieces in side.values())
        for side in (texts.prompt, texts.output)
    )
    check_deltas(trace, 2)
    arrived = [a.request for event in trace.events for a in event.arrived]
    assert arrived == ["r3", "r4", "r2", "r1", "r0"] == list(letters(trace)) and list(
        letters(trace).values()
    ) == list("ABCDE")


def test_letters_of_ranks_go_by_arrival_on_the_clock_of_both():
    """One rank's zero lies between the arrivals of the other, whose second comes before its own,
    and would come after it by each one's own clock.
    """
    first, second = (memory_trace((3, 2), (3, 2)) for _ in range(2))
    for trace, times in ((first, (0.0, 5.0)), (second, (0.5, 4.0))):
        trace.events[0] = trace.events[0]._replace(
            arrived=tuple(Arrived(f"r{i}", t) for i, t in enumerate(times))
        )
    found = ranks_document(Ranks((Rank(0, first, 0.0), Rank(1, second, 2.0)), 2, "machine", ()))
    assert [rank["replay"]["letters"] for rank in found["ranks"]] == [
        {"r0": "A", "r1": "C"},
        {"r0": "B", "r1": "D"},
    ]


def test_a_replay_is_stored_once_under_its_content(tmp_path):
    data = replay(
        record(EngineConfig(max_num_seqs=2), request("r0", 3, 2), request("../../etc/passwd", 3, 2))
    )
    path = write(tmp_path, data)
    before = path.stat().st_mtime_ns
    assert write(tmp_path, data) == path and path.stat().st_mtime_ns == before
    assert write(tmp_path, data | {"complete": False}) != path
    assert [p.parent for p in tmp_path.rglob("*")] == [tmp_path] * 2 and path.stem.isalnum()
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(data))


def test_a_step_of_a_replay_costs_little(ran: Trace):
    size = len(json.dumps(replay(ran), ensure_ascii=False, separators=(",", ":")).encode())
    assert size / len(ran.events) < 3_000


def test_the_page_reads_events_by_the_names_of_the_records(ran: Trace, tmp_path):
    """What `assets/player/run/events.js` makes of the arrays of a file: objects with every field of
    every record.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    path = tmp_path / "replay.json"
    path.write_text(json.dumps(replay(ran)), encoding="utf-8")
    done = subprocess.run([node, SCRIPT, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    def named(value):
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {camel(name): named(part) for name, part in value._asdict().items()}
        return [named(part) for part in value] if isinstance(value, tuple) else value

    def camel(name: str) -> str:
        return re.sub("_(.)", lambda found: found[1].upper(), name)

    assert json.loads(done.stdout) == [named(event) for event in ran.events]
