"""Every sentence follows the facts: altered facts alter it, and it never outgrows its line."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from core.config import ASSETS, POLICIES, EngineConfig
from core.recorders.convert import import_recording
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.events import KV, Finished, Limit, LimitReached, Overrun, Segment, StepEvent
from core.trace.phrases import LIMITS, SETTINGS, bound, letter
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from visualizer.words import plainly
from visualizer.words.captions import MAX_CHARACTERS, captions, plain
from visualizer.words.context import CaptionContext
from visualizer.words.language import elsewhere
from visualizer.words.vocabulary import milliseconds
from worlds.asynchronous import asynchronous_run
from worlds.serving import char_engine
from worlds.visual import record, request

RECORDINGS = Path(__file__).parents[1] / "data"


def crowd(policy: str = "continuous", **limits) -> Trace:
    """Five requests for three lanes."""
    config = EngineConfig(
        **{"policy": policy, "max_num_seqs": 3, "max_num_batched_tokens": 10, "block_size": 4}
        | limits
    )
    return record(
        config,
        request("r0", 5, 6),
        request("r1", 12, 9),
        request("r2", 17, 4),
        request("r3", 17, 8, 2),
        request("r4", 3, 3, 3),
    )


def short_of_blocks(**limits) -> Trace:
    """Three requests whose caches outgrow the pool: two are preempted and come back."""
    config = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=16, block_size=2, num_blocks=13, **limits
    )
    return record(config, request("r0", 5, 20), request("r1", 6, 15), request("r2", 7, 9, 1))


def imported(name: str) -> Trace:
    """A run of vLLM."""
    return import_recording(RECORDINGS / f"{name}.raw.jsonl.gz")


def say(trace: Trace, step: int) -> str:
    index = next(i for i, e in enumerate(trace.events) if e.step == step)
    return plain(captions(trace)[index]["say"])


def why(trace: Trace, step: int) -> list[str]:
    index = next(i for i, e in enumerate(trace.events) if e.step == step)
    return [plain(sentence) for sentence in captions(trace)[index]["why"]]


def alter(trace: Trace, step: int, **facts) -> Trace:
    """The same trace but for the named facts of one step."""
    events = [e._replace(**facts) if e.step == step else e for e in trace.events]
    return dataclasses.replace(trace, events=events)


def event(trace: Trace, step: int) -> StepEvent:
    return trace.event(step)


def test_a_step_that_mixes_prefill_and_decode_is_told_in_one_sentence():
    assert (
        say(crowd(), 2)
        == "r0 r1 each add one token; r2 reads 8 of its 17 prompt tokens, all that the budget of 10"
        " leaves; r3 waits: all 3 lanes are taken."
    )


def test_an_admission_names_the_lane_who_freed_it_and_the_arithmetic_of_the_budget():
    trace = record(
        EngineConfig(max_num_seqs=4, max_num_batched_tokens=10, block_size=4),
        request("r0", 2, 5),
        request("r1", 2, 20),
        request("r2", 2, 20),
        request("r4", 2, 20),
        request("r3", 17, 6, 2),
    )
    assert (
        "r3 takes lane 0, freed by r0 in step 4; after 3 decodes 7 of 10 budget tokens are left:"
        " its first chunk is 7 of 17." in why(trace, 5)
    )


def test_a_chunk_says_how_much_of_its_prompt_is_done_then():
    trace = crowd()
    assert (
        "r2 computes chunk 2, 8 tokens, all that was left of the budget of 10; 10 of its 17 are"
        " done." in why(trace, 2)
    )
    assert "r2 computes chunk 3, 7 tokens; all its 17 are done." in why(trace, 3)


def test_the_first_chunk_altered_in_the_trace_alters_the_sentence():
    trace = crowd()
    admitted = event(trace, 6).admitted[0]
    altered = alter(trace, 6, admitted=(admitted._replace(why=LimitReached("budget", 5, 17, 12)),))
    assert any("8 of 10 budget tokens are left" in s for s in why(trace, 6))
    assert any("5 of 10 budget tokens are left" in s for s in why(altered, 6))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (LimitReached("lanes", 0, 1, 3), "all 3 lanes are taken"),
        (LimitReached("lanes", 0, 1, 2), "both lanes are taken"),
        (LimitReached("lanes", 0, 1, 1), "the only lane is taken"),
        (LimitReached("budget", 0, 17, 10), "the budget of 10 tokens is spent"),
        (LimitReached("budget", 1, 17, 10), "1 of 10 budget tokens is left, and 17 are needed"),
        (
            LimitReached("blocks", 0, 5, 64),
            "none of the 64 KV blocks was free in time, and 5 are needed",
        ),
        (LimitReached("blocks", 2, 5, 64), "2 of 64 KV blocks are free, and 5 are needed"),
        (
            LimitReached("barrier", 1, 0, 3),
            "the wave must end first, and 1 of 3 lanes is still computing",
        ),
        (LimitReached("prefill", 0, 1, 1), "another prompt is being computed, one at a time"),
    ],
)
def test_a_wait_is_told_with_the_schedulers_own_reason(reason: LimitReached, words: str):
    trace = crowd()
    told = {"waiting": event(trace, 2).waiting._replace(why=reason)}
    if reason.limit == "blocks":
        told["kv"] = KV(reason.total - reason.have, reason.total)
    assert f"r3 waits: {words}." in why(alter(trace, 2, **told), 2)


def test_blocks_that_are_free_but_reserved_are_not_told_as_free():
    trace = crowd("no-evict", num_blocks=12)  # r0 may need 3 of them, r1 6, r2 6
    assert event(trace, 1).kv.used == 5
    told = "all but 3 of 12 KV blocks are reserved for others, and 6 are needed."
    assert any(told in sentence for sentence in why(trace, 1))
    simple = next(
        c["simple"] for c, e in zip(captions(trace), trace.events, strict=True) if e.step == 1
    )
    assert plain(simple).endswith("r2 waits: the memory is reserved for others.")


def test_a_wait_says_since_when_and_how_many_stand_behind():
    assert (
        "r3 has waited since step 2, for 2 steps: all 3 lanes are taken. 1 more waits behind it."
        in why(crowd(), 4)
    )


def test_every_wait_in_every_policy_names_the_limit_that_the_scheduler_names():
    words = {
        "lanes": "lane",
        "budget": "budget",
        "blocks": "block",
        "barrier": "wave",
        "prefill": "prompt",
        "phase": "prompts",
    }
    for policy in POLICIES:
        trace = crowd(policy)
        for index, e in enumerate(trace.events):
            if e.waiting.why:
                sentence = next(
                    s
                    for s in map(plain, captions(trace)[index]["why"])
                    if re.match(f"{e.waiting.request} (waits|has waited)", s)
                )
                assert words[e.waiting.why.limit] in sentence


def test_a_preemption_tells_who_loses_how_much_and_why():
    trace = short_of_blocks()
    step = next(e for e in trace.events if e.preempted)
    lost = step.preempted[0]
    assert say(trace, step.step).startswith(
        f"{lost.request} loses its cache of {lost.tokens_lost} tokens, because the 13 KV blocks"
        " ran out"
    )
    assert (
        f"{lost.request} is preempted: too few of the 13 KV blocks were free for the running"
        f" requests to go on. The newest gives way: it loses lane {lost.lane} and its cache of"
        f" {lost.tokens_lost} tokens; its tokens are kept and will be computed again."
    ) in why(trace, step.step)
    altered = alter(trace, step.step, preempted=(lost._replace(tokens_lost=1),))
    assert "loses its cache of 1 token," in say(altered, step.step)


def test_where_another_engine_takes_back_the_blocks_of_all_it_is_not_said_to_lack_any():
    """Three run and are reset, 9 of 63 blocks suffice, and they come back in the same step."""
    trace = imported("vllm-http/reset-running")
    at = next(index for index, e in enumerate(trace.events) if e.step == 234)
    told = captions(dataclasses.replace(trace, events=trace.events[: at + 1]))[at]
    unknown, lost = "for a reason that is not recorded", [plain(s) for s in told["why"]]
    assert sum(f" is preempted, {unknown}: it loses lane" in s for s in lost) == 3
    assert f"lose their lane, {unknown}" in plain(told["simple"])
    assert "ran out" not in plain(told["say"]) and "gives way" not in " ".join(lost)
    short = imported("vllm-0.32")
    assert "because the 10 KV blocks ran out" in say(short, 63)
    assert "lane: the memory is full" in simply(short, 63)
    assert sum("The newest gives way" in sentence for sentence in why(short, 63)) == 1


def test_who_is_ended_while_its_step_runs_is_not_said_to_have_stopped_before():
    trace = imported("vllm-0.32-snapshots")
    assert say(trace, 3).endswith(" is computed for nothing.")
    assert "while this step ran" in why(trace, 3)[-1]
    stopped = asynchronous_run()
    (step,) = [e.step for e in stopped.events if e.overrun]
    assert "r1 is computed for nothing, as it had stopped" in say(stopped, step)


def test_what_is_computed_again_is_called_so():
    trace = short_of_blocks()
    sentences = [plain(c["say"]) for c in captions(trace)]
    assert any("of them again" in s for s in sentences)
    assert any("computes 11 tokens, 10 of them again" in s for s in sentences)


def test_who_reads_again_writes_no_first_token_and_simple_says_how_much():
    """Two come back in one step of `kv-pressure`, as no run above has it; a third alone."""
    told = captions(Trace.load(TRACES / "kv-pressure.jsonl"))
    assert plain(told[41]["say"]) == (
        "r0 r3 each add one token; r4 r5 compute 31 + 16 tokens, 45 of them again, as 2 lanes were"
        " free."
    )
    assert plain(told[41]["simple"]).startswith("r4 r5 read 31 + 16 tokens, 45 of them again;")
    assert plain(told[38]["simple"]).startswith(
        "r3 reads 41 tokens, 40 of them again, as it had lost its lane;"
    )


def test_a_request_without_its_share_is_told_to_compute_nothing():
    trace = crowd(max_num_seqs=4, prefill_first=True)
    stalled = next(e for e in trace.events if e.stalled)
    assert "r0 computes nothing" in say(trace, stalled.step)
    assert any(
        "keeps its lane but computes nothing: the budget of 10 tokens is spent" in s
        for s in why(trace, stalled.step)
    )


@pytest.mark.parametrize(
    ("prefill_first", "room"), [(True, "24 of 24"), (False, "after 3 decodes 21 of 24")]
)
def test_decodes_take_their_share_of_the_budget_first_or_last(prefill_first, room):
    trace = crowd(max_num_seqs=4, max_num_batched_tokens=24, prefill_first=prefill_first)
    assert any(f"; {room} budget tokens are left: its 17 tokens fit" in s for s in why(trace, 2))


def test_guesses_take_their_share_of_the_budget_before_a_prompt():
    """A decode of four positions and one of one."""
    taken = [s for s in why(imported("vllm-0.32-speculation"), 1) if "takes lane" in s]
    assert [s.split("; ")[1] for s in taken] == [
        "after 2 decodes 27 of 32 budget tokens are left: its 3 tokens fit.",
        "after 2 decodes 24 of 32 budget tokens are left: its 2 tokens fit.",
    ]


def test_guesses_whose_result_is_not_on_record_are_not_called_wrong():
    """Of a request that has all its tokens, and of one that was ended while the step ran."""
    trace, r = imported("vllm-0.32-speculation"), "0-9902bd14"
    told = f"{r} guesses 3 tokens ahead"
    assert f"{told}: none is used, so the pass gives it 1 token; they are forgotten." in why(
        trace, 41
    )
    trace = alter(trace, 41, overrun=(Overrun(r, 4),), finished=())
    assert f"{told}, and nobody reads what comes of it." in why(trace, 41)


def test_who_gets_no_token_is_not_told_to_get_one():
    trace = crowd()
    step = next(e for e in trace.events if sum(s.phase == "decode" for s in e.segments) == 2)
    one, other = (s.request for s in step.segments if s.phase == "decode")
    sampled = tuple(s for s in step.sampled if s.request != other)
    told = why(alter(trace, step.step, sampled=sampled), step.step)
    newest, cost = "computes its newest token and gets", "1 token of the budget of 10."
    assert [s for s in told if newest in s] == [
        f"{one} {newest} the next, {cost}",
        f"{other} {newest} no new one, {cost}",
    ]


def test_blocks_are_behind_a_window_only_where_there_is_one():
    trace = imported("vllm-0.32-hybrid")

    def given_back(*kinds: str) -> list[str]:
        groups = zip(trace.header.kv_groups, kinds, strict=False)
        changed = [dataclasses.replace(group, kind=kind) for group, kind in groups]
        kept = trace.header.kv_groups[len(changed) :]
        header = dataclasses.replace(trace.header, kv_groups=(*changed, *kept))
        altered = dataclasses.replace(trace, header=header)
        behind = "behind its window" if not kinds else "that it needs no more"
        assert f"gives back 3 blocks {behind}" in say(altered, 44)
        return [of[2] for s in why(altered, 44) if (of := s.partition(" gives back "))[1]]

    passed = "as a window of 64 tokens has passed them."
    assert given_back() == [f"3 blocks, {passed}"]
    assert given_back("mamba") == ["1 block, as its state has moved on.", f"2 blocks, {passed}"]
    assert given_back(*["mamba"] * 3) == ["3 blocks, as its state has moved on."]
    assert given_back(*["chunked"] * 3) == ["3 blocks, as its layers look back over them no more."]


def test_clauses_stand_in_the_order_in_which_things_happened():
    trace = crowd("split")
    index = next(
        i
        for i, e in enumerate(trace.events)
        if len(e.passes) > 1 and {s.phase for s in e.segments} > {"prefill"}
    )
    text = plain(captions(trace)[index]["say"])
    assert 0 < text.index("prompt token") < text.index("; then ") < text.index("one token")


def test_nobody_waits_is_said_only_where_all_compute():
    for trace in worlds():
        for e, caption in zip(trace.events, captions(trace), strict=True):
            if "none waits" in plain(caption["say"]):
                assert not (e.waiting.count or e.stalled or e.preempted)


def test_every_limit_and_every_setting_has_its_words():
    assert set(LIMITS) == set(get_args(Limit)) and set(SETTINGS) == set(EngineConfig().to_json())
    trace = crowd()
    for e, caption in zip(trace.events, captions(trace), strict=True):
        assert caption["bound"] == bound(e.budget.binding) and bool(caption["waits"]) == bool(
            e.waiting.why
        )


@pytest.mark.parametrize("reason", ["length", "stop", "cancelled", "error"])
def test_an_end_is_told_by_its_reason(reason: str):
    trace = crowd()
    altered = alter(trace, 5, finished=(Finished("r0", reason),))
    words = {
        "length": "r0 is done: it has the 6 tokens it asked for",
        # no token here is one that ends a request
        "stop": "r0 is done: its token number 6 completes a stop string",
        "cancelled": "r0 ends: it was cancelled",
        "error": "r0 fails: its logits were not finite",
    }
    assert any(s.startswith(words[reason]) for s in why(altered, 5))


def test_why_another_engine_ends_a_request_is_said_as_far_as_it_is_on_record():
    trace, r = imported("vllm-0.32"), "0-b4351a4a"
    told = {
        "error": (f"{r} ends, for a reason that is not recorded",) * 2,
        "stop": (
            f"{r} stops at its token number 90",
            f"{r} is done: its token number 90 ends the answer",
        ),
    }
    for reason, (short, long) in told.items():
        ended = alter(trace, 89, finished=(Finished(r, reason),))
        assert short in say(ended, 89)
        assert any(sentence.startswith(long) for sentence in why(ended, 89))
    ended = alter(trace, 0, finished=(Finished(r, "stop"),), sampled=())
    assert say(ended, 0).endswith(f"{r} stops without a token.")
    assert any(s.startswith(f"{r} is done without a token") for s in why(ended, 0))


def test_a_limit_that_was_cut_to_the_context_is_not_what_a_request_asked_for():
    """Four tokens of prompt, 90 more, and a context of 94."""
    trace, r = imported("vllm-0.32"), "0-b4351a4a"
    assert why(trace, 0)[0].endswith("asking for up to 90 tokens.")
    assert f"{r} finishes with the 90 tokens it asked for" in say(trace, 89)
    model = dataclasses.replace(trace.header.model, context=94)
    trace.header = dataclasses.replace(trace.header, model=model)
    assert why(trace, 0)[0].endswith("and its context has room for 90 tokens more.")
    assert f"{r} finishes, as its context of 94 tokens is full" in say(trace, 89)
    told = f"{r} is done: its context of 94 tokens is full"
    assert any(sentence.startswith(told) for sentence in why(trace, 89))


def test_who_stops_at_a_stop_string_did_not_stop_at_an_end_token():
    """A real run whose text comes to the string; and as if its last token ended it."""
    sampling = SamplingParams(60, stop=("e",))
    trace = char_engine().run(Workload([Request("r0", prompt="O Romeo", sampling=sampling)]))
    *_, last = trace.events
    assert [f.finish_reason for f in last.finished] == ["stop"]
    written = len(trace.outputs["r0"])
    assert say(trace, last.step).endswith("r0 stops at a stop string.")
    told = f"its token number {written} completes a stop string"
    assert any(told in sentence for sentence in why(trace, last.step))
    model = dataclasses.replace(trace.header.model, eos_token_ids=(trace.outputs["r0"][-1],))
    trace.header = dataclasses.replace(trace.header, model=model)
    assert say(trace, last.step).endswith("r0 stops, as the model has ended the answer.")
    told = f"its token number {written} ends the answer"
    assert any(told in sentence for sentence in why(trace, last.step))


def test_padding_is_counted_and_its_cause_named():
    trace = crowd("static")
    first = trace.events[0]
    assert (
        f"{first.passes[0].padding} of {first.passes[0].rows * first.passes[0].width} positions are"
        " padding" in say(trace, 0)
    )
    late = next(e for e in trace.events if any(p.finished_rows for p in e.passes))
    assert any("is computed as padding until its wave ends" in s for s in why(trace, late.step))
    end = next(e for e in trace.events if len([c for c in e.kv.changes if c.released]) > 1)
    assert "The wave is over: 3 lanes become free for the next step." in why(trace, end.step)


def test_a_prefix_hit_is_told_with_its_blocks():
    trace = crowd(max_num_seqs=4, prefix_caching=True, max_num_batched_tokens=16)
    hit = next(e for e in trace.events if e.kv.prefix_hits)
    cached = hit.kv.prefix_hits[0]
    assert any(
        f"{cached.request} finds {cached.num_cached_tokens} of its"
        f" {len(trace.prompts[cached.request])} tokens in the prefix cache" in s
        for s in why(trace, hit.step)
    )
    assert say(trace, 2).endswith(
        "r3 reads the last of its 17 prompt tokens and writes its first token, as 16 were in the"
        " prefix cache."
    )


def worlds() -> list[Trace]:
    many = [
        request(f"a request with a rather long name {i}", 3 + i % 7, 2 + i % 9, i // 3)
        for i in range(70)
    ]
    huge = record(EngineConfig(max_num_seqs=60, max_num_batched_tokens=4000), *many, num_blocks=400)
    return [
        *(crowd(policy) for policy in POLICIES),
        short_of_blocks(),
        short_of_blocks(prefill_first=True),
        huge,
    ]


def test_no_sentence_is_too_long_empty_or_without_an_actor():
    for trace in worlds():
        letters = {
            r: letter(i) for i, r in enumerate(a.request for e in trace.events for a in e.arrived)
        }
        for caption in captions(trace):
            text = plain(caption["say"], letters.__getitem__)
            assert 0 < len(text) <= MAX_CHARACTERS and text.endswith(".")
            assert any(isinstance(span, dict) for span in caption["say"])
            assert all(plain(s).endswith(".") and "None" not in plain(s) for s in caption["why"])


def test_plurals_are_right():
    for trace in worlds():
        for caption in captions(trace):
            for sentence in (caption["say"], *caption["why"]):
                text = f" {plain(sentence)} "
                for noun in ("token", "lane", "block", "step", "position", "row"):
                    assert not re.search(rf"(?<!\+) 1 {noun}s", text), text
                    assert not any(f" {n} {noun} " in text for n in range(2, 40)), text


def test_sentences_depend_on_the_past_alone():
    trace = crowd()
    for k in (1, 5, 9):
        assert captions(dataclasses.replace(trace, events=trace.events[:k])) == captions(trace)[:k]


def test_letters_go_on_after_z():
    assert [letter(i) for i in (0, 25, 26, 27, 701, 702)] == ["A", "Z", "AA", "AB", "ZZ", "AAA"]


def test_a_frame_agrees_with_the_event():
    for trace in worlds():
        for e, frame in zip(trace.events, trace.frames(), strict=True):
            assert len(frame.waiting) == e.waiting.count
            assert [w.why for w in frame.waiting if w.why] == (
                [e.waiting.why] if e.waiting.why else []
            )
            computing = {(s.lane, s.request, s.kv_len) for s in e.segments}
            assert computing >= {(r.lane, r.request, r.kv_len) for r in frame.lanes if r.length}
            assert {r.request for r in frame.lanes if "stalled" in r.doing} == {
                s.request for s in e.stalled
            }
            assert {r.request for r in frame.lanes if "finished" in r.doing} == {
                f.request for p in e.passes for f in p.finished_rows
            }
            assert len(frame.blocks) == e.kv.used


def test_a_duration_is_rounded_as_the_player_rounds_it():
    """The same cases as in `tests/js/parts.test.js`: exact halves, which Python alone would round
    to the even digit.
    """
    assert [milliseconds(s) for s in (0.001125, 0.01025, 0.1005)] == [
        "1.13 ms",
        "10.3 ms",
        "101 ms",
    ]
    assert [milliseconds(s) for s in (0.00123, 0.0123, 0.123)] == ["1.23 ms", "12.3 ms", "123 ms"]
    assert [milliseconds(s) for s in (9.9994, 10.0, 61.25)] == ["9999 ms", "10.0 s", "61.3 s"]
    assert milliseconds(9.9996) == "10.0 s"
    assert [milliseconds(s) for s in (0.00999, 0.01, 0.1)] == ["9.99 ms", "10.0 ms", "100 ms"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_player_writes_every_duration_as_the_sentences_do():
    """Around each place where the number of digits changes, and on exact halves of a digit."""
    spans = (range(995, 1_006), range(9_990, 10_011), range(99_900, 100_100, 5))
    some = [us / 1e6 for span in spans for us in span]
    some += [hundredth / 100 for hundredth in range(990, 4_000)]
    some += [(2 * n + 1) / 2**k for k in (10, 14, 17) for n in range(200)]
    script = (
        "import { milliseconds } from './assets/player/parts/format.js';"
        "import { readFileSync } from 'node:fs';"
        "const some = JSON.parse(readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify(some.map(milliseconds)));"
    )
    told = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", script],
        input=json.dumps(some),
        capture_output=True,
        text=True,
        check=True,
        cwd=ASSETS.parent,
    )
    assert json.loads(told.stdout) == list(map(milliseconds, some))


@pytest.mark.parametrize("limits", [{"prefix_caching": True}, {}, {"policy": "static"}])
def test_thousands_have_their_comma_everywhere(limits):
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=1500, **limits)
    sizes = (("r0", 4000), ("r1", 1399), ("r2", 3900))
    asked = [
        Request(
            name,
            prompt_token_ids=tuple(range(1, size + 1)),
            sampling=SamplingParams(max_new_tokens=3, ignore_eos=True),
            arrival=arrival,
        )
        for arrival, (name, size) in enumerate(sizes)
    ]
    trace = SimulatedEngine(cost_named("h100:8b"), config).run(Workload(asked))
    told = [plain(one) for c in captions(trace) for one in (c["say"], c["simple"], *c["why"])]
    assert not [sentence for sentence in told if re.search(r"\d{4}", sentence)]
    assert any("1,399" in sentence for sentence in told)


def test_every_preset_has_a_line_on_what_it_shows():
    assert all(p.title and p.shows.endswith(".") for p in PRESETS.values())


@pytest.mark.parametrize(
    ("run", "steps"),
    [("scheduler-zoo/5-transformers", {21}), ("engines-kv-pressure/2-transformers", {17, 30})],
)
def test_who_gives_way_under_transformers_is_said_as_its_policy_has_it(run, steps):
    trace = Trace.from_lines(
        gzip.decompress((RECORDED / f"{run}.jsonl.gz").read_bytes()).decode().splitlines()
    )
    made = {"en": captions(trace), **elsewhere(lambda: captions(trace))}
    gives = {
        "en": "The last of those that lack a block gives way",
        "de": "Die letzte von denen, denen ein Block fehlt, weicht",
    }
    assert steps <= {event.step for event in trace.events if event.preempted}
    for index, event in enumerate(trace.events):
        for language, words in gives.items():
            said = [plain(why) for why in made[language][index]["why"]]
            assert sum(words in why for why in said) == len(event.preempted)
            assert not any(
                "he newest gives way" in why or "Die neueste weicht" in why for why in said
            )


def simply(trace: Trace, step: int) -> str:
    index = next(i for i, e in enumerate(trace.events) if e.step == step)
    return plain(captions(trace)[index]["simple"])


def test_a_step_in_plain_words_names_who_comes_reads_writes_and_goes():
    trace = crowd(max_num_batched_tokens=32)
    told = [plain(c["simple"]) for c in captions(trace)]
    assert told[0] == "r0 r1 r2 each take a free lane: 5 + 12 + 15 tokens are read in one pass."
    left = next(s for s in told if "takes the lane that" in s)
    assert re.search(
        r"r\d takes the lane that r\d left: its \d+ tokens are read in the same pass; (r\d )+", left
    )
    lost = next(
        s
        for s in map(plain, (c["simple"] for c in captions(short_of_blocks())))
        if "loses its lane" in s
    )
    assert ": the memory is full" in lost and " waits" not in lost
    static = [plain(c["simple"]) for c in captions(crowd("static"))]
    assert any("waits: nobody joins before all are done" in s for s in static)
    assert any(re.search("places (is|are) computed for nobody", s) for s in static)


@pytest.mark.slow
def test_plain_words_know_no_limit_and_fit_their_line():
    for path in sorted(PRESETS):
        for caption in captions(Trace.load(TRACES / f"{path}.jsonl")):
            text = plain(caption["simple"], lambda r: "A")
            assert text.endswith(".") and len(text) <= MAX_CHARACTERS
            assert not re.search(r"budget|KV|prefill|decode|blocks", text), text


def test_not_all_are_done_where_somebody_leaves():
    ended = [Finished("a", "stop"), Finished("b", "cancelled")]
    for count, words in ((1, "is|are] done"), (2, "leaves|leave]")):
        m: Any = SimpleNamespace(event=SimpleNamespace(finished=ended[:count]))
        short, _ = plainly._ends(m) or ([], [])
        assert words in str(short[-1])


def test_no_more_is_computed_again_than_is_computed():
    m: Any = SimpleNamespace(state=SimpleNamespace(lost={"a": 9}))
    for start, kv_len, again in ((2, 6, 4), (6, 12, 3), (9, 12, 0)):
        segment = Segment(0, "a", 0, "prefill", start, kv_len - start, kv_len)
        assert CaptionContext.recomputed(m, segment) == again
