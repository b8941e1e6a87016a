"""A policy of one's own, which no product file knows: it runs, is saved, checked and drawn, with
and without being installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from core import Engine, EngineConfig, Trace, Workload
from core.cli.check import findings
from core.config import POLICIES
from core.errors import InvalidConfig, InvalidTrace, PolicyFailed
from core.policy import Capacity, LimitReached, Policy, RecordedPolicy, RequestView, register_policy
from core.proof.verify import CheckResult, verify
from core.scheduler.scheduler_state import WaitingQueue
from core.scheduler.state import RequestState
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.trace.file import lines_of
from core.workload.presets import PRESETS
from visualizer.documents.replay import replay
from visualizer.words.language import elsewhere
from visualizer.words.vocabulary import plain
from worlds.forging import sealed
from worlds.integrity import check_integrity
from worlds.most_blocks import MostBlocks
from worlds.small import SchedulerWorld, memory_engine, memory_trace, requests, world_of

ROWS = ((18, 12), (5, 12), (7, 12), (4, 12))
SHORT = {"max_num_seqs": 4, "max_num_batched_tokens": 24, "block_size": 4, "num_blocks": 12}


@pytest.fixture
def installed() -> Iterator[Policy]:
    yield register_policy("most-blocks", MostBlocks)
    del POLICIES["most-blocks"]


@pytest.fixture(scope="module")
def recorded() -> Trace:
    """Cache full, on its own model, which has to make room several times."""
    preset = PRESETS["kv-pressure"]
    engine = Engine.from_pretrained(preset.model, preset.config, device="cpu", policy=MostBlocks())
    trace = engine.run(preset.workload)
    assert sum(len(event.preempted) for event in trace.events) > 1
    return trace


def held_blocks(trace: Trace) -> Iterator[tuple[dict[str, int], list[str]]]:
    """Before each step: the blocks that each running request holds, and who is preempted in it."""
    held: dict[str, int] = {}
    for event in trace.events:
        if event.preempted:
            yield dict(held), [p.request for p in event.preempted]
        for change in event.kv.changes:
            held[change.request] = (
                0 if change.released else held.get(change.request, 0) + len(change.added)
            )


@pytest.mark.slow
def test_it_decides_and_every_text_is_as_if_alone(recorded):
    for held, preempted in held_blocks(recorded):
        for request in preempted:
            assert held.pop(request) >= max(held.values())
    preset = PRESETS["kv-pressure"]
    alone = Engine.from_pretrained(preset.model, policy="sequential", device="cpu").run(
        preset.workload
    )
    assert recorded.outputs == alone.outputs


def test_no_product_file_knows_it():
    own = Path(__file__).parents[1] / "worlds" / "most_blocks.py"
    assert len(own.read_text().splitlines()) <= 40
    product = [
        path
        for room in ("core", "visualizer", "assets/player", "assets/words")
        for path in Path(room).rglob("*.*")
    ]
    texts = [
        path.read_text(encoding="utf-8")
        for path in product
        if path.suffix in (".py", ".js", ".json", ".css", ".html")
    ]
    assert len(texts) > 200 and not [
        text for text in texts if "most-blocks" in text or "MostBlocks" in text
    ]


def checked(trace: Trace, place: Path) -> CheckResult:
    trace.save(place / "own.jsonl")
    return verify(lines_of(place / "own.jsonl"))


@pytest.mark.slow
def test_where_it_is_installed_its_decisions_are_taken_again(recorded, installed, tmp_path):
    found = checked(recorded, tmp_path)
    assert found.not_replayed is None and "policy most-blocks, and the same" in next(
        findings(found)
    )
    rows = [json.loads(line) for line in recorded.lines()]
    for row in rows:
        row.pop("crc", None)
    altered = next(row for row in rows if row.get("preempted"))
    altered["waiting"][2] = ["lanes", 0, 1, 6]
    with pytest.raises(InvalidTrace):
        verify(sealed(rows))


def test_where_it_is_not_installed_it_is_checked_by_the_rules_of_every_run(recorded, tmp_path):
    found = checked(recorded, tmp_path)
    assert (
        next(findings(found))
        == "Decisions: not taken again, as the policy most-blocks is not installed here; the rules"
        " that hold for every policy were followed."
    )
    assert found.proof_of("event.admitted, waiting, preempted, stalled") == "bounded"
    again = Trace.load(tmp_path / "own.jsonl")
    assert (
        isinstance(again.header.policy, RecordedPolicy)
        and again.header.policy.victim == "whoever holds most blocks"
    )
    with pytest.raises(InvalidConfig, match="most-blocks is not installed here"):
        memory_engine(again.header.policy).run(Workload(requests((3, 2))))
    assert replay(again)["captions"] == replay(recorded)["captions"]


@pytest.mark.parametrize("words", ["#", "Job #1 [or|and] more", "The [oldest|newest]"])
def test_its_sentence_is_drawn_as_it_was_written(recorded, words):
    header = recorded.header
    policy = replace(header.policy, victim=words)
    trace = replace(recorded, header=replace(header, config=replace(header.config, policy=policy)))
    made = [replay(trace), *elsewhere(lambda: replay(trace)).values()]
    step = next(index for index, event in enumerate(trace.events) if event.preempted)
    for told, gives_way in zip(made, ("gives way", "weicht"), strict=True):
        assert any(f" {words} {gives_way}: " in plain(w) for w in told["captions"][step]["why"])


def test_it_is_drawn_with_the_sentence_that_it_brings(recorded):
    step = next(index for index, event in enumerate(recorded.events) if event.preempted)
    english = replay(recorded)["captions"][step]["why"]
    german = elsewhere(lambda: replay(recorded)["captions"])["de"][step]["why"]
    assert any(
        "to go on. Whoever holds most blocks gives way: it loses lane" in plain(why)
        for why in english
    )
    assert any(
        "könnten. Whoever holds most blocks weicht: Sie verliert Spur" in plain(why)
        for why in german
    )


def test_a_simulated_engine_runs_it_too(installed, tmp_path):
    cost = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))
    work = Workload(requests(*ROWS))
    for policy in (MostBlocks(), "most-blocks"):
        trace = SimulatedEngine(cost, EngineConfig(**SHORT), policy=policy).run(work)
        assert (
            any(event.preempted for event in trace.events)
            and checked(trace, tmp_path).not_replayed is None
        )
        for held, (request,) in held_blocks(trace):
            assert held[request] == max(held.values())


@dataclass(frozen=True, kw_only=True)
class AtMost(Policy):
    """At most so many run that still compute their prompts."""

    name: str = "at-most"
    prompts: int = 1

    def admit(self, request: RequestView, capacity: Capacity) -> LimitReached | None:
        if sum(not r.is_decoding for r in capacity.running) >= self.prompts:
            return LimitReached("prefill", 0, 1, self.prompts)
        return super().admit(request, capacity)


def test_fields_of_its_own_are_on_record_and_survive_where_it_is_not_installed(tmp_path):
    trace = memory_engine(AtMost(prompts=2), **SHORT | {"num_blocks": 40}).run(
        Workload(requests(*ROWS))
    )
    trace.save(tmp_path / "a.jsonl")
    Trace.load(tmp_path / "a.jsonl").save(tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    register_policy("at-most", AtMost)
    try:
        assert Trace.load(tmp_path / "b.jsonl").header.policy == AtMost(prompts=2)
        assert checked(trace, tmp_path).not_replayed is None
    finally:
        del POLICIES["at-most"]


def test_what_it_registers_has_a_name_of_its_own(installed):
    assert EngineConfig("most-blocks").policy == installed == MostBlocks()
    assert (
        register_policy("most-blocks", replace(MostBlocks(), watermark=0.1)).watermark == 0.1
    )  # as a notebook runs a cell again
    with pytest.raises(InvalidConfig, match="a policy continuous already"):
        register_policy("continuous", MostBlocks)
    with pytest.raises(InvalidConfig, match="is a word"):
        register_policy("most blocks", MostBlocks)


def test_a_rule_of_its_own_has_to_say_what_it_is():
    for own in (
        type("V", (Policy,), {"select_victim": MostBlocks.select_victim}),
        type("O", (Policy,), {"order": len}),
    ):
        with pytest.raises(InvalidConfig, match="has to say in words"):
            own(name="silent")


def test_either_all_requests_have_a_key_or_none():
    def ordered(*keys: object) -> WaitingQueue:
        given = iter(keys)
        own = type("O", (Policy,), {"order": lambda self, request: next(given)})
        queue = WaitingQueue(own(name="mixed", order_by="something"))
        for request in requests(*[(1, 1)] * len(keys)):
            queue.add(RequestState(request, (1,)))
        return queue

    assert [ordered(2, 1).head().id, ordered(None, None).head().id] == ["r1", "r0"]
    with pytest.raises(PolicyFailed, match="orders request 'r1' by None and those before it by a"):
        ordered("a", None)
    with pytest.raises(
        PolicyFailed, match="orders request 'r2' by 'a' and those before it by None"
    ):
        ordered(None, None, "a")
    # also where both could be compared with who is next
    for keys in (((1, "a"), (2, 3), (2, "x")), ((1, "a"), (2, 3), (3, 0), (2, "x"))):
        with pytest.raises(PolicyFailed, match=r"by \(2, 'x'\), which cannot be compared"):
            ordered(*keys)


def test_who_joins_the_queue_again_is_ordered_anew():
    """A request that is put back before anyone has asked who is next: its old key is forgotten."""

    def queue(order) -> tuple[WaitingQueue, RequestState, RequestState]:
        own = type("O", (Policy,), {"order": order})
        queue = WaitingQueue(own(name="anew", order_by="something", requeue=True))
        short, long = (RequestState(r, (1,) * 2) for r in requests((2, 20), (2, 20)))
        queue.add(short)
        queue.remove(short)
        short.token_ids += [1] * 9
        queue.add(long)
        return queue, short, long

    fewest, short, long = queue(lambda self, request: request.num_tokens)
    fewest.put_back(short)
    assert fewest.head() is long
    changing, short, long = queue(lambda self, request: "x" if request.num_tokens > 9 else 0)
    with pytest.raises(PolicyFailed, match="orders request 'r0' by 'x', which cannot be compared"):
        changing.put_back(short)
    assert list(changing) == [long]


def test_only_who_overtook_a_request_since_it_joined_again_counts_towards_its_turn():
    prompts = {"r0": 5, "r1": 6, "r2": 1, "r3": 1, "r4": 1}
    own = type("O", (Policy,), {"order": lambda self, request: prompts[request.id]})
    queue = WaitingQueue(own(name="aged", order_by="something", requeue=True, aging=2))
    first, second, *others = (RequestState(r, (1,)) for r in requests(*[(1, 1)] * 5))
    queue.add(first)
    queue.remove(first)
    queue.add(second)
    queue.put_back(first)
    for overtakes, state in enumerate(others):
        queue.add(state)
        assert queue.head() is (state if overtakes < 2 else second)
        queue.remove(state)
    queue.remove(second)
    queue.add(others[0])  # the first joined again before three that overtook it
    assert queue.head() is first
    queue.remove(first)
    queue.put_back(first)  # and after whom nobody has left
    assert queue.head() is others[0]


@pytest.mark.parametrize(
    ("base", "changed"),
    [
        ("transformers", {"requeue": False}),
        ("continuous", {"preemption": "after"}),
        ("continuous", {"preemption": "after", "requeue": True}),
        ("continuous", {"preemption": "after", "victim": "blocked"}),
    ],
)
def test_who_passes_over_some_may_let_anybody_give_way_and_join_again(base, changed):
    policy = replace(POLICIES[base], name="varied", **changed)
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 8, "block_size": 2}
    for rows in (
        ((7, 4), (2, 1), (6, 6), (8, 3), (1, 5)),
        ((9, 3), (1, 5), (4, 3), (1, 4), (7, 6)),
    ):
        trace = memory_trace(*rows, policy=policy, num_blocks=10, **limits)
        assert Trace.from_lines(trace.lines()).events == trace.events
        world_of(policy, rows, 10, **limits).run()  # which checks itself after each step


# -- answers that cannot be followed ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Strange(Policy):
    name: str = "strange"
    victim: str = "somebody"
    order_by: str = "something"


def test_it_cannot_wave_through_what_has_no_room():
    class Open(Strange):
        def admit(self, request: RequestView, capacity: Capacity) -> None:
            return None

    for layout in ("packed", "padded", "split"):
        limits = SHORT | {"max_num_seqs": 2, "max_num_batched_tokens": 16}
        world = SchedulerWorld(
            EngineConfig(Open(layout=layout), **limits), requests(*ROWS), 20
        ).run()
        passes = [p for step in world.steps for p in step.passes]
        assert max(map(len, passes)) <= 2 and len(world.finish_steps) == 4
        # nobody joins once the budget is spent
        assert all(num_tokens for p in passes for _, num_tokens in p)


@dataclass(frozen=True, kw_only=True)
class TwoAtOnce(Policy):
    name: str = "two-at-once"

    def admit(self, request: RequestView, capacity: Capacity) -> LimitReached | None:
        return super().admit(request, capacity) or (
            LimitReached("policy") if len(capacity.running) >= 2 else None
        )


@pytest.mark.slow
def test_a_limit_of_its_own_is_told_as_the_policys(tmp_path):
    preset = PRESETS["kv-pressure"]
    trace = Engine.from_pretrained(
        preset.model, preset.config, device="cpu", policy=TwoAtOnce()
    ).run(preset.workload)
    trace.save(tmp_path / "two.jsonl")
    again = Trace.load(tmp_path / "two.jsonl")
    assert max(len(event.segments) for event in again.events) == 2
    step = next(
        index
        for index, event in enumerate(again.events)
        if event.waiting.why == LimitReached("policy")
    )
    said = replay(again)["captions"][step]
    assert (
        said["waits"] == "the policy lets no request join yet"
        and said["bound"] == "Limited by: the policy"
    )


def failing(**rules) -> SchedulerWorld:
    return world_of(
        type("Own", (Strange,), rules)(),
        ROWS,
        12,
        **{k: v for k, v in SHORT.items() if k != "num_blocks"},
    )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"admit": lambda self, request, capacity: LimitReached("margin", 0, 1, 12)},
            "The policy strange lets nobody go on: 0 run and 4 wait",
        ),
        (
            {"admit": lambda self, request, capacity: "no"},
            "strange answers `admit` for 'r0' with 'no'; it must be None to let it join",
        ),
        (
            {"admit": lambda self, request, capacity: LimitReached("mood")},
            "with limit 'mood'; it must be None to let it join, or a limit such as LimitReached",
        ),
        (
            {"admit": lambda self, request, capacity: LimitReached("none")},
            "with limit 'none'; it must be None to let it join",
        ),
        (
            {"select_victim": lambda self, candidates: None},
            "strange lets None give way, which is none of the requests that can",
        ),
        (
            {"order": lambda self, request: "x" if request.id == "r1" else 0},
            "orders request 'r1' by 'x', which cannot be compared",
        ),
    ],
)
def test_an_answer_that_cannot_be_followed_is_refused_in_one_sentence(rules, message):
    with pytest.raises(PolicyFailed, match=message):
        failing(**rules).run()


def test_a_request_that_cannot_be_put_in_order_changes_nothing():
    world = failing(order=lambda self, request: "x" if request.id == "r1" else 0)
    with pytest.raises(PolicyFailed):
        world.step()
    assert list(world.scheduler.requests) == ["r0"]
    check_integrity(world.scheduler)
    world.pending.clear()
    assert list(world.run().finish_steps) == ["r0"]


def test_nobody_gives_way_for_ever():
    def farthest(self, candidates):
        return max(candidates, key=lambda request: (request.num_computed_tokens, request.id))

    policy = type("Farthest", (Strange,), {"select_victim": farthest})(
        reserve="chunk", preemption="idle"
    )
    config = EngineConfig(
        policy, max_num_seqs=2, max_num_batched_tokens=16, block_size=4, prefill_first=True
    )
    world = SchedulerWorld(config, requests((30, 19), (22, 16), (8, 13), (10, 18)), 15)
    with pytest.raises(
        PolicyFailed,
        match="Under the policy strange requests have given way .* times since any got a token",
    ):
        world.run(limit=10_000)


def test_the_policy_in_the_docs_runs(monkeypatch, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(code, "policies.md", "exec", dont_inherit=True), {"__name__": "docs_policies"})
        assert verify(lines_of(tmp_path / "most-blocks.jsonl")).not_replayed is None
    finally:
        del POLICIES["most-blocks"]


def capacity(**facts: Any) -> Capacity:
    """Nobody runs, and 8 tokens of the request, which are two blocks, are in the prefix cache."""
    none: dict[str, Any] = {"running": (), "held": (), "wave": 0, "num_lanes": 2}
    budget = {"tokens_left": 32, "token_budget": 32, "cuts_prompts": True}
    blocks = {"blocks_free": 9, "num_blocks": 9, "block_size": 4, "cached_blocks": 2}
    return Capacity(**none | budget | blocks | {"is_short": False, "recovering": False} | facts)


def sixteen() -> RequestState:
    """A request of 16 tokens."""
    (asked,) = requests((16, 1))
    return RequestState(asked, asked.prompt_token_ids or (), 0)


def test_what_a_request_lacks_does_not_count_what_is_cached() -> None:
    """Four are left of the budget: they need a third block."""

    def lacks(tokens_left: int, blocks_free: int) -> LimitReached | None:
        return capacity(tokens_left=tokens_left, blocks_free=blocks_free).lacks(sixteen())

    assert lacks(4, 1) is None
    assert lacks(4, 0) == LimitReached("blocks", 0, 1, 9)
    assert lacks(0, 1) == LimitReached("budget", 0, 8, 32)


@pytest.mark.parametrize(
    ("reserve", "left", "need"), [("chunk", 32, 2), ("chunk", 4, 1), ("prompt", 4, 2)]
)
def test_what_is_reserved_does_not_count_what_is_cached(reserve, left, need) -> None:
    """The first chunk is what the budget leaves of the 8 tokens that are not cached."""
    policy = Policy(name="mine", reserve=reserve)

    def why(blocks_free: int) -> LimitReached | None:
        return policy.admit(sixteen(), capacity(tokens_left=left, blocks_free=blocks_free))

    assert why(need) is None
    assert why(need - 1) == LimitReached("blocks", need - 1, need, 9)


def test_a_watermark_is_a_share_of_all_blocks_and_of_the_null_block_of_vllm() -> None:
    """A tenth of 9 blocks and one more is one block, which is kept while somebody runs."""
    policy, running = Policy(name="mine", watermark=0.1), (sixteen(),)
    assert policy.admit(sixteen(), capacity(running=running, blocks_free=3)) is None
    assert policy.admit(sixteen(), capacity(running=running, blocks_free=2)) == LimitReached(
        "blocks", 1, 2, 9
    )
    assert policy.admit(sixteen(), capacity(blocks_free=2)) is None
