"""Fused sampling in Triton: one read of the logits gives each row's token, logprob and margin.
Semantics: `core.torch_engine.sampling.sample` for rows without top-k and top-p. Importing this
module needs Triton; with TRITON_INTERPRET=1 set before, it runs on CPU tensors.

The first kernel reads a stretch of the vocabulary and keeps its maximum, runner-up, sum of
exponentials and, for rows that draw, the two tokens that win with approximate noise. The second
reduces these and draws exactly among the candidates. It could miss only a winner with two others
within 1e-5 of it in one stretch, which happens in about one draw in 10^10.
"""

import torch
import triton
import triton.language as tl

from core.torch_engine.gpu.paged import FUSED

STRETCH = 4096  # logits per program: 8 to 16 KB in flight each, and partial results of 24 bytes

# Values that differ from pass to pass must not trigger another compilation in the middle of a run.
_VARYING = ["temperatures", "keys", "chosen", "logprobs", "margins"]
_LEAST = tl.constexpr(torch.finfo(torch.float32).min)
_COLDEST, _HOTTEST = tl.constexpr(1e-30), tl.constexpr(1e30)


@triton.jit
def _hash(key, token):
    """32 bits of a key and a token: two rounds of MurmurHash3's finalizer, as in `gumbel_noise`."""
    bits = token.to(tl.uint32) ^ (key & 0xFFFFFFFF).to(tl.uint32)
    bits ^= bits >> 16
    bits *= 0x85EBCA6B
    bits ^= bits >> 13
    bits *= 0xC2B2AE35
    bits ^= bits >> 16
    bits ^= ((key >> 32) & 0xFFFFFFFF).to(tl.uint32)
    bits ^= bits >> 16
    bits *= 0x85EBCA6B
    bits ^= bits >> 13
    bits *= 0xC2B2AE35
    return bits ^ (bits >> 16)


@triton.jit
def _rough_time(bits):
    """-log((bits + 0.5) / 2^32) in float32, with a relative error of about 1e-6.

    Tokens win where this is small. There the uniform would round to 1, but its distance from 1 is
    exact.
    """
    rest = ((bits ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * (1.0 / 4294967296)
    small = rest * (1.0 + rest * (0.5 + rest * (1.0 / 3 + rest * (0.25 + rest * 0.2))))
    uniform = (bits.to(tl.float32) + 0.5) * (1.0 / 4294967296)
    return tl.where(rest < 0.03125, small, -tl.log(uniform))


@triton.jit
def _noise(bits):
    """Gumbel noise as `core.torch_engine.sampling.gumbel_noise` computes it, through float64."""
    uniform = (bits.to(tl.float64) + 0.5) / 4294967296
    return (-tl.log(-tl.log(uniform))).to(tl.float32)


@triton.jit(do_not_specialize=_VARYING)
def _stretch(
    logits,
    temperatures,
    keys,
    numbers,
    tokens,
    row_stride,
    vocab_size,
    num_stretches,
    STRETCH: tl.constexpr,
):
    """A stretch of one row. numbers: fp32 `[n, 3, C]`, maximum, runner-up, sum of exponentials;
    tokens: int32 `[n, 3, C]`, the first maximum's and the two candidates'.
    """
    row, stretch = tl.program_id(0) // num_stretches, tl.program_id(0) % num_stretches
    token = stretch * STRETCH + tl.arange(0, STRETCH)
    there = token < vocab_size
    x = tl.load(logits + row.to(tl.int64) * row_stride + token, mask=there, other=float("-inf")).to(
        tl.float32
    )
    # NaN spoils the sum, and with it the logprob, but not the search
    known = tl.where(x == x, x, float("-inf"))
    best, first = tl.max(known, 0, return_indices=True)
    first += stretch * STRETCH
    base = tl.where(best == float("-inf"), 0.0, best)
    place = row.to(tl.int64) * 3 * num_stretches + stretch
    tl.store(numbers + place, best)
    tl.store(
        numbers + place + num_stretches, tl.max(tl.where(token == first, float("-inf"), known), 0)
    )
    tl.store(numbers + place + 2 * num_stretches, tl.sum(tl.exp(x - base), 0))
    tl.store(tokens + place, first)
    temperature = tl.load(temperatures + row)
    if temperature > 0.0:
        temperature = tl.minimum(tl.maximum(temperature, _COLDEST), _HOTTEST)
        # Gumbel-max as a race: score - log(time) is the greatest where time x exp(-score) is the
        # least.
        race = _rough_time(_hash(tl.load(keys + row), token)) * tl.exp(
            (base - known) * (1.0 / temperature)
        )
        race = tl.where(race == race, race, float("inf"))
        one = tl.argmin(race, 0) + stretch * STRETCH
        two = tl.argmin(tl.where(token == one, float("inf"), race), 0) + stretch * STRETCH
        tl.store(tokens + place + num_stretches, one)
        tl.store(tokens + place + 2 * num_stretches, two)


@triton.jit(do_not_specialize=_VARYING)
def _row(
    logits,
    temperatures,
    keys,
    numbers,
    tokens,
    chosen,
    logprobs,
    margins,
    row_stride,
    vocab_size,
    num_stretches,
    STRETCHES: tl.constexpr,
):
    """Combine the stretches of one row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    stretch = tl.arange(0, STRETCHES)
    there = stretch < num_stretches
    place = row * 3 * num_stretches + stretch
    bests = tl.load(numbers + place, mask=there, other=float("-inf"))
    seconds = tl.load(numbers + place + num_stretches, mask=there, other=float("-inf"))
    sums = tl.load(numbers + place + 2 * num_stretches, mask=there, other=0.0)
    firsts = tl.load(tokens + place, mask=there, other=0)
    best, winner = tl.max(bests, 0, return_indices=True)
    second = tl.maximum(
        tl.max(seconds, 0), tl.max(tl.where(stretch == winner, float("-inf"), bests), 0)
    )
    total = tl.sum(sums * tl.exp(tl.where(bests == float("-inf"), float("-inf"), bests - best)), 0)
    token = tl.sum(tl.where(stretch == winner, firsts, 0), 0)
    temperature = tl.load(temperatures + row)
    if temperature > 0.0:
        temperature = tl.minimum(tl.maximum(temperature, _COLDEST), _HOTTEST)
        key = tl.load(keys + row)
        one = tl.load(tokens + place + num_stretches, mask=there, other=0)
        two = tl.load(tokens + place + 2 * num_stretches, mask=there, other=0)
        one, two = tl.minimum(one, vocab_size - 1), tl.minimum(two, vocab_size - 1)
        x_one, x_two = tl.load(logits + one).to(tl.float32), tl.load(logits + two).to(tl.float32)
        drawn_one = tl.div_rn(x_one - best, temperature) + _noise(_hash(key, one))
        drawn_two = tl.div_rn(x_two - best, temperature) + _noise(_hash(key, two))
        highest = tl.max(tl.maximum(drawn_one, drawn_two), 0)
        token = tl.minimum(
            tl.min(tl.where(drawn_one == highest, one, vocab_size), 0),
            tl.min(tl.where(drawn_two == highest, two, vocab_size), 0),
        )
    # infinities may leave no winner, but a token is required
    token = tl.minimum(token, vocab_size - 1)
    tl.store(chosen + row, token.to(tl.int64))
    tl.store(logprobs + row, tl.load(logits + token).to(tl.float32) - best - tl.log(total))
    tl.store(margins + row, best - tl.maximum(second, _LEAST))


def sample_rows(
    logits: torch.Tensor, temperatures: torch.Tensor, keys: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose one token for each row of `logits [n, V]`: tokens int64, logprobs and margins float32,
    all `[n]`.

    temperatures: float32 `[n]`, 0 for argmax. keys: int64 `[n]`, for the noise. If a row's logits
    are not finite (apart from -inf), its logprob is not finite either and its token is arbitrary.
    Nothing waits for the device.
    """
    n, vocab_size = logits.shape
    tokens = logits.new_empty(n, dtype=torch.int64)
    logprobs, margins = logits.new_empty(2, n, dtype=torch.float32)
    if not n:
        return tokens, logprobs, margins
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    count = triton.cdiv(vocab_size, STRETCH)
    numbers = logits.new_empty(n, 3, count, dtype=torch.float32)
    candidates = logits.new_empty(n, 3, count, dtype=torch.int32)
    _stretch[(n * count,)](
        logits,
        temperatures,
        keys,
        numbers,
        candidates,
        logits.stride(0),
        vocab_size,
        count,
        STRETCH=STRETCH,
        num_warps=8,
        **FUSED,
    )
    _row[(n,)](
        logits,
        temperatures,
        keys,
        numbers,
        candidates,
        tokens,
        logprobs,
        margins,
        logits.stride(0),
        vocab_size,
        count,
        STRETCHES=triton.next_power_of_2(count),
        num_warps=1,
        **FUSED,
    )
    return tokens, logprobs, margins
