"""Describes a step in one sentence of at most `MAX_CHARACTERS`, the important facts first."""

from collections.abc import Mapping, Sequence

from core.trace.events import Finished, Segment
from core.trace.phrases import brief, not_shown, reason
from visualizer.words.context import CaptionContext
from visualizer.words.vocabulary import (
    NAMED,
    Sentence,
    joined,
    names,
    once_more,
    padding_causes,
    plain,
)

Clause = tuple[Sentence, Sentence]  # a part of the one sentence: without and with its reason
MAX_CHARACTERS = 160


def sentence(m: CaptionContext) -> Sentence:
    """The step in one sentence: clauses are chosen by importance and put in the order of events."""
    computed = {"prefills": _prefills(m), "decodes": _decodes(m)}
    parts = {
        "resumed": resumed(m),
        "preempted": _preempted(m),
        "behind": _behind(m),
        **(computed if m.prefills_come_first else dict(reversed(computed.items()))),
        "stalled": _stalled(m),
        "padding": _padding(m),
        "overrun": _overrun(m),
        "ends": _ends(m),
        "wait": _wait(m),
    }
    return fitted(
        m,
        parts,
        (
            "resumed",
            "preempted",
            "wait",
            "prefills",
            "decodes",
            "stalled",
            "ends",
            "overrun",
            "behind",
            "padding",
        ),
    )


def fitted(
    m: CaptionContext, parts: Mapping[str, Clause | None], telling: Sequence[str]
) -> Sentence:
    """One sentence of the clauses that fit, in order. telling: names, most important first."""
    chosen: dict[str, Sentence] = {}
    for form in (0, 1):  # first all short forms, then the longer ones with reasons
        for name in telling:
            clause = parts[name]
            if (
                clause
                and (form == 0 or name in chosen)
                and _fits(m, attempt := {**chosen, name: clause[form]})
            ):
                chosen = attempt
    return joined(
        [chosen[name] for name in parts if name in chosen]
        or [["Nothing is computed in this step"]],
        "; ",
        ".",
    )


def _fits(m: CaptionContext, chosen: dict[str, Sentence]) -> bool:
    text = plain(joined(list(chosen.values()), "; ", "."), lambda r: m.letters.get(r, "?"))
    return len(text) <= MAX_CHARACTERS


def same(sentence: Sentence) -> Clause:
    """A clause without a longer form."""
    return sentence, sentence


def clause(requests: Sequence[str], does: str, cause: str = "") -> Clause | None:
    """What requests do, and why; None for none. does: with # for their number."""
    if not requests:
        return None
    short = [*names(requests), f" {does.replace('#', str(len(requests)))}"]
    return short, [*short, cause] if cause else short


def resumed(m: CaptionContext) -> Clause | None:
    """The steps before this one that are not shown."""
    return same([not_shown(m.event.resumed)]) if m.event.resumed else None


def _preempted(m: CaptionContext) -> Clause | None:
    lost = sum(p.tokens_lost for p in m.event.preempted)
    does = f"[=# loses its|lose their] cache of {lost:,} [token|tokens]"
    cause = (
        f", because the {m.event.kv.total:,} KV [block|blocks] ran out"
        if m.ran_out
        else ", for a reason that is not recorded"
    )
    return clause([p.request for p in m.event.preempted], does, cause)


def _behind(m: CaptionContext) -> Clause | None:
    left = [c for c in m.event.kv.changes if c.left]
    total = sum(len(c.left) for c in left)
    slides = all((m.groups[c.group].kind or "").startswith("sliding_window") for c in left)
    where = "behind [=# its|their] window" if slides else "that [=# it needs|they need] no more"
    does = f"[=# gives|give] back {total:,} [block|blocks] {where}"
    return clause(list(dict.fromkeys(c.request for c in left)), does)


def _decodes(m: CaptionContext) -> Clause | None:
    writing = [s.request for s in m.decodes if s.request in m.sampled]
    if not writing:
        return clause([s.request for s in m.decodes], "[=# computes|compute] without a new token")
    then = "then " if m.prefills_come_first else ""
    rows = {(s.pass_index, s.request) for s in m.decodes}
    total = sum((s.pass_index, s.request) in rows for s in m.event.sampled)
    if total > len(writing):  # speculation
        adds = f" [={len(writing)} adds|add] {total:,} [token|tokens]"
    else:
        adds = f" [={len(writing)} adds one token|each add one token]"
    short = [then, *names(writing), adds]
    nothing_else = not (m.prefills or m.event.waiting.count or m.event.stalled or m.event.preempted)
    return short, [*short, ", and no request waits"] if nothing_else else short


def _prefills(m: CaptionContext) -> Clause | None:
    if not m.prefills:
        return None
    cut = [s for s in m.prefills if m.cut_by_budget(s)]
    whole = [s for s in m.prefills if s not in cut]
    short, told = _reads(m, m.prefills)
    if cut and whole:
        return short, [*_reads(m, whole)[1], "; ", *_reads(m, cut)[1]]
    return short, told


def _reads(m: CaptionContext, reading: Sequence[Segment]) -> Clause:
    """How much of some prompts is computed; why, if the budget cuts all or none."""
    who = names([s.request for s in reading])
    if len(reading) == 1:
        return _one_prefill(m, reading[0], who)
    numbers, total, again = lengths(m, reading)
    does = f" compute {numbers} tokens{once_more(again, total)}"
    short = [*who, does if again else f" read {numbers} prompt tokens"]
    if limit := _limit(m, reading[0]):
        return short, [*short, limit]
    begin = not again and all(s.request in m.sampled for s in reading)
    return short, [*short, " and write their first tokens" if begin else "", _room(m)]


def lengths(m: CaptionContext, reading: Sequence[Segment]) -> tuple[str, int, int]:
    """How much of several prompts is computed: as text, the sum, and how much of that again."""
    total = sum(s.length for s in reading)
    each = " + ".join(f"{s.length:,}" for s in reading)
    return each if len(reading) <= NAMED else f"{total:,}", total, sum(map(m.recomputed, reading))


def _limit(m: CaptionContext, s: Segment) -> str:
    return f", all that the budget of {m.event.budget.limit:,} leaves" if m.cut_by_budget(s) else ""


def _one_prefill(m: CaptionContext, s: Segment, who: Sentence) -> Clause:
    end, limit = m.pending_end(s), _limit(m, s)
    if again := m.recomputed(s):
        short = [*who, f" computes {s.length:,} [token|tokens]{once_more(again, s.length)}"]
        return short, [*short, limit or ", lost when it was preempted"]
    first = " and writes its first token" if s.request in m.sampled else ""
    if s.kv_len != end:
        short = [*who, f" reads {s.length:,} of its {end:,} prompt [token|tokens]"]
        return short, [*short, limit]
    if s.start:
        cached = m.event.kv.cached_tokens.get(s.request)
        last = "the last" if s.length == 1 else f"the last {s.length:,}"
        short = [*who, f" reads {last} of its {end:,} prompt [token|tokens]", first]
        return short, [*short, f", as {cached:,} were in the prefix cache" if cached else ""]
    short = [*who, f" reads its {s.length:,} prompt [token|tokens]", first]
    return short, [*short, _room(m)]


def _room(m: CaptionContext) -> str:
    """Why there was room for the prompts, if all of them are new."""
    came = {a.request for a in m.event.admitted}
    if not came or any(s.request not in came or m.cut_by_budget(s) for s in m.prefills):
        return ""
    lanes = [a.lane for a in m.event.admitted]
    if m.config.policy.admission == "barrier":
        return ", as a new wave begins"
    free = f"lane {lanes[0]} was" if len(lanes) == 1 else f"{len(lanes):,} lanes were"
    return f", as {free} free"


def _stalled(m: CaptionContext) -> Clause | None:
    stalled = m.event.stalled
    known = stalled and stalled[0].why.limit != "unrecorded"
    cause = f",{' as' if known else ''} {brief(stalled[0].why, m.reserved)}" if stalled else ""
    return clause([s.request for s in stalled], "[=# computes|compute] nothing", cause)


def _padding(m: CaptionContext) -> Clause | None:
    padding = sum(p.padding for p in m.event.passes)
    if not padding:
        return None
    positions = sum(p.rows * p.width for p in m.event.passes)
    short: Sentence = [
        f"{padding:,} of {positions:,} [position|positions] [={padding} is|are] padding"
    ]
    return short, [*short, ", ", *padding_causes(m.event.passes)]


def _overrun(m: CaptionContext) -> Clause | None:
    over = [o.request for o in m.event.overrun]
    # otherwise a request was cancelled while this step ran
    had_stopped = all(request in m.state.finished for request in over)
    cause = f", as [={len(over)} it|they] had stopped" if had_stopped else ""
    return clause(over, "[=# is|are] computed for nothing", cause)


def _ends(m: CaptionContext) -> Clause | None:
    ended = m.event.finished
    reasons = {f.finish_reason for f in ended}
    verbs = {
        "length": "finishes|finish",
        "stop": "stops|stop",
        "cancelled": "leaves|leave",
        "error": "fails|fail" if m.own else "ends|end",
    }
    verb = verbs[reasons.pop()] if len(reasons) == 1 else "ends|end"
    cause = _why_it_ends(m, ended[0]) if len(ended) == 1 else ""
    return clause([f.request for f in ended], f"[=# {verb}]", cause)


def _why_it_ends(m: CaptionContext, f: Finished) -> str:
    written = m.written(f.request)
    if f.finish_reason == "length":
        if m.fills_context(f.request, written):
            return f", as its context of {m.context:,} [token|tokens] is full"
        return f" with the {written:,} [token|tokens] it asked for"
    if f.finish_reason == "stop":
        if m.has_stop_string(f.request):
            return " at a stop string"
        if m.own:
            return ", as the model has ended the answer"
        # another engine may also end an answer that repeats itself
        return f" at its token number {written:,}" if written else " without a token"
    if f.finish_reason == "cancelled":
        return ", cancelled" if m.own else ", ended from outside (stop string or client)"
    return ", as its logits were not finite" if m.own else ", for a reason that is not recorded"


def _wait(m: CaptionContext) -> Clause | None:
    waiting = m.event.waiting
    if waiting.request is None or waiting.why is None:
        return None
    behind = f", {waiting.count - 1:,} more behind" if waiting.count > 1 else ""
    who: Sentence = [{"r": waiting.request}, f" waits{behind}", ": "]
    return [*who, brief(waiting.why, m.reserved)], [*who, reason(waiting.why, m.reserved)]
