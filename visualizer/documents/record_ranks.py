"""The runs of several ranks that ship with the page: vLLM serves a preset's requests on data-parallel ranks, and each rank's trace is kept.

vLLM runs in an environment of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.errors import InflightError
from core.recorders.asked import Asked
from core.recorders.convert import open_recording
from core.recorders.texts import tokenizer_of
from core.recorders.vllm.record import needed_python
from core.recorders.vllm.served import record_ranks as record_served
from core.workload.presets import Preset
from visualizer.documents.catalogue import RANKED, TRACES

RANKS = 2


def record_ranks(names: Sequence[str] = (), folder: Path = TRACES, python: str | None = None) -> Iterator[tuple[str, Path]]:
    """Record each of these runs, by default all, yielding its name and the trace of each rank as it is written. python: of an environment
    with vLLM. Raises InflightError, before anything is recorded, where none is named and for an unknown name.
    """
    python = needed_python(python)
    if unknown := [name for name in names if name not in RANKED]:
        raise InflightError(f"There is no run of several ranks called {unknown[0]!r}; there is {', '.join(RANKED)}.")
    return _record_all([RANKED[name] for name in names or RANKED], folder, python)


def _record_all(presets: Sequence[Preset], folder: Path, python: str) -> Iterator[tuple[str, Path]]:
    for preset in presets:
        with tempfile.TemporaryDirectory() as place:
            recordings = record_served(Asked.of(preset, tokenizer_of(preset.model)), python, Path(place), RANKS)
            for rank, trace in enumerate(map(open_recording, recordings)):
                path = folder / f"{preset.name}.rank{rank}.jsonl"
                trace.save(path)
                yield preset.name, path
