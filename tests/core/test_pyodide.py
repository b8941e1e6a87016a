"""Pyodide is found where npm or its owner has put it, or fetched, checked, from a registry."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from core.browser import pyodide
from core.errors import InflightError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """One of npm's kind, with a package of that name that is not the real one."""
    monkeypatch.setattr(pyodide, "_NPM", tmp_path / "node_modules" / "pyodide")
    monkeypatch.delenv("INFLIGHT_PYODIDE", raising=False)
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path / "models"))
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as package:
        for name in ("package.json", *pyodide.FILES):
            held = json.dumps({"version": pyodide.VERSION}).encode()
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(held)
            package.addfile(entry, io.BytesIO(held))
    place = tmp_path / "registry" / "pyodide" / "-" / f"pyodide-{pyodide.VERSION}.tgz"
    place.parent.mkdir(parents=True)
    place.write_bytes(content.getvalue())
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "registry")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    yield place
    server.shutdown()


def test_what_is_fetched_is_what_npm_would_install():
    locked = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    npm = locked["node_modules/pyodide"]
    assert (npm["version"], npm["integrity"]) == (pyodide.VERSION, f"sha512-{pyodide.SHA512}")


def test_it_is_fetched_once_and_only_byte_for_byte(registry, tmp_path, monkeypatch):
    for found in (None, "", "{}", "[]", "{"):  # no file, and those of no version
        if found is not None:
            (tmp_path / "node_modules" / "pyodide").mkdir(parents=True, exist_ok=True)
            (tmp_path / "node_modules" / "pyodide" / "package.json").write_text(found)
        with pytest.raises(InflightError, match="needs the npm package pyodide .* has none"):
            pyodide.find_pyodide()
    with pytest.raises(InflightError, match="is not pyodide .*, byte for byte"):
        pyodide.fetch_pyodide()
    assert not (tmp_path / "models").exists()
    theirs = base64.b64encode(hashlib.sha512(registry.read_bytes()).digest()).decode()
    monkeypatch.setattr(pyodide, "SHA512", theirs)
    left = tmp_path / "models" / f"pyodide-{pyodide.VERSION}" / "left"  # by one that was broken off
    left.mkdir(parents=True)
    folder = pyodide.fetch_pyodide()
    assert folder == left.parent == pyodide.find_pyodide() and not left.exists()
    registry.unlink()
    assert pyodide.fetch_pyodide() == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    (folder / pyodide.FILES[0]).unlink()  # broken, and no registry has it now
    with pytest.raises(InflightError, match="cannot be fetched from http.*so there is no Write"):
        pyodide.fetch_pyodide()


def test_one_that_is_named_is_the_only_one_looked_for(registry, tmp_path, monkeypatch):
    (tmp_path / "package.json").write_text('{"version": "1.0"}', encoding="utf-8")
    for name in pyodide.FILES:
        (tmp_path / name).touch()
    monkeypatch.setenv("INFLIGHT_PYODIDE", str(tmp_path))
    with pytest.raises(InflightError, match=r"has another version \(1.0\)"):
        pyodide.find_pyodide()
    with pytest.raises(InflightError, match="nowhere has none"):
        pyodide.find_pyodide(tmp_path / "nowhere")


def test_a_download_that_breaks_off_is_said(registry, monkeypatch):
    class Breaking(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b"half")

    server = http.server.HTTPServer(("127.0.0.1", 0), Breaking)
    threading.Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    with pytest.raises(InflightError, match="cannot be fetched from http"):
        pyodide.fetch_pyodide()
    server.server_close()


def test_a_download_without_an_end_is_refused(registry, monkeypatch):
    sent = []

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while len(sent) < 256:
                    self.wfile.write(bytes(2**20))
                    sent.append(1)

    server = http.server.HTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    with pytest.raises(InflightError, match="is not pyodide .*, byte for byte"):
        pyodide.fetch_pyodide()
    assert len(sent) < 128
    server.server_close()
