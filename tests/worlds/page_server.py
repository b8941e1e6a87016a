"""The page itself, served in a process of its own for tests that visit it over HTTP. Import `page_url` to use it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def page_url() -> Iterator[str]:
    """The address of a running page; loopback goes past any proxy."""
    with serve() as url:
        yield url


class serve:
    """`with serve(SPACE_ID="me/it") as url:` the page with these environment variables."""

    def __init__(self, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = environment

    def __enter__(self) -> str:
        here = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_OFFLINE": "1", "GRADIO_SERVER_PORT": str(self.port)}
        self.log = open(os.devnull, "w")
        self.process = subprocess.Popen(
            [sys.executable, "app.py"], cwd=ROOT, env={**os.environ, **here, **self.environment}, stdout=self.log, stderr=self.log
        )
        url, deadline = f"http://127.0.0.1:{self.port}", time.monotonic() + 120
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                opener.open(f"{url}/gradio_api/info", timeout=5).read()
                return url
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None and time.monotonic() < deadline, "the page does not start"
                time.sleep(0.2)

    def __exit__(self, *_) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()
