"""A sentence with numbers for every decision of a step, in the order in which they were taken."""

from core.trace.events import (
    NOT_RECORDED,
    Admitted,
    Draft,
    Finished,
    LimitReached,
    Overrun,
    Preempted,
    Segment,
    Stalled,
)
from core.trace.phrases import GOES_ON, bound, not_shown, reason
from visualizer.words.context import CaptionContext
from visualizer.words.vocabulary import AsItIs, Sentence, milliseconds, names, padding_causes


def reasons(m: CaptionContext) -> list[Sentence]:
    """A sentence for each decision of the step, in the order in which they were taken."""
    event = m.event
    sentences = _resumed(m)
    sentences += [_arrived(m, a.request) for a in event.arrived]
    sentences += [_finished(m, f) for f in event.finished if f.when == "before"]
    if m.device_waited:
        waited = f"The device waited {milliseconds(m.waited)} for the host before this step."
        sentences.append([waited])
    sentences += [_preempted(m, p) for p in event.preempted]
    sentences += _behind(m)
    sentences += _decodes(m)
    sentences += [_draft(m, d) for d in event.drafts]
    sentences += [
        _chunk(m, s) for s in m.prefills if s.request not in {a.request for a in event.admitted}
    ]
    sentences += [_hit(m, h.request, h.num_cached_tokens) for h in event.kv.prefix_hits]
    sentences += [_admitted(m, a) for a in event.admitted]
    sentences += [_stalled(m, s) for s in event.stalled]
    sentences += _waiting(m)
    sentences += _budget(m)
    sentences += _padding(m)
    sentences += _graph(m)
    sentences += [_overrun(m, o) for o in event.overrun]
    sentences += [_finished(m, f) for f in event.finished if f.when == "after"]
    if m.config.policy.keeps_finished and m.leaving:
        free = f"{len(m.leaving):,} [lane|lanes] [becomes|become] free for the next step."
        sentences.append([f"The wave is over: {free}"])
    return sentences


def _resumed(m: CaptionContext) -> list[Sentence]:
    """Which steps are not shown, and what is known about requests that came or ended in them."""
    resumed = m.event.resumed
    if resumed is None:
        return []
    came = [arrived.request for arrived in resumed.arrived]
    ended = [f.request for f in resumed.ended if f.finish_reason != NOT_RECORDED]
    gone = [f.request for f in resumed.ended if f.finish_reason == NOT_RECORDED]
    does = [
        f" [={len(came)} arrives|arrive] in these steps.",
        f" [={len(ended)} ends|end] in these steps.",
        f" [={len(gone)} ends|end] in these steps, for a reason that is not recorded.",
    ]
    told = zip((came, ended, gone), does, strict=True)
    return [
        [not_shown(resumed), GOES_ON],
        *([*names(who, limit=12), what] for who, what in told if who),
    ]


def _arrived(m: CaptionContext, request: str) -> Sentence:
    asked = m.asked.get(request)
    wants = f", asking for up to {asked:,} [token|tokens]" if asked else ""
    if asked and m.fills_context(request, asked):
        wants = f", and its context has room for {asked:,} [token|tokens] more"
    return [
        {"r": request},
        f" arrives with a prompt of {m.prompt.get(request, 0):,} [token|tokens]{wants}.",
    ]


def _preempted(m: CaptionContext, p: Preempted) -> Sentence:
    cause: Sentence = [" is preempted, for a reason that is not recorded"]
    if m.ran_out:
        ran_out = (
            f" is preempted: too few of the {m.event.kv.total:,} KV [block|blocks] were free for"
            " the running requests to go on. "
        )
        cause = [ran_out, *_gives_way(m.config.policy.victim)]
    return [
        {"r": p.request},
        *cause,
        f": it loses lane {p.lane} and its cache of {p.tokens_lost:,} [token|tokens]",
        "; its tokens are kept and will be computed again.",
    ]


def _gives_way(victim: str) -> Sentence:
    """Which request is preempted, in our words, or in those of the author of the policy."""
    known = {
        "newest": "The newest gives way",
        "blocked": "The last of those that lack a block gives way",
        "lowest priority": "The newest of those with the lowest priority gives way",
        "not recorded": "Whoever its own scheduler chooses gives way",
    }
    if victim in known:
        return [known[victim]]
    return [AsItIs(victim[:1].upper() + victim[1:]), " gives way"]


def _behind(m: CaptionContext) -> list[Sentence]:
    """Blocks that were freed because layers no longer attend to them."""
    counts: dict[tuple[str, str, int | None], int] = {}
    for change in m.event.kv.changes:
        if change.left:
            group = m.groups[change.group]
            key = change.request, group.kind or "", group.window
            counts[key] = counts.get(key, 0) + len(change.left)
    return [
        [{"r": r}, f" gives back {n:,} [block|blocks]{_why_behind(kind, window, n)}."]
        for (r, kind, window), n in counts.items()
    ]


def _why_behind(kind: str, window: int | None, n: int) -> str:
    if kind == "mamba":
        return ", as its state has moved on"
    if kind.startswith("sliding_window") and window:
        return f", as a window of {window:,} [token|tokens] has passed [={n} it|them]"
    return f", as its layers look back over [={n} it|them] no more"


def _decodes(m: CaptionContext) -> list[Sentence]:
    """Which requests get a token, and which get none, because their logits were not finite, say."""
    limit, sentences = m.event.budget.limit, list[Sentence]()
    for gets in (True, False):
        decodes = [s for s in m.decodes if (s.request in m.sampled) == gets]
        tokens = sum(s.length for s in decodes)
        cost = f", {tokens:,} [token|tokens] of the budget of {limit:,}" if limit else ""
        then = "and [gets|get] the next" if gets else "and [gets|get] no new one"
        does = f" [={len(decodes)} computes its|compute their] newest token {then}{cost}."
        if decodes:
            sentences.append([*names([s.request for s in decodes], limit=12), does])
    return sentences


def _admitted(m: CaptionContext, a: Admitted) -> Sentence:
    segment = m.by_request.get(a.request)
    freed = m.state.freed.get(a.lane)
    origin: Sentence = [", not used before"]
    if freed is not None:
        origin = [
            f", {'lost' if freed.preempted else 'freed'} by ",
            {"r": freed.request},
            f" in step {freed.step}",
        ]
    head: Sentence = [{"r": a.request}, f" takes lane {a.lane}", *origin]
    if segment is None:
        return [*head, "."]
    return [*head, "; ", *_share(m, segment, a.why), "."]


def _share(m: CaptionContext, s: Segment, why: LimitReached) -> Sentence:
    """How much of its prompt a newly admitted request computes, and what limits it."""
    need = m.pending_end(s) - s.start
    limit = m.event.budget.limit
    if limit is None:
        return [
            f"its {need:,} [token|tokens] are computed at once, as this policy has no token budget"
        ]
    left = why.have if why.limit == "budget" else _budget_before(m, s)
    decodes = f"after {len(m.old_decodes):,} [decode|decodes] "
    before = decodes if m.old_decodes and not m.config.prefill_first else ""
    room = f"{before}{left:,} of {limit:,} budget [token|tokens] [={left} is|are] left: "
    first = f"its first chunk is {s.length:,} of {need:,}"
    share = first if s.length < need else f"its {need:,} [token|tokens] fit"
    if why.limit == "chunk":
        share = f"{first}, the most that a step computes of a prompt"
    elif why.limit == "unrecorded":
        share = f"{first}, and why it is no longer is not recorded"
    return [room + share]


def _budget_before(m: CaptionContext, s: Segment) -> int:
    """The budget left for this prompt after decodes and all earlier prompts."""
    admitted = [a.request for a in m.event.admitted]
    earlier = set(admitted[: admitted.index(s.request)])
    ahead = sum(
        p.length for p in m.all_prefills if p.request in earlier or p.request not in admitted
    )
    decodes = 0 if m.config.prefill_first else sum(s.length for s in m.old_decodes)
    return (m.event.budget.limit or 0) - decodes - ahead


def _chunk(m: CaptionContext, s: Segment) -> Sentence:
    end, chunk = m.pending_end(s), m.state.chunks.get(s.request, 0) + 1
    spent = f", all that was left of the budget of {m.event.budget.limit:,}"
    cause = spent if m.cut_by_budget(s) else ""
    done = f"{s.kv_len:,} of its {end:,}" if s.kv_len < end else f"all its {end:,}"
    does = f" computes chunk {chunk}, {s.length:,} [token|tokens]{cause}; {done} are done."
    return [{"r": s.request}, does]


def _hit(m: CaptionContext, request: str, cached: int) -> Sentence:
    known = m.state.num_tokens.get(request, 0)
    blocks = cached // m.config.block_size
    does = (
        f" finds {cached:,} of its {known:,} [token|tokens] in the prefix cache ({blocks:,}"
        f" [block|blocks]), so {known - cached:,} [is|are] left to compute."
    )
    return [{"r": request}, does]


def _stalled(m: CaptionContext, s: Stalled) -> Sentence:
    return [{"r": s.request}, " keeps its lane but computes nothing: ", reason(s.why), "."]


def _waiting(m: CaptionContext) -> list[Sentence]:
    waiting = m.event.waiting
    if waiting.request is None or waiting.why is None:
        return []
    since = m.state.since.get(waiting.request, m.event.step)
    steps, others = m.event.step - since, waiting.count - 1
    behind = f" {others:,} more [waits|wait] behind it." if others else ""
    how_long = f"has waited since step {since}, for {steps:,} [step|steps]" if steps else "waits"
    again = ", preempted," if waiting.request in m.state.lost else ""
    does, why = f"{again} {how_long}: ", reason(waiting.why, m.reserved)
    return [[{"r": waiting.request}, does, why, f".{behind}"]]


def _budget(m: CaptionContext) -> list[Sentence]:
    budget = m.event.budget
    if budget.limit is None:
        return []
    used = budget.decode + budget.prefill
    said = (
        f"The budget: {budget.decode:,} decode + {budget.prefill:,} prefill = {used:,} of"
        f" {budget.limit:,} [token|tokens], {budget.unused:,} unused. "
    )
    return [[said, bound(budget.binding), "."]]


def _padding(m: CaptionContext) -> list[Sentence]:
    sentences: list[Sentence] = []
    for forward in m.event.passes:
        positions = forward.rows * forward.width
        if forward.padding:
            share = round(100 * forward.padding / positions)
            computes = (
                f"The pass computes {forward.rows:,} [row|rows] × {forward.width:,} "
                f"[position|positions] = {positions:,}; "
            )
            pads = f"{forward.padding:,} of them ({share} %) [={forward.padding} is|are] padding: "
            sentences.append([computes, pads, *padding_causes([forward]), "."])
        for row in forward.finished_rows:
            ended = m.state.finished.get(row.request)
            when = f" in step {ended}" if ended is not None else ""
            does = (
                f" finished{when}, yet lane {row.lane} is computed as padding until its wave ends."
            )
            sentences.append([{"r": row.request}, does])
    return sentences


def _graph(m: CaptionContext) -> list[Sentence]:
    """What a CUDA graph computes in addition to the pass, since graphs have fixed sizes."""
    beyond = [(p, p.bucket - p.rows * p.width) for p in m.event.passes if p.bucket is not None]
    said = (
        "The pass runs as a CUDA graph of {:,} [position|positions]: {:,} of them [is|are] padding"
        " that belongs to no request."
    )
    return [[said.format(p.bucket, pads)] for p, pads in beyond if pads > 0]


def _draft(m: CaptionContext, d: Draft) -> Sentence:
    if d.request in m.overrun:
        return [
            {"r": d.request},
            f" guesses {d.drafted:,} [token|tokens] ahead, and nobody reads what comes of it.",
        ]
    got = sum(s.request == d.request for s in m.event.sampled)
    forgotten = d.drafted - d.accepted
    has_ended = any(f.request == d.request for f in m.event.finished)
    # whether draft tokens after the end were right is not recorded
    what = "used" if forgotten and has_ended else "right"
    right = f"{d.accepted:,} [is|are] {what}" if d.accepted else f"none is {what}"
    then = f"; the [={forgotten} other is|others are] forgotten" if forgotten else ""
    if not d.accepted:
        then = f"; [={forgotten} it is|they are] forgotten"
    does = (
        f" guesses {d.drafted:,} [token|tokens] ahead: {right}, so the pass gives it {got:,}"
        f" [token|tokens]{then}."
    )
    return [{"r": d.request}, does]


def _overrun(m: CaptionContext, o: Overrun) -> Sentence:
    ended = m.state.finished.get(o.request)
    launched = f"stopped in step {ended}, when this step was already launched"
    by_whom = "was cancelled" if m.own else "was ended from outside (stop string or client)"
    when = f"{by_whom} while this step ran" if ended is None else launched
    lane = m.leaving.get(o.request)
    blocks = f"{len(m.state.blocks_of(o.request)):,} [block|blocks]"
    then = "" if lane is None else f"; lane {lane} and {blocks} become free after it"
    return [
        {"r": o.request},
        f" {when}: {o.rows:,} [position|positions] [was|were] computed for nothing{then}.",
    ]


def _finished(m: CaptionContext, f: Finished) -> Sentence:
    written = m.written(f.request)
    completes = "completes a stop string" if m.has_stop_string(f.request) else "ends the answer"
    ends = {
        "length": (
            f"is done: its context of {m.context or 0:,} [token|tokens] is full"
            if m.fills_context(f.request, written)
            else f"is done: it has the {written:,} [token|tokens] it asked for"
        ),
        "stop": (
            f"is done: its token number {written:,} {completes}"
            if written
            else "is done without a token"
        ),
        "cancelled": (
            f"ends: it was {'cancelled' if m.own else 'ended from outside (stop string or client)'}"
            f" after {written:,} [token|tokens]"
        ),
        "error": (
            "fails: its logits were not finite"
            if m.own
            else "ends, for a reason that is not recorded"
        ),
    }[f.finish_reason]
    lane = m.state.lane_of(f.request)
    if lane is None:
        then = ""
    elif f.request in m.leaving:
        held = f"{len(m.state.blocks_of(f.request)):,} [block|blocks]"
        then = f"; lane {lane} and {held} become free"
    elif m.config.policy.keeps_finished:
        then = f", but lane {lane} stays taken until its wave ends"
    else:
        then = f", but the next step is launched already: lane {lane} becomes free after it"
    return [{"r": f.request}, f" {ends}{then}."]
