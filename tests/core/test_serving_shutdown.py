"""How a server of its own process ends: real signals. Who is in progress finishes or gets a last
word, who comes is told when to come again, and a second order ends it at once.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from worlds.attacks import call, connected
from worlds.serving import MODEL

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@dataclass
class Running:
    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def post(self, path: str, body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, trust_env=False)

    def is_draining(self) -> bool:
        return (
            httpx.get(self.url + "/health", timeout=60, trust_env=False).json()["status"]
            == "draining"
        )

    def order_to_end(self, order: int) -> None:
        """The first order; returns once it is heeded."""
        self.process.send_signal(order)
        while not self.is_draining():
            time.sleep(0.01)


@contextmanager
def running(*options: str) -> Iterator[Running]:
    command = [
        sys.executable,
        "-m",
        "core",
        "serve",
        "--port",
        "0",
        "--threads",
        "1",
        "--device",
        "cpu",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        if said.startswith("Loading"):  # a slow machine says what it is waiting for
            said = process.stderr.readline()
        found = re.search(r"Serving \S+ at (http://127\.0\.0\.1:\d+)", said)
        assert found, said
        yield Running(process, found[1])
    finally:
        process.kill()
        process.communicate()


def events(response: httpx.Response) -> Iterator[str]:
    return (line[6:] for line in response.iter_lines() if line.startswith("data: "))


def test_sigterm_lets_what_is_under_way_finish():
    body = {"prompt": "Hark", "max_tokens": 250, "stream": True, "ignore_eos": True}
    with running("--model", MODEL) as server:
        with httpx.stream("POST", server.url + "/generate", json=body, timeout=60) as response:
            told = events(response)
            next(told)
            with httpx.stream("GET", server.url + "/events", timeout=60) as watching:
                seen = watching.iter_lines()
                next(seen)
                server.process.send_signal(signal.SIGTERM)
                list(seen)  # comes to its end
            last = json.loads(list(told)[-1])
        assert last["finish_reason"] == "length" and last["usage"]["completion_tokens"] == 250
        assert server.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/health")


LONG = {"prompt": "Hark", "max_tokens": 900, "ignore_eos": True}


def test_who_is_not_finished_in_time_gets_a_last_word_and_who_comes_is_told_when_to_come_again():
    openai = {**LONG, "model": "shakespeare-bpe"}

    def streamed(path: str, body: dict) -> list[str]:
        with httpx.stream(
            "POST", server.url + path, json={**body, "stream": True}, timeout=60, trust_env=False
        ) as response:
            return list(events(response))

    with (
        running("--max-num-seqs", "1", "--drain-seconds", "1") as server,
        ThreadPoolExecutor(9) as pool,
    ):
        plain = [pool.submit(streamed, "/generate", LONG) for _ in range(3)]
        chunks = [pool.submit(streamed, "/v1/completions", openai) for _ in range(3)]
        wholes = [
            pool.submit(server.post, path, body)
            for path, body in (("/generate", LONG), ("/v1/completions", openai))
        ]
        while httpx.get(server.url + "/health", trust_env=False).json()["requests"] < 8:
            time.sleep(0.01)
        half = connected(server, call(b"{" * 50)[:-10])
        server.order_to_end(signal.SIGTERM)
        refused = server.post("/generate", {"prompt": "Hark", "max_tokens": 1})
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        assert (
            refused.json()["error"]["message"]
            == "The server is closing and takes no more requests."
        )
        closed = "The server was closed."
        for answer in plain:
            assert json.loads(answer.result()[-1])["error"]["message"] == closed
        for answer in chunks:
            *_, error, done = answer.result()
            assert json.loads(error)["error"]["message"] == closed and done == "[DONE]"
        for answer in wholes:
            assert (
                answer.result().status_code == 503
                and answer.result().json()["error"]["message"] == closed
            )
        assert server.process.wait(60) == 0
        assert "Traceback" not in server.process.stderr.read()
        half.close()


def test_a_second_order_ends_it_at_once():
    with running("--drain-seconds", "600") as server, ThreadPoolExecutor(1) as pool:
        endless = {**LONG, "prompt": ["Hark"] * 60, "model": "shakespeare-bpe"}
        answer = pool.submit(server.post, "/v1/completions", endless)
        while httpx.get(server.url + "/health", trust_env=False).json()["requests"] < 60:
            time.sleep(0.01)
        server.order_to_end(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == -signal.SIGTERM
        with pytest.raises(httpx.TransportError):
            answer.result()
