"""Logits to tokens: argmax like `generate`, noise of one's own, filters exact, facts by hand."""

from __future__ import annotations

import math

import pytest
import torch

from core.engine.runner import SamplingRow
from core.torch_engine.sampling import Sample, gumbel_noise, sample
from core.workload.request import SamplingParams


def rows(count: int, **params) -> list[SamplingRow]:
    """One row a position, 0 on."""
    made = SamplingParams(**params)
    return [SamplingRow(made, i) for i in range(count)]


def drawn(logits: list[float], count: int, **params) -> list[int]:
    """`count` tokens from the same logits at positions 0, 1, …"""
    return [
        s.token_id for s in sample(torch.tensor([logits]).expand(count, -1), rows(count, **params))
    ]


def test_logprob_and_margin_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.6, 0.3]]))
    assert sample(logits, rows(1)) == [Sample(1, round(math.log(0.6), 5), round(math.log(2), 5))]
    # the logprob is that of the token drawn, at temperature 1; the margin is between the two best
    for seed in range(20):
        (got,) = sample(logits, rows(1, temperature=2.0, seed=seed))
        assert got.logprob == pytest.approx(math.log([0.1, 0.6, 0.3][got.token_id]), abs=1e-5)
        assert got.margin == pytest.approx(math.log(2), abs=1e-5)


def test_ties_take_the_first_like_generate() -> None:
    logits = torch.zeros(3, 50257)
    logits[0, [7, 9, 50000]] = 5.0
    logits[1, [40000, 50256]] = 5.0
    got = sample(logits, rows(3))
    assert [s.token_id for s in got] == [7, 40000, 0] == logits.argmax(-1).tolist()
    assert [s.margin for s in got] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_is_none_and_the_others_go_on(
    bad: float, temperature: float
) -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    alone = sample(logits, rows(3, temperature=temperature))
    logits[1, 4] = bad
    got = sample(logits, rows(3, temperature=temperature))
    assert got[1] == Sample(None, 0.0, 0.0) and got[0] == alone[0] and got[2] == alone[2]


def test_forbidden_tokens_are_fine_but_not_all_of_them() -> None:
    inf = math.inf
    got = sample(torch.tensor([[-inf, 2.0, -inf], [-inf, -inf, -inf]]), rows(2))
    assert got[0].token_id == 1 and math.isfinite(got[0].margin) and got[1].token_id is None
    assert sample(torch.tensor([[3.0]]), rows(1))[0].token_id == 0
    assert set(drawn([-inf, 2.0, 2.0], 50, temperature=1.0)) == {1, 2}


def test_noise_does_not_depend_on_the_batch() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(1))
    params = [SamplingParams(temperature=1.0, seed=i, top_k=(0, 5)[i % 2]) for i in range(6)]
    made = [SamplingRow(p, 10 + i) for i, p in enumerate(params)]
    together = sample(logits, made)
    assert together == [sample(logits[i : i + 1], made[i : i + 1])[0] for i in range(6)]
    order = [4, 0, 5, 2]
    assert sample(logits[order], [made[i] for i in order]) == [together[i] for i in order]
    mixed = sample(torch.cat([logits[:1], logits]), [SamplingRow(SamplingParams(), 3), *made])
    assert mixed[1:] == together and mixed[0].token_id == int(logits[0].argmax())


def test_seeds_and_positions_make_the_noise() -> None:
    flat = [0.0] * 1000
    one = drawn(flat, 50, temperature=1.0, seed=1)
    assert one == drawn(flat, 50, temperature=1.0, seed=1)
    assert one != drawn(flat, 50, temperature=1.0, seed=2)
    assert len(set(one)) > 40
    shifted = drawn(flat, 51, temperature=1.0, seed=0)
    assert sum(a == b for a, b in zip(one, shifted[1:], strict=True)) < 5


def test_supports_are_exact() -> None:
    logits = [math.log(p) for p in (0.05, 0.4, 0.25, 0.2, 0.1)]
    for params, support in (
        ({"top_k": 1}, {1}),
        ({"top_k": 3}, {1, 2, 3}),
        ({"top_k": 100}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.6}, {1, 2}),
        ({"top_p": 0.7}, {1, 2, 3}),
        ({"top_p": 1e-9}, {1}),
        ({"top_p": 0.8, "top_k": 2}, {1, 2}),
    ):
        assert set(drawn(logits, 400, temperature=1.0, **params)) == support, params
    tied = drawn([1.0, 1.0, 1.0, 0.0], 200, temperature=1.0, top_k=2)
    assert set(tied) == {0, 1}  # of equals the first
    halves = drawn([1.0] * 4, 200, temperature=1.0, top_p=0.5)
    assert set(halves) == {0, 1}  # they have the mass exactly, and none is wanted beyond


def test_mass_is_measured_after_the_temperature() -> None:
    logits = [math.log(p) for p in (0.5, 0.3, 0.2)]
    assert set(drawn(logits, 300, temperature=0.25, top_p=0.8)) == {0}
    assert set(drawn(logits, 300, temperature=4.0, top_p=0.8)) == {0, 1, 2}


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-4])
def test_a_temperature_next_to_zero_is_argmax(temperature: float) -> None:
    assert set(drawn([1.0, 30.0, 29.0, -5.0], 50, temperature=temperature)) == {1}


def test_a_huge_temperature_is_a_fair_die() -> None:
    assert set(drawn([1.0, 30.0, -20.0], 200, temperature=1e308)) == {0, 1, 2}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_distribution(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 3.0])
    count = 20_000
    got = drawn(logits.tolist(), count, temperature=temperature, seed=11)
    expected = (logits / temperature).softmax(-1) * count
    observed = torch.bincount(torch.tensor(got), minlength=6)
    # chi-square, 5 degrees of freedom: one in ten thousand
    assert ((observed - expected) ** 2 / expected).sum() < 25.7


def test_noise_is_the_murmur_finalizer_and_finite() -> None:
    keys = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789 << 32])
    noise = gumbel_noise(keys, 5000)
    assert torch.isfinite(noise).all()
    uniform = torch.exp(-torch.exp(-noise.double())).flatten().sort().values
    distance = (uniform - (torch.arange(len(uniform)) + 0.5) / len(uniform)).abs().max()
    assert distance < 1.95 / len(uniform) ** 0.5  # Kolmogorov and Smirnov: one in a thousand

    def finalizer(bits: int) -> int:
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            bits = (bits ^ bits >> shift) * factor & 0xFFFFFFFF
        return bits ^ bits >> 16

    for index, key in enumerate(keys.tolist()):
        for token in (0, 1, 17, 4999):
            bits = finalizer(finalizer(token ^ key & 0xFFFFFFFF) ^ key >> 32 & 0xFFFFFFFF)
            assert noise[index, token].item() == pytest.approx(
                -math.log(-math.log((bits + 0.5) / 2**32)), rel=1e-6, abs=1e-6
            )
