"""Another engine's steps as a trace: the facts of a real recording of vLLM, kept to the letter, and
what was not recorded kept absent.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from core import Trace, metrics
from core.cli import main
from core.config import BUILTIN_MODELS
from core.errors import InvalidConfig, InvalidRequest, InvalidTrace, InvalidWorkload
from core.recorders.convert import open_texts, to_trace
from core.recorders.raw import Recording, read_raw
from core.recorders.texts import model_folder, named_tokenizer, tokenizer_of
from core.trace.detokenize import pieces
from core.trace.ranks import Ranks
from worlds.ranks import FILES as RANKS
from worlds.ranks import ranks, text

DATA = Path(__file__).resolve().parents[1] / "data"
VLLM = DATA / "vllm-0.32.raw.jsonl.gz"
SPECULATION = DATA / "vllm-0.32-speculation.raw.jsonl.gz"


@pytest.fixture(scope="module")
def raw() -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(VLLM.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return to_trace(read_raw([VLLM])[0])


def test_every_step_is_the_engines_own(raw, trace):
    steps = [record for record in raw if record["kind"] == "step"]
    assert len(trace.events) == len(steps) == 183
    for event, step in zip(trace.events, steps, strict=True):
        # the real order of the rows, whatever the lanes
        assert [s.request for s in event.segments] == step["row_order"]
        assert {s.request: (s.start, s.length) for s in event.segments} == {
            s["request"]: (s["start"], s["length"]) for s in step["segments"]
        }
        assert {s.request: [s.token_id] for s in event.sampled} == step["sampled"]
        assert [[p.request, p.tokens_lost] for p in event.preempted] == step["preempted"]
        assert event.waiting.count == step["waiting"] and event.waiting.request == step["head"]
        assert event.kv.total - event.kv.used == step["blocks_free"]
    assert any(
        [s.lane for s in e.segments] != sorted(s.lane for s in e.segments) for e in trace.events
    )


def test_what_was_found_in_the_prefix_cache_and_why_a_request_ended_are_the_engines_own(
    raw,
) -> None:
    records = json.loads(json.dumps(raw))
    first = next(r for r in records if r["kind"] == "step" and len(r["admitted"]) > 1)
    first["admitted"][1]["cached"] = 4
    ending = next(r for r in records if r["kind"] == "step" and r["finished"])
    request, _ = ending["finished"][0]
    steps = [r for r in records if r["kind"] == "step"]
    reasons = {
        "FinishReason.STOP": "stop",
        "length": "length",
        "repetition": "stop",
        "of a kind yet to come": "error",
    }
    for theirs, ours in reasons.items():
        ending["finished"][0][1] = theirs
        trace = to_trace(Recording("x", records[0], steps))
        hits = [hit for event in trace.events for hit in event.kv.prefix_hits]
        assert hits == [(first["admitted"][1]["request"], 4)]
        assert [
            f.finish_reason for e in trace.events for f in e.finished if f.request == request
        ] == [ours]


def test_steps_of_two_recordings_are_refused_where_they_part(raw) -> None:
    """Four steps of later on in the place of others: from there on the numbers agree again, and the
    steps do not follow.
    """
    header, *steps = (r for r in raw if r["kind"] in ("header", "step"))
    mixed = Recording(
        "mixed",
        header,
        sorted(steps[:4] + steps[8:24] + steps[12:16] + steps[24:40], key=lambda s: s["step"]),
    )
    with pytest.raises(InvalidTrace, match="Steps 4 to 7 are missing in mixed"):
        to_trace(mixed)


def test_it_obeys_the_rules_and_survives_the_disk(trace, tmp_path):
    trace.save(tmp_path / "run.jsonl")
    again = Trace.load(tmp_path / "run.jsonl")
    assert again.complete and again.events == trace.events and again.texts == trace.texts
    assert sum(len(e.preempted) for e in again.events) == 1
    assert again.header.engine.name == "vLLM" and "lanes" in again.header.inferred


def test_a_recording_of_a_built_in_model_is_read_without_transformers():
    """Importing that takes more than all else."""
    script = f"""
import sys
from core.recorders.convert import import_recording
from pathlib import Path
trace = import_recording(Path({str(VLLM)!r}))
assert trace.texts.output and not any("⟨" in text for texts in trace.texts.output.values() for text in texts)
assert "transformers" not in sys.modules and "torch" not in sys.modules
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=DATA.parents[1]
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", BUILTIN_MODELS)
def test_texts_and_ids_are_those_of_transformers(model):
    theirs, ours = named_tokenizer(str(model_folder(model))), copy.deepcopy(tokenizer_of(model))
    draw = random.Random(0)
    for _ in range(100):
        ids = draw.choices(range(len(theirs)), k=draw.randrange(1, 40))
        assert pieces(ours, ids) == pieces(theirs, ids)
        text = theirs.decode(ids)
        assert ours.decode(ids) == text
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]


def test_what_was_not_recorded_is_absent(raw, trace):
    assert trace.header.absent == ("prepare", "sample")
    assert metrics(trace)["time_s"]["sample"] is None and trace.events[0].timings.prepare is None
    plain = [{k: v for k, v in record.items() if k != "logprobs"} for record in raw]
    unseen = to_trace(Recording("x", plain[0], [r for r in plain if r["kind"] == "step"]))
    assert unseen.events[5].sampled[0].margin is None and "margin" in unseen.header.absent


@pytest.mark.slow
def test_its_texts_are_those_of_the_same_model_here(trace):
    """The built-in model, float32, greedy: vLLM's tokens are ours, but where two logits all but
    tie.
    """
    from core import Engine, EngineConfig, Request, SamplingParams, Workload

    engine = Engine.from_pretrained("shakespeare-bpe", EngineConfig(max_num_seqs=4))
    requests = [
        Request(r, prompt_token_ids=tuple(ids), sampling=SamplingParams(40, ignore_eos=True))
        for r, ids in trace.prompts.items()
    ]
    ours = engine.run(Workload(requests)).outputs
    for request, ids in ours.items():
        theirs = trace.outputs[request][:40]
        first = next(
            (i for i, pair in enumerate(zip(ids, theirs, strict=True)) if pair[0] != pair[1]), None
        )
        margins = [s.margin for e in trace.events for s in e.sampled if s.request == request]
        assert first is None or margins[first] < 1e-4


def test_speculation_is_recorded_as_what_it_is():
    """vLLM guessing up to three tokens from the prompt: what it took of them, and what it
    forgot.
    """
    recording = read_raw([SPECULATION])[0]
    trace = to_trace(recording)
    drafts = [draft for event in trace.events for draft in event.drafts]
    assert (
        sum(d.drafted for d in drafts)
        == sum(s["draft"] for step in recording.steps for s in step["segments"])
        == 489
    )
    assert {(d.drafted, d.accepted) for d in drafts} >= {(3, 0), (3, 1), (3, 2), (3, 3)}
    for event, step in zip(trace.events, recording.steps, strict=True):
        for draft in event.drafts:
            assert (
                sum(s.request == draft.request for s in event.sampled)
                == draft.accepted + 1
                == len(step["sampled"][draft.request])
            )
    again = Trace.from_lines(trace.lines())
    assert again.complete and again.events == trace.events
    tampered = trace.events[40]
    assert tampered.drafts
    trace.events[40] = tampered._replace(
        drafts=tuple(d._replace(accepted=d.drafted + 1) for d in tampered.drafts)
    )
    with pytest.raises(InvalidTrace, match="cannot have been drafted"):
        Trace.from_lines(trace.lines())


def test_a_request_that_is_aborted_in_its_step_has_computed_for_nothing(raw):
    steps = [json.loads(json.dumps(r)) for r in raw if r["kind"] == "step"][:6]
    request = steps[3]["segments"][-1]["request"]
    for later in steps[4:]:
        later["segments"] = [s for s in later["segments"] if s["request"] != request]
        del later["sampled"][request]
    abort = {
        "kind": "abort",
        "t": (steps[3]["t_scheduled"] + steps[3]["t_output"]) / 2,
        "requests": [request],
        "status": "ABORTED",
    }
    made = to_trace(Recording("x", raw[0], steps, [abort]))
    assert [o.request for o in made.events[3].overrun] == [request]
    assert all(s.request != request for s in made.events[3].sampled)
    assert [f[:2] for f in made.events[4].finished] == [(request, "cancelled")]
    assert [(left.request, left.when) for left in made.events[4].released] == [(request, "before")]
    Trace.from_lines(made.lines())


def test_a_request_preempted_and_back_in_one_step_has_its_new_blocks_alone(raw):
    """As vLLM does it when its prefix cache is reset with `reset_running_requests`."""

    def step(number: int, known: int, blocks: list[int], **more) -> dict:
        segment = {"request": "it", "start": 0, "length": known, "num_tokens": known, "draft": 0}
        times = {
            name: number + at / 10
            for at, name in enumerate(("t_start", "t_scheduled", "t_output", "t_end"))
        }
        found = {
            "segments": [segment],
            "blocks": [["it", [blocks], "table"]],
            "admitted": [{"request": "it", "cached": 0}],
        }
        counts = {
            "waiting": 0,
            "head": None,
            "budget": raw[0]["max_num_batched_tokens"],
            "blocks_free": 28,
            "sampled": {"it": [5]},
            "finished": [],
        }
        return {
            "kind": "step",
            "step": number,
            "arrived": [],
            "preempted": [],
            **times,
            **found,
            **counts,
            **more,
        }

    come = {"request": "it", "t": 0.0, "max_tokens": 9, "prompt": [1] * 20}
    records = [raw[0], step(0, 20, [1], arrived=[come]), step(1, 21, [3], preempted=[["it", 20]])]
    trace = open_text("\n".join(map(json.dumps, records)) + "\n")
    assert [event.kv.used for event in trace.events] == [1, 1] and [
        event.warnings for event in trace.events
    ] == [(), ()]


def test_a_client_that_leaves_between_two_batches_in_flight_is_no_oddity(raw):
    """Pipeline parallelism: a's step is computed while b's is scheduled, then a's client leaves,
    and the step after has no row of it.
    """

    def step(number: int, request: str, start: int, length: int, **more) -> dict:
        segment = {
            "request": request,
            "start": start,
            "length": length,
            "num_tokens": start + length,
            "draft": 0,
        }
        times = {
            "t_start": number,
            "t_scheduled": number + 0.1,
            "t_output": number + 1.5,
            "t_end": number + 1.6,
        }
        counts = {
            "waiting": 0,
            "head": None,
            "budget": raw[0]["max_num_batched_tokens"],
            "blocks_free": 29,
        }
        nothing = {"arrived": [], "preempted": [], "admitted": [], "blocks": [], "finished": []}
        return {
            "kind": "step",
            "step": number,
            "segments": [segment],
            **nothing,
            **counts,
            **times,
            "sampled": {request: [5]},
            **more,
        }

    def joining(request: str, block: int) -> dict:
        come = {"request": request, "t": 0.0, "max_tokens": 2, "prompt": [1] * 4}
        return {
            "arrived": [come],
            "admitted": [{"request": request, "cached": 0}],
            "blocks": [[request, [[block]], "table"]],
        }

    records = [
        raw[0] | {"pipeline_parallel_size": 2},
        step(0, "a", 0, 4, **joining("a", 1)),
        {"kind": "abort", "t": 1.2, "requests": ["a"]},
        step(1, "b", 0, 4, **joining("b", 2)),
        step(2, "b", 4, 1, finished=[["b", "length"]]),
    ]
    trace = open_text("\n".join(map(json.dumps, records)) + "\n")
    assert [[row.request for row in event.overrun] for event in trace.events] == [["a"], [], []]
    assert [event.warnings for event in trace.events] == [(), (), ()]


def test_two_ranks_of_one_engine_make_two_traces(tmp_path, capsys):
    """vLLM with --data-parallel-size 2 on a dense model, ten requests over HTTP; the saved traces
    know where they lie on one clock.
    """
    with pytest.raises(SystemExit) as done:
        main(["import", *map(str, RANKS[::-1]), "--out", str(tmp_path / "run.jsonl")])
    assert (
        done.value.code == 0
        and capsys.readouterr().err == "All ranks are on the clock of their machine.\n"
    )
    files = [tmp_path / f"run.rank{rank}.jsonl" for rank in (0, 1)]
    traces = [Trace.load(file) for file in files]
    assert [(t.header.engine.rank, t.header.engine.ranks) for t in traces] == [(0, 2), (1, 2)]
    assert [(len(t.prompts), len(t.events), t.complete) for t in traces] == [
        (6, 77, True),
        (4, 40, True),
    ]
    assert not traces[0].prompts.keys() & traces[1].prompts.keys()
    saved = Ranks.of(open_texts((file.name, file.read_text()) for file in files).traces)
    recorded = ranks(text(0), text(1))
    assert [rank.offset for rank in saved.ranks] == [
        rank.offset for rank in recorded.ranks
    ] and saved.ranks[1].offset > 0
    with pytest.raises(SystemExit):
        main(["import", str(RANKS[1]), "--out", str(tmp_path / "alone.jsonl")])
    assert "Of 2 ranks, rank 0 is not among these files." in capsys.readouterr().err


def test_a_gap_without_a_snapshot_is_refused_and_nothing_is_made_up(raw):
    steps = [r for r in raw if r["kind"] == "step"]
    for left, says in (
        (steps[:10] + steps[12:], "Steps 10 to 11 are missing in x"),
        (steps[4:], "Steps 0 to 3 are missing in x"),
    ):
        with pytest.raises(InvalidTrace, match=f"{says}, and there is no snapshot to go on from"):
            to_trace(Recording("x", raw[0], left, dropped=2))


def test_the_command_imports_and_says_what_it_found(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        main(["import", str(VLLM), "--out", str(tmp_path / "run.jsonl")])
    said = capsys.readouterr().out
    assert done.value.code == 0 and "the same" not in said  # nothing was asked to be compared
    assert "vLLM 0.32.0, 183 steps, 6 requests, 540 tokens, 1 preemption" in said
    with pytest.raises(SystemExit) as refused:
        main(["import", str(tmp_path / "run.jsonl"), "--out", str(tmp_path / "again.jsonl")])
    assert refused.value.code == 2 and "not a raw recording" in capsys.readouterr().err


def test_the_command_watches_to_the_end(tmp_path, raw, capsys):
    path = tmp_path / "run.raw.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (*raw, {"kind": "end", "dropped": 0})))
    with pytest.raises(SystemExit):
        main(["watch", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "vLLM 0.32.0, shakespeare-bpe"
        and lines[2] == "… 182 more steps"
        and "F ended (length)" in lines[3]
    )
    assert lines[4].startswith("The recording has ended")


def open_text(text: str) -> Trace:
    ((_, trace),) = open_texts([("This file", text)]).traces
    return trace


def test_a_text_is_opened_by_what_is_in_it(raw, trace):
    text = "".join(json.dumps(record) + "\n" for record in raw)
    assert (
        open_text(text).events == trace.events == open_text("\n".join(trace.lines()) + "\n").events
    )
    with pytest.raises(InvalidTrace, match="does not say its max_num_seqs"):
        open_text(json.dumps({key: raw[0][key] for key in raw[0] if key != "max_num_seqs"}) + "\n")
    with pytest.raises(InvalidTrace, match="this is no trace"):
        open_text('{"kind":"header","vllm":"1"}\n')


def test_a_moment_beyond_all_clocks_is_refused_in_a_sentence(raw):
    step = next(record for record in raw if record["kind"] == "step")
    late = {**step, "arrived": [{**arrived, "t": 1e308} for arrived in step["arrived"]]}
    with pytest.raises(InvalidTrace, match="is damaged: .*infinity"):
        open_text("".join(json.dumps(record) + "\n" for record in (raw[0], late)))


def test_a_value_that_no_trace_can_have_is_named_with_the_recording_and_no_line_of_a_trace(raw):
    step = next(record for record in raw if record["kind"] == "step")
    odd = {**step, "waiting": ["a", "b"]}
    with pytest.raises(InvalidTrace) as refused:
        open_text("".join(json.dumps(record) + "\n" for record in (raw[0], odd)))
    said = "This file is damaged: step 0: the values of waiting are of the wrong kind."
    assert str(refused.value) == said


@pytest.mark.slow
def test_a_forged_recording_is_refused_in_a_sentence(raw):
    """Each field of a header and of a step replaced by something else: a trace that obeys the
    rules, or InvalidTrace.
    """
    records = [{**raw[0], "model": "elsewhere"}, *[r for r in raw if r["kind"] == "step"][:2]]
    for at, record in enumerate(records):
        for name in record:
            for value in (None, -1, "x", [], {}, [[None]], 10**30):
                forged = [{**r, name: value} if i == at else r for i, r in enumerate(records)]
                with contextlib.suppress(
                    InvalidTrace, InvalidConfig, InvalidWorkload, InvalidRequest
                ):
                    open_text("".join(json.dumps(r) + "\n" for r in forged))
