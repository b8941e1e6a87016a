"""Conversations without a chat template, where none can be run: the text that a template writes
between two messages depends only on their roles, and is found once by running the template.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product

from core.errors import UnsupportedModel
from core.workload.request import ROLES, Message

Between = Mapping[str, Mapping[str, str]]
"""The text between a message of one role and a message of another. The role "" stands for the
beginning of the conversation and for the answer.
"""
_SAID = ("what is said first", "what is said then")
_TRIED = (
    (("user", "Hello!"),),
    (("system", " Be brief.\n"), ("user", "")),
    (("user", "<|im_end|>"), ("assistant", "\n"), ("user", "{{ no }}"), ("user", "  ")),
    (("system", "é"), ("assistant", "日本"), ("system", "a"), ("assistant", "b"), ("user", "c")),
)


def worked_out(write: Callable[[Sequence[Message]], str]) -> Between:
    """The texts between roles. write: the text that the template makes of messages. Raises
    UnsupportedModel for a template that looks at more than the roles.
    """
    between: dict[str, dict[str, str]] = {role: {} for role in ("", *ROLES)}
    for roles in product(ROLES, ROLES):
        before, _, rest = write(_messages(zip(roles, _SAID, strict=True))).partition(_SAID[0])
        middle, _, after = rest.partition(_SAID[1])
        for places, text in zip(pairwise(("", *roles, "")), (before, middle, after), strict=True):
            between[places[0]][places[1]] = text
    for tried in map(_messages, _TRIED):
        if written(between, tried) != write(tried):
            raise UnsupportedModel(
                "A browser writes no chat template that looks at more than roles."
            )
    return between


def written(between: Between, messages: Sequence[Message]) -> str:
    """The text of a conversation, up to where the answer begins."""
    gaps = [between[a][b] for a, b in pairwise(("", *(m["role"] for m in messages), ""))]
    said = (m["content"] + gap for m, gap in zip(messages, gaps[1:], strict=True))
    return gaps[0] + "".join(said)


def _messages(said: Iterable[tuple[str, str]]) -> list[Message]:
    return [{"role": role, "content": content} for role, content in said]
