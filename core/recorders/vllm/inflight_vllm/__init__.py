"""Records what vLLM's scheduler decides, step by step, from inside the engine, as raw JSON lines
that Inflight opens as a trace.

    pip install ./core/recorders/vllm
    INFLIGHT_TRACE=recordings vllm serve MODEL --scheduler-cls inflight_vllm.RecordingAsyncScheduler

`schedulers` wraps vLLM's schedulers, `recorder` makes the records, `writer` writes them in a thread
of its own, and `sender` sends them to a collector. README.md beside this package is for operators.
The package imports only the standard library and vLLM. Its imports are relative because it is
installed as `inflight_vllm` where vLLM runs.
"""

from typing import Any

from . import schedulers
from .recorder import __version__ as __version__


def __getattr__(name: str) -> Any:
    return getattr(schedulers, name)  # the scheduler classes depend on the version of vLLM
