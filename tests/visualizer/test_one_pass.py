"""A request that is served over HTTP and shown on the Live tab: its prompt is checked once, and
each of its tokens decoded once.
"""

from __future__ import annotations

import asyncio
import json

from core.engine import engine as engine_module
from core.engine.requests import validate_request
from core.serving import request_validator
from core.serving.event_log import Hidden, events
from core.trace.detokenize import Detokenizer
from visualizer.server.live_routes import live_of
from worlds.server_events import messages_in
from worlds.serving import char_engine, served


def test_a_prompt_is_checked_once_and_a_token_decoded_once_though_it_is_streamed_watched_and_stopped(  # noqa: E501
    monkeypatch,
) -> None:
    decoded: list[int] = []
    checked: list[str] = []
    add = Detokenizer.add

    def counted(self, token_id: int) -> str:
        decoded.append(token_id)
        return add(self, token_id)

    def counting(request, *more):
        checked.append(request.id)
        return validate_request(request, *more)

    monkeypatch.setattr(Detokenizer, "add", counted)
    monkeypatch.setattr(engine_module, "validate_request", counting)
    monkeypatch.setattr(request_validator, "validate_request", counting)
    asked = {"prompt": "O Romeo, ", "max_tokens": 60, "temperature": 0.8, "seed": 1}
    with served(char_engine()) as server:
        server.serving.event_log.hidden = Hidden(texts=False, nicknames=False)
        server.serving.set_class(server.serving.settings)
        whole = server.post("/generate", asked).json()
        decoded.clear()
        checked.clear()
        live = live_of(server.serving)
        stop = whole["text"][20:23]
        lines = server.post("/generate", {**asked, "stop": stop, "stream": True}).text.splitlines()
        *tokens, last = [
            json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")
        ]
        ids = [event["token_id"] for event in tokens]
        assert (
            last["finish_reason"] == "stop"
            and whole["text"].startswith(last["text"])
            and stop not in last["text"]
        )
        texts = asyncio.run(_outputs(live, last["id"], len(ids)))
        found = sorted(decoded)
        prompt = server.serving.session().asked[last["id"]].prompt
    assert (
        len(texts) == len(ids)
        and "".join(texts).startswith(last["text"])
        and "".join(texts).endswith(stop)
    )
    # the prompts of both requests, which Live shows token by token
    assert found == sorted([*ids, *prompt, *prompt])
    assert checked == ["r"]


async def _outputs(live, request: str, count: int) -> list[str]:
    """The pieces of an answer as the Live tab gets them."""
    found: list[str] = []
    async for piece in events(live.event_log):
        for delta in messages_in(piece):
            found += (
                delta.get("texts", {}).get("output", {}).get(request, [])
                if "events" in delta
                else []
            )
        if len(found) >= count:
            return found
    raise AssertionError("the stream ended")
