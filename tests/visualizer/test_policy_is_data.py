"""A policy is data: one entry in the table runs, is recorded, checked, told, compared and drawn; no
code asks a policy's name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from core import Trace, Workload
from core.config import POLICIES, EngineConfig
from core.measure.compare import compare, engine_contender
from core.proof.verify import verify
from visualizer.charts.theme import contender_hues
from visualizer.words.captions import captions
from worlds.small import memory_engine, requests

ROOT = Path(__file__).parents[2]
LAYOUTS = ("packed", "padded", "split")  # "split" is a layout and a policy
ROWS = ((9, 6), (9, 6), (3, 4), (12, 3, 2), (2, 5, 3), (7, 4, 4))


@pytest.fixture
def hasty(monkeypatch):
    """A policy that nobody has heard of."""
    made = replace(
        POLICIES["continuous"],
        name="hasty",
        shows="for this test",
        order_by="shortest",
        aging=2,
        one_prefill=True,
    )
    monkeypatch.setitem(POLICIES, made.name, made)
    return made


def test_a_new_policy_runs_is_recorded_checked_and_told(hasty, tmp_path) -> None:
    engine = memory_engine(
        "hasty", max_num_seqs=2, max_num_batched_tokens=8, block_size=4, num_blocks=6
    )
    trace = engine.run(Workload(requests(*ROWS), name="small"))
    assert trace.header.policy == hasty and trace.config.policy.name == "hasty"
    trace.save(tmp_path / "t.jsonl")
    loaded = Trace.load(tmp_path / "t.jsonl")
    assert verify(loaded.lines()).not_replayed is None
    told = captions(loaded)
    assert len(told) == len(trace.events) and all(c["say"] and c["why"] for c in told)
    admitted = [a.request for e in trace.events for a in e.admitted]
    assert admitted.index("r2") < admitted.index("r0")


@pytest.mark.slow
def test_a_new_policy_is_compared_and_has_a_colour(hasty) -> None:
    limits = EngineConfig(max_num_seqs=2, max_num_batched_tokens=8, prefix_caching=True)
    workload = Workload(requests(*ROWS))
    names = ("static", "continuous", "hasty")
    engines = [memory_engine(**limits.under(name).to_json()) for name in names]
    result = compare([engine_contender(engine, workload) for engine in engines], repeats=2)
    assert not result.differences and result.names == list(names)
    assert result.about["hasty"]["prefix_caching"] and not result.about["static"]["prefix_caching"]
    assert len(set(contender_hues(names).values())) == 3


def test_no_code_asks_the_name_of_a_policy() -> None:
    names = "|".join(re.escape(name) for name in POLICIES if name not in LAYOUTS)
    asked = re.compile(rf"""[!=]==?\s*["']({names})["']|["']({names})["']\s*[!=]==?""")
    assert asked.search('if config.policy == "continuous":') and asked.search('"static" === policy')
    sources = [
        p
        for folder in ("core", "visualizer", "assets/player")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".py", ".js")
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asked.search(line)
    ]
    assert found == []
