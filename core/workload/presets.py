"""Named workloads, each with the model, policy and limits that show it best, grouped by the
question they answer: the files of `assets/presets`, which `index.json` lists. Presets whose answers
are meant to be read ask SmolLM2 in messages; the others run on the built-in models.

The numbers in `padding-693`, `one-joins-two`, `chunk-7-by-4`, `budget-512`, `three-lengths` and
`chunk-7-7-6` are those of the articles' own examples; `nanogpt-*` and `gpt2-masks` are the runs
that the articles compute by hand. Arrivals and lengths of `poisson-32` were drawn once.
"""

import json
from dataclasses import dataclass
from typing import Literal

from core.config import ASSETS, EngineConfig
from core.errors import InvalidWorkload, require
from core.workload.workload import Workload

_FOLDER = ASSETS / "presets"


@dataclass(frozen=True)
class Preset:
    """A workload and what it runs on. title and shows: a heading and a sentence for the page.
    dtype: of the model, as `core.torch_engine.models.load` takes it. axis: of the lanes over time
    when the run is opened: steps, or measured time if that is what the run is about.
    """

    name: str
    title: str
    shows: str
    model: str
    config: EngineConfig
    workload: Workload
    dtype: str = "auto"
    axis: Literal["steps", "time"] = "steps"


def _read(name: str) -> Preset:
    data = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    config = EngineConfig.from_json(data.pop("config"))
    workload = Workload.from_json(data.pop("workload"))
    return Preset(name, config=config, workload=workload, **data)


GROUPS: dict[str, tuple[Preset, ...]] = {
    group: tuple(map(_read, names))
    for group, names in json.loads((_FOLDER / "index.json").read_text(encoding="utf-8")).items()
}
PRESETS: dict[str, Preset] = {preset.name: preset for group in GROUPS.values() for preset in group}


def preset(name: str) -> Preset:
    """A preset by name; raises InvalidWorkload for an unknown one."""
    if require(name, str, "A preset has a name") not in PRESETS:
        raise InvalidWorkload(f"There is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name]
