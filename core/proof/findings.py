"""What `check` found, also in sentences: what was proved, and what is taken on trust.

This file says of every fact in a trace how it is known. A `sealed` fact is taken on trust: the
checksum only shows that it was not altered by mistake.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from core.config import ASSETS
from core.errors import InflightError, shown
from core.proof.rerun import RerunResult
from core.trace.events import Limit
from core.trace.header import Header
from core.trace.messages import english, listed

Proof = Literal["replayed", "bounded", "decoded", "rerun", "sealed"]

_TABLES = tomllib.loads((ASSETS / "checks.toml").read_text(encoding="utf-8"))

PROOFS: dict[str, tuple[Proof, str]] = {
    fact: (row["proof"], row["how"]) for fact, row in _TABLES["proofs"].items()
}
"""For each fact how it is known, and what exactly is known about it."""

OTHERS: dict[str, tuple[str, str]] = {
    fact: (row["enforced"], row.get("believed", "")) for fact, row in _TABLES["others"].items()
}
"""For each fact of another engine's run what is enforced, by a refusal or a warning, and what is
taken on trust, if anything.
"""


_ONLY_RERUN = ("request.sampling", "header.leak")  # nothing but a rerun can check them
# not replayed of a request that was ended from outside
_UNTIL_ITS_END = ("header.arrival_unit, request.asked", "event.finished")


@dataclass(frozen=True, repr=False)
class CheckResult:
    """A valid trace, or the valid part of one. breaks_off: the file ends before its end was
    written. not_replayed, not_decoded: why its decisions and its texts are taken on trust, None if
    they were proved. never_bound: limits that never bound with nothing left, so that nothing shows
    how large they were. rerun: what the model computed again, None without a rerun. warnings: where
    another engine's run breaks a rule of ours, each with its step. texts_as_ids: requests with
    token ids in place of texts. unrecorded: steps with a reason that another engine did not record.
    is_retimed: the passes of a simulated run take the time that its cost model gives. skipped:
    steps in which another engine is said to have skipped the head of its queue, whatever the limits
    were. from_outside: by reason, how many requests were ended by something that is not recorded,
    so on trust.
    """

    header: Header
    complete: bool
    num_requests: int
    num_steps: int
    num_tokens: int
    not_replayed: str | None
    not_decoded: str | None
    never_bound: tuple[Limit, ...] = ()
    rerun: RerunResult | None = None
    warnings: tuple[tuple[int, str], ...] = ()
    texts_as_ids: int = 0
    unrecorded: int = 0
    breaks_off: bool = False
    is_retimed: bool = False
    skipped: int = 0
    from_outside: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """What was proved and what is taken on trust, as the command says it."""
        return "\n".join(findings(self))

    def proof_of(self, fact: str) -> Proof:
        """How a fact of `PROOFS` is known for this trace."""
        if not isinstance(fact, str) or fact not in PROOFS:
            raise InflightError(f"There is no fact {shown(fact)}; there are {', '.join(PROOFS)}.")
        proof = PROOFS[fact][0]
        if self.rerun is None and fact in _ONLY_RERUN:
            return "sealed"
        # of a model that processes shared, the weights of one may be all that was counted
        is_part = self.rerun and not self.header.engine and "parameters" not in self.rerun.facts
        if (
            (fact == "header.model" and is_part)
            or (proof == "replayed" and self.not_replayed)
            or (proof == "rerun" and self.rerun is None)
            or (fact in _UNTIL_ITS_END and self.from_outside)
            or (fact == "end" and not self.complete)
        ):
            return "bounded"
        return "sealed" if proof == "decoded" and self.not_decoded else proof


def findings(found: CheckResult) -> Iterator[str]:
    """Sentences on what was proved, what was bounded, and what is taken on trust."""
    header = found.header
    if found.not_replayed:
        odd = (
            english(f"; {len(found.warnings):,} [time|times] they were not, see above")
            if found.warnings
            else ""
        )
        yield (
            f"Decisions: not taken again, as {found.not_replayed}; the rules that hold for every"
            f" policy were followed{odd}."
        )
    else:
        last = (
            " but those of the last step" if header.is_asynchronous and not found.complete else ""
        )
        unlike = header.unlike_installed
        told = f", with another {listed(unlike)} than the installed one" if unlike else ""
        yield (
            f"Decisions: all{last} taken again by the scheduler under the policy"
            f" {header.policy.name}{told}, and the same; what would not change them does not show,"
            " such as another policy, switch or block size, an arrival between the same steps, or a"
            " priority where the policy has none."
        )
    if found.never_bound:
        yield (
            "Limits that never bound with nothing left, so their sizes are taken on trust:"
            f" {', '.join(found.never_bound)}."
        )
    if found.from_outside:
        cancelled, failed = (found.from_outside.get(why, 0) for why in ("cancelled", "error"))
        yield (
            f"Ends from outside: {cancelled:,} cancelled, {failed:,} failed. That these requests"
            " ended so, what more they had asked for, and so who had their lanes and blocks from"
            " then on, is taken on trust."
        )
    if not found.complete:
        yield "End: that the run was cut there, and what came after it, is taken on trust."
    if unknown := header.unknown:
        yield (
            f"Header: what this version does not know, such as {shown(unknown[0])}, is taken on"
            " trust."
        )
    if header.engine:
        yield from _of_another(found)
        return
    if header.is_interactive:
        yield (
            "Arrivals: in order; when they came is taken on trust, as requests came while it ran."
        )
    part = "part of the device's" if header.is_asynchronous else "part"
    yield (
        "Times: those that the cost model in the header gives, computed again; its numbers are"
        " taken on trust."
        if found.is_retimed
        else f"Times: in order, and no {part} longer than the whole; their values are taken on"
        " trust."
    )
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(header)
    yield _texts(found)
    yield (
        "Whether it ran live, the names of the workload and its requests, whether a prompt was a"
        " text, machine, memory, number format, how passes were computed, versions, notes and"
        " dates: taken on trust."
    )


def _of_another(found: CheckResult) -> Iterator[str]:
    """Sentences on what is taken on trust in another engine's run."""
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(found.header)[:1]
    yield _texts(found)
    if found.unrecorded:
        yield english(
            f"In {found.unrecorded:,} of {found.num_steps:,} [step|steps] why a request waits,"
            " stalls or is cut is not recorded."
        )
    if found.skipped:
        yield english(
            f"In {found.skipped:,} of {found.num_steps:,} [step|steps] the engine is said to"
            " have skipped the first who waits, whatever the limits: taken on trust."
        )
    yield "Nothing in the file can prove the rest, which is taken on trust:"
    yield from (f"    {fact}: {believed}" for fact, (_, believed) in OTHERS.items() if believed)


def _rerun(again: RerunResult) -> Iterator[str]:
    probabilities = (
        "whose probabilities are not on record"
        if again.apart is None
        else f"with probabilities and margins at most {again.apart:.2g} from those on record"
    )
    yield (
        f"Tokens: {again.tokens:,} written again by the model, {probabilities}; a difference of"
        f" {again.rounding} in a logit may be rounding, and is taken on trust."
    )
    yield (
        "Sampling: it gives these tokens; what made no difference to them, such as a stop string"
        " that never occurs, is taken on trust."
    )
    if again.ties:
        yield english(
            f"Of these {again.ties:,} [is|are] not the one that is best here, but behind it by no"
            " more than that, and the request was run on from the one on record."
        )
    if again.parted:
        yield english(
            f"Of these {again.parted:,} [was|were] chosen otherwise here by temperature or"
            " penalties, as may happen in 16 bits, or [follows|follow] such a choice: taken on"
            " trust."
        )
    if again.drawn:
        yield english(
            f"{again.drawn:,} more [was|were] drawn by another engine's noise, which is not ours:"
            " taken on trust."
        )
    if again.facts:
        yield f"Model: the same {', '.join(again.facts)} as on record."
    else:
        yield "Model: nothing of it is on record but its name."


def _not_rerun(header: Header) -> list[str]:
    inside = "" if header.model.vocab_size is None else "inside the vocabulary; "
    if header.is_simulated:
        return [
            f"Tokens: {inside}made up, as no model ran.",
            "Model: its facts, as none ran: taken on trust.",
        ]
    return [
        (
            f"Tokens: {inside}which they are, how probable they were, and the sampling that chose"
            " them, is taken on trust (--rerun runs the model again)."
        ),
        (
            "Model: that it ran, its facts, and whether requests read each other's keys: taken on"
            " trust."
        ),
    ]


def _texts(found: CheckResult) -> str:
    if found.not_decoded:
        return f"Texts: taken on trust, as {found.not_decoded}."
    if found.texts_as_ids == found.num_requests > 0:
        return (
            "Texts: none on record; in their place are the ids of the tokens, and they are the"
            " same."
        )
    if found.header.is_simulated:
        return (
            "Texts: those of the prompts, decoded again from their tokens, and the same; made-up"
            " tokens have none."
        )
    decoded = "Texts: decoded again from the tokens, and the same"
    if not found.texts_as_ids:
        return f"{decoded}."
    count = f"{found.texts_as_ids:,} of {found.num_requests:,}"
    return f"{decoded}; {count} requests have the ids of their tokens in place of texts."
