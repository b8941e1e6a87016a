"""`python tests/measure/record_engines.py --python PYTHON_WITH_VLLM`: the comparisons of engines
that ship with the page, measured again.

vLLM, our `continuous` and transformers serve the same requests, submitted before the same steps, in
rotated order. vLLM runs in an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import typer

from core.cli.output import print_line, print_note
from core.errors import InflightError
from core.measure.compare import engine_contender
from core.measure.rounds import load_average
from core.torch_engine.engine import Engine
from core.torch_engine.models.cache import ModelCache
from core.workload.presets import Preset, preset
from engines.contenders import transformers_batching, vllm
from engines.task import EngineTask
from engines.vllm import VllmProcess, require_python
from measure import script
from measure.record import Say, load_of_a_quiet_machine, save_all, timed
from visualizer.documents.catalogue import OTHER_ENGINES, TRACES
from visualizer.documents.comparison import RECORDED, Shown

ENGINE_PRESETS = (
    "six-questions",
    "sixteen-questions",
    "chat-under-pressure",
    "short-and-long",
    "long-prompt-arrives",
    "long-prompt-chunked",
    "kv-pressure",
    "shared-prefix",
    "poisson-32",
)
"""On which vLLM and transformers are compared with our engine."""


def record_engines(
    names: Sequence[str] = (),
    folder: Path = RECORDED,
    traces: Path = TRACES,
    *,
    python: str | None = None,
    repeats: int = 5,
    load: Callable[[], float | None] = load_average,
    say: Say = lambda text: None,
) -> Iterator[tuple[str, Path]]:
    """Measure and write the comparison of each of `ENGINE_PRESETS`, or of those named, yielding
    each as it is written, and the runs of vLLM that the page shows by themselves.

    python: of an environment with vLLM. Raises InflightError, before anything is measured, where
    none is named, for an unknown name and for a machine that is not quiet.
    """
    python = require_python(python)
    if unknown := [name for name in names if name not in ENGINE_PRESETS]:
        raise InflightError(
            f"There is no comparison of engines on {unknown[0]!r}; there are"
            f" {', '.join(ENGINE_PRESETS)}."
        )
    before = load_of_a_quiet_machine(load)
    made = (
        (name, _compare_engines(preset(name), python, traces, repeats, say))
        for name in names or ENGINE_PRESETS
    )
    return save_all(made, folder, before)


def _compare_engines(chosen: Preset, python: str, traces: Path, repeats: int, say: Say) -> Shown:
    """vLLM, our `continuous` and transformers in rotated order, with as many threads each."""
    adapter, tokenizer = ModelCache().get(chosen.model, "cpu")
    asked = EngineTask.of(chosen, tokenizer)
    engine = Engine(adapter, tokenizer, asked.config)
    say(f"{chosen.name}: loading vLLM")
    with VllmProcess(asked, python, torch.get_num_threads()) as other:
        contenders = [
            vllm(asked, other),
            engine_contender(engine, asked.workload),
            transformers_batching(asked, adapter.model, adapter.eos_token_ids),
        ]
        shown = timed(
            contenders,
            f"engines-{chosen.name}",
            chosen,
            engine.trace.header,
            repeats,
            say,
            "Other engines",
        )
    if (run := f"vllm-{chosen.name}") in OTHER_ENGINES and (
        trace := shown.comparison.runs["vLLM"].trace
    ) is not None:
        trace.save(traces / f"{run}.jsonl")
    return shown


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Presets; by default all on which engines are compared."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Of an environment with vLLM.", show_default="$INFLIGHT_VLLM_PYTHON"),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed rounds.")] = 5,
) -> None:
    """Compare vLLM and transformers with our engine and write the comparisons to
    assets/comparisons. Wants a quiet machine.
    """
    for name, path in record_engines(names or (), python=python, repeats=repeats, say=print_note):
        print_line(f"{name}: {sum(file.stat().st_size for file in path.iterdir()):,} bytes")


if __name__ == "__main__":
    script(main)
