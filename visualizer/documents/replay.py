"""A run for the browser, as JSON: events, the texts of tokens, and the sentences about steps.

    {"schema": 3, "records": …, "header": …, "complete": …, "letters": {request: …}, "texts":
        {"prompt": …, "said": …, "output": …}, "events": […], "captions": […], "totals": […],
        "delays": …}

Events are as in a trace file; records: the names of their fields, see `core.trace.events.RECORDS`.
delays: see `visualizer.documents.delays`. said: for prompts that were made from messages.

`replay` converts a whole trace; `Deltas` converts a run piece by piece while it continues.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import accumulate, zip_longest
from typing import Any, Self

from core.trace.detokenize import Detokenizer, pieces
from core.trace.events import RECORDS, StepEvent
from core.trace.header import Header
from core.trace.phrases import ALIGNMENTS, letter, letters
from core.trace.ranks import Ranks
from core.trace.run_state import RunState
from core.trace.trace import Trace
from core.workload.request import Message
from visualizer.documents.delays import delays_document
from visualizer.words.captions import Captioner, caption, captions
from visualizer.words.findings import totals
from visualizer.words.language import OTHERS, elsewhere, speaking

SCHEMA = 3
UPLOADED = "uploaded"  # the source of what comes from a file, so that anyone may have made it
Texts = Mapping[str, Sequence[str]]  # pieces of text, by request


def replay(trace: Trace, source: str | None = None) -> dict[str, Any]:
    """The whole run for the player. source: replaces the header's or, if the run was simulated,
    stands beside it as `brought`.
    """
    return {**drawn(trace, source), **spoken(trace), "delays": delays_document(trace)}


def translated_replay(trace: Trace, source: str | None = None) -> dict[str, Any]:
    """The replay, with its sentences in other languages under "translations". See `replay`."""
    return {**replay(trace, source), "translations": elsewhere(lambda: spoken(trace))}


def drawn(trace: Trace, source: str | None = None) -> dict[str, Any]:
    """The part of a replay that is drawn, without the sentences."""
    header = trace.about()
    if source is not None:
        header |= {"brought" if header.get("source") == "simulated" else "source": source}
    return {
        "schema": SCHEMA,
        "records": RECORDS,
        "header": header,
        "complete": trace.complete,
        "letters": letters(trace),
        "texts": {
            "prompt": trace.texts.prompt,
            "said": {
                request: said(trace.texts.prompt[request], one.request.messages)
                for request, one in trace.asked.items()
                if one.request.messages is not None
            },
            "output": trace.texts.output,
        },
        "events": [event.to_json() for event in trace.events],
    }


def captions_in(trace: Trace, language: str) -> dict[str, Any]:
    """The sentences about a run in another language, as in a replay: {"captions", "totals"}."""
    with speaking(language):
        return spoken(trace)


def spoken(trace: Trace) -> dict[str, Any]:
    """The sentences about the run in the current language."""
    return {"captions": captions(trace), "totals": totals(trace)}


def translated_ranks(ranks: Ranks, ids: Sequence[str], source: str | None = None) -> dict[str, Any]:
    """See `ranks_document`; the sentences in other languages are under "translations"."""
    said = elsewhere(lambda: {"ranks": [spoken(rank.trace) for rank in ranks.ranks]})
    return {**ranks_document(ranks, ids, source), "translations": said}


def ranks_document(
    ranks: Ranks, ids: Sequence[str] = (), source: str | None = None
) -> dict[str, Any]:
    """Ranks of one engine for the player: {"ranks": [{"rank", "offset": seconds on the common
    clock, "id", "replay"}], "count", "says": [sentence, …]}. ids: of the single runs, in order, if
    they are stored. source: see `replay`. Letters are unique across ranks.
    """
    letters = _ranks_letters(ranks)
    return {
        "ranks": [
            {
                "rank": rank.number,
                "offset": rank.offset,
                "id": ids[n] if ids else None,
                "replay": replay(rank.trace, source) | {"letters": letters[rank.number]},
            }
            for n, rank in enumerate(ranks.ranks)
        ],
        "count": ranks.count,
        "says": [ALIGNMENTS[ranks.alignment], *ranks.faults],
    }


def ranks_captions_in(ranks: Ranks, language: str) -> dict[str, Any]:
    """The sentences about each rank in another language: {"ranks": [see `captions_in`]}."""
    return {"ranks": [captions_in(rank.trace, language) for rank in ranks.ranks]}


def _ranks_letters(ranks: Ranks) -> dict[int, dict[str, str]]:
    """The letters of each rank's requests, in order of arrival on the common clock."""
    arrived = [
        (rank.offset + arrived.t, rank.number, arrived.request)
        for rank in ranks.ranks
        for event in rank.trace.events
        for arrived in event.newcomers
    ]
    letters: dict[int, dict[str, str]] = {rank.number: {} for rank in ranks.ranks}
    for n, (_, number, request) in enumerate(sorted(arrived)):
        letters[number][request] = letter(n)
    return letters


class Deltas:
    """Converts a run piece by piece, in order: `delta` returns what events add. header, tokenizer:
    of the trace. `meet` announces requests before their step. numbers: see `Captioner`.
    """

    def __init__(
        self, header: Header, tokenizer: Any, numbers: Iterator[int] | None = None
    ) -> None:
        self._prompts: dict[str, Sequence[int]] = {}
        self._captioner = Captioner(header, numbers)
        self._tokenizer, self._is_simulated = tokenizer, header.is_simulated
        self._conversations: dict[str, Sequence[Message]] = {}
        self._detokenizers: dict[str, Detokenizer] = {}

    @property
    def state(self) -> RunState:
        """The state of the run after the events so far."""
        return self._captioner.state

    @property
    def letters(self) -> dict[str, str]:
        """Letters of the requests that may still be named."""
        return dict(self._captioner.letters)

    @classmethod
    def of(cls, trace: Trace, tokenizer: Any) -> Self:
        """Deltas of a trace, with all its requests announced."""
        deltas = cls(trace.header, tokenizer)
        for request, one in trace.asked.items():
            asked = one.request
            deltas.meet(request, one.prompt, asked.sampling.max_new_tokens, asked.messages)
        return deltas

    def meet(
        self,
        request: str,
        prompt: Sequence[int],
        max_new_tokens: int | None,
        messages: Sequence[Message] | None = None,
    ) -> None:
        """Announce a request. prompt: its token ids; messages: those that it was made from."""
        self._prompts[request] = prompt
        if messages is not None:
            self._conversations[request] = messages
        self._captioner.meet(request, len(prompt), max_new_tokens)

    def keep(self, requests: Set[str]) -> None:
        """Forget all other requests, which have finished and hold no lane."""
        self._prompts = {r: ids for r, ids in self._prompts.items() if r in requests}
        self._captioner.keep(requests)

    def delta(
        self, events: Sequence[StepEvent], texts: Sequence[Texts | None] = ()
    ) -> dict[str, Any]:
        """`{"events", "captions", "translations": captions by language, "letters", "texts": the new
        pieces of each request, those of the prompt when it arrives}`.

        texts: for each event the pieces of its tokens, by request, if they are decoded already.
        """
        prompts: dict[str, list[str]] = {}
        conversations: dict[str, list[str | None]] = {}
        outputs: dict[str, list[str]] = {}
        captions, translated = [], []
        letters: dict[str, str] = {}
        for event in events:
            with self._captioner.reading(event) as context:
                captions.append(caption(context))
                translated.append(elsewhere(partial(caption, context)))
            for arrived in event.newcomers:
                letters[arrived.request] = self._captioner.letters[arrived.request]
                prompts[arrived.request] = pieces(self._tokenizer, self._prompts[arrived.request])
                if messages := self._conversations.pop(arrived.request, None):
                    conversations[arrived.request] = said(prompts[arrived.request], messages)
        for event, known in zip_longest(events, texts):
            for request, some in (self._decoded(event) if known is None else known).items():
                outputs.setdefault(request, []).extend(
                    [""] * len(some) if self._is_simulated else some
                )
        return {
            "events": [event.to_json() for event in events],
            "captions": captions,
            "translations": {
                language: [one[language] for one in translated] for language in OTHERS
            },
            "letters": letters,
            "texts": {"prompt": prompts, "said": conversations, "output": outputs},
        }

    def _decoded(self, event: StepEvent) -> Texts:
        """The pieces of an event's tokens, by request."""
        found: dict[str, list[str]] = {}
        for request, token in event.tokens:
            found.setdefault(request, []).append(self._detokenizer(request).add(token))
        for finished in event.ends:
            detokenizer = self._detokenizers.pop(finished.request, None)
            if detokenizer and finished.request in found:
                found[finished.request][-1] += detokenizer.finish()
        return found

    def _detokenizer(self, request: str) -> Detokenizer:
        """A detokenizer after the prompt: a token's text may depend on those before it."""
        if request not in self._detokenizers:
            self._detokenizers[request] = Detokenizer(self._tokenizer, self._prompts[request])
        return self._detokenizers[request]


def said(pieces: Sequence[str], messages: Sequence[Message]) -> list[str | None]:
    """The pieces of a prompt's tokens, None for those of the chat template. Each message is
    searched for after its role, at the beginnings of tokens; if one is not found, because the
    template changed it, all pieces are returned.
    """
    text, starts = "".join(pieces), list(accumulate(map(len, pieces), initial=0))
    shown: list[str | None] = [None] * len(pieces)
    at = 0
    for message in messages:
        if not (content := message["content"].strip()):
            continue
        role = text.find(message["role"], starts[at])
        first = at if role < 0 else bisect_left(starts, role + len(message["role"]))
        # if the template has another word for the role, this one may occur in the content
        found = _found(pieces, first, content) or _found(pieces, at, content)
        if found is None:
            return list(pieces)
        shown[found.start : found.stop] = pieces[found.start : found.stop]
        at = found.stop
    return shown


def _found(pieces: Sequence[str], first: int, content: str) -> range | None:
    """The tokens, from index `first` on, that begin with this text."""
    for start in range(first, len(pieces)):
        if pieces[start].isspace():
            continue
        text = ""
        for end in range(start, len(pieces)):
            text = (text + pieces[end]).lstrip()
            if text.startswith(content):
                return range(start, end + 1)
            if not content.startswith(text):
                break
    return None
