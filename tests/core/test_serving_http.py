"""Over real HTTP: the article's `/generate`, what Prometheus and viewers read, and OpenAI's own
client, unmodified.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import socket

import httpx
import openai
import pytest

from core import Engine, EngineConfig, Request, SamplingParams, Trace, Workload
from core.config import ASSETS
from core.proof.verify import check
from core.serving.http.sites import origin_named
from core.serving.limits import ServingLimits
from worlds import own_models
from worlds.serving import MODEL, Served, char_engine, chat_engine, served

PROMPT = "O Romeo, "
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if"
    " add_generation_prompt %}assistant: {% endif %}"
)


def solo(prompt: str, sampling: SamplingParams) -> tuple[list[int], str]:
    """Ids and text of a request that runs alone."""
    trace = char_engine().run(Workload([Request("r", prompt=prompt, sampling=sampling)]))
    return trace.outputs["r"], trace.text("r")


@pytest.fixture(scope="module")
def server():
    engine = char_engine()
    engine.tokenizer = copy.deepcopy(engine.tokenizer)
    engine.tokenizer.chat_template = TEMPLATE
    with served(engine) as running:
        yield running
        assert running.get("/health").json() | {"model": ""} == {
            "status": "ok",
            "model": "",
            "requests": 0,
            "running": 0,
            "waiting": 0,
            "kv_blocks_used": 0,
            "kv_blocks": 64,
            "step_failures": 0,
            "steps_per_s": None,
        }


@pytest.fixture
def client(server: Served):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def events(text: str) -> list[dict]:
    """The `data:` of server-sent events."""
    return [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ")
    ]


# -- /generate -------------------------------------------------------------------------------------


def test_generate_answers_with_one_object(server):
    ids, text = solo(PROMPT, SamplingParams(20))
    answer = server.post("/generate", {"prompt": PROMPT, "max_tokens": 20}).json()
    assert (answer["token_ids"], answer["text"], answer["finish_reason"]) == (ids, text, "length")
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}
    assert 0 <= answer["queue_s"] <= answer["ttft_s"] <= answer["e2e_s"]


def test_generate_streams_an_event_a_token_and_a_last_one_with_the_rest(server):
    ids, text = solo(PROMPT, SamplingParams(20))
    response = server.post("/generate", {"prompt": PROMPT, "max_tokens": 20, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *tokens, rest = events(response.text)
    assert [t["token_id"] for t in tokens] == ids and [t["index"] for t in tokens] == list(
        range(20)
    )
    assert "".join(t["text"] for t in tokens) == text == rest["text"]
    assert len({t["id"] for t in tokens} | {rest["id"]}) == 1 and rest["finish_reason"] == "length"
    assert rest["usage"]["completion_tokens"] == 20


# -- OpenAI's client -------------------------------------------------------------------------------


def test_completions(client):
    ids, text = solo(PROMPT, SamplingParams(20, temperature=0.8, top_p=0.9, seed=3))
    asked = {
        "model": MODEL,
        "prompt": PROMPT,
        "max_tokens": 20,
        "temperature": 0.8,
        "top_p": 0.9,
        "seed": 3,
    }
    answer = client.completions.create(**asked, logprobs=0)
    (choice,) = answer.choices
    assert choice.text == text and choice.finish_reason == "length" and answer.model == MODEL
    assert (
        answer.usage.completion_tokens == len(ids) == len(choice.logprobs.tokens)
        and answer.usage.prompt_tokens == 9
    )
    assert "".join(choice.logprobs.tokens) == text and all(
        p < 0 for p in choice.logprobs.token_logprobs
    )
    assert [text[at] for at in choice.logprobs.text_offset] == [
        token[0] for token in choice.logprobs.tokens
    ]
    chunks = list(
        client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert (
        "".join(c.choices[0].text for c in chunks[:-1]) == text
        and chunks[-2].choices[0].finish_reason == "length"
    )
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 29
    assert all(c.usage is None for c in chunks[:-1])
    so_far = {"include_usage": True, "continuous_usage_stats": True}  # as GuideLLM asks
    counted = [
        c.usage.completion_tokens
        for c in client.completions.create(**asked, stream=True, stream_options=so_far)
    ]
    assert counted == [*range(1, 21), 20]


def test_several_prompts_and_choices_each_with_a_seed_of_its_own(client):
    asked = {"model": MODEL, "prompt": ["Hark", PROMPT], "n": 2, "max_tokens": 12, "seed": 7}
    expected = [
        solo(p, SamplingParams(12, temperature=1.0, seed=7 + i))[1]
        for p in asked["prompt"]
        for i in range(2)
    ]
    answer = client.completions.create(**asked, logprobs=0)
    assert [c.text for c in answer.choices] == expected and answer.usage.prompt_tokens == 4 + 9
    for choice in answer.choices:  # a character a token: each is found in its own text
        assert (
            choice.logprobs.text_offset == list(range(12))
            and "".join(choice.logprobs.tokens) == choice.text
        )
    texts = [""] * 4
    for chunk in client.completions.create(**asked, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == expected


def test_token_ids_are_a_prompt_too(client, server):
    ids = server.serving.tokenizer(PROMPT)["input_ids"]
    asked = {"model": MODEL, "max_tokens": 5, "temperature": 0}
    one, two = (client.completions.create(prompt=p, **asked).choices for p in (ids, [ids, ids]))
    assert [c.text for c in (*one, *two)] == [solo(PROMPT, SamplingParams(5))[1]] * 3


def test_stop_strings_end_the_text_before_them(client):
    _, text = solo(PROMPT, SamplingParams(60))
    stop = text[30:33]
    asked = {
        "model": MODEL,
        "prompt": PROMPT,
        "max_tokens": 60,
        "temperature": 0,
        "stop": ["@@", stop],
    }
    (choice,) = client.completions.create(**asked).choices
    assert choice.text == text[: text.index(stop)] and choice.finish_reason == "stop"
    chunks = [c.choices[0] for c in client.completions.create(**asked, stream=True)]
    assert "".join(c.text for c in chunks) == choice.text and chunks[-1].finish_reason == "stop"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        {"presence_penalty": 1.5},
        {"frequency_penalty": 1.0},
        {"repetition_penalty": 1.4},
        {"min_p": 0.2},
        {"logit_bias": {"45": 9.0, "43": -100}},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_penalties_bias_and_min_p_are_the_engines(client, server, asked):
    plain = solo(PROMPT, SamplingParams(30, temperature=0.9, seed=4))
    ids, text = solo(PROMPT, SamplingParams(30, temperature=0.9, seed=4, **asked))
    assert ids != plain[0]
    common = {"max_tokens": 30, "temperature": 0.9, "seed": 4}
    assert (
        server.post("/generate", {"prompt": PROMPT, **common, **asked}).json()["token_ids"] == ids
    )
    theirs = {
        name: value for name, value in asked.items() if name not in ("repetition_penalty", "min_p")
    }
    more = {name: value for name, value in asked.items() if name not in theirs}
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, **common, **theirs, extra_body=more
    )
    assert answer.choices[0].text == text


def by_the_model(prompt: str, text: str, count: int) -> list[dict[str, float]]:
    """The most probable tokens at each position of an answer, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = ASSETS / "models" / MODEL
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
    )
    before, whole = (
        tokenizer(t, return_tensors="pt")["input_ids"] for t in (prompt, prompt + text)
    )
    with torch.no_grad():
        logprobs = model(whole).logits[0].log_softmax(-1)[before.shape[1] - 1 : -1]
    found = logprobs.topk(count)
    return [
        {tokenizer.decode([i]): p for i, p in zip(ids, values, strict=True)}
        for ids, values in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]


def test_top_logprobs_go_only_to_those_who_ask(client, server):
    asked = {"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "temperature": 0.9, "seed": 4}
    (choice,) = client.completions.create(**asked, logprobs=3).choices
    expected = by_the_model(PROMPT, choice.text, 3)
    for told, theirs, token, logprob in zip(
        choice.logprobs.top_logprobs,
        expected,
        choice.logprobs.tokens,
        choice.logprobs.token_logprobs,
        strict=True,
    ):
        assert told == pytest.approx({**theirs, token: logprob}, abs=2e-4)
    streamed = [
        c.choices[0].logprobs.top_logprobs
        for c in client.completions.create(**asked, logprobs=3, stream=True)
    ]
    assert [told for part in streamed for told in part] == choice.logprobs.top_logprobs
    assert client.completions.create(**asked, logprobs=0).choices[0].logprobs.top_logprobs is None
    assert (
        not server.serving.engine.outputs.top_logprobs._asked
        and not server.serving.engine.outputs.top_logprobs._found
    )


def test_top_logprobs_of_a_chat(client):
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Speak"}],
        "max_completion_tokens": 6,
        "temperature": 0,
    }
    (choice,) = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2).choices
    expected = by_the_model("user: Speak\nassistant: ", choice.message.content, 2)
    for told, theirs in zip(choice.logprobs.content, expected, strict=True):
        assert {t.token: t.logprob for t in told.top_logprobs} == pytest.approx(theirs, abs=2e-4)
        assert told.top_logprobs[0].token == told.token
    with pytest.raises(openai.BadRequestError, match="top_logprobs needs logprobs"):
        client.chat.completions.create(**asked, top_logprobs=2)


def test_a_chat(client):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Speak"}]},
    ]
    _, text = solo("system: Be brief.\nuser: Speak\nassistant: ", SamplingParams(10))
    asked = {"model": MODEL, "messages": messages, "max_completion_tokens": 10, "temperature": 0}
    (choice,) = client.chat.completions.create(**asked, logprobs=True).choices
    assert (
        choice.message.content == text
        and choice.message.role == "assistant"
        and choice.finish_reason == "length"
    )
    assert "".join(told.token for told in choice.logprobs.content) == text
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == MODEL == client.models.retrieve(MODEL).id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


@pytest.mark.slow
def test_fifty_at_once_each_as_if_alone(server):
    prompts = ["Exeunt " + "and so " * (i % 7) + chr(97 + i % 26) for i in range(50)]
    expected = [
        solo(p, SamplingParams(4 + i % 4, temperature=0.9, seed=i))[1]
        for i, p in enumerate(prompts)
    ]

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=server.url + "/v1", api_key="none", max_retries=0
        ) as client:

            async def one(i: int) -> str:
                asked = {
                    "model": MODEL,
                    "prompt": prompts[i],
                    "max_tokens": 4 + i % 4,
                    "temperature": 0.9,
                    "seed": i,
                }
                if i % 2:
                    return (await client.completions.create(**asked)).choices[0].text
                stream = await client.completions.create(**asked, stream=True)
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*map(one, range(50)))

    assert asyncio.run(all_of_them()) == expected


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "not served here"),
        ({"prompt": ""}, openai.BadRequestError, "The prompt is empty."),
        (
            {"prompt": "Ω"},
            openai.BadRequestError,
            "The tokenizer cannot encode the characters 'Ω'.",
        ),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"max_tokens": 4000}, openai.BadRequestError, "exceed the model's context"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"top_p": 0}, openai.BadRequestError, "top_p must be above 0"),
        ({"n": 0}, openai.BadRequestError, "n must be"),
        ({"n": 65}, openai.BadRequestError, "At most 64 answers"),
        ({"logprobs": 21}, openai.BadRequestError, "logprobs must be less than or equal to 20"),
        ({"presence_penalty": 2.5}, openai.BadRequestError, "presence_penalty"),
        ({"frequency_penalty": -3}, openai.BadRequestError, "frequency_penalty"),
        ({"logit_bias": {"3": 101}}, openai.BadRequestError, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, openai.BadRequestError, "Token id 99999 in logit_bias"),
        ({"logit_bias": {"x": 1}}, openai.BadRequestError, "logit_bias must give token ids"),
        ({"extra_body": {"min_p": 2}}, openai.BadRequestError, "min_p"),
        ({"extra_body": {"repetition_penalty": 0}}, openai.BadRequestError, "repetition_penalty"),
        ({"echo": True}, openai.BadRequestError, "echo is not supported here"),
        ({"extra_body": {"tomfoolery": 1}}, openai.BadRequestError, "tomfoolery"),
        (
            {"stream_options": {"include_usage": True}},
            openai.BadRequestError,
            "stream_options needs stream",
        ),
    ],
)
def test_errors_have_openais_shape_and_one_sentence(client, more, error, says):
    with pytest.raises(error) as caught:
        client.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 4, **more})
    told = caught.value.response.json()["error"]
    assert set(told) == {"message", "type", "param", "code"} and says in told["message"]
    assert told["message"].endswith(".") and "\n" not in told["message"]


def test_what_load_generators_send_is_taken(server):
    """The body of `vllm bench serve`."""
    body = {
        "model": MODEL,
        "prompt": PROMPT,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 6,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    response = server.post("/v1/completions", body)
    parts = [
        part.removeprefix("data: ")
        for part in response.text.split("\n\n")
        if part and not part.startswith(":")
    ]
    assert (
        parts[-1] == "[DONE]"
        and json.loads(parts[-2])["usage"]["completion_tokens"] == 6
        and len(parts) == 8
    )


# -- those who watch -------------------------------------------------------------------------------


def watched(
    server: Served, until: str, query: str = "", **headers: str
) -> list[tuple[int, list[dict]]]:
    """(id, messages) of live events until one of them holds `until`."""
    found: list[tuple[int, list[dict]]] = []
    with httpx.stream(
        "GET", f"{server.url}/events{query}", headers=headers, timeout=30
    ) as response:
        number = -1
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                found.append((number, json.loads(line[6:])))
                if until in line:
                    return found
    return found


def test_events_tell_each_step_and_resume_where_a_viewer_was(server):
    name = server.post("/generate", {"prompt": PROMPT, "max_tokens": 6}).json()["id"]
    finished = f'[["{name}","length"]]'
    batches = watched(server, finished)
    messages = [m for _, batch in batches for m in batch]
    assert messages[0]["kind"] == "run" and messages[0]["header"]["model"]["name"] == MODEL
    assert "prompts" not in messages[0]["header"]
    steps = [m for m in messages if m["kind"] == "step"]
    assert [s["step"] for s in steps] == sorted({s["step"] for s in steps})
    unseen = dict.fromkeys(("nickname", "prompt_token_ids", "messages", "sampling"))
    hidden = {**unseen, "is_bot": False}
    assert {
        "kind": "request",
        "id": name,
        "prompt_tokens": 9,
        "max_new_tokens": 6,
        **hidden,
    } in messages
    assert all(row[2:] == [None, None, None] for s in steps for row in s["sampled"])
    assert sum(len(s["sampled"]) for s in steps if any(row[1] == name for row in s["sampled"])) >= 6
    last = batches[-1][0]
    again = server.post("/generate", {"prompt": PROMPT, "max_tokens": 3}).json()["id"]
    resumed = [
        m
        for _, batch in watched(server, f'[["{again}","length"]]', **{"Last-Event-ID": str(last)})
        for m in batch
    ]
    assert [m["id"] for m in resumed if m["kind"] == "request"] == [again]
    assert resumed[0]["kind"] in ("request", "step")
    # a browser that connects again says where it was, and its address still says where it began
    where = {"Last-Event-ID": str(last)}
    batches = [
        batch for _, batch in watched(server, f'[["{again}","length"]]', "?after=0", **where)
    ]
    assert [m["id"] for batch in batches for m in batch if m["kind"] == "request"] == [again]


def test_metrics_have_vllms_names_and_count_what_happened(server):
    def read() -> dict[str, float]:
        found = re.findall(
            r"^inflight:(\w+)\{(?![^}]*le=)[^}]*\} (\S+)$",
            server.get("/metrics").text,
            re.MULTILINE,
        )
        told: dict[str, float] = {}
        for name, value in found:
            told[name] = told.get(name, 0.0) + float(value)
        return told

    before = read()
    server.post("/generate", {"prompt": PROMPT, "max_tokens": 7})
    after = read()
    gained = {name: after[name] - before.get(name, 0.0) for name in after}
    assert gained["generation_tokens_total"] == 7 and gained["prompt_tokens_total"] == 9
    assert gained["inter_token_latency_seconds_count"] == 6 and gained["request_success_total"] == 1
    assert gained["iteration_tokens_total_sum"] == 9 + 6
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_time_per_output_token_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_params_max_tokens",
    ):
        assert gained[name + "_count"] == 1, name
    assert (
        after["num_requests_running"]
        == after["num_requests_waiting"]
        == after["kv_cache_usage_perc"]
        == 0
    )


def test_the_grafana_board_asks_for_metrics_that_are_there(server):
    server.post("/generate", {"prompt": PROMPT, "max_tokens": 2})
    server.post("/generate", {"prompt": ""})
    there = set(re.findall(r"^inflight:\w+", server.get("/metrics").text, re.MULTILINE))
    board = (ASSETS / "grafana" / "serving.json").read_text()
    asked = set(re.findall(r"inflight:\w+", board)) - {"inflight:"}
    assert len(asked) > 15 and asked <= there
    assert len(json.loads(board)["panels"]) == 12


def test_the_interface_describes_itself(server):
    paths = server.get("/openapi.json").json()["paths"]
    assert {
        "/generate",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/health",
        "/metrics",
        "/events",
    } <= set(paths)
    assert server.get("/docs").status_code == 200


def test_without_a_chat_template_a_chat_is_refused():
    with served(char_engine()) as plain:
        told = plain.post(
            "/v1/chat/completions",
            {"model": MODEL, "messages": [{"role": "user", "content": "Speak"}]},
        )
        assert told.status_code == 400 and "has no chat template" in told.json()["error"]["message"]


def test_a_chat_that_cannot_be_told_is_refused_in_a_whole_sentence():
    with served(chat_engine()) as asked:
        told = asked.post(
            "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "Ω"}]}
        )
    assert told.status_code == 400
    assert told.json()["error"]["message"] == "The tokenizer cannot encode the conversation."


def test_it_can_be_mounted_in_an_application_with_routes_of_its_own():
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route
    from starlette.testclient import TestClient

    from core.serving.engine import ServingEngine
    from core.serving.http.app import create_app

    serving = ServingEngine(char_engine(), ServingLimits(), MODEL)
    serving.start()
    try:
        page = Route("/", lambda request: PlainTextResponse("page"))
        client = TestClient(
            Starlette(routes=[page, Mount("/serve", app=create_app(serving, api_key="secret"))])
        )
        assert client.get("/").text == "page"
        assert client.get("/serve/health").json()["status"] == "ok"
        assert client.get("/serve/v1/models").status_code == 401
        listed = client.get("/serve/v1/models", headers={"authorization": "Bearer secret"}).json()
        assert listed["data"][0]["id"] == MODEL
    finally:
        serving.close()


def test_what_cannot_be_served_is_refused_in_a_sentence(capsys, monkeypatch):
    from core.cli import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for options, says in (
            (["--port", port], f"Port {port} is taken: choose another with --port."),
            (
                ["--port", port, "--host", "no.such.host.invalid"],
                "Cannot listen on no.such.host.invalid:",
            ),
            (["--port", port, "--host", "a\nb"], "Cannot listen on 'a\\nb':"),
            (["--api-key", " "], "--api-key has an empty value"),
            (["--api-key", "a b"], "The API key is empty, or has characters that no header"),
            (["--api-key", "schlüssel"], "The API key is empty, or has characters that no header"),
            (["--cors-origin", "example.org"], "'example.org' is no origin: name a scheme"),
            (["--cors-origin", "https://example.org/chat"], "is no origin: name a scheme"),
            (["--cors-origin", "https://*.example.org"], "is no origin: name a scheme"),
            (["--policy", "magic"], "There is no policy 'magic'"),
        ):
            with pytest.raises(SystemExit) as ended:
                main(["serve", "--model", MODEL, "--device", "cpu", *options])
            told = capsys.readouterr().err.strip().splitlines()[-1]
            assert ended.value.code == 2 and says in told and told.endswith(".")
    monkeypatch.setenv("INFLIGHT_API_KEY", "")  # as of a variable that was never set
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--model", MODEL, "--device", "cpu"])
    assert ended.value.code == 2 and "The API key is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("*", "*"),
        ("HTTPS://Example.org:443", "https://example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
def test_an_origin_is_what_browsers_send(given, sent):
    assert origin_named(given) == sent


def test_clients_learn_a_models_name_and_not_where_it_lies(tmp_path):
    folder = own_models.save(tmp_path / "my-model")
    engine = Engine.from_pretrained(str(folder), config=EngineConfig(num_blocks=64))
    with served(engine, name=str(folder), teacher_token="t") as running:
        told = [running.get(path) for path in ("/v1/models", "/v1/models/my-model", "/health")]
        told.append(running.post("/v1/completions", {"model": "my-model", "prompt": "To be"}))
        assert [answer.status_code for answer in told] == [200] * 4
        told.append(running.post("/v1/completions", {"model": str(folder), "prompt": "To be"}))
        assert told[-1].status_code == 404
        told.append(running.get("/metrics"))
        told.append(running.get("/session", headers={"X-Teacher-Token": "t"}))
        assert check(Trace.from_lines(told[-1].text.splitlines())).num_tokens
        with httpx.stream("GET", f"{running.url}/events", trust_env=False) as stream:
            told.append(httpx.Response(200, text=next(stream.iter_text())))
        assert all("my-model" in answer.text for answer in told)
        assert not any(str(tmp_path) in answer.text for answer in told)
