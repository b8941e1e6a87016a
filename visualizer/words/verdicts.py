"""Sentences about which contender was faster, in how many rounds, why, and how certain that is; and
about whether other engines make the same decisions, step by step.

A verdict counts rounds, in each of which two times of the same round are divided. It is decided if
a fair coin would be so one-sided in at most one of ten tries (two-sided sign test).
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from core.measure.compare import Comparison, Verdict, too_busy
from core.measure.difference import Contribution, Difference
from core.trace.divergence import Divergence, divergence
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.words.findings import (
    decision,
    divided,
    limit,
    listed,
    pair,
    percent,
    seconds,
    times,
    together,
)
from visualizer.words.language import COUNTS, t

PARTS = {
    "finished": "steps spent on lanes held by finished requests",
    "idle": "steps spent on empty lanes",
    "work": "steps of work",
    "passes": "passes beyond one a step",
    "padding": "padding",
    "tokens": "tokens computed",
    "kv": "cached positions read",
    "mixed": "steps that mix prefill and decode",
    "rest": "everything else",
}
TRUST = (
    "Taken on trust: everything said here, such as times, tokens, texts and machine: whoever passed"
    " the file on may have changed it."
)


def headline(comparison: Comparison, two: tuple[str, str] | None = None) -> str:
    """The main finding: how long the same requests take with each of two, or of the usual pair."""
    if others(comparison):
        return decisions(comparison)
    base, mine = two or pair(comparison)
    walls = {n: statistics.median(comparison.walls[n]) for n in (base, mine)}
    if base == mine:
        return t(
            "{requests}: done in {time} with {mine}.",
            requests=_requests(comparison),
            time=seconds(walls[mine]),
            mine=mine,
        )
    time, other = together(walls[mine], walls[base])
    found, longer = comparison.verdict(mine, against=base), walls[mine] - walls[base]
    if _is_disputed(found, longer):
        then = ", in {other} with {base}; the rounds and the medians disagree on which is faster"
    elif found.is_open:
        then = ", in {other} with {base}; the rounds do not say which is faster"
    elif time == other:
        then = ", and with {base} in the same time to a thousandth"
    else:
        how = ", later than in" if longer > 0 else " instead of"
        too_few = f"; {found.rounds} rounds are too few to decide"
        few = too_few if found.rounds > 1 and not found.decided else ""
        then = f"{how} {{other}} with {{base}}{few}"
    return t(
        f"{{requests}}: done in {{time}} with {{mine}}{then}.",
        requests=_requests(comparison),
        mine=mine,
        base=base,
        time=time,
        other=other,
    )


def pairs(comparison: Comparison) -> list[str]:
    """The same finding about every other two contenders that can race."""
    twos = [] if others(comparison) else combinations(comparison.traces, 2)
    return [headline(comparison, two) for two in twos if two != pair(comparison)]


def _requests(comparison: Comparison) -> str:
    """The requests of a comparison, as a subject of sentences; small numbers in words."""
    run = comparison.runs[pair(comparison)[1]]
    count = len(run.outputs) if run.trace is None else len(run.trace.asked)
    if count < 2:
        return t("The same request" if count else "The same requests")
    said = COUNTS["en"][count] if count < len(COUNTS["en"]) else f"{count:,}"
    return t("The same {count} requests", count=t(said))


def total_time(comparison: Comparison) -> str:
    """Which contender was faster, by how much, how often; under other limits; a fastest third."""
    base, mine = pair(comparison)
    walls = {n: statistics.median(comparison.walls[n]) for n in comparison.names}
    if base == mine:
        return t("{mine} took {time}.", mine=mine, time=seconds(walls[mine]))
    holes = {
        "mine": mine,
        "time": seconds(walls[mine]),
        "base": base,
        "other": seconds(walls[base]),
    }
    numbers = t("{mine} took {time}, {base} {other}", **holes)
    found = comparison.verdict(mine)
    ratios, ratio = _range(found.ratios), divided(walls[base], walls[mine])
    if found.is_open:
        said = numbers + t(
            f": faster in {found.faster} of {found.rounds} rounds ({{ratios}}), so neither wins.",
            ratios=ratios,
        )
    elif _is_disputed(found, walls[mine] - walls[base]):
        most = max(found.faster, found.slower)
        how = "faster" if found.faster > found.slower else "slower"
        said = numbers + t(
            f": {how} in {most} of {found.rounds} rounds ({{ratios}}), so rounds and medians"
            " disagree.",
            ratios=ratios,
        )
    elif found.faster >= found.slower:
        rounds = _rounds(found.faster, found.rounds, found.ratios)
        said = numbers + t(": {times} times as fast{rounds}.", times=times(ratio), rounds=rounds)
    else:
        rounds = t(
            f"slower in {found.slower} of {found.rounds} rounds, "
            if found.rounds > 1
            else "in a single run of each "
        )
        said = t("{mine} loses here: it took {time}, {base} {other}; ", **holes)
        said += t("{rounds}{ratios} times as fast.", rounds=rounds, ratios=ratios)
    others = [
        _other_limits(comparison, name, mine)
        for name in comparison.names
        if name not in (base, mine)
    ]
    fastest = comparison.fastest
    if fastest not in (base, mine) and not _changed(comparison, fastest, mine):
        others.append(_fastest(comparison, fastest, mine, walls))
    return " ".join([said, *filter(None, others)])


def racing(comparison: Comparison) -> list[str]:
    """The racing contenders: the pair, and the second one under other limits."""
    base, mine = pair(comparison)
    limited = [n for n in comparison.names if n != mine and _changed(comparison, n, mine)]
    return list(dict.fromkeys([base, mine, *limited]))


def _is_disputed(found: Verdict, longer: float) -> bool:
    """Whether rounds and median times disagree on the winner. longer: ratio of the medians."""
    return found.decided and (found.faster - found.slower) * longer > 0


def _changed(comparison: Comparison, name: str, mine: str) -> dict[str, tuple[Any, Any]]:
    """The limits that differ (from, to) for a contender of the same policy, else empty."""
    about, own = (dict(comparison.about.get(n, {})) for n in (name, mine))
    if "policy" not in own or about.get("policy") != own["policy"]:
        return {}
    return {key: (own[key], about.get(key)) for key in own if about.get(key) != own[key]}


def _other_limits(comparison: Comparison, name: str, mine: str) -> str:
    """How the same policy does under other limits, and what that means if it lost."""
    changed = _changed(comparison, name, mine)
    if not changed:
        return ""
    said = [
        t("{setting} instead of {before}", setting=limit(k, to), before=t(str(was)))
        for k, (was, to) in changed.items()
    ]
    found, own = comparison.verdict(name), comparison.verdict(mine)
    won = found.is_open or found.faster > found.slower
    how = (
        "it ties with {base}, faster"
        if found.is_open
        else f"it is {'faster' if won else 'slower'} than {{base}},"
    )
    rounds = f"{found.faster if won else found.slower} of {found.rounds} rounds"
    spared = won and own.slower > own.faster and not own.is_open
    due = f", so the loss is due to [={len(said)} that limit|these limits], not to the policy"
    loss = t(due) if spared else ""
    with_limits = t(
        f"With {{limits}} {how} in {rounds} ({{ratios}})",
        limits=listed(said),
        base=comparison.baseline,
        ratios=_range(found.ratios),
    )
    return f"{with_limits}{loss}."


def _fastest(comparison: Comparison, fastest: str, mine: str, walls: Mapping[str, float]) -> str:
    found = comparison.verdict(fastest, against=mine)
    but = (
        ", which is a tie"
        if found.is_open
        else ", so rounds and medians disagree"
        if _is_disputed(found, walls[fastest] - walls[mine])
        else ""
    )
    ahead = (
        f"The fastest is {{fastest}} with {{time}}, ahead of {{mine}} in {found.faster} of"
        f" {found.rounds} rounds"
    )
    return f"{t(ahead, fastest=fastest, time=seconds(walls[fastest]), mine=mine)}{t(but)}."


def sure(comparison: Comparison, environment: Mapping[str, Any]) -> str:
    """How certain a verdict is: rounds, chance, the machine, and what the ratio means."""
    base, mine = pair(comparison)
    found = comparison.verdict(mine)
    said = []
    if base != mine:
        if found.rounds == 1:
            said.append(t("A single run of each says nothing about spread"))
        else:
            most = max(found.faster, found.slower)
            chance = (
                "in every try"
                if found.chance == 1
                else "in most tries"
                if found.chance > 0.5
                else f"in 1 of {1 / found.chance:.0f} tries"
            )
            decided = (
                "so it is decided"
                if found.decided
                else "too few rounds to decide"
                if found.agrees
                else "so nothing is decided"
            )
            agree = (
                f"{most} of {found.rounds} rounds agree; by chance alone that happens {{chance}},"
                " {decided} (sign test, 1 in 10 or rarer)"
            )
            said.append(t(agree, chance=t(chance), decided=t(decided)))
        quotient = divided(*(statistics.median(comparison.walls[n]) for n in (base, mine)))
        if found.rounds > 1 and times(quotient) != times(found.median):
            ratio = (
                "The ratio, {quotient}, is that of the two median times; the median of the rounds'"
                " own is {ratio}"
            )
            said.append(t(ratio, ratio=times(found.median), quotient=times(quotient)))
    load, cpus = environment.get("load_average"), environment.get("cpus")
    if load is not None:
        busy = too_busy(load, cpus)
        machine = t(
            f"The machine was {'busy' if busy else 'quiet'} (load {load:g} on {cpus} [CPU|CPUs])"
        )
        said.append(machine + (t(", so these times are not those of a quiet one") if busy else ""))
    elif "pyodide" in environment.get("versions", {}):
        said.append(t("A browser does not tell how busy this machine was"))
    said.append(t("Another machine, model or day gives other numbers"))
    return f"{'. '.join(said)}."


def method(comparison: Comparison) -> str:
    """How it was measured, which run of each contender races, and whether tokens were sampled."""
    count = len(comparison.walls[comparison.baseline])
    runs = t("one run of each" if count == 1 else f"{count} runs of each, in rotated order")
    raced = [n for n in comparison.names if n in comparison.shown and comparison.runs[n].trace]
    shown = ", ".join(t(f"round {comparison.shown[n]} of {{name}}", name=n) for n in raced)
    race = ""
    if count > 1 and shown:
        near = (
            "; the race shows the run nearest to each median: {shown}"
            if count % 2
            else "; the race shows the first of the two runs nearest to each median: {shown}"
        )
        race = t(near, shown=shown)
    requests = [request for trace in comparison.traces.values() for request in trace.workload]
    is_greedy = comparison.traces and not any(r.sampling.temperature for r in requests)
    everybody = t(" All of them choose the most probable token.") if is_greedy else ""
    measured = t("After a warm-up, {runs}; setup and teardown are not in these times", runs=runs)
    if comparison.is_of_traces:
        measured = t("One run of each, made before and read from its trace")
    return f"{measured}{race}.{everybody}"


def named_parts(found: Difference) -> tuple[list[Contribution], list[Contribution]]:
    """The parts to name, largest first: up to three for the difference, two against it."""
    least = max(0.05 * abs(found.seconds), 0.005 * max(found.before_s, found.after_s))
    large = sorted(
        (p for p in found.parts if p.name != "rest" and abs(p.seconds) >= least),
        key=lambda p: -abs(p.seconds),
    )
    with_it = [p for p in large if (p.seconds < 0) == (found.seconds < 0)]
    return with_it[:3], [p for p in large if p not in with_it][:2]


def difference(found: Difference, base: str, mine: str) -> str:
    """The largest parts of a sum, those against it, and the rest."""
    with_it, against = (list(map(_part, parts)) for parts in named_parts(found))
    whole = found.seconds
    rest = whole - sum(p.seconds for side in named_parts(found) for p in side)
    (with_it if (rest < 0) == (whole < 0) else against).append(_for(rest, "rest"))
    parts = t(", but ").join(", ".join(side) for side in (with_it, against) if side)
    return t(
        "{mine} took {change} than {base}: {parts}. Costs are fitted to the passes of both runs; "
        "on a typical pass the fit is off by {error}.",
        mine=mine,
        change=_change(whole),
        base=base,
        parts=parts,
        error=percent(found.error),
    )


def _part(part: Contribution) -> str:
    counted = counts(part)
    return f"{_for(part.seconds, part.name)}{counted and f' ({counted})'}"


def _for(change: float, part: str) -> str:
    return t("{change} for {part}", change=_change(change), part=t(PARTS[part]))


def counts(part: Contribution) -> str:
    """The counts in the two runs, with a decimal if only that shows the change; empty for times."""
    if part.before is None or part.after is None:
        return ""
    digits = int(part.before != part.after and round(part.before) == round(part.after))
    return t(f"{part.before:,.{digits}f} → {part.after:,.{digits}f}")


def _change(value: float) -> str:
    return t(f"{{time}} {'more' if value > 0 else 'less'}", time=seconds(abs(value)))


def load(data: Mapping[str, Any]) -> str:
    """TTFT p99 and requests finished a second, by policy, at the highest rate within capacity."""
    points: Sequence[Mapping[str, Any]] = data["points"]
    names = list(dict.fromkeys(p["policy"] for p in points))
    top = data["capacity_requests_per_s"] or max(p["rate"] for p in points)
    rate = max((p["rate"] for p in points if p["rate"] <= top * 1.001), default=points[0]["rate"])
    at = {p["policy"]: p["numbers"] for p in points if p["rate"] == rate}
    by_policy = []
    for name in names:
        if name in at:
            finish = f"with {{name}} {{wait}}, and {at[name]['requests_per_s'] or 0:.3g} finish"
            by_policy.append(t(finish, name=name, wait=_wait(at[name])))
    return t(
        f"At {rate:.3g} requests a second, 99 of 100 get their first token {{policies}}.",
        policies="; ".join(by_policy),
    )


def _wait(numbers: Mapping[str, Any]) -> str:
    ttft = numbers["ttft_s"]
    if ttft["p99"] is None:
        return t("never")
    how = "in no less than" if ttft.get("left_out") else "within"
    return t(f"{how} {{time}}", time=seconds(ttft["p99"]))


def _rounds(count: int, rounds: int, ratios: Sequence[float]) -> str:
    if rounds == 1:
        return t(" in a single run of each")
    faster = "" if count == rounds else f", faster in {count}"
    return t(f" (medians of {rounds} rounds{faster}; {{ratios}} by round)", ratios=_range(ratios))


def _range(ratios: Sequence[float]) -> str:
    low, high = times(min(ratios)), times(max(ratios))
    return low if low == high else t("{low} to {high}", low=low, high=high)


def others(comparison: Comparison) -> dict[str, Trace]:
    """The contenders that are other engines and left a trace of their steps."""
    return {name: trace for name, trace in comparison.traces.items() if trace.header.engine}


def decisions(comparison: Comparison) -> str:
    """Which engines always decide as ours does, and where others first differ, if there are any."""
    theirs = others(comparison)
    mine = next((name for name in comparison.names if name not in theirs), None)
    ours = comparison.runs[mine].trace if mine is not None else None
    if not theirs or mine is None or ours is None:
        return ""
    found = {name: divergence(ours, trace) for name, trace in theirs.items()}
    alike = [_named(name, theirs[name]) for name, parting in found.items() if parting is None]
    said = []
    if alike:
        tokens = sum(len(event.sampled) for event in ours.events)
        as_ours = (
            f"{{who}} [={len(alike)} decides|decide] as {{mine}} in all {len(ours.events):,}"
            f" [step|steps] and [={len(alike)} writes|write] the same {tokens:,} [token|tokens]."
        )
        said.append(t(as_ours, who=t(" and ").join(alike), mine=mine))
    for name, parting in found.items():
        if parting is not None:
            said.append(_decided_otherwise(name, theirs[name], mine, parting, letters(ours)))
    return t("The same requests under the same limits: {said}", said=" ".join(said))


def _decided_otherwise(
    name: str, trace: Trace, mine: str, found: Divergence, letter: Mapping[str, str]
) -> str:
    who = f"{letter[found.request]} " if found.request else ""
    wrote = t("the same tokens" if found.same_tokens else "other tokens")
    parts = t(
        f"{{engine}} decides differently from step {found.step} on: under {{mine}} "
        "{before}, under {name} {after}.",
        engine=_named(name, trace),
        mine=mine,
        name=name,
        before=who + decision(found.before),
        after=who + decision(found.after),
    )
    took = (
        f"The run takes {found.steps[1]:,} [step|steps] instead of {found.steps[0]:,} and writes"
        " {wrote}."
    )
    return f"{parts} {t(took, wrote=wrote)}"


def caveats(comparison: Comparison) -> list[str]:
    """What the times of other engines include, and what they do not show."""
    theirs = others(comparison)
    if not theirs:
        return []
    trace = next(iter(theirs.values()))
    # another engine's recording may not tell
    known = max(trace.header.model.parameters or 0 for trace in comparison.traces.values())
    millions = round(known / 1e6)
    included = (
        "Times run from the first request handed over to the end of the last step. Loading a model"
        " and its KV pool is not included, keeping the record is, and no tokens are turned into"
        f" text. KV blocks hold {trace.config.block_size} tokens in every engine."
    )
    elsewhere = (
        f"A model of {millions} million parameters on a CPU is not what these engines are made for:"
        " such times say little about them elsewhere."
    )
    return [t(included), *([t(elsewhere)] if millions else [])]


def _named(name: str, trace: Trace) -> str:
    assert trace.header.engine is not None
    return f"{name} {trace.header.engine.version}"
