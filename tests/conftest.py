"""What every test runs under: no network, one CPU thread a process (tests run side by side), no
progress bars.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator

os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    GRADIO_ANALYTICS_ENABLED="False",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    OMP_NUM_THREADS="1",
    # what a page offers does not depend on what this machine's user has fetched; no test fetches
    INFLIGHT_MODELS_DIR=os.path.join(os.devnull, "no-models"),
)

import pytest
from hypothesis import settings

if shutil.which("nvidia-smi") is None:
    # kernels run on CPU tensors; read when a module that has kernels is imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Properties are tried on a third of their examples (`worlds.examples`); CI names a profile with all
# of them, `--hypothesis-profile=ci`.
settings.register_profile("quick", settings(), max_examples=33, deadline=None)
settings.load_profile("quick")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Torch computes on one thread in every test, whatever the one before it has set."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def users_models() -> str:
    """The folder of the models that this machine's user has, SmolLM2 among them: fetched once."""
    from core.config import models_folder
    from core.errors import UnsupportedModel
    from core.torch_engine.models.smollm2 import fetch

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("INFLIGHT_MODELS_DIR")
        try:
            fetch()
        except UnsupportedModel as error:
            pytest.skip(str(error))
        return str(models_folder())


@pytest.fixture(scope="session")
def users_packed(users_models: str) -> str:
    """The same folder, with the file with which a tab runs SmolLM2."""
    from core.errors import UnsupportedModel
    from core.torch_engine.models.smollm2 import packed

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFLIGHT_MODELS_DIR", users_models)
        try:
            packed()
        except UnsupportedModel as error:
            pytest.skip(str(error))
    return users_models


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What a collection imports and makes is no garbage, so none is looked for meanwhile; and it
    stays: a collection of garbage, which every timed round begins with, need not walk through it
    (0.3 s each).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The pages that the test run's processes shared end with the process that they work for."""
    gc.unfreeze()
    if not hasattr(session.config, "workerinput"):
        from worlds.page_server import stop_shared_pages

        stop_shared_pages(session.config._tmp_path_factory.getbasetemp())
