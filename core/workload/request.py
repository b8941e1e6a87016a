"""`Request` and `SamplingParams`, frozen. The scheduler tracks a request's progress."""

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from core.errors import InvalidRequest, require, shown

Message = Mapping[str, str]
"""What one side of a conversation says: its role, of `ROLES`, and its content."""
ROLES = ("system", "user", "assistant")
LATEST = 10**15  # steps or seconds: a request arrives by then
FinishReason = Literal["length", "stop", "cancelled", "error"]
Phase = Literal["prefill", "decode"]


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    try:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:  # a whole number larger than any float
        return False


def _is_int(value: object, least: int, most: int = 2**31 - 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_within(value: Any, least: float, most: float = math.inf) -> bool:
    return is_number(value) and least <= value <= most


def is_text(value: object) -> bool:
    """Whether a value is a string with a UTF-8 form, so without lone surrogates."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are chosen, with the parameters' meanings in transformers and vLLM.

    Logits are changed first: `logit_bias` (token id to what is added) is added;
    `repetition_penalty` divides the positive logits of every token in prompt and answer so far and
    multiplies the negative ones; `frequency_penalty` is subtracted for each time that a token was
    generated, `presence_penalty` once. Then temperature 0 takes the best; any other draws from
    softmax(logits ÷ temperature) over the `top_k` most probable, of these over the fewest that
    reach `top_p` of their mass, of these over tokens at least `min_p` times as likely as the best.
    Noise is keyed by (seed, position), so the text does not depend on who shares the batch.

    `stop` strings end the request once they appear in its text; `ignore_eos` continues past the
    end-of-sequence token. Defaults switch everything off. Raises InvalidRequest for a value out of
    range.
    """

    max_new_tokens: int = 32
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        if isinstance(self.stop, (list, tuple)):
            object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "logit_bias", _pairs(self.logit_bias))
        checks = (
            (
                _is_int(self.max_new_tokens, 1),
                "max_new_tokens must be a whole number from 1 to 2^31 - 1",
            ),
            (_is_within(self.temperature, 0), "temperature must be a finite number of at least 0"),
            (_is_int(self.top_k, 0), "top_k must be a whole number from 0 to 2^31 - 1"),
            (is_number(self.top_p) and 0 < self.top_p <= 1, "top_p must be above 0 and at most 1"),
            (_is_int(self.seed, 0, 2**63 - 1), "seed must be a whole number from 0 to 2^63 - 1"),
            (
                isinstance(self.stop, tuple) and all(is_text(s) and s for s in self.stop),
                "stop must be a list of non-empty strings",
            ),
            (isinstance(self.ignore_eos, bool), "ignore_eos must be true or false"),
            (_is_within(self.min_p, 0, 1), "min_p must be from 0 to 1"),
            (
                _is_within(self.repetition_penalty, 0.01, 100),
                "repetition_penalty must be from 0.01 to 100",
            ),
            (_is_within(self.presence_penalty, -2, 2), "presence_penalty must be from -2 to 2"),
            (_is_within(self.frequency_penalty, -2, 2), "frequency_penalty must be from -2 to 2"),
            (
                _is_bias(self.logit_bias),
                "logit_bias must give token ids, each once, and for each a number from -100 to 100",
            ),
        )
        for (ok, sentence), f in zip(checks, fields(self), strict=True):
            if not ok:
                raise InvalidRequest(f"{sentence}, not {shown(given[f.name])}.", param=f.name)

    @property
    def may_stop(self) -> bool:
        """Whether the request can end before it has all its tokens."""
        return not self.ignore_eos or bool(self.stop)

    def ends_with(self, token: int, end_tokens: Container[int]) -> bool:
        """Whether a token ends the request. end_tokens: those that end a text of its model."""
        return token in end_tokens and not self.ignore_eos

    def to_length(self, tokens: int) -> Self:
        """The same for exactly this many tokens, whichever they are."""
        return replace(self, max_new_tokens=tokens, stop=(), ignore_eos=True)

    @property
    def looks_back(self) -> bool:
        """Whether the choice depends on the tokens so far, beyond the model's own logits."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        return self.looks_back or bool(self.logit_bias)

    @property
    def filters(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)


def _pairs(bias: object) -> object:
    """A logit bias as pairs, however it was given: as a mapping, ids as text or not, or pairs."""
    if isinstance(bias, Mapping):
        bias = [
            (int(k) if isinstance(k, str) and re.fullmatch("[0-9]{1,10}", k) else k, v)
            for k, v in bias.items()
        ]
    if isinstance(bias, (list, tuple)):
        return tuple(tuple(pair) if isinstance(pair, (list, tuple)) else pair for pair in bias)
    return bias


def _is_bias(pairs: object) -> bool:
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in pairs
    ):
        return False
    ids = [i for i, _ in pairs]
    whole = all(_is_int(i, 0) for i in ids) and len(set(ids)) == len(ids)
    return whole and all(_is_within(value, -100, 100) for _, value in pairs)


@dataclass(frozen=True)
class Request:
    """One unit of work: a prompt as text, as token ids or as messages that the model's chat
    template writes, how to sample, and when it arrives (in steps or seconds).

    priority: for policies that order by it, the lower, the sooner. leaves_after: so long after its
    arrival, in the same unit, its client leaves if it has not finished; None for one that stays.

    Raises InvalidRequest for an empty or doubly given prompt, an empty id, an arrival that is
    negative, not a number or beyond `LATEST`, a priority that is not a whole number, or a
    departure that is not after the arrival.
    """

    id: str
    prompt: str | None = None
    prompt_token_ids: Sequence[int] | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    arrival: float = 0
    messages: Sequence[Message] | None = None
    priority: int = 0
    leaves_after: float | None = None

    def __post_init__(self) -> None:
        if not is_text(self.id) or not self.id:
            raise InvalidRequest(f"A request id must be a non-empty string, not {shown(self.id)}.")
        if not isinstance(self.sampling, SamplingParams):
            raise InvalidRequest(
                f"sampling must be SamplingParams, not {type(self.sampling).__name__}.", self.id
            )
        given = (self.prompt, self.prompt_token_ids, self.messages)
        if sum(one is not None for one in given) != 1:
            raise InvalidRequest(
                "a prompt, prompt_token_ids or messages are needed, one of the three.", self.id
            )
        if self.messages is not None:
            self._check_messages()
        elif self.prompt_token_ids is not None:
            ids = self.prompt_token_ids
            most = 10**18 - 1
            if not isinstance(ids, (list, tuple)) or not all(_is_int(i, -most, most) for i in ids):
                raise InvalidRequest(
                    "the prompt's token ids must be a list of whole numbers of at most 18 digits.",
                    self.id,
                    param="prompt",
                )
            object.__setattr__(self, "prompt_token_ids", tuple(ids))
        elif not is_text(self.prompt):
            raise InvalidRequest(
                f"the prompt must be text, not {shown(self.prompt)}.", self.id, param="prompt"
            )
        if not self.prompt and not self.prompt_token_ids and not self.messages:
            raise InvalidRequest("the prompt is empty.", self.id, param="prompt")
        if not _is_within(self.arrival, 0, LATEST):
            raise InvalidRequest(
                f"arrival must be a number from 0 to {LATEST:,}, not {shown(self.arrival)}.",
                self.id,
            )
        if not _is_int(self.priority, 1 - 2**31):
            raise InvalidRequest(
                f"priority must be a whole number, not {shown(self.priority)}.", self.id
            )
        leaves = self.leaves_after
        if leaves is not None and not (is_number(leaves) and leaves > 0):
            raise InvalidRequest(
                f"leaves_after must be a finite number above 0, not {shown(leaves)}.", self.id
            )

    def _check_messages(self) -> None:
        if not isinstance(self.messages, (list, tuple)):
            raise InvalidRequest("messages must be a list.", self.id, param="messages")
        for message in self.messages:
            if (
                not isinstance(message, Mapping)
                or set(message) != {"role", "content"}
                or message["role"] not in ROLES
            ):
                raise InvalidRequest(
                    f"a message has a role ({', '.join(ROLES)}) and a content, nothing else.",
                    self.id,
                    param="messages",
                )
            if not is_text(message["content"]) or not message["content"]:
                raise InvalidRequest("it has an empty message.", self.id, param="messages")
        object.__setattr__(self, "messages", tuple(map(dict, self.messages)))

    @property
    def has_text(self) -> bool:
        """Whether its prompt has yet to be tokenized."""
        return self.prompt_token_ids is None

    def of_tokens(self, ids: Sequence[int]) -> Self:
        """The same request with these token ids as its prompt."""
        given = tuple(require(ids, Iterable, "The ids of tokens are a list"))
        return replace(self, prompt=None, messages=None, prompt_token_ids=given)

    def to_json(self) -> dict[str, Any]:
        """JSON: the fields that were given, and sampling parameters that differ from defaults."""
        default = asdict(SamplingParams())
        sampling = {
            k: v
            for k, v in asdict(self.sampling).items()
            if v != default[k] or k == "max_new_tokens"
        }
        data = {"id": self.id, "sampling": sampling, "arrival": self.arrival}
        data |= {"priority": self.priority} if self.priority else {}
        data |= {} if self.leaves_after is None else {"leaves_after": self.leaves_after}
        if self.prompt is not None:
            data["prompt"] = self.prompt
        if self.prompt_token_ids is not None:
            data["prompt_token_ids"] = list(self.prompt_token_ids)
        if self.messages is not None:
            data["messages"] = list(self.messages)
        return data

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Inverse of `to_json`; raises InvalidRequest for other data or an unknown field."""
        if not isinstance(data, dict):
            raise InvalidRequest(f"A request must be an object, not {type(data).__name__}.")
        _refuse_unknown(data, cls, f"Request {shown(data['id'])}" if "id" in data else "A request")
        if "id" not in data:
            raise InvalidRequest("A request needs an id.")
        sampling = data.get("sampling", {})
        if not isinstance(sampling, dict):
            raise InvalidRequest("sampling must be an object.", _name(data["id"]))
        _refuse_unknown(sampling, SamplingParams, f"The sampling of request {shown(data['id'])}")
        try:
            params = SamplingParams(**sampling)
        except InvalidRequest as error:
            raise InvalidRequest(error.message, _name(data["id"])) from None
        return cls(**{**data, "sampling": params})


def _name(given: object) -> str:
    return given if isinstance(given, str) else shown(given)


def _refuse_unknown(data: dict[str, Any], cls: type, what: str) -> None:
    known = [f.name for f in fields(cls)]
    if unknown := set(data) - set(known):
        raise InvalidRequest(
            f"{what} has no field {shown(min(unknown, key=str))}; there are {', '.join(known)}."
        )
