"""Other engines beside ours: whether they decide alike, step by step, and what their times include. Knows no page."""

from __future__ import annotations

from collections.abc import Mapping

from core.measure.compare import Comparison
from core.measure.divergence import Divergence, divergence
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.words.findings import decision
from visualizer.words.language import t

GROUP = "Other engines"


def others(comparison: Comparison) -> dict[str, Trace]:
    """The contenders that are not our engine and left a trace of their steps."""
    traces = {name: run.trace for name, run in comparison.runs.items()}
    return {name: trace for name, trace in traces.items() if trace is not None and trace.header.engine is not None}


def decisions(comparison: Comparison) -> str:
    """Which engines decide as ours in every step, and where each of the others first differs. Empty without another engine."""
    theirs = others(comparison)
    mine = next((name for name in comparison.names if name not in theirs), None)
    ours = comparison.runs[mine].trace if mine is not None else None
    if not theirs or mine is None or ours is None:
        return ""
    found = {name: divergence(ours, trace) for name, trace in theirs.items()}
    alike = [_engine(name, theirs[name]) for name, parting in found.items() if parting is None]
    said = []
    if alike:
        tokens = sum(len(event.sampled) for event in ours.events)
        as_ours = (
            f"{{who}} [={len(alike)} decides|decide] as {{mine}} in all {len(ours.events):,} [step|steps] "
            f"and [={len(alike)} writes|write] the same {tokens:,} [token|tokens]."
        )
        said.append(t(as_ours, who=t(" and ").join(alike), mine=mine))
    said += [_parting(name, theirs[name], mine, p, letters(ours)) for name, p in found.items() if p is not None]
    return t("The same requests under the same limits: {said}", said=" ".join(said))


def _parting(name: str, trace: Trace, mine: str, found: Divergence, letter: Mapping[str, str]) -> str:
    who = f"{letter[found.request]} " if found.request else ""
    wrote = "the same tokens" if found.same_tokens else "other tokens"
    parts = t(
        f"{{engine}} decides otherwise from step {found.step} on: under {{mine}} {{before}}, under {{name}} {{after}}.",
        engine=_engine(name, trace), mine=mine, name=name,
        before=who + decision(found.before), after=who + decision(found.after),
    )  # fmt: skip
    took = f"It takes {found.steps[1]:,} [step|steps] instead of {found.steps[0]:,} and writes {{wrote}}."
    return f"{parts} {t(took, wrote=t(wrote))}"


def caveats(comparison: Comparison) -> list[str]:
    """What the times of other engines include, and what they do not say."""
    theirs = others(comparison)
    if not theirs:
        return []
    size = next(iter(theirs.values())).config.block_size
    said = [
        "A time goes from the first request handed over to the end of the last step: loading a model and its KV pool are not in it, keeping "
        f"the record is, and nobody turns tokens into text. KV blocks hold {size} tokens for everybody.",
        "A model of 5 million parameters on a CPU is not what these engines are made for: such times say little of them elsewhere.",
    ]
    return [t(sentence) for sentence in said]


def _engine(name: str, trace: Trace) -> str:
    assert trace.header.engine is not None
    return f"{name} {trace.header.engine.version}"
