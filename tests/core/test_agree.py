"""Our default rule against vLLM's own scheduler (0.32.0, run without a model), decision by
decision.

`tests/data/vllm-0.32.0-scheduler.jsonl.gz` holds 240 random workloads with what it decided: under
KV pressure, with and without prefix caching, a watermark, and full prompts reserved or not.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import transformers

from core.cli import main
from core.config import POLICIES
from core.errors import InvalidWorkload
from core.proof.replay import agree, decisions, first_difference

RECORDED = Path(__file__).parents[1] / "data" / "vllm-0.32.0-scheduler.jsonl.gz"


@pytest.mark.slow
def test_every_step_is_decided_as_vllm_does() -> None:
    found = agree(RECORDED)
    assert found.identical == found.workloads == 240 and not found.first_differences
    assert found.steps > 20_000


@pytest.mark.slow
def test_the_recording_would_tell_another_rule(monkeypatch) -> None:
    """A recording that every rule agrees with proves nothing."""
    for changed in ({"preemption": "idle"}, {"order_by": "shortest"}):
        monkeypatch.setitem(POLICIES, "continuous", replace(POLICIES["continuous"], **changed))
        found = agree(RECORDED)
        assert found.identical < 0.8 * found.workloads
        assert set(found.first_differences) <= {
            "preempted",
            "admitted",
            "computed",
            "finished",
            "steps",
        }
        monkeypatch.undo()


TRANSFORMERS = RECORDED.with_name("transformers-5.23.0-scheduler.jsonl.gz")


def test_every_step_is_decided_as_transformers_does() -> None:
    found = agree(TRANSFORMERS)
    assert found.identical == found.workloads == 200 and found.steps > 8_000


@pytest.mark.slow
def test_that_recording_would_tell_another_rule(monkeypatch) -> None:
    for changed in ({"requeue": False}, {"margin": 0.1}):
        monkeypatch.setitem(POLICIES, "transformers", replace(POLICIES["transformers"], **changed))
        monkeypatch.setattr(
            "core.proof.replay._policy",
            lambda policy, recorded, changed=changed: replace(policy, **changed),
        )
        found = agree(TRANSFORMERS)
        assert found.identical < 0.95 * found.workloads
        monkeypatch.undo()


def test_a_workload_counts_once_and_has_requests(tmp_path: Path) -> None:
    with gzip.open(TRANSFORMERS, "rt") as file:
        one, other = islice(file, 2)
    empty = json.dumps(json.loads(one) | {"requests": [], "transformers": []})
    saved = tmp_path / "workloads.jsonl"
    saved.write_text(f"{one}\n{other}")
    assert agree(saved).identical == 2
    for nothing in ("", "\n\n"):
        (nobodys := tmp_path / "none.jsonl").write_text(nothing)
        with pytest.raises(InvalidWorkload, match="holds no workloads"):
            agree(nobodys)
    for more, says in ((one, "it is line 1 once more"), (empty, "it has no requests")):
        saved.write_text(f"{one}{other}{more}")
        with pytest.raises(InvalidWorkload, match=f"line 3: this is not .*: {says}"):
            agree(saved)


@pytest.mark.slow
@pytest.mark.skipif(
    not transformers.__version__.startswith(("5.23", "5.24")),
    reason="another version may have another rule",
)
def test_transformers_itself_decides_so_today() -> None:
    """Its scheduler as it is installed, on workloads that no recording has."""
    from worlds.transformers_scheduler import decisions, random_workload  # of this version alone

    for seed in range(10_000, 10_020):
        workload = random_workload(seed)
        assert (
            first_difference(decisions(workload), decisions(workload | {"transformers": []}))
            is None
        ), seed


def test_the_command_counts_first_differences_by_kind(tmp_path, capsys) -> None:
    with gzip.open(RECORDED, "rt") as file:
        recorded = [json.loads(next(file)) for _ in range(4)]
    recorded[1]["vllm"].append([[], [], [["r0", 0, 1]], []])
    recorded[2]["vllm"][0][0] = ["nobody"]
    recorded[3]["vllm"][0][2][0][2] += 1
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(map(json.dumps, recorded)) + "\n")
    with pytest.raises(SystemExit) as end:
        main(["agree", str(path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert end.value.code == 1 and told["workloads"] == 4 and told["identical"] == 1
    assert told["first_differences"] == {"steps": 1, "admitted": 1, "computed": 1}
    assert told["steps"] == sum(len(w["vllm"]) for w in recorded)


def test_differences_are_named_in_the_order_of_decision() -> None:
    before = [["a"], ["b"], [["a", 0, 1]], []]
    assert first_difference([before], [before]) is None
    assert first_difference([before], [[["b"], ["c"], [], []]]) == "preempted"
    assert first_difference([before], [[["b"], ["b"], [], []]]) == "admitted"
    assert first_difference([before], []) == "steps"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"seqs": 0}', "null", "[" * 100_000, '{"seqs": ' + "9" * 5000 + "}"],
    ids=str.__len__,
)
def test_what_is_no_recording_is_refused_with_its_line(text, tmp_path, capsys) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(SystemExit) as end:
        main(["agree", str(path)])
    assert end.value.code == 2 and "recorded workload" in capsys.readouterr().err


@pytest.mark.parametrize("more", ["watermrak", "margin", "transformers"])
def test_a_setting_that_its_engine_does_not_have_is_refused(more, tmp_path, capsys) -> None:
    asked = {"seqs": 1, "budget": 4, "blocks": 4, "size": 4, "caching": False}
    asked["requests"] = [{"id": "a", "prompt": [1], "max_tokens": 1, "arrival": 0}]
    decided = [[["a"], [], [["a", 0, 1]], ["a"]]]
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(asked | {"vllm": decided, "watermark": 0.1}))
    with pytest.raises(SystemExit) as end:
        main(["agree", str(path)])
    assert not end.value.code
    path.write_text(json.dumps(asked | {"vllm": decided, more: []}))
    with pytest.raises(SystemExit) as end:
        main(["agree", str(path)])
    assert end.value.code == 2 and f"it has no setting '{more}'." in capsys.readouterr().err


def test_a_truncated_archive_and_a_missing_file_are_refused(tmp_path, capsys) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(RECORDED.read_bytes()[:5000])
    ended = "workloads: Compressed file ended before the end-of-stream marker was reached."
    for asked, says in ((path, ended), (tmp_path / "none.jsonl", "There is no file")):
        with pytest.raises(SystemExit) as end:
            main(["agree", str(asked)])
        assert end.value.code == 2 and says in capsys.readouterr().err


def test_a_replay_follows_the_recorded_settings_and_has_an_end(monkeypatch) -> None:
    """Under a watermark the second request waits; without it both are admitted at once, and one
    step is enough.
    """
    asked = [{"id": f"r{i}", "prompt": [i] * 20, "max_tokens": 1, "arrival": 0} for i in range(2)]
    workload = {
        "seqs": 2,
        "budget": 64,
        "blocks": 10,
        "size": 4,
        "caching": False,
        "requests": asked,
    }
    assert decisions(workload)[0][0] == ["r0", "r1"]
    assert decisions({**workload, "watermark": 0.2})[0][0] == ["r0"]
    monkeypatch.setattr("core.proof.replay._MOST_STEPS", 1)
    assert len(decisions(workload)) == 1
    with pytest.raises(InvalidWorkload, match="the workload does not end within 1 steps"):
        decisions({**workload, "watermark": 0.2})
