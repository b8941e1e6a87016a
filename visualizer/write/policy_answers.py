"""Runs a policy in the process that `process.py` starts: the requested task on a simulated engine,
which makes the same decisions as any other.
"""

from importlib.util import decode_source
from typing import Any

from core.config import EngineConfig
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.torch_engine.models.tokenizer import describe_model
from visualizer.jobs.limits import IN_TAB
from visualizer.write.attempt import Attempt
from visualizer.write.code import told
from visualizer.write.tasks import MODEL, PolicyTask, task_named


class PolicyAnswers:
    """source: of the learner's module."""

    def __init__(self, source: bytes) -> None:
        self._source = source

    def to(self, lines: list[str]) -> dict[str, Any]:
        """lines: the name of a task, or nothing. The values of the reply: the lines of the run's
        trace, up to a fault, the fault's message, and its place in the code.
        """
        values: list[Any] = []
        printed: list[str] = []
        for task in lines:
            attempt, says, line = None, None, None
            try:
                asked = task_named(task)
                assert isinstance(asked, PolicyTask)
                attempt = Attempt(asked, decode_source(self._source), IN_TAB)
                for _ in attempt.steps_taken(_engine):
                    pass
            except BaseException as error:
                fault = told(error)
                says, line = str(fault), fault.line
            trace = None if attempt is None else attempt.trace
            values = [[] if trace is None else list(trace.lines()), says, line]
            printed = ["" if attempt is None else attempt.printed.taken()]
        return {"values": values, "raised": None, "printed": printed}


def _engine(config: EngineConfig) -> SimulatedEngine:
    known = describe_model(MODEL)
    return SimulatedEngine(
        cost_named("h100:8b"),
        config,
        known.tokenizer,
        vocab_size=known.vocab_size,
        max_model_len=known.context,
    )
