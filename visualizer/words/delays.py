"""Why a run was slow, in sentences: the longest gaps between tokens and the longest waits, each
with its cause if that is recorded. See `core.account.delays`.
"""

from core.account.delays import AGAIN, BETWEEN, PREEMPTED, QUEUED, SLOW, STALLED, Delay, Gap
from core.trace.phrases import queued_by, reason
from visualizer.words.vocabulary import Sentence, milliseconds, names, said

_WORTH = 0.02  # share of a wait below which a cause is not named


def gap_sentence(gap: Gap) -> Sentence:
    """A gap between two tokens, and why it was long, in the current language."""
    who = [gap.request, *gap.beside]
    took = milliseconds(gap.whole_us / 1e6)
    first = f" [={len(who)} gets|each get] the next token after {took}: "
    return said([*names(who), first, *_cause(gap, len(who)), "."])


def wait_sentence(delay: Delay) -> Sentence:
    """How long a request was queued, and which limits caused it, the longest first."""
    by = sorted(
        ((us, limit) for limit, us in delay.queued_us.items() if us > _WORTH * delay.us[QUEUED]),
        reverse=True,
    )
    end = (
        "for its first pass"
        if delay.first_step is not None
        else "and is never computed"
        if delay.reason is not None
        else "and its first pass is not on record"
    )
    causes: Sentence = []
    for us, limit in by:
        share = [f" ({milliseconds(us / 1e6)})"] * (len(by) > 1)  # of one, it is the whole wait
        causes += [", "] * bool(causes) + [queued_by(limit), *share]
    if late := delay.overtaken_by:
        count = f"; overtaken by {len(late)} [request|requests] that came later: "
        causes += [count, *names(late)]
    waits = f" waits {milliseconds(delay.us[QUEUED] / 1e6)} {end}: "
    return said([{"r": delay.request}, waits, *causes, "."])


def _cause(gap: Gap, n: int) -> Sentence:
    """The cause of a gap. n: how many requests have the gap."""
    match gap.cause:
        case "others":
            if not _is_slow(gap):
                return _prompts(gap)
            return [
                *_prompts(gap),
                f"; nothing on record says why the pass took {gap.times:.1f} times as long as"
                " others of its size",
            ]
        case "preempted" | "again" | "prefill":
            away, again = milliseconds(gap.us[PREEMPTED] / 1e6), milliseconds(gap.us[AGAIN] / 1e6)
            return [
                f"[={n} it is|they are] preempted, away for {away}, and {gap.again:,}"
                f" [token|tokens] [={gap.again} is|are] computed again in {again}"
            ]
        case "stalled":
            held: Sentence = [
                f"for {milliseconds(gap.us[STALLED] / 1e6)} nothing is computed for [={n} it|them]"
            ]
            held += [": ", reason(gap.why)] if gap.why is not None else [", why is not recorded"]
            return held + (["; ", *_prompts(gap, " meanwhile")] if gap.prompts else [])
        case "between":
            return [f"for {milliseconds(gap.us[BETWEEN] / 1e6)} no pass runs"]
    return _decoding(gap)


def _prompts(gap: Gap, where: str = "") -> Sentence:
    """The prompts that were computed in the gap."""
    where = where or (" in the same pass" if gap.together else " in a pass between the two")
    total = sum(tokens for _, tokens in gap.prompts)
    does = f" [={len(gap.prompts)} computes|compute] {total:,} [token|tokens] of prefill"
    return [*names([request for request, _ in gap.prompts]), does, where]


def _decoding(gap: Gap) -> Sentence:
    """Decoding alone took the time of the gap."""
    if gap.uncompared and gap.prompts:
        return [*_prompts(gap), "; this run has no pass without a prefill to compare it with"]
    if gap.times is None:
        return ["this run has no other pass of its size to compare it with"]
    if _is_slow(gap):
        return [
            f"nothing on record says why; the pass took {gap.times:.1f} times as long as others of"
            " its size"
        ]
    return ["that is what a pass of its size takes in this run"]


def _is_slow(gap: Gap) -> bool:
    return gap.times is not None and gap.times >= SLOW
