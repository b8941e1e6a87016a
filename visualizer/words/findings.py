"""The findings of a run or a comparison, in sentences with computed numbers, whichever contender
wins. `visualizer.words.verdicts` says which one won and how certain that is.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from core.account.metrics import DEFINITIONS, LOST_TO_PREEMPTION, metrics, preemption_s
from core.config import EngineConfig
from core.measure.compare import Comparison
from core.measure.cost_curve import CostCurve
from core.trace.divergence import Divergence
from core.trace.phrases import setting
from core.trace.trace import Trace
from visualizer.words.language import t
from visualizer.words.vocabulary import Sentence, milliseconds

WASTE = {
    "padding": "finished rows computed until their wave ends",
    "barrier": "empty behind the barrier",
    "stalled": "held, nothing computed",
    "empty": "empty",
}

_OVERRUN = "rows of requests that had stopped"  # the cause of padding with asynchronous execution


def seconds(value: float | None) -> str:
    """A duration with its unit, in three digits."""
    if value is None:
        return "–"
    if value >= 1:
        return t(f"{value:#.3g} s" if value < 99.95 else f"{value:,.0f} s")
    return t(f"{f'{value * 1000:#.3g}'.rstrip('.')} ms" if value < 0.9995 else "1.00 s")


def divided(base: float, mine: float) -> float:
    """The ratio of two durations as a reader computes it, from the digits of `seconds`."""
    return _three_digits(base) / _three_digits(mine)


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def together(one: float, other: float) -> tuple[str, str]:
    """Two durations in the unit of the longer one, with as few digits, two or three, as are needed
    to tell them apart and to keep their ratio within a twentieth; the same text if they agree to a
    thousandth.
    """
    longest, shortest = max(one, other), max(min(one, other), 1e-9)
    scale, unit = (1, "s") if longest >= 0.0995 else (1000, "ms")
    digits = max(0, 1 - math.floor(math.log10(longest * scale)))
    texts = [f"{value * scale:.{digits}f}" for value in (one, other)]
    while digits < 6 and not _tells(texts, longest / shortest):
        digits += 1
        texts = [f"{value * scale:.{digits}f}" for value in (one, other)]
    return t(f"{texts[0]} {unit}"), t(f"{texts[1]} {unit}")


def _tells(texts: Sequence[str], ratio: float) -> bool:
    low, high = sorted(map(float, texts))
    return low == high if ratio < 1.001 else 0 < low < high and abs(high / low / ratio - 1) < 0.05


def times(ratio: float) -> str:
    return t(f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}")


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    shown = f"{share:.0%}" if share >= 0.1 or share == 0 else f"{round(share, 3) + 0.0:.1%}"
    return t(shown.replace("%", " %"))


def pair(comparison: Comparison) -> tuple[str, str]:
    """The two contenders of sentences: the first, and the default policy (or the second)."""
    base, usual = comparison.baseline, EngineConfig().policy.name
    return base, usual if usual in comparison.names and usual != base else comparison.names[:2][-1]


def throughput(comparison: Comparison) -> str:
    """Token rates, and how far that of the baseline falls in its worst quarter."""
    base, mine = pair(comparison)
    rates: dict[str, float] = {
        n: comparison.medians[n].get("output_tok_s") or 0.0 for n in (base, mine)
    }
    if not all(rates.values()):
        return t("Throughput could not be observed.")
    said = t(f"{{mine}} writes {rates[mine]:,.0f} tokens a second", mine=mine)
    if base != mine:
        said += t(f", {{base}} {rates[base]:,.0f}", base=base)
    worst = _worst_quarter(comparison.runs[base].trace)
    if worst is None or base == mine or worst[1] > 0.85 * rates[base]:
        return f"{said}."
    which, rate = worst
    return said + t(
        f"; in its {('first', 'second', 'third', 'last')[which]} quarter {{base}} is down to"
        f" {rate:,.0f}.",
        base=base,
    )


def latency(comparison: Comparison) -> str:
    """The median wait for a first token, and the long gaps."""
    base, mine = pair(comparison)
    first = {n: (comparison.medians[n].get("ttft_s") or {}).get("p50") for n in (base, mine)}
    gaps = {n: (comparison.medians[n].get("itl_s") or {}).get("p99") for n in (base, mine)}
    if first[mine] is None:
        return t("Latencies could not be observed.")
    said = t(
        "Half of the first tokens come within {first} with {mine}",
        first=seconds(first[mine]),
        mine=mine,
    )
    alone = base == mine or first[base] is None
    if not alone:
        said += t(", {first} with {base}", first=seconds(first[base]), base=base)
    if gaps[mine] is None or (not alone and gaps[base] is None):  # answers of one token have none
        return f"{said}."
    long = (
        "; ITL p99 is {gap}"
        if alone
        else "; 99 of 100 gaps between tokens are under {gap} with {mine}, {other} with {base}"
    )
    holes = {"mine": mine, "gap": seconds(gaps[mine]), "base": base, "other": seconds(gaps[base])}
    return f"{said}{t(long, **holes)}."


def lane_steps(comparison: Comparison) -> str:
    """The share of lane-steps without useful work, and why."""
    base, mine = pair(comparison)
    said = []
    for name in dict.fromkeys((base, mine)):
        counts = comparison.medians[name].get("lane_steps")
        if not counts or not counts["total"]:
            continue
        wasted = counts["total"] - counts["useful"]
        if not wasted:
            said.append(
                t(f"{{name}} wastes none of its {counts['total']:,.0f} lane-steps", name=name)
            )
            continue
        most = max(WASTE, key=lambda kind: counts[kind])
        is_overrun = most == "padding" and comparison.medians[name].get("overrun_rows")
        cause, share = t(_OVERRUN if is_overrun else WASTE[most]), percent(wasted / counts["total"])
        how = "all" if counts[most] == wasted else "mostly"
        wastes = (
            f"{{name}} wastes {{share}} of its {counts['total']:,.0f} lane-steps, {how} {{cause}}"
        )
        said.append(t(wastes, name=name, share=share, cause=cause))
    return "; ".join(said) + "." if said else t("Lane-steps could not be observed.")


def kv_use(comparison: Comparison) -> str:
    """How much of the pool was in use."""
    base, mine = pair(comparison)
    said = []
    for name in dict.fromkeys((mine, base)):
        numbers = comparison.medians[name]
        blocks = numbers.get("kv_blocks")
        if blocks:
            most = f"at most {blocks['peak']:,.0f} of {blocks['total']:,.0f}"
            uses = f"{{name}} uses {{share}} of its KV blocks on average and {most}"
            said.append(t(uses, name=name, share=percent(numbers["kv_use"])))
    return "; ".join(said) + "." if said else t("KV use could not be observed.")


class Price(NamedTuple):
    """What a run paid when KV blocks or budget were short. again: tokens that were computed again.
    frozen: steps in which running requests held their lanes without computing, summed over
    requests; waited: the same for waiting requests.
    """

    preempted: int
    again: int
    frozen: int
    waited: int
    steps: int


def price(trace: Trace) -> Price:
    events = trace.events
    found = metrics(trace)
    frozen, waited = sum(len(e.stalled) for e in events), sum(e.waiting.count for e in events)
    return Price(found["preemptions"], found["tokens_recomputed"], frozen, waited, len(events))


def pressure(comparison: Comparison) -> str:
    """The first and last to finish, and those that pay most of each price; ties name all."""
    paid = {name: price(trace) for name, trace in comparison.traces.items()}

    def those(kind: str, best: Callable[[Iterable[int]], int]) -> tuple[list[str], int]:
        number = best(getattr(p, kind) for p in paid.values())
        return [n for n, p in paid.items() if getattr(p, kind) == number], number

    (first, least), (last, steps) = those("steps", min), those("steps", max)
    done = f"{{first}} [={len(first)} is|are] done after {least:,} [step|steps]"
    said = [t(done, first=listed(first))]
    said[0] += t(f", {{last}} after {steps:,}", last=listed(last)) if first != last else ""
    for kind, what, unit in _PAID:
        names, number = those(kind, max)
        if number:
            said.append(
                f"{t(what.replace('#', str(len(names))), name=listed(names))},"
                f" {t(f'{number:,} {unit}')}"
            )
    return f"{'; '.join(said)}."


_PAID = (
    ("again", "{name} [=# recomputes|recompute] the most", "[token|tokens]"),
    ("frozen", "running requests stall longest under {name}", "[lane-step|lane-steps]"),
    ("waited", "others wait longest under {name}", "[request-step|request-steps]"),
)


def cost(curve: CostCurve) -> str:
    """What a batch costs and gains, and what reading more KV costs."""
    one, most = curve.by_tokens[0], curve.by_tokens[-1]
    grows = round(most.median / one.median, 2)
    cheaper = most.tokens / one.tokens / grows  # as a reader divides
    said = t(
        f"A step of {most.tokens} tokens takes {{times}} times as long as a step of {one.tokens}: ",
        times=t(f"{grows:.2f}"),
    )
    if cheaper > 1:
        said += t("each token is {times} times cheaper", times=times(cheaper))
    else:
        said += t("on this device a batch saves nothing")
    if len(curve.by_kv) > 1:
        short, long = curve.by_kv[0], curve.by_kv[-1]
        said += t(
            f". Reading {long.kv_read / short.kv_read:,.0f} times the KV makes a step {{times}}"
            " times as long",
            times=times(long.median / short.median),
        )
    return f"{said}."


def equivalence(found: Mapping[str, Any]) -> str:
    """How texts alone, in a batch and from `generate` differ: see `core.proof.equivalence`."""
    logits, differing = found["max_logit_difference"], found["differing_tokens"]
    leaking, tokens = "With the leak " if found["leak"] else "", num_places(found, "solo")
    said = t(f"{leaking}{differing:,} of {tokens:,} tokens differ from those written alone")
    if logits is not None:
        size = t(f"{logits:.2g}".replace("e-0", "e-"))
        said += t("; the largest logit difference is {size}", size=size)
    if differing and not found["leak"]:
        said += t(", in {dtype} on {device}", dtype=found["dtype"], device=found["device"])
    return f"{said}. {_generated(found)}"


def _generated(found: Mapping[str, Any]) -> str:
    tokens, differing = num_places(found, "generated"), found["differing_from_generate"]
    if not tokens:
        return t(
            "model.generate is not run: for requests that are sampled, have penalties or biases, or"
            " end at stop strings, it would not write the same."
        )
    if not differing:
        return t(f"model.generate itself writes the same {tokens:,} tokens.")
    return t(f"{differing:,} of {tokens:,} tokens differ from those of model.generate itself.")


def num_places(found: Mapping[str, Any], other: str) -> int:
    """The number of places in the batch's and other texts; either may be longer."""
    texts = [(r["batched"], r[other]) for r in found["requests"] if r[other] is not None]
    return sum(max(map(len, pair)) for pair in texts)


def fork(found: Divergence | None, steps: tuple[int, int]) -> tuple[Sentence, str]:
    """Where two runs diverge, and the outcome."""
    if found is None:
        return [t("Every step decides the same: this limit never binds here.")], ""
    a, b = steps
    length = f"both take {a:,} steps" if a == b else f"{b:,} steps instead of {a:,}"
    return (
        _parting(found),
        f"{t(length)}, {t('the same tokens' if found.same_tokens else 'other tokens')}",
    )


def _parting(found: Divergence) -> Sentence:
    """`Divergence.sentence` in the current language, its request as a span."""
    sides = []
    for place, lone, decided in (
        (0, "in the first run", found.before),
        (1, "in the second", found.after),
    ):
        limits = [limit(k.name, (k.before, k.after)[place]) for k in found.knobs]
        with_limits = t("with {limits}", limits=listed(limits)) if limits else t(lone)
        who: Sentence = [" ", {"r": found.request}, " "] if found.request else [" "]
        sides.append([with_limits, *who, decision(decided)])
    return [t(f"Fork at step {found.step}: "), *sides[0], "; ", *sides[1], "."]


def decision(text: str) -> str:
    """A decision of `core.trace.divergence` in words: what, and perhaps why, after a colon."""
    what, colon, why = text.partition(": ")
    return t(what) + (f"{colon}{t(why)}" if colon else "")


def limit(name: str, value: Any) -> str:
    """A setting at a value."""
    return t("the policy {policy}", policy=value) if name == "policy" else t(setting(name, value))


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}{t(' and ')}{words[-1]}"


def outputs(comparison: Comparison) -> str:
    """Whether all outputs are the same."""
    if comparison.outputs_identical:
        stayed = ", as long as the clients stayed" if comparison.is_cut else ""
        return t(f"Every run wrote the same tokens{stayed}.")
    first = comparison.differences[0]
    said = t(
        f"{{policy}} departs from {{base}} in request {{request}} at token {first['position']}",
        policy=first["policy"],
        base=comparison.baseline,
        request=str(first["request"]),
    )
    if first["margin"] is not None:
        said += t(", where the best logit led by {lead}", lead=t(f"{first['margin']:.3g}"))
    return f"{said}."


def _worst_quarter(trace: Trace | None) -> tuple[int, float] | None:
    """The quarter of a run's time with the lowest token rate, and that rate."""
    found = token_times(trace) if trace is not None else []
    if not found or trace is None:
        return None
    start, end = trace.events[0].t_start, trace.events[-1].t_end
    quarter = (end - start) / 4
    if quarter <= 0:
        return None
    counts = Counter(min(3, int((at - start) / quarter)) for at in found)
    which = min(range(4), key=lambda i: counts[i])
    return which, counts[which] / quarter


def token_times(trace: Trace) -> Sequence[float]:
    """The time of each token, in seconds since the run began."""
    return [event.passes[s.pass_index].t_end for event in trace.events for s in event.sampled]


def totals(trace: Trace) -> list[dict[str, str]]:
    """`{"name", "value", "means"}` of latencies, throughput and waste; empty without tokens."""
    if not any(event.sampled for event in trace.events):
        return []
    found = metrics(trace)
    shown = {
        "ttft_s": ("TTFT", _times(found["ttft_s"])),
        "itl_s": ("ITL", _times(found["itl_s"])),
        "preemption_s": ("Preempted", _price(trace, found)),
        "output_tok_s": ("Output", _formatted(found["output_tok_s"], "{:,.0f} tok/s")),
        "lane_occupancy": ("Lanes in use", _share(found["lane_occupancy"])),
        "padding_waste": ("Padding", _share(found["padding_waste"] or None)),
    }
    means = {**DEFINITIONS, "preemption_s": LOST_TO_PREEMPTION}
    return [
        {"name": t(name), "value": t(value), "means": t(means[key])}
        for key, (name, value) in shown.items()
        if value
    ]


def _price(trace: Trace, found: Mapping[str, Any]) -> str | None:
    """What preemptions cost, over all requests; None if there were none."""
    if not found["preemptions"]:
        return None
    again = found["tokens_recomputed"]
    return (
        f"{found['preemptions']:,} [time|times], {again:,} [token|tokens] again,"
        f" {_duration(preemption_s(trace))}"
    )


def _formatted(number: float | None, form: str) -> str | None:
    return None if number is None else form.format(number).replace("%", " %")


def _share(share: float | None) -> str | None:
    """In whole percent, or finer if rounding would make it 0 % or 100 % wrongly."""
    return _formatted(
        share, "{:.0%}" if share in (0, None, 1) or 0.005 < share < 0.995 else "{:.2%}"
    )


def _times(spread: dict[str, Any]) -> str | None:
    """The median and the maximum; lower bounds if some values are not known yet."""
    if not spread["count"]:
        return None
    least = "≥ " if spread["left_out"] else ""
    return f"{least}{_duration(spread['p50'])}, worst {least}{_duration(spread['max'])}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.9995 else milliseconds(seconds)
