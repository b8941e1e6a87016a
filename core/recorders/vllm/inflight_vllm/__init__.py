"""Records what vLLM's scheduler decides, step by step, from inside the engine: raw JSON lines that
Inflight opens as a trace.

    pip install ./core/recorders/vllm
    INFLIGHT_TRACE=recordings vllm serve MODEL --scheduler-cls inflight_vllm.RecordingAsyncScheduler

`schedulers` wraps vLLM's schedulers, `recorder` makes the records, `writer` writes them from a
thread of its own, and `sender` sends them. README.md beside this package says what an operator has
to know. The package imports only the standard library and vLLM. Its imports are relative because it
is called `inflight_vllm` where vLLM runs.
"""

from typing import Any

from . import schedulers
from .recorder import __version__ as __version__


def __getattr__(name: str) -> Any:
    return getattr(schedulers, name)  # which scheduler classes exist depends on the version of vLLM
