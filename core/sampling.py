"""Logits to tokens. Noise is a hash of (request seed, position, token), so a text never depends on who shares its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from core.request import SamplingParams

_LOW_32 = 0xFFFFFFFF


class SamplingRow(NamedTuple):
    """How to choose the token at `position` of its request."""

    params: SamplingParams
    position: int


class Sample(NamedTuple):
    """token_id: None where the logits were not finite. logprob: natural, at temperature 1. margin: best logit less the runner-up's."""

    token_id: int | None
    logprob: float
    margin: float


def sample(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> list[Sample]:
    """Choose one token for each row of `logits [n, V]`."""
    logits = logits.float()
    best, tokens = logits.max(-1)
    runner_up = logits.scatter(1, tokens[:, None], -torch.inf).amax(-1)
    total = logits.logsumexp(-1)
    noisy = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    if noisy:
        tokens = tokens.clone()
        tokens[noisy] = _draw(logits[noisy], [rows[i] for i in noisy])
        best_or_drawn = logits.gather(1, tokens[:, None])[:, 0]
    else:
        best_or_drawn = best
    facts = torch.stack([best_or_drawn - total, best - runner_up]).tolist()
    finite = torch.isfinite(total).tolist()
    return [
        Sample(token, round(logprob, 5), round(margin, 5)) if ok else Sample(None, 0.0, 0.0)
        for token, logprob, margin, ok in zip(tokens.tolist(), *facts, finite, strict=True)
    ]


def _draw(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """The Gumbel-max draw from softmax(logits / temperature) after top-k and top-p; int64 `[n]`."""
    device = logits.device
    temperatures = torch.tensor([r.params.temperature for r in rows], device=device)
    scaled = logits / temperatures[:, None]
    vocab_size = scaled.shape[1]
    if any(r.params.top_k or r.params.top_p < 1 for r in rows):
        top_k = torch.tensor([r.params.top_k or vocab_size for r in rows], device=device)
        top_p = torch.tensor([r.params.top_p for r in rows], device=device)
        ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities  # mass of the likelier tokens
        drop = (before >= top_p[:, None]) | (torch.arange(vocab_size, device=device) >= top_k[:, None])
        drop[:, 0] = False
        scaled = torch.empty_like(scaled).scatter_(1, order, ordered.masked_fill(drop, -torch.inf))
    keys = torch.tensor([_key(r.params.seed, r.position) for r in rows], device=device)
    return (scaled + gumbel_noise(keys, vocab_size)).argmax(-1)


def gumbel_noise(keys: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Standard Gumbel noise `[n, vocab_size]` from 64-bit keys `[n]`: two rounds of MurmurHash3's finalizer, in integers, so that every
    device draws the same.
    """
    bits = torch.arange(vocab_size, device=keys.device)[None] ^ (keys[:, None] & _LOW_32)
    for salt in (keys[:, None] >> 32 & _LOW_32, 0):
        bits = bits ^ (bits >> 16)
        bits = bits * 0x85EBCA6B & _LOW_32
        bits = bits ^ (bits >> 13)
        bits = bits * 0xC2B2AE35 & _LOW_32
        bits = (bits ^ (bits >> 16)) ^ salt
    uniform = (bits.double() + 0.5) / 2**32
    return (-torch.log(-torch.log(uniform))).float()


def _key(seed: int, position: int) -> int:
    """SplitMix64 of seed and position, as a signed 64-bit integer."""
    mask = 2**64 - 1
    z = (seed + (position + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z
