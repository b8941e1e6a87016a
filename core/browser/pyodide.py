"""Pyodide (MPL-2.0), the Python that runs in a browser: five files of the npm package of that name.
They are taken from where npm or the page's owner has put them, or fetched once and checked.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from core.config import ASSETS, models_folder
from core.errors import InflightError

VERSION = "314.0.7"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
_MOST = 2**25  # bytes that are read; the package has a fifth of that
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
_NPM = ASSETS.parent / "node_modules" / "pyodide"


def find_pyodide(folder: Path | None = None) -> Path:
    """The folder of the npm package: the given one, else that of INFLIGHT_PYODIDE, else where `npm
    ci` or `fetch_pyodide` puts it. Raises InflightError, which says how to get it.
    """
    named = folder or os.environ.get("INFLIGHT_PYODIDE")
    places = (Path(named),) if named else (_NPM, _fetched())
    versions = [_version(place) for place in places]
    if VERSION in versions:
        return places[versions.index(VERSION)]
    other = next(filter(None, versions), None)
    what = f"has another version ({other})" if other else "has none"
    raise InflightError(
        f"The engine in the tab needs the npm package pyodide {VERSION}, and {places[0]} {what}:"
        " `python -m inflight models --fetch smollm2` fetches it with that model, `npm ci` does"
        " alone; another folder is named with --pyodide or in INFLIGHT_PYODIDE."
    )


def fetch_pyodide() -> Path:
    """The folder of the npm package, fetched from the npm registry (6.5 MB) unless it is here or
    INFLIGHT_PYODIDE names its place. Raises InflightError if it cannot be fetched.
    """
    if os.environ.get("INFLIGHT_PYODIDE"):
        return find_pyodide()
    with suppress(InflightError):
        return find_pyodide()
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or "https://registry.npmjs.org"
    address = f"{registry.rstrip('/')}/pyodide/-/pyodide-{VERSION}.tgz"
    try:
        with urlopen(address, timeout=30) as answer:
            content = answer.read(_MOST)
            if getattr(answer, "length", 0):  # the rest has not come, or is too much
                raise OSError
    except (OSError, ValueError, HTTPException):
        raise InflightError(
            f"Pyodide cannot be fetched from {address}, so there is no Write and no engine in a"
            " visitor's tab."
        ) from None
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
        raise InflightError(f"{address} is not pyodide {VERSION}, byte for byte.")
    try:
        _unpack(content, _fetched())
    except OSError as error:
        raise InflightError(f"{_fetched()} cannot be written: {error.strerror}.") from None
    return find_pyodide()


def _unpack(content: bytes, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder.parent) as place,
        tarfile.open(fileobj=io.BytesIO(content)) as files,
    ):
        files.extractall(place, filter="data")
        shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted attempt
        os.replace(Path(place) / "package", folder)


def _fetched() -> Path:
    return models_folder() / f"pyodide-{VERSION}"


def _version(folder: Path) -> str | None:
    """The version of a complete package in a folder; None if there is none."""
    try:
        found = json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found) if all((folder / name).is_file() for name in FILES) else None
