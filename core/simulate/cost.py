"""What determines the cost of a forward pass, and what a cost model answers. From data sheets: `roofline`; from measured passes: `fitted`; by name: `named`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Load(NamedTuple):
    """What determines a pass's cost: positions computed (including pads), bytes of KV read, and pairs of a query and a key that it attends to."""

    tokens: int
    kv_bytes: int
    pairs: int = 0

    @staticmethod
    def pairs_of(length: int, kv_len: int) -> int:
        """Pairs of the last `length` of `kv_len` positions, each of which attends to itself and to all before it."""
        return length * (2 * kv_len - length + 1) // 2


class Deployment(NamedTuple):
    """The model that a cost model stands for, and what it runs on. device: in a word; hardware: in words.

    context: the most tokens of a request; vocab_size; parameters. None where nothing is known of it. kv_bytes: of memory left for the KV pool, None for no
    limit. dtype: of weights and KV.
    """

    model: str | None = None
    device: str = "cpu"
    hardware: str = ""
    parameters: int | None = None
    vocab_size: int | None = None
    context: int | None = None
    kv_bytes: int | None = None
    dtype: str = "float16"


class Cost(Protocol):
    """What a pass costs: all that a `SimulatedEngine` asks in place of a model."""

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
        """What a trace's header says of it under `cost`; `assumptions` in it are sentences to be read beside every result."""
