"""`python tests/measure/record_gpu.py`: the comparisons from a GPU that ship with the page, made
again.

static, our `continuous`, transformers' continuous batching and `generate` in waves serve the same
requests in float32, in which all of them write the same tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import typer

from core.cli.output import print_line, print_note
from core.config import EngineConfig
from core.errors import InflightError, first_sentence
from core.measure import baselines
from core.measure.baselines.records import Work
from core.measure.baselines.transformers_continuous import Variant, continuous_settings, ready
from core.measure.compare import engine_contender
from core.measure.cost_curve import measuring_cost
from core.measure.rounds import Contender, load_average
from core.torch_engine.engine import Engine
from core.torch_engine.models.cache import ModelCache
from core.workload.presets import PRESETS, Preset
from core.workload.workload import Workload
from measure import script
from measure.record import Say, load_of_a_quiet_machine, save_all, timed
from visualizer.documents.comparison import RECORDED, Shown
from worlds.turns import ended

QUESTIONS = Path(__file__).resolve().parents[1] / "data" / "512-questions.json"
_IN_CHUNKS = {
    "long-prompt-arrives": "long-prompt-chunked",
    "page-at-once": "page-to-summarize",
}
"""The presets with a long prompt as a whole, and those of the same requests in chunks."""
_MODES = ((False, False), (True, True))  # CUDA graphs, running ahead


def gpu_presets() -> dict[str, Preset]:
    """What is recorded on a GPU, by name: presets, and a run of as many lanes as servers have."""
    many = Workload.from_json(json.loads(QUESTIONS.read_text(encoding="utf-8")))
    names = ("six-questions", "gpt2-six", "short-and-long", *_IN_CHUNKS)
    return {
        many.name: Preset(
            many.name,
            "512 questions, 256 lanes",
            "As many lanes as servers have: 512 questions to SmolLM2, which ends each answer.",
            PRESETS["six-questions"].model,
            EngineConfig(max_num_seqs=256, max_num_batched_tokens=2048),
            many,
        )
    } | {name: PRESETS[name] for name in names}


def record_gpu(
    names: Sequence[str] = (),
    folder: Path = RECORDED,
    *,
    device: str = "cuda",
    repeats: int = 5,
    load: Callable[[], float | None] = load_average,
    say: Say = lambda text: None,
) -> Iterator[tuple[str, Path]]:
    """Measure and write the comparison of each of `gpu_presets`, or of those named, yielding each
    as it is written.

    Raises InflightError, before anything is measured, for an unknown name and for a machine that is
    not quiet; at the end for the comparisons that were refused (`measure.record.timed`), of which
    nothing is written.
    """
    presets = gpu_presets()
    if unknown := [name for name in names if name not in presets]:
        raise InflightError(
            f"There is no comparison on a GPU of {unknown[0]!r}; there are {', '.join(presets)}."
        )
    before, models = load_of_a_quiet_machine(load), ModelCache()
    refused: list[InflightError] = []

    def made() -> Iterator[tuple[str, Shown]]:
        for name in names or presets:
            try:
                yield name, _compare(presets[name], models, device, repeats, say)
            except InflightError as error:
                refused.append(error)

    yield from save_all(made(), folder, before)
    if refused:
        raise InflightError(" ".join(map(str, refused)))


def _compare(chosen: Preset, models: ModelCache, device: str, repeats: int, say: Say) -> Shown:
    """static and `continuous` beside what transformers has; or, where a long prompt joins requests
    that decode, the prompt as a whole and in chunks.
    """
    adapter, tokenizer = models.get(chosen.model, device)
    workload, config = chosen.workload.greedy(), chosen.config
    in_chunks = PRESETS.get(_IN_CHUNKS.get(chosen.name, ""))
    if in_chunks:
        of = config.policy.name
        limits = {f"{of}, whole prompt": config, f"{of}, in chunks": in_chunks.config}
    else:
        limits = {policy: config.under(policy) for policy in ("static", "continuous")}
    engines = {name: Engine(adapter, tokenizer, each) for name, each in limits.items()}
    contenders = [engine_contender(engine, workload, name=name) for name, engine in engines.items()]
    if not in_chunks:
        work = baselines.baseline_requests(workload, tokenizer, adapter.eos_token_ids)
        lanes, budget = config.max_num_seqs, config.max_num_batched_tokens
        contenders += [
            _transformers(adapter.model, work, lanes, budget, say),
            baselines.contender("generate-waves", adapter.model, work, lanes, budget),
        ]
    first = next(iter(engines.values()))
    name, header = f"gpu-{chosen.name}", first.trace.header
    shown = timed(contenders, name, chosen, header, repeats, say, "On a GPU")
    shown.cost = ended(measuring_cost(first.executor))
    return shown


def _transformers(model: Any, work: Work, lanes: int, budget: int, say: Say) -> Contender:
    """Its continuous batching in the fastest of its settings that run here, on a few requests."""
    speeds: dict[Variant, float] = {}
    for attention, mode in product(("sdpa", "eager"), _MODES):
        variant = Variant(attention, *mode)
        try:
            with ready(model, work[:lanes], lanes, budget, variant=variant, limit_s=10) as start:
                run = start()
        except Exception as error:  # a setting that this model, device or version cannot run
            say(f"{variant}: {first_sentence(error)}")
        else:
            speeds[variant] = sum(map(len, run.outputs.values())) / run.wall_s
            say(f"{variant}: {speeds[variant]:.0f} tok/s")
    fastest = max(speeds, key=lambda variant: speeds[variant])
    return Contender(
        "transformers-continuous",
        partial(ready, model, work, lanes, budget, variant=fastest),
        lambda run: run.result,
        continuous_settings(work, lanes, budget, fastest) | {"attention": fastest.attention},
    )


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Presets, or 512-questions; by default all.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where to write them.")] = RECORDED,
    device: Annotated[str, typer.Option(help="Device to run them on.")] = "cuda",
    repeats: Annotated[int, typer.Option(help="Timed rounds.")] = 5,
) -> None:
    """Measure the comparisons on a GPU and write them to assets/comparisons. Wants a quiet
    machine.
    """
    for name, path in record_gpu(
        names or (), folder, device=device, repeats=repeats, say=print_note
    ):
        print_line(f"{name}: {sum(file.stat().st_size for file in path.iterdir()):,} bytes")


if __name__ == "__main__":
    script(main)
