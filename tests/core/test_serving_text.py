"""The text that a client is shown, token by token: up to the first stop string, and never a character of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.serving.output_processor import ClientText
from core.trace.detokenize import AnswerText


class Letters:
    """A tokenizer of one character a token; token 0 is special."""

    def decode(self, ids, **options):
        return "".join("#abc"[i] for i in ids)


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_what_is_shown_is_the_text_up_to_the_first_stop_string(ids, stop):
    answer, shown = AnswerText(Letters()), ClientText(stop, {0: "#"})
    pieces = [shown.add(i, answer.add(i)) for i in ids]
    text = "".join("#abc"[i] for i in ids if i)
    ends = [text.index(s) for s in stop if s in text]
    final = "".join(pieces) + shown.finish(answer.finish())
    if not ends:
        assert final == text
    else:  # the first to be complete ends it, and of those the one that began first
        complete = min(text.index(s) + len(s) for s in stop if s in text)
        assert final == text[: min(text.index(s) for s in stop if s in text[:complete])]
