"""The findings of a comparison, in sentences with computed numbers, whichever run wins. Knows no colours and no page.

Who won and how sure that is stands in `visualizer.words.verdicts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from core.config import EngineConfig
from core.measure.compare import Comparison
from core.measure.cost_curve import CostCurve
from core.measure.divergence import Divergence
from core.measure.metrics import metrics
from core.trace.phrases import count as counted
from core.trace.trace import Trace
from visualizer.words.vocabulary import Sentence, agree, is_are

if TYPE_CHECKING:
    from core.measure.equivalence import Equivalence

WASTE = {
    "padding": "finished rows computed until their wave ends",
    "barrier": "empty behind the barrier",
    "stalled": "held, nothing computed",
    "empty": "empty",
}

_OVERRUN = "rows of requests that had stopped"  # what padding is where the next step is launched ahead


def seconds(value: float | None) -> str:
    """A duration with its unit, three digits."""
    if value is None:
        return "–"
    if value >= 1:
        return f"{value:#.3g} s" if value < 99.95 else f"{value:,.0f} s"
    return f"{f'{value * 1000:#.3g}'.rstrip('.')} ms" if value < 0.9995 else "1.00 s"


def times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def pair(comparison: Comparison) -> tuple[str, str]:
    """The two contenders that the sentences are about: the one named first, and the engine's usual policy (or the one named second)."""
    base, usual = comparison.baseline, EngineConfig().policy
    return base, usual if usual in comparison.names and usual != base else comparison.names[:2][-1]


def throughput(comparison: Comparison) -> str:
    """Rates, and how far the baseline's falls in its worst quarter."""
    base, mine = pair(comparison)
    rates: dict[str, float] = {n: comparison.medians[n].get("output_tok_s") or 0.0 for n in (base, mine)}
    if not all(rates.values()):
        return "Throughput could not be observed."
    said = f"{mine} writes {rates[mine]:,.0f} tokens a second"
    if base != mine:
        said += f", {base} {rates[base]:,.0f}"
    worst = _worst_quarter(comparison.runs[base].trace)
    if worst is None or base == mine:
        return f"{said}."
    which, rate = worst
    if rate > 0.85 * rates[base]:
        return f"{said}; neither falls off on the way." if rates[mine] < rates[base] * 1.05 else f"{said}, throughout."
    return f"{said}; in its {('first', 'second', 'third', 'last')[which]} quarter {base} is down to {rate:,.0f}."


def latency(comparison: Comparison) -> str:
    """The middle wait for a first token, and the long gaps."""
    base, mine = pair(comparison)
    first = {n: (comparison.medians[n].get("ttft_s") or {}).get("p50") for n in (base, mine)}
    gaps = {n: (comparison.medians[n].get("itl_s") or {}).get("p99") for n in (base, mine)}
    if first[mine] is None:
        return "Latencies could not be observed."
    if base == mine or first[base] is None:
        return f"Half of the first tokens come within {seconds(first[mine])} with {mine}; ITL p99 is {seconds(gaps[mine])}."
    return (
        f"Half of the first tokens come within {seconds(first[mine])} with {mine}, {seconds(first[base])} with {base}; "
        f"99 of 100 gaps between tokens are under {seconds(gaps[mine])} and {seconds(gaps[base])}."
    )


def lane_steps(comparison: Comparison) -> str:
    """Which share of the lane-steps did no work, and what it went to."""
    base, mine = pair(comparison)
    said = []
    for name in dict.fromkeys((base, mine)):
        counts = comparison.medians[name].get("lane_steps")
        if not counts or not counts["total"]:
            continue
        wasted = counts["total"] - counts["useful"]
        if not wasted:
            said.append(f"{name} wastes none of its {counts['total']:,.0f} lane-steps")
            continue
        most = max(WASTE, key=lambda kind: counts[kind])
        cause = _OVERRUN if most == "padding" and comparison.medians[name].get("overrun_rows") else WASTE[most]
        said.append(
            f"{name} wastes {percent(wasted / counts['total'])} of its {counts['total']:,.0f} lane-steps, "
            + (f"all {cause}" if counts[most] == wasted else f"mostly {cause}")
        )
    return "; ".join(said) + "." if said else "Lane-steps could not be observed."


def kv_use(comparison: Comparison) -> str:
    """How much of the pool was in use."""
    base, mine = pair(comparison)
    said = []
    for name in dict.fromkeys((mine, base)):
        numbers = comparison.medians[name]
        blocks = numbers.get("kv_blocks")
        if blocks:
            said.append(
                f"{name} uses {percent(numbers['kv_use'])} of its KV blocks on average and at most {blocks['peak']:,.0f} of {blocks['total']:,.0f}"
            )
    return "; ".join(said) + "." if said else "KV use could not be observed."


class Price(NamedTuple):
    """What a run paid where KV blocks or a step's tokens were short. again: tokens computed again. frozen: steps that running requests held
    their lanes through without computing, summed over requests; waited: the same of those who waited.
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
    """Who is done first and last, and who pays most of each price; all of them where several do."""
    paid = {n: price(run.trace) for n, run in comparison.runs.items() if run.trace is not None}

    def those(kind: str, best: Callable[[Iterable[int]], int]) -> tuple[list[str], int]:
        number = best(getattr(p, kind) for p in paid.values())
        return [n for n, p in paid.items() if getattr(p, kind) == number], number

    (first, least), (last, steps) = those("steps", min), those("steps", max)
    said = [f"{listed(first)} {is_are(len(first))} done after {counted(least, 'step')}"]
    said[0] += f", {listed(last)} after {steps:,}" if first != last else ""
    for kind, what, unit in _PAID:
        names, number = those(kind, max)
        if number:
            verb = agree(names, "computes", "compute")
            said.append(f"{what.format(listed(names), verb=verb)}, {counted(number, unit)}")
    return f"{'; '.join(said)}."


_PAID = (
    ("again", "{} {verb} most again", "token"),
    ("frozen", "running requests stand still longest under {}", "lane-step"),
    ("waited", "others wait longest under {}", "request-step"),
)


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def cost(curve: CostCurve) -> str:
    """What a batch costs against what it gives; and what reading more KV costs."""
    one, most = curve.by_tokens[0], curve.by_tokens[-1]
    grows, cheaper = most.median / one.median, one.median * most.tokens / (most.median * one.tokens)
    said = (
        f"A step of {most.tokens} tokens takes {times(grows)} times as long as a step of {one.tokens}: each token costs {times(cheaper)} times less"
        if cheaper > 1
        else f"A step of {most.tokens} tokens takes {times(grows)} times as long as a step of {one.tokens}: on this device a batch saves nothing"
    )
    if len(curve.by_kv) > 1:
        short, long = curve.by_kv[0], curve.by_kv[-1]
        said += f". Reading {long.kv_read / short.kv_read:,.0f} times the KV makes a step {times(long.median / short.median)} times as long"
    return said + "."


def equivalence(found: Equivalence) -> str:
    """Alone and in company: what differs, and what `model.generate` says to it."""
    size = "" if found.max_logit_difference is None else f"; the largest logit difference is {found.max_logit_difference:.2g}"
    tokens, differing = found.tokens, found.differing_tokens
    where = "" if found.leak or not differing else f", in {found.dtype} on {found.device}"
    leaking = "With the leak " if found.leak else ""
    return f"{leaking}{differing:,} of {tokens:,} tokens differ from those written alone{size}{where}. {_generated(found)}"


def _generated(found: Equivalence) -> str:
    if not found.generated_tokens:
        return "model.generate is not asked: for requests that are sampled, or end at stop strings, it would not write the same."
    if not found.differing_from_generate:
        return f"model.generate itself writes the same {found.generated_tokens:,} tokens."
    return (
        f"Of the {found.generated_tokens:,} tokens that model.generate itself writes, {found.differing_from_generate:,} differ."
    )


def fork(found: Divergence | None, steps: tuple[int, int]) -> tuple[Sentence, str]:
    """Where two runs part, and what came of it."""
    if found is None:
        return ["No step decides anything else: this limit never binds here."], ""
    a, b = steps
    length = f"both take {a:,} steps" if a == b else f"{b:,} steps instead of {a:,}"
    return _spans(found.sentence, found.request), f"{length}, {'the same tokens' if found.same_tokens else 'other tokens'}"


def _spans(sentence: Callable[[Callable[[str], str]], str], request: str | None) -> Sentence:
    """A sentence that names one request, with that request as a span."""
    mark = "\0"
    parts = sentence(lambda _: mark).split(mark)
    between: Sentence = [{"r": request or ""}]
    return [part for i, text in enumerate(parts) for part in ([*between, text] if i else [text])]


def outputs(comparison: Comparison) -> str:
    """Whether all wrote the same."""
    if comparison.outputs_identical:
        return "Every run wrote the same tokens."
    first = comparison.differences[0]
    margin = "" if first["margin"] is None else f", where the best logit led by {first['margin']:.3g}"
    return f"{first['policy']} departs from {comparison.baseline} in request {first['request']} at token {first['position']}{margin}."


def _worst_quarter(trace: Trace | None) -> tuple[int, float] | None:
    """Of the four quarters of a run's time: the one with the lowest rate of tokens, and that rate."""
    found = token_times(trace) if trace is not None else []
    if not found or trace is None:
        return None
    start, end = trace.events[0].t_start, trace.events[-1].t_end
    quarter = (end - start) / 4
    if quarter <= 0:
        return None
    counts = [0, 0, 0, 0]
    for t in found:
        counts[min(3, int((t - start) / quarter))] += 1
    which = min(range(4), key=lambda i: counts[i])
    return which, counts[which] / quarter


def token_times(trace: Trace) -> Sequence[float]:
    """When each token came, seconds since the run began."""
    return [event.passes[s.pass_index].t_end for event in trace.events for s in event.sampled]
