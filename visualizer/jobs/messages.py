"""Prompts as messages: a request's `messages` (role and content) in place of its prompt, as the chat template of the run's model writes them.

The engine gets token ids, and the page draws the tokens of the template as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.errors import InvalidRequest
from core.workload.request import Request, is_text
from core.workload.workload import Workload

ROLES = ("system", "user", "assistant")
_MOST_MESSAGES = 64

Message = dict[str, str]
Conversations = Mapping[str, list[Message]]
"""By request."""


def without_conversations(workload: object) -> tuple[object, Conversations]:
    """A workload as JSON in which every conversation (`messages` in place of a prompt) is replaced by its text, and the conversations; raises InvalidRequest."""
    if not isinstance(workload, dict) or not isinstance(workload.get("requests"), list):
        return workload, {}
    plain: list[object] = []
    found: dict[str, list[Message]] = {}
    for request in workload["requests"]:
        if not isinstance(request, dict) or "messages" not in request:
            plain.append(request)
            continue
        who = str(request.get("id"))
        messages = _checked(request["messages"], who)
        if "prompt" in request or "prompt_token_ids" in request:
            raise InvalidRequest("it has messages and a prompt; give one of the two.", who)
        found[who] = messages
        kept = {name: value for name, value in request.items() if name != "messages"}
        plain.append({**kept, "prompt": "\n".join(message["content"] for message in messages)})
    return {**workload, "requests": plain}, found


def _checked(messages: object, who: str) -> list[Message]:
    if not isinstance(messages, list) or not 0 < len(messages) <= _MOST_MESSAGES:
        raise InvalidRequest(f"it needs from 1 to {_MOST_MESSAGES} messages.", who)
    for message in messages:
        if (
            not isinstance(message, dict)
            or set(message) != {"role", "content"}
            or message["role"] not in ROLES
        ):
            raise InvalidRequest(
                f"a message has a role ({', '.join(ROLES)}) and a content, nothing else.", who
            )
        if not is_text(message["content"]) or not message["content"]:
            raise InvalidRequest("it has an empty message.", who)
    return messages


def rendered(
    workload: Workload, conversations: Conversations, tokenizer: Any, model: str
) -> Workload:
    """The workload with each conversation as the token ids that the model's chat template makes of it; raises InvalidRequest."""
    if not conversations:
        return workload
    from core.models.tokenizer import chat_ids, chat_text

    def with_ids(request: Request) -> Request:
        if request.id not in conversations:
            return request
        if not getattr(tokenizer, "chat_template", None):  # the built-in models have none
            raise InvalidRequest(
                f"the model {model} has no chat template, so its prompts must be text.", request.id
            )
        try:
            ids = chat_ids(tokenizer, chat_text(tokenizer, conversations[request.id]))
        except InvalidRequest as error:
            raise InvalidRequest(error.message, request.id) from None
        return replace(request, prompt=None, prompt_token_ids=ids)

    return Workload(map(with_ids, workload), workload.name, workload.arrival_unit)
