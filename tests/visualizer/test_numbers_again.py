"""The numbers on the page, computed again from the lines of the recorded files by a few plain
lines: not by our metrics, fold or reader.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core import Workload
from core.account.metrics import metrics
from core.config import POLICIES
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.trace import Texts, Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED, document, load
from visualizer.documents.replay import replay
from visualizer.words.findings import totals
from worlds import small
from worlds.asynchronous import real_run

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "js" / "numbers.js"
RUNS = sorted(TRACES.rglob("*.jsonl"))
RACED = sorted(RECORDED.glob("*/*.jsonl.gz"))
SPECULATION = Path(__file__).parents[1] / "data" / "vllm-0.32-speculation.raw.jsonl.gz"
COMPARISONS = sorted(path.parent for path in RECORDED.glob("*/comparison.json"))


def cut(policy: str) -> Trace:
    """Left after its ninth step: some wait, some run, one will never come; two were cancelled."""
    engine = small.memory_engine(
        policy, max_num_seqs=3, max_num_batched_tokens=9, block_size=4, num_blocks=8
    )
    asked = [small.request(f"r{i}", 1 + 2 * i % 9, 2 + i, i) for i in range(8)]
    for event in engine.stream(Workload([*asked, small.request("late", 3, 3, 50)])):
        if event.step == 3:
            engine.cancel("r0"), engine.cancel("r5")
        if event.step == 9:
            break
    return with_texts(engine.trace)


def before_any_token() -> Trace:
    """Cut in the middle of its only prompt."""
    engine = small.memory_engine(
        "continuous", max_num_seqs=1, max_num_batched_tokens=4, block_size=4
    )
    next(iter(engine.stream(Workload([small.request("a", 30, 5), small.request("b", 3, 3)]))))
    return with_texts(engine.trace)


def with_texts(trace: Trace) -> Trace:
    """A model that only remembers has no texts."""
    sides = (
        {r: [f"{i} " for i in ids] for r, ids in side.items()}
        for side in (trace.prompts, trace.outputs)
    )
    trace.recorded_texts = Texts(*sides)
    return trace


AWKWARD: dict[str, Callable[[], Trace]] = {
    **{f"{policy}, cut": partial(cut, policy) for policy in POLICIES},
    **{
        f"{policy}, launched ahead": partial(real_run, policy, 1)
        for policy in POLICIES
        if POLICIES[policy].layout != "split"
    },
    "speculation": lambda: to_trace(read_raw([SPECULATION])[0]),
    "before any token": before_any_token,
}


class Raw:
    """A recorded run as its file has it. Times of requests by id; tokens: when each came, and in
    which step.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        header, *rows = map(json.loads, lines)
        self.lanes = 1 if header["batching"]["one_lane"] else header["config"]["max_num_seqs"]
        self.steps = [row for row in rows if "step" in row]
        asked = [row for row in rows if row.get("kind") == "request"]
        self.prompt = {
            r["asked"]["id"]: len(r.get("tokens") or r["asked"]["prompt_token_ids"]) for r in asked
        }
        self.most = {r["asked"]["id"]: r["asked"]["sampling"]["max_new_tokens"] for r in asked}
        self.arrived = {request: t for e in self.steps for request, t in e["arrived"]}
        self.ended = {request: reason for e in self.steps for request, reason in e["finished"]}
        self.tokens: dict[str, list[tuple[float, int]]] = {request: [] for request in self.arrived}
        self.began: dict[str, tuple[float, int]] = {}
        for index, e in enumerate(self.steps):
            for in_pass, request, *_ in e["segments"]:
                self.began.setdefault(request, (e["passes"][in_pass][5], index))
            for in_pass, request, *_ in e["sampled"]:
                self.tokens[request].append((e["passes"][in_pass][6], index))

    @property
    def ran(self) -> list[str]:
        """Who ended by itself."""
        return [r for r, reason in self.ended.items() if reason in ("length", "stop")]

    def waiting_since(self, has: Iterable[str]) -> list[float]:
        """How long each has waited that has arrived, has not ended, and has none of what the others
        have.
        """
        return [
            self.steps[-1]["t_end"] - t
            for r, t in self.arrived.items()
            if r not in self.ended and r not in set(has)
        ]

    @property
    def wall(self) -> float:
        return self.steps[-1]["t_end"] - min(self.steps[0]["t_start"], *self.arrived.values())

    @cached_property
    def held(self) -> Counter[str]:
        """Lane-steps by what was done in them."""
        counts: Counter[str] = Counter(total=self.lanes * len(self.steps))
        for e in self.steps:
            for_nothing = {request for request, _ in e["overrun"]}
            counts["useful"] += len({s[2] for s in e["segments"] if s[1] not in for_nothing})
            counts["finished"] += len({lane for p in e["passes"] for _, lane in p[7]})
            counts["overrun"] += len(for_nothing)
            counts["stalled"] += len(e["stalled"])
        return counts

    def gaps(self, request: str, until: int = 10**9) -> list[float]:
        times = [t for t, step in self.tokens[request] if step <= until]
        return [b - a for a, b in pairwise(times)]


def percentile(values: list[float], share: float) -> float:
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def shown(seconds: float) -> str:
    """As the page writes it, to its last digit."""
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{seconds * 1000:.{0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2}f} ms"
    )


def near(text: str, seconds: float) -> bool:
    """Whether a text is that number of seconds, up to half of its last digit and the rounding of
    both.
    """
    number, unit = text.replace("≥ ", "").split(" ")
    decimals = len(number.partition(".")[2])
    scale = 1000 if unit == "ms" else 1
    return abs(float(number) - seconds * scale) <= 0.5 * 10**-decimals + 2e-6 * scale and shown(
        seconds
    ).endswith(unit)


def spread(found: dict[str, Any], values: list[float], at_least: list[float]) -> None:
    assert found["count"] == len(values) and found["left_out"] == len(at_least)
    if values:
        values = [*values, *at_least]
        for name, number in (
            ("p50", percentile(values, 0.5)),
            ("p90", percentile(values, 0.9)),
            ("p99", percentile(values, 0.99)),
            ("max", max(values)),
            ("mean", statistics.fmean(values)),
        ):
            assert found[name] == pytest.approx(number, abs=2e-6), name


@pytest.mark.parametrize(
    "path", [*RUNS, *RACED], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_number_of_a_recorded_run(path: Path) -> None:
    raw = Raw(_lines(path))
    assert len(raw.ran) == len(raw.arrived) == len(raw.prompt), "a recorded run has ended whole"
    _judge(raw, Trace.from_lines(_lines(path)))


@pytest.mark.parametrize("made", AWKWARD)
def test_every_number_of_an_awkward_run(made: str) -> None:
    trace = AWKWARD[made]()
    _judge(Raw(trace.lines()), trace)


def _judge(raw: Raw, trace: Trace) -> None:
    """Compares what our metrics and the page's totals say with what the lines do."""
    found = metrics(trace)
    with_token = [r for r, tokens in raw.tokens.items() if tokens]
    firsts = [raw.tokens[r][0][0] - raw.arrived[r] for r in with_token]
    not_yet = raw.waiting_since(with_token)
    spread(found["ttft_s"], firsts, not_yet)
    spread(found["itl_s"], [gap for r in raw.tokens for gap in raw.gaps(r)], [])
    spread(found["tpot_s"], [statistics.fmean(raw.gaps(r)) for r in raw.ran if raw.gaps(r)], [])
    spread(
        found["e2e_s"],
        [raw.tokens[r][-1][0] - raw.arrived[r] for r in raw.ran],
        raw.waiting_since([]),
    )
    spread(
        found["queue_s"],
        [t - raw.arrived[r] for r, (t, _) in raw.began.items()],
        raw.waiting_since(raw.began),
    )
    output, prompt = sum(map(len, raw.tokens.values())), sum(raw.prompt[r] for r in with_token)
    passes = [p for e in raw.steps for p in e["passes"]]
    overrun = sum(rows for e in raw.steps for _, rows in e["overrun"])
    computed = sum(p[8] or p[1] * p[2] for p in passes)
    padding = computed - sum(p[3] for p in passes) + overrun
    counts = {
        "steps": len(raw.steps),
        "passes": len(passes),
        "requests": len(raw.arrived),
        "finished": len(raw.ran),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "preemptions": sum(len(e["preempted"]) for e in raw.steps),
        "cached_tokens": sum(n for e in raw.steps for _, n in e["kv"][3]),
        "overrun_rows": overrun,
        "positions": {"tokens": computed - padding, "padding": padding, "computed": computed},
        "kv_blocks": {"peak": max(e["kv"][0] for e in raw.steps), "total": raw.steps[0]["kv"][1]},
    }
    assert {name: found[name] for name in counts} == counts
    held = raw.held
    lane_steps = found["lane_steps"]
    assert (lane_steps["useful"], lane_steps["padding"]) == (
        held["useful"],
        held["finished"] + held["overrun"],
    )
    assert sum(lane_steps.values()) - lane_steps["total"] == lane_steps["total"] == held["total"]
    assert found["wall_s"] == pytest.approx(raw.wall, abs=2e-6)
    assert found["output_tok_s"] == pytest.approx(output / raw.wall, rel=1e-4)
    assert found["total_tok_s"] == pytest.approx((output + prompt) / raw.wall, rel=1e-4)
    assert found["kv_use"] == pytest.approx(
        statistics.fmean(e["kv"][0] / e["kv"][1] for e in raw.steps)
    )
    highest: dict[str, int] = {}
    again = 0
    for e in raw.steps:
        for _, request, _, _, start, length, end in e["segments"]:
            again += len(range(start, min(start + length, highest.get(request, 0))))
            highest[request] = max(highest.get(request, 0), end)
    if not any(e["drafts"] for e in raw.steps):
        assert found["tokens_recomputed"] == again
    parts = [sum(e["timings"][n] or 0 for e in raw.steps) for n in range(4)]
    inside = sum(e["t_end"] - e["t_start"] for e in raw.steps)
    by_part = found["time_s"]
    assert [by_part[n] or 0 for n in ("schedule", "prepare", "forward", "sample")] == pytest.approx(
        parts, abs=2e-6
    )
    host = sum(parts[:2]) if trace.header.is_asynchronous else 0  # beside the device's work
    assert by_part["other"] == pytest.approx(inside - sum(parts) + host, abs=2e-6)
    assert sum(value or 0 for value in by_part.values()) - host == pytest.approx(raw.wall, abs=1e-5)

    told = {total["name"]: total["value"] for total in totals(trace)}
    assert bool(told) == bool(output)
    if not told:
        return
    assert ("Preempted" in told) == bool(counts["preemptions"])
    if counts["preemptions"]:
        again = found["tokens_recomputed"]
        times, tokens = (
            "time" if counts["preemptions"] == 1 else "times",
            ("token" if again == 1 else "tokens"),
        )
        assert told["Preempted"].startswith(
            f"{counts['preemptions']:,} {times}, {again:,} {tokens} again, "
        )
    for name, values in (
        ("TTFT", [*firsts, *not_yet]),
        ("ITL", [gap for r in raw.tokens for gap in raw.gaps(r)]),
    ):
        if values:
            half, worst = told[name].split(", worst ")
            assert (
                half.startswith("≥ ")
                == worst.startswith("≥ ")
                == (name == "TTFT" and bool(not_yet))
            )
            assert near(half, percentile(values, 0.5)) and near(worst, max(values)), (
                name,
                told[name],
            )
    assert (
        abs(int(told["Output"].removesuffix(" tok/s").replace(",", "")) - output / raw.wall) <= 0.51
    )
    for name, share in (
        ("Lanes in use", held["useful"] / held["total"]),
        ("Padding", padding / computed),
    ):
        if name in told:
            assert abs(float(told[name].removesuffix(" %")) - 100 * share) <= 0.5 + 1e-9
            assert told[name] not in ("0 %", "100 %") or share in (
                0,
                1,
            ), f"{name}: {told[name]} is said of {share:.4f}"
        else:
            assert share == 0


def test_the_cards_and_the_lanes(tmp_path: Path) -> None:
    """Of every request at every tenth step, as the browser counts."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    files = [(path.name, Trace.from_lines(_lines(path))) for path in (*RUNS, *RACED)]
    files += [(name, made()) for name, made in AWKWARD.items()]
    for index, (_, trace) in enumerate(files):
        (tmp_path / f"{index}.json").write_text(json.dumps(replay(trace)), encoding="utf-8")
    paths = [str(tmp_path / f"{index}.json") for index in range(len(files))]
    done = subprocess.run([node, SCRIPT, *paths], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for (path, trace), line in zip(files, done.stdout.splitlines(), strict=True):
        raw, page = Raw(trace.lines()), json.loads(line)
        lanes = page["lanes"]
        assert lanes["wasted"] == raw.held["finished"] + raw.held["overrun"], path
        assert (lanes["stalled"], lanes["preempted"]) == (
            raw.held["stalled"],
            len({(e["step"], p[2]) for e in raw.steps for p in e["preempted"]}),
        )
        assert lanes["waiting"] == sum(e["waiting"][0] for e in raw.steps)
        for phase in ("prefill", "decode"):
            assert lanes[phase] == sum(
                len(
                    {
                        s[2]
                        for s in e["segments"]
                        if s[3] == phase and s[1] not in dict(e["overrun"])
                    }
                )
                for e in raw.steps
            ), path
        assert page["cards"][-1][0] == len(raw.steps) - 1
        for step, cards in page["cards"]:
            for request, card in cards.items():
                if request not in raw.began:
                    assert (
                        card["tokens"],
                        card["waited"],
                        card["ttft"],
                        card["tpot"],
                        card["gaps"],
                    ) == (0, None, None, None, [])
                    continue
                here = [t for t, at in raw.tokens[request] if at <= step]
                arrived, gaps = raw.arrived[request], raw.gaps(request, step)
                began, at = raw.began[request]
                assert (card["prompt"], card["tokens"], card["maxNew"]) == (
                    raw.prompt[request],
                    len(here),
                    raw.most[request],
                )
                assert card["preemptions"] == sum(
                    p[0] == request for e in raw.steps[: step + 1] for p in e["preempted"]
                )
                assert card["arrived"] == arrived
                assert card["gaps"] == pytest.approx(gaps, abs=1e-9), f"{path}, {request} at {step}"
                expected = {
                    "waited": began - arrived if at <= step else None,
                    "ttft": here[0] - arrived if here else None,
                }
                expected["tpot"] = statistics.fmean(gaps) if gaps else None
                assert {name: card[name] for name in expected} == pytest.approx(
                    expected, abs=1e-9
                ), f"{path}, {request} at {step}"


@pytest.mark.parametrize("folder", COMPARISONS, ids=lambda folder: folder.name)
def test_every_number_of_a_comparison(folder: Path) -> None:
    plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    made = document(load(folder))
    titles = [column["title"] for column in made["table"]["columns"]]
    rows = {row[0]: dict(zip(titles, row, strict=True)) for row in made["table"]["rows"]}
    base = plain["policies"][plain["names"][0]]["wall_s"]["runs"]
    for name, row in rows.items():
        walls = plain["policies"][name]["wall_s"]["runs"]
        assert _three(row["wall time"], statistics.median(walls)), (name, row)
        assert all(
            _three(text, wall)
            for text, wall in zip(
                row["min to max"].split(" to "), (min(walls), max(walls)), strict=True
            )
        )
        ratio = float(f"{statistics.median(base):.3g}") / float(
            f"{statistics.median(walls):.3g}"
        )  # as a reader divides what is shown
        assert abs(float(row["as fast"].removesuffix("×")) - ratio) <= 0.006
        if name not in plain["traces"]:
            continue
        raw = Raw(_lines(folder / plain["traces"][name]))
        passes = [p for e in raw.steps for p in e["passes"]]
        assert row["steps"] == f"{len(raw.steps):,}"
        assert _share(
            row["padding waste"], sum(p[4] for p in passes) / sum(p[1] * p[2] for p in passes)
        )
        assert _share(row["lane occupancy"], raw.held["useful"] / raw.held["total"])
        assert _share(row["KV use"], statistics.fmean(e["kv"][0] / e["kv"][1] for e in raw.steps))
        nearest = min(walls, key=lambda wall: abs(wall - statistics.median(walls)))
        assert raw.wall <= nearest + 1e-5, "a run is not longer than the stopwatch said"
    said = {figure["name"]: figure["finding"] for figure in made["figures"]}
    for name in plain["traces"]:
        raw = Raw(_lines(folder / plain["traces"][name]))
        wasted = 1 - raw.held["useful"] / raw.held["total"]
        for clause in said["lane_steps"].rstrip(".").split("; "):
            if clause.startswith(f"{name} wastes ") and " none " not in clause:
                share, total = clause.removeprefix(f"{name} wastes ").split(" of its ")
                assert (
                    _share(share, wasted)
                    and int(total.split(" ")[0].replace(",", "")) == raw.held["total"]
                )
        for clause in said["kv_use"].rstrip(".").split("; "):
            if clause.startswith(f"{name} uses "):
                peak, pool = max(e["kv"][0] for e in raw.steps), raw.steps[0]["kv"][1]
                assert clause.endswith(f"at most {peak:,} of {pool:,}")
        lost = sum(p[1] for e in raw.steps for p in e["preempted"])
        if "pressure" in said and lost:
            assert rows[name]["recomputed"] == f"{lost:,}", (
                "what was lost is what was computed again: the chart and the table agree"
            )


def _three(text: str, seconds: float) -> bool:
    """Whether a text of three digits is that number of seconds."""
    number, unit = text.split(" ")
    value = float(number) / (1000 if unit == "ms" else 1)
    return abs(value - seconds) <= 0.0051 * seconds


def _share(text: str, share: float) -> bool:
    number = text.removesuffix("%")
    return abs(float(number) - 100 * share) <= (0.051 if "." in number else 0.51)


def _lines(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode().splitlines()
