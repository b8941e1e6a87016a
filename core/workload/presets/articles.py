"""The runs that the articles compute by hand: `nanogpt-*` those on NanoGPT, `gpt2-masks` the one on GPT-2."""

from __future__ import annotations

from core.workload.presets.preset import BPE, CHAR, preset_of, requests_of

_ROMEO, _TO_BE, _HENRY = "O Romeo, ", "To be or ", "KING HENRY:\n"
_CHUNKED_4 = (("Hello", 10), ("O Romeo, O Romeo!", 8), ("Now is the winter of our d", 6), ("Why?", 12))

ARTICLES = (
    preset_of(
        "nanogpt-arrivals",
        "NanoGPT: arrivals",
        "The NanoGPT loop: a prefill pass for each joining request, then one padded decode pass.",
        CHAR,
        requests_of((_ROMEO, 17, 0), (_TO_BE, 22, 0), (_HENRY, 15, 3)),
        "split",
        max_num_seqs=4,
    ),
    preset_of(
        "nanogpt-chunked-1",
        "NanoGPT: budget to spare",
        "A budget of 32 tokens is more than any prompt needs: nothing is cut.",
        CHAR,
        requests_of((_ROMEO, 17, 0), (_TO_BE, 22, 0), (_HENRY, 15, 0)),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=32,
    ),
    preset_of(
        "nanogpt-chunked-2",
        "NanoGPT: one prompt in chunks",
        "A prompt of 20 tokens and a budget of 8: chunks of 8, 8 and 4.",
        CHAR,
        requests_of(("KING RICHARD THE THI", 5, 0)),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=8,
    ),
    preset_of(
        "nanogpt-chunked-3",
        "NanoGPT: decoding goes on",
        "While one prompt is read in chunks, the other request decodes in every step.",
        CHAR,
        requests_of(("Hello", 15, 0), ("Now is the winter of", 5, 1)),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=8,
    ),
    preset_of(
        "nanogpt-chunked-4",
        "NanoGPT: four at once",
        "Four prompts, one prefilling at a time, within a budget of 10 tokens a step.",
        CHAR,
        requests_of(*((text, new, 0) for text, new in _CHUNKED_4)),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=10,
    ),
    preset_of(
        "nanogpt-chunked-4-arrivals",
        "NanoGPT: four, one after the other",
        "The same four prompts, arriving at steps 0, 2, 5 and 8.",
        CHAR,
        requests_of(*((text, new, at) for (text, new), at in zip(_CHUNKED_4, (0, 2, 5, 8), strict=True))),
        "split-chunked",
        max_num_seqs=4,
        max_num_batched_tokens=10,
    ),
    preset_of(
        "gpt2-masks",
        "The article's masks",
        "Prompts of 5, 5 and 7 tokens, then one of 10: the two masks that the GPT-2 article prints.",
        BPE,
        requests_of(
            ("Where art thou now?", 6, 0),
            ("Who goes there?", 50, 0),
            ("To be, or not to be", 300, 0),
            ("Once more unto the breach, dear friends", 30, 0),
        ),
        "continuous",
        max_num_seqs=3,
        max_num_batched_tokens=256,
    ),
    preset_of(
        "chunk-7-by-4",
        "Seven tokens by four",
        "A prompt of 7 tokens and a budget of 4: two chunks, 4 and 3.",
        BPE,
        requests_of(("All the world's a stage", 5, 0)),
        "continuous",
        max_num_seqs=1,
        max_num_batched_tokens=4,
    ),
)
