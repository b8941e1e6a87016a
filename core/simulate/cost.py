"""The cost of a forward pass: one formula, whose coefficients come from data sheets (`roofline`) or
from measured passes (`fitted`). `named` finds a cost by its name.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable


class Load(NamedTuple):
    """What determines the cost of a pass: the positions computed (pads included), the bytes of KV
    read, and the pairs of a query and a key that it attends to.
    """

    tokens: int
    kv_bytes: int
    pairs: int = 0

    @staticmethod
    def pairs_of(length: int, kv_len: int) -> int:
        """Pairs of the last `length` of `kv_len` positions, under a causal mask."""
        return length * (2 * kv_len - length + 1) // 2


class Deployment(NamedTuple):
    """The model of a cost model, and its hardware. device: a short name; hardware: a description.

    context: the most tokens of a request. context, vocab_size and parameters are None if unknown.
    kv_bytes: memory left for the KV pool, None for no limit. dtype: of weights and KV.
    """

    model: str | None = None
    device: str = "cpu"
    hardware: str = ""
    parameters: int | None = None
    vocab_size: int | None = None
    context: int | None = None
    kv_bytes: int | None = None
    dtype: str = "float16"


class Coefficients(NamedTuple):
    """The seconds of a pass are a sum: base_s, which every pass takes; the longer of reading the
    weights and computing the tokens; the longer of reading the KV and computing the pairs, plus the
    share `exposed` of the shorter; and what cards send each other for each token.
    """

    base_s: float
    per_token_s: float
    per_kv_byte_s: float
    per_pair_s: float = 0.0
    weights_s: float = 0.0
    sent_per_token_s: float = 0.0
    exposed: float = 1.0

    def seconds(self, load: Load) -> float:
        """How long a pass of this load takes."""
        tokens = load.tokens
        read, paired = self.per_kv_byte_s * load.kv_bytes, self.per_pair_s * load.pairs
        longer, shorter = (read, paired) if read > paired else (paired, read)
        return (
            self.base_s
            + max(self.weights_s, self.per_token_s * tokens)
            + longer
            + self.exposed * shorter
            + self.sent_per_token_s * tokens
        )


@runtime_checkable
class Cost(Protocol):
    """The protocol of a cost: all that a `SimulatedEngine` needs in place of a model."""

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V that a token takes, over all layers."""

    @property
    def deployment(self) -> Deployment:
        """The model and the hardware that it stands for."""

    def seconds(self, load: Load) -> float:
        """How long a pass of this load takes."""

    def beyond(self, load: Load) -> bool:
        """Whether this load is outside what was measured."""

    def to_json(self) -> dict[str, Any]:
        """The header's `cost`; its `assumptions` belong to every result."""
