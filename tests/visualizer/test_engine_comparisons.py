"""vLLM and transformers beside ours, as the page ships it: who decides alike, what was not
recorded, what is refused.
"""

from __future__ import annotations

import pytest

from core.errors import InflightError
from core.trace.divergence import divergence
from core.trace.events import StepEvent
from core.workload.presets import PRESETS
from measure.record_engines import record_engines
from measure.record_gpu import gpu_presets, record_gpu
from visualizer.documents.comparison import RECORDED, document, load
from visualizer.words import verdicts


@pytest.fixture
def engines():
    return load(RECORDED / "engines-kv-pressure")


def test_other_engines_are_compared_decision_by_decision(engines):
    """vLLM decides as ours in every step; a single token that differs, or a request left out of a
    step, is named with its step.
    """
    comparison = engines.comparison
    theirs, ours = comparison.runs["vLLM"].trace, comparison.runs["continuous"].trace
    said = document(engines)["says"]
    assert f"vLLM 0.32.0 decides as continuous in all {len(ours.events)} steps" in said["headline"]
    assert divergence(ours, theirs) is None and ours.outputs == theirs.outputs
    assert "transformers 5.23.0 decides differently from step" in said["headline"]
    assert sum("handed over" in note for note in said["notes"]) == 2
    event = theirs.events[30]
    first, *others = event.sampled
    theirs.events[30] = event._replace(
        sampled=(first._replace(token_id=first.token_id + 1), *others)
    )
    told = verdicts.decisions(comparison)
    assert "vLLM 0.32.0 decides differently from step 30" in told
    assert "writes other tokens." in told and "{" not in told
    theirs.events[30] = event._replace(segments=event.segments[1:])
    assert "from step 30 on" in verdicts.decisions(
        comparison
    ) and "A computes nothing" in verdicts.decisions(comparison)


def test_what_another_engine_did_not_record_stays_absent(engines):
    shown = document(engines)
    # a pass costs each engine something of its own
    assert "difference" not in {figure["name"] for figure in shown["figures"]}
    assert shown["race"] == ["vLLM", "continuous", "transformers"]
    vllm, ours = shown["runs"]["vLLM"], shown["runs"]["continuous"]
    assert (
        all(StepEvent.from_json(e).timings.sample is None for e in vllm["events"])
        and StepEvent.from_json(ours["events"][0]).timings.sample is not None
    )
    assert {"prepare", "sample", "logprob", "margin"} == set(vllm["header"]["absent"])


def test_comparisons_with_other_engines_need_them(tmp_path, monkeypatch):
    monkeypatch.delenv("INFLIGHT_VLLM_PYTHON", raising=False)
    with pytest.raises(InflightError, match="an environment of its own"):
        record_engines(folder=tmp_path, load=lambda: 0.0)
    with pytest.raises(InflightError, match="no comparison of engines on 'magic'"):
        record_engines(["magic"], tmp_path, python="python", load=lambda: 0.0)
    with pytest.raises(InflightError, match="busy"):
        record_engines(folder=tmp_path, python="python", load=lambda: 99.0)


def test_comparisons_on_a_gpu_are_of_presets_and_of_512_questions(tmp_path):
    asked = gpu_presets()
    many = asked.pop("512-questions")
    assert len({r.messages[0]["content"] for r in many.workload}) == 512
    assert many.config.max_num_seqs == 256 and asked.keys() < PRESETS.keys()
    with pytest.raises(InflightError, match="no comparison on a GPU of 'magic'"):
        next(record_gpu(["magic"], tmp_path, load=lambda: 0.0))
    with pytest.raises(InflightError, match="busy"):
        next(record_gpu(folder=tmp_path, load=lambda: 99.0))
