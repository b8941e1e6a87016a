"""Describes a step in one plain sentence, for readers who have never heard of a token budget: which
requests come, read, write and go. It has no limits and no arithmetic, but the same facts as
`visualizer.words.narration`.
"""

from core.trace.events import Limit, Segment
from core.trace.phrases import brief
from visualizer.words.context import CaptionContext
from visualizer.words.narration import Clause, clause, fitted, lengths, resumed, same
from visualizer.words.vocabulary import Sentence, names, once_more

_WAITS: dict[Limit, str] = {
    "barrier": "nobody joins before all are done",
    "budget": "this pass is full",
    "blocks": "too little memory is free",
    "margin": "too little memory is free",
    "prefill": "one prompt is read at a time",
    "phase": "this pass only reads prompts",
}
"""Why a request waits, unless it is for a lane, which can be seen."""


def plain_sentence(m: CaptionContext) -> Sentence:
    """The step in one sentence of at most `MAX_CHARACTERS`."""
    parts = {
        "resumed": resumed(m),
        "preempted": _preempted(m),
        "reads": _reads(m),
        "writes": _writes(m),
        "stalled": clause([s.request for s in m.event.stalled], "[=# has|have] to pause"),
        "nobody": _for_nobody(m),
        "ends": _ends(m),
        "wait": _wait(m),
    }
    return fitted(
        m, parts, ("resumed", "preempted", "reads", "writes", "stalled", "ends", "wait", "nobody")
    )


def _preempted(m: CaptionContext) -> Clause | None:
    cause = ": the memory is full" if m.ran_out else ", for a reason that is not recorded"
    gone = [p.request for p in m.event.preempted]
    return clause(gone, "[=# loses its|lose their] lane", cause)


def _writes(m: CaptionContext) -> Clause | None:
    writing = [s.request for s in m.decodes if s.request in m.sampled]
    if not writing:
        return None
    rows = {(s.pass_index, s.request) for s in m.decodes}
    total = sum((s.pass_index, s.request) in rows for s in m.event.sampled)
    more = "one more token" if total == len(writing) else f"{total:,} more tokens"
    each = "each " if total == len(writing) else ""
    return clause(writing, f"[=# writes|{each}write] {more}")


def _reads(m: CaptionContext) -> Clause | None:
    reading = m.prefills
    if not reading:
        return None
    if len(reading) == 1:
        return _one_reads(m, reading[0])
    who = names([s.request for s in reading])
    numbers, total, again = lengths(m, reading)
    if again:
        return same([*who, f" read {numbers} tokens{once_more(again, total)}"])
    came = {a.request for a in m.event.admitted}
    short: Sentence = [*who, f" read {numbers} tokens"]
    if not all(s.request in came for s in reading):
        return same(short)
    together = " in one pass" if len({s.pass_index for s in reading}) == 1 else ""
    return short, [*who, f" each take a free lane: {numbers} tokens are read{together}"]


def _one_reads(m: CaptionContext, s: Segment) -> Clause:
    who: Sentence = [{"r": s.request}]
    end = m.pending_end(s)
    if again := m.recomputed(s):
        read = f" reads {s.length:,} [token|tokens]{once_more(again, s.length)}"
        short: Sentence = [*who, read]
        return short, [*short, ", as it had lost its lane"]
    part = f"{s.length:,} of its {end:,} [token|tokens]"
    if s.length == end:
        read = f" reads its {s.length:,} [token|tokens]"
    elif s.kv_len < end:
        read = f" reads {part}"
    elif s.request in m.event.kv.cached_tokens:
        read = f" needs to read only {part}"
    elif s.length == 1:
        read = f" reads the last of its {end:,} [token|tokens]"
    else:
        read = f" reads the last {part}"
    short = [*who, read]
    lane = next((a.lane for a in m.event.admitted if a.request == s.request), None)
    if lane is None:
        return same(short)
    together = " in the same pass" if any(d.pass_index == s.pass_index for d in m.decodes) else ""
    read = f"its {s.length:,} [token is|tokens are] read" if s.length == end else f"{part} are read"
    if s.request in m.event.kv.cached_tokens:
        together = ", as the others are remembered"
    left = m.state.freed.get(lane)
    if left is None or left.request == s.request or left.request not in m.letters:
        return short, [*who, f" takes a free lane: {read}{together}"]
    return short, [*who, " takes the lane that ", {"r": left.request}, f" left: {read}{together}"]


def _for_nobody(m: CaptionContext) -> Clause | None:
    passes = m.event.passes
    nobody = sum(p.padding for p in passes) + sum(o.rows for o in m.event.overrun)
    if not nobody:
        return None
    padded = any(p.padding for p in passes)
    positions = sum(p.rows * p.width if padded else p.tokens for p in passes)
    places = f"{nobody:,} of {positions:,} places [={nobody} is|are]"
    return [f"{places} for nobody"], [f"{places} computed for nobody"]


def _ends(m: CaptionContext) -> Clause | None:
    ended = m.event.finished
    done = all(f.finish_reason in ("length", "stop") for f in ended)
    return clause([f.request for f in ended], "[=# is|are] done" if done else "[=# leaves|leave]")


def _wait(m: CaptionContext) -> Clause | None:
    waiting = m.event.waiting
    if waiting.request is None or waiting.why is None or waiting.why.limit == "lanes":
        return None
    if waiting.request in {p.request for p in m.event.preempted}:
        return None  # the reason has been said already
    why = _WAITS.get(waiting.why.limit) or brief(waiting.why)
    if waiting.why.limit == "blocks" and m.reserved:
        why = "the memory is reserved for others"
    return same([{"r": waiting.request}, " waits: ", why])
