"""Piece by piece is the whole: incremental text against `tokenizer.decode` of everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.trace.detokenize import AnswerText, Detokenizer, pieces
from worlds.examples import examples


def byte_tokenizer(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose first 256 ids are the bytes (in the order of its alphabet), and a few
    merges.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate([*alphabet, *("".join(m) for m in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """SentencePiece manner: words with a leading mark, and bytes for the rest."""
    vocab = {f"<0x{b:02X}>": b for b in range(256)} | {"▁a": 256, "▁b": 257, "€": 258}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


BYTES = byte_tokenizer(("ð", "Ł"), ("h", "e"), ("Ġ", "h"))  # the first merge is half an emoji


def ids_of(data: bytes) -> list[int]:
    """One token a byte."""
    by_text = {BYTES.backend_tokenizer.id_to_token(i): i for i in range(256)}
    table = dict(zip(bytes_order(), (by_text[c] for c in unicode_order()), strict=True))
    return [table[b] for b in data]


def bytes_order() -> list[int]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return printable + [b for b in range(256) if b not in printable]


def unicode_order() -> list[str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def whole(ids: list[int], tokenizer=BYTES) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_an_emoji_comes_with_its_last_byte() -> None:
    ids = ids_of("a😀b".encode())
    assert whole(ids) == "a😀b"
    assert pieces(BYTES, ids) == ["a", "", "", "", "😀", "b"]


def test_text_before_an_incomplete_character_is_not_held_back() -> None:
    detokenizer = Detokenizer(BYTES)
    assert [detokenizer.add(i) for i in ids_of(b"ab\xf0\x9f")] == ["a", "b", "", ""]
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_stray_bytes_before_an_emoji_do_not_swallow_it() -> None:
    ids = ids_of(b"\x80\x80\x80" + "😀".encode())
    assert "".join(pieces(BYTES, ids)) == whole(ids) == "\ufffd" * 3 + "😀"


@given(st.lists(st.integers(0, len(BYTES) - 1), max_size=40))
@examples(300)
def test_any_tokens(ids: list[int]) -> None:
    assert "".join(pieces(BYTES, ids)) == whole(ids)


hard = st.lists(
    st.sampled_from(
        [
            b"\xf0",
            b"\x9f",
            b"\x98",
            b"\x80",
            b"\xe2",
            b"\xed\xa0",
            b"\xff",
            "😀".encode(),
            "€".encode(),
            b"a",
        ]
    ),
    max_size=30,
)


@given(hard)
@examples(500)
def test_broken_utf8(parts: list[bytes]) -> None:
    data = b"".join(parts)
    ids = ids_of(data)
    assert "".join(pieces(BYTES, ids)) == whole(ids) == data.decode(errors="replace")


@given(st.text(max_size=30), st.text(max_size=30))
@examples(100)
def test_prompt_and_output_join(prompt: str, output: str) -> None:
    first, second = ids_of(prompt.encode()), ids_of(output.encode())
    assert "".join(pieces(BYTES, first)) == prompt
    assert "".join(pieces(BYTES, second, context=first)) == output


def test_context_that_ends_inside_a_character() -> None:
    assert (
        "".join(pieces(BYTES, ids_of(b"\x98\x80!"), context=ids_of(b"a\xf0\x9f")))
        == "\ufffd\ufffd!"
    )


def test_byte_fallback_and_leading_spaces() -> None:
    tokenizer = byte_fallback_tokenizer()
    emoji = list("😀".encode())
    ids = [256, 257, *emoji, 256, 258, *emoji, *emoji]
    assert whole(ids, tokenizer) == "a b😀 a€😀😀"
    assert pieces(tokenizer, ids) == [
        "a",
        " b",
        "",
        "",
        "",
        "😀",
        " a",
        "€",
        "",
        "",
        "",
        "😀",
        "",
        "",
        "",
        "😀",
    ]
    assert pieces(tokenizer, [256, 257], context=[257]) == [" a", " b"]


def test_without_a_tokenizer() -> None:
    assert pieces(None, [7, 8], context=[1]) == ["#7 ", "#8 "]
    assert pieces(None, []) == []


def test_long_sequences_cost_the_same_a_token() -> None:
    """No decode ever sees more than a window."""

    class Counting:
        longest = 0

        def decode(self, ids, **_) -> str:
            self.longest = max(self.longest, len(ids))
            return "\ufffd" * len(ids)

    tokenizer = Counting()
    assert "".join(pieces(tokenizer, range(500), context=range(500))) == "\ufffd" * 500
    assert tokenizer.longest <= 10


@pytest.mark.parametrize(
    ("text", "stop", "at"),
    [
        ("one two three", ("two",), 6),
        ("one two three", ("e t",), 4),
        ("one two three", ("zzz", "o"), 0),
        ("one two three", ("zzz",), None),
        ("one two three", ("z", "ne two th"), 9),  # as far back as the longest reaches
        ("aab", ("ab",), 2),
        ("so 😀!", ("😀",), 6),
    ],
)
def test_stop_strings_token_by_token(text: str, stop: tuple[str, ...], at: int | None) -> None:
    answer = AnswerText(BYTES, stop)
    hits = [
        i
        for i, token in enumerate(ids_of(text.encode()))
        if (answer.add(token), answer.is_stopped)[1]
    ]
    assert (hits[0] if hits else None) == at


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "😀"]), max_size=12),
    st.lists(st.sampled_from(["ab", "ba", "b😀a", "aab"]), min_size=1, max_size=2),
)
@examples(200)
def test_stop_strings_are_found_at_the_token_that_completes_them(
    parts: list[str], stop: list[str]
) -> None:
    ids = ids_of("".join(parts).encode())
    answer = AnswerText(BYTES, tuple(stop))
    for n, token in enumerate(ids, 1):
        expected = any(s in whole(ids[:n]) for s in stop)
        answer.add(token)
        assert answer.is_stopped == expected
        if expected:
            break


def test_a_tokenizer_that_decodes_in_a_way_of_its_own_is_asked() -> None:
    class Shouting(PreTrainedTokenizerFast):
        def _decode(self, *args, **kwargs) -> str:
            return super()._decode(*args, **kwargs).upper()

    assert pieces(Shouting(tokenizer_object=BYTES.backend_tokenizer), ids_of(b"who")) == [
        "W",
        "H",
        "O",
    ]
