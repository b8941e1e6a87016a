"""The Triton kernels of paged attention, for any mix of prefill chunks and decodes.
`core.torch_engine.gpu.paged` launches them.

The softmax is computed in one pass over the keys, as in FlashAttention-2 (Dao 2023). Keys are found
through a block table, as in PagedAttention (Kwon et al. 2023). Long decodes are split and their
parts combined, as in Flash-Decoding (Dao et al. 2023). The query heads that share a KV head are
rows of one tile, so K and V are read once for all of them.
"""

import triton
import triton.language as tl

# scores are kept in units of log 2: the hardware has an instruction for 2^x
LOG2_E = tl.constexpr(1.4426950408889634)

# Values that differ from pass to pass must not trigger another compilation in the middle of a run:
# by default Triton compiles anew for sizes that are 1 or multiples of 16 and for aligned pointers.
_VARYING = ["tables", "query_rows", "query_lens", "kv_lens", "slots", "width", "table_stride"]
_VARYING += ["tile_sequences", "tile_first", "tile_last", "split_start", "split_count"]
_VARYING += ["window", "num_sequences", "sequences_each"]


@triton.jit
def _scan(
    q,
    positions,
    first,
    last,
    key_head,
    value_head,
    table,
    key_stride,
    value_stride,
    inner,
    outer,
    window,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DK_PAD: tl.constexpr,
    DV_PAD: tl.constexpr,
):
    """Attention of q `[ROWS, DK_PAD]` to keys `[first, last)`: each row's greatest score in units
    of log 2, the sum of all weights relative to that score, and the weighted sum of values `[ROWS,
    DV_PAD]`.
    """
    dk, dv = tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)
    greatest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, DV_PAD], tl.float32)
    key = first + tl.arange(0, KEYS)
    block = tl.load(table + key // PAGE, mask=key < last, other=0)
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        there = key < last
        slot = block.to(tl.int64) * PAGE + key % PAGE
        # Looked up one iteration ahead: a load that depends on another of the same iteration could
        # not be issued early.
        block = tl.load(table + (key + KEYS) // PAGE, mask=key + KEYS < last, other=0)
        # Memory beyond a cache's end may hold anything, NaN included: it is never read.
        k = tl.load(
            key_head + slot[:, None] * key_stride + dk[None],
            mask=there[:, None] & (dk < DK)[None],
            other=0.0,
        )
        v = tl.load(
            value_head + slot[:, None] * value_stride + dv[None],
            mask=there[:, None] & (dv < DV)[None],
            other=0.0,
        )
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * inner
        if CAPPED:
            scores = outer * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))  # tanh
        seen = there[None]
        if CAUSAL:
            seen &= key[None] <= positions[:, None]
            if WINDOWED:
                seen &= positions[:, None] - key[None] < window
        scores = tl.where(seen, scores, float("-inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, 1))
        # a row may not have seen any key yet
        base = tl.where(new_greatest == float("-inf"), 0.0, new_greatest)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(greatest - base)
        total = total * shrink + tl.sum(weights, 1)
        summed = tl.dot(weights.to(v.dtype), v, summed * shrink[:, None], input_precision="ieee")
        greatest = new_greatest
    return greatest, total, summed


@triton.jit
def _divide(greatest, total, summed, sink):
    """Output rows: the weighted sum of values divided by the sum of weights and sink, or zeros."""
    top = tl.maximum(greatest, sink)
    top = tl.where(top == float("-inf"), 0.0, top)
    shrink = tl.exp2(greatest - top)
    weight = total * shrink + tl.exp2(sink - top)
    return summed * (shrink / tl.where(weight == 0.0, 1.0, weight))[:, None]


@triton.jit
def _sinks_of(sinks, heads, present, SINKS: tl.constexpr):
    """The sinks of `heads` in units of log 2; -inf has no weight."""
    if SINKS:
        return tl.load(sinks + heads, mask=present, other=0.0).to(tl.float32) * LOG2_E
    else:
        return tl.full(heads.shape, float("-inf"), tl.float32)


@triton.jit(do_not_specialize=_VARYING)
def prefill_kernel(
    query,
    keys,
    values,
    out,
    sinks,
    tables,
    query_rows,
    query_lens,
    kv_lens,
    tile_sequences,
    tile_first,
    width,
    q_row_stride,
    q_head_stride,
    q_token_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    table_stride,
    inner,
    outer,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DK_PAD: tl.constexpr,
    DV_PAD: tl.constexpr,
):
    """One tile of QUERIES queries and one KV head; row i is query i // GROUP of head i % GROUP."""
    tile, kv_head = tl.program_id(0) // KV_HEADS, tl.program_id(0) % KV_HEADS
    sequence = tl.load(tile_sequences + tile)
    if sequence < 0:
        return
    first_query = tl.load(tile_first + tile)
    num_queries, kv_len = tl.load(query_lens + sequence), tl.load(kv_lens + sequence)
    row = tl.arange(0, ROWS)
    index = first_query + row // GROUP
    head = kv_head * GROUP + row % GROUP
    real = (row < QUERIES * GROUP) & (index < num_queries)
    positions = kv_len - num_queries + index
    dk, dv = tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)

    flat = tl.load(query_rows + sequence)
    place = (flat // width).to(tl.int64) * q_row_stride + (flat % width + index).to(
        tl.int64
    ) * q_token_stride
    q_pointers = query + (place + head.to(tl.int64) * q_head_stride)[:, None] + dk[None]
    q = tl.load(q_pointers, mask=real[:, None] & (dk < DK)[None], other=0.0)

    first, last = 0, tl.minimum(kv_len - num_queries + first_query + QUERIES, kv_len)
    if WINDOWED:
        first = tl.maximum(kv_len - num_queries + first_query - window + 1, 0)
    greatest, total, summed = _scan(
        q,
        positions,
        first,
        last,
        keys + kv_head * key_head_stride,
        values + kv_head * value_head_stride,
        tables + sequence.to(tl.int64) * table_stride,
        key_stride,
        value_stride,
        inner,
        outer,
        window,
        True,
        WINDOWED,
        CAPPED,
        ROWS,
        KEYS,
        PAGE,
        DK,
        DV,
        DK_PAD,
        DV_PAD,
    )
    result = _divide(greatest, total, summed, _sinks_of(sinks, head, real, SINKS))
    o_pointers = (
        out + ((flat + index).to(tl.int64) * (KV_HEADS * GROUP) + head)[:, None] * DV + dv[None]
    )
    tl.store(o_pointers, result.to(out.dtype.element_ty), mask=real[:, None] & (dv < DV)[None])


@triton.jit(do_not_specialize=_VARYING)
def decode_kernel(
    query,
    keys,
    values,
    out,
    partial,
    weights,
    sinks,
    tables,
    query_rows,
    kv_lens,
    tile_sequences,
    tile_first,
    tile_last,
    split_count,
    width,
    q_row_stride,
    q_head_stride,
    q_token_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    table_stride,
    inner,
    outer,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DK_PAD: tl.constexpr,
    DV_PAD: tl.constexpr,
):
    """One query, one KV head and one range of keys; row i is head i of the group. If a sequence
    has a single tile, it writes the output; otherwise tiles store their parts for `combine_kernel`:
    partial fp32 `[N, H, DV]`, weights fp32 `[N, H, 2]` (greatest score, sum).
    """
    tile, kv_head = tl.program_id(0) // KV_HEADS, tl.program_id(0) % KV_HEADS
    sequence = tl.load(tile_sequences + tile)
    if sequence < 0:
        return
    first, last = tl.load(tile_first + tile), tl.load(tile_last + tile)
    if WINDOWED:
        first = tl.maximum(tl.load(kv_lens + sequence) - window, first)
    row = tl.arange(0, ROWS)
    head = kv_head * GROUP + row
    real = row < GROUP
    dk, dv = tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)

    flat = tl.load(query_rows + sequence)
    place = (flat // width).to(tl.int64) * q_row_stride + (flat % width).to(
        tl.int64
    ) * q_token_stride
    q_pointers = query + (place + head.to(tl.int64) * q_head_stride)[:, None] + dk[None]
    q = tl.load(q_pointers, mask=real[:, None] & (dk < DK)[None], other=0.0)

    greatest, total, summed = _scan(
        q,
        row,
        first,
        last,
        keys + kv_head * key_head_stride,
        values + kv_head * value_head_stride,
        tables + sequence.to(tl.int64) * table_stride,
        key_stride,
        value_stride,
        inner,
        outer,
        window,
        False,
        WINDOWED,
        CAPPED,
        ROWS,
        KEYS,
        PAGE,
        DK,
        DV,
        DK_PAD,
        DV_PAD,
    )
    written = real[:, None] & (dv < DV)[None]
    if tl.load(split_count + sequence) == 1:
        result = _divide(greatest, total, summed, _sinks_of(sinks, head, real, SINKS))
        o_pointers = out + (flat.to(tl.int64) * (KV_HEADS * GROUP) + head)[:, None] * DV + dv[None]
        tl.store(o_pointers, result.to(out.dtype.element_ty), mask=written)
    else:
        part = tile.to(tl.int64) * (KV_HEADS * GROUP) + head
        tl.store(partial + part[:, None] * DV + dv[None], summed, mask=written)
        tl.store(weights + part * 2, greatest, mask=real)
        tl.store(weights + part * 2 + 1, total, mask=real)


@triton.jit(do_not_specialize=_VARYING)
def combine_kernel(
    partial,
    weights,
    out,
    sinks,
    query_rows,
    split_start,
    split_count,
    num_sequences,
    sequences_each,
    HEADS: tl.constexpr,
    SINKS: tl.constexpr,
    SPLITS: tl.constexpr,
    DV: tl.constexpr,
    DV_PAD: tl.constexpr,
):
    """One head of `sequences_each` sequences, skipping those with one tile or none."""
    run, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    dv = tl.arange(0, DV_PAD)
    lane = tl.arange(0, SPLITS)
    one = tl.arange(0, 1)
    first = run * sequences_each
    for sequence in range(first, tl.minimum(first + sequences_each, num_sequences)):
        count = tl.load(split_count + sequence)
        if count > 1:
            start = tl.load(split_start + sequence)
            greatest = tl.full([1], float("-inf"), tl.float32)
            total = tl.zeros([1], tl.float32)
            summed = tl.zeros([1, DV_PAD], tl.float32)
            for split in range(0, count, SPLITS):
                there = split + lane < count
                part = (start + split + lane).to(tl.int64) * HEADS + head
                tops = tl.load(weights + part * 2, mask=there, other=float("-inf"))
                sums = tl.load(weights + part * 2 + 1, mask=there, other=0.0)
                mask = there[:, None] & (dv < DV)[None]
                values = tl.load(partial + part[:, None] * DV + dv[None], mask=mask, other=0.0)
                new_greatest = tl.maximum(greatest, tl.max(tops, 0))
                base = tl.where(new_greatest == float("-inf"), 0.0, new_greatest)
                grow, shrink = tl.exp2(tops - base), tl.exp2(greatest - base)
                total = total * shrink + tl.sum(sums * grow, 0)
                summed = summed * shrink[:, None] + tl.sum(values * grow[:, None], 0)[None]
                greatest = new_greatest
            result = _divide(greatest, total, summed, _sinks_of(sinks, head + one, one == 0, SINKS))
            row = tl.load(query_rows + sequence).to(tl.int64) * HEADS + head
            tl.store(
                out + row * DV + dv[None], result.to(out.dtype.element_ty), mask=(dv < DV)[None]
            )


@triton.jit(do_not_specialize=_VARYING)
def store_kernel(
    key,
    value,
    keys,
    values,
    slots,
    width,
    k_row_stride,
    k_head_stride,
    k_token_stride,
    v_row_stride,
    v_head_stride,
    v_token_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    KV_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DK_PAD: tl.constexpr,
    DV_PAD: tl.constexpr,
):
    """K and V of all heads of one position."""
    flat = tl.program_id(0)
    row, token = (flat // width).to(tl.int64), (flat % width).to(tl.int64)
    slot = tl.load(slots + flat)
    head = tl.arange(0, HEADS_PAD)[:, None].to(tl.int64)
    dk, dv = tl.arange(0, DK_PAD)[None], tl.arange(0, DV_PAD)[None]
    k_mask, v_mask = (head < KV_HEADS) & (dk < DK), (head < KV_HEADS) & (dv < DV)
    k = tl.load(
        key + row * k_row_stride + token * k_token_stride + head * k_head_stride + dk, mask=k_mask
    )
    v = tl.load(
        value + row * v_row_stride + token * v_token_stride + head * v_head_stride + dv, mask=v_mask
    )
    tl.store(keys + slot * key_stride + head * key_head_stride + dk, k, mask=k_mask)
    tl.store(values + slot * value_stride + head * value_head_stride + dv, v, mask=v_mask)
