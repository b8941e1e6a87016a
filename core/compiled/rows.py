"""What is computed row by row, in one kernel where torch and transformers take several operations: RMS norms, GELU, what is asked of logits."""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import prange

from core.compiled.formats import MATH, exp, narrow, shown, use_torch_threads, wide

_BLOCK, _LANES = 1024, 64  # logits that stay in a core's cache; numbers that are compared side by side
_LOWEST = np.finfo(np.float32).min  # and not -inf, which taken from itself is NaN


def _rows(tensor: torch.Tensor) -> np.ndarray:
    """As rows in one piece, a copy only if they are not: kernels are compiled for such alone."""
    return np.ascontiguousarray(shown(tensor).reshape(-1, tensor.shape[-1]))


@numba.njit(parallel=True, fastmath=MATH, cache=True, error_model="numpy")
def _rms_norm(x, weight, eps, out):
    size = x.shape[1]
    for row in prange(len(x)):
        squares = np.float32(0.0)
        for i in range(size):
            squares += wide(x[row, i]) * wide(x[row, i])
        scale = np.float32(1.0) / np.sqrt(squares / np.float32(size) + eps)
        for i in range(size):
            normed = wide(narrow(wide(x[row, i]) * scale, out[0, 0]))
            out[row, i] = narrow(normed * wide(weight[i]), out[0, 0])


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `RMSNorm` in `core.runner.fused_norms`."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _rms_norm(_rows(x), shown(weight.detach()), np.float32(eps), _rows(out))
    return out


@numba.njit(parallel=True, fastmath=MATH, cache=True, error_model="numpy")
def _gelu(x, out):
    for row in prange(len(x)):
        for i in range(x.shape[1]):
            a = wide(x[row, i])
            twice = a * (np.float32(1.5957691216) + np.float32(0.0713548163) * a * a)  # 2 * sqrt(2 / pi) * (a + 0.044715 a^3)
            small = exp(-abs(twice))
            share = np.float32(1.0) / (np.float32(1.0) + small)
            if twice < 0:
                share = small * share if twice > -87 else np.float32(0.0)
            out[row, i] = narrow(a * share, out[0, 0])


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by its approximation with tanh, which is the logistic function of twice its argument: Hendrycks and Gimpel (2016)."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _gelu(_rows(x), _rows(out))
    return out


@numba.njit(parallel=True, fastmath=MATH, cache=True, error_model="numpy")
def _logit_stats(logits, best, margin, logsumexp):
    """A block is read once: its highest logit, and its sum relative to that. Then the blocks are put together."""
    size = logits.shape[1]
    blocks = (size + _BLOCK - 1) // _BLOCK
    for row in prange(len(logits)):
        block, lanes = np.empty(_BLOCK, np.float32), np.empty(_LANES, np.float32)
        highest, sums = np.empty(blocks, np.float32), np.empty(blocks, np.float32)
        for index in range(blocks):
            begin = index * _BLOCK
            count = min(_BLOCK, size - begin)
            for i in range(count):
                block[i] = wide(logits[row, begin + i])
            block[count:] = _LOWEST
            lanes[:] = _LOWEST
            for i in range(0, _BLOCK, _LANES):
                for lane in range(_LANES):
                    lanes[lane] = max(lanes[lane], block[i + lane])
            top, total = _LOWEST, np.float32(0.0)
            for lane in range(_LANES):
                top = max(top, lanes[lane])
            for i in range(count):
                total += exp(block[i] - top)
            highest[index], sums[index] = top, total
        winner = np.argmax(highest)  # the first of them
        top, place, end = highest[winner], winner * _BLOCK, min((winner + 1) * _BLOCK, size)
        while place < end - 1 and wide(logits[row, place]) != top:
            place += 1
        second, exact = _LOWEST, 0.0
        for i in range(winner * _BLOCK, end):
            if i != place:
                second = max(second, wide(logits[row, i]))
        for index in range(blocks):
            if index != winner:
                second = max(second, highest[index])
            exact += sums[index] * np.exp(np.float64(highest[index]) - top)
        best[row], margin[row], logsumexp[row] = place, top - second, top + np.log(exact)


def logit_stats(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `LogitStats` in `core.runner.sampling`."""
    count = len(logits)
    best, margin, logsumexp = torch.empty(count, dtype=torch.int64), torch.empty(count), torch.empty(count)
    use_torch_threads()
    _logit_stats(shown(logits), best.numpy(), margin.numpy(), logsumexp.numpy())
    return best, margin, logsumexp
