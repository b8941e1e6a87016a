"""What OpenAI's clients send and read beyond the plain call, over real HTTP: fields that ask for
nothing, refusals by name, tokens and their bytes.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
import torch

from core import Engine, EngineConfig, SamplingParams
from core.engine.runner import SamplingRow
from core.serving.http.openai import TokenNames, _Completions, _room
from core.serving.http.schemas import ChatBody, CompletionBody, GenerateBody, StreamOptions
from core.serving.output_processor import TopLogprobs
from core.serving.stream import Piece
from core.torch_engine.sampling import sample
from core.trace.events import Sampled
from worlds.serving import Served, chat_engine, served

MODEL = "shakespeare-bpe"
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['name'] }}: {{ m['content'] }}\n{% endfor %}"
)
HARK = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hark"}],
    "max_completion_tokens": 3,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def server():
    loaded = Engine.from_pretrained(MODEL, device="cpu")
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.chat_template = TEMPLATE
    with served(
        Engine(loaded.adapter, tokenizer, EngineConfig(max_num_seqs=4, num_blocks=64)), name=MODEL
    ) as running:
        yield running


@pytest.fixture
def client(server: Served):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def chat(server: Served, **more):
    """The answer to a body that may have anything in it, as JSON can."""
    written = json.dumps({**HARK, **more})
    headers = {"content-type": "application/json"}
    return httpx.post(
        f"{server.url}/v1/chat/completions",
        content=written,
        headers=headers,
        timeout=60,
        trust_env=False,
    )


def test_an_answer_of_no_given_length_fits_a_pool_that_is_smaller_than_the_context():
    with served(chat_engine(num_blocks=4, block_size=16)) as running:
        name, messages = running.serving.name, HARK["messages"]
        asked = {"model": name, "messages": messages, "temperature": 0, "ignore_eos": True}
        answer = running.post("/v1/chat/completions", asked)
        assert answer.status_code == 200 and answer.json()["usage"]["total_tokens"] == 64
        given = running.post("/v1/chat/completions", asked | {"max_tokens": 64})
        assert given.status_code == 400 and "exceed the whole KV pool" in given.text


def test_an_answer_of_no_given_length_is_as_long_as_ever_while_the_pool_is_measured():
    with served(chat_engine(num_blocks=4, block_size=16)) as running:
        made = running.serving
        assert _room(made, 20) == 44
        made.engine._drop_pool()
        assert _room(made, 20) == min(made.engine.model.context - 20, made.limits.max_new_tokens)


# -- what a body asks of the engine ----------------------------------------------------------------

GIVEN: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 7,
    "top_p": 0.9,
    "stop": "x",
    "ignore_eos": True,
    "presence_penalty": 0.25,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.5,
    "min_p": 0.1,
    "logit_bias": {"5": -1.0},
}
ASKED = GIVEN | {"stop": ("x",), "logit_bias": ((5, -1.0),)}


@pytest.mark.parametrize("more", [False, True], ids=["only what must be", "every field"])
@pytest.mark.parametrize(
    ("body", "needs", "temperature"),
    [
        (GenerateBody, {"prompt": "Hark"}, 0.0),
        (CompletionBody, {"model": MODEL, "prompt": "Hark"}, 1.0),
        (ChatBody, {"model": MODEL, "messages": [{"role": "user", "content": "Hark"}]}, 1.0),
    ],
)
def test_a_field_that_is_left_out_is_as_its_interface_says_and_each_reaches_the_engine(
    body, needs, temperature, more
):
    given = body(**needs, **(GIVEN if more else {}), seed=2**63 - 1)
    asked = ASKED if more else {"temperature": temperature}
    if body is GenerateBody:
        assert given.sampling() == SamplingParams(16, seed=2**63 - 1, **asked)
        assert body(**needs).sampling().seed == 0 and (given.stream, given.nickname) == (
            False,
            None,
        )
        return
    assert given.samplings(9) == [SamplingParams(9, seed=2**63 - 1, **asked)]
    assert given.max_tokens == (None if body is ChatBody else 16)
    # each choice has a seed of its own, and a seed may be below zero; -1 is vLLM's top_k for all
    two = body(**needs, n=2, seed=-1, top_k=-1).samplings(9)
    assert [(one.seed, one.top_k) for one in two] == [(2**63 - 1, 0), (0, 0)]
    first, second = (body(**needs).samplings(1)[0].seed for _ in range(2))
    assert first != second


# -- fields that ask for nothing, and those that ask for what is not there -------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
        {"tools": []},
        {"parallel_tool_calls": False},
        {"store": False},
        {"metadata": {"run": "7"}},
        {"modalities": ["text"]},
        {"user": "me"},
        {"service_tier": "auto"},
        {"n": 1},
        {"logit_bias": {}},
        {"response_format": {"type": "text"}},
        {"stream_options": None},
        {"functions": [], "function_call": "none"},
        {"verbosity": "medium", "reasoning_effort": "none"},
        {"prompt_cache_key": "k", "safety_identifier": "s"},
        {"max_tokens": 3},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
    ],
    ids=str,
)
def test_a_field_that_asks_for_nothing_is_taken(server, more):
    assert chat(server, **more).status_code == 200


def test_null_is_as_good_as_left_out_in_every_optional_field(server):
    from openai.types import completion_create_params
    from openai.types.chat import completion_create_params as chat_params

    for path, params, asked in (
        ("chat/completions", chat_params, HARK),
        (
            "completions",
            completion_create_params,
            {"model": MODEL, "prompt": "Hark", "max_tokens": 3},
        ),
    ):
        nulls = dict.fromkeys(params.CompletionCreateParamsBase.__annotations__)
        assert len(nulls) > 15
        answer = server.post(f"/v1/{path}", {**nulls, "stream": None, **asked})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"tool_choice": "required"}, "tool_choice", "is not supported here"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            "tools",
            "is not supported here",
        ),
        ({"store": True}, "store", "is not supported here"),
        ({"store": 0}, "store", "is not supported here"),
        ({"modalities": ["text", "audio"]}, "modalities", "is not supported here"),
        ({"response_format": {"type": "json_object"}}, "response_format", "is not supported here"),
        ({"service_tier": "flex"}, "service_tier", "is not supported here"),
        ({"web_search_options": {}}, "web_search_options", "is not supported here"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "is not supported",
        ),
        ({"tomfoolery": 1}, "tomfoolery", "is not supported here"),
        ({"tom\nfoolery": 1}, None, "A field is not supported here"),
        ({"tom\ud800foolery": 1}, None, "has text that is not Unicode"),
        (
            {"messages": [{"role": "user", "content": "\udfff"}]},
            None,
            "has text that is not Unicode",
        ),
        ({"messages": None}, "messages", "is missing"),
        ({"messages": []}, "messages", "must have at least 1 item"),
        ({"messages": ["Hark"]}, "messages[0]", "must be an object"),
        (
            {"messages": [{"role": "jester", "content": "a"}]},
            "messages[0].role",
            "must be 'system', 'developer', 'user' or",
        ),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
            "must be a text or a list of",
        ),
        (
            {"messages": [{"role": "user", "content": "\u03a9" * 9, "tool_calls": [{}]}]},
            "messages[0].tool_calls",
            "is not supported",
        ),
        ({"stop": ["a", 1]}, "stop", "must be a text or a list of texts"),
        ({"stop": [""]}, "stop", "must be a list of non-empty strings, not ['']"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "must give token ids"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "Token id 99999 in logit_bias is outside"),
        ({"temperature": "hot"}, "temperature", "must be a number"),
        ({"temperature": "1"}, "temperature", "must be a number"),
        ({"max_completion_tokens": True}, "max_completion_tokens", "must be a whole number"),
        ({"top_p": 0}, "top_p", "must be above 0"),
        ({"n": 65}, "n", "At most 64 answers"),
        ({"max_tokens": 4}, "max_completion_tokens", "are not the same"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"max_completion_tokens": 5000}, "max_completion_tokens", "At most 4,096 new tokens"),
        (
            {"max_completion_tokens": None, "max_tokens": 5000},
            "max_tokens",
            "At most 4,096 new tokens",
        ),
        ({"stream_options": {}}, "stream_options", "needs stream"),
    ],
    ids=str,
)
def test_a_refusal_is_a_400_that_names_the_field(server, more, param, says):
    answer = chat(server, **more)
    told = answer.json()["error"]
    assert (
        answer.status_code == 400
        and told["type"] == "invalid_request_error"
        and told["param"] == param
    )
    assert says in told["message"] and told["message"].endswith(".") and "\n" not in told["message"]
    # no tuple of Python's, no path of a validator
    assert not re.search(r"\(|function-|\[str|'body'|Input", told["message"])


def test_every_refusal_is_counted(server):
    def counted() -> float:
        found = re.search(
            r'^inflight:http_refusals_total\{status="400"\} (.*)$',
            server.get("/metrics").text,
            re.MULTILINE,
        )
        return float(found[1]) if found else 0.0

    before = counted()
    for more in ({"store": True}, {"top_p": 0}, {"messages": [{"role": "user", "content": ""}]}):
        assert chat(server, **more).status_code in (200, 400)
    assert chat(server, model=7).status_code == 400 and counted() == before + 3


def test_what_is_too_long_has_openais_code(server, client):
    length = client.models.retrieve(MODEL).max_model_len
    for more in (
        {"max_completion_tokens": length},
        {"messages": [{"role": "user", "content": "Hark " * length}]},
    ):
        told = chat(server, **more).json()["error"]
        assert told["code"] == "context_length_exceeded" and told["param"] == "messages", told
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="Hark " * length)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-9", prompt="Hark")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")


def test_a_conversation_goes_on_with_what_the_client_was_given(client):
    """An answer as OpenAI's own client writes it back, with all its fields; and one that has no
    content.
    """
    (choice,) = client.chat.completions.create(**HARK).choices
    said = [
        {**choice.message.model_dump(), "annotations": [], "tool_calls": []},
        {"role": "assistant", "content": None},
    ]
    messages = [*HARK["messages"], *said, {"role": "user", "content": "More", "name": "Tom"}]
    answer = client.chat.completions.create(**{**HARK, "messages": messages})
    written = f"user : Hark\nassistant : {choice.message.content}\nassistant : \nuser Tom: More\n"
    alone = client.completions.create(model=MODEL, prompt=written, max_tokens=3, temperature=0)
    assert answer.choices[0].message.content == alone.choices[0].text
    as_developer, as_system = (
        client.chat.completions.create(
            **{**HARK, "messages": [{"role": role, "content": "Be brief."}, *HARK["messages"]]}
        )
        for role in ("developer", "system")
    )
    assert as_developer.choices[0].message.content == as_system.choices[0].message.content


# -- tokens ----------------------------------------------------------------------------------------


def halves(tokenizer) -> list[int]:
    """The ids that write an e with an accent, which is two tokens, each a byte."""
    ids = tokenizer("\u00e9", add_special_tokens=False)["input_ids"]
    assert len(ids) == 2
    return ids


def test_a_part_of_a_character_has_its_true_byte_and_a_name_of_its_own(server, client):
    ids = halves(server.serving.tokenizer)
    (choice,) = client.chat.completions.create(
        **{**HARK, "max_completion_tokens": 1},
        logprobs=True,
        top_logprobs=20,
        logit_bias={str(i): 100 for i in ids},
    ).choices
    top = {tuple(told.bytes): told.token for told in choice.logprobs.content[0].top_logprobs}
    assert {(0xC3,): "bytes:\\xc3", (0xA9,): "bytes:\\xa9"}.items() <= top.items() and len(
        top
    ) == 20
    (choice,) = client.completions.create(
        model=MODEL,
        prompt="Hark",
        max_tokens=1,
        logprobs=20,
        temperature=0,
        logit_bias={str(i): 100 for i in ids},
    ).choices
    told, (token,) = choice.logprobs.top_logprobs[0], choice.logprobs.tokens
    assert len(told) == 20 and {"bytes:\\xc3", "bytes:\\xa9", token} <= set(told)
    assert told[token] == choice.logprobs.token_logprobs[0] == max(told.values())


def test_a_token_has_the_same_logprob_as_the_sampled_one_and_among_the_likely_ones():
    """They are computed apart, and rounding sets some of them apart in the last digit."""
    logits = 25 * torch.randn(400, 64, generator=torch.Generator().manual_seed(0))
    rows = [SamplingRow(SamplingParams(), at, request="a") for at in range(400)]
    top = TopLogprobs()
    top.ask("a", 3)
    top._observe(rows, logits)
    for at, made in enumerate(sample(logits, rows)):
        best, *others = top.take(Sampled(0, "a", *made), at)
        assert (best.token_id, best.logprob) == (made.token_id, made.logprob)
        own = logits[at].log_softmax(-1)
        assert [near.logprob for near in others] == [
            round(own[near.token_id].item(), 5) for near in others
        ]


def test_the_bytes_of_the_tokens_are_those_of_the_text(client):
    asked = {**HARK, "max_completion_tokens": 40, "temperature": 1.5, "seed": 5}
    (choice,) = client.chat.completions.create(**asked, logprobs=True).choices
    joined = b"".join(bytes(told.bytes) for told in choice.logprobs.content)
    assert joined.decode(errors="replace") == choice.message.content


def test_tokens_with_spaces_bytes_and_one_text_keep_apart():
    """As SentencePiece writes them: a space is part of a token, a byte is a token, and a byte may
    be the text of another token.
    """
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    vocabulary = [
        "<unk>",
        "\u2581the",
        "the",
        "<0xE2>",
        "<0x82>",
        "<0xAC>",
        "<0x41>",
        "A",
        "\u2581",
        "\ufffd",
    ]
    core = Tokenizer(BPE({token: i for i, token in enumerate(vocabulary)}, [], byte_fallback=True))
    steps = [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    core.decoder = decoders.Sequence(steps)
    names = TokenNames(PreTrainedTokenizerFast(tokenizer_object=core))
    assert [names.bytes(i) for i in range(1, 10)] == [
        b" the",
        b"the",
        b"\xe2",
        b"\x82",
        b"\xac",
        b"A",
        b"A",
        b" ",
        "\ufffd".encode(),
    ]
    assert [*names.distinct([7, 6, 1, 2, 3]).values()] == [
        "A",
        "token_id:6",
        " the",
        "the",
        "bytes:\\xe2",
    ]
    assert TokenNames(None).bytes(3) is None and [*TokenNames(None).distinct([3, 4]).values()] == [
        "token_id:3",
        "token_id:4",
    ]


def test_an_end_that_comes_without_a_token_is_none_of_those_written():
    class Stopped:
        prompt, num_tokens = (1, 2), 1

        async def __aiter__(self):
            yield Piece(0, 5, "a", -0.1, None)
            yield Piece(1, None, "", None, "cancelled")

    async def go() -> list[int]:
        stream: Any = Stopped()
        serving: Any = SimpleNamespace(name="m")
        so_far = StreamOptions(include_usage=True, continuous_usage_stats=True)
        body: Any = SimpleNamespace(stream_options=so_far)
        shape = _Completions(serving, TokenNames(None), body, False, 0)
        chunks = [chunk async for chunk in shape._chunks([stream], 2)]
        return [chunk["usage"]["completion_tokens"] for chunk in chunks]

    assert asyncio.run(go()) == [1, 1, 1]
