"""The page with the shared engine, in a separate process: `live_url` is a fixture. The teacher's token is TOKEN."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from worlds.page_server import serve

TOKEN = "the-teacher's-token"


LIMITS = {"policy": "continuous", "max_num_seqs": 3, "max_num_batched_tokens": 32}


@pytest.fixture(scope="module")
def live_server() -> Iterator[str]:
    with serve(INFLIGHT_TEACHER_TOKEN=TOKEN) as url:
        yield url


@pytest.fixture
def live_url(live_server: str) -> str:
    """The address of the page, its engine empty, at the beginning of a run, and standing still."""
    control(live_server, clear=True, hide_texts=False, hide_nicknames=False, accepting=True, steps_per_s=0, **LIMITS)
    while control(live_server)["changing"]:
        time.sleep(0.02)
    return live_server


def control(url: str, **what: object) -> dict:
    answer = httpx.post(f"{url}/serve/control", json=what, headers={"X-Teacher-Token": TOKEN}, trust_env=False, timeout=300)
    return answer.raise_for_status().json()
