"""An engine in a browser's tab: `EngineCore(BrowserExecutor(model, machine), tokenizer, config)`. A
JavaScript object of the class `Model` (`assets/engine/model.js`) computes the passes; here a pass
becomes plain numbers, and its answer a `PassResult`.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from core.config import EngineConfig
from core.engine.runner import PassResult, SamplingRow, as_samples, sampling_rows
from core.errors import InflightError, InvalidConfig, shown
from core.scheduler.output import SchedulerOutput
from core.trace.header import ModelFacts
from core.workload.request import SamplingParams

MOST_POOL = 2**27  # bytes: a phone's tab has few hundred MB
_NOBODY = -1


class BrowserModel(Protocol):
    """The interface of `Model` in `model.js`. facts: `ModelFacts` as JSON. heads: query heads of a
    layer. threads: the number that compute. tokenizer, between: of a model that brings them, see
    `PlainTokenizer`; otherwise "" and "null".

    It returns numbers as an object whose `to_py()` is a buffer of float64.
    """

    facts: str
    heads: int
    threads: int
    tokenizer: str
    between: str

    def pool(self, slots: int) -> int:
        """Make room for the K and V of so many tokens, discarding what was kept before. Returns a
        number with which the passes on this pool begin.
        """

    def compute(self, told: array[int], rows: str) -> Any:
        """Compute one pass, see `BrowserRunner.launch`."""

    def attention(self, ids: array[int], layer: int, head: int) -> Any:
        """The weights of one head over a text: for each token, a weight for every token."""


class BrowserExecutor:
    """The `Executor` of a model in a tab.

    machine: "device_name" and "versions" of the trace's header. leaks: every request also reads the
    keys of the next one in its pass, the mistake of `core.proof.mistakes.leaky`; traces say so.
    """

    memory_sentence = ""

    def __init__(
        self, model: BrowserModel, machine: Mapping[str, Any], leaks: bool = False
    ) -> None:
        known = json.loads(model.facts)
        lists = {name: tuple(known[name]) for name in ("eos_token_ids", "windows")}
        self.model = ModelFacts(**known | lists)
        facts = {"device": "cpu", "threads": model.threads, "dtype": "float32"}
        self.header = {**facts, **machine, "leak": leaks}
        self._computes, self._leaks = model, leaks

    def check_config(self, config: EngineConfig) -> None:
        """See `Executor`: refuses a pool larger than a tab should hold."""
        size = (config.num_blocks or 0) * self._block_bytes(config)
        if size > MOST_POOL:
            raise InvalidConfig(
                f"A KV pool of {config.num_blocks:,} blocks of {config.block_size} tokens takes"
                f" {size / 2**20:,.0f} MiB; in a browser's tab it may take"
                f" {MOST_POOL / 2**20:,.0f} MiB."
            )

    def most_blocks(self, config: EngineConfig, longest: int, drop_pool: Callable[[], None]) -> int:
        """See `Executor`."""
        return MOST_POOL // self._block_bytes(config)

    def new_runner(
        self, config: EngineConfig, num_blocks: int, clock: Callable[[], float]
    ) -> BrowserRunner:
        """See `Executor`."""
        return BrowserRunner(self._computes, num_blocks, config.block_size, clock, self._leaks)

    def failure(self, error: Exception) -> str | None:
        """See `Executor`: a tab can only run out of memory."""
        said = str(error)  # each browser words it differently
        no_room = isinstance(error, MemoryError) or (
            "RangeError" in said and "memory" in said.lower()
        )
        return "the tab ran out of memory" if no_room else None

    def attention(self, token_ids: Sequence[int], layer: int, head: int) -> list[list[float]]:
        """The weights of one head over a text by itself: a row for each token, with a column for
        each token. A run may be in progress.

        Raises InflightError for a head that does not exist.
        """
        if not 0 <= head < self._computes.heads:
            raise InflightError(
                f"Layer {layer} hands out {self._computes.heads} heads, so there is no head"
                f" {shown(head)}."
            )
        length = len(token_ids)
        weights = self._computes.attention(array("i", token_ids), layer, head).to_py().tolist()
        return [weights[row : row + length] for row in range(0, length * length, length)]

    def _block_bytes(self, config: EngineConfig) -> int:
        return config.block_size * (self.model.kv_bytes_per_token or 1)


class BrowserRunner:
    """The `Runner` of a model in a tab; computes passes at once. leaks: see `BrowserExecutor`."""

    asynchronous = own_clock = False
    execution = memory = None
    notes: Sequence[str] = ()

    def __init__(
        self,
        model: BrowserModel,
        num_blocks: int,
        block_size: int,
        clock: Callable[[], float] = time.perf_counter,
        leaks: bool = False,
    ) -> None:
        self._model, self._block_size, self._clock, self._leaks = model, block_size, clock, leaks
        self._slots = num_blocks * block_size
        self.begin()  # allocates the memory now, so that a failure is raised here

    def begin(self) -> None:
        """See `Runner`. A model has one pool, which belongs to the run that began last."""
        self._owner = self._model.pool(self._slots)

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """See `Runner`. A pass is encoded in integers: the number of its pool, tokens in a block,
        the number of requests, and for each request

        pads before it · its tokens · position of the first · the request whose keys it also reads
        (-1 for none) · whether it samples · its blocks; then the tokens and the blocks themselves.
        """
        t0 = self._clock()
        scheduled = output.scheduled
        width = output.width if output.layout == "padded" else 0
        read = _neighbours(output) if self._leaks else {}
        told = array("i", (self._owner, self._block_size, len(scheduled)))
        for index, s in enumerate(scheduled):
            tokens, blocks = s.tokens, s.block_table.blocks
            count = len(tokens)
            pads, also = max(0, width - count), read.get(index, _NOBODY)
            told.extend((pads, count, s.start, also, s.samples, len(blocks)))
            told.extend(tokens)
            told.extend(blocks)
        rows = json.dumps([_in_words(row) for row in sampling_rows(output, params)])
        facts = self._model.compute(told, rows).to_py().tolist()
        t1 = self._clock()
        forward, sample = facts[-2:]
        return PassResult(
            samples=as_samples(facts[:-2:3], facts[1:-2:3], facts[2:-2:3]),
            t_start=t0,
            t_end=t1,
            prepare=max(0.0, t1 - t0 - forward - sample),
            forward=forward,
            sample=sample,
        )


def _neighbours(output: SchedulerOutput) -> dict[int, int]:
    """For each request that computes tokens, the next one in the pass that does; the last one is
    followed by the first. A request alone in its pass has no neighbour.
    """
    present = [index for index, s in enumerate(output.scheduled) if s.tokens]
    return dict(zip(present, present[1:] + present[:1], strict=True)) if len(present) > 1 else {}


def _in_words(row: SamplingRow) -> dict[str, Any]:
    """How to choose a token, by the names of `SamplingParams`, with only the fields that matter.
    noise: its key, as two halves of 32 bits.
    """
    params = row.params
    told: dict[str, Any] = {"temperature": params.temperature}
    if params.temperature > 0:
        told["noise"] = [row.noise_key & 0xFFFFFFFF, row.noise_key >> 32 & 0xFFFFFFFF]
    if params.filters:
        told |= {"top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p}
    if params.adjusts:
        names = ("logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty")
        told |= {name: getattr(params, name) for name in names} | {
            "prompt": row.prompt,
            "generated": row.generated,
        }
    return told
