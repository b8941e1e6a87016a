"""Every sentence about a step, composed from its event and the fold of the events before it. Nothing is guessed.

A sentence is a list of spans: plain text, or `{"r": request}` where the page draws the request's letter. `say` is the step in one
sentence of at most `MAX_CHARACTERS`; `why` has a sentence for every decision, with its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from core.config import EngineConfig
from core.events import Admitted, Finished, Pass, Preempted, Segment, Stalled, StepEvent, Why
from core.trace import Trace
from visualizer.frames import Fold, ended_before, prompt_lengths

Span = str | dict[str, str]
Sentence = list[Span]
Clause = tuple[Sentence, Sentence]  # a part of the one sentence: without and with its reason
MAX_CHARACTERS = 140
_NAMED = 4  # requests named before "and 7 more"


def captions(trace: Trace) -> list[dict]:
    """`{"say": sentence, "why": [sentence, …]}` for every event."""
    captioner = Captioner(trace.header, prompt_lengths(trace))
    return [captioner.caption(event) for event in trace.events]


def plain(sentence: Sentence, name: Callable[[str], str] = str) -> str:
    """The sentence as text; `name` turns a request id into what is shown for it."""
    return "".join(span if isinstance(span, str) else name(span["r"]) for span in sentence)


def letter(index: int) -> str:
    """A … Z, AA …: the letter of the request that arrived as number `index`."""
    letters = ""
    while index >= 0:
        letters = chr(65 + index % 26) + letters
        index = index // 26 - 1
    return letters


class Captioner:
    """Follows a run event by event. header: the trace's; prompt_lengths: tokens of each prompt."""

    def __init__(self, header: dict, prompt_lengths: dict[str, int]) -> None:
        self._fold = Fold.of(header, prompt_lengths)
        self._prompt = prompt_lengths
        self._letters: dict[str, str] = {}
        self._config = EngineConfig.from_json(header["config"])
        self._asked = {
            r["id"]: r.get("sampling", {}).get("max_new_tokens") for r in header["workload"].get("requests", ()) if "id" in r
        }

    def caption(self, event: StepEvent) -> dict:
        """The sentences of the next event."""
        self._fold.begin(event)
        for arrived in event.arrived:
            self._letters[arrived.request] = letter(len(self._letters))
        step = _Step(event, self._fold, self._config, self._prompt, self._asked, self._letters)
        say, why = step.say(), step.why()
        self._fold.end(event)
        return {"say": say, "why": why}


class _Step:
    """The sentences of one event, while its passes run."""

    def __init__(
        self,
        event: StepEvent,
        fold: Fold,
        config: EngineConfig,
        prompt: dict[str, int],
        asked: dict[str, int | None],
        letters: dict[str, str],
    ) -> None:
        self.event, self.fold, self.config, self.prompt, self.asked, self.letters = event, fold, config, prompt, asked, letters
        self.prefills = [s for s in event.segments if s.phase == "prefill"]
        self.decodes = [s for s in event.segments if s.phase == "decode"]
        self.sampled = {s.request for s in event.sampled}
        new = {s.request for s in self.prefills}
        self.old_decodes = [s for s in self.decodes if s.request not in new]  # the budget counts these before any prompt
        self.by_request: dict[str, Segment] = {s.request: s for s in self.prefills}

    # -- the one sentence --------------------------------------------------------------------------------------------

    def say(self) -> Sentence:
        """The step in one sentence: what most needs saying first, as much of it as fits."""
        parts = {
            "preempted": self._say_preempted(),
            "decodes": self._say_decodes(),
            "prefills": self._say_prefills(),
            "stalled": self._say_stalled(),
            "padding": self._say_padding(),
            "ends": self._say_ends(),
            "wait": self._say_wait(),
        }
        telling = ("preempted", "wait", "prefills", "decodes", "stalled", "ends", "padding")
        chosen: dict[str, Sentence] = {}
        for form in (0, 1):  # first everybody's short form, then the longer ones, with their reasons
            for name in telling:
                clause = parts[name]
                if clause and (form == 0 or name in chosen) and self._fits(attempt := {**chosen, name: clause[form]}):
                    chosen = attempt
        return _joined([chosen[name] for name in parts if name in chosen] or [["Nothing is computed in this step"]], "; ", ".")

    def _fits(self, chosen: dict[str, Sentence]) -> bool:
        text = plain(_joined(list(chosen.values()), "; ", "."), lambda r: self.letters.get(r, "?"))
        return len(text) <= MAX_CHARACTERS

    def _say_preempted(self) -> Clause | None:
        if not self.event.preempted:
            return None
        lost = sum(p.tokens_lost for p in self.event.preempted)
        who = _names([p.request for p in self.event.preempted])
        short = [*who, f" {_verb(self.event.preempted, 'loses its', 'lose their')} cache of {_count(lost, 'token')}"]
        return short, [*short, f", because the {_count(self.event.kv.total, 'KV block')} ran out"]

    def _say_decodes(self) -> Clause | None:
        if not self.decodes:
            return None
        writing = [s.request for s in self.decodes if s.request in self.sampled]
        if not writing:
            short = [
                *_names([s.request for s in self.decodes]),
                f" {_verb(self.decodes, 'computes', 'compute')} without a new token",
            ]
            return short, short
        short = [*_names(writing), " adds one token" if len(writing) == 1 else " each add one token"]
        nothing_else = not self.prefills and not self.event.waiting.count
        return short, [*short, ", and nobody waits"] if nothing_else and not self.event.preempted else short

    def _say_prefills(self) -> Clause | None:
        if not self.prefills:
            return None
        reading = self.prefills
        who = _names([s.request for s in reading])
        if len(reading) == 1:
            return self._say_one_prefill(reading[0], who)
        total = sum(s.length for s in reading)
        numbers = " + ".join(str(s.length) for s in reading) if len(reading) <= _NAMED else str(total)
        again = sum(self._recomputed(s) for s in reading)
        short = [*who, f" compute {numbers} tokens{_again(again, total)}" if again else f" read {numbers} prompt tokens"]
        if any(self._cut_by_budget(s) for s in reading):
            return short, [*short, f", all that the budget of {self.event.budget.limit} leaves"]
        first = " and write their first tokens" if all(s.request in self.sampled for s in reading) else ""
        return short, [*short, first, self._room()]

    def _say_one_prefill(self, s: Segment, who: Sentence) -> Clause:
        end, all_of_it = self._pending_end(s), s.kv_len == self._pending_end(s)
        limit = f", all that the budget of {self.event.budget.limit} leaves" if self._cut_by_budget(s) else ""
        if self._recomputed(s):
            short = [*who, f" computes {_count(s.length, 'token')}{_again(self._recomputed(s), s.length)}"]
            return short, [*short, limit or ", lost when it was preempted"]
        first = " and writes its first token" if s.request in self.sampled else ""
        if not all_of_it:
            short = [*who, f" reads {s.length} of its {_count(end, 'prompt token')}"]
            return short, [*short, limit]
        if s.start:
            cached = dict(self.event.kv.prefix_hits).get(s.request)
            last = "the last" if s.length == 1 else f"the last {s.length}"
            short = [*who, f" reads {last} of its {_count(end, 'prompt token')}", first]
            return short, [*short, f", as {cached} were in the prefix cache" if cached else ""]
        short = [*who, f" reads its {_count(s.length, 'prompt token')}", first]
        return short, [*short, self._room()]

    def _room(self) -> str:
        """Why new prompts could be read at all."""
        if not self.event.admitted:
            return ""
        lanes = [a.lane for a in self.event.admitted]
        if self.config.batching.admission == "barrier":
            return ", as a new wave begins"
        return f", as lane {lanes[0]} was free" if len(lanes) == 1 else f", as {len(lanes)} lanes were free"

    def _say_stalled(self) -> Clause | None:
        stalled = self.event.stalled
        if not stalled:
            return None
        short = [*_names([s.request for s in stalled]), f" {_verb(stalled, 'computes', 'compute')} nothing"]
        return short, [*short, f", as {_brief(stalled[0].why)}"]

    def _say_padding(self) -> Clause | None:
        padding = sum(p.padding for p in self.event.passes)
        if not padding:
            return None
        positions = sum(p.rows * p.width for p in self.event.passes)
        short: Sentence = [f"{padding} of {_count(positions, 'position')} {'is' if padding == 1 else 'are'} padding"]
        return short, [*short, ", ", " and ".join(_padding_causes(self.event.passes))]

    def _say_ends(self) -> Clause | None:
        ended = self.event.finished
        if not ended:
            return None
        reasons = {f.finish_reason for f in ended}
        verb = (
            {"length": "finish", "stop": "stop", "cancelled": "leave", "error": "fail"}[reasons.pop()]
            if len(reasons) == 1
            else "end"
        )
        who = _names([f.request for f in ended])
        short = [*who, f" {verb}{_s(ended, 'es' if verb == 'finish' else 's')}"]
        if len(ended) > 1:
            return short, short
        cause = {
            "length": f" with the {_count(self._written(ended[0].request), 'token')} it asked for", "stop": " at a stop",
            "cancelled": ", cancelled", "error": ", as its logits were not finite",
        }[ended[0].finish_reason]  # fmt: skip
        return short, [*short, cause]

    def _say_wait(self) -> Clause | None:
        waiting = self.event.waiting
        if waiting.request is None or waiting.why is None:
            return None
        others = waiting.count - 1
        who: Sentence = [{"r": waiting.request}, f" waits, {others} more behind" if others else " waits"]
        return ([*who, ": ", _brief(waiting.why)], [*who, ": ", self._reason(waiting.why)])

    # -- every decision ----------------------------------------------------------------------------------------------

    def why(self) -> list[Sentence]:
        """A sentence for each decision of the step, in the order in which they were taken."""
        event = self.event
        sentences = [self._why_arrived(a.request) for a in event.arrived]
        sentences += [self._why_finished(f) for f in event.finished if ended_before(event, f.request)]
        sentences += [self._why_preempted(p) for p in event.preempted]
        sentences += self._why_decodes()
        sentences += [self._why_chunk(s) for s in self.prefills if s.request not in {a.request for a in event.admitted}]
        sentences += [self._why_hit(h.request, h.num_cached_tokens) for h in event.kv.prefix_hits]
        sentences += [self._why_admitted(a) for a in event.admitted]
        sentences += [self._why_stalled(s) for s in event.stalled]
        sentences += self._why_waiting()
        sentences += self._why_budget()
        sentences += self._why_padding()
        sentences += [self._why_overrun(o.request, o.rows) for o in event.overrun]
        sentences += [self._why_finished(f) for f in event.finished if not ended_before(event, f.request)]
        sentences += self._why_wave_ends()
        return sentences

    def _why_arrived(self, request: str) -> Sentence:
        asked = self.asked.get(request)
        wants = f", asking for up to {_count(asked, 'token')}" if asked else ""
        return [{"r": request}, f" arrives with a prompt of {_count(self.prompt.get(request, 0), 'token')}{wants}."]

    def _why_preempted(self, p: Preempted) -> Sentence:
        growing = [c.request for c in self.event.kv.changes if c.added]
        taken: Sentence = [", and ", *_names(growing), f" {_verb(growing, 'takes', 'take')} its place"] if growing else []
        return [
            {"r": p.request},
            f" is preempted: none of the {_count(self.event.kv.total, 'KV block')} was free and no running request could go on. "
            f"The newest gives way: it loses lane {p.lane} and its cache of {_count(p.tokens_lost, 'token')}",
            *taken,
            "; its tokens are kept and will be computed again.",
        ]

    def _why_decodes(self) -> list[Sentence]:
        if not self.decodes:
            return []
        who = _names([s.request for s in self.decodes], limit=12)
        cost = (
            f", {_count(len(self.decodes), 'token')} of the budget of {self.event.budget.limit}"
            if self.event.budget.limit
            else ""
        )
        return [
            [
                *who,
                f" {_verb(self.decodes, 'computes its', 'compute their')} newest token and {_verb(self.decodes, 'gets', 'get')} the next{cost}.",
            ]
        ]

    def _why_admitted(self, a: Admitted) -> Sentence:
        segment = self.by_request.get(a.request)
        freed = self.fold.freed.get(a.lane)
        origin: Sentence = [", which nobody held before"]
        if freed is not None:
            origin = [f", {'lost' if freed.preempted else 'freed'} by ", {"r": freed.request}, f" in step {freed.step}"]
        head: Sentence = [{"r": a.request}, f" takes lane {a.lane}", *origin]
        if segment is None:
            return [*head, "."]
        return [*head, "; ", *self._share(segment, a.why), "."]

    def _share(self, s: Segment, why: Why) -> Sentence:
        """How much of its prompt a newly admitted request computes, and what limits it."""
        need = self._pending_end(s) - s.start
        limit = self.event.budget.limit
        if limit is None:
            return [f"its {_count(need, 'token')} are computed at once, as this policy has no token budget"]
        left = why.have if why.limit == "budget" else self._budget_before(s)
        before = f"after {_count(len(self.old_decodes), 'decode')} " if self.old_decodes and not self.config.prefill_first else ""
        room = f"{before}{left} of {_count(limit, 'budget token')} {'is' if left == 1 else 'are'} left: "
        return [room + (f"its first chunk is {s.length} of {need}" if s.length < need else f"its {_count(need, 'token')} fit")]

    def _budget_before(self, s: Segment) -> int:
        """Budget left when this prompt's turn came: decodes, then prompts that went on, then those admitted before it."""
        admitted = [a.request for a in self.event.admitted]
        earlier = set(admitted[: admitted.index(s.request)])
        ahead = sum(p.length for p in self.prefills if p.request in earlier or p.request not in admitted)
        return (self.event.budget.limit or 0) - (0 if self.config.prefill_first else len(self.old_decodes)) - ahead

    def _why_chunk(self, s: Segment) -> Sentence:
        end, chunk = self._pending_end(s), self.fold.chunks.get(s.request, 0) + 1
        cause = f", all that was left of the budget of {self.event.budget.limit}" if self._cut_by_budget(s) else ""
        done = f"{s.kv_len} of its {end} are done" if s.kv_len < end else f"all its {end} are done"
        return [{"r": s.request}, f" computes chunk {chunk}, {_count(s.length, 'token')}{cause}; {done}."]

    def _why_hit(self, request: str, cached: int) -> Sentence:
        known = self.fold.num_tokens.get(request, 0)
        blocks = cached // self.config.block_size
        return [
            {"r": request},
            f" finds {cached} of its {_count(known, 'token')} in the prefix cache ({_count(blocks, 'block')}), so {known - cached} "
            f"{'is' if known - cached == 1 else 'are'} left to compute.",
        ]

    def _why_stalled(self, s: Stalled) -> Sentence:
        return [{"r": s.request}, " keeps its lane but computes nothing: ", self._reason(s.why), "."]

    def _why_waiting(self) -> list[Sentence]:
        waiting = self.event.waiting
        if waiting.request is None or waiting.why is None:
            return []
        since = self.fold.since.get(waiting.request, self.event.step)
        steps = self.event.step - since
        others = waiting.count - 1
        behind = f" {others} more {'waits' if others == 1 else 'wait'} behind it." if others else ""
        how_long = f" since step {since}, {_count(steps, 'step')} ago" if steps else ""
        again = ", preempted," if waiting.request in self.fold.lost else ""
        return [[{"r": waiting.request}, f"{again} waits{how_long}: ", self._reason(waiting.why), f".{behind}"]]

    def _why_budget(self) -> list[Sentence]:
        budget = self.event.budget
        if budget.limit is None:
            return []
        used = budget.decode + budget.prefill
        held = {
            "none": "nothing held the step back", "lanes": "what held it back were the lanes", "budget": "what held it back was the budget",
            "blocks": "what held it back were the KV blocks", "barrier": "what held it back was the barrier",
            "prefill": "what held it back was the prompt being computed",
        }[budget.binding]  # fmt: skip
        return [[
            f"The budget: {budget.decode} decode + {budget.prefill} prefill = {used} of {_count(budget.limit, 'token')}, "
            f"{budget.unused} unused; {held}."
        ]]  # fmt: skip

    def _why_padding(self) -> list[Sentence]:
        sentences: list[Sentence] = []
        for forward in self.event.passes:
            positions = forward.rows * forward.width
            if forward.padding:
                share = round(100 * forward.padding / positions)
                sentences.append([
                    f"The pass computes {_count(forward.rows, 'row')} × {_count(forward.width, 'position')} = {positions}; "
                    f"{forward.padding} of them ({share} %) {'is' if forward.padding == 1 else 'are'} padding: "
                    f"{' and '.join(_padding_causes([forward]))}."
                ])  # fmt: skip
            for row in forward.finished_rows:
                ended = self.fold.finished.get(row.request)
                when = f" in step {ended}" if ended is not None else ""
                sentences.append(
                    [{"r": row.request}, f" finished{when}, yet lane {row.lane} is computed as padding until its wave ends."]
                )
        return sentences

    def _why_overrun(self, request: str, rows: int) -> Sentence:
        return [
            f"{_count(rows, 'row')} {'was' if rows == 1 else 'were'} computed for ",
            {"r": request},
            ", which had already stopped.",
        ]

    def _why_finished(self, f: Finished) -> Sentence:
        released = next((c for c in self.event.kv.changes if c.request == f.request and c.released), None)
        written = self._written(f.request)
        cause = {
            "length": f"it has the {_count(written, 'token')} it asked for",
            "stop": f"its token number {written} is where it stops",
            "cancelled": f"it was cancelled after {_count(written, 'token')}",
            "error": "its logits were not finite",
        }[f.finish_reason]
        lane = next((n for n, holder in self.fold.lanes.items() if holder == f.request), None)
        if lane is None:
            then = ""
        elif released:
            then = f", and gives back lane {lane} and {_count(len(self.fold.tables.get(f.request, ())), 'block')}"
        else:
            then = f", but lane {lane} stays taken until its wave ends"
        return [{"r": f.request}, f" is done: {cause}{then}."]

    def _why_wave_ends(self) -> list[Sentence]:
        released = {c.request for c in self.event.kv.changes if c.released}
        lanes = [lane for lane, holder in sorted(self.fold.lanes.items()) if holder in released]
        if self.config.batching.admission != "barrier" or not lanes:
            return []
        return [
            [f"The wave is over: {_count(len(lanes), 'lane')} {_verb(lanes, 'falls', 'fall')} free at once, for the next step."]
        ]

    # -- what the numbers mean ---------------------------------------------------------------------------------------

    def _written(self, request: str) -> int:
        """Tokens generated once the step is over."""
        now = sum(s.request == request for s in self.event.sampled)
        return self.fold.num_tokens.get(request, 0) + now - self.prompt.get(request, 0)

    def _pending_end(self, s: Segment) -> int:
        """How many tokens the request had when the pass began: where its prefill ends."""
        return self.fold.num_tokens.get(s.request, s.kv_len)

    def _recomputed(self, s: Segment) -> int:
        """How many of the segment's positions were computed once before a preemption."""
        return max(0, min(self.fold.lost.get(s.request, 0), s.kv_len) - s.start)

    def _cut_by_budget(self, s: Segment) -> bool:
        """Cut short by the budget: the scheduler says so, or the budget is spent and the pool was not full to the last position."""
        if any(a.request == s.request and a.why.limit == "budget" for a in self.event.admitted):
            return True
        full = self.event.kv.used == self.event.kv.total and s.kv_len == len(self.fold.tables[s.request]) * self.config.block_size
        return (
            s.kv_len < self._pending_end(s) and self.event.budget.limit is not None and self.event.budget.unused == 0 and not full
        )

    def _reason(self, why: Why) -> str:
        """The scheduler's reason in words, with its numbers."""
        if why.limit == "lanes":
            return "the one lane is taken" if why.total == 1 else f"all {why.total} lanes are taken"
        if why.limit == "budget":
            if not why.have:
                return f"the budget of {_count(why.total, 'token')} is spent, and it needs {why.need}"
            return f"{why.have} of {_count(why.total, 'budget token')} {'is' if why.have == 1 else 'are'} left, and it needs {why.need}"
        if why.limit == "blocks":
            return f"it needs {_count(why.need, 'KV block')}, and {why.have} of {why.total} {'is' if why.have == 1 else 'are'} to spare"
        if why.limit == "barrier":
            return f"the wave must end first, and {why.have} of {_count(why.total, 'lane')} still {'computes' if why.have == 1 else 'compute'}"
        if why.limit == "prefill":
            return "another prompt is being computed, one at a time"
        return "nothing binds"


def _brief(why: Why) -> str:
    """The reason in a few words."""
    if why.limit == "budget" and why.have:
        return "too little budget is left"
    return {
        "lanes": "no lane is free", "budget": "the token budget is spent", "blocks": "too few KV blocks are free",
        "barrier": "the wave must end first", "prefill": "one prompt at a time", "none": "nothing binds",
    }[why.limit]  # fmt: skip


def _again(again: int, total: int) -> str:
    return " again" if again == total else f", {again} of them again"


def _padding_causes(passes: Sequence[Pass]) -> list[str]:
    """Where padding comes from: finished requests that are computed on, and rows shorter than the longest."""
    over = sum(len(p.finished_rows) for p in passes)
    positions_over = sum(len(p.finished_rows) * p.width for p in passes)
    shorter = sum(p.padding for p in passes) - positions_over
    causes = [f"{_count(over, 'row')} of finished requests"] if over else []
    return causes + ([f"{shorter} to fill rows up to the longest"] if shorter else [])


def _names(requests: Sequence[str], limit: int = _NAMED) -> Sentence:
    """Letters side by side; many are counted: "A B C and 7 more"."""
    shown = requests if len(requests) <= limit + 1 else requests[:limit]
    spans: Sentence = []
    for request in shown:
        spans += [" "] * bool(spans) + [{"r": request}]
    if len(shown) < len(requests):
        spans.append(f" and {len(requests) - len(shown)} more")
    return spans


def _joined(sentences: Iterable[Sentence], separator: str, end: str) -> Sentence:
    """One sentence of several clauses, neighbouring texts merged."""
    merged: Sentence = []
    for sentence in sentences:
        for span in [*([separator] if merged else []), *sentence]:
            if isinstance(span, str) and merged and isinstance(merged[-1], str):
                merged[-1] += span
            elif span:
                merged.append(span)
    if merged and isinstance(merged[-1], str):
        merged[-1] += end
    return merged


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _verb(actors: Sequence, one: str, many: str) -> str:
    return one if len(actors) == 1 else many


def _s(actors: Sequence, ending: str) -> str:
    return ending if len(actors) == 1 else ""
