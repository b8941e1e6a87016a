"""The page itself, served in a process of its own for tests that visit it over HTTP, and how its
functions are called.

`page_url`, `space_url` and `http` are fixtures. One server of each kind serves all processes of a
test run: the first that wants it starts it, `stop_shared_pages` ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the running page; loopback goes past any proxy."""
    return _shared(tmp_path_factory, "page")


@pytest.fixture(scope="session")
def space_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same, as a public Space."""
    return _shared(tmp_path_factory, "space", SPACE_ID="someone/inflight")


def _shared(folders: pytest.TempPathFactory, name: str, **environment: str) -> str:
    book = folder_of_the_run(folders) / f"{name}.server.json"
    with FileLock(f"{book}.lock"):
        if not book.exists():
            page = serve(**environment)
            book.write_text(
                json.dumps({"url": page.__enter__(), "pid": page.process.pid}), encoding="utf-8"
            )
        return json.loads(book.read_text(encoding="utf-8"))["url"]


def folder_of_the_run(folders: pytest.TempPathFactory) -> Path:
    """The one that all processes of a test run share."""
    own = folders.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def stop_shared_pages(folder: Path) -> None:
    """folder: the test run's own, above those of its processes."""
    for book in folder.glob("*.server.json"):
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(json.loads(book.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)


def _free_port() -> int:
    """Below the ports that systems give to connections: none takes it until the server is there."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class serve:
    """`with serve(SPACE_ID="me/it") as url:` the page with these environment variables.

    command: what serves it, from which folder; by default the sources.
    """

    def __init__(
        self,
        command: Sequence[str] = (sys.executable, "app.py"),
        folder: Path = ROOT,
        **environment: str,
    ) -> None:
        self.command, self.folder = command, folder
        self.port = _free_port()
        here = {
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "HF_HUB_OFFLINE": "1",
            "GRADIO_SERVER_PORT": str(self.port),
        }
        self.environment = {**os.environ, **here, **environment}

    def __enter__(self) -> str:
        """Waits for as long as the process lives."""
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        url = f"http://127.0.0.1:{self.port}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                opener.open(f"{url}/inflight/state", timeout=5).read()
                return url
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    self.log.seek(0)
                    pytest.fail(f"The page does not start: {self.log.read()[-2000:]}")
                time.sleep(0.2)

    def __exit__(self, *_) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=120) as client:
        yield client


def call(http: httpx.Client, url: str, name: str, *args) -> dict:
    """The answer to a call of the page."""
    return http.post(f"{url}/inflight/call/{name}", json={"args": args}).json()


def state(http: httpx.Client, url: str) -> dict:
    """What can be run there."""
    return http.get(f"{url}/inflight/state").raise_for_status().json()


def begin(http: httpx.Client, url: str, kind: str, asked: object, visitor: str = "") -> dict:
    """Begin a job; the workers of a test run share the page, and are visitors of their own."""
    visitor = visitor and visitor + os.environ.get("PYTEST_XDIST_WORKER", "")
    return http.post(
        f"{url}/inflight/jobs", json={"kind": kind, "spec": asked, "visitor": visitor}
    ).json()


def follow(http: httpx.Client, url: str, job: str, start: int = 0, times: list | None = None):
    """A job's deltas, as the player reads them; `times` collects when."""
    with http.stream("GET", f"{url}/inflight/jobs/{job}", params={"from": start}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                if times is not None:
                    times.append(time.time())
                yield from json.loads(line[5:])


def run(
    http: httpx.Client,
    url: str,
    asked: object,
    visitor: str = "me",
    *,
    kind: str = "run",
    times: list | None = None,
):
    """Every delta of a job; a refusal is the only one."""
    begun = begin(http, url, kind, asked, visitor)
    yield from follow(http, url, begun["job"], times=times) if "job" in begun else [begun]


def last_of(deltas) -> dict:
    *_, last = deltas
    return last
