"""What every test runs under: no network, one CPU thread a process (tests run side by side), no progress bars."""

from __future__ import annotations

import gc
import os

os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    GRADIO_ANALYTICS_ENABLED="False",
    OMP_NUM_THREADS="1",
)

import pytest
import torch
from hypothesis import settings
from transformers.utils import logging

if not torch.cuda.is_available():
    os.environ.setdefault(
        "TRITON_INTERPRET", "1"
    )  # kernels run on CPU tensors; read when a module that has kernels is imported

# Properties are tried on a third of their examples (`worlds.examples`); CI names a profile with all of them, `--hypothesis-profile=ci`.
settings.register_profile("quick", settings(), max_examples=33)
settings.load_profile("quick")
torch.set_num_threads(1)
logging.disable_progress_bar()


def pytest_collection_finish() -> None:
    """What is imported by now stays: a collection of garbage, which every timed round begins with, need not walk through it (0.3 s each)."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The pages that the test run's processes shared end with the process that they work for."""
    gc.unfreeze()
    if not hasattr(session.config, "workerinput"):
        from worlds.page_server import stop_shared_pages

        stop_shared_pages(session.config._tmp_path_factory.getbasetemp())
