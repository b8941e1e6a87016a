"""The engine of a browser's tab, its real JavaScript and WebAssembly in Node: the tokens of the
shipped traces, torch's choices, the library's ids.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from core.browser.executor import BrowserExecutor, _in_words
from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_FOLDER, BUILTIN_MODELS, EngineConfig
from core.engine.engine import EngineCore
from core.engine.runner import SamplingRow
from core.errors import ExecutionFailed, InflightError, InvalidConfig
from core.measure.compare import compare, engine_contender
from core.measure.cost_curve import measuring_cost
from core.proof.mistakes import leaky_engine
from core.proof.verify import verify
from core.torch_engine.engine import Engine
from core.torch_engine.models.load import load_adapter
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from worlds.node_model import KERNELS, ROOT, node_model
from worlds.turns import ended

MACHINE = {"device_name": "Node, WebAssembly", "versions": {"python": "3.14", "pyodide": "314"}}
ROUNDED = 5e-5  # of log-probabilities and margins, which are rounded to five digits
# Packed, padded and split; chunks, preemption, prefix caching; greedy and sampled; both models.
SOME = (
    "short-and-long",
    "kv-pressure",
    "shared-prefix",
    "three-lengths",
    "prefill-first",
    "nanogpt-chunked-4",
)
IN_16_BITS = ("greedy-alone-bf16", "greedy-together-bf16")  # a tab computes in float32


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return tmp_path_factory.mktemp("packed")


@pytest.fixture(scope="module", params=BUILTIN_MODELS)
def model(request, packed):
    with node_model(request.param, packed) as found:
        yield found


def tokenizer(name: str) -> PlainTokenizer:
    return PlainTokenizer((BUILTIN_FOLDER / name / "tokenizer.json").read_text(encoding="utf-8"))


def engine(model, config: EngineConfig | None = None, leaks: bool = False) -> EngineCore:
    executor = BrowserExecutor(model, MACHINE, leaks)
    return EngineCore(executor, tokenizer(executor.model.name), config)


def facts(trace: Trace) -> dict[str, list[tuple[int, float, float]]]:
    found: dict[str, list[tuple[int, float, float]]] = {}
    for event in trace.events:
        for s in event.sampled:
            found.setdefault(s.request, []).append((s.token_id, s.logprob, s.margin))
    return found


def assert_same(here: Trace, there: Trace, rounded: float = ROUNDED) -> None:
    """Tokens are equal, and what is measured of them is, up to rounding."""
    mine, theirs = facts(here), facts(there)
    assert mine.keys() == theirs.keys()
    for request in theirs:
        assert [t[0] for t in mine[request]] == [t[0] for t in theirs[request]], request
        for a, b in zip(mine[request], theirs[request], strict=True):
            assert a[1:] == pytest.approx(b[1:], abs=rounded)


def same_as_shipped(model, names) -> None:
    name = json.loads(model.facts)["name"]
    for preset in names:
        if PRESETS[preset].model == name:
            shipped = Trace.load(ROOT / "assets" / "traces" / f"{preset}.jsonl")
            trace = engine(model, PRESETS[preset].config).run(PRESETS[preset].workload)
            assert trace.header.model == shipped.header.model
            assert_same(trace, shipped)


def test_presets_give_the_tokens_that_were_shipped(model) -> None:
    same_as_shipped(model, SOME)


@pytest.mark.slow
def test_every_preset_gives_the_tokens_that_were_shipped(model) -> None:
    same_as_shipped(model, [name for name in PRESETS if name not in IN_16_BITS])


@pytest.mark.slow
def test_every_preset_computed_greedily_is_computed_again_by_torch(model) -> None:
    name = json.loads(model.facts)["name"]
    torchs = load_adapter(name, "cpu", "float32")
    for preset in PRESETS.values():
        if preset.model == name:
            trace = engine(model, preset.config).run(preset.workload.greedy())
            assert verify(trace.lines(), tokenizer, lambda header: Engine(*torchs)).rerun


def test_a_trace_says_where_it_was_made_and_torch_computes_it_again(model) -> None:
    long = "What say you, my lord? " * 8  # more rows than are computed at once
    requests = [
        Request(f"r{i}", prompt=p, sampling=SamplingParams(8, temperature=i / 2))
        for i, p in enumerate(("ROMEO", "A king", long))
    ]
    trace = engine(model).run(Workload(requests, "two"))
    header = trace.header
    assert (header.device, header.dtype, header.device_name, header.leak) == (
        "cpu",
        "float32",
        "Node, WebAssembly",
        False,
    )
    torchs = Engine(*load_adapter(header.model.name, "cpu", "float32"))
    assert verify(trace.lines(), tokenizer, lambda header: torchs).rerun.tokens == 24


CHOICES = {
    "top_k": [1, 3, 40, 3000],
    "top_p": [0.1, 0.5, 0.9, 0.999],
    "min_p": [0.01, 0.2, 1.0],
    "repetition_penalty": [0.5, 1.3],
    "presence_penalty": [-1.1, 0.7],
    "frequency_penalty": [-0.3, 0.9],
    "logit_bias": [{}, {"3": 4.7}, {"1": -100, "50": 6.1}],
}


def sampling(rng: random.Random) -> SamplingParams:
    """Any of the options, together or alone."""
    options = {name: rng.choice(values) for name, values in CHOICES.items() if rng.random() < 0.4}
    return SamplingParams(
        12,
        rng.choice([0, 0.01, 0.7, 1.0, 5.0]),
        seed=rng.randrange(2**63),
        ignore_eos=True,
        **options,
    )


def test_a_tab_is_told_what_its_choice_of_a_token_needs_and_no_more() -> None:
    every = {"top_k": 3, "top_p": 0.9, "min_p": 0.1}
    adjusting = {"repetition_penalty": 1.5, "frequency_penalty": 0.25, "presence_penalty": -0.5}
    params = SamplingParams(temperature=0.5, logit_bias={"7": 2.0}, **every, **adjusting)
    row = SamplingRow(params, 4, (1, 2), (3,))
    low, high = (told := _in_words(row)).pop("noise")
    assert 0 <= low < 2**32 > high >= 0 and low + (high << 32) == row.noise_key % 2**64
    looked_at = {"prompt": (1, 2), "generated": (3,), "logit_bias": ((7, 2.0),)}
    assert told == {"temperature": 0.5, **every, **adjusting, **looked_at}
    assert _in_words(SamplingRow(SamplingParams(**every), 4)) == {"temperature": 0.0}


@pytest.mark.slow
def test_every_way_to_choose_a_token_chooses_as_torch_does(packed) -> None:
    rng = random.Random(7)
    workload = Workload(
        [Request(f"r{i}", prompt="ROMEO:\nBut soft", sampling=sampling(rng)) for i in range(60)],
        "sampled",
    )
    with node_model("shakespeare-char", packed) as model:
        here = engine(model).run(workload)
    there = Engine(*load_adapter("shakespeare-char", "cpu", "float32")).run(workload)
    assert_same(here, there, rounded=5e-4)  # penalties multiply what rounding leaves


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_a_leak_mixes_requests_as_torch_does_and_is_on_record(packed, policy) -> None:
    config = EngineConfig(
        policy=policy, max_num_batched_tokens=16 if policy == "continuous" else 256
    )
    requests = [
        Request(f"r{i}", prompt=p, sampling=SamplingParams(9))
        for i, p in enumerate(("ROMEO:", "Once more", "O"))
    ]
    workload = Workload(requests, "leaky")
    with node_model("shakespeare-char", packed) as model:
        here, plain = (
            engine(model, config, leaks=True).run(workload),
            engine(model, config).run(workload),
        )
    there = leaky_engine(*load_adapter("shakespeare-char", "cpu", "float32"), config).run(workload)
    assert here.header.leak and here.outputs != plain.outputs
    assert_same(here, there)


@pytest.mark.slow
def test_engines_with_pools_of_their_own_take_turns_on_one_model(packed) -> None:
    """As a comparison has them, and what the cost of a step is measured with."""
    requests = [
        Request(f"r{i}", prompt="ROMEO:"[i:] * 9, sampling=SamplingParams(20)) for i in range(4)
    ]
    workload = Workload(requests, "turns").greedy()
    limits = (
        EngineConfig(max_num_seqs=4, num_blocks=20),
        EngineConfig("static", max_num_seqs=2, num_blocks=10),
    )
    with node_model("shakespeare-char", packed) as model:
        alone = engine(model, limits[0]).run(workload).outputs
        engines = [engine(model, config) for config in limits]
        found = compare([engine_contender(one, workload) for one in engines], repeats=2)
        curve = ended(
            measuring_cost(engines[1].executor, batches=(1, 4), contexts=(16,), repeats=2)
        )
        after = engines[0].run(workload).outputs
    assert (
        found.outputs_identical
        and found.runs["static"].outputs == found.runs["continuous"].outputs == alone == after
    )
    assert (curve.device, curve.dtype, curve.model["name"]) == (
        "cpu",
        "float32",
        "shakespeare-char",
    )


def test_attention_weights_are_torchs_and_computed_beside_a_run(model) -> None:
    name = json.loads(model.facts)["name"]
    adapter, library = load_adapter(name, "cpu", "float32")
    running = engine(model).stream(
        Workload([Request("r0", prompt="ROMEO:", sampling=SamplingParams(8))])
    )
    first = [next(running)]
    executor = BrowserExecutor(model, MACHINE)
    ids = library("But soft, what light through yonder window breaks?")["input_ids"]
    adapter.model.set_attn_implementation("eager")
    attentions = adapter.model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    for layer, head in ((0, 0), (2, 3)):
        for here, there in zip(
            executor.attention(ids, layer, head), attentions[layer][0, head].tolist(), strict=True
        ):
            assert here == pytest.approx(there, abs=1e-4)
    with pytest.raises(InflightError, match="so there is no head 4"):
        executor.attention(ids, 0, 4)
    first.append(next(running))
    alone = engine(model).run(
        Workload([Request("r0", prompt="ROMEO:", sampling=SamplingParams(8))])
    )
    assert [t for e in first for t in e.tokens] == [t for e in alone.events[:2] for t in e.tokens]
    with pytest.raises(RuntimeError, match="Another run has taken this model's memory"):
        next(running)


def test_a_pool_larger_than_a_tab_is_refused_and_one_that_is_not_asked_for_fits(packed) -> None:
    with node_model("shakespeare-bpe", packed) as model:
        with pytest.raises(InvalidConfig, match="in a browser's tab it may take 128 MiB"):
            engine(model, EngineConfig(num_blocks=10**6))
        large = engine(model, EngineConfig(max_num_seqs=200))
        next(
            large.stream(
                Workload(
                    [Request("r0", prompt="A", sampling=SamplingParams(1000, ignore_eos=True))]
                )
            )
        )
        assert large.trace.header.num_blocks * 16 * 4096 <= 2**27
        assert model.ask("bytes") < 200e6


def test_a_tab_without_memory_says_so_and_goes_on(packed, monkeypatch) -> None:
    monkeypatch.setattr("core.browser.executor.MOST_POOL", 2**50)
    workload = Workload([Request("r0", prompt="A", sampling=SamplingParams(2))])
    with node_model("shakespeare-char", packed) as model:
        with pytest.raises(ExecutionFailed, match="the tab ran out of memory"):
            engine(model, EngineConfig(num_blocks=10**7)).run(workload)
        assert engine(model).run(workload).complete


@pytest.mark.slow
def test_threads_compute_what_one_computes_to_the_last_bit(packed) -> None:
    words = random.Random(5).choices(range(1, 2048), k=70)
    requests = [
        Request(f"r{i}", prompt_token_ids=tuple(words[: 70 - 23 * i]), sampling=SamplingParams(9))
        for i in range(4)
    ]
    shared = KERNELS.with_name("shared.wasm")
    traces = {}
    for threads in (1, 3):
        with node_model(
            "shakespeare-bpe", packed, KERNELS if threads == 1 else shared, threads
        ) as model:
            traces[threads] = engine(model).run(Workload(requests))
    assert [trace.header.threads for trace in traces.values()] == [1, 3]
    assert facts(traces[1]) == facts(traces[3])


@pytest.mark.slow
def test_a_long_prompt_is_computed_in_little_memory(packed) -> None:
    words = tuple(random.Random(3).choices(range(1, 2048), k=1000))
    requests = [
        Request(f"r{i}", prompt_token_ids=words[i:], sampling=SamplingParams(2)) for i in range(8)
    ]
    with node_model("shakespeare-bpe", packed) as model:
        here = engine(model, EngineConfig(policy="static")).run(Workload(requests))
        assert model.ask("bytes") < 130e6
        alone = engine(model, EngineConfig(policy="continuous")).run(
            Workload([replace(requests[0], arrival=0)])
        )
    # to the last bit: no sum depends on who shares the batch
    assert facts(here)["r0"] == facts(alone)["r0"]


@pytest.mark.parametrize("name", BUILTIN_MODELS)
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=60) | st.text("aB1² \n\t'sréll½Ⅷ\u00a0\u0085\x1c日_-", max_size=40),
    ids=st.lists(st.integers(0, 64), max_size=20),
)
def test_the_tokenizer_is_the_librarys(name, text, ids) -> None:
    library, ours = (
        Tokenizer.from_file(str(BUILTIN_FOLDER / name / "tokenizer.json")),
        tokenizer(name),
    )
    try:
        expected = library.encode(text).ids
    except Exception:  # a character that has no token
        with pytest.raises(KeyError):
            ours(text)
        return
    assert ours(text) == {"input_ids": expected}
    some = [*expected, *(i * 31 % len(ours._ids) for i in ids)]
    assert ours.decode(some) == library.decode(some, skip_special_tokens=False)


def test_special_tokens_in_a_text_are_one_token() -> None:
    ours, library = (
        tokenizer("shakespeare-bpe"),
        Tokenizer.from_file(str(BUILTIN_FOLDER / "shakespeare-bpe" / "tokenizer.json")),
    )
    text = "The end<|endoftext|> of<|endoftext|>"
    assert (
        ours(text) == {"input_ids": library.encode(text).ids}
        and ours(text)["input_ids"].count(0) == 2
    )
    assert ours.decode([0, 40, 0]) == library.decode([0, 40, 0], skip_special_tokens=False)


@pytest.mark.slow
def test_the_kernels_are_what_their_source_compiles_to(tmp_path) -> None:
    version = (
        shutil.which("clang")
        and subprocess.run(
            ["clang", "--version"], capture_output=True, text=True, check=True
        ).stdout
    )
    if not version or not shutil.which("wasm-ld"):
        pytest.skip("clang and wasm-ld are not here.")
    build = ["sh", str(ROOT / "assets" / "engine" / "build.sh"), str(tmp_path)]
    subprocess.run(build, check=True)
    if "version 14." in version:  # another compiler makes other bytes of the same functions
        for name in ("kernels.wasm", "shared.wasm"):
            assert (tmp_path / name).read_bytes() == KERNELS.with_name(name).read_bytes()
    made = tmp_path / "kernels.wasm"
    with node_model("shakespeare-char", tmp_path, made) as model:
        same_as_shipped(model, ["nanogpt-chunked-4"])


def test_logits_that_are_not_finite_give_no_token(packed) -> None:
    class Broken:
        def __init__(self, model) -> None:
            self.facts, self.pool, self.threads = model.facts, model.pool, model.threads
            self._compute = model.compute

        def compute(self, told, rows):
            answer = self._compute(told, rows)
            answer[0] = math.nan
            return answer

    with node_model("shakespeare-char", packed) as model:
        trace = engine(Broken(model)).run(
            Workload([Request("r0", prompt="A", sampling=SamplingParams(3))])
        )
    assert [f.finish_reason for e in trace.events for f in e.finished] == ["error"]


def test_of_two_special_tokens_the_longer_is_found_where_it_begins_with_the_other() -> None:
    made = {
        "model": {"type": "WordLevel", "vocab": {"x": 0}},
        "pre_tokenizer": None,
        "normalizer": None,
        "added_tokens": [{"content": "<e>", "id": 1}, {"content": "<e>x", "id": 2}],
    }
    assert PlainTokenizer(made)("x<e>x<e>") == {"input_ids": [0, 2, 1]}


def test_the_work_on_a_word_grows_with_its_length_and_not_with_the_square():
    """A prompt without a blank is one word: a page's longest kept a tab busy for a minute."""

    class Counted(dict):
        looked_up = 0

        def get(self, key, default=None):
            self.looked_up += 1
            return super().get(key, default)

    ours, text = tokenizer("shakespeare-bpe"), "romeo" * 400
    ours._ranks = counted = Counted(ours._ranks)
    library = Tokenizer.from_file(str(BUILTIN_FOLDER / "shakespeare-bpe" / "tokenizer.json"))
    assert ours(text)["input_ids"] == library.encode(text).ids
    # each pair once, and for each merge the pair itself and its two new neighbours
    assert counted.looked_up < 4 * len(text)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("RangeError: WebAssembly.Memory.grow(): out of memory", "the tab ran out of memory"),
        ("RangeError: offset is out of bounds", None),
        ("TypeError: memory is not a number", None),
    ],
)
def test_only_want_of_memory_is_called_so(said: str, why: str | None) -> None:
    executor = BrowserExecutor.__new__(BrowserExecutor)
    assert executor.failure(Exception(said)) == why
