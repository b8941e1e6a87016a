"""Fused sampling against `core.torch_engine.sampling`: the same tokens, noise included, and the
same facts.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.engine.runner import SamplingRow
from core.torch_engine.sampling import choose_tokens, gumbel_noise
from core.workload.request import SamplingParams
from worlds.examples import examples
from worlds.triton_cases import DEVICE, sampling_kernel

# the interpreter's, where infinities meet
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Facts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
STRETCH = 32


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch):
    monkeypatch.setattr(sampling_kernel, "STRETCH", STRETCH)


def both(logits: torch.Tensor, temperatures: list[float], seed: int = 0) -> tuple[Facts, Facts]:
    """Tokens, logprobs and margins from the kernels and from `core.torch_engine.sampling`, on the
    CPU.
    """
    rows = [
        SamplingRow(SamplingParams(temperature=t, seed=seed + i), 3 * i)
        for i, t in enumerate(temperatures)
    ]
    keys = torch.tensor([row.noise_key for row in rows], device=DEVICE)
    mine = sampling_kernel.sample_rows(
        logits.to(DEVICE), torch.tensor(temperatures, device=DEVICE), keys
    )
    assert [t.dtype for t in mine] == [torch.int64, torch.float32, torch.float32]
    return tuple(t.cpu() for t in mine), choose_tokens(logits, rows)


def check_same(logits: torch.Tensor, temperatures: list[float], seed: int = 0) -> None:
    mine, reference = both(logits, temperatures, seed)
    assert torch.equal(mine[0], reference[0])
    torch.testing.assert_close(mine[1:], reference[1:], atol=2e-5, rtol=1e-5)


TEMPERATURES = [0.0, 1.0, 0.7, 0.05, 3.0, 1e-30, 1e30]


@pytest.mark.slow
@examples(40)
@given(
    vocab_size=st.sampled_from([1, 2, 31, 32, 33, 100, 161]),
    temperatures=st.lists(st.sampled_from(TEMPERATURES), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    coarse=st.booleans(),
    seed=st.integers(0, 2**62),
)
def test_same_as_the_reference(vocab_size, temperatures, dtype, coarse, seed):
    logits = 3 * torch.randn(
        len(temperatures), vocab_size, generator=torch.Generator().manual_seed(seed)
    )
    if coarse:  # many ties, at the top too
        logits = logits.div(4).round()
    check_same(logits.to(dtype), temperatures, seed)


@pytest.mark.slow
def test_same_over_a_vocabulary_of_real_size(monkeypatch):
    monkeypatch.undo()
    logits = torch.randn(6, 50257, generator=torch.Generator().manual_seed(0)).bfloat16()
    check_same(logits, [0.0, 1.0, 0.5, 1e-30, 1e30, 0.0])


@pytest.mark.slow
def test_rows_may_lie_apart():
    wide = torch.randn(4, 300, generator=torch.Generator().manual_seed(0))
    check_same(wide[:, 7:107], [0.0, 1.0, 0.0, 2.0])
    check_same(wide.T[:100], [0.0, 1.0] * 50)


@pytest.mark.slow
def test_noise_is_that_of_the_reference(monkeypatch):
    """Over flat logits the noise alone decides."""
    monkeypatch.undo()
    keys = torch.randint(-(2**63), 2**63 - 1, (60,), generator=torch.Generator().manual_seed(0))
    logits = torch.zeros(1, 5000, device=DEVICE).expand(60, -1)
    tokens, _, _ = sampling_kernel.sample_rows(
        logits, torch.ones(60, device=DEVICE), keys.to(DEVICE)
    )
    assert torch.equal(tokens.cpu(), gumbel_noise(keys, 5000).argmax(-1))


def test_ties_take_the_first():
    logits = torch.zeros(4, 5 * STRETCH)
    logits[0, [7, 9, 100]] = 5.0
    logits[1, [STRETCH, 3 * STRETCH]] = 5.0
    logits[2, [STRETCH - 1, STRETCH]] = 5.0
    (tokens, _, margins), _ = both(logits, [0.0] * 4)
    assert tokens.tolist() == [7, STRETCH, STRETCH - 1, 0] == logits.argmax(-1).tolist()
    assert margins.tolist() == [0.0] * 4
    check_same(logits, [1e-30] * 4)  # here the noise chooses among the best


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "where",
    [0, 79, slice(32, 64), *(pytest.param(w, marks=pytest.mark.slow) for w in (40, slice(None)))],
)
def test_a_row_that_is_not_finite_says_so_and_the_others_go_on(bad, where):
    logits = torch.randn(4, 80, generator=torch.Generator().manual_seed(0))
    temperatures = [0.0, 0.0, 1.0, 1.0]
    clean, _ = both(logits, temperatures)
    logits[1:3, where] = bad
    (tokens, logprobs, margins), _ = both(logits, temperatures)
    assert not logprobs[1:3].isfinite().any()
    assert ((tokens >= 0) & (tokens < 80)).all(), "the next step embeds it before anyone has looked"
    for mine, before in zip((tokens, logprobs, margins), clean, strict=True):
        assert torch.equal(mine[[0, 3]], before[[0, 3]])


def test_forbidden_tokens_are_fine_but_not_all_of_them():
    logits = torch.full((4, 3 * STRETCH), -math.inf)
    logits[0, 40] = logits[1, 40] = 2.0
    logits[3, [5, 70]] = 1.0
    (tokens, logprobs, margins), reference = both(logits, [0.0, 1.0, 0.0, 1.0])
    assert (
        tokens[:2].tolist() == [40, 40]
        and logprobs[:2].tolist() == [0.0, 0.0]
        and margins.isfinite()[:2].all()
    )
    assert not logprobs[2].isfinite() and 0 <= tokens[2] < 3 * STRETCH
    assert tokens[3] == reference[0][3] and tokens[3] in (5, 70)
    check_same(torch.tensor([[3.0], [-2.0]]), [0.0, 1.0])


def test_no_rows():
    empty = [
        t.shape
        for t in sampling_kernel.sample_rows(
            torch.zeros(0, 9), torch.zeros(0), torch.zeros(0).long()
        )
    ]
    assert empty == [(0,)] * 3
