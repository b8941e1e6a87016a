"""The cost of a forward pass by data sheet, for a model on one accelerator or on several that share
it (tensor parallelism).

    cost = Roofline.named("h100", "8b")
    cost = Roofline.named("h100x4", "70b")

    seconds = overhead
            + max(reading the weights, computing the tokens)
            + max(reading the KV, computing the pairs that attend)
            + two all-reduces a layer, if cards share the model

docs/simulation.md derives each part and computes some passes by hand.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from core.config import Execution
from core.errors import InflightError, require, shown
from core.simulate.cost import Coefficients, Deployment, Load
from core.simulate.datasheets import (
    ACCELERATORS,
    ALL_REDUCE_S,
    MODELS,
    MOST_CARDS,
    NCCL,
    Accelerator,
    Model,
)

BYTES = 2  # of a weight, of a number in the KV cache, of a number in a hidden state
_ALL_REDUCES = 2  # in a layer: after attention, after the MLP


@dataclass(frozen=True)
class Roofline:
    """A model on one card or several cards of a server. Raises InflightError if it does not fit.

    Some numbers are assumptions and come from no data sheet. reached: the share of each peak number
    that is reached in practice. overhead_s: seconds that each pass takes besides. memory_share: the
    share of each card's memory that may be used.
    """

    accelerator: str
    size: str
    cards: int = 1
    reached: float = 0.6
    overhead_s: float = 200e-6
    memory_share: float = Execution.gpu_memory_utilization

    def __post_init__(self) -> None:
        for name, known, kind in (
            (self.accelerator, ACCELERATORS, "accelerator"),
            (self.size, MODELS, "model size"),
        ):
            if require(name, str, f"The {kind} is a name") not in known:
                raise InflightError(
                    f"There is no {kind} {name!r} on record; there are {', '.join(known)}."
                )
        for share in (self.reached, self.memory_share, self.overhead_s):
            require(share, (int, float), "A share, and a number of seconds, is a number")
        if not (
            0 < self.reached <= 1
            and 0 < self.memory_share <= 1
            and 0 <= self.overhead_s < float("inf")
        ):
            raise InflightError(
                "reached and memory_share are shares, above 0 and at most 1, and overhead_s is 0"
                f" seconds or more, not {shown(self.reached)}, {shown(self.memory_share)} and"
                f" {shown(self.overhead_s)}."
            )
        if self.cards not in self._possible():
            raise InflightError(
                f"{self.model.title} cannot be shared by {shown(self.cards)} of"
                f" {self.accelerator}; write "
                f"{', '.join(_spelled(self.accelerator, self.size, n) for n in self._possible())}."
            )
        if self.kv_bytes < self.kv_bytes_per_token:
            raise InflightError(
                f"{self.name}: the weights of {self.model.title} take"
                f" {self.weight_bytes / 1e9:,.1f} GB, and {100 * self.memory_share:g} % of its"
                f" memory is {self.memory_bytes / 1e9:,.1f} GB; {self._fitting()}."
            )

    @classmethod
    def named(cls, accelerator: str, size: str) -> Self:
        """A cost by names such as `h100` and `8b`, in lower or upper case; with a number after an
        x, so many cards share the model: `h100x4` and `70b`.

        Raises InflightError for an unknown name, and for a model that does not fit.
        """
        for name in (accelerator, size):
            require(name, str, "A card, like a model size, is a name")
        name, cards = re.fullmatch(r"(.*?)(?:x(\d{1,4}))?", accelerator.lower(), re.DOTALL).groups()  # type: ignore[union-attr]
        return cls(name, size.lower(), int(cards or 1))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; raises InflightError for other data, and for a cost from data
        sheets whose numbers differ from those here.
        """
        try:
            spelled = str(data["name"]).partition(":")
            reached, overhead_s, memory_share = (
                float(data[name]) for name in ("reached", "overhead_s", "memory_share")
            )
        except (KeyError, TypeError, ValueError):
            raise InflightError("It is no cost by data sheet.") from None
        known = cls.named(spelled[0], spelled[2])
        made = replace(known, reached=reached, overhead_s=overhead_s, memory_share=memory_share)
        if json.loads(json.dumps(made.to_json())) != dict(data):
            raise InflightError("It is a cost by other data sheets than those here.")
        return made

    @property
    def name(self) -> str:
        """Its name as given to a command: `h100:8b`."""
        return _spelled(self.accelerator, self.size, self.cards)

    @property
    def card(self) -> Accelerator:
        """The data sheet of one card."""
        return ACCELERATORS[self.accelerator]

    @property
    def model(self) -> Model:
        """The model as its card describes it."""
        return MODELS[self.size]

    # -- bytes -------------------------------------------------------------------------------------

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights on all cards together."""
        return BYTES * self.model.parameters

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of a token, over all layers."""
        return 2 * BYTES * self.model.layers * self.model.kv_heads * self.model.head_size

    @property
    def memory_bytes(self) -> float:
        """Bytes of all cards' memory that may be used."""
        return self.memory_share * self.cards * self.card.memory_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes that the weights leave for the KV pool."""
        return int(self.memory_bytes) - self.weight_bytes

    @property
    def deployment(self) -> Deployment:
        """See `Cost`."""
        hardware = f"{self.cards} × {self.card.title}" if self.cards > 1 else self.card.title
        device, model = self.name.partition(":")[0], self.model
        sizes = model.parameters, model.vocab_size, model.context
        return Deployment(model.title, device, hardware, *sizes, self.kv_bytes)

    # -- seconds -----------------------------------------------------------------------------------

    @property
    def flops_per_token(self) -> int:
        """Operations per token: a multiplication and an addition for each weight."""
        return 2 * self.model.parameters

    @property
    def flops_per_pair(self) -> int:
        """Operations for a query and a key in all heads and layers: scores and values."""
        return 4 * self.model.layers * self.model.heads * self.model.head_size

    @cached_property
    def coefficients(self) -> Coefficients:
        """See `Cost`: all cards with all-reduces. Reading KV and computing pairs overlap."""
        flops, read = (
            self.cards * self.reached * peak for peak in (self.card.flops, self.card.bytes_per_s)
        )
        hops, sent = 0.0, 0.0
        if self.card.link is not None and self.cards > 1:
            count, ring = _ALL_REDUCES * self.model.layers, 2 * (self.cards - 1)
            hops = count * (ALL_REDUCE_S + ring * self.card.link.hop_s)
            size = ring / self.cards * BYTES * self.model.hidden_size
            sent = count * size / (self.reached * self.card.link.bytes_per_s)
        return Coefficients(
            base_s=self.overhead_s + hops,
            per_token_s=self.flops_per_token / flops,
            per_kv_byte_s=1 / read,
            per_pair_s=self.flops_per_pair / flops,
            weights_s=self.weight_bytes / read,
            sent_per_token_s=sent,
            exposed=0.0,
        )

    def seconds(self, load: Load) -> float:
        """See `Cost`."""
        return self.coefficients.seconds(load)

    def beyond(self, load: Load) -> bool:
        """See `Cost`: nothing was measured, so no load is outside of it."""
        return False

    # -- in words ----------------------------------------------------------------------------------

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences that have to stand beside every result."""
        shared = f", shared by {self.cards} cards" if self.cards > 1 else ""
        return (
            (
                f"Nothing was measured: times follow from the data sheet of {self.card.title} and"
                f" the config of {self.model.title}{shared}, by the formula in docs/simulation.md."
            ),
            (
                f"Assumed: {100 * self.reached:g} % of each peak number is reached, each pass takes"
                f" {self.overhead_s * 1e6:g} µs besides, weights and KV have 16 bits, and"
                f" {100 * self.memory_share:g} % of memory may be used."
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """See `Cost`; every number that enters `seconds`, with its source."""
        card, model, link = self.card, self.model, self.card.link
        return {
            "kind": "data sheet",
            "name": self.name,
            "assumptions": list(self.assumptions),
            "accelerator": (
                card._asdict() | {"link": link and link._asdict(), "source": card.source._asdict()}
            ),
            "cards": self.cards,
            "model": model._asdict() | {"source": model.source._asdict()},
            "reached": self.reached,
            "overhead_s": self.overhead_s,
            "memory_share": self.memory_share,
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "flops_per_token": self.flops_per_token,
            "flops_per_pair": self.flops_per_pair,
            **(
                {"all_reduce_s": ALL_REDUCE_S, "all_reduce_source": NCCL._asdict()}
                if self.cards > 1
                else {}
            ),
        }

    # -- what fits ---------------------------------------------------------------------------------

    def _possible(self) -> list[int]:
        """The numbers of cards that can share the model, each with whole heads."""
        most = MOST_CARDS if self.card.link else 1
        return [cards for cards in range(1, most + 1) if self.model.kv_heads % cards == 0]

    def _fitting(self) -> str:
        """A clause on the fewest cards that hold the weights, and the memory left."""
        each = self.memory_bytes / self.cards
        left = ((cards, cards * each - self.weight_bytes) for cards in self._possible())
        for cards, room in left:
            if room > 0:
                return (
                    f"{_spelled(self.accelerator, self.size, cards)} has room, with"
                    f" {room / 1e9:,.1f} GB for the KV pool"
                )
        return "no number of cards has room"


def _spelled(accelerator: str, size: str, cards: int) -> str:
    return f"{accelerator}{f'x{cards}' if cards > 1 else ''}:{size}"
