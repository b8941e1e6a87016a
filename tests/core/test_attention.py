"""Backends against the oracle, the oracle's masks against those on record, and the rules that masks
are read from.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.proof.mistakes import leaky_mask
from core.torch_engine.attention import cpu, dense, plug
from core.torch_engine.attention.batch import pack
from core.torch_engine.attention.kv_pool import KVPool, KVShape
from core.torch_engine.attention.observe import LayerCall, PrivateMask, window_of
from core.torch_engine.attention.spec import AttentionSpec, Backend
from worlds import dense_attention
from worlds.examples import examples
from worlds.families import RUNS, WINDOW, world
from worlds.passes import BLOCK, passes

CPU = torch.device("cpu")
STATM = Path("/proc/self/statm")


@pytest.mark.skipif(not STATM.exists(), reason="how much memory a process holds is not known here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pool_takes_memory_where_it_is_written(dtype):
    def pages() -> int:
        return int(STATM.read_text(encoding="utf-8").split()[1])

    before = pages()
    pool = KVPool({layer: KVShape(3, 64, 32) for layer in range(4)}, 20_000, 16, dtype, CPU)
    bytes_of = sum(t.nbytes for pair in pool.layers.values() for t in pair)
    assert (pages() - before) * 4096 < bytes_of / 20
    for layer, pair in pool.layers.items():
        for tensor, size in zip(pair, (64, 32), strict=True):
            assert tensor.shape == (20_001 * 16, 3, size) and tensor.dtype == dtype
            assert tensor.data_ptr() % 64 == 0 and tensor.is_contiguous()
            tensor[layer] = 1
            assert tensor.sum() == 3 * size


@examples(150)
@given(
    scheduled=passes(),
    window=st.sampled_from([None, 1, 2, 5, 100]),
    softcap=st.sampled_from([None, 3.0]),
    sinks=st.booleans(),
    groups=st.sampled_from([1, 2, 4]),
    sizes=st.sampled_from([(16, 16), (32, 16), (16, 48), (6, 4), (4, 6)]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    copied=st.booleans(),
    compiled=st.booleans(),
    before=st.sampled_from([1, 2, 4]),
)
def test_cpu_backend_agrees_with_the_oracle(
    scheduled, window, softcap, sinks, groups, sizes, dtype, copied, compiled, before
):
    """Whatever is copied first; in a shorter format the same numbers are attended to in float32,
    and only the result is rounded.
    """
    output, num_blocks = scheduled
    generator = torch.Generator().manual_seed(0)
    heads, (key_size, value_size) = 4, sizes
    pool = KVPool(
        {0: KVShape(heads // groups, key_size, value_size)}, num_blocks, BLOCK, dtype, CPU
    )
    for tensor in pool.layers[0]:
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    batch = pack(output, BLOCK, pool.trash_slot, CPU)
    for index in range(len(batch.segments)):  # as other layers have used it
        for of_another in (3, window):
            batch.mask(index, of_another, before)
    query = torch.randn(output.rows, heads, output.width, key_size, generator=generator).to(dtype)
    spec = AttentionSpec(
        0.7, window, softcap, torch.randn(heads, generator=generator) if sinks else None
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cpu, "_WORTH_COPYING", 0 if copied else 2**30)
        backend = cpu.BACKEND
        if (
            compiled
            and find_spec("numba")
            and not (kernels := import_module("core.torch_engine.cpu.kernels")).obstacle(dtype)
        ):
            backend = kernels.BACKEND
        mine = backend.attend(query, *pool.layers[0], batch, spec)
    oracle = dense_attention.attend(
        query.double(), *(tensor.double() for tensor in pool.layers[0]), batch, spec
    )
    assert mine.shape == oracle.shape == (output.rows, output.width, heads, value_size)
    assert mine.is_contiguous() and mine.dtype == dtype
    error = max(1e-5, torch.finfo(dtype).eps)
    for segment in batch.segments:  # what a pad holds is nobody's business
        real = (segment.row, slice(segment.first, segment.end))
        torch.testing.assert_close(mine[real].double(), oracle[real], atol=error, rtol=error)


@examples(60)
@given(scheduled=passes())
def test_mask_of_the_cache_plug_shows_the_same_keys(scheduled):
    """Row by row and key by key: the slots that a query sees, whichever way the keys are laid
    out.
    """
    output, num_blocks = scheduled
    batch = pack(output, BLOCK, num_blocks * BLOCK, CPU)
    allowed = plug.additive_mask(batch, torch.float32)[:, 0] == 0
    slots = plug._key_slots(batch, num_blocks * BLOCK)
    seen = [
        sorted(slots[r][allowed[r, w]].tolist())
        for r in range(output.rows)
        for w in range(output.width)
    ]
    keys = [
        s.slots if isinstance(s.slots, torch.Tensor) else torch.arange(s.slots.start, s.slots.stop)
        for s in batch.segments
        if s.end > s.first
    ]
    oracle = [sorted(torch.cat(keys)[row].tolist()) for row in dense.dense_mask(batch, None)]
    assert seen == oracle


class MaskRecorder:
    """The oracle, keeping the masks that it used, pass by pass: one for each layer."""

    def __init__(self, num_layers):
        self.masks, self.num_layers = [], num_layers

    def __call__(self, query, keys, values, batch, spec):
        if not self.masks or len(self.masks[-1]) == self.num_layers:
            self.masks.append([])
        self.masks[-1].append(dense.dense_mask(batch, spec.window))
        return dense_attention.attend(query, keys, values, batch, spec)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
@pytest.mark.parametrize("run", RUNS)
def test_masks_on_record_are_those_that_were_used(name, run):
    w = world(name)
    recorder = MaskRecorder(2)
    trace = w.run(backend=Backend(recorder), **RUNS[run])
    passes = [(event.step, index) for event in trace.events for index in range(len(event.passes))]
    assert len(passes) == len(recorder.masks) > 10
    for (step, index), masks in zip(passes, recorder.masks, strict=True):
        for layer, used in enumerate(masks):
            drawn = torch.tensor(trace.mask(step, index, layer=layer).allowed)
            assert torch.equal(drawn, used)
    slides = [WINDOW in (w.adapter.windows[0], w.adapter.windows[1])]
    assert any(
        trace.mask(*at, layer=0).allowed != trace.mask(*at, layer=1).allowed for at in passes
    ) == (name == "gemma2")
    assert slides == [name != "llama"]


@pytest.mark.parametrize("run", RUNS)
def test_masks_of_a_leaking_run_are_those_that_were_used(run):
    used = []

    def attend(query, keys, values, batch, spec):
        used.append(leaky_mask(batch, spec.window))
        return dense.attend_under(used[-1], query, keys, values, batch, spec)

    w = world("llama")
    trace = w.run(backend=Backend(attend, leaks=True), **RUNS[run])
    assert trace.header.leak and not w.run(**RUNS[run]).header.leak
    passes = [(event.step, index) for event in trace.events for index in range(len(event.passes))]
    assert len(used) == 2 * len(passes)
    for at, mask in zip(passes, used[::2], strict=True):
        assert torch.equal(torch.tensor(trace.mask(*at).allowed), mask), at


# -- reading a mask's rule -------------------------------------------------------------------------


def call(rule, passed_window=None, **facts):
    return LayerCall(4, KVShape(1, 4, 4), passed_window, rule, **{"altered": False, **facts})


def causal(q, k):
    return k <= q


def sliding(window):
    return lambda q, k: (k <= q) & (k > q - window)


@pytest.mark.parametrize("window", [1, 2, 5, 31, 63, 99])
def test_window_is_read_from_the_rule(window):
    assert window_of(call(sliding(window), passed_window=7), 100) == window


@pytest.mark.parametrize(
    "rule", [causal, sliding(100), sliding(4096)], ids=["causal", "as wide as the context", "wider"]
)
def test_no_window_within_the_context(rule):
    assert window_of(call(rule), 100) is None


def test_window_is_found_without_a_context():
    assert window_of(call(sliding(131072)), None) == 131072


@pytest.mark.parametrize(
    "rule",
    [
        lambda q, k: k < q + 2,
        lambda q, k: k < q,
        lambda q, k: k >= 0,
        lambda q, k: (k <= q) & (k // 8 == q // 8),
        lambda q, k: (k <= q) | (k < 4),
        lambda q, k: (k <= q) & ((q - k < 5) | (k < 2)),
        lambda q, k: (k <= q) & ((q - k) % 2 == 0),
        lambda q, k: (k <= q) & (q - k < torch.where(q < 50, 5, 9)),
        lambda q, k: (k <= q) & (q - k > 0) | (q == 0),
    ],
    ids=[
        "future",
        "not itself",
        "bidirectional",
        "chunks",
        "prefix",
        "first tokens too",
        "dilated",
        "two windows",
        "not itself but first",
    ],
)
def test_other_masks_are_private(rule):
    with pytest.raises(PrivateMask):
        window_of(call(rule), 100)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_window_that_slips_in_one_row_is_private(times):
    """Beside a multiple of itself, where a cache that wraps around, or a mask made in chunks, goes
    wrong.
    """
    for beside in (-2, -1, 0, 1):
        row = 13 * times + beside
        with pytest.raises(PrivateMask):
            window_of(call(lambda q, k, row=row: sliding(13)(q, k) & ((q != row) | (k != q))), 100)


def test_altered_masks_second_calls_and_unconfirmed_windows_are_private():
    with pytest.raises(PrivateMask, match="position bias of its own"):
        window_of(call(None, altered=True), 100)
    with pytest.raises(PrivateMask, match="2 times"):
        window_of(call(causal, count=2), 100)
    with pytest.raises(PrivateMask, match="no mask that confirms it"):
        window_of(call(None, passed_window=8), 100)
    assert window_of(call(None), 100) is None
