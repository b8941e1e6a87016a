"""The text that a client is shown, token by token: up to the first stop string, and never a
character of it.
"""

from __future__ import annotations

import asyncio

from hypothesis import example, given
from hypothesis import strategies as st

from core.serving.event_log import EngineLog
from core.serving.limits import Places, ServingLimits
from core.serving.metrics import ServingMetrics
from core.serving.output_processor import ClientText, OutputProcessor
from core.serving.stream import Piece, TokenStream
from core.trace.detokenize import AnswerText
from worlds.serving import whole
from worlds.small import memory_engine, request


class Letters:
    """A tokenizer of one character a token; token 0 is special, and token 4 the first byte of a
    character.
    """

    all_special_ids = (0,)

    def decode(self, ids, **options):
        return "".join("#abc\ufffd"[i] for i in ids)


@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.lists(st.text("#abc", min_size=1, max_size=4), max_size=3),
)
@example([1, 0, 2, 3], ["ab"])
def test_what_is_shown_is_the_text_up_to_the_first_stop_string(ids, stop):
    """Without special tokens, over whose place no stop string reaches: one ends what is shown where
    it ends the answer.
    """
    answer, shown = AnswerText(Letters(), tuple(stop)), ClientText(stop, {0: "#"})
    pieces = [shown.add(i, answer.add(i)) for i in ids]
    text = "".join("#abc"[i] for i in ids)
    ends = [text.index(s) for s in stop if s in text]
    final = "".join(pieces) + shown.finish(answer.finish())
    assert answer.is_stopped == bool(ends)
    if ends:  # the first to be complete ends it, and of those the one that began first
        complete = min(text.index(s) + len(s) for s in stop if s in text)
        text = text[: min(text.index(s) for s in stop if s in text[:complete])]
    assert final == text.replace("#", "")


def test_of_two_stop_strings_that_end_together_the_longer_one_is_never_shown():
    answer, shown = AnswerText(Letters()), ClientText(["bc", "abc"], {})
    assert "".join(shown.add(i, answer.add(i)) for i in (3, 1, 2, 3)) == "c"


def test_who_leaves_is_shown_what_was_held_back():
    """A `b`, after which a stop string may go on, and a character whose other bytes never came:
    there is no further token to show them with.
    """
    engine = memory_engine()
    asked = request("r", (1, 2), 9, stop=("bc",))
    outputs = OutputProcessor(Letters(), ServingMetrics("m", engine), EngineLog())

    async def answer() -> list[Piece]:
        stream = TokenStream(
            "r",
            asked.prompt_token_ids,
            asked.sampling,
            Places(ServingLimits()).take("")[0],
            None,
            0.0,
            lambda message: None,
        )
        outputs.begin(asked, asked.prompt_token_ids)
        outputs.queued(stream, asked)
        engine.add_request(request("r", (1, 2), 9))
        for token in (1, 2, 4):
            outputs.add("r", token)
            outputs.process(engine.step())
        engine.cancel("r")
        outputs.process(engine.step())
        return await whole(stream)

    pieces = asyncio.run(answer())
    assert [piece.text for piece in pieces] == ["a", "", "", "b\ufffd"]
    assert pieces[-1].token_id is None and pieces[-1].finish_reason == "cancelled"
