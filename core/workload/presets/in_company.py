"""Greedy requests alone and in company, in 32 and in 16 bits: where rounding may change a text."""

from __future__ import annotations

from core.workload.presets.preset import BPE, Preset, preset_of, requests_of
from core.workload.presets.prompts import SPEECHES

_ASKING = tuple(SPEECHES[i] for i in (11, 4, 2, 3))


def _greedy(name: str, title: str, shows: str, policy: str, dtype: str, **limits) -> Preset:
    requests = requests_of(*((speech, 44, 0) for speech in _ASKING), temperature=0.0)
    return preset_of(name, title, shows, BPE, requests, policy, dtype, **limits)


IN_COMPANY = (
    _greedy(
        "greedy-alone",
        "Temperature zero, alone",
        "Four requests that always take the likeliest token, one after the other, in float32.",
        "sequential",
        "float32",
    ),
    _greedy(
        "greedy-together",
        "Temperature zero, together",
        "The same four in one packed row, in float32: every token is the one that each writes alone.",
        "continuous",
        "float32",
        max_num_seqs=4,
        max_num_batched_tokens=16,
    ),
    _greedy(
        "greedy-alone-bf16",
        "Temperature zero, alone in bf16",
        "The same four alone, rounded to 8 bits of precision at every turn.",
        "sequential",
        "bfloat16",
    ),
    _greedy(
        "greedy-together-bf16",
        "Temperature zero, together in bf16",
        "Together in bf16 the sums round otherwise: where two tokens are nearly tied, the other one wins.",
        "continuous",
        "bfloat16",
        max_num_seqs=4,
        max_num_batched_tokens=16,
    ),
)
