"""Sentences with computed numbers about which contender was faster, in how many rounds, why, and how sure that is. Knows no page.

A verdict counts rounds: each divides two times of the same round. It is decided where a fair coin would split the rounds as one-sidedly in
at most one of ten tries (two-sided sign test).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from core.measure.compare import Comparison, Verdict
from core.measure.difference import Difference, Part
from core.measure.environment import too_busy
from core.trace.phrases import setting
from visualizer.words.findings import pair, percent, seconds, times

PARTS = {
    "finished": "steps with lanes held by finished requests",
    "idle": "steps with empty lanes",
    "work": "steps of work",
    "passes": "passes beyond one a step",
    "padding": "padding",
    "tokens": "tokens computed",
    "kv": "cached positions read",
    "mixed": "steps that mix prefill and decode",
    "rest": "everything else",
}


def total_time(comparison: Comparison) -> str:
    """Who was faster, by how much and in how many rounds; the same under other limits; then the fastest of all, where that is a third."""
    base, mine = pair(comparison)
    walls = {n: statistics.median(comparison.walls[n]) for n in comparison.names}
    if base == mine:
        return f"{mine} took {seconds(walls[mine])}."
    numbers = f"{mine} took {seconds(walls[mine])}, {base} {seconds(walls[base])}"
    found = comparison.verdict(mine)
    if _is_open(found):
        said = f"{numbers}: faster in {found.faster} of {found.rounds} rounds ({_range(found.ratios)}), so nobody wins."
    elif found.median >= 1:
        said = f"{numbers}: {times(found.median)} times as fast{_rounds(found.faster, found.rounds, found.ratios)}."
    else:
        rounds = f"slower in {found.slower} of {found.rounds} rounds, " if found.rounds > 1 else "in a single run of each "
        said = f"{mine} loses here: it took {seconds(walls[mine])}, {base} {seconds(walls[base])}; {rounds}{_range(found.ratios)} times as fast."
    others = [_other_limits(comparison, name, mine) for name in comparison.names if name != mine]
    fastest = comparison.fastest
    if fastest not in (base, mine) and not _changed(comparison, fastest, mine):
        others.append(_fastest(comparison, fastest, mine, walls[fastest]))
    return " ".join([said, *filter(None, others)])


def racing(comparison: Comparison) -> list[str]:
    """Who is shown first: the pair, and the second of it under other limits."""
    base, mine = pair(comparison)
    return list(dict.fromkeys([base, mine, *(n for n in comparison.names if n != mine and _changed(comparison, n, mine))]))


def _is_open(found: Verdict) -> bool:
    """Whether the rounds neither agree nor decide."""
    return found.rounds > 1 and not found.agrees and not found.decided


def _changed(comparison: Comparison, name: str, mine: str) -> dict[str, tuple[Any, Any]]:
    """Limits that another contender of the same policy has otherwise: from, to. Empty where the policy differs or is not known."""
    about, own = (dict(comparison.about.get(n, {})) for n in (name, mine))
    if "policy" not in own or about.get("policy") != own["policy"]:
        return {}
    return {key: (own[key], about.get(key)) for key in own if about.get(key) != own[key]}


def _other_limits(comparison: Comparison, name: str, mine: str) -> str:
    """What the same policy does under other limits, and what that says of a loss."""
    changed = _changed(comparison, name, mine)
    if not changed:
        return ""
    limits = " and ".join(f"{setting(key, to)} instead of {before}" for key, (before, to) in changed.items())
    found, own = comparison.verdict(name), comparison.verdict(mine)
    rounds = f"{found.faster} of {found.rounds} rounds ({_range(found.ratios)})"
    if _is_open(found):
        how = f"it ties with {comparison.baseline}, faster in {rounds}"
    else:
        how = f"it is {'faster' if found.median > 1 else 'slower'} than {comparison.baseline}, " + (
            f"in {rounds}" if found.median > 1 else f"in {found.slower} of {found.rounds} rounds ({_range(found.ratios)})"
        )
    spared = own.slower > own.faster and not _is_open(own) and (_is_open(found) or found.faster > found.slower)
    loss = ", so the loss is that limit's and not the policy's" if spared else ""
    return f"With {limits} {how}{loss}."


def _fastest(comparison: Comparison, fastest: str, mine: str, wall: float) -> str:
    found = comparison.verdict(fastest, against=mine)
    tie = ", which is a tie" if _is_open(found) else ""
    return f"The fastest is {fastest} with {seconds(wall)}, ahead of {mine} in {found.faster} of {found.rounds} rounds{tie}."


def sure(comparison: Comparison, environment: Mapping[str, Any]) -> str:
    """What limits a verdict, in one line: rounds, chance, the machine, and what the ratio is."""
    base, mine = pair(comparison)
    found = comparison.verdict(mine)
    said = []
    if base != mine:
        if found.rounds == 1:
            said.append("A single run of each says nothing about spread")
        else:
            most = max(found.faster, found.slower)
            chance = "in most tries" if found.chance > 0.5 else f"in 1 of {1 / found.chance:.0f} tries"
            decided = (
                "so it is decided" if found.decided else "too few rounds to decide" if found.agrees else "so nothing is decided"
            )
            said.append(
                f"{most} of {found.rounds} rounds agree; by chance alone that happens {chance}, {decided} (sign test, 1 in 10 or rarer)"
            )
        quotient = statistics.median(comparison.walls[base]) / statistics.median(comparison.walls[mine])
        if found.rounds > 1 and times(quotient) != times(found.median):
            said.append(
                f"The ratio, {times(found.median)}, is the median of the rounds' own; the two median times divided give {times(quotient)}"
            )
    load, cpus = environment.get("load_average"), environment.get("cpus")
    if load is not None:
        busy = too_busy(load, cpus)
        machine = f"The machine was {'busy' if busy else 'quiet'} (load {load:g} on {cpus} CPU{'' if cpus == 1 else 's'})"
        said.append(machine + (", so these times are not those of a quiet one" if busy else ""))
    said.append("Another machine or model gives other numbers")
    return f"{'. '.join(said)}."


def method(comparison: Comparison) -> str:
    """How it was measured, which run of each is raced, and whether tokens were drawn."""
    count = len(comparison.walls[comparison.baseline])
    runs = "one run of each" if count == 1 else f"{count} runs of each, in rotated order"
    shown = [
        f"round {comparison.shown[n]} of {n}" for n in comparison.names if n in comparison.shown and comparison.runs[n].trace
    ]
    race = (
        f"; the race shows the run nearest to each median, from its first step on: {', '.join(shown)}"
        if count > 1 and shown
        else ""
    )
    traces = [run.trace for run in comparison.runs.values() if run.trace is not None]
    greedy = traces and all(not request.sampling.temperature for trace in traces for request in trace.workload)
    everybody = " Everybody chooses the likeliest token." if greedy else ""
    return f"After a warm-up, {runs}; setup and teardown are not in these times{race}.{everybody}"


def told(found: Difference) -> tuple[list[Part], list[Part]]:
    """The parts that are named one by one, the largest first: at most three with the difference and two against it. All others are the rest."""
    least = max(0.05 * abs(found.seconds), 0.005 * max(found.before_s, found.after_s))
    large = sorted((p for p in found.parts if p.name != "rest" and abs(p.seconds) >= least), key=lambda p: -abs(p.seconds))
    alike = [(p.seconds < 0) == (found.seconds < 0) for p in large]
    return [p for p, a in zip(large, alike, strict=True) if a][:3], [p for p, a in zip(large, alike, strict=True) if not a][:2]


def difference(found: Difference, base: str, mine: str) -> str:
    """The largest parts of a sum, those against it, and what is left."""
    with_it, against = (list(map(_part, parts)) for parts in told(found))
    whole = found.seconds
    rest = whole - sum(p.seconds for side in told(found) for p in side)
    (with_it if (rest < 0) == (whole < 0) else against).append(f"{_change(rest)} for everything else")
    parts = ", but ".join(", ".join(side) for side in (with_it, against) if side)
    return (
        f"{mine} took {_change(whole)} than {base}: {parts}. Costs are fitted to the passes of both runs; "
        f"on a typical pass the fit is off by {percent(found.error)}."
    )


def _part(part: Part) -> str:
    counted = counts(part)
    return f"{_change(part.seconds)} for {PARTS[part.name]}{counted and f' ({counted})'}"


def counts(part: Part) -> str:
    """What was counted in the two runs, with a decimal where the change would not be seen without; empty for times."""
    if part.before is None or part.after is None:
        return ""
    digits = int(part.before != part.after and round(part.before) == round(part.after))
    return f"{part.before:,.{digits}f} → {part.after:,.{digits}f}"


def _change(value: float) -> str:
    return f"{seconds(abs(value))} {'more' if value > 0 else 'less'}"


def load(data: Mapping[str, Any]) -> str:
    """TTFT p99 and finished requests a second, of the first two policies, at the highest rate not above the capacity."""
    points: Sequence[Mapping[str, Any]] = data["points"]
    names = list(dict.fromkeys(p["policy"] for p in points))
    top = data["capacity_requests_per_s"] or max(p["rate"] for p in points)
    rate = max((p["rate"] for p in points if p["rate"] <= top * 1.001), default=points[0]["rate"])
    at = {p["policy"]: p["numbers"] for p in points if p["rate"] == rate}
    told = [f"with {n} within {_wait(at[n])}, and {at[n]['requests_per_s'] or 0:.3g} finish" for n in names if n in at]
    return f"Of {rate:.3g} requests a second, 99 of 100 get their first token {'; '.join(told)}."


def _wait(numbers: Mapping[str, Any]) -> str:
    ttft = numbers["ttft_s"]
    if ttft["p99"] is None:
        return "never"
    return f"{'no less than ' if ttft.get('left_out') else ''}{seconds(ttft['p99'])}"


def _rounds(count: int, rounds: int, ratios: Sequence[float]) -> str:
    return " in a single run of each" if rounds == 1 else f" in {count} of {rounds} rounds ({_range(ratios)})"


def _range(ratios: Sequence[float]) -> str:
    low, high = times(min(ratios)), times(max(ratios))
    return low if low == high else f"{low} to {high}"
