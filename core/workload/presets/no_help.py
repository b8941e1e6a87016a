"""Where continuous batching wins little, and what padding costs under any policy that pads."""

from __future__ import annotations

from core.workload.presets.preset import BPE, preset_of, requests_of
from core.workload.presets.prompts import FORTY_EIGHT, FOUR, HUNDRED, SPEECHES

NO_HELP = (
    preset_of(
        "equal-lengths",
        "Equal lengths",
        "Of eight equal requests none ends early, so nothing is won; a token budget of 16, unknown to static, costs steps.",
        BPE,
        requests_of(*((text, 24, 0) for text in FORTY_EIGHT)),
        "continuous",
        max_num_seqs=4,
        max_num_batched_tokens=16,
    ),
    preset_of(
        "three-lengths",
        "Twenty, fifteen, twenty-five",
        "Three answers of 20, 15 and 25 tokens: 25 steps together, 60 one after the other.",
        BPE,
        requests_of((SPEECHES[2], 20, 0), (SPEECHES[5], 15, 0), (SPEECHES[6], 25, 0)),
        "continuous",
        max_num_seqs=3,
    ),
    preset_of(
        "padding-693",
        "693 pads",
        "Seven requests decode when a prompt of 100 tokens joins: every other row is padded to 100.",
        BPE,
        requests_of(*((text, 12, 0) for text in FOUR), (HUNDRED, 6, 4)),
        "dynamic",
        max_num_seqs=8,
        max_num_batched_tokens=512,
    ),
    preset_of(
        "one-joins-two",
        "One joins two",
        "Two requests decode when a prompt of 10 tokens joins: 18 of 30 positions are padding.",
        BPE,
        requests_of(("Speak to me again", 12, 0), ("My lord, what news?", 12, 0), ("Out, out, brief candle", 6, 4)),
        "dynamic",
        max_num_seqs=3,
    ),
)
