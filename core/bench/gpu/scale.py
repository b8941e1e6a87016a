"""How large everything is: `FULL` measures an H200 in eight minutes, `TINY` proves that the code runs. Data, and the requests it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.bench.gpu.shapes import LLAMA_1B, LLAMA_8B, QWEN3_06B, Shape
from core.bench.synthetic import mixed, requests
from core.workload.workload import Workload


@dataclass(frozen=True)
class Scale:
    """main: the shape of the whole runs. decode: the shapes whose decode step is held against memory bandwidth.

    The whole run is nano-vllm's: `requests`, prompts and outputs of `lengths` tokens drawn evenly, `lanes` at once, `budget` tokens a
    step. `compared`: how many of them, the first ones, every contender answers. repeats: timed runs of this engine, after one to warm up.
    own_s: seconds after which such a run is cut. probe_tokens, probe_s: new tokens a request and seconds for each setting of
    transformers' continuous batching that is tried; probes_s: seconds for all of them.
    baseline_s: after so long a contender's run is cut and counted up to there. ablated_tokens: most new tokens a request, and ablated_s
    the seconds, of a run with one switch off. decode_context, decode_steps: mean context and number of the decode steps of `lanes`
    requests that are timed. accuracy_*: requests, prompt and output lengths, and token budget where logits are compared; accuracy_range:
    the standard deviation of those weights. quick: too small to mean anything, so nothing is held against a bar.
    """

    main: Shape = QWEN3_06B
    decode: tuple[Shape, ...] = (LLAMA_1B, LLAMA_8B)
    requests: int = 256
    compared: int = 64
    lengths: tuple[int, int] = (100, 1024)
    lanes: int = 256
    budget: int = 8192
    block_size: int = 16
    context: int = 4096
    repeats: int = 3
    own_s: float = 60.0
    probe_tokens: int = 24
    probe_s: float = 15.0
    probes_s: float = 70.0
    baseline_s: float = 110.0
    ablated_tokens: int = 256
    ablated_s: float = 12.0
    decode_context: int = 1000
    decode_steps: int = 32
    copy_bytes: int = 4 * 2**30
    accuracy_requests: int = 16
    accuracy_prompts: tuple[int, int] = (100, 400)
    accuracy_tokens: int = 32
    accuracy_budget: int = 512
    accuracy_range: float = 0.04
    quick: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def workload(self, count: int | None = None, most_tokens: int | None = None) -> Workload:
        """The first `count` requests of the whole run, all by default, each of at most `most_tokens` new tokens."""
        whole = mixed(self.requests, self.main.vocab, self.lengths, self.lengths)
        chosen = list(whole)[:count]
        if most_tokens is not None:
            chosen = [
                replace(r, sampling=replace(r.sampling, max_new_tokens=min(most_tokens, r.sampling.max_new_tokens)))
                for r in chosen
            ]
        return Workload(chosen, name="gpu")

    def decode_workload(self, shape: Shape) -> Workload:
        """`lanes` requests of one length that all decode together for `decode_steps` steps, around `decode_context` tokens each."""
        fed = self.lanes * self.decode_context // max(1, self.budget - self.lanes) + 2  # steps until the last prompt is computed
        new = fed + self.decode_steps
        return requests([self.decode_context - new // 2] * self.lanes, [new] * self.lanes, shape.vocab)

    def accuracy_workload(self) -> Workload:
        tokens = (self.accuracy_tokens, self.accuracy_tokens)
        return mixed(self.accuracy_requests, self.main.vocab, self.accuracy_prompts, tokens)

    def num_blocks(self, workload: Workload) -> int:
        """A pool in which as many of these requests as there are lanes fit whole, one block more each for a token beyond the end."""
        sizes = sorted((len(r.prompt_token_ids or ()) + r.sampling.max_new_tokens for r in workload), reverse=True)
        return sum(-(-size // self.block_size) + 1 for size in sizes[: self.lanes])


FULL = Scale()


def _tiny(shape: Shape) -> Shape:
    return replace(shape, hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=211)


TINY = replace(
    FULL, main=_tiny(QWEN3_06B), decode=tuple(map(_tiny, FULL.decode)), requests=8, compared=4, lengths=(4, 12), lanes=8, budget=32,
    context=128, repeats=1, probe_tokens=6, ablated_tokens=6, decode_context=40, decode_steps=4, copy_bytes=2**20, accuracy_requests=3,
    accuracy_prompts=(5, 20), accuracy_tokens=6, accuracy_budget=16, accuracy_range=0.3, quick=True,
)  # fmt: skip


def lengths_of(workload: Sequence[Any] | Workload) -> dict[str, int]:
    """What a result says of its requests."""
    return {
        "requests": len(workload),
        "prompt_tokens": sum(len(r.prompt_token_ids or ()) for r in workload),
        "output_tokens": sum(r.sampling.max_new_tokens for r in workload),
    }
