"""The built-in model folders: shapes, tokenizers and weights, read as any `transformers` user reads
them.
"""

import json
import os
import re
import runpy
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

MODELS = Path(__file__).parents[2] / "assets" / "models"
NAMES = ("shakespeare-char", "shakespeare-bpe")
# nats a character on the last tenth, as the model cards say
MAX_LOSS = {"shakespeare-char": 1.54, "shakespeare-bpe": 1.43}
ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# Hamlet is not in tinyshakespeare, so these lines measure the weights where the text file is
# absent.
HAMLET = """HAMLET:
To be, or not to be, that is the question:
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune,
Or to take arms against a sea of troubles
And by opposing end them. To die: to sleep;
No more; and by a sleep to say we end
The heart-ache and the thousand natural shocks
That flesh is heir to, 'tis a consummation
Devoutly to be wish'd.
"""


@cache
def load_tokenizer(name):
    return AutoTokenizer.from_pretrained(MODELS / name, local_files_only=True)


@cache
def load_model(name):
    return AutoModelForCausalLM.from_pretrained(
        MODELS / name, local_files_only=True, dtype=torch.float32
    ).eval()


@cache
def shakespeare():
    """The text the models were trained on, which the repository does not hold."""
    if "INFLIGHT_TEXT" not in os.environ:
        pytest.skip(
            "set INFLIGHT_TEXT to the path of tinyshakespeare.txt to measure the models on it"
        )
    return Path(os.environ["INFLIGHT_TEXT"]).read_text(encoding="utf-8")


def sample(name, prompt, num_tokens, seed=0):
    tokenizer = load_tokenizer(name)
    ids = tokenizer(prompt, return_tensors="pt")
    torch.manual_seed(seed)
    output = load_model(name).generate(
        **ids, do_sample=True, temperature=0.8, top_k=0, max_new_tokens=num_tokens, pad_token_id=0
    )
    return tokenizer.decode(output[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_small_and_complete(name):
    folder = MODELS / name
    assert (folder / "model.safetensors").stat().st_size <= 10 * 2**20
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert load_model(name).dtype == torch.float32


def test_char_is_the_nanogpt_of_the_articles():
    config = AutoConfig.from_pretrained(MODELS / "shakespeare-char", local_files_only=True)
    assert config.architectures == ["GPT2LMHeadModel"]
    assert (config.n_layer, config.n_head, config.n_embd) == (4, 4, 64)
    assert config.n_positions == 256
    assert config.vocab_size == len(load_tokenizer("shakespeare-char")) == len(ALPHABET) == 65
    assert config.bos_token_id is None and config.eos_token_id is None


def test_bpe_is_a_llama_with_grouped_query_attention():
    config = AutoConfig.from_pretrained(MODELS / "shakespeare-bpe", local_files_only=True)
    assert config.architectures == ["LlamaForCausalLM"]
    assert (config.num_hidden_layers, config.hidden_size) == (4, 256)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 64)
    assert config.max_position_embeddings == 1024
    assert config.vocab_size == len(load_tokenizer("shakespeare-bpe")) == 2048
    assert config.bos_token_id is None
    assert config.eos_token_id == load_tokenizer("shakespeare-bpe").eos_token_id == 0


@given(st.text(ALPHABET))
def test_char_is_one_token_a_character(text):
    tokenizer = load_tokenizer("shakespeare-char")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", ["é", "To be\t", "7", "\0", "😀", "To be, or not — to be"])
def test_char_refuses_a_character_it_does_not_know(text):
    with pytest.raises(Exception, match="UNK"):
        load_tokenizer("shakespeare-char").encode(text)


@given(st.text())
def test_bpe_encodes_any_text(text):
    tokenizer = load_tokenizer("shakespeare-bpe")
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", " a  b \n\n c ", "don 't , !", "👩‍👩‍👧\0\r\n\t", "שלום עולם", "é e\u0301", "\ufeff"],
)
def test_bpe_keeps_spaces_and_all_scripts(text):
    tokenizer = load_tokenizer("shakespeare-bpe")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bpe_adds_no_token_of_its_own():
    tokenizer = load_tokenizer("shakespeare-bpe")
    assert tokenizer.encode("") == []
    assert tokenizer.encode("<|endoftext|>") == [0]
    assert tokenizer.encode("ROMEO:\n")[-1] == tokenizer.encode("\n")[0]


@pytest.mark.parametrize("name, most", [("shakespeare-char", 2.2), ("shakespeare-bpe", 1.9)])
def test_the_weights_know_shakespeare(name, most):
    lines = HAMLET[:250]  # within either model's context
    ids = torch.tensor([load_tokenizer(name).encode(lines)])
    with torch.inference_mode():
        logits = load_model(name)(ids).logits[0, :-1]
    nats = F.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
    assert nats / len(lines) < most


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.text(ALPHABET, min_size=1, max_size=60), st.floats(0, 1))
def test_training_takes_tokens_apart_without_changing_the_text(text, share):
    train = runpy.run_path(str(MODELS / "train.py"))
    tokenizer = load_tokenizer("shakespeare-bpe")
    ids = torch.tensor(tokenizer.encode(text))
    varied = train["split_tokens"](ids, train["merge_parents"](tokenizer), share)
    assert tokenizer.decode(varied) == text
    assert len(varied) >= len(ids)


@pytest.mark.parametrize("name", NAMES)
def test_loss_on_the_last_tenth(name):
    text = shakespeare()
    cut = len(text) * 9 // 10
    context, ids = (
        torch.tensor(load_tokenizer(name).encode(part)) for part in (text[:cut], text[cut:])
    )
    nats = runpy.run_path(str(MODELS / "train.py"))["total_nats"](load_model(name), context, ids)
    assert nats / (len(text) - cut) <= MAX_LOSS[name]


@pytest.mark.parametrize(
    "name, num_tokens, share", [("shakespeare-char", 240, 0.75), ("shakespeare-bpe", 300, 0.9)]
)
def test_samples_are_made_of_words(name, num_tokens, share):
    known = set(re.findall("[a-z]+", shakespeare().lower()))
    words = re.findall("[a-z]+", sample(name, "ROMEO:\n", num_tokens).lower())
    assert sum(word in known for word in words) >= share * len(words)
