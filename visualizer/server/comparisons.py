"""The Compare tab on a server: its kinds of work, of which one runs at a time so that measured
times can be trusted, and the recorded comparisons.
"""

from pathlib import Path
from typing import Any

from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.libraries import load_libraries
from visualizer.documents.comparison import RECORDED, document, lettered, load, recorded
from visualizer.jobs import measured, offers
from visualizer.jobs.limits import Limits, Refused, check
from visualizer.jobs.work import Going, Host, Work
from visualizer.server.jobs import Job
from visualizer.server.lent_gpu import COMPARISONS, is_lent
from visualizer.server.store import Store


class MeasuredEquivalence(Work):
    """Each request alone and in a batch. spec: also "leak", whether they read others' keys."""

    noun = "check"

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(check(spec, limits), limits)
        self._leak = spec.get("leak", False)
        if not isinstance(self._leak, bool):
            raise Refused("The leak is on or off.")

    def run(self, host: Host) -> Going:
        load_libraries()
        from core.proof.equivalence import equivalence

        engine, steps = host.engine(self.spec, self.spec.config), 0
        self.steps(engine, self.spec.workload)  # refusals happen now
        yield

        def on_step(event: object) -> None:
            nonlocal steps
            steps += 1
            host.between()
            self.progress = {"step": steps}

        model: Any = engine
        found = equivalence(
            model.adapter,
            engine.tokenizer,
            self.spec.workload,
            self.spec.config,
            leak=self._leak,
            on_step=on_step,
        )
        return {"result": lettered(found)}


KINDS = {**measured.KINDS, "equivalence": MeasuredEquivalence}


def job(kind: str, spec: dict[str, Any], limits: Limits, models: ModelCache, store: Store) -> Job:
    """The job for a kind of work; raises InflightError."""
    here = spec | {"device": "cpu"} if is_lent() else spec
    return Job(KINDS[kind](here, limits), limits, models, store, queue="comparisons")


def catalogue(limits: Limits, folder: Path = RECORDED, model: str = "") -> dict[str, Any]:
    """The choices on the Compare tab. model: the one that is selected at first."""
    return {
        "recorded": recorded(folder),
        **offers.for_comparisons(limits, model),
        "note": COMPARISONS if is_lent() else "",
    }


def open_recorded(name: object, store: Store, folder: Path = RECORDED) -> str:
    """The address of a recorded comparison's document, which is written when first requested;
    raises InflightError for an unknown name.
    """
    if not isinstance(name, str) or name not in {entry["name"] for entry in recorded(folder)}:
        raise Refused("There is no such recorded comparison.")
    path = folder / name
    return store.once(
        ("comparison", name), lambda: store.keep_document(document(load(path)), pinned=True)
    )
