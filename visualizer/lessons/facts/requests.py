"""Facts of a request in a step: who it is, what it reads and writes, what it holds."""

from __future__ import annotations

from core.trace.run_state import RunState
from visualizer.lessons.facts.fact import Who, cache_of, fact, segment_of
from visualizer.lessons.places import At


@fact
def admitted(at: At) -> Who:
    return Who(at.event.admitted[0].request)


@fact
def waits(at: At) -> Who:
    """Who is first among those waiting."""
    if at.event.waiting.request is None:
        raise ValueError("nobody waits")
    return Who(at.event.waiting.request)


@fact
def preempted(at: At) -> Who:
    return Who(at.event.preempted[0].request)


@fact
def prefilling(at: At) -> Who:
    """The request that reads most of its prompt in this step."""
    return Who(max(at.of("prefill"), key=lambda s: s.length).request)


@fact
def first_to_finish(at: At) -> Who:
    """Of those in a lane, who finishes first."""
    held = {r.request for r in at.frame.lanes}
    return Who(next(f.request for e in at.trace.events if e.step >= at.step for f in e.finished if f.request in held))


@fact
def prompt(at: At, letter: str) -> int:
    return len(at.trace.prompts[at.request(letter)])


@fact
def asked(at: At, letter: str) -> int:
    return _asked(at, at.request(letter))


@fact
def cache(at: At, letter: str) -> int:
    """Positions in a request's cache when the step is over."""
    return cache_of(at, letter)


@fact
def cached_before(at: At, letter: str) -> int:
    return segment_of(at, letter).start


@fact
def computes(at: At, letter: str) -> int:
    """Positions of a request in this step."""
    return segment_of(at, letter).length


@fact
def finish_step(at: At, letter: str) -> int:
    return _finish(at, letter)


@fact
def start_step(at: At, letter: str) -> int:
    """The step that first admits a request."""
    request = at.request(letter)
    return next(e.step for e in at.trace.events if any(a.request == request for a in e.admitted))


@fact
def step_after(at: At, letter: str) -> int:
    """The step after a request's last one."""
    return _finish(at, letter) + 1


@fact
def chunk_steps(at: At, letter: str) -> int:
    """Steps in which a request's prompt is computed."""
    request = at.request(letter)
    return sum(any(s.request == request and s.phase == "prefill" for s in e.segments) for e in at.trace.events)


@fact
def word(at: At, letter: str) -> str:
    """The token that a request writes in this step."""
    request = at.request(letter)
    sampled = next(s for s in at.event.sampled if s.request == request)
    written = [s for e in at.trace.events for s in e.sampled if s.request == request].index(sampled)
    return _shown(at.trace.texts.output[request][written])


@fact
def last_read(at: At, letter: str) -> str:
    """The last token that a request's row computes in this step."""
    return _shown(at.trace.token_text(at.request(letter), segment_of(at, letter).kv_len - 1))


@fact
def prompt_text(at: At, letter: str) -> str:
    return _shown("".join(at.trace.texts.prompt[at.request(letter)]))


@fact
def blocks_of(at: At, letter: str) -> int:
    return _num_blocks(at, letter)


@fact
def unused_in_blocks(at: At, letter: str) -> int:
    """Positions of a request's blocks that hold nothing."""
    return _num_blocks(at, letter) * at.config.block_size - cache_of(at, letter)


@fact
def shared_blocks(at: At) -> int:
    """Blocks that several requests use."""
    return sum(len(owners) > 1 for owners in at.frame.blocks.values())


@fact
def block_list(at: At, letter: str) -> str:
    """The blocks of a request, in the order of its block table."""
    request, state = at.request(letter), RunState.of(at.trace.prompt_lengths)
    for event in at.trace.events:
        state.begin(event)
        if event.step == at.step:
            break
        state.end(event)
    return ", ".join(map(str, state.tables[request]))


@fact
def hit(at: At) -> int:
    return at.event.kv.prefix_hits[0].num_cached_tokens


@fact
def hit_blocks(at: At) -> int:
    return at.event.kv.prefix_hits[0].num_cached_tokens // at.config.block_size


def _finish(at: At, letter: str) -> int:
    request = at.request(letter)
    return next(e.step for e in at.trace.events if any(f.request == request for f in e.finished))


def _asked(at: At, request: str) -> int:
    return at.trace.asked[request].request.sampling.max_new_tokens


def _num_blocks(at: At, letter: str) -> int:
    return sum(at.request(letter) in owners for owners in at.frame.blocks.values())


def _shown(text: str) -> str:
    return text.replace("\n", "↵").strip()
