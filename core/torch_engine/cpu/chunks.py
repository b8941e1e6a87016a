"""Attention of chunks, which have many queries over the same keys.

Here the time goes into products. A vector holds one number from each of as many queries as it has
lanes, so a block of queries is computed side by side and nothing has to be summed across a vector.
Eight sums stay in registers while keys or values are read: of eight keys and one vector of queries,
or of four keys and two vectors if a vector has eight lanes.
"""

import numba
import numpy as np

from core.torch_engine.cpu.formats import exp, narrow, wide
from core.torch_engine.cpu.kernel import Kernel, within
from core.torch_engine.cpu.segments import read
from core.torch_engine.cpu.vectors import LANES, at, fma, load, spread, store

_QUERIES = 16  # in a block
_TOGETHER = LANES // 2  # keys, or numbers of a value, that are computed together
_EACH = _TOGETHER // 4  # of them, for two of the eight sums
# where the second of these two reads its queries: in the second vector, if there are two
_OTHER = _QUERIES - LANES
_LOWEST = np.finfo(np.float32).min  # not -inf: -inf minus -inf is NaN


def room_of_chunks(key_size: int, value_size: int, length: int) -> int:
    """The numbers of scratch memory that a thread needs. length: the most keys of a request."""
    return (length + _TOGETHER) * (key_size + value_size + _QUERIES) + _QUERIES * (
        key_size + value_size + 2
    )


@within
def _gather(pool, head, heads, size, slots, count, out):
    """Copy a head's keys or values from some slots, side by side. heads: per slot."""
    for place in range(count):
        there, here = at(pool, (slots[place] * heads + head) * size), at(out, place * size)
        for i in range(0, size, LANES):
            store(here, i, load(there, i))


@within
def _load_queries(s, row, head, column, lanes, factor, queries):
    """Read queries from a column on, transposed: `queries [Dk, _QUERIES]`; the last is repeated."""
    for lane in range(_QUERIES):
        query = at(
            s.query, row * s.row + head * s.head + (column + min(lane, lanes - 1)) * s.column
        )
        for i in range(s.key_size):
            queries[i * _QUERIES + lane] = wide(query[i]) * factor


@within
def _scores(queries, size, keys, first, end, scores):
    """Products of queries `[Dk, _QUERIES]` with keys `first` to `end`, into `scores [keys,
    _QUERIES]`; a few products beyond `end` are computed but not used.
    """
    for place in range(first, end, _TOGETHER):
        a = b = c = d = e = f = g = h = spread(np.float32(0.0))
        key_a, key_b = at(keys, place * size), at(keys, (place + _EACH - 1) * size)
        key_c, key_d = at(key_a, _EACH * size), at(key_b, _EACH * size)
        key_e, key_f = at(key_c, _EACH * size), at(key_d, _EACH * size)
        key_g, key_h = at(key_e, _EACH * size), at(key_f, _EACH * size)
        for i in range(size):
            query, other = load(queries, i * _QUERIES), load(queries, i * _QUERIES + _OTHER)
            a, b = fma(query, spread(key_a[i]), a), fma(other, spread(key_b[i]), b)
            c, d = fma(query, spread(key_c[i]), c), fma(other, spread(key_d[i]), d)
            e, f = fma(query, spread(key_e[i]), e), fma(other, spread(key_f[i]), f)
            g, h = fma(query, spread(key_g[i]), g), fma(other, spread(key_h[i]), h)
        _store_eight(at(scores, place * _QUERIES), a, b, c, d, e, f, g, h)


@within
def _mask(scores, first, end, query, pads, window):
    """A query attends neither to later keys nor to keys before its window, and a pad to none.
    query: index of the first query among the keys; pads: how many of the queries are pads.
    """
    for place in range(max(first, query + 1), end):
        for lane in range(min(place - query, _QUERIES)):
            scores[place * _QUERIES + lane] = np.float32(-np.inf)
    for place in range(first, min(end, query + _QUERIES - window)):
        for lane in range(max(place - query + window, 0), _QUERIES):
            scores[place * _QUERIES + lane] = np.float32(-np.inf)
    for place in range(first, end):
        for lane in range(pads):
            scores[place * _QUERIES + lane] = np.float32(-np.inf)


@within
def _softmax(scores, first, end, highest, totals):
    """Softmax of every column, in place, still to be divided by `totals`; 0 without keys."""
    for lane in range(_QUERIES):
        highest[lane], totals[lane] = _LOWEST, np.float32(0.0)
    for place in range(first, end):
        for lane in range(_QUERIES):
            highest[lane] = max(highest[lane], scores[place * _QUERIES + lane])
    for place in range(first, end):
        for lane in range(_QUERIES):
            weight = exp(scores[place * _QUERIES + lane] - highest[lane])
            scores[place * _QUERIES + lane] = weight
            totals[lane] += weight


@within
def _sums(weights, values, size, first, end, sums):
    """Weighted sums of values `first` to `end`, into `sums [Dv, _QUERIES]`."""
    for i in range(0, size, _TOGETHER):
        a = b = c = d = e = f = g = h = spread(np.float32(0.0))
        for place in range(first, end):
            weight = load(weights, place * _QUERIES)
            other = load(weights, place * _QUERIES + _OTHER)
            value_a = at(values, place * size + i)
            value_b = at(values, place * size + i + _EACH - 1)
            a, b = fma(weight, spread(value_a[0]), a), fma(other, spread(value_b[0]), b)
            c, d = fma(weight, spread(value_a[_EACH]), c), fma(other, spread(value_b[_EACH]), d)
            e = fma(weight, spread(value_a[2 * _EACH]), e)
            f = fma(other, spread(value_b[2 * _EACH]), f)
            g = fma(weight, spread(value_a[3 * _EACH]), g)
            h = fma(other, spread(value_b[3 * _EACH]), h)
        _store_eight(at(sums, i * _QUERIES), a, b, c, d, e, f, g, h)


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
    """The range of keys for a block of queries: from the first that any query may see to the last.
    query: index of the first query among the keys. A block with pads, which see none, uses all.
    """
    if pads > 0:
        return 0, length
    return max(query - window + 1, 0) // _TOGETHER * _TOGETHER, query + lanes


@within
def _work(s):
    """The number of keys for all blocks of one head, over all segments."""
    work, end = 0, 0
    for index in range(s.num_segments):
        begin, end = end, s.ends[index]
        count = s.places[5 * index + 2]
        query = s.places[5 * index + 3]
        pads = s.places[5 * index + 4]
        for block in range(0, count, _QUERIES):
            low, high = _keys(
                query + block, min(_QUERIES, count - block), pads - block, end - begin, s.window
            )
            work += high - low
    return work


def _share(like, numbers, scaling, thread, threads):
    """The blocks of queries of all heads of all segments form one list, and every thread takes a
    part of it with the same number of keys.
    """
    s = read(like, numbers, thread)
    groups, key_size, value_size = s.heads // s.kv_heads, s.key_size, s.value_size
    queries, sums = s.room, at(s.room, _QUERIES * key_size)
    highest = at(sums, _QUERIES * value_size)
    totals = at(sums, _QUERIES * (value_size + 1))
    keys = at(sums, _QUERIES * (value_size + 2))
    work, before, end = _work(s) * s.heads, 0, 0
    first_key, end_key = work * thread // threads, work * (thread + 1) // threads
    for index in range(s.num_segments):
        begin, end = end, s.ends[index]
        length, slots = end - begin, at(s.slots, begin)
        values = at(keys, (length + _TOGETHER) * key_size)
        scores = at(values, length * value_size)
        row, column, count = s.places[5 * index], s.places[5 * index + 1], s.places[5 * index + 2]
        query, pads = s.places[5 * index + 3], s.places[5 * index + 4]
        for kv_head in range(s.kv_heads):
            gathered = False
            for head in range(kv_head * groups, (kv_head + 1) * groups):
                for block in range(0, count, _QUERIES):
                    lanes = min(_QUERIES, count - block)
                    low, high = _keys(query + block, lanes, pads - block, length, s.window)
                    place, before = before, before + high - low
                    if not first_key <= place < end_key:
                        continue
                    if not gathered:
                        _gather(s.keys, kv_head, s.kv_heads, key_size, slots, length, keys)
                        _gather(s.values, kv_head, s.kv_heads, value_size, slots, length, values)
                        gathered = True
                    _load_queries(s, row, head, column + block, lanes, np.float32(scaling), queries)
                    _scores(queries, key_size, keys, low, high, scores)
                    _mask(scores, low, high, query + block, min(pads - block, lanes), s.window)
                    _softmax(scores, low, high, highest, totals)
                    _sums(scores, values, value_size, low, high, sums)
                    for lane in range(lanes):
                        share = (
                            np.float32(0.0) if totals[lane] == 0 else np.float32(1.0) / totals[lane]
                        )
                        out = at(
                            s.out,
                            ((row * s.width + column + block + lane) * s.heads + head) * value_size,
                        )
                        for i in range(value_size):
                            out[i] = narrow(sums[i * _QUERIES + lane] * share, like)


attend_chunks = Kernel(_share)
"""Attends with the queries of each segment to its keys. numbers: see `Segments`; factor: on the
scores. Head sizes are multiples of LANES.
"""
