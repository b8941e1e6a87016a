"""Any model, exactly or not at all: greedy tokens are those of `model.generate` on each request
alone, family by family and layout by layout; what cannot be packed is refused by name and reason;
and no mask that is wrong passes for right.
"""

import threading

import pytest
import torch
from transformers import (
    Emu3ForCausalLM,
    Emu3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from core import Engine, EngineConfig, Workload
from core.errors import UnsupportedModel
from core.torch_engine.attention import dense
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.models.probe import probe
from worlds import dense_attention
from worlds.families import (
    BY_NAME,
    CONTEXT,
    FAMILIES,
    RUNS,
    VOCAB,
    WINDOW,
    Family,
    World,
    generate,
    requests,
    widen,
    world,
)

QUICK = (
    "gpt2",
    "llama",
    "mistral",
    "gemma2",
    "gpt_neox",
    "opt",
    "mixtral",
    "gpt_oss",
    "deepseek_v3",
    "falcon",
    "phi",
    "qwen3",
)
EACH = [
    pytest.param(f.name, id=f.name, marks=() if f.name in QUICK else pytest.mark.slow)
    for f in FAMILIES
]


# -- exact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EACH)
def test_reference_has_something_to_get_wrong(name):
    outputs = world(name).expected.values()
    assert len({token for output in outputs for token in output}) >= 15
    assert sum(len(set(output)) for output in outputs) >= 20


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("run", RUNS)
def test_tokens_are_those_of_generate(name, run):
    trace = world(name).run(**RUNS[run])
    assert trace.outputs == world(name).expected
    if run == "preempting":
        assert sum(len(event.preempted) for event in trace.events) >= 2


@pytest.mark.parametrize("name", [p for p in EACH if BY_NAME[p.values[0]].plug == "attention"])
@pytest.mark.parametrize("run", ["chunked", "dynamic"])
def test_dense_oracle_says_the_same_tokens(name, run):
    assert (
        world(name).run(backend=dense_attention.BACKEND, **RUNS[run]).outputs
        == world(name).expected
    )


@pytest.mark.parametrize("name", EACH)
def test_probe_finds_plug_windows_and_shapes(name):
    family, adapter = BY_NAME[name], world(name).adapter
    assert adapter.plug == family.plug
    kinds = getattr(adapter.config, "layer_types", None)
    slides = (
        [kind == "sliding_attention" for kind in kinds]
        if kinds
        else ["window" in family.covers] * 2
    )
    assert [adapter.windows[layer] for layer in (0, 1)] == [WINDOW if s else None for s in slides]
    unequal = [shape.key_size != shape.value_size for shape in adapter.shapes.values()]
    assert unequal == ["unequal" in family.covers] * 2


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss", "falcon"])
def test_low_precision_passes_the_probe(name):
    probe(BY_NAME[name].build().to(torch.bfloat16), name)


ROPES = {
    "linear": {"rope_type": "linear", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 48},
    "llama3": {
        "rope_type": "llama3",
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 48,
    },
}


@pytest.mark.parametrize("kind", ROPES)
def test_rescaled_ropes_that_look_at_no_row_are_exact(kind):
    model = BY_NAME["llama"].build(rope_parameters={"rope_theta": 10000.0, **ROPES[kind]})
    asked = requests()
    trace = Engine(model, None, EngineConfig(**RUNS["chunked"])).run(Workload(asked))
    assert trace.outputs == {r.id: generate(model, r) for r in asked}


# -- wrong masks fail ------------------------------------------------------------------------------


def future_key(batch, window):
    return _mask(batch, lambda q, k: (k <= q + 1) & (q - k < (window or CONTEXT)))


def without_itself(batch, window):
    return _mask(
        batch, lambda q, k: ((k < q) | (q == 0)) & (k <= q) & (q - k < (window or CONTEXT))
    )


def neighbour(batch, window):
    return _mask(batch, lambda q, k: (k <= q) & (q - k < (window or CONTEXT)), neighbours=True)


def window_ignored(batch, window):
    return dense_mask(batch, None)


def window_one_more(batch, window):
    return dense_mask(batch, window and window + 1)


def window_one_less(batch, window):
    return dense_mask(batch, window and window - 1)


dense_mask = dense.dense_mask


def _mask(batch: PackedBatch, rule, neighbours: bool = False) -> torch.Tensor:
    """The pass's mask under a rule of positions."""
    owners, positions, key_owners, keys = [], [], [], []
    width = batch.input_ids.shape[1]
    owners = torch.full(batch.input_ids.shape, -1)
    for index, segment in enumerate(batch.segments):
        owners[segment.row, segment.first : segment.end] = index
        if segment.end > segment.first:
            key_owners += [index] * segment.kv_len
            keys += range(segment.kv_len)
    assert width == owners.shape[1]
    owner, positions = owners.view(-1, 1), batch.position_ids.view(-1, 1)
    key_owner = torch.tensor(key_owners)[None]
    real = owner >= 0
    return real & rule(positions, torch.tensor(keys)[None]) & ((owner == key_owner) | neighbours)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("llama", future_key),
        ("llama", without_itself),
        ("llama", neighbour),
        ("mistral", window_ignored),
        ("mistral", window_one_more),
        ("mistral", window_one_less),
        ("gemma2", window_ignored),
        ("gpt_oss", window_one_more),
        ("gpt_oss", neighbour),
        ("deepseek_v3", neighbour),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_wrong_mask_fails(monkeypatch, name, fault):
    monkeypatch.setattr(dense_attention, "dense_mask", fault)
    assert (
        world(name).run(backend=dense_attention.BACKEND, **RUNS["chunked"]).outputs
        != world(name).expected
    )


@pytest.mark.parametrize("run", ["chunked", "dynamic"])
def test_right_mask_spelled_out_again_passes(monkeypatch, run):
    """The controls above differ from the truth in their fault alone."""
    monkeypatch.setattr(
        dense,
        "dense_mask",
        lambda batch, window: _mask(batch, lambda q, k: (k <= q) & (q - k < window)),
    )
    assert (
        world("mistral").run(backend=dense_attention.BACKEND, **RUNS[run]).outputs
        == world("mistral").expected
    )


def test_wrong_mask_fails_on_the_cpu_backend_too(monkeypatch):
    right = PackedBatch.mask

    def off_by_one(self, index, window, repeats=1):
        mask = right(self, index, window, repeats)
        return mask if mask is None else mask | mask.roll(1, dims=1)

    monkeypatch.setattr(PackedBatch, "mask", off_by_one)
    assert world("llama").run(**RUNS["chunked"]).outputs != world("llama").expected


def test_wrong_mask_fails_on_the_cache_plug_too(monkeypatch):
    monkeypatch.setattr("core.torch_engine.attention.plug.dense_mask", neighbour)
    assert world("falcon").run(**RUNS["chunked"]).outputs != world("falcon").expected


# -- refused ---------------------------------------------------------------------------------------

_NEO = {
    "num_hidden_layers": ...,
    "num_attention_heads": ...,
    "num_key_value_heads": ...,
    "num_layers": 2,
    "num_heads": 4,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 16,
}
_INDEX = {"index_topk": 4, "index_n_heads": 2, "index_head_dim": 8}

REFUSED = [
    (Family("bloom", "", {"n_head": 4, "n_layer": 2, "num_key_value_heads": ...}), "ALiBi"),
    (
        Family(
            "mpt",
            "",
            sizes={
                "d_model": 32,
                "n_heads": 4,
                "n_layers": 2,
                "vocab_size": 101,
                "max_seq_len": CONTEXT,
            },
        ),
        "ALiBi",
    ),
    (
        Family("falcon", "", {"alibi": True, "num_key_value_heads": ..., "intermediate_size": ...}),
        "ALiBi",
    ),
    (
        Family("gpt_neo", "", {**_NEO, "attention_types": [[["global", "local"], 1]]}),
        "private causal mask",
    ),
    (Family("phi3", "", {"rope_parameters": _LONGROPE}), "longrope RoPE rescales a whole row"),
    (
        Family(
            "llama",
            "",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        ),
        "dynamic RoPE rescales",
    ),
    (
        Family(
            "llama4_text", "", {"head_dim": 8, "num_local_experts": 2, "attention_chunk_size": 8}
        ),
        "layer 0 has a mask that is neither",
    ),
    (
        Family("mamba", "", sizes={"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2}),
        "running state",
    ),
    (
        Family("jamba", "", {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}),
        "running state",
    ),
    (
        Family("lfm2", "", {"layer_types": ["conv", "full_attention"]}),
        "kind conv keep a running state",
    ),
    (Family("recurrent_gemma", "", {"head_dim": 8, "num_hidden_layers": 3}), "running state"),
    (
        Family("deepseek_v32", "", {**BY_NAME["deepseek_v3"].options, **_INDEX}),
        "choose with their own index",
    ),
    (Family("diffllama", ""), "layer 0 calls attention 2 times"),
    (Family("doge", "", {"head_dim": 8}), "a mask or position bias of its own"),
    (
        Family("roberta", "", {"is_decoder": True, "pad_token_id": 0, "num_key_value_heads": ...}),
        "even a single request",
    ),
    (
        Family(
            "bart", "", {"is_decoder": True, "d_model": 32, "decoder_layers": 2, "hidden_size": ...}
        ),
        "takes no position_ids",
    ),
    (
        Family("openai-gpt", "", sizes=BY_NAME["gpt2"].sizes),
        "neither our attention function nor our cache",
    ),
    (
        Family("big_bird", "", {"is_decoder": True, "num_key_value_heads": ...}),
        "skips blocks of tokens",
    ),
]


@pytest.mark.parametrize(
    ("family", "reason"), REFUSED, ids=[f"{f.name}-{r.split()[0]}" for f, r in REFUSED]
)
def test_refused_by_name_and_reason(family, reason):
    model = family.build()
    with pytest.raises(UnsupportedModel) as refusal:
        Engine(model)
    sentence = str(refusal.value)
    assert family.name in sentence and reason in sentence
    assert sentence.endswith(".") and ". " not in sentence and "\n" not in sentence
    # as it was before
    assert model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=2).shape == (1, 5)


def test_encoder_decoder_is_refused():
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=50)
    with pytest.raises(UnsupportedModel, match="t5 cannot .*: it is an encoder-decoder model"):
        Engine(T5ForConditionalGeneration(config))


def test_a_model_of_less_than_no_layers_is_refused():
    with pytest.raises(UnsupportedModel, match="no text decoder whose layers"):
        Engine(GPT2LMHeadModel(GPT2Config(n_layer=-1, n_embd=8, n_head=2, vocab_size=9)))


def test_what_is_no_model_is_refused():
    with pytest.raises(UnsupportedModel, match="not str"):
        probe("shakespeare-char")
    with pytest.raises(UnsupportedModel, match="not Linear"):
        Engine(torch.nn.Linear(2, 2))


class LooksAcross(LlamaForCausalLM):
    """Adds a little of every position in the pass, whoever it belongs to."""

    def forward(self, input_ids=None, position_ids=None, **kwargs):
        embedded = self.model.embed_tokens(input_ids)
        return super().forward(
            inputs_embeds=embedded + 0.01 * embedded.mean(1, keepdim=True),
            position_ids=position_ids,
            **kwargs,
        )


class LooksBack(LlamaForCausalLM):
    """Mixes each token with the one before it in the row, like a convolution without a state."""

    def forward(self, input_ids=None, position_ids=None, **kwargs):
        embedded = self.model.embed_tokens(input_ids)
        mixed = embedded + 0.1 * torch.nn.functional.pad(embedded, (0, 0, 1, 0))[:, :-1]
        return super().forward(inputs_embeds=mixed, position_ids=position_ids, **kwargs)


class LooksAtOtherRows(LlamaForCausalLM):
    """Harmless in one row, not in several."""

    def forward(self, input_ids=None, **kwargs):
        embedded = self.model.embed_tokens(input_ids)
        return super().forward(
            inputs_embeds=embedded + 0.01 * (embedded.mean(0) - embedded[0]), **kwargs
        )


class LooksAtTheLongest(LlamaForCausalLM):
    """Rescales once a position in the pass is beyond 40."""

    def forward(self, input_ids=None, position_ids=None, **kwargs):
        embedded = self.model.embed_tokens(input_ids)
        if position_ids is not None and position_ids.max() > 40:
            embedded = embedded * 0.9
        return super().forward(inputs_embeds=embedded, position_ids=position_ids, **kwargs)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (LooksAcross, "when requests share a pass"),
        (LooksBack, "when requests share a pass"),
        (LooksAtOtherRows, "when a pass is padded"),
        (LooksAtTheLongest, "one long request"),
    ],
)
def test_hidden_looks_across_are_caught(kind, reason):
    model = kind(BY_NAME["llama"].config()).eval()
    widen(model)
    with pytest.raises(UnsupportedModel, match=reason):
        Engine(model)


def test_cache_that_forgets_what_the_mask_shows_is_refused():
    """Moshi's masks are causal, but `generate` gives it a cache that slides."""
    model = Family(
        "moshi",
        "",
        {"sliding_window": WINDOW, "head_dim": 8, "ffn_dim": 48, "intermediate_size": ...},
    ).build()
    with pytest.raises(UnsupportedModel, match="cache of its layer 0 forgets all but 5 tokens"):
        Engine(model)


def test_state_space_model_given_as_object():
    model = MambaForCausalLM(
        MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    )
    with pytest.raises(UnsupportedModel, match="mamba"):
        Engine(model)


# -- sharing a model -------------------------------------------------------------------------------


def test_model_stays_usable_between_steps():
    w = world("mistral")
    engine = Engine(w.adapter, None, EngineConfig(max_num_seqs=3, max_num_batched_tokens=7))
    implementation = w.model.config._attn_implementation
    for number, _ in enumerate(engine.stream(Workload(list(w.requests)))):
        if number % 5 == 0:
            assert w.model.config._attn_implementation == implementation
            assert generate(w.model, w.requests[1]) == w.expected["r1"]
    assert engine.trace.outputs == w.expected


@pytest.mark.parametrize("name", ["gpt_oss", "gptj"])
def test_two_engines_on_one_model_in_two_threads(name):
    w = world(name)
    results = {}

    def work(run):
        adapter = probe(w.model, name)
        engine = Engine(adapter, None, EngineConfig(**RUNS[run]))
        results[run] = engine.run(Workload(list(w.requests))).outputs

    threads = [threading.Thread(target=work, args=(run,)) for run in ("chunked", "dynamic")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"chunked": w.expected, "dynamic": w.expected}


# -- numbers that are none -------------------------------------------------------------------------

POISON = 2  # a token that no prompt below holds but one


@pytest.mark.parametrize("name", ["llama", "mixtral", "falcon"])
@pytest.mark.parametrize("run", RUNS)
def test_nan_ends_one_request_and_no_other(name, run):
    model = BY_NAME[name].build()
    clean = requests()
    expected = {r.id: generate(model, r) for r in clean}
    with torch.no_grad():
        model.get_input_embeddings().weight[POISON] = torch.nan
    poisoned = [
        (
            type(r)(
                r.id,
                prompt_token_ids=(*r.prompt_token_ids[:4], POISON, 7),
                sampling=r.sampling,
                arrival=r.arrival,
            )
            if r.id == "r1"
            else r
        )
        for r in clean
    ]
    assert not any(POISON in output for output in expected.values())
    trace = Engine(model, None, EngineConfig(**RUNS[run])).run(Workload(poisoned))
    finished = {f.request: f.finish_reason for event in trace.events for f in event.finished}
    assert finished == {"r0": "length", "r1": "error", "r2": "length", "r3": "length"}
    assert trace.outputs == {**expected, "r1": []}


def test_model_of_nothing_but_nan_ends_every_request_with_error():
    model = BY_NAME["gpt2"].build()
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    trace = Engine(model, None, EngineConfig()).run(Workload(requests()))
    assert {f.finish_reason for event in trace.events for f in event.finished} == {"error"}


@pytest.mark.parametrize("run", RUNS)
def test_the_text_model_of_emu3_is_exact(run):
    """It is in no list of causal models, and its pad token must stay a number."""
    sizes = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
    }
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    model = Emu3ForCausalLM(
        Emu3TextConfig(vocab_size=VOCAB, max_position_embeddings=CONTEXT, **sizes, **special)
    ).eval()
    widen(model)
    model.generation_config.eos_token_id, asked = None, tuple(requests())
    found = World(model, probe(model, "emu3"), asked, {r.id: generate(model, r) for r in asked})
    assert found.run(**RUNS[run]).outputs == found.expected and model.config.pad_token_id == 0
