"""The replay has the trace's facts, and piece by piece adds up to the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from core.config import BUILTIN_FOLDER, EngineConfig
from core.runner.engine import Engine
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.documents.replay import Deltas, replay
from visualizer.server.store import write_by_content as write
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
            f"r{i}", prompt=p, sampling=SamplingParams(max_new_tokens=6 + i, temperature=1.5, seed=i, ignore_eos=True), arrival=i
        )
        for i, p in enumerate(prompts)
    ]
    return Engine.from_pretrained("shakespeare-bpe", config, device="cpu").run(Workload(requests))


def test_a_replay_is_json_and_has_every_fact(ran: Trace):
    data = json.loads(json.dumps(replay(ran), allow_nan=False))
    assert set(data) == {"schema", "records", "header", "complete", "letters", "texts", "events", "captions", "totals", "delays"}
    assert [StepEvent.from_json(event) for event in data["events"]] == ran.events
    in_file = [json.loads(line) for line in ran.lines() if line.startswith('{"step"')]
    assert data["events"] == [{name: value for name, value in event.items() if name != "crc"} for event in in_file]
    assert data["complete"] and "prompts" not in data["header"] and data["header"]["policy"] == "continuous"
    assert {r: "".join(t) for r, t in data["texts"]["output"].items()} == {r: ran.text(r) for r in ran.prompts}
    assert len(data["captions"]) == len(data["events"])


@pytest.mark.parametrize("size", [1, 3, 100])
def test_deltas_add_up_to_the_replay(ran: Trace, size: int):
    deltas, whole = Deltas.of(ran, ran.tokenizer), replay(ran)
    events, captions = [], []
    texts: dict[str, dict[str, list[str]]] = {"prompt": {}, "output": {r: [] for r in ran.prompts}}
    for start in range(0, len(ran.events), size):
        delta = json.loads(json.dumps(deltas.delta(ran.events[start : start + size])))
        events += delta["events"]
        captions += delta["captions"]
        texts["prompt"] |= delta["texts"]["prompt"]
        for request_id, pieces in delta["texts"]["output"].items():
            texts["output"][request_id] += pieces
    assert (events, captions, texts) == (json.loads(json.dumps(whole["events"])), whole["captions"], whole["texts"])


def test_a_replay_is_stored_once_under_its_content(tmp_path):
    data = replay(record(EngineConfig(max_num_seqs=2), request("r0", 3, 2), request("../../etc/passwd", 3, 2)))
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
    """What `assets/player/run/events.js` makes of the arrays of a file: objects with every field of every record."""
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
