"""Recordings that engines send to the page, as files of a folder that the Live tab follows.

POST inflight/collect   see `core.serving.http.collect`
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import BaseRoute, Route

from core.recorders.collected import Collection
from core.serving.http.collect import collect_endpoint, token_of
from visualizer.server.middleware import COLLECT


@dataclass(frozen=True)
class Collected:
    """token: what engines must send."""

    collection: Collection
    token: str

    @classmethod
    def into(cls, folder: Path) -> Collected:
        """The token is INFLIGHT_COLLECT_TOKEN, by default the folder's own. Raises InflightError
        where the folder cannot be used.
        """
        collection = Collection(folder, tell=_tell)
        return cls(collection, token_of(folder, os.environ.get("INFLIGHT_COLLECT_TOKEN")))

    def routes(self) -> list[BaseRoute]:
        return [
            Route(COLLECT, collect_endpoint(self.collection, self.token, _tell), methods=["POST"])
        ]

    def announce(self, page: str) -> str:
        """page: its address, up to the part that a link names."""
        return (
            "Engines send their steps to it if they are started with"
            f" INFLIGHT_TRACE='{page.rstrip('/')}{COLLECT}?token={self.token}'"
        )


def _tell(line: str) -> None:
    print(line, flush=True)
