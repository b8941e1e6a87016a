"""Other ways to serve the same requests: transformers' own, and the GPT-2 article's. None of them
uses our engine.

Each baseline answers every request greedily, up to the model's end-of-sequence token unless the
request ignores it, and returns plain records, in which None stands for what cannot be observed.
Setup (caches, threads) happens before timing starts, as for our engine.
"""

from collections.abc import Callable
from typing import Any

from core.errors import InflightError
from core.measure.baselines.records import BaselineRun, Work, baseline_requests
from core.measure.rounds import Contender

NAMES = ("generate-waves", "generate-serial", "transformers-continuous", "article")

__all__ = ["NAMES", "contender", "baseline_requests"]


def contender(name: str, model: Any, work: Work, lanes: int, budget: int = 256) -> Contender:
    """A baseline by name, for `core.measure.rounds`; raises InflightError for an unknown one."""
    # imported here, because listing the names must not load torch and transformers
    from core.measure.baselines.article import article
    from core.measure.baselines.generate import generate_serial, generate_waves

    if name == "transformers-continuous":
        from core.measure.baselines.transformers_continuous import continuous_settings, ready

        about = continuous_settings(work, lanes, budget)
        return Contender(
            name, lambda: ready(model, work, lanes, budget), lambda run: run.result, about
        )
    starts: dict[str, Callable[[], BaselineRun]] = {
        "generate-waves": lambda: generate_waves(model, work, lanes),
        "generate-serial": lambda: generate_serial(model, work),
        "article": lambda: article(model, work, lanes),
    }
    if name not in starts:
        raise InflightError(f"There is no baseline {name!r}; the baselines are {', '.join(NAMES)}.")
    return Contender.of(name, starts[name], lambda run: run.result, {"lanes": lanes})
