"""Attention of chunks: many queries of a request over the same keys.

Here products count. A vector holds one number of as many queries as it has lanes, so a block of queries is computed side by side and nothing has to
be added up across a vector; a number of a key or value is read once for all of them, and eight sums are kept in registers.
"""

from __future__ import annotations

import numba
import numpy as np

from core.compiled.formats import exp, narrow, wide
from core.compiled.kernel import Kernel, within
from core.compiled.segments import read
from core.compiled.vectors import LANES, at, fma, load, spread, store

_EIGHT = 8  # keys, or numbers of a value, that are computed together
_LOWEST = np.finfo(np.float32).min  # and not -inf, which taken from itself is NaN


def room_of_chunks(key_size: int, value_size: int, length: int) -> int:
    """Numbers that a thread needs room for. length: the most keys of a request."""
    return (length + _EIGHT) * (key_size + value_size + LANES) + LANES * (key_size + value_size + 2)


@within
def _gather(pool, size, slot, slots, count, out):
    """A head's keys or values of some slots, side by side. slot: numbers from one to the next."""
    for place in range(count):
        there, here = at(pool, slots[place] * slot), at(out, place * size)
        for i in range(0, size, LANES):
            store(here, i, load(there, i))


@within
def _ask(s, row, head, column, lanes, factor, asked):
    """Queries from a column on, turned: `asked [Dk, LANES]`; after the last one it stands again."""
    for lane in range(LANES):
        query = at(s.query, row * s.row + head * s.head + (column + min(lane, lanes - 1)) * s.column)
        for i in range(s.key_size):
            asked[i * LANES + lane] = wide(query[i]) * factor


@within
def _scores(asked, size, keys, first, end, scores):
    """Products of queries `[Dk, LANES]` with keys first to end, into `scores [keys, LANES]`; up to seven more that nobody needs."""
    for place in range(first, end, _EIGHT):
        a = b = c = d = e = f = g = h = spread(np.float32(0.0))
        key = at(keys, place * size)
        for i in range(size):
            part = load(asked, i * LANES)
            a = fma(part, spread(key[i]), a)
            b = fma(part, spread(key[size + i]), b)
            c = fma(part, spread(key[2 * size + i]), c)
            d = fma(part, spread(key[3 * size + i]), d)
            e = fma(part, spread(key[4 * size + i]), e)
            f = fma(part, spread(key[5 * size + i]), f)
            g = fma(part, spread(key[6 * size + i]), g)
            h = fma(part, spread(key[7 * size + i]), h)
        _store_eight(at(scores, place * LANES), a, b, c, d, e, f, g, h)


@within
def _mask(scores, first, end, query, pads, window):
    """No query attends to a key after it, nor to one that has left its window, and a pad to none. query: the first one's place among the keys; pads: how
    many of the queries are.
    """
    for place in range(max(first, query + 1), end):
        for lane in range(min(place - query, LANES)):
            scores[place * LANES + lane] = np.float32(-np.inf)
    for place in range(first, min(end, query + LANES - window)):
        for lane in range(max(place - query + window, 0), LANES):
            scores[place * LANES + lane] = np.float32(-np.inf)
    for place in range(first, end):
        for lane in range(pads):
            scores[place * LANES + lane] = np.float32(-np.inf)


@within
def _softmax(scores, first, end, highest, totals):
    """Of every column, in its place, but for the division by `totals`, which are 0 where there is no key to attend to."""
    for lane in range(LANES):
        highest[lane], totals[lane] = _LOWEST, np.float32(0.0)
    for place in range(first, end):
        for lane in range(LANES):
            highest[lane] = max(highest[lane], scores[place * LANES + lane])
    for place in range(first, end):
        for lane in range(LANES):
            weight = exp(scores[place * LANES + lane] - highest[lane])
            scores[place * LANES + lane] = weight
            totals[lane] += weight


@within
def _sums(weights, values, size, first, end, sums):
    """Of values first to end, weighted, into `sums [Dv, LANES]`."""
    for i in range(0, size, _EIGHT):
        a = b = c = d = e = f = g = h = spread(np.float32(0.0))
        for place in range(first, end):
            part, value = load(weights, place * LANES), at(values, place * size + i)
            a = fma(part, spread(value[0]), a)
            b = fma(part, spread(value[1]), b)
            c = fma(part, spread(value[2]), c)
            d = fma(part, spread(value[3]), d)
            e = fma(part, spread(value[4]), e)
            f = fma(part, spread(value[5]), f)
            g = fma(part, spread(value[6]), g)
            h = fma(part, spread(value[7]), h)
        _store_eight(at(sums, i * LANES), a, b, c, d, e, f, g, h)


@within
def _store_eight(place, a, b, c, d, e, f, g, h):
    store(place, 0, a)
    store(place, LANES, b)
    store(place, 2 * LANES, c)
    store(place, 3 * LANES, d)
    store(place, 4 * LANES, e)
    store(place, 5 * LANES, f)
    store(place, 6 * LANES, g)
    store(place, 7 * LANES, h)


@numba.njit(inline="always")
def _keys(query, lanes, pads, length, window):
    """The keys that a block of queries is computed with: from the first one that any of them may see to the last. query: the first one's place among
    the keys. A block with pads, which see nothing, is computed with all keys.
    """
    if pads > 0:
        return 0, length
    return max(query - window + 1, 0) // _EIGHT * _EIGHT, query + lanes


@within
def _work(s):
    """Keys that the blocks of one head are computed with, all segments together."""
    work, end = 0, 0
    for index in range(s.count):
        begin, end = end, s.ends[index]
        count, query, pads = s.places[5 * index + 2], s.places[5 * index + 3], s.places[5 * index + 4]
        for block in range(0, count, LANES):
            low, high = _keys(query + block, min(LANES, count - block), pads - block, end - begin, s.window)
            work += high - low
    return work


def _share(like, numbers, scaling, thread, threads):
    """The blocks of queries of the first segment's first head, then of its second, and so on are one list, and every thread takes a stretch of it with as
    many keys in all as the others.
    """
    s = read(like, numbers, thread)
    groups, key_size, value_size = s.heads // s.kv_heads, s.key_size, s.value_size
    asked, sums = s.room, at(s.room, LANES * key_size)
    highest, totals, keys = at(sums, LANES * value_size), at(sums, LANES * (value_size + 1)), at(sums, LANES * (value_size + 2))
    work, before, end = _work(s) * s.heads, 0, 0
    first_key, end_key = work * thread // threads, work * (thread + 1) // threads
    for index in range(s.count):
        begin, end = end, s.ends[index]
        length, slots = end - begin, at(s.slots, begin)
        values = at(keys, (length + _EIGHT) * key_size)
        scores = at(values, length * value_size)
        row, column, count = s.places[5 * index], s.places[5 * index + 1], s.places[5 * index + 2]
        query, pads = s.places[5 * index + 3], s.places[5 * index + 4]
        for kv_head in range(s.kv_heads):
            gathered = False
            for head in range(kv_head * groups, (kv_head + 1) * groups):
                for block in range(0, count, LANES):
                    lanes = min(LANES, count - block)
                    low, high = _keys(query + block, lanes, pads - block, length, s.window)
                    place, before = before, before + high - low
                    if not first_key <= place < end_key:
                        continue
                    if not gathered:
                        _gather(at(s.keys, kv_head * key_size), key_size, s.kv_heads * key_size, slots, length, keys)
                        _gather(at(s.values, kv_head * value_size), value_size, s.kv_heads * value_size, slots, length, values)
                        gathered = True
                    _ask(s, row, head, column + block, lanes, np.float32(scaling), asked)
                    _scores(asked, key_size, keys, low, high, scores)
                    _mask(scores, low, high, query + block, min(pads - block, lanes), s.window)
                    _softmax(scores, low, high, highest, totals)
                    _sums(scores, values, value_size, low, high, sums)
                    for lane in range(lanes):
                        share = np.float32(0.0) if totals[lane] == 0 else np.float32(1.0) / totals[lane]
                        out = at(s.out, ((row * s.width + column + block + lane) * s.heads + head) * value_size)
                        for i in range(value_size):
                            out[i] = narrow(sums[i * LANES + lane] * share, like)


attend_chunks = Kernel(_share)
"""The queries of each segment over its keys; numbers: see `Segments`; factor: on the scores. Head sizes are multiples of LANES."""
