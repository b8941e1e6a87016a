"""The bodies of calls, field by field: names and defaults of the server article for `/generate`, OpenAI's for `/v1`.

Features that this engine lacks are fields too, which must keep their neutral value; unknown fields are refused. No field is
silently ignored.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.errors import InvalidRequest
from core.workload.request import SamplingParams

Temperature = Annotated[float, Field(ge=0, le=100)]
Tokens = Annotated[int, Field(ge=1, lt=2**31)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Choices = Annotated[int, Field(ge=1, le=1024)]
TokenIds = list[Annotated[int, Field(strict=True)]]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Treat null as a field left out."""
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class _SamplingBody(_Body):
    """How tokens are chosen, see `SamplingParams`; OpenAI's names, and vLLM's where it has none."""

    temperature: Temperature = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop: str | list[str] = []
    ignore_eos: bool = False
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024)] | None = None

    def _params(self, max_tokens: int, seed: int, **more: Any) -> SamplingParams:
        given = self.model_dump(include=set(_SamplingBody.model_fields), exclude_none=True)
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        return SamplingParams(max_tokens, seed=seed, **{**given, "stop": stop, **more})


class GenerateBody(_SamplingBody):
    """`POST /generate`. Greedy unless a temperature is given."""

    prompt: str | TokenIds
    max_tokens: Tokens = 16
    stream: bool = False
    temperature: Temperature = 0.0
    seed: Seed = 0
    nickname: Annotated[str, Field(max_length=200)] | None = Field(None, description="Shown to viewers, unless hidden.")

    def sampling(self) -> SamplingParams:
        """Raises InvalidRequest for values out of range."""
        return self._params(self.max_tokens, self.seed)


class StreamOptions(_Body):
    """continuous_usage_stats: with include_usage, the usage so far with each event; vLLM's extension."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class _OpenAIBody(_SamplingBody):
    """What `/v1/completions` and `/v1/chat/completions` have in common. top_k and ignore_eos are vLLM's extensions.

    seed: drawn if none is given. The other fields are features that this engine lacks.
    """

    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Choices = 1
    seed: Seed = Field(default_factory=lambda: secrets.randbits(62))
    user: str | None = Field(None, description="Taken and not used.")

    def _refused(self) -> dict[str, Any]:
        """Fields of unsupported features, and their neutral values."""
        raise NotImplementedError

    def samplings(self, max_tokens: int) -> list[SamplingParams]:
        """One for each of the `n` choices, each with a seed of its own; raises InvalidRequest for values out of range."""
        for name, neutral in self._refused().items():
            if getattr(self, name) not in (None, neutral):
                raise InvalidRequest(f"{name} is not supported here: leave it out.")
        if "stream_options" in self.model_fields_set and not self.stream:
            raise InvalidRequest("stream_options needs stream: true.")
        top_k = max(0, self.top_k)  # vLLM writes -1 for all
        return [self._params(max_tokens, (self.seed + choice) % 2**63, top_k=top_k) for choice in range(self.n)]


class CompletionBody(_OpenAIBody):
    """`POST /v1/completions`. logprobs: for each chosen token, and for this many top tokens."""

    prompt: str | list[str] | TokenIds | list[TokenIds]
    max_tokens: Tokens = 16
    logprobs: TopLogprobs | None = None
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None

    def _refused(self) -> dict[str, Any]:
        return {"echo": False, "best_of": self.n, "suffix": ""}

    @property
    def prompts(self) -> list[str | TokenIds]:
        """The prompts one by one."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
            return [prompt]  # type: ignore[list-item]
        return list(prompt)


class TextPart(_Body):
    type: Literal["text"]
    text: str


class ChatMessage(_Body):
    role: Annotated[str, Field(max_length=32)]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def plain(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class ChatBody(_OpenAIBody):
    """`POST /v1/chat/completions`. Without max_tokens an answer may be as long as context and server allow."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs = 0
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None

    def _refused(self) -> dict[str, Any]:
        return {"tools": [], "response_format": {"type": "text"}}

    @property
    def num_top_logprobs(self) -> int:
        """Raises InvalidRequest for top_logprobs without logprobs."""
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs: true.")
        return self.top_logprobs
