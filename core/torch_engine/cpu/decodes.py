"""Attention of decodes, which have one query per request.

Such a query reads all keys and values of its request once and computes little with them. So they
are read in place, in their own format, and in the order in which they lie in memory.
"""

import numba
import numpy as np

from core.torch_engine.cpu.formats import exp, narrow, wide
from core.torch_engine.cpu.kernel import Kernel, within
from core.torch_engine.cpu.segments import read
from core.torch_engine.cpu.vectors import LANES, at, fetch, fma, load, spread, store, store_sums

# how many positions ahead keys and values are prefetched: pools are larger than caches
_AHEAD = 8


def room_of_decodes(heads: int, key_size: int, value_size: int, length: int) -> int:
    """The numbers of scratch memory that a thread needs. length: the most keys of a request."""
    return heads * (key_size + value_size + length + 3)


@numba.njit(inline="always")
def _four(slots, place, end):
    """Four slots from index `place` on; the last one is repeated if there are fewer."""
    last = end - 1
    return (
        slots[place],
        slots[min(place + 1, last)],
        slots[min(place + 2, last)],
        slots[min(place + 3, last)],
    )


@within
def _scores(s, queries, lowest, count, begin, end, weights, room):
    """Products of queries `[count * groups, Dk]` with the keys of slots `begin` to `end`, into
    `weights [count * groups, room]`.
    """
    size, groups = s.key_size, s.heads // s.kv_heads
    slot, value_slot = s.kv_heads * size, s.kv_heads * s.value_size
    keys, values, slots = at(s.keys, lowest * size), at(s.values, lowest * s.value_size), s.slots
    for place in range(begin, end, 4):
        for later in range(place + _AHEAD, place + _AHEAD + 4):
            if later < end:
                fetch(at(keys, slots[later] * slot), count * size)
            elif later - end < end - begin:
                fetch(at(values, slots[begin + later - end] * value_slot), count * s.value_size)
        a, b, c, d = _four(slots, place, end)
        keys_a = at(keys, a * slot)
        keys_b = at(keys, b * slot)
        keys_c = at(keys, c * slot)
        keys_d = at(keys, d * slot)
        for head in range(count * groups):
            query, first = at(queries, head * size), head // groups * size
            sum_a = sum_b = sum_c = sum_d = spread(np.float32(0.0))
            for i in range(0, size, LANES):
                part = load(query, i)
                sum_a = fma(part, load(keys_a, first + i), sum_a)
                sum_b = fma(part, load(keys_b, first + i), sum_b)
                sum_c = fma(part, load(keys_c, first + i), sum_c)
                sum_d = fma(part, load(keys_d, first + i), sum_d)
            store_sums(weights, head * room + place - begin, sum_a, sum_b, sum_c, sum_d)


@within
def _softmax(weights, length, room):
    """Softmax of the first `length` scores of a row, in place; the others become 0."""
    highest, total = np.float32(-np.inf), np.float32(0.0)
    for position in range(length):
        highest = max(highest, weights[position])
    for position in range(length):
        weight = exp(weights[position] - highest)
        weights[position] = weight
        total += weight
    share = np.float32(1.0) / total
    for position in range(length):
        weights[position] *= share
    for position in range(length, room):
        weights[position] = np.float32(0.0)


@within
def _sums(s, weights, room, lowest, count, begin, end, sums):
    """Weighted sums of the values of slots `begin` to `end`, into `sums [count * groups, Dv]`. At
    the end it prefetches the first keys of the next request.
    """
    size, groups = s.value_size, s.heads // s.kv_heads
    slot, key_slot = s.kv_heads * size, s.kv_heads * s.key_size
    values, slots, last = at(s.values, lowest * size), s.slots, s.ends[s.num_segments - 1]
    for i in range(count * groups * size):
        sums[i] = np.float32(0.0)
    for place in range(begin, end, 4):
        for later in range(place + _AHEAD, place + _AHEAD + 4):
            if later < end:
                fetch(at(values, slots[later] * slot), count * size)
            elif later < last:
                fetch(at(s.keys, slots[later] * key_slot), key_slot)
        a, b, c, d = _four(slots, place, end)
        values_a = at(values, a * slot)
        values_b = at(values, b * slot)
        values_c = at(values, c * slot)
        values_d = at(values, d * slot)
        for head in range(count * groups):
            four = at(weights, head * room + place - begin)
            first = head // groups * size
            sum_ = at(sums, head * size)
            weight_a = spread(four[0])
            weight_b = spread(four[1])
            weight_c = spread(four[2])
            weight_d = spread(four[3])
            for i in range(0, size, LANES):
                part = fma(weight_a, load(values_a, first + i), load(sum_, i))
                part = fma(weight_b, load(values_b, first + i), part)
                part = fma(weight_c, load(values_c, first + i), part)
                store(sum_, i, fma(weight_d, load(values_d, first + i), part))


@numba.njit(inline="always")
def _heads_before(work, length, heads):
    """How many of a request's heads begin within this much work; a head takes its keys."""
    return min(max(-(-work // length), 0), heads)


def _share(like, numbers, scaling, thread, threads):
    """All heads of all requests form one list, and every thread takes an equal part of it. So a
    thread mostly has all heads of a request, which lie side by side in a slot. Four positions are
    computed together, since they share a head's query and sums.
    """
    s = read(like, numbers, thread)
    groups, factor = s.heads // s.kv_heads, np.float32(scaling)
    work, begin, end = s.ends[s.num_segments - 1] * s.kv_heads, 0, 0
    for index in range(s.num_segments):
        begin, end = end, s.ends[index]
        length = end - begin
        lowest = _heads_before(work * thread // threads - begin * s.kv_heads, length, s.kv_heads)
        count = (
            _heads_before(work * (thread + 1) // threads - begin * s.kv_heads, length, s.kv_heads)
            - lowest
        )
        if count == 0:
            continue
        row = s.places[5 * index]
        column = s.places[5 * index + 1]
        heads = count * groups
        room = (length + 3) // 4 * 4
        queries, sums = s.room, at(s.room, heads * s.key_size)
        weights = at(sums, heads * s.value_size)
        for head in range(heads):
            query = at(s.query, row * s.row + (lowest * groups + head) * s.head + column * s.column)
            for i in range(s.key_size):
                queries[head * s.key_size + i] = wide(query[i]) * factor
        _scores(s, queries, lowest, count, begin, end, weights, room)
        for head in range(heads):
            _softmax(at(weights, head * room), length, room)
        _sums(s, weights, room, lowest, count, begin, end, sums)
        out = at(s.out, ((row * s.width + column) * s.heads + lowest * groups) * s.value_size)
        for i in range(heads * s.value_size):
            out[i] = narrow(sums[i], like)


attend_decodes = Kernel(_share)
"""Attends with each query to its own keys. numbers: see `Segments`; factor: on the scores. Head
sizes are multiples of LANES.
"""
