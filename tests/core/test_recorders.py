"""Recorders and their raw files: what is written is what was decided, whatever fails stays outside
the engine, and damaged files say so.
"""

from __future__ import annotations

import gzip
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from core.errors import InvalidTrace
from core.recorders.raw import RAW, MissingSteps, Recording, read_raw
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.vllm.inflight_vllm import recorder as inflight_vllm
from core.recorders.vllm.inflight_vllm.groups import groups_of
from core.recorders.vllm.inflight_vllm.recorder import Recorder, _place
from core.recorders.vllm.inflight_vllm.schedulers import RecordsSteps
from core.recorders.vllm.inflight_vllm.snapshot import Snapshot
from core.recorders.vllm.inflight_vllm.writer import Oversized, Parts, RawWriter

HEADER = {
    "kind": "header",
    "raw": 1,
    "engine": "vllm",
    "version": "0.32.0",
    "model": "m",
    "pid": 1,
    "created": "now",
}


def step(number: int, t: float | None = None) -> dict:
    return {
        "kind": "step",
        "step": number,
        "t_start": float(number) if t is None else t,
        "segments": [],
        "arrived": [],
    }


def write(path: Path, *records: dict, end: str = "\n", **header) -> Path:
    text = "\n".join(json.dumps(r) for r in ({**HEADER, **header}, *records)) + end
    path.write_text(text, encoding="utf-8")
    return path


class Queue(deque):
    def peek_request(self):
        return self[0]


class OneByOne:
    """The least that a recorder asks of a scheduler: whoever waits runs at once, one token a step,
    three tokens each.
    """

    def __init__(self) -> None:
        self.requests, self.waiting, self.block_size = {}, Queue(), 16
        self.max_num_scheduled_tokens = 64
        pool = SimpleNamespace(get_num_free_blocks=lambda: 7)
        self.kv_cache_manager = SimpleNamespace(block_pool=pool)
        self.ended: set[str] = set()

    def add_request(self, request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def _preempt_request(self, request, timestamp) -> None:
        request.num_computed_tokens = 0
        self.waiting.appendleft(request)

    def finish_requests(self, ids, status) -> None:
        for request in ids:
            del self.requests[request]

    def schedule(self):
        new = [
            SimpleNamespace(req_id=r.request_id, num_computed_tokens=0, block_ids=([3],))
            for r in self.waiting
        ]
        old = [r for r in self.requests.values() if r not in self.waiting]
        self.waiting.clear()
        cached = SimpleNamespace(
            req_ids=[r.request_id for r in old],
            num_computed_tokens=[r.num_computed_tokens for r in old],
            new_block_ids=[None] * len(old),
            resumed_req_ids=set(),
        )
        counts = {
            n.req_id: len(self.requests[n.req_id].prompt_token_ids) for n in new
        } | dict.fromkeys(cached.req_ids, 1)
        output = SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=counts,
            finished_req_ids=self.ended,
            total_num_scheduled_tokens=sum(counts.values()),
            scheduled_spec_decode_tokens={},
            has_structured_output_requests=False,
        )
        for request, count in counts.items():
            self.requests[request].num_computed_tokens += count
        return output

    def update_from_output(self, output, results):
        answers = []
        for request, tokens in zip(results.req_ids, results.sampled_token_ids, strict=True):
            state = self.requests[request]
            state.num_tokens += len(tokens)
            done = state.num_tokens == len(state.prompt_token_ids) + state.max_tokens
            answers.append(
                SimpleNamespace(request_id=request, finish_reason="length" if done else None)
            )
            if done:
                del self.requests[request]
        return {0: SimpleNamespace(outputs=answers)}

    def shutdown(self) -> None:
        pass


class Recorded(RecordsSteps, OneByOne):
    pass


def asked(name: str, *prompt: int) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=name,
        prompt_token_ids=list(prompt),
        num_tokens=len(prompt),
        num_computed_tokens=0,
        max_tokens=2,
        sampling_params=SimpleNamespace(temperature=0.0, seed=None, ignore_eos=True),
        num_prompt_tokens=len(prompt),
    )


def run(scheduler: OneByOne) -> list[dict]:
    """To the end; what each step scheduled."""
    decided = []
    while scheduler.requests:
        output = scheduler.schedule()
        decided.append(dict(output.num_scheduled_tokens))
        rows = list(output.num_scheduled_tokens)[::-1]  # a runner has an order of its own
        results = SimpleNamespace(
            req_ids=rows, sampled_token_ids=[[40 + i] for i, _ in enumerate(rows)], logprobs=None
        )
        scheduler.update_from_output(output, results)
        rows.clear()  # and goes on using its list
        for new in output.scheduled_new_reqs:
            new.block_ids[0].append(99)  # and the tables that it was given
    return decided


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INFLIGHT_TRACE", str(tmp_path / "run.raw.jsonl"))
    return tmp_path / "run.raw.jsonl"


def test_a_recording_says_what_was_decided(path):
    before = time.monotonic_ns()
    scheduler = Recorded()
    scheduler.add_request(asked("a", 1, 2, 3))
    scheduler.add_request(asked("b", 9))
    decided = run(scheduler)
    scheduler.shutdown()
    (recording,) = read_raw([path])
    assert recording.complete and recording.dropped == 0
    # this test's own engine is none that was tried
    assert [f for f in recording.faults if "never tried with" not in f] == []
    assert [{s["request"]: s["length"] for s in e["segments"]} for e in recording.steps] == decided
    clock = recording.header["clock"]  # as another process of this machine reads it, a moment later
    assert clock["boot"] == inflight_vllm._clock()["boot"]
    assert before <= clock["monotonic_ns"] <= time.monotonic_ns()
    first, second = recording.steps
    assert [a["prompt"] for a in first["arrived"]] == [[1, 2, 3], [9]]
    assert first["row_order"] == ["b", "a"] and first["sampled"] == {"b": [40], "a": [41]}
    assert [s["start"] for s in second["segments"]] == [3, 1] and [
        s["num_tokens"] for s in second["segments"]
    ] == [4, 2]
    assert second["finished"] == [["b", "length"], ["a", "length"]]
    assert first["blocks"] == [["a", [[3]], "table"], ["b", [[3]], "table"]]
    # the stand-in has none, and the header says so
    assert "vllm_config.model_config.model" in recording.header["missing"]


def test_what_is_recorded_is_of_the_version_that_is_read():
    """The recorder runs where none of our other packages is, and has the number once more."""
    assert inflight_vllm.RAW == RAW


def test_what_an_engine_does_beside_its_steps_is_noted(path):
    class Model:
        runner_type = "pooling"

        @property
        def is_multimodal_model(self):
            raise RuntimeError("another project's property")

    engine = OneByOne()
    engine.vllm_config = SimpleNamespace(
        model_config=Model(),
        lora_config=None,
        kv_transfer_config=SimpleNamespace(kv_connector="Nixl"),
    )
    Recorder(engine, "OneByOne").writer.close()
    (recording,) = read_raw([path])
    facts = recording.header
    assert (facts["task"], facts["kv_connector"], facts["max_loras"], facts["multimodal"]) == (
        "pooling",
        "Nixl",
        None,
        None,
    )
    assert "vllm_config.model_config.is_multimodal_model" in facts["missing"]  # it failed
    # it is there: this engine has none
    assert "vllm_config.lora_config.max_loras" not in facts["missing"]
    facts.update(max_num_seqs=1, max_num_batched_tokens=16, num_blocks=4)
    notes = trace_header(recording, None, 0.0, absent=(), notes=()).notes
    assert [note.partition(":")[0] for note in notes] == ["KV connector", "Pooling"]
    facts["num_blocks"] = 0
    with pytest.raises(InvalidTrace, match="model without a KV cache"):
        check_facts(recording)


def test_a_scheduler_of_ones_own_is_named(path):
    class Mine(Recorded):
        pass

    engine = Mine()
    engine.recording_ends()
    assert read_raw([path])[0].header["scheduler"] == "Mine"


def test_what_a_preemption_took_and_who_is_held_is_told_as_it_was(path):
    """A preemption sets its request's counters to zero; requests whose KV is on its way stand in a
    queue of their own, before the other.
    """
    scheduler = Recorded()
    scheduler.kv_holding_waiting = Queue([asked("held", 7), asked("too", 7)])
    for name in ("a", "b"):
        scheduler.add_request(asked(name, 1, 2, 3))
    output = scheduler.schedule()
    scheduler.update_from_output(
        output, SimpleNamespace(req_ids=["a", "b"], sampled_token_ids=[[40], [41]], logprobs=None)
    )
    scheduler._preempt_request(scheduler.requests["b"], 0.0)
    run(scheduler)
    scheduler.shutdown()
    (recording,) = read_raw([path])
    first, second, *_ = recording.steps
    assert first["preempted"] == [] and second["preempted"] == [["b", 3]]
    assert [(step["waiting"], step["head"]) for step in (first, second)] == [(2, "held")] * 2


def test_a_snapshot_has_every_queue_and_counts_no_rejected_draft():
    """While a step is in flight that computes four drafts for `runs`, of which one is kept; `held`
    has its blocks before its lane.
    """

    def there(
        name: str, computed: int, output: tuple[int, ...] = (), preemptions: int = 0
    ) -> SimpleNamespace:
        return SimpleNamespace(
            request_id=name,
            num_computed_tokens=computed,
            output_token_ids=list(output),
            num_prompt_tokens=5,
            num_preemptions=preemptions,
            is_finished=lambda: False,
        )

    scheduler = OneByOne()
    scheduler.running = [there("runs", 14, (1, 2))]
    scheduler.kv_holding_waiting, scheduler.waiting = (
        Queue([there("held", 5)]),
        Queue([there("back", 0, (3,), 1), there("new", 0)]),
    )
    blocks = {"runs": [4, 5], "held": [6]}
    scheduler.kv_cache_manager.get_blocks = lambda request: SimpleNamespace(
        blocks=[[SimpleNamespace(block_id=i) for i in blocks[request]]]
    )
    output = SimpleNamespace(scheduled_spec_decode_tokens={"runs": [7, 7, 7, 7]})
    snapshot = Snapshot(scheduler, 9, 1.5, {"new"}, [id(output)])
    snapshot.back(output, SimpleNamespace(req_ids=["runs"], sampled_token_ids=[[7, 8]]))
    assert not snapshot.waits_for
    snapshot.finish()
    record = snapshot.record(lambda request: {"request": request.request_id})
    assert (record["running"], record["waiting"], record["blocks_free"]) == (
        ["runs"],
        ["held", "back"],
        7,
    )
    assert list(record["requests"]) == [
        {"request": "runs", "computed": 14 - 3, "output": [1, 2], "blocks": [[4, 5]]},
        {"request": "held", "computed": 5, "output": [], "blocks": [[6]]},
        {"request": "back", "computed": 0, "output": [3], "preemptions": 1},
    ]


class Running(Recorded):
    """One that has what a snapshot reads."""

    def __init__(self) -> None:
        super().__init__()
        self.kv_cache_manager.get_blocks = lambda request: SimpleNamespace(blocks=[[]])

    @property
    def running(self) -> list[SimpleNamespace]:
        return [r for r in self.requests.values() if r not in self.waiting]

    def add_request(self, request) -> None:
        request.output_token_ids, request.num_preemptions = [], 0
        request.is_finished = lambda: False
        super().add_request(request)


def test_a_prompt_is_in_one_snapshot_and_who_is_ended_from_outside_is_on_record(path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_SNAPSHOT_STEPS", "1")
    monkeypatch.setattr("core.recorders.vllm.inflight_vllm.writer.SNAPSHOT_SHARE", 0)
    scheduler = Running()
    for name, prompt in (("a", (1, 2, 3)), ("b", (9,))):
        scheduler.add_request(asked(name, *prompt))
        scheduler.requests[name].max_tokens = 4

    def one_step() -> None:
        output = scheduler.schedule()
        rows = list(output.num_scheduled_tokens)
        scheduler.update_from_output(
            output,
            SimpleNamespace(req_ids=rows, sampled_token_ids=[[40]] * len(rows), logprobs=None),
        )

    for _ in range(3):
        one_step()
    scheduler.finish_requests("b", "FINISHED_ABORTED")
    scheduler.finish_requests(["b", "gone"], "FINISHED_ABORTED")  # neither is there any more
    scheduler.shutdown()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    first, second = (line["requests"] for line in lines if line["kind"] == "snapshot")
    assert [(row["request"], row.get("prompt"), row.get("told")) for row in first] == [
        ("a", [1, 2, 3], None),
        ("b", [9], None),
    ]
    assert [(row["request"], row.get("prompt"), row.get("told")) for row in second] == [
        ("a", None, True),
        ("b", None, True),
    ]
    assert [row["num_prompt"] for row in second] == [3, 1]
    (ended,) = [line for line in lines if line["kind"] == "abort"]
    assert (ended["requests"], ended["status"]) == (["b"], "FINISHED_ABORTED")
    assert lines[-2:] == [ended, {"kind": "end", "dropped": 0}]


@pytest.mark.parametrize("most", [8, 7])
def test_a_state_that_is_too_large_is_no_snapshot(path, monkeypatch, most):
    """Eight tokens: prompts of three and one, two of the answers each."""
    monkeypatch.setenv("INFLIGHT_SNAPSHOT_STEPS", "1")
    monkeypatch.setattr(inflight_vllm, "MOST_SNAPSHOT_TOKENS", most)
    scheduler = Running()
    for name, prompt in (("a", (1, 2, 3)), ("b", (9,))):
        scheduler.add_request(asked(name, *prompt))
        scheduler.requests[name].output_token_ids = [40, 41]
    run(scheduler)
    scheduler.shutdown()
    (recording,) = read_raw([path])
    assert (list(recording.snapshots), len(recording.steps)) == ([1] if most == 8 else [], 2)


def test_where_no_snapshot_can_be_taken_the_steps_are_recorded_all_the_same(
    path, monkeypatch, caplog
):
    monkeypatch.setenv("INFLIGHT_SNAPSHOT_STEPS", "1")
    scheduler = Running()
    del scheduler.kv_cache_manager.get_blocks  # another version of vLLM, say
    scheduler.add_request(asked("a", 1))
    scheduler.requests["a"].max_tokens = 4
    with caplog.at_level(logging.WARNING, "inflight"):
        run(scheduler)
        scheduler.shutdown()
    (recording,) = read_raw([path])
    assert not recording.snapshots and [step["step"] for step in recording.steps] == [0, 1, 2, 3]
    (said,) = [r.message for r in caplog.records if "snapshots" in r.message]
    assert said.startswith("Inflight records no snapshots: AttributeError: ")


def test_an_engine_whose_results_never_come_back_goes_on_without_a_recording(
    path, monkeypatch, caplog
):
    monkeypatch.setattr(inflight_vllm, "QUEUED_RECORDS", 2)
    scheduler = Recorded()
    scheduler.add_request(asked("a", 1, 2))
    with caplog.at_level(logging.ERROR, "inflight"):
        assert [scheduler.schedule().num_scheduled_tokens for _ in range(4)] == [
            {"a": 2},
            *[{"a": 1}] * 3,
        ]
        scheduler.shutdown()
    assert [r.message for r in caplog.records if r.levelno == logging.ERROR] == [
        "Inflight stopped recording: RuntimeError: 2 steps were scheduled whose results never came"
        " back. The engine goes on."
    ]


def test_a_step_in_which_somebody_only_arrives_is_on_record_and_one_without_news_is_not(path):
    class Holds(Recorded):
        """Nobody gets a lane."""

        def schedule(self):
            held, self.waiting, self.requests = (self.waiting, self.requests), Queue(), {}
            output = super().schedule()
            self.waiting, self.requests = held
            return output

    scheduler = Holds()
    scheduler.add_request(asked("a", 1, 2))
    scheduler.schedule()
    scheduler.schedule()
    scheduler.shutdown()
    (recording,) = read_raw([path])
    (step,) = recording.steps
    assert step["empty"] is True and not step["segments"]
    assert [arrived["request"] for arrived in step["arrived"]] == ["a"]


def test_settings_that_are_none_leave_the_engine_without_a_recording(path, monkeypatch, caplog):
    monkeypatch.setenv("INFLIGHT_MAX_MB", "many")
    with caplog.at_level(logging.ERROR, "inflight"):
        scheduler = Recorded()
        scheduler.add_request(asked("a", 1))
        assert run(scheduler) == [{"a": 1}, {"a": 1}]
    (said,) = [r.message for r in caplog.records]
    assert said.startswith("Inflight stopped recording: ValueError: ") and not path.exists()


def test_settings_come_from_the_environment_as_the_documents_say(tmp_path, monkeypatch):
    usual = {"hashed": False, "max_bytes": 268_435_456, "max_files": 16, "snapshot_steps": 64}
    monkeypatch.chdir(tmp_path)
    for given, chosen in (
        ({"TRACE": "a.jsonl"}, {"place": Path("a.jsonl")}),
        ({"TRACE": "http://host:1/?token=a"}, {"place": "http://host:1/?token=a"}),
        ({"TRACE": "HTTPS://host"}, {"place": "HTTPS://host"}),
        ({"TRACE": "a", "PROMPTS": "hashed"}, {"place": Path("a"), "hashed": True}),
        ({"TRACE": "a", "MAX_MB": "0.5"}, {"place": Path("a"), "max_bytes": 524_288}),
        ({"TRACE": "a", "MAX_FILES": "3"}, {"place": Path("a"), "max_files": 3}),
        ({"TRACE": "a", "SNAPSHOT_STEPS": "0"}, {"place": Path("a"), "snapshot_steps": 0}),
    ):
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(f"INFLIGHT_{name}", value)
            assert inflight_vllm.settings() == usual | chosen
    for folder in (None, str(tmp_path)):
        if folder:
            monkeypatch.setenv("INFLIGHT_TRACE", folder)
        place = inflight_vllm.settings()["place"]
        assert place.parent == Path(folder or ".") and place.name.startswith("inflight-")
        assert place.name.endswith(f"-{os.getpid()}.raw.jsonl")


def test_what_is_decided_and_computed_is_recorded_field_by_field():
    """`new` joins with two cached tokens, `back` returns, `old` goes on with two drafts and another
    block, `same` with none.
    """
    output = SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id="new", num_computed_tokens=2, block_ids=([5, 6],))
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=["back", "old", "same"],
            num_computed_tokens=[0, 9, 7],
            new_block_ids=[([8, 9],), ([7],), None],
            resumed_req_ids={"back"},
        ),
        num_scheduled_tokens={"new": 4, "back": 6, "old": 3, "same": 1},
        finished_req_ids={"z", "y"},
        total_num_scheduled_tokens=14,
        has_structured_output_requests=True,
        scheduled_spec_decode_tokens={"old": (1, 1)},
    )
    lengths = {"new": 6, "back": 6, "old": 10, "same": 8}
    requests = {name: SimpleNamespace(num_tokens=length) for name, length in lengths.items()}
    decisions = inflight_vllm._Decisions.of(output, requests)
    assert inflight_vllm._decided(output, decisions) == {
        "segments": [
            {"request": "new", "start": 2, "length": 4, "num_tokens": 6, "draft": 0},
            {"request": "back", "start": 0, "length": 6, "num_tokens": 6, "draft": 0},
            {"request": "old", "start": 9, "length": 3, "num_tokens": 10, "draft": 2},
            {"request": "same", "start": 7, "length": 1, "num_tokens": 8, "draft": 0},
        ],
        "blocks": [
            ["new", [[5, 6]], "table"],
            ["back", [[8, 9]], "table"],
            ["old", [[7]], "append"],
        ],
        "admitted": [
            {"request": "new", "cached": 2},
            {"request": "back", "cached": 0, "resumed": True},
        ],
        "finished_before": ["y", "z"],
        "total_tokens": 14,
        "structured": True,
        "spec": {"old": [1, 1]},
    }
    answers = {
        client: SimpleNamespace(
            outputs=[SimpleNamespace(request_id=name, finish_reason=reason) for name, reason in own]
        )
        for client, own in ((0, [("new", None), ("old", "stop")]), (1, [("same", "length")]))
    }
    logprobs = SimpleNamespace(logprobs=[[-1, -2, -3, -4], [-5], [-6]])
    told = {"row_order": ["old", "new", "same"], "finished": [["old", "stop"], ["same", "length"]]}
    for sampled, logs in (([[3], [], [4]], True), ([[3, 5], [], [4]], False)):
        results = SimpleNamespace(sampled_token_ids=sampled, logprobs=logprobs)
        # with drafts there are several rows of numbers for a request
        more = {"logprobs": {"old": [-1.0, -2.0, -3.0], "new": [-5.0], "same": [-6.0]}}
        assert inflight_vllm._results(told["row_order"], results, answers) == (
            told | {"sampled": {"old": sampled[0], "same": [4]}} | (more if logs else {})
        )


def test_what_was_asked_is_recorded_with_embeddings_and_grammars(path):
    engine = OneByOne()
    recorder = Recorder(engine, "OneByOne")
    recorder.writer.close()
    plain = asked("a", 1, 2)
    known = {
        "request": "a",
        "t": 1.5,
        "max_tokens": 2,
        "temperature": 0.0,
        "seed": None,
        "ignore_eos": True,
    }
    assert recorder._asked(plain, 1.5) == known | {"prompt": [1, 2]}
    plain.prompt_token_ids, plain.use_structured_output = None, True
    assert recorder._asked(plain, 1.5) == known | {"num_prompt": 2, "structured": True}


@pytest.mark.parametrize(
    ("size", "here", "instance"), [(4, 2, "10.0.0.1:29"), (2, 2, "abc"), (None, None, "abc")]
)
def test_ranks_of_one_engine_share_an_id(size, here, instance):
    config = SimpleNamespace(
        data_parallel_size=size,
        data_parallel_size_local=here,
        data_parallel_master_ip="10.0.0.1",
        data_parallel_rpc_port=29,
    )
    scheduler = SimpleNamespace(
        parallel_config=config, vllm_config=SimpleNamespace(instance_id="abc_dp1")
    )
    assert inflight_vllm._instance(inflight_vllm._Fields(), scheduler) == instance


def test_each_kv_group_is_described():
    def group(*names: str, **spec: int) -> SimpleNamespace:
        return SimpleNamespace(layer_names=names, kv_cache_spec=SimpleNamespace(**spec))

    scheduler = SimpleNamespace(
        kv_cache_config=SimpleNamespace(
            kv_cache_groups=[
                group("model.layers.10.attn", "model.layers.2.attn"),
                group("odd", "model.layers.3.attn", attention_chunk_size=128),
                group("model.layers.4.attn", rswa_window=32),
            ]
        ),
        kv_cache_manager=SimpleNamespace(
            kv_cache_event_metadata=[
                ("sliding_window", 64),
                ("chunked_local_attention", None),
                ("full_attention", None),
            ],
            coordinator=SimpleNamespace(
                single_type_managers=[
                    SimpleNamespace(block_size=16, max_admission_blocks_per_request=5),
                    SimpleNamespace(block_size=32),
                    SimpleNamespace(block_size=16),
                ]
            ),
        ),
    )
    facts = ("kind", "window", "block_size", "layers", "most_blocks")
    rows = [
        ("sliding_window", 64, 16, [2, 10], 5),
        ("chunked_local_attention", 128, 32, None, None),
        ("r_swa", 32, 16, [4], None),
    ]
    read = inflight_vllm._Fields()
    assert groups_of(scheduler, read) == [dict(zip(facts, row, strict=True)) for row in rows]
    assert groups_of(SimpleNamespace(), read) is None


def test_an_engine_that_falls_idle_leaves_no_gap(path):
    """vLLM schedules nothing once more when its last request has ended, to tell the runner so."""
    scheduler = Recorded()
    for name in ("a", "b"):
        scheduler.add_request(asked(name, 1, 2))
        run(scheduler)
        assert not scheduler.schedule().num_scheduled_tokens
    scheduler.shutdown()
    (recording,) = read_raw([path])
    assert [s["step"] for s in recording.steps] == [0, 1, 2, 3]


def test_a_driver_begins_another_recording(path, monkeypatch):
    scheduler = Recorded()
    monkeypatch.setenv("INFLIGHT_TRACE", str(path.with_name("next.raw.jsonl")))
    scheduler.record_anew({"arrivals": "by hand"})
    scheduler.add_request(asked("a", 1))
    run(scheduler)
    scheduler.recording_ends()
    scheduler.add_request(asked("b", 1))
    run(scheduler)
    first, second = (read_raw([file])[0] for file in (path, path.with_name("next.raw.jsonl")))
    assert first.complete and not first.steps
    assert [s["step"] for s in second.steps] == [0, 1] and second.header["arrivals"] == "by hand"


def test_prompts_are_left_out_on_request(path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_PROMPTS", "hashed")
    scheduler = Recorded()
    for name, prompt in (("a", (1, 2)), ("b", (1, 2)), ("c", (2, 1))):
        scheduler.add_request(asked(name, *prompt))
    run(scheduler)
    scheduler.shutdown()
    arrived = read_raw([path])[0].steps[0]["arrived"]
    assert all("prompt" not in a and a["num_prompt"] == 2 for a in arrived)
    assert arrived[0]["prompt_hash"] == arrived[1]["prompt_hash"] != arrived[2]["prompt_hash"]


def test_a_fault_in_the_recorder_never_reaches_the_engine(path, caplog):
    scheduler = Recorded()
    scheduler.add_request(asked("a", 1))
    plain = OneByOne()
    plain.add_request(asked("a", 1))
    del scheduler.kv_cache_manager  # another version of vLLM, say
    with caplog.at_level(logging.ERROR, "inflight"):
        assert run(scheduler) == run(plain)
    assert [r.message.split(":")[0] for r in caplog.records if r.levelno == logging.ERROR] == [
        "Inflight stopped recording"
    ]


def test_a_full_disk_ends_the_recording_alone(caplog):
    writer = RawWriter(Parts(Path("/dev/full"), HEADER))
    with caplog.at_level(logging.ERROR, "inflight"):
        writer.put(lambda: step(0))
        writer._thread.join(10)
    assert writer.failure and "No space left" in writer.failure and len(caplog.records) == 1
    before = writer.dropped
    writer.put(lambda: step(1))
    assert writer.dropped == before + 1
    writer.close()


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("kind", ["step", "snapshot"])
def test_a_snapshot_follows_what_is_too_large_unless_that_is_one_itself(tmp_path, kind, wanted):
    class Narrow(Parts):
        def write(self, line: str) -> bool:
            if '"t_start":7' in line:
                raise Oversized
            return super().write(line)

    writer = RawWriter(Narrow(tmp_path / "run.raw.jsonl", HEADER))
    writer.wants_snapshot = wanted
    writer.put(lambda: {**step(7, 7), "kind": kind, "requests": []})
    writer.close()
    assert (writer.dropped, writer.wants_snapshot) == (1, wanted or kind == "step")


def test_what_the_writer_cannot_keep_up_with_is_dropped_and_counted(tmp_path):
    go, begun = threading.Event(), threading.Event()

    def slow() -> dict:
        begun.set()
        go.wait(10)
        return step(0)

    writer = RawWriter(Parts(tmp_path / "run.raw.jsonl", HEADER), queued=3)
    writer.put(slow)
    assert begun.wait(10)
    for number in range(1, 9):
        writer.put(lambda number=number: step(number))
    go.set()
    writer.close()
    (recording,) = read_raw([tmp_path / "run.raw.jsonl"])
    assert [s["step"] for s in recording.steps] == [0, 1, 2, 3] and recording.dropped == 5
    assert recording.faults == ["The recorder could not keep up and dropped 5 records."]


def test_a_recording_that_waits_for_steps_ends_as_soon_as_it_is_closed(tmp_path):
    waits = threading.Event()

    class Patient(Parts):
        @property
        def idle(self) -> float:
            waits.set()
            return 3600.0

    path = tmp_path / "run.raw.jsonl"
    writer = RawWriter(Patient(path, HEADER))
    assert waits.wait(30)
    writer.close()
    assert json.loads(path.read_text().splitlines()[-1]) == {"kind": "end", "dropped": 0}


def recorded(path: Path, numbers: range, **limits: int) -> list[Path]:
    """Steps of these numbers written there; the files that are there then."""
    writer = RawWriter(Parts(path, {**HEADER, "first": numbers[0]}, **limits))
    for number in numbers:
        writer.put(lambda number=number: step(number))
    writer.close()
    assert writer.wants_snapshot == bool(limits)
    return sorted(path.parent.iterdir())


def test_a_long_recording_has_parts_that_belong_together(tmp_path):
    parts = recorded(tmp_path / "run.raw.jsonl", range(12), max_bytes=400)
    (recording,) = read_raw(reversed(parts))
    assert (
        len(parts) > 2
        and [s["step"] for s in recording.steps] == list(range(12))
        and not recording.faults
    )


def test_the_newest_parts_are_kept(tmp_path):
    """The file that was asked for is the first to go; what is left are the latest steps without a
    gap, to the end.
    """
    parts = recorded(tmp_path / "run.raw.jsonl", range(40), max_bytes=400, max_files=3)
    (recording,) = read_raw(parts)
    numbers = [s["step"] for s in recording.steps]
    assert (
        len(parts) == 3
        and tmp_path / "run.raw.jsonl" not in parts
        and all(part.stat().st_size < 600 for part in parts)
    )
    assert numbers == list(range(numbers[0], 40)) and numbers[0] > 0 and recording.complete


@pytest.mark.parametrize("name", ["run.raw.jsonl", "run.jsonl", "run.log"])
def test_a_start_touches_no_earlier_recording(tmp_path, name):
    """Neither one that is there nor parts of one whose first part is gone already."""
    before: dict[Path, bytes] = {}
    for start, limits in enumerate(({"max_bytes": 400, "max_files": 3}, {}, {"max_bytes": 400})):
        files = recorded(tmp_path / name, range(100 * start, 100 * start + 20), **limits)
        assert all(path.read_bytes() == content for path, content in before.items())
        (recording,) = read_raw(set(files) - before.keys())
        assert recording.steps[-1]["step"] == 100 * start + 19
        before = {path: path.read_bytes() for path in files}


@pytest.mark.slow
def test_an_engine_waits_for_no_pipe(tmp_path, caplog):
    """One that nobody reads holds up neither the start nor the end; one that is read has the
    recording.
    """
    os.mkfifo(tmp_path / "pipe")
    unread = RawWriter(Parts(tmp_path / "pipe", HEADER))
    unread.put(lambda: step(0))
    unread.close()
    assert unread._thread.is_alive() and unread.failure is None
    with (tmp_path / "pipe").open() as reader:
        lines = [json.loads(line) for line in reader]
    assert [line["kind"] for line in lines] == ["header", "step", "end"]
    unread._thread.join(10)


def test_a_rank_is_one_of_several_by_its_number_too():
    assert _place(0, 1) == _place(None, None) == (0, 1)
    assert _place(0, 4) == (0, 4) and _place(3, 4) == (3, 4)
    assert _place(2, 1) == _place(2, None) == (2, None)  # configured as if it were alone


def test_a_place_that_cannot_be_written_is_a_line_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.ERROR, "inflight"):
        RawWriter(Parts(tmp_path / "no" / "folder.raw.jsonl", HEADER)).close()
    (line,) = [r.message for r in caplog.records]
    assert line.startswith(
        f"Inflight stopped recording to {tmp_path}/no/folder.raw.jsonl: FileNotFoundError: "
    )


@pytest.mark.slow
def test_the_package_is_built_without_a_trace(tmp_path):
    """In a copy: what lies there afterwards is what lay there before."""
    source = shutil.copytree(
        Path(inflight_vllm.__file__).parents[1],
        tmp_path / "source",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    before = sorted(source.rglob("*"))
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "-w",
            str(tmp_path / "wheels"),
            str(source),
        ],
        capture_output=True,
        text=True,
    )
    if built.returncode and "hatchling" in built.stderr:
        pytest.skip("hatchling cannot be fetched here")
    assert built.returncode == 0, built.stderr
    assert sorted(source.rglob("*")) == before
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert "inflight_vllm/recorder.py" in ZipFile(wheel).namelist()


def test_each_start_of_an_engine_has_a_file_of_its_own_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_TRACE", str(tmp_path))
    scheduler = Recorded()
    scheduler.add_request(asked("a", 1))
    run(scheduler)
    scheduler.shutdown()
    (file,) = tmp_path.iterdir()
    assert (
        file.name.startswith("inflight-")
        and file.name.endswith(".raw.jsonl")
        and len(read_raw([file])[0].steps) == 2
    )


def test_ranks_are_recordings_of_their_own(tmp_path):
    names = [inflight_vllm.ranked(tmp_path / "run.raw.jsonl", rank, 3) for rank in range(3)]
    assert [n.name for n in names] == [
        "run.rank0.raw.jsonl",
        "run.rank1.raw.jsonl",
        "run.rank2.raw.jsonl",
    ]
    for rank in (2, 0):
        write(names[rank], step(0), rank=rank, ranks=3)
    assert [r.rank for r in read_raw([names[2], names[0]])] == [0, 2]


@pytest.mark.parametrize(
    ("index", "size", "process", "file"),
    [
        (0, 1, "MainProcess", "run.raw.jsonl"),
        (1, 2, "EngineCore_DP1", "run.rank1.raw.jsonl"),
        # of a dense model, which is told that it is alone
        (0, 1, "EngineCore_DP0", "run.rank0.raw.jsonl"),
        (1, 1, "EngineCore_DP1", "run.rank1.raw.jsonl"),
    ],
)
def test_no_two_ranks_write_to_one_file(path, monkeypatch, index, size, process, file):
    monkeypatch.setattr(multiprocessing.current_process(), "name", process)
    scheduler = OneByOne()
    scheduler.parallel_config = SimpleNamespace(data_parallel_index=index, data_parallel_size=size)
    recorder = inflight_vllm.Recorder(scheduler, "Scheduler")
    recorder.writer.close()
    assert [found.name for found in path.parent.iterdir()] == [file]


def test_ranks_that_do_not_know_their_number_are_counted(tmp_path):
    names = [
        write(
            inflight_vllm.ranked(tmp_path / "run.raw.jsonl", rank, None),
            step(0),
            rank=rank,
            ranks=None,
        )
        for rank in (0, 1)
    ]
    assert [(r.rank, r.ranks) for r in read_raw(names)] == [(0, 2), (1, 2)]


def test_what_is_wrong_is_said_and_the_rest_still_opens(tmp_path):
    cut = write(tmp_path / "cut.raw.jsonl", step(0), step(1), end="")
    cut.write_text(cut.read_text()[:-9])
    (recording,) = read_raw([cut])
    assert len(recording.steps) == 1
    assert recording.faults == [
        "cut.raw.jsonl breaks off in line 3: the recorder had not written it to its end."
    ]

    garbled = write(tmp_path / "garbled.raw.jsonl", step(0), {"kind": "step"}, step(1))
    (recording,) = read_raw([garbled])
    assert len(recording.steps) == 2 and recording.faults == [
        "garbled.raw.jsonl, line 3: this is no record."
    ]

    back = write(tmp_path / "back.raw.jsonl", step(0, 5.0), step(1, 4.0))
    assert "clock of this recording runs backwards" in read_raw([back])[0].faults[0]
    other = write(tmp_path / "other.raw.jsonl", step(0), version="9.9.9", tested=False)
    assert "never tried with vllm 9.9.9" in read_raw([other])[0].faults[0]

    packed = tmp_path / "packed.raw.jsonl.gz"
    packed.write_bytes(
        gzip.compress(write(tmp_path / "plain.raw.jsonl", step(0)).read_bytes())[:-4]
    )
    (recording,) = read_raw([packed])
    assert len(recording.steps) == 1 and recording.faults[0].startswith(
        "After line 2 packed.raw.jsonl.gz cannot be read: "
    )


def test_a_recording_in_parts_is_as_whole_as_its_last_one(tmp_path):
    end = {"kind": "end", "dropped": 0}
    first = write(tmp_path / "a.raw.jsonl", step(0), end, part=1)
    last = write(tmp_path / "b.raw.jsonl", step(1), part=2)
    (recording,) = read_raw([last, first])
    assert [s["step"] for s in recording.steps] == [0, 1] and not recording.complete


def test_a_part_without_a_number_is_the_first():
    assert [Recording("run", header).part for header in ({}, {"part": 3}, {"part": "two"})] == [
        1,
        3,
        1,
    ]


def test_a_damaged_step_is_one_of_those_that_are_missing():
    missing = MissingSteps(3)
    missing.is_damaged(step(3))
    missing.reach(step(5))
    assert missing.missing == 2


def test_two_recordings_of_one_rank_are_refused(tmp_path):
    files = [
        write(tmp_path / "a.raw.jsonl", step(0)),
        write(tmp_path / "b.raw.jsonl", step(0), pid=2),
    ]
    with pytest.raises(InvalidTrace, match="two recordings of rank 0; open one at a time"):
        read_raw(files)


@pytest.mark.parametrize(
    "content",
    ["", "hello\n", '{"kind":"step"}\n', '{"kind":"header","raw":9,"vllm":"1"}\n', "[" * 99999],
)
def test_what_is_no_recording_is_refused(tmp_path, content):
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(InvalidTrace, match=r"x\.jsonl is"):
        read_raw([file])


def test_under_priorities_all_that_orders_the_queue_is_on_record(path):
    """By vLLM's own time of arrival, which is not the one at which its scheduler is told."""
    scheduler = OneByOne()
    scheduler.scheduler_config = SimpleNamespace(policy="priority", prefill_schedule_interval=4)
    scheduler.__class__ = Recorded
    scheduler.record_anew()
    request = asked("a", 1, 2)
    request.priority, request.arrival_time = -5, 1700000000.25
    scheduler.add_request(request)
    run(scheduler)
    scheduler.shutdown()
    header, step, *_ = map(json.loads, path.read_text().splitlines())
    (arrived,) = step["arrived"]
    assert (header["policy"], header["priorities"]) == ("priority", True)
    assert header["prefill_schedule_interval"] == 4
    assert (arrived["priority"], arrived["arrival_time"]) == (-5, 1700000000.25)


def test_first_come_first_served_has_no_priorities(path):
    scheduler = Recorded()
    scheduler.add_request(asked("a", 1, 2))
    run(scheduler)
    scheduler.shutdown()
    header, step, *_ = map(json.loads, path.read_text().splitlines())
    assert header["priorities"] is False and "priority" not in step["arrived"][0]
