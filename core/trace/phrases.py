"""Phrases for what a trace records: limits, reasons, settings, letters of requests. The terminal,
the captions and the page use them.

A phrase has no subject and no full stop.
"""

from typing import Any, NamedTuple

from core.trace.events import Limit, LimitReached, Ran, Resumed


class LimitWords(NamedTuple):
    """name: the limit itself. brief: that it binds, in a few words."""

    name: str
    brief: str


LIMITS: dict[Limit, LimitWords] = {
    "lanes": LimitWords("lanes", "no lane is free"),
    "budget": LimitWords("token budget", "the token budget is spent"),
    "blocks": LimitWords("KV blocks", "too few KV blocks are free"),
    "barrier": LimitWords("barrier", "the wave must end first"),
    "prefill": LimitWords("one prompt at a time", "one prompt at a time"),
    "margin": LimitWords("the margin of KV blocks", "the last KV blocks are kept for decodes"),
    "reads": LimitWords("cached tokens read", "too many cached tokens would be read"),
    "recovery": LimitWords("recovery", "none joins until one finishes"),
    "phase": LimitWords("prompts before decodes", "the step computes prompts alone"),
    "policy": LimitWords("the policy", "the policy lets no request join yet"),
    "chunk": LimitWords("the longest chunk", "prompts are computed in chunks"),
    "skipped": LimitWords("a skipped request", "the engine skipped it"),
    "unrecorded": LimitWords("not recorded", "why is not recorded"),
    "none": LimitWords("nothing", "nothing limits it"),
}


SETTINGS = {
    "policy": "policy",
    "max_num_seqs": "lanes",
    "max_num_batched_tokens": "token budget",
    "block_size": "block size",
    "num_blocks": "KV blocks",
    "chunked_prefill": "chunked prefill",
    "prefix_caching": "prefix caching",
    "prefill_first": "prefill first",
}

_COUNTED = {"max_num_seqs": "[lane|lanes]", "num_blocks": "KV [block|blocks]"}

ALIGNMENTS: dict[str, str] = {
    "machine": "All ranks are on the clock of their machine.",
    "wall": (
        "The ranks share no machine: they are aligned by wall clock, as far as their clocks agree."
    ),
    "second": (
        "No common clock was recorded: the ranks are aligned by the time at which each began, known"
        " to the second."
    ),
    "first step": (
        "No clock was recorded: the first step of every rank is drawn at 0, whenever it was."
    ),
}


GOES_ON = "; the run goes on from a snapshot."
"""The end of a sentence that begins with `not_shown`."""


def not_shown(resumed: Resumed) -> str:
    """Which steps before a resumption are missing or not shown; without a full stop."""
    first, last, missing = resumed.first, resumed.last, resumed.missing
    number = last - first + 1
    steps = f"Steps {first} {'and' if number == 2 else 'to'} {last} are"
    if number == 1:
        steps = f"Step {first} is"
    if missing == number:
        return f"{steps} missing in this recording"
    return (
        f"{steps} not shown, as {missing:,} of them [={missing} is|are] missing in this recording"
    )


def reason(why: LimitReached, reserved: bool = False) -> str:
    """The scheduler's reason with its numbers: why a request waits or computes nothing.

    reserved: whether blocks that are still free are kept for the rest of others' answers.
    """
    has, needs = f"[={why.have} is|are]", f"{why.need:,} [is|are] needed"
    match why.limit:
        case "lanes":
            return {1: "the only lane is taken", 2: "both lanes are taken"}.get(
                why.total, f"all {why.total:,} lanes are taken"
            )
        case "budget" if why.have:
            return f"{why.have:,} of {why.total:,} budget [token|tokens] {has} left, and {needs}"
        case "budget":
            return f"the budget of {why.total:,} [token|tokens] is spent"
        case "blocks" if reserved:
            return (
                f"all but {why.have:,} of {why.total:,} KV [block|blocks] are reserved for others,"
                f" and {needs}"
            )
        case "blocks" if not why.have:  # in the step of a preemption those given up are free
            return f"none of the {why.total:,} KV [block|blocks] was free in time, and {needs}"
        case "blocks":
            return f"{why.have:,} of {why.total:,} KV [block|blocks] {has} free, and {needs}"
        case "barrier":
            return (
                f"the wave must end first, and {why.have:,} of {why.total:,} [lane|lanes] {has}"
                " still computing"
            )
        case "prefill":
            return "another prompt is being computed, one at a time"
        case "margin":
            return (
                f"{why.have:,} of {why.total:,} KV [block|blocks] {has} free, and {why.need:,} must"
                " stay free for decodes"
            )
        case "reads":
            return (
                f"the step may read {why.have:,} more of {why.total:,} cached [token|tokens], and"
                f" {needs}"
            )
        case "recovery":
            return "a request has given way for a KV block, and none joins until one finishes"
        case "chunk":
            return f"a step computes at most {why.total:,} [token|tokens] of a prompt, and {needs}"
        case "skipped":
            return "the engine skipped it, for want of its grammar, its adapter or its KV"
        case "phase" | "policy" | "unrecorded":
            return LIMITS[why.limit].brief
        case _:
            return LIMITS["none"].brief


def brief(why: LimitReached, reserved: bool = False) -> str:
    """The reason in a few words; see `reason`."""
    if why.limit == "blocks" and reserved:
        return "the KV blocks are reserved for others"
    if why.limit == "budget" and why.have:
        return "too little budget is left"
    return LIMITS[why.limit].brief


_QUEUED_BY: dict[str, str] = {
    **{limit: words.brief for limit, words in LIMITS.items()},
    "none": "its next pass has yet to begin",
    "overtaken": "one that came later is ahead",
    "passed": "one that came later joins first",
}


def queued_by(cause: str) -> str:
    """Why a request was queued. cause: a key of `core.account.delays.Delay.queued_us`."""
    return _QUEUED_BY[cause]


def bound(limit: Limit) -> str:
    """Which limit kept a step from doing more."""
    if limit == "unrecorded":
        return "What limited this step is not recorded"
    return "Nothing limited this step" if limit == "none" else f"Limited by: {LIMITS[limit].name}"


def setting(name: str, value: Any) -> str:
    """A setting at a value: "3 lanes", "a token budget of 16", "chunked prefill off"."""
    word = SETTINGS[name]
    if isinstance(value, bool):
        return f"{word} {'on' if value else 'off'}"
    if value is None:
        return f"enough {word}"
    if name in _COUNTED:
        return f"{value} {_COUNTED[name]}"
    return f"the policy {value}" if name == "policy" else f"a {word} of {value}"


def letter(index: int) -> str:
    """The letter of the request that arrived as number `index`: A … Z, AA …"""
    letters = ""
    while index >= 0:
        letters = chr(65 + index % 26) + letters
        index = index // 26 - 1
    return letters


def letters(trace: Ran) -> dict[str, str]:
    """The letter of every request, in order of arrival; those that never arrived come last."""
    arrived = [a.request for event in trace.events for a in event.newcomers]
    return {request: letter(i) for i, request in enumerate(dict.fromkeys([*arrived, *trace.asked]))}
