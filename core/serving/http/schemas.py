"""The bodies of calls, field by field: names and defaults of the server article for `/generate`,
OpenAI's for `/v1`.

Other fields are refused, and fields of features that this engine lacks are accepted only with
values that have no effect. No field that could change an answer is silently ignored.
"""

import secrets
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from core.errors import InvalidRequest
from core.workload.request import SamplingParams

Temperature = Annotated[float, Field(ge=0, le=100)]
Tokens = Annotated[int, Field(ge=1, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Choices = Annotated[int, Field(ge=1, le=1024)]
TokenIds = list[int]
OF_FIELD = "of_field"  # an error whose message goes on after the field's name


def _must(be: str) -> Any:
    """Say what a value of several types must be, in place of each type's own message."""

    def refused_once(given: Any, check: Callable[[Any], Any]) -> Any:
        try:
            return check(given)
        except ValidationError:
            raise PydanticCustomError(OF_FIELD, f"must be {be}") from None

    return WrapValidator(refused_once)


def _at_most(most: int, of_what: str, count: Callable[[Any], int] = len) -> Any:
    """Refuse an overlong list or object before its content is validated."""

    def bounded(given: Any) -> Any:
        if isinstance(given, list | dict) and count(given) > most:
            raise PydanticCustomError(OF_FIELD, f"must have at most {most:,} {of_what}")
        return given

    return BeforeValidator(bounded)


def _num_prompts(given: Any) -> int:
    return len(given) if given and isinstance(given, list) and not isinstance(given[0], int) else 1


def _num_parts(messages: list[Any]) -> int:
    contents = (
        message.get("content") if isinstance(message, dict) else None for message in messages
    )
    return sum(max(1, len(content)) if isinstance(content, list) else 1 for content in contents)


_MOST = 1024  # choices of a call, stop strings, biases
_UNUSED = Field(None, description="Taken and not used.")
Stop = Annotated[str | list[str], _must("a text or a list of texts"), _at_most(_MOST, "texts")]
Prompt = Annotated[str | TokenIds, _must("a text or a list of token ids")]
Prompts = Annotated[
    str | list[str] | TokenIds | list[TokenIds],
    _must("a text, a list of token ids, or a list of either"),
    _at_most(_MOST, "prompts", _num_prompts),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    # by field: as good as left out, as null is everywhere
    neutral_values: ClassVar[dict[str, list[Any]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        told = {
            name: value
            for name, value in given.items()
            if value is not None and not cls._is_neutral(name, value)
        }
        # it is named; a thousand others would only take time
        unknown = next((name for name in told if name not in known), None)
        return {name: value for name, value in told.items() if name in known or name == unknown}

    @classmethod
    def _is_neutral(cls, name: str, value: Any) -> bool:
        # false is not 0
        return any(
            type(value) is type(one) and value == one for one in cls.neutral_values.get(name, ())
        )


class _SamplingBody(_Body):
    """How tokens are chosen, see `SamplingParams`; OpenAI's names, and vLLM's where it has none."""

    temperature: Temperature = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: Stop = []
    ignore_eos: bool = False
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    logit_bias: Annotated[dict[str, Bias], _at_most(_MOST, "token ids")] | None = None

    def _params(self, max_tokens: int, seed: int, **more: Any) -> SamplingParams:
        given = self.model_dump(include=set(_SamplingBody.model_fields), exclude_none=True)
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        return SamplingParams(max_tokens, seed=seed, **{**given, "stop": stop, **more})


class GenerateBody(_SamplingBody):
    """`POST /generate`. Greedy unless a temperature is given."""

    prompt: Prompt
    max_tokens: Tokens = 16
    stream: bool = False
    temperature: Temperature = 0.0
    seed: Seed = 0
    nickname: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="Shown to viewers, unless hidden."
    )

    def sampling(self) -> SamplingParams:
        """Raises InvalidRequest for values out of range."""
        return self._params(self.max_tokens, self.seed)


class StreamOptions(_Body):
    """continuous_usage_stats: with include_usage, usage so far with each event; vLLM's own."""

    neutral_values = {"include_obfuscation": [False]}

    include_usage: bool = False
    continuous_usage_stats: bool = False


class _OpenAIBody(_SamplingBody):
    """What `/v1/completions` and `/v1/chat/completions` have in common. top_k and ignore_eos are
    vLLM's extensions.

    seed: drawn if none is given.
    """

    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Choices = 1
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = Field(
        default_factory=lambda: secrets.randbits(62)
    )
    user: str | None = _UNUSED

    def samplings(self, max_tokens: int) -> list[SamplingParams]:
        """One for each of `n` choices, with its own seed; raises InvalidRequest out of range."""
        if "stream_options" in self.model_fields_set and not self.stream:
            raise InvalidRequest("stream_options needs stream: true.", param="stream_options")
        top_k = max(0, self.top_k)  # vLLM writes -1 for all
        return [
            self._params(max_tokens, (self.seed + choice) % 2**63, top_k=top_k)
            for choice in range(self.n)
        ]


class CompletionBody(_OpenAIBody):
    """`POST /v1/completions`. logprobs: for each chosen token, and for this many top tokens."""

    neutral_values = {"echo": [False], "suffix": [""]}

    prompt: Prompts
    max_tokens: Tokens = 16
    logprobs: TopLogprobs | None = None
    best_of: int | None = None

    def samplings(self, max_tokens: int) -> list[SamplingParams]:
        if self.best_of not in (None, self.n):
            raise InvalidRequest("best_of is not supported here, other than n.", param="best_of")
        return super().samplings(max_tokens)

    @property
    def prompts(self) -> list[str | TokenIds]:
        """The prompts one by one."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)


class TextPart(_Body):
    """A part of a message's content, as OpenAI sends it."""

    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    """An assistant's message may have no content; `name` is for templates that use it."""

    neutral_values = {"tool_calls": [[]], "annotations": [[]]}

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str | list[TextPart], _must("a text or a list of text parts")] | None = (
        Field(None, validate_default=True)
    )
    name: str | None = None

    @field_validator("content")
    @classmethod
    def _said(cls, content: Any, message: ValidationInfo) -> Any:
        if content is None and message.data.get("role") != "assistant":
            raise PydanticCustomError(OF_FIELD, "is missing")
        return content

    @property
    def plain(self) -> dict[str, str]:
        """As chat templates read it: few know developers, and most drop what they do not know."""
        content = self.content or ""
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": content, **named}


class ChatBody(_OpenAIBody):
    """`POST /v1/chat/completions`. max_tokens: by default as many as have room and are allowed."""

    neutral_values = {
        "tools": [[]],
        "tool_choice": ["none", "auto"],
        "functions": [[]],
        "function_call": ["none", "auto"],
        "response_format": [{"type": "text"}],
        "modalities": [["text"]],
        "reasoning_effort": ["none"],
        "verbosity": ["medium"],
        "service_tier": ["auto", "default"],
        "store": [False],
    }

    messages: Annotated[
        list[ChatMessage],
        Field(min_length=1),
        FailFast(),
        _at_most(4 * _MOST, "messages and parts", _num_parts),
    ]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs = 0
    parallel_tool_calls: bool | None = _UNUSED
    metadata: Annotated[dict[str, str], _at_most(16, "entries")] | None = _UNUSED
    prompt_cache_key: str | None = _UNUSED
    safety_identifier: str | None = _UNUSED

    @property
    def engines_names(self) -> dict[str, str]:
        """This body's fields by the names of those that the engine refuses instead."""
        return {"prompt": "messages"} | (
            {"max_tokens": "max_completion_tokens"} if self.max_completion_tokens else {}
        )

    @property
    def most_new_tokens(self) -> int | None:
        """Raises InvalidRequest where it is given twice, and not the same."""
        if None not in (new := (self.max_completion_tokens, self.max_tokens)) and new[0] != new[1]:
            raise InvalidRequest(
                "max_tokens and max_completion_tokens are not the same.",
                param="max_completion_tokens",
            )
        return new[0] or new[1]

    @property
    def num_top_logprobs(self) -> int:
        """Raises InvalidRequest for top_logprobs without logprobs."""
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true.", param="top_logprobs")
        return self.top_logprobs


class ErrorDetail(BaseModel):
    """param: the field at fault. code: OpenAI's, for what its clients tell apart."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The answer of every refusal, see `core.serving.http.errors`."""

    error: ErrorDetail
