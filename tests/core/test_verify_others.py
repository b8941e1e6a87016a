"""What `check` finds odd, or refuses, in the traces of other engines, whose decisions are not taken
again: reasons, drafts, and what is said to be absent.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.errors import InvalidTrace
from core.proof.verify import OTHERS, check, findings, verify
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.recorders.texts import tokenizer_of
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from worlds.forging import sealed

SPECULATION = Path(__file__).parents[1] / "data" / "vllm-0.32-speculation.raw.jsonl.gz"
PRIORITY = SPECULATION.parent / "vllm-http" / "priority-pressure.raw.jsonl.gz"
Rows = list[dict[str, Any]]


def rows_of(trace: Trace) -> Rows:
    return [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in trace.lines()]


@pytest.fixture(scope="module")
def made() -> dict[str, Rows]:
    traces = {"pressure": Trace.load(TRACES / "vllm-kv-pressure.jsonl")}
    traces |= {
        name: to_trace(read_raw([path])[0])
        for name, path in (("drafts", SPECULATION), ("priority", PRIORITY))
    }
    for trace in traces.values():
        found = verify(trace.lines())
        assert found.not_replayed and found.never_bound and not found.warnings
    return {name: rows_of(trace) for name, trace in traces.items()}


def first(rows: Rows, has: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    return next(r for r in rows if "step" in r and has(r))


def draft_of(rows: Rows, drafted: int) -> list[Any]:
    return first(rows, lambda r: any(d[1] == drafted for d in r["drafts"]))["drafts"][0]


def find_twice(rows: Rows) -> None:
    """A prefix for one request, told two times: the counts of cached tokens would double."""
    rows[0]["config"]["prefix_caching"] = True
    step = first(rows, lambda e: e["admitted"])
    step["kv"][3] = [[step["admitted"][0][0], 0]] * 2


def larger_pool(rows: Rows) -> None:
    """A hundred times as many blocks, and no reason that would give it away."""
    rows[0]["num_blocks"] = rows[0]["config"]["num_blocks"] = 500
    for step in [r for r in rows if "step" in r]:
        step["kv"][1] = 500
        if step["waiting"][2] and step["waiting"][2][0] == "blocks":
            step["waiting"][2], step["budget"][4] = ["unrecorded", 0, 0, 0], "unrecorded"


def nobody_holds_a_block(rows: Rows) -> None:
    for step in [r for r in rows if "step" in r]:
        step["kv"][0] = 0
        for change in step["kv"][2]:
            change[1] = [None] * len(change[1])
            change.extend([0, []][len(change) - 3 :])


def gives_a_block_back(rows: Rows) -> None:
    """The first to get one, in the next step."""
    first_step, step = [r for r in rows if "step" in r][:2]
    request, (block, *_), *_ = first_step["kv"][2][0]
    step["kv"][0] -= 1
    step["kv"][2].append([request, [], False, 0, [block]])


def reasons_told_as(why: str) -> Callable[[Rows], None]:
    """Wherever the queue waits for blocks."""

    def forge(rows: Rows) -> None:
        for step in [r for r in rows if "step" in r]:
            if step["budget"][4] == "blocks":
                step["waiting"][2], step["budget"][4] = [why, 0, 0, 0], why

    return forge


def swap_lanes(rows: Rows) -> None:
    """Lanes 0 and 1 in every record of every step."""
    other = {0: 1, 1: 0}
    for step in [r for r in rows if "step" in r]:
        for name, at in (("admitted", 1), ("preempted", 2), ("segments", 2), ("released", 1)):
            for record in step[name]:
                record[at] = other.get(record[at], record[at])


def last_as_head(rows: Rows) -> None:
    trace = Trace.from_lines(sealed(rows))
    frame = next(frame for frame in trace.frames() if len(frame.waiting) > 1)
    first(rows, lambda e: e["step"] == frame.step)["waiting"][1] = frame.waiting[-1].request


def newest_admitted_first(rows: Rows) -> None:
    """Of those who join in one step, and their lanes with them: whoever gives way is no longer the
    last who came.
    """
    for step in [r for r in rows if "step" in r]:
        step["admitted"].reverse()


def last_arrives_earlier(rows: Rows) -> None:
    """With the one before, who joins at once, and ahead of it."""
    before, own = [r for r in rows if r.get("arrived")][-2:]
    asked = next(
        r for r in rows if r.get("kind") == "request" and r["asked"]["id"] == own["arrived"][0][0]
    )
    rows.remove(asked)
    rows.insert(rows.index(before), asked)
    before["arrived"].insert(0, [own["arrived"].pop()[0], before["arrived"][0][1]])


def larger(limit: str, name: str) -> Callable[[Rows], None]:
    """A limit seven larger, in the header and in every number of every reason."""

    def forge(rows: Rows) -> None:
        rows[0]["config"][name] += 7
        for step in [r for r in rows if "step" in r]:
            if limit == "budget":
                step["budget"][0] += 7
                step["budget"][3] += 7
            for why in [step["waiting"][2], *(a[2] for a in step["admitted"])]:
                if why and why[0] == limit:
                    why[3] += 7

    return forge


def numbers_for(logprob: float, margin: float) -> Callable[[Rows], None]:
    def forge(rows: Rows) -> None:
        rows[0]["absent"] = ["prepare", "sample"]
        first(rows, lambda e: e["sampled"])["sampled"][0][3:] = [logprob, margin]

    return forge


FORGED: dict[str, tuple[str, Callable[[Rows], Any], str]] = {
    "a reason with more free than there is": (
        "pressure",
        lambda r: first(r, lambda e: e["waiting"][2])["waiting"][2].__setitem__(1, 77),
        "reason has numbers",
    ),
    "a reason of a limit that it does not have": (
        "pressure",
        lambda r: first(r, lambda e: e["waiting"][2])["waiting"][2].__setitem__(0, "recovery"),
        "reason has numbers",
    ),
    "a reason that leaves a limit out": (
        "pressure",
        lambda r: first(r, lambda e: e["admitted"])["admitted"][0].__setitem__(
            2, ["blocks", 1, 1, 900]
        ),
        "reason has numbers",
    ),
    "held back by another limit than who waits": (
        "pressure",
        lambda r: first(r, lambda e: not e["waiting"][0])["budget"].__setitem__(4, "blocks"),
        "held back",
    ),
    "a probability that nobody recorded": (
        "pressure",
        lambda r: first(r, lambda e: e["sampled"])["sampled"][0].__setitem__(3, -1.0),
        "although none were recorded",
    ),
    "a part of a step that nobody recorded": (
        "pressure",
        lambda r: first(r, lambda e: True)["timings"].__setitem__(3, 1e-6),
        "that the header names",
    ),
    "parts left out, and not said to be": (
        "pressure",
        lambda r: r[0].update(absent=[]),
        "that the header names",
    ),
    "more drafts taken than tokens": (
        "drafts",
        lambda r: draft_of(r, 3).__setitem__(2, draft_of(r, 3)[2] ^ 1),
        "tokens in one pass",
    ),
    "fewer drafts than positions for them": (
        "drafts",
        lambda r: draft_of(r, 3).__setitem__(1, 2),
        "does not have",
    ),
    "drafts in the middle of a prompt": (
        "drafts",
        lambda r: (e := first(r, lambda e: e["segments"][0][5] > 2 and not e["drafts"]))[
            "drafts"
        ].append([e["segments"][0][1], 1, 1]),
        "does not have",
    ),
    "fewer blocks free than there are left": (
        "priority",
        lambda r: (
            w := first(
                r,
                lambda e: e["waiting"][2] and e["waiting"][2][0] == "blocks" and e["waiting"][2][1],
            )["waiting"][2]
        ).__setitem__(1, w[1] - 1),
        "blocks that are free",
    ),
    "as many blocks free as are needed": (
        "priority",
        lambda r: (
            w := first(r, lambda e: e["waiting"][2] and e["waiting"][2][0] == "blocks")["waiting"][
                2
            ]
        ).__setitem__(1, w[2]),
        "reason has numbers",
    ),
    "a reason that its rule gives, told as not recorded": (
        "pressure",
        reasons_told_as("unrecorded"),
        "does not follow",
    ),
    "a pool a hundred times larger": ("pressure", larger_pool, "was preempted although"),
    "lanes that change places": ("pressure", swap_lanes, "lane that the header's rule gives it"),
    "the last who waits told as the first": ("pressure", last_as_head, "said to be the head"),
    "blocks twice as large": (
        "pressure",
        lambda r: r[0]["config"].update(block_size=64),
        "more blocks than",
    ),
    "a larger budget where it bound": (
        "drafts",
        larger("budget", "max_num_batched_tokens"),
        "blocks that are free",
    ),
    "more lanes where they bound": (
        "drafts",
        larger("lanes", "max_num_seqs"),
        "wait for a lane, but one is free",
    ),
    "reasons by another rule": (
        "pressure",
        lambda r: r[0]["inferred"].update(reasons="as it was"),
        "rules by which lanes",
    ),
    "lanes by another rule": (
        "pressure",
        lambda r: r[0]["inferred"].update(lanes="as it was"),
        "rules by which lanes",
    ),
    "a certain token with a small margin": ("pressure", numbers_for(0.0, 0.5), "at that margin"),
    "a rule for what is not inferred": (
        "pressure",
        lambda r: r[0]["inferred"].update(colour="as it was"),
        "rules by which lanes",
    ),
    "an absent fact that no step has": (
        "pressure",
        lambda r: r[0]["absent"].append("colour"),
        "is absent, which no step has",
    ),
    "scheduling that took no time": (
        "pressure",
        lambda r: first(r, lambda e: True)["timings"].__setitem__(0, 0.0),
        "do not take as long",
    ),
    "more drafts than are proposed": (
        "drafts",
        lambda r: r[0]["engine"].update(num_spec_tokens=2),
        "ore than 2 tokens were proposed",
    ),
    "another than the newest gave way": (
        "pressure",
        newest_admitted_first,
        "but is not the newest",
    ),
    "one who came later joined before": (
        "pressure",
        last_arrives_earlier,
        "before another that came first",
    ),
    "a step left out": (
        "pressure",
        lambda r: [e.__setitem__("step", e["step"] + 1) for e in r if e.get("step", 0) > 40],
        "teps are missing",
    ),
    "a pass that took no time": (
        "pressure",
        lambda r: first(r, lambda e: True)["timings"].__setitem__(2, 0.0),
        "do not take as long",
    ),
    "a row told as a padded batch": (
        "pressure",
        lambda r: first(r, lambda e: len(e["segments"]) == 1)["passes"][0].__setitem__(0, "padded"),
        "laid out",
    ),
    "windows that no group has": (
        "pressure",
        lambda r: r[0]["model"].update(windows=[4, 4, 4, 4]),
        "windows are not those",
    ),
    "a model for shorter texts": (
        "pressure",
        lambda r: r[0]["model"].update(context=50),
        "context of 50",
    ),
    "whole prompts that were chunks": (
        "drafts",
        lambda r: r[0]["config"].update(chunked_prefill=False),
        "in chunks although",
    ),
    "longer chunks than the header allows": (
        "pressure",
        lambda r: r[0]["engine"].update(long_prefill_token_threshold=3),
        "of its prompt in one step",
    ),
    "prompts that are said to be absent": (
        "pressure",
        lambda r: r[0]["absent"].append("prompts"),
        "although the header says",
    ),
    "more blocks in use than there are": (
        "pressure",
        lambda r: (k := first(r, lambda e: e["kv"][0] > 1)["kv"]).__setitem__(0, k[0] - 1),
        "cannot be in use",
    ),
    "a chunk told as a whole prompt": (
        "priority",
        lambda r: first(r, lambda e: e["admitted"])["admitted"][0].__setitem__(
            2, ["budget", 1, 2, r[0]["config"]["max_num_batched_tokens"]]
        ),
        "blocks that are free",
    ),
    "tables without a block": ("pressure", nobody_holds_a_block, "too few blocks"),
    "a block given back while its request runs": (
        "pressure",
        gives_a_block_back,
        "gave back a block that it still needs",
    ),
    "a prefix found twice": ("pressure", find_twice, "found twice"),
    "a block taken twice": (
        "pressure",
        lambda r: (c := first(r, lambda e: e["kv"][2])["kv"][2][0])[1].append(c[1][-1]),
        "one block twice",
    ),
    "windows of a model without layers": (
        "pressure",
        lambda r: r[0]["model"].update(layers=0, windows=[4]),
        "0 layers",
    ),
    "a rank that there is not": (
        "pressure",
        lambda r: r[0]["engine"].update(rank=1),
        "none of 1 ranks",
    ),
    "an end within a step, before it": (
        "pressure",
        lambda r: first(r, lambda e: e["finished"])["finished"][0].append(0.0),
        "at no time before it",
    ),
    "a client that left before it came": (
        "priority",
        lambda r: next(
            f for e in r for f in e.get("finished", ()) if e["step"] > 9 and f[1] == "cancelled"
        ).__setitem__(2, 0.0),
        "cannot have been cancelled at that time",
    ),
    "no ranks at all": ("pressure", lambda r: r[0]["engine"].update(ranks=0), "none of 0 ranks"),
}


REFUSED = {
    "a prefix found twice",
    "windows of a model without layers",
    "a rank that there is not",
    "no ranks at all",
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_recording_is_noticed(made: dict[str, Rows], forgery: str) -> None:
    """What cannot be followed is refused; all else is said of its step, and the run goes on to its
    end.
    """
    of, forge, said = FORGED[forgery]
    rows = copy.deepcopy(made[of])
    forge(rows)
    if forgery in REFUSED:
        with pytest.raises(InvalidTrace, match=said):
            verify(sealed(rows))
    else:
        found = verify(sealed(rows))
        assert (
            any(said in warning for _, warning in found.warnings)
            and found.num_steps == verify(sealed(made[of])).num_steps
        )


def test_after_a_warning_the_rules_go_on_from_the_events_as_they_are(made: dict[str, Rows]) -> None:
    """One step forged, and no other has a warning; what a file says of its warnings counts for
    nothing.
    """
    rows = copy.deepcopy(made["pressure"])
    forged = first(rows, lambda e: e["waiting"][2] and e["step"] > 40)
    forged["waiting"][0] += 1
    forged["warnings"] = ["Somebody else's words."]
    found = verify(sealed(rows))
    assert found.warnings == (
        (
            forged["step"],
            (
                f"The queue has a length of {forged['waiting'][0] - 1}, but the step says"
                f" {forged['waiting'][0]}."
            ),
        ),
    )
    assert [e.warnings for e in Trace.from_lines(sealed(rows)).events if e.warnings] == [
        (found.warnings[0][1],)
    ]


def test_who_is_told_as_skipped_is_counted_and_named(made: dict[str, Rows]) -> None:
    """Nothing else in the file could say that the engine skipped nobody."""
    rows = copy.deepcopy(made["pressure"])
    bound = sum(r["budget"][4] == "blocks" for r in rows if "step" in r)
    assert bound and not verify(sealed(rows)).skipped
    reasons_told_as("skipped")(rows)
    found = verify(sealed(rows))
    assert found.skipped == bound and not found.warnings
    assert any(f"In {bound} of 78 steps the engine is said" in line for line in findings(found))


def test_a_run_of_ours_has_no_warnings() -> None:
    rows = rows_of(Trace.load(TRACES / "three-short.jsonl"))
    first(rows, lambda e: True)["warnings"] = ["This is odd."]
    with pytest.raises(InvalidTrace, match="only steps of another engine may have warnings"):
        verify(sealed(rows))


def test_texts_are_decoded_again_where_the_tokenizer_is_here(made: dict[str, Rows]) -> None:
    rows = copy.deepcopy(made["pressure"])
    assert verify(sealed(rows), tokenizer_of).not_decoded is None
    texts = next(r for r in rows if r.get("kind") == "texts")
    texts["output"][0] += "x"
    assert verify(sealed(rows)).not_decoded
    with pytest.raises(InvalidTrace, match="not those of its tokens"):
        verify(sealed(rows), tokenizer_of)
    asked = {r["asked"]["id"]: r for r in rows if r.get("kind") == "request"}
    tokens = [
        asked[texts["request"]]["tokens"],
        [s[2] for r in rows if "step" in r for s in r["sampled"] if s[1] == texts["request"]],
    ]
    # converted where it was not
    texts["prompt"], texts["output"] = [[f"⟨{i}⟩" for i in ids] for ids in tokens]
    assert verify(sealed(rows), tokenizer_of).not_decoded is None


def test_what_is_believed_is_one_list_on_the_console_and_in_the_docs(made: dict[str, Rows]) -> None:
    rows = [
        f"| {fact} | {enforced} | {believed or 'nothing'} |"
        for fact, (enforced, believed) in OTHERS.items()
    ]
    assert "\n".join(rows) in (Path(__file__).parents[2] / "docs" / "checks.md").read_text(
        encoding="utf-8"
    )
    told = [*findings(verify(sealed(made["pressure"])))]
    assert [
        f"    {fact}: {believed}" for fact, (_, believed) in OTHERS.items() if believed
    ] == told[-len([b for _, b in OTHERS.values() if b]) :]
    facts = {word for fact in OTHERS for word in re.findall(r"\w+", fact)}
    assert {*StepEvent._fields, *(f.name for f in fields(Header))} - {"more"} <= facts


def test_a_run_that_breaks_a_rule_is_not_called_valid(
    made: dict[str, Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A larger pool, the reasons unrecorded: the exit code says it, and so does the first line;
    what is left to believe is counted.
    """
    rows, path = copy.deepcopy(made["pressure"]), tmp_path / "run.jsonl"
    for forge, code in ((lambda rows: None, 0), (larger_pool, 1)):
        forge(rows)
        path.write_text("\n".join(sealed(rows)) + "\n", encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["check", str(path)])
        assert ended.value.code == code
    true, forged = capsys.readouterr().out.split("run.jsonl can be followed")[1:]
    assert "not all of it can be true" not in true and "why a request waits" not in true
    assert (
        forged.startswith(", but not all of it can be true")
        and "In 45 of 78 steps why a request waits" in forged
    )


def test_the_json_tells_every_sentence_of_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", str(TRACES / "one-request.jsonl")]
    with pytest.raises(SystemExit):
        main(command)
    told = capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit):
        main([*command, "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert told == ["one-request.jsonl is valid: 12 steps, 12 tokens, 1 request.", *found]
    assert any("taken on trust" in said for said in found)
    assert repr(check(TRACES / "one-request.jsonl")).splitlines() == found
