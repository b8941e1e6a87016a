"""From the results of a layer's projections to the inputs of attention: normalises queries and
keys, applies rotary embeddings, and writes keys and values to the pool.
"""

import numpy as np
import torch

from core.torch_engine.cpu.formats import narrow, wide
from core.torch_engine.cpu.kernel import Kernel, within
from core.torch_engine.cpu.rows import normed
from core.torch_engine.cpu.vectors import at, pointer


@within
def _rotated(source, cos, sin, count, size, target, like):
    """Apply the rotary embedding to the first `count` numbers of a head, each paired with the
    number half of `count` further on.
    """
    half = count // 2
    for i in range(half):
        a, b = wide(source[i]), wide(source[half + i])
        target[i] = narrow(a * wide(cos[i]) - b * wide(sin[i]), like)
        target[half + i] = narrow(b * wide(cos[half + i]) + a * wide(sin[half + i]), like)
    for i in range(count, size):
        target[i] = source[i]


def _share(like, numbers, eps, thread, threads):
    projected = pointer(numbers[0], like)
    cosines = pointer(numbers[1], like)
    sines = pointer(numbers[2], like)
    keys = pointer(numbers[3], like)
    values = pointer(numbers[4], like)
    queries = pointer(numbers[5], like)
    slots, weights = pointer(numbers[6], numbers), (numbers[7], numbers[8])
    positions = numbers[9]
    heads = numbers[10]
    kv_heads = numbers[11]
    size = numbers[12]
    value_size = numbers[13]
    rotary_size = numbers[14]
    width = (heads + kv_heads) * size + kv_heads * value_size
    for position in range(positions * thread // threads, positions * (thread + 1) // threads):
        row, slot = at(projected, position * width), slots[position]
        cos, sin = at(cosines, position * rotary_size), at(sines, position * rotary_size)
        for head in range(heads + kv_heads):
            source = at(row, head * size)
            target = at(queries, (position * heads + head) * size)
            weight = weights[0]
            if head >= heads:
                target, weight = at(keys, (slot * kv_heads + head - heads) * size), weights[1]
            if weight != 0:
                normed(source, pointer(weight, like), size, np.float32(eps), target, like)
                source = target
            _rotated(source, cos, sin, rotary_size, size, target, like)
        source = at(row, (heads + kv_heads) * size)
        target = at(values, slot * kv_heads * value_size)
        for i in range(kv_heads * value_size):
            target[i] = source[i]


_place = Kernel(_share)


def place(
    projected: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor] | None,
    norms: tuple[torch.Tensor, ...],
    eps: float,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Queries `[R, H, W, Dk]` from the results of projections, `[R, W, numbers]`, with norms and
    rotary embeddings applied; keys and values go to `slots`. rotation: cos and sin, `[R, W, D]`;
    norms: weights `[Dk]`.
    """
    rows, width, numbers = projected.shape
    (_, kv_heads, size), value_size = keys.shape, values.shape[2]
    heads, rest = divmod(numbers - kv_heads * (size + value_size), size)
    queries = projected.new_empty(rows, width, heads, size)
    cos, sin = rotation or (queries[..., 0, :0], queries[..., 0, :0])
    if rest or cos.shape[-1] > size or not cos.shape == sin.shape == (rows, width, cos.shape[-1]):
        raise TypeError("These are not projections of heads, or not rotations of them.")
    addresses = [
        tensor.data_ptr() for tensor in (projected, cos, sin, keys, values, queries, slots)
    ]
    weights = [weight.data_ptr() for weight in norms] or [0, 0]
    sizes = (rows * width, heads, kv_heads, size, value_size, cos.shape[-1])
    _place(projected.dtype, [*addresses, *weights, *sizes], eps)
    return queries.transpose(1, 2)


KERNELS = (_place,)
