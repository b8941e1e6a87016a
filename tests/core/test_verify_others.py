"""What `check` finds odd, or refuses, in the traces of other engines, whose decisions are not taken again: reasons, drafts, and what is said to be absent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import InvalidTrace
from core.measure.verify import verify
from core.models.tokenizer import local_tokenizer
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace import file
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES

SPECULATION = Path(__file__).parents[1] / "data" / "vllm-0.32-speculation.raw.jsonl.gz"
PRIORITY = SPECULATION.parent / "vllm-http" / "priority-pressure.raw.jsonl.gz"
Rows = list[dict[str, Any]]


def rows_of(trace: Trace) -> Rows:
    return [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in trace.lines()]


@pytest.fixture(scope="module")
def made() -> dict[str, Rows]:
    traces = {"pressure": Trace.load(TRACES / "vllm-kv-pressure.jsonl")}
    traces |= {name: to_trace(read_raw([path])[0]) for name, path in (("drafts", SPECULATION), ("priority", PRIORITY))}
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


FORGED: dict[str, tuple[str, Callable[[Rows], Any], str]] = {
    "a reason with more free than there is": ("pressure", lambda r: first(r, lambda e: e["waiting"][2])["waiting"][2].__setitem__(1, 77), "reason has numbers"),
    "a reason of a limit that it does not have": ("pressure", lambda r: first(r, lambda e: e["waiting"][2])["waiting"][2].__setitem__(0, "recovery"), "reason has numbers"),
    "a reason that leaves a limit out": ("pressure", lambda r: first(r, lambda e: e["admitted"])["admitted"][0].__setitem__(2, ["blocks", 1, 1, 900]), "reason has numbers"),
    "held back by another limit than who waits": ("pressure", lambda r: first(r, lambda e: not e["waiting"][0])["budget"].__setitem__(4, "blocks"), "held back"),
    "a probability that nobody recorded": ("pressure", lambda r: first(r, lambda e: e["sampled"])["sampled"][0].__setitem__(3, -1.0), "although none were recorded"),
    "a part of a step that nobody recorded": ("pressure", lambda r: first(r, lambda e: True)["timings"].__setitem__(3, 1e-6), "that the header names"),
    "parts left out, and not said to be": ("pressure", lambda r: r[0].update(absent=[]), "that the header names"),
    "more drafts taken than tokens": ("drafts", lambda r: draft_of(r, 3).__setitem__(2, draft_of(r, 3)[2] ^ 1), "tokens in one pass"),
    "fewer drafts than positions for them": ("drafts", lambda r: draft_of(r, 3).__setitem__(1, 2), "does not have"),
    "drafts in the middle of a prompt": ("drafts", lambda r: (e := first(r, lambda e: e["segments"][0][5] > 2 and not e["drafts"]))["drafts"].append([e["segments"][0][1], 1, 1]), "does not have"),
    "more blocks free than there are left": ("priority", lambda r: (w := first(r, lambda e: e["waiting"][2] and e["waiting"][2][0] == "blocks")["waiting"][2]).__setitem__(1, w[1] + 1), "blocks that are free"),
    "a chunk told as a whole prompt": ("priority", lambda r: first(r, lambda e: e["admitted"])["admitted"][0].__setitem__(2, ["budget", 1, 2, r[0]["config"]["max_num_batched_tokens"]]), "blocks that are free"),
    "a prefix found twice": ("pressure", find_twice, "found twice"),
    "a block taken twice": ("pressure", lambda r: (c := first(r, lambda e: e["kv"][2])["kv"][2][0])[1].append(c[1][-1]), "one block twice"),
    "windows of a model without layers": ("pressure", lambda r: r[0]["model"].update(layers=0, windows=[4]), "0 layers"),
    "a rank that there is not": ("pressure", lambda r: r[0]["engine"].update(rank=1), "none of 1 ranks"),
    "no ranks at all": ("pressure", lambda r: r[0]["engine"].update(ranks=0), "none of 0 ranks"),
}  # fmt: skip


REFUSED = {"a prefix found twice", "windows of a model without layers", "a rank that there is not", "no ranks at all"}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_recording_is_noticed(made: dict[str, Rows], forgery: str) -> None:
    """What cannot be followed is refused; all else is said of its step, and the run goes on to its end."""
    of, forge, said = FORGED[forgery]
    rows = copy.deepcopy(made[of])
    forge(rows)
    if forgery in REFUSED:
        with pytest.raises(InvalidTrace, match=said):
            verify(file.sealed(rows))
    else:
        found = verify(file.sealed(rows))
        assert said in found.warnings[0][1] and found.num_steps == verify(file.sealed(made[of])).num_steps


def test_after_a_warning_the_rules_go_on_from_the_events_as_they_are(made: dict[str, Rows]) -> None:
    """One step forged, and no other has a warning; what a file says of its warnings counts for nothing."""
    rows = copy.deepcopy(made["pressure"])
    forged = first(rows, lambda e: e["waiting"][2] and e["step"] > 40)
    forged["waiting"][0] += 1
    forged["warnings"] = ["Somebody else's words."]
    found = verify(file.sealed(rows))
    assert found.warnings == (
        (forged["step"], f"The queue has a length of {forged['waiting'][0] - 1}, but the step says {forged['waiting'][0]}."),
    )
    assert [e.warnings for e in Trace.from_lines(file.sealed(rows)).events if e.warnings] == [(found.warnings[0][1],)]


def test_a_run_of_ours_has_no_warnings() -> None:
    rows = rows_of(Trace.load(TRACES / "three-short.jsonl"))
    first(rows, lambda e: True)["warnings"] = ["This is odd."]
    with pytest.raises(InvalidTrace, match="only steps of another engine may have warnings"):
        verify(file.sealed(rows))


def test_texts_are_decoded_again_where_the_tokenizer_is_here(made: dict[str, Rows]) -> None:
    rows = copy.deepcopy(made["pressure"])
    assert verify(file.sealed(rows), local_tokenizer).not_decoded is None
    texts = next(r for r in rows if r.get("kind") == "texts")
    texts["output"][0] += "x"
    assert verify(file.sealed(rows)).not_decoded
    with pytest.raises(InvalidTrace, match="not those of its tokens"):
        verify(file.sealed(rows), local_tokenizer)
    asked = {r["asked"]["id"]: r for r in rows if r.get("kind") == "request"}
    tokens = [
        asked[texts["request"]]["tokens"],
        [s[2] for r in rows if "step" in r for s in r["sampled"] if s[1] == texts["request"]],
    ]
    texts["prompt"], texts["output"] = [[f"⟨{i}⟩" for i in ids] for ids in tokens]  # converted where it was not
    assert verify(file.sealed(rows), local_tokenizer).not_decoded is None
