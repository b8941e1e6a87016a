"""Texts that a tokenizer could get wrong."""

from __future__ import annotations

import random

_WORDS = (  # noqa: SIM905
    "The don't I'll we've it's 'S cat naïve Straße 日本語 😀👍🏽 ٣٤ ² x₁ ½ 2024 3.14 1,000 … — a_b"
    " def\u00a0f(x): ﬁ e\u0301 \u200d \ufeff ǅ Ⅷ 𝟙 \x00 \x04 ſ K ’s <|im_start|> <|im_end|>"
    " <|endoftext|> <repo_name>"
).split(" ")
_BLANKS = ("  ", "\n\n", "\t", "   \n", "\x85", "\xa0", "\u3000", "\u2028", "\x1c", "\x1f")


def texts(count: int, seed: int = 1) -> list[str]:
    """So many, of words, digits, blanks, special tokens and characters of all of Unicode."""
    rng = random.Random(seed)

    def part() -> str:
        kind = rng.random()
        if kind < 0.5:
            return rng.choice(_WORDS)
        if kind < 0.6:
            return rng.choice(_BLANKS)
        if kind < 0.8:
            return "".join(rng.choices("abc XYZ 0123456789 .,'!?\n\t", k=rng.randint(1, 9)))
        codes = (rng.randrange(1, 0x3000 if kind < 0.9 else 0x20000) for _ in range(5))
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)

    return ["".join(part() + " " * rng.randrange(2) for _ in range(10)) for _ in range(count)]
