"""Samples tokens from logits. Noise is a hash of (request seed, position, token), so the text of a
request never depends on what else is in its batch.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from core.engine.runner import Sample, SamplingRow, as_samples

_LOW_32 = 0xFFFFFFFF


LogitStats = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""For logits `[n, V]` in the model's number format or float32: the argmax (int64 `[n]`; the first
among equals), its lead over the runner-up, and the logsumexp (both float32 `[n]`), which is not
finite if a logit is not.
"""


def sample(
    logits: torch.Tensor, rows: Sequence[SamplingRow], stats: LogitStats | None = None
) -> list[Sample]:
    """Choose one token for each row of `logits [n, V]`. stats: a kernel for `LogitStats`."""
    if logits.device.type == "mps":
        logits = logits.cpu()  # the noise takes float64, which MPS does not have
    return as_samples(*(chosen.tolist() for chosen in choose_tokens(logits, rows, stats=stats)))


def choose_tokens(
    logits: torch.Tensor,
    rows: Sequence[SamplingRow],
    unread: torch.Tensor | None = None,
    stats: LogitStats | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (int64), logprobs and margins `[n]` on the device of `logits [n, V]`; the logprob is
    not finite if a logit is not.

    unread: int64 `[n]` on that device, the last generated token of each row where the host has not
    read it yet.
    """
    logits = adjust_logits(logits.contiguous(), rows, unread)
    first, margins, logsumexp = (stats or logit_stats)(logits)
    tokens = first
    noisy = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    if noisy:
        tokens = first.clone()
        tokens[noisy] = _draw(logits[noisy].float(), [rows[i] for i in noisy])
    return tokens, logits.gather(1, tokens[:, None])[:, 0].float() - logsumexp, margins


@torch.inference_mode()  # allows writing into a model's logits
def logit_stats(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `LogitStats`. If there is only one token, the runner-up counts as the lowest number,
    which keeps the lead finite.

    Copying all logits would take as long as everything else here, so the highest one is overwritten
    for a moment and put back.
    """
    logits = logits.float()
    first = _argmax(logits)
    place = first[:, None]
    best = logits.gather(1, place)
    # on CPU 1.6 times as fast as logsumexp; NaN if a logit is
    logsumexp = best - logits.log_softmax(-1).gather(1, place)
    logits.scatter_(1, place, torch.finfo(logits.dtype).min)
    runner_up = logits.amax(-1)
    logits.scatter_(1, place, best)
    return first, best[:, 0] - runner_up, logsumexp[:, 0]


def _argmax(logits: torch.Tensor) -> torch.Tensor:
    """The first of the highest logits, as in `generate`. On a CPU, NumPy is 13 times faster."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def _draw(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """The Gumbel-max draw from softmax(logits / temperature) after the filters; int64 `[n]`."""
    device = logits.device
    # relative to the highest, so that no temperature is too close to zero: the highest stays 0,
    # the others become ever less likely
    temperatures = torch.tensor(
        [min(max(r.params.temperature, 1e-30), 1e30) for r in rows],
        dtype=torch.float32,
        device=device,
    )
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperatures[:, None]
    if any(r.params.filters for r in rows):
        scaled = filter_logits(scaled, rows)
    keys = torch.tensor([row.noise_key for row in rows], device=device)
    return (scaled + gumbel_noise(keys, scaled.shape[1])).argmax(-1)


def adjust_logits(
    logits: torch.Tensor, rows: Sequence[SamplingRow], unread: torch.Tensor | None = None
) -> torch.Tensor:
    """Logits after bias and penalties, in float32; the same tensor if no row asks for any."""
    if not any(row.params.adjusts for row in rows):
        return logits
    logits = logits.to(torch.float32, copy=True)
    for index, row in enumerate(rows):
        if row.params.adjusts:
            logits[index] = _adjust_row(
                logits[index], row, None if unread is None else unread[index]
            )
    return logits


def _adjust_row(
    logits: torch.Tensor, row: SamplingRow, unread: torch.Tensor | None
) -> torch.Tensor:
    """One row `[V]`: bias, then repetition, frequency and presence, in vLLM's order."""
    params, device = row.params, logits.device
    if params.logit_bias:
        ids, values = zip(*params.logit_bias, strict=True)
        logits = logits.index_add(
            0, moved(ids, device, torch.int64), moved(values, device, torch.float32)
        )
    if not params.looks_back:
        return logits
    generated = moved(row.generated, device, torch.int64)
    if unread is not None:
        generated = torch.where(generated < 0, unread, generated)
    counts = torch.zeros_like(logits).index_add_(
        0, generated, torch.ones_like(generated, dtype=logits.dtype)
    )
    if params.repetition_penalty != 1:
        seen = (counts > 0).index_fill_(0, moved(row.prompt, device, torch.int64), True)
        penalised = torch.where(
            logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty
        )
        logits = torch.where(seen, penalised, logits)
    return logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)


def moved(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Numbers on the device, by an asynchronous copy. values: in a list or an array."""
    tensor = torch.as_tensor(values, dtype=dtype)
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def filter_logits(scaled: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """`scaled [n, V]` with -inf where a token cannot be drawn: top-k, then top-p of what is left,
    then min-p. The best token always stays.

    Ties are broken by token id, so that top-k keeps exactly k.
    """
    device, vocab_size = scaled.device, scaled.shape[1]
    top_k = torch.tensor([r.params.top_k or vocab_size for r in rows], device=device)
    top_p = torch.tensor(
        [r.params.top_p if r.params.top_p < 1 else math.inf for r in rows],
        dtype=torch.float32,
        device=device,
    )  # inf: a rounded mass may exceed 1
    min_p = torch.tensor([r.params.min_p for r in rows], dtype=torch.float32, device=device)
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    ordered = ordered.masked_fill(
        torch.arange(vocab_size, device=device) >= top_k[:, None], -torch.inf
    )
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # mass of the more probable tokens
    drop = (before >= top_p[:, None]) | (probabilities < min_p[:, None] * probabilities[:, :1])
    drop[:, 0] = False
    return torch.empty_like(scaled).scatter_(1, order, ordered.masked_fill(drop, -torch.inf))


def gumbel_noise(keys: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Standard Gumbel noise `[n, vocab_size]` from 64-bit keys `[n]`: two rounds of MurmurHash3's
    finalizer, in integers, so that every device draws the same.
    """
    # 32 bits each, regardless of sign
    low, high = (keys & _LOW_32).int()[:, None], (keys >> 32).int()[:, None]
    bits = torch.arange(vocab_size, device=keys.device, dtype=torch.int32)[None] ^ low
    for salt in (high, None):
        bits ^= bits >> 16 & 0xFFFF
        bits *= 0x85EBCA6B - 2**32
        bits ^= bits >> 13 & 0x7FFFF
        bits *= 0xC2B2AE35 - 2**32
        bits ^= bits >> 16 & 0xFFFF
        if salt is not None:
            bits ^= salt
    uniform = (bits.long() & _LOW_32).double().add_(0.5).div_(2**32)
    return uniform.log_().neg_().log_().neg_().float()
