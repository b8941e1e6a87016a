"""`check --rerun`: what the model computes again is compared with all that is on record, of every
kind of trace, and nothing more is claimed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from core import Roofline, SimulatedEngine, Trace, Workload
from core.cli import main
from core.cli.check import _engine
from core.cli.options import MOST_THREADS
from core.errors import InflightError
from core.proof.verify import findings, verify
from core.recorders.texts import tokenizer_of
from core.trace.detokenize import pieces, plain
from core.trace.file import BREAKS_OFF
from visualizer.documents.catalogue import TRACES
from worlds.forging import Rows, checked, refusal, rows_of, sealed, steps
from worlds.small import MemoryModel, Words, memory_engine, request

LIMITS = {"max_num_seqs": 2, "max_num_batched_tokens": 6, "block_size": 4}


class Undecided(MemoryModel):
    """Two tokens are nearly equally good: by `tilt` the one after what `MemoryModel` says."""

    def __init__(self, tilt: float) -> None:
        super().__init__()
        self.tilt = tilt

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        logits = super().forward(*args, **kwargs)
        for row in logits:
            if row.max() > 0:
                row[(int(row.argmax()) + 1) % len(row)] = 9.0 + self.tilt
        return logits


def made(*asked: Any, model: MemoryModel | None = None) -> Rows:
    engine = memory_engine(model=model, **LIMITS)
    return rows_of(engine.run(Workload(asked or [request("r0", 5, 3), request("r1", 9, 4)])))


def again(_: Any) -> Any:
    return memory_engine(**LIMITS)


def as_another(rows: Rows) -> Rows:
    """The same run as a recording of another engine might tell it."""
    rows = copy.deepcopy(rows)
    header = rows[0]
    for name in ("threads", "execution", "memory"):
        header.pop(name, None)
    for name in ("parameters", "eos_token_ids", "plug"):
        header["model"].pop(name)
    header.update(
        engine={"name": "vLLM"},
        inferred={"lanes": "the lowest", "waiting": "in order", "reasons": "none"},
        absent=["prepare", "sample", "logprob", "margin"],
    )
    for step in steps(rows):
        step["timings"][1] = step["timings"][3] = None
        for s in step["sampled"]:
            s[3] = s[4] = None
    return rows


def as_ids(rows: Rows) -> Rows:
    """The same run with the ids of its tokens in place of its texts."""
    prompts = {
        r["asked"]["id"]: r["asked"]["prompt_token_ids"] for r in rows if r.get("kind") == "request"
    }
    for line in rows:
        if line.get("kind") == "texts":
            line["prompt"] = list(map(plain, prompts[line["request"]]))
            tokens = [
                s[2] for step in steps(rows) for s in step["sampled"] if s[1] == line["request"]
            ]
            line["output"] = list(map(plain, tokens))
    return rows


# -- another engine's ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_shipped_recording_of_another_engine_is_run_again_where_its_model_is() -> None:
    trace = Trace.load(TRACES / "vllm-kv-pressure.jsonl")
    rows = rows_of(trace)
    found = checked(rows, tokenizer=tokenizer_of, engine=_engine)
    assert found.rerun and found.rerun.tokens == found.num_tokens > 200 and not found.rerun.drawn
    assert (
        found.rerun.apart is None
        and "type" in found.rerun.facts
        and "parameters" not in found.rerun.facts
    )
    sampled = next(s for step in steps(rows) for s in step["sampled"])
    sampled[2] = (sampled[2] + 1) % 2048
    assert "are not those of its tokens" in refusal(rows, engine=_engine)
    forged = [sampled[2], *trace.outputs[sampled[1]][1:]]
    texts = next(r for r in rows if r.get("kind") == "texts" and r["request"] == sampled[1])
    texts["output"] = pieces(
        tokenizer_of("shakespeare-bpe"), forged, context=trace.prompts[sampled[1]]
    )
    assert "and the model writes" in refusal(rows, engine=_engine)


def test_of_another_engine_the_best_tokens_are_compared_and_the_drawn_ones_named() -> None:
    rows = as_another(made(request("r0", 5, 3), request("r1", 9, 4, temperature=0.7, seed=5)))
    found = checked(rows, engine=again)
    assert (found.rerun.tokens, found.rerun.drawn, found.rerun.apart) == (3, 4, None)
    assert any("4 more were drawn by another engine's noise" in line for line in findings(found))
    forged = copy.deepcopy(rows)
    next(s for step in steps(forged) for s in step["sampled"] if s[1] == "r0")[2] ^= 1
    checked(forged)
    assert "unless it was asked in a way that is not on record" in refusal(forged, engine=again)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"model": {"name": "a-model-that-is-nowhere", "vocab_size": 50}},
            "neither built in nor a folder here",
        ),
        (
            {"absent": ["prepare", "sample", "logprob", "margin", "prompts"]},
            "prompts are not on record",
        ),
    ],
)
def test_what_cannot_be_run_again_is_said_before_anything_is_read(
    change: dict, sentence: str
) -> None:
    rows = as_another(made())
    rows[0].update(change)
    lines = list(sealed(rows))

    def only_the_header() -> Iterator[str]:
        yield lines[0]
        raise AssertionError("a line more was read")

    with pytest.raises(InflightError, match=sentence):
        verify(only_the_header(), engine=_engine)


def test_a_trace_that_claims_to_be_another_engines_is_not_called_valid_like_ours(
    tmp_path, capsys
) -> None:
    for name, rows in (("ours", made()), ("theirs", as_another(made()))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f"{line}\n" for line in sealed(rows)), encoding="utf-8")
    said = []
    for name in ("ours", "theirs"):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(tmp_path / f"{name}.jsonl")])
        # its times are ours, and its rules go unnamed
        assert bool(ended.value.code) is (name == "theirs")
        said.append(capsys.readouterr().out)
    assert "is valid" in said[0] and "claims" not in said[0]
    assert (
        "is valid" not in said[1]
        and "It claims that vLLM ran. None of its decisions was taken again" in said[1]
    )


# -- ours ------------------------------------------------------------------------------------------


def test_a_rerun_takes_no_more_threads_than_may_be_asked_for() -> None:
    """Whatever the header says; torch raises an exception of its own for so many."""
    header = Trace.load(TRACES / "chunk-7-by-4.jsonl").header
    threads = torch.get_num_threads()
    try:
        _engine(replace(header, threads=2**40))
        assert torch.get_num_threads() == MOST_THREADS
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "changed",
    [
        {"execution": {"asynchronous": True}},
        {"workload": {"schema": 1, "name": "interactive", "arrival_unit": "step"}},
        {"workload": {"schema": 1, "name": "custom", "arrival_unit": "s"}},
    ],
)
def test_a_leak_is_run_again_only_where_all_arrive_in_the_same_steps(changed: dict) -> None:
    rows = made()
    rows[0]["leak"] = True
    assert checked(rows, engine=again).rerun.tokens == 7
    rows[0].update(changed)
    with pytest.raises(InflightError, match="would have to arrive in the same steps"):
        checked(rows, engine=again)


def test_a_request_that_is_said_to_have_ended_in_an_error_is_computed_again() -> None:
    """Logits that were not finite came from the model, so the model can say whether they were."""
    broken = memory_engine(model=MemoryModel(fails_after=8), **LIMITS)
    true = rows_of(broken.run(Workload([request("r0", 5, 9), request("r1", 8, 4)])))
    ends = {f[0]: f[1] for step in steps(true) for f in step["finished"]}
    assert ends == {"r0": "error", "r1": "error"} and {
        s[1] for step in steps(true) for s in step["sampled"]
    } == {"r0"}
    assert checked(true, engine=lambda _: broken).rerun.tokens == 3
    assert checked(true).rerun is None
    assert "the logits of request 'r0' were not finite on record, and the model's are" in refusal(
        true, engine=again
    )
    alone = rows_of(
        memory_engine(model=MemoryModel(fails_after=8), **LIMITS).run(
            Workload([request("r1", 8, 4)])
        )
    )
    failing = memory_engine(model=MemoryModel(fails_after=6), **LIMITS)
    assert "new token 1 of request 'r0' is 8 on record, and the model writes none" in refusal(
        made(), engine=lambda _: failing
    )
    # it has no token to be compared
    assert "the logits of request 'r1' were not finite" in refusal(alone, engine=again)


def test_a_request_that_is_said_to_have_ended_early_is_run_on() -> None:
    """By a stop string that is only in the ids which stand in for its texts: nothing but the model
    knows that it had more to say.
    """
    rows = as_ids(made(request("r0", 5, 3), request("r1", 9, 2)))
    rows[0]["notes"] = [BREAKS_OFF]
    stop = next(r for r in rows if r.get("kind") == "texts" and r["request"] == "r1")["output"][-1]
    for line in rows:
        if line.get("kind") == "request" and line["asked"]["id"] == "r1":
            line["asked"]["sampling"].update(max_new_tokens=4, stop=[stop])
    for step in steps(rows):
        step["finished"] = [[r, "stop" if r == "r1" else why] for r, why in step["finished"]]
    assert checked(rows).num_tokens == 5
    engine = memory_engine(tokenizer=Words(), **LIMITS)
    assert "ends after 2 tokens on record, and the model goes on" in refusal(
        rows, engine=lambda _: engine
    )


def test_the_engine_that_runs_it_again_brings_the_tokenizer() -> None:
    """As that of a hub's model does, which is in no folder here."""
    engine = memory_engine(tokenizer=Words(), **LIMITS)
    rows = rows_of(engine.run(Workload([request("r0", 5, 3)])))
    (said,) = [text for text in findings(checked(rows)) if text.startswith("Texts:")]
    assert said == (
        "Texts: taken on trust, as the model's tokenizer is neither built in nor in a folder of"
        " that name."
    )
    assert checked(rows, engine=lambda _: engine).not_decoded is None
    next(line for line in rows if line.get("kind") == "texts")["output"][0] = "w0 "
    assert checked(rows).not_decoded
    assert "the texts of request 'r0' are not those of its tokens" in refusal(
        rows, engine=lambda _: engine
    )


def test_who_would_have_left_waits_in_a_rerun_where_all_come_at_once() -> None:
    """One lane, and r1 comes when it is free; for its turn here it waits longer than its client."""
    left = replace(request("r1", 9, 4, arrival=8), leaves_after=7)
    rows = made(request("r0", 5, 8), left, request("r2", 5, 8, arrival=20))
    waits = memory_engine(max_num_seqs=1, max_num_batched_tokens=6, block_size=4)
    assert checked(rows, engine=lambda _: waits).rerun.tokens == 20
    lie = copy.deepcopy(rows)
    next(s for s in steps(lie) if s["step"] == 9)["sampled"][0][2] += 1
    assert "of request 'r1' is" in refusal(lie, engine=lambda _: waits)


def test_where_two_tokens_are_equally_good_the_other_one_is_no_lie_and_is_counted() -> None:
    near = made(model=Undecided(-4e-4))
    found = checked(near, engine=lambda _: memory_engine(model=Undecided(4e-4), **LIMITS))
    assert (found.rerun.tokens, found.rerun.ties) == (7, 7)
    assert any("7 are not the one that is best here" in line for line in findings(found))
    assert (
        checked(near, engine=lambda _: memory_engine(model=Undecided(-4e-4), **LIMITS)).rerun.ties
        == 0
    )
    assert "not what the model gives it" in refusal(
        near, engine=lambda _: memory_engine(model=Undecided(0.1), **LIMITS)
    )
    bare = as_another(near)  # no probabilities are on record that would give it away
    assert (
        checked(bare, engine=lambda _: memory_engine(model=Undecided(4e-4), **LIMITS)).rerun.ties
        == 7
    )
    assert "and the model writes" in refusal(
        bare, engine=lambda _: memory_engine(model=Undecided(0.1), **LIMITS)
    )


def test_where_two_tokens_are_equally_good_a_third_one_is_refused() -> None:
    """No probabilities are on record that would give it away. By a bias it may be near them."""
    for bias, may_be in (({}, False), ({7: 9.0}, True)):
        asked = request("r0", 5, 3, logit_bias=bias)
        rows = as_another(made(asked, model=Undecided(-4e-4)))
        here = memory_engine(model=Undecided(4e-4), **LIMITS)
        assert checked(rows, engine=lambda _, here=here: here).rerun.ties == 3
        for token in (7, 3):
            steps(rows)[-1]["sampled"][0][2] = token
            if token == 7 and may_be:
                assert checked(rows, engine=lambda _, here=here: here).rerun.ties == 3
            else:
                said = refusal(rows, engine=lambda _, here=here: here)
                assert f"is {token} on record, and the model writes" in said


def test_in_16_bits_what_was_drawn_otherwise_is_no_lie_and_is_taken_on_trust() -> None:
    """With temperature the request is run on from the token on record; under penalties, which look
    back, the rest is not compared.
    """

    def there(tilt: float) -> Any:
        return lambda _: memory_engine(model=Undecided(tilt), **LIMITS)

    drawn = made(
        *(request(f"r{seed}", 5, 20, temperature=1.0, seed=seed) for seed in (3, 4)),
        model=Undecided(-0.1),
    )
    penalised = made(
        request("r0", 5, 20, temperature=1.0, seed=3, presence_penalty=0.01), model=Undecided(-0.1)
    )
    for rows in (drawn, penalised):
        assert checked(rows, engine=there(-0.1)).rerun.parted == 0
        forged = copy.deepcopy(rows)
        steps(forged)[-1]["sampled"][0][2] ^= 1
        assert "and the model writes" in refusal(forged, engine=there(-0.1))
        rows[0]["dtype"] = "bfloat16"
        assert checked(rows, engine=there(-0.1)).rerun.parted == 0
        found = checked(rows, engine=there(0.1))
        assert 0 < found.rerun.parted < found.rerun.tokens and found.rerun.ties == 0
        assert any("as may happen in 16 bits" in line for line in findings(found))
        forged = copy.deepcopy(rows)
        steps(forged)[0]["sampled"][0][4] += 0.5
        assert "not what the model gives it" in refusal(forged, engine=there(0.1))


@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_an_error_after_a_token_that_parted_is_computed_again_or_counted(penalty: float) -> None:
    """Nothing of such a request can be compared under a penalty, so its end is taken on trust."""
    asked = request("r0", 5, 20, temperature=1.0, seed=3, presence_penalty=penalty)
    rows = made(asked, model=Undecided(-0.1))
    rows[0]["dtype"] = "bfloat16"
    before, last = steps(rows)[-2:]
    before["sampled"][0][2] ^= 1
    last["sampled"], last["finished"] = [], [["r0", "error"]]
    for line in rows:
        if line.get("kind") == "texts":
            line["output"].pop()

    def there(_: Any) -> Any:
        return memory_engine(model=Undecided(0.1), **LIMITS)

    if penalty:
        assert checked(rows, engine=there).from_outside == {"error": 1}
    else:
        assert "the logits of request 'r0' were not finite on record" in refusal(rows, engine=there)


def test_what_a_rerun_cannot_tell_apart_is_said_with_its_size() -> None:
    """A stop string that never occurs, and numbers as far off as 16 bits round them."""
    engine = memory_engine(tokenizer=Words(), **LIMITS)
    rows = rows_of(engine.run(Workload([request("r0", 5, 3, temperature=0.5, seed=1)])))
    assert checked(rows, engine=lambda _: engine).rerun.apart == 0
    steps(rows)[0]["sampled"][0][3:] = [-0.005, 9.2]  # of 49 others each at most e^-9.2
    for dtype in ("float32", "auto", "fp8"):  # no 16 bits, so nothing was rounded to them
        rows[0]["dtype"] = dtype
        assert "is not what the model gives it" in refusal(rows, engine=lambda _: engine)
    rows[0]["dtype"] = "bfloat16"
    asked = next(line["asked"] for line in rows if line.get("kind") == "request")
    asked["sampling"]["stop"] = ["never said"]
    found = checked(rows, engine=lambda _: engine)
    assert found.rerun.apart == pytest.approx(0.2)
    said = findings(found)
    assert any("margins at most 0.2 from those on record" in line for line in said)
    assert any("a stop string that never occurs, is taken on trust" in line for line in said)


def test_what_is_compared_of_the_model_is_what_is_said_to_be() -> None:
    found = checked(made(), engine=again)
    (line,) = [line for line in findings(found) if line.startswith("Model:")]
    assert "parameters" in line and "windows" in line
    theirs = checked(as_another(made()), engine=again)
    (line,) = [line for line in findings(theirs) if line.startswith("Model:")]
    assert "vocab_size" in line and "parameters" not in line


def test_ids_in_place_of_texts_are_not_called_decoded() -> None:
    rows = as_ids(as_another(made()))
    found = checked(rows, tokenizer=lambda _: Words())
    assert found.not_decoded is None and found.texts_as_ids == 2
    (said,) = [line for line in findings(found) if line.startswith("Texts:")]
    assert "decoded" not in said and "ids of the tokens" in said


def test_penalties_do_not_excuse_another_token() -> None:
    """What is written after it depends on it, so it cannot be run on from the one on record."""
    rows = made(request("r0", 5, 6, presence_penalty=0.01), model=Undecided(-4e-4))

    def there(tilt: float) -> Any:
        return lambda _: memory_engine(model=Undecided(tilt), **LIMITS)

    assert checked(rows, engine=there(-4e-4)).rerun.ties == 0
    assert "and the model writes" in refusal(rows, engine=there(4e-4))


def test_a_simulated_run_has_no_texts_but_those_of_its_prompts() -> None:
    asked = request("r0", (4, 5), 3)
    rows = rows_of(SimulatedEngine(Roofline.named("h100", "8b")).run(Workload([asked])))
    texts = next(line for line in rows if line.get("kind") == "texts")
    texts.update(prompt=["w4 ", "w5 "], output=[""] * 3)
    assert checked(rows, tokenizer=lambda _: Words()).not_decoded is None
    texts["output"][0] = "I"
    assert "request “r0” has a text, but no model ran" in refusal(rows)


def test_of_a_model_that_processes_share_the_facts_of_the_whole_are_compared() -> None:
    """Each has its part of the heads; that all weights were counted is not sure."""
    rows = made()
    whole = rows[0]["model"]["kv_bytes_per_token"]
    rows[0]["tensor_parallel"] = 2
    assert f"kv_bytes_per_token is {2 * whole} on record" in refusal(rows, engine=again)
    rows[0]["model"]["kv_bytes_per_token"] = whole // 2
    assert checked(rows, engine=again).proof_of("header.model") == "rerun"

    class Larger(MemoryModel):
        num_parameters = 7

    def larger(_: Any) -> Any:
        return memory_engine(model=Larger(), **LIMITS)

    for counted, proof in ((7, "rerun"), (4, "bounded")):
        rows[0]["model"]["parameters"] = counted
        assert checked(rows, engine=larger).proof_of("header.model") == proof
    rows[0]["model"]["parameters"] = 3
    assert "parameters is 3 on record" in refusal(rows, engine=larger)
