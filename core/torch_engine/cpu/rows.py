"""Row-wise operations as single kernels, where torch and transformers take several operations: RMS
norms, GELU, and statistics of logits.
"""

import numpy as np
import torch

from core.torch_engine.cpu.formats import exp, narrow, wide
from core.torch_engine.cpu.kernel import Kernel, within
from core.torch_engine.cpu.vectors import at, floats, pointer

# logits that fit into a core's cache; numbers that are compared side by side
_BLOCK, _LANES = 1024, 64
_LOWEST = np.finfo(np.float32).min  # not -inf: -inf minus -inf is NaN


def _each_row(
    kernel: Kernel, x: torch.Tensor, *given: int, factor: float = 0.0, width: int | None = None
) -> torch.Tensor:
    """Apply a kernel to rows `[..., D]`; returns new rows, by default of the same width."""
    x, size = x.contiguous(), x.shape[-1]
    out = torch.empty_like(x) if width is None else x.new_empty(*x.shape[:-1], width)
    kernel(x.dtype, (x.data_ptr(), out.data_ptr(), x.numel() // size, size, *given), factor)
    return out


@within
def normed(source, weight, size, eps, target, like):
    """RMS norm of a row: see `RMSNorm` in `core.torch_engine.stand_ins`."""
    squares = np.float32(0.0)
    for i in range(size):
        squares += wide(source[i]) * wide(source[i])
    scale = np.float32(1.0) / np.sqrt(squares / np.float32(size) + eps)
    for i in range(size):
        target[i] = narrow(wide(narrow(wide(source[i]) * scale, like)) * wide(weight[i]), like)


def _rms_norm_share(like, numbers, eps, thread, threads):
    x = pointer(numbers[0], like)
    out = pointer(numbers[1], like)
    rows = numbers[2]
    size = numbers[3]
    weight = pointer(numbers[4], like)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        normed(at(x, row * size), weight, size, np.float32(eps), at(out, row * size), like)


_rms_norm = Kernel(_rms_norm_share)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `RMSNorm` in `core.torch_engine.stand_ins`."""
    return _each_row(_rms_norm, x, weight.data_ptr(), factor=eps)


@within
def _activated(a, bend):
    """a times the logistic function of a * (slope + bend * a^2). This is SiLU if bend is 0,
    otherwise GELU in its approximation by tanh, since 1 + tanh(x) is twice the logistic function of
    2x: Hendrycks and Gimpel (2016).
    """
    slope = np.float32(1.0) if bend == 0 else np.float32(1.5957691216)  # 2 * sqrt(2 / pi)
    twice = a * (slope + np.float32(bend) * a * a)
    small = exp(-abs(twice))
    share = np.float32(1.0) / (np.float32(1.0) + small)
    return a * (small * share if twice < 0 else share)


_GELU = 0.0713548163  # 2 * sqrt(2 / pi) * 0.044715


def _activate_share(like, numbers, bend, thread, threads):
    x, out, count = pointer(numbers[0], like), pointer(numbers[1], like), numbers[2] * numbers[3]
    for i in range(count * thread // threads, count * (thread + 1) // threads):
        out[i] = narrow(_activated(wide(x[i]), bend), like)


_activate = Kernel(_activate_share)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU in its approximation by tanh."""
    return _each_row(_activate, x, factor=_GELU)


def _gate_share(like, numbers, bend, thread, threads):
    rows, size = numbers[2], numbers[3] // 2
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        gate = at(pointer(numbers[0], like), 2 * row * size)
        out = at(pointer(numbers[1], like), row * size)
        for i in range(size):
            out[i] = narrow(_activated(wide(gate[i]), bend) * wide(gate[size + i]), like)


_gate = Kernel(_gate_share)


def gated(x: torch.Tensor, activation: str) -> torch.Tensor:
    """The second halves of rows `[..., 2 D]` times "silu" or "gelu" of the first halves."""
    return _each_row(
        _gate, x, width=x.shape[-1] // 2, factor=_GELU if activation == "gelu" else 0.0
    )


@within
def _block(logits, begin, count, block, lanes):
    """The highest of a block of logits, and the sum of exponentials relative to it."""
    for i in range(count):
        block[i] = wide(logits[begin + i])
    for i in range(count, _BLOCK):
        block[i] = _LOWEST
    for lane in range(_LANES):
        lanes[lane] = _LOWEST
    for i in range(0, _BLOCK, _LANES):
        for lane in range(_LANES):
            lanes[lane] = max(lanes[lane], block[i + lane])
    top, total = _LOWEST, np.float32(0.0)
    for lane in range(_LANES):
        top = max(top, lanes[lane])
    for i in range(count):
        total += exp(block[i] - top)
    return top, total


def _logit_stats_share(like, numbers, factor, thread, threads):
    """Each block is read once, for its highest logit and its sum; then the blocks are combined."""
    rows, size = numbers[1], numbers[2]
    best = pointer(numbers[3], numbers)
    margins = floats(numbers[4], 0)
    logsumexps = floats(numbers[5], 0)
    blocks = (size + _BLOCK - 1) // _BLOCK
    room = floats(numbers[6], thread * numbers[7])
    block = room
    lanes = at(room, _BLOCK)
    highest = at(room, _BLOCK + _LANES)
    sums = at(room, _BLOCK + _LANES + blocks)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        logits = at(pointer(numbers[0], like), row * size)
        winner = 0  # the first of the highest
        for index in range(blocks):
            highest[index], sums[index] = _block(
                logits, index * _BLOCK, min(_BLOCK, size - index * _BLOCK), block, lanes
            )
            if highest[index] > highest[winner]:
                winner = index
        top, place, end = highest[winner], winner * _BLOCK, min((winner + 1) * _BLOCK, size)
        while place < end - 1 and wide(logits[place]) != top:
            place += 1
        second, exact = _LOWEST, 0.0
        for i in range(winner * _BLOCK, end):
            if i != place:
                second = max(second, wide(logits[i]))
        for index in range(blocks):
            if index != winner:
                second = max(second, highest[index])
            exact += sums[index] * np.exp(np.float64(highest[index]) - top)
        best[row], margins[row], logsumexps[row] = place, top - second, top + np.log(exact)


logit_stats_kernel = Kernel(_logit_stats_share)


def logit_stats(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `LogitStats` in `core.torch_engine.sampling`."""
    logits = logits.contiguous()
    count, size = logits.shape
    best = torch.empty(count, dtype=torch.int64)
    margin = torch.empty(count)
    logsumexp = torch.empty(count)
    room = torch.empty(torch.get_num_threads(), _BLOCK + _LANES + 2 * (-(-size // _BLOCK)))
    results = (tensor.data_ptr() for tensor in (best, margin, logsumexp))
    logit_stats_kernel(
        logits.dtype, (logits.data_ptr(), count, size, *results, room.data_ptr(), room.shape[1])
    )
    return best, margin, logsumexp


KERNELS = (_rms_norm, _activate, _gate, logit_stats_kernel)
