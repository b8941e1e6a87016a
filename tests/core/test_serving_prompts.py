"""Prompts on their way to the engine: which are too long is known before they are tokenized, short
ones overtake long ones, and a request's time begins when its call was received.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core import Engine, EngineConfig
from core.account.metrics import request_times
from core.config import model_source
from core.errors import InvalidRequest
from core.serving.engine import ServingEngine
from core.serving.request_validator import TokenizingQueue
from core.torch_engine.models.tokenizer import longest_token
from worlds.serving import Served, char_engine, checked, greedy, idle, served, serving, whole

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def made(model, normalizer=None, splits=None, added=(), **special) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if splits is not None:
        tokenizer.pre_tokenizer = splits
    tokenizer.add_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def bpe(names, merges=(), **more):
    return models.BPE(
        vocab={name: i for i, name in enumerate(dict.fromkeys(names))}, merges=list(merges), **more
    )


def of_bytes(normalizer=None, added=()) -> PreTrainedTokenizerFast:
    names = [*ALPHABET, "an", "and", "Ġand"]
    splits = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made(bpe(names, [("a", "n"), ("an", "d"), ("Ġ", "and")]), normalizer, splits, added)


def of_pieces(**more) -> PreTrainedTokenizerFast:
    """As Llama 2 has it."""
    marked = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made(
        bpe(
            [*BYTES, "▁", "a", "n", "an", "▁an"],
            [("a", "n"), ("▁", "an")],
            byte_fallback=True,
            **more,
        ),
        marked,
    )


BOUNDED = {
    "shakespeare-bpe": (lambda: AutoTokenizer.from_pretrained(model_source("shakespeare-bpe")), 14),
    "shakespeare-char": (
        lambda: AutoTokenizer.from_pretrained(model_source("shakespeare-char")),
        1,
    ),
    "bytes": (of_bytes, 5),
    "bytes, composed": (lambda: of_bytes(normalizers.NFC()), 20),
    "pieces": (of_pieces, 6),
}
UNBOUNDED = {
    "spaces are dropped": lambda: made(
        bpe(["a", "[U]"], unk_token="[U]"), None, pre_tokenizers.Whitespace(), unk_token="[U]"
    ),
    "spaces are merged": lambda: of_bytes(normalizers.Replace("  ", " ")),
    "a token takes spaces along": lambda: of_bytes(added=[AddedToken("<mask>", lstrip=True)]),
    "some bytes are unknown, and dropped": lambda: made(
        bpe(["a"]), None, pre_tokenizers.ByteLevel(add_prefix_space=False)
    ),
    "what is unknown is one token, and allowed": lambda: made(
        bpe(["a", "[U]"], unk_token="[U]", fuse_unk=True)
    ),
    "no tokenizer": lambda: None,
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_token_never_stands_for_more_bytes_than_the_longest(name):
    tokenizer, longest = BOUNDED[name][0](), BOUNDED[name][1]
    assert longest_token(tokenizer) == longest
    rng = random.Random(0)
    hard = (
        "an and  \n\t \u00c5A\u030a\u212be\u0301\u1fbe\u0308\u0341 \ud55c\u1112\u1161\u11ab"
        " \U0001f642 NORTHUMBERLAND"
    )
    known = [c for c in hard if name != "shakespeare-char" or c in tokenizer.get_vocab()]
    for _ in range(300):
        text = "".join(rng.choices(known, k=rng.randrange(1, 40))) * rng.choice((1, 20))
        assert len(tokenizer(text)["input_ids"]) * longest >= len(text.encode()), text


@pytest.mark.parametrize("name", UNBOUNDED)
def test_where_a_tokenizer_may_drop_or_merge_text_nothing_is_implied(name):
    assert longest_token(UNBOUNDED[name]()) is None


def test_what_could_fit_is_tokenized_and_what_cannot_is_refused_without():
    engine = Engine.from_pretrained(
        "shakespeare-bpe", EngineConfig(max_num_seqs=1, num_blocks=80), "cpu"
    )
    longest, room = "NORTHUMBERLAND", engine.model.context - 1

    async def ask(running: ServingEngine):
        assert len((await running.submit(longest * room, greedy(1))).prompt) == room
        with pytest.raises(
            InvalidRequest,
            match=rf"^At least {room + 1} prompt tokens and 1 new ones exceed the model's context",
        ):
            await running.submit(longest * room + "!", greedy(1))
        with pytest.raises(InvalidRequest, match=rf"^{room} prompt tokens and 2 new"):
            await running.submit("a" * room, greedy(2))
        # how much is to follow a conversation is not looked at yet
        running._validator.check_bytes(longest * room)
        with pytest.raises(InvalidRequest, match=f"^At least {room + 1} prompt tokens and 1 new"):
            running._validator.check_bytes(longest * room + "!")
        await idle(running)

    with serving(engine) as running:
        asyncio.run(ask(running))


def test_a_short_prompt_overtakes_the_long_ones_that_wait():
    begun, go_on = threading.Event(), threading.Event()
    order: list[int] = []

    async def three() -> None:
        tokenizing = TokenizingQueue(None)
        first = asyncio.create_task(tokenizing.run(10**6, lambda _: (begun.set(), go_on.wait(60))))
        await asyncio.to_thread(begun.wait, 60)
        rest = [
            asyncio.create_task(tokenizing.run(size, lambda _, size=size: order.append(size)))
            for size in (900, 5, 30, 7)
        ]
        gone = asyncio.create_task(tokenizing.run(1, lambda _: order.append(1)))
        await asyncio.sleep(0)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        go_on.set()
        await asyncio.gather(first, *rest)
        with pytest.raises(ValueError, match="a bug"):
            await tokenizing.run(1, lambda _: (_ for _ in ()).throw(ValueError("a bug")).send(None))
        assert await tokenizing.run(1, lambda _: "and goes on") == "and goes on"

    asyncio.run(three())
    assert order == [5, 7, 30, 900]


# -- when a request arrived ------------------------------------------------------------------------


def kept_waiting(server: Served, body: dict) -> tuple[dict, float]:
    """The answer to a request whose prompt had to wait for its tokenizer, and for how many seconds
    at least.
    """
    serving, begun, go_on = server.serving, threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        pool.submit(
            asyncio.run, serving._tokenizing.run(0, lambda _: (begun.set(), go_on.wait(60)))
        )
        assert begun.wait(60)
        answer = pool.submit(server.post, "/generate", body)
        while not serving.num_requests:
            time.sleep(0.001)
        since = time.perf_counter()
        # ids need no tokenizer
        assert server.post("/generate", {"prompt": [4, 5], "max_tokens": 3}).status_code == 200
        waited = time.perf_counter() - since
        go_on.set()
        return answer.result().json(), waited


def test_a_request_arrives_when_its_call_is_received_and_not_when_its_prompt_is_tokenized():
    """In what its client is told, in the metrics and in the trace, where another has come after it
    and was queued before.
    """
    with served(char_engine()) as server:
        told, waited = kept_waiting(server, {"prompt": "Hark", "max_tokens": 3})
        metrics = server.serving.metrics.registry
        labels = {"model_name": server.serving.name, "engine": "0"}
        assert told["queue_s"] >= waited and told["ttft_s"] >= waited
        for name in (
            "time_to_first_token_seconds",
            "request_queue_time_seconds",
            "e2e_request_latency_seconds",
        ):
            assert metrics.get_sample_value(f"inflight:{name}_sum", labels) >= waited
        trace = server.serving.session()
    assert checked(trace).num_requests == 2
    first, second = (arrived for event in trace.events for arrived in event.arrived)
    assert second.request == told["id"] and second.t < first.t
    assert request_times(trace)[told["id"]].ttft_s >= waited


@pytest.mark.slow
def test_who_waits_for_the_next_run_has_waited_since_the_call():
    async def held(made: ServingEngine):
        # so that the first run has not ended before the second request comes, however late it is
        made.set_pace(0)
        running = await made.submit((4, 5, 6), greedy(200))
        made.step()
        while not made.engine.running:
            await asyncio.sleep(0.001)
        made.change(EngineConfig(max_num_seqs=3), "barrier")
        waits = await made.submit((4, 5), greedy(2))
        since = made.engine.time
        made.set_pace(None)
        await whole(running)
        await whole(waits)
        waited = running.times.last_token - since
        await idle(made)
        return waits.times.to_json(), waited

    with serving(char_engine()) as made:
        assert made.name == made.engine.model.name == "shakespeare-char", "unless another is given"
        times, waited = asyncio.run(held(made))
        trace = made.session()
    assert times["queue_s"] >= waited and times["ttft_s"] >= waited
    assert trace.events[0].arrived[0].t == 0.0 and checked(trace).num_requests == 1
