"""What a stored run would have been with other settings: many settings as numbers, or one as a
simulated run. Nothing here is measured.
"""

from dataclasses import fields
from typing import Any

from core.account.request_times import SLOs
from core.config import POLICIES, EngineConfig
from core.measure.plan import planning, simulating
from core.simulate.fitted import fit
from core.trace.trace import Trace
from core.workload.workload import Workload
from visualizer.documents.plan import plan_document
from visualizer.jobs.limits import Limits, Refused, Spec
from visualizer.jobs.work import Going, Host, Work

_MOST = 2**20  # lanes, tokens of a budget, blocks
_NUMBERS = ("lanes", "budgets", "blocks")
_LIMITS = [limit.name for limit in fields(SLOs)]


class _OfARun(Work):
    """Work on a stored run. spec: "run", its id."""

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(Spec(Workload(()), EngineConfig(), "", "cpu"), limits)
        self._asked = spec


class PlanJob(_OfARun):
    """Predictions for combinations of settings. spec: also "lanes", "budgets", "blocks" and
    "policies", lists of values to combine, each empty for the recorded value; and "slos", the
    limits of a good request. The answer is `url`, the address of a document: see
    `visualizer.documents.plan`.
    """

    noun = "plan"

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(spec, limits)
        self._axes = [spec.get(name, []) for name in (*_NUMBERS, "policies")]
        *numbers, policies = self._axes
        for some in numbers:
            if not isinstance(some, list) or not all(
                type(n) is int and 1 <= n <= _MOST for n in some
            ):
                raise Refused(f"Lanes, budgets and blocks are whole numbers from 1 to {_MOST:,}.")
        if not isinstance(policies, list) or not all(
            isinstance(name, str) and name in POLICIES for name in policies
        ):
            raise Refused(f"Choose policies by name: {', '.join(POLICIES)}.")
        limits_of_good = spec.get("slos", {})
        if not isinstance(limits_of_good, dict) or not all(
            name in _LIMITS and type(limit) in (int, float) and limit > 0
            for name, limit in limits_of_good.items()
        ):
            raise Refused("The limits of a good request are seconds above 0.")
        self._slos = SLOs(**limits_of_good)

    def run(self, host: Host) -> Going:
        trace = host.recorded(self._asked.get("run"))
        lanes, budgets, blocks, policies = self._axes
        turns = planning(trace, lanes, budgets, blocks, policies, self._slos)
        plan = yield from self.followed(turns, self._reached)
        return {"url": host.keep_document(plan_document(plan, trace, str(self._asked["run"])))}

    def _reached(self, setting: str | None) -> dict[str, Any]:
        """The progress. setting: the next one, None between the steps of one."""
        if setting is None:
            return self.progress
        return {"done": self.progress.get("done", -1) + 1, "setting": setting}


class SettingJob(_OfARun):
    """The requests of the run, simulated with one setting. spec: also "config"."""

    noun = "simulation"

    def __init__(self, spec: dict[str, Any], limits: Limits) -> None:
        super().__init__(spec, limits)
        if not isinstance(spec.get("config"), dict):
            raise Refused("The config must be an object.")
        self._config = EngineConfig.from_json(spec["config"])
        size = max(self._config.max_num_seqs, self._config.num_blocks or 0)
        if max(size, self._config.max_num_batched_tokens) > _MOST:
            raise Refused(f"Lanes, budgets and blocks are whole numbers from 1 to {_MOST:,}.")
        self._trace: Trace | None = None

    def run(self, host: Host) -> Going:
        trace = host.recorded(self._asked.get("run"))
        self._trace = yield from simulating(trace, fit(trace), self._config)
        return {}

    def keep(self, host: Host) -> dict[str, Any]:
        return {} if self._trace is None else host.keep(self._trace)
