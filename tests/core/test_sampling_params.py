"""Filters, penalties and bias mean what they mean in transformers and vLLM, whoever shares the
batch; and a request that uses them runs so.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core import Request, SamplingParams, Workload
from core.engine.runner import SamplingRow
from core.errors import InvalidRequest
from core.torch_engine.sampling import adjust_logits, filter_logits, sample
from worlds.small import MemoryModel, memory_engine

VOCAB = 300


def logits(seed: int, rows: int = 1) -> torch.Tensor:
    return 3 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def row(prompt=(), generated=(), **params) -> SamplingRow:
    made = SamplingParams(temperature=params.pop("temperature", 1.0), **params)
    return SamplingRow(made, len(prompt) + len(generated), tuple(prompt), tuple(generated))


def survivors(scores: torch.Tensor) -> set[int]:
    return set(torch.isfinite(scores[0]).nonzero().flatten().tolist())


def test_top_p_measures_what_top_k_has_left():
    """Of 0.4, 0.3, 0.2, 0.1 top-k 2 leaves 0.57 and 0.43: the first alone does not reach 0.6; of
    the whole both together would not have to.
    """
    scores = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    assert survivors(filter_logits(scores, [row(top_k=2, top_p=0.57)])) == {0}
    assert survivors(filter_logits(scores, [row(top_k=2, top_p=0.6)])) == {0, 1}
    assert survivors(filter_logits(scores, [row(top_p=0.57)])) == {0, 1}


@pytest.mark.parametrize("params", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_each_filter_alone_is_heeded_by_a_draw(params):
    """Each leaves the best token only, which a draw at this temperature hardly ever takes."""
    scores = logits(1)
    rows = [row(temperature=50.0, seed=n, **params) for n in range(20)]
    drawn = [sample(scores, [one])[0].token_id for one in rows]
    assert set(drawn) == {int(scores.argmax())}
    free = {sample(scores, [row(temperature=50.0, seed=n)])[0].token_id for n in range(20)}
    assert len(free) > 10


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "params",
    [
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"top_k": 20, "top_p": 0.6},
        {"top_k": 30, "top_p": 0.9, "min_p": 0.2},
    ],
    ids=str,
)
def test_filters_keep_what_transformers_keeps(params, seed):
    scores, temperature = logits(seed), 0.5 + seed / 10
    theirs = TemperatureLogitsWarper(temperature)(None, scores)
    for name, warper in (
        ("top_k", TopKLogitsWarper),
        ("top_p", TopPLogitsWarper),
        ("min_p", MinPLogitsWarper),
    ):
        if name in params:
            theirs = warper(params[name])(None, theirs)
    mine = filter_logits(
        (scores - scores.amax()) / temperature, [row(temperature=temperature, **params)]
    )
    assert survivors(mine) == survivors(theirs)
    assert torch.allclose(mine.softmax(-1), theirs.softmax(-1), atol=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_everything_together_is_what_transformers_makes_of_it_in_its_order(seed):
    """Bias, repetition, temperature, top-k, top-p, min-p: any of them left out, filters so wide or
    narrow that they keep all or one.
    """
    draw = random.Random(seed)
    prompt = [draw.randrange(VOCAB) for _ in range(draw.randint(1, 40))]
    generated = [draw.randrange(VOCAB) for _ in range(draw.randint(0, 40))]
    bias = {draw.randrange(VOCAB): draw.uniform(-100, 100) for _ in range(draw.choice((0, 1, 12)))}
    params = {
        "repetition_penalty": draw.choice((1.0, 0.01, 0.7, 1.4, 100.0)),
        "temperature": draw.choice((1.0, 0.1, 3.0)),
        "top_k": draw.choice((0, 1, 7, VOCAB, 10**6)),
        "top_p": draw.choice((1.0, 1e-6, 0.5, 0.95)),
        "min_p": draw.choice((0.0, 0.02, 1.0)),
    }
    scores, ids = logits(seed), torch.tensor([prompt + generated])
    chain = (
        [SequenceBiasLogitsProcessor({(i,): value for i, value in bias.items()})] if bias else []
    )
    chain += [
        RepetitionPenaltyLogitsProcessor(params["repetition_penalty"]),
        TemperatureLogitsWarper(params["temperature"]),
    ]
    chain += [TopKLogitsWarper(params["top_k"])] if params["top_k"] else []
    chain += [TopPLogitsWarper(params["top_p"])] if params["top_p"] < 1 else []
    chain += [MinPLogitsWarper(params["min_p"])] if params["min_p"] else []
    theirs = scores.clone()
    for process in chain:
        theirs = process(ids, theirs)
    mine = row(prompt, generated, logit_bias=bias, **params)
    found = adjust_logits(scores, [mine])
    found = filter_logits((found - found.amax()) / params["temperature"], [mine])
    assert survivors(found) == survivors(theirs)
    assert torch.allclose(found.softmax(-1), theirs.softmax(-1), atol=1e-5)
    assert {
        sample(scores, [mine._replace(position=p)])[0].token_id for p in range(30)
    } <= survivors(theirs)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_the_repetition_penalty_is_that_of_transformers(penalty):
    scores, prompt, generated = logits(1), (3, 17, 17, 200), (5, 3, 299)
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([prompt + generated]), scores.clone()
    )
    assert torch.equal(
        adjust_logits(scores, [row(prompt, generated, repetition_penalty=penalty)]), theirs
    )


def test_the_bias_is_that_of_transformers():
    scores, bias = logits(2), {4: 2.5, 17: -100.0}
    theirs = SequenceBiasLogitsProcessor({(i,): value for i, value in bias.items()})(
        torch.tensor([[1, 2]]), scores.clone()
    )
    assert torch.allclose(adjust_logits(scores, [row(logit_bias=bias)]), theirs)


def test_frequency_and_presence_follow_vllms_formula():
    """logits -= frequency × times generated; logits -= presence × whether generated. The prompt
    does not count.
    """
    scores, generated = logits(3), (5, 9, 5, 5)
    expected = scores.clone()
    expected[0, 5] -= 0.7 * 3 + 1.5
    expected[0, 9] -= 0.7 * 1 + 1.5
    found = adjust_logits(
        scores, [row((9, 11), generated, frequency_penalty=0.7, presence_penalty=1.5)]
    )
    assert torch.allclose(found, expected)


def test_bias_comes_before_penalties_and_repetition_before_the_others():
    scores = torch.zeros(1, 8)
    found = adjust_logits(
        scores,
        [
            row(
                (1,),
                (1, 2),
                repetition_penalty=2.0,
                frequency_penalty=1.0,
                logit_bias={1: 4.0, 2: -4.0},
            )
        ],
    )
    assert found[0].tolist() == [0, 4 / 2 - 1, -4 * 2 - 1, 0, 0, 0, 0, 0]


def test_a_neighbours_filter_takes_no_token_from_a_row_without_one():
    """However unlikely: the mass before it is rounded to all of it, but nothing was to be left
    out.
    """
    scores = torch.tensor([[0.0, -40.0, -80.0], [0.0, -1.0, -2.0]])
    assert survivors(filter_logits(scores, [row(), row(top_k=2)])) == {0, 1, 2}


def test_a_row_is_the_same_in_any_company():
    scores = logits(4, rows=4)
    rows = [
        row((1, 2), (3, 3), top_k=7, repetition_penalty=1.2),
        row(),
        row((5,), (6, 7), min_p=0.05, presence_penalty=2.0, frequency_penalty=-1.0),
        row(temperature=0.0, logit_bias=((8, 50.0),)),
    ]
    together = sample(scores, rows)
    assert together == [sample(scores[i : i + 1], rows[i : i + 1])[0] for i in range(4)]
    # facts are of what was chosen from
    assert together[3].token_id == 8 and together[3].margin > 30
    assert torch.equal(adjust_logits(scores, rows)[1], scores[1])


def test_a_token_that_the_host_has_not_read_counts():
    scores, unread = logits(5, rows=2), torch.tensor([7, 0])
    ahead = [row((1,), (2, 0, -1), repetition_penalty=3.0, frequency_penalty=1.0)] * 2
    known = [
        row((1,), (2, 0, token), repetition_penalty=3.0, frequency_penalty=1.0) for token in (7, 0)
    ]
    assert torch.equal(adjust_logits(scores, ahead, unread), adjust_logits(scores, known))


@pytest.mark.parametrize("policy", ["static", "split", "continuous"])
def test_the_engine_hands_over_what_was_generated_so_far(policy):
    """On a model whose logits are all zero but for one, a penalty alone decides: no token is said
    twice, however prompts are cut.
    """
    penalised = [
        Request(
            f"r{i}",
            prompt_token_ids=tuple(range(4, 4 + length)),
            sampling=SamplingParams(
                20, ignore_eos=True, presence_penalty=2.0, logit_bias={j: -50.0 for j in range(10)}
            ),
        )
        for i, length in enumerate((3, 9, 14))
    ]
    engine = memory_engine(
        policy, model=_Flat(), max_num_seqs=2, max_num_batched_tokens=4, block_size=2
    )
    outputs = engine.run(Workload(penalised, name="penalised")).outputs
    for said in outputs.values():
        assert said == list(range(10, 30))  # each time the first of those not said yet


class _Flat(MemoryModel):
    """Every token is as likely as any other."""

    def forward(self, batch, pool, backend=None):
        return torch.zeros(len(batch.sample_rows), 50)


NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_new_tokens",
)
ODD = (math.nan, math.inf, -math.inf, -3, 10**400, 1e308, "1", None, True, [1], 2**64)


@pytest.mark.parametrize("name", NUMBERS)
def test_odd_numbers_are_refused_by_name(name):
    allowed = {"temperature": [1e308, 2**64]}  # any heat: it draws from all alike
    for odd in ODD:
        if odd in allowed.get(name, ()):
            SamplingParams(**{name: odd})
        else:
            with pytest.raises(InvalidRequest, match=f"^{name} must be") as said:
                SamplingParams(**{name: odd})
            assert len(str(said.value)) < 200
    for odd in (math.nan, math.inf, 10**400, "1", None, True):
        with pytest.raises(InvalidRequest, match="^logit_bias must"):
            SamplingParams(logit_bias={1: odd})
    for odd in (-1, 2**31, 1.5, True, None, (1,)):
        with pytest.raises(InvalidRequest, match="^logit_bias must"):
            SamplingParams(logit_bias=[(odd, 1.0)])


@pytest.mark.parametrize(
    "given, said",
    [
        ({"max_new_tokens": 2**31}, r"from 1 to 2\^31 - 1, not 2147483648"),
        ({"top_k": 2**31}, r"from 0 to 2\^31 - 1, not 2147483648"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {1: 101}}, "logit_bias"),
        ({"logit_bias": [[1, 2], [1, 3]]}, "logit_bias"),
        ({"logit_bias": 5}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": [[1, 2, 3]]}, "logit_bias"),
    ],
)
def test_what_is_out_of_range_is_refused(given, said):
    with pytest.raises(InvalidRequest, match=said):
        SamplingParams(**given)


def test_a_bias_survives_json_and_must_name_tokens_of_the_model():
    request = Request(
        "r", prompt_token_ids=(1,), sampling=SamplingParams(logit_bias={"5": 1, 7: -2.5}, min_p=0.1)
    )
    assert request.sampling.logit_bias == ((5, 1), (7, -2.5))
    assert Request.from_json(request.to_json()) == request
    beyond = Request("r", prompt_token_ids=(1,), sampling=SamplingParams(logit_bias={50: 1.0}))
    with pytest.raises(InvalidRequest, match="token id 50 in logit_bias"):
        memory_engine().run(Workload([beyond]))
