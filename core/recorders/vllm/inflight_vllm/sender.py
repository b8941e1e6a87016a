"""Sends a recording over HTTP to whoever collects it: `python -m core collect`, or Inflight's page. Knows no engine.

    POST ADDRESS          Authorization: Bearer TOKEN     Inflight-First: the number of the first line
    the header, then lines                     ─→         200, {"wants_snapshot": whether a state of the engine should follow soon}

Every batch carries the header, so that a collector that was started again knows whose it is; it has the lines that it knows already only
once. A collector that is not there is tried again, ever more rarely; one that refuses is not.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from .writer import Oversized, log

BATCH = 2**20  # bytes after which a batch is sent
MOST_BODY = 32 * 2**20  # bytes that a collector takes at once
HEARTBEAT = 10.0  # seconds without news after which a batch without lines says that the engine is still there
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})  # which may pass by themselves
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0  # seconds between two attempts
_TIMEOUT = 10.0  # seconds


class Refused(Exception):
    """The collector does not want what it is sent, and will not want it later."""


class Sender:
    """A sink of `RawWriter`. url: with the token as `?token=…`, which goes into a header of each call and into nothing that is written.
    Raises ValueError for an address that is none.
    """

    period = 0.25
    idle = HEARTBEAT

    def __init__(self, url: str, header: dict[str, Any]) -> None:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
        token = dict(query).get("token", "")
        if not parts.hostname or not (token.isascii() and token.isprintable()):
            raise ValueError("INFLIGHT_TRACE names no host, or a token that no header can carry")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
        others = urlencode([pair for pair in query if pair[0] != "token"])
        self._path = (parts.path or "/") + (f"?{others}" if others else "")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._headers = {"Content-Type": "application/x-ndjson"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._header = (json.dumps(header, separators=(",", ":")) + "\n").encode()
        self._lines: list[bytes] = []
        self._size, self._sent, self._at = 0, 0, 0.0
        self._connection: http.client.HTTPConnection | None = None
        self._closing = threading.Event()

    def open(self, closing: threading.Event) -> None:
        """Nothing is connected before there is a batch. closing: the engine ends, and waits for one attempt more."""
        self._closing = closing

    def write(self, line: str) -> bool:
        if len(line) + len(self._header) > MOST_BODY:
            raise Oversized
        wants_snapshot = self._size + len(line) + len(self._header) > MOST_BODY and self._send()
        self._lines.append(line.encode())
        self._size += len(line)
        return (self._size >= BATCH and self._send()) or wants_snapshot

    def flush(self) -> bool:
        return bool(self._lines or time.monotonic() - self._at >= HEARTBEAT) and self._send()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self) -> bool:
        """What has been gathered, however long it takes. Raises Refused, and once the engine ends ConnectionError."""
        body, wait, is_out = self._header + b"".join(self._lines), _FIRST_WAIT, False
        while True:
            try:
                wants_snapshot = self._post(body)
                break
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
            if self._closing.is_set():
                raise ConnectionError(problem)
            if not is_out:
                log.warning(
                    "Inflight cannot send to %s: %s. It tries again; steps that find no room meanwhile are dropped.",
                    self.name,
                    problem,
                )
            is_out = True
            self._closing.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        if is_out:
            log.info("Inflight sends to %s again.", self.name)
        self._sent, self._lines, self._size, self._at = self._sent + len(self._lines), [], 0, time.monotonic()
        return wants_snapshot

    def _post(self, body: bytes) -> bool:
        """One attempt, and at once another where the connection from before has been closed meanwhile."""
        headers = {**self._headers, "Inflight-First": str(self._sent)}
        for is_kept in (True, False) if self._connection is not None else (False,):
            try:
                if self._connection is None:
                    kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
                    self._connection = kind(self._host, self._port, timeout=_TIMEOUT)
                self._connection.request("POST", self._path, body, headers)
                answer = self._connection.getresponse()
                data = answer.read(2**16)
                break
            except (OSError, http.client.HTTPException):
                self.close()
                if not is_kept:
                    raise
        said = ""
        with suppress(ValueError, AttributeError):
            told = json.loads(data)
            said = str(told.get("error", ""))
            if answer.status == 200:
                return bool(told["wants_snapshot"])
        self.close()
        problem = f"it answers {answer.status} {answer.reason}" + (f" ({said[:200]})" if said else "")
        if answer.status in _AGAIN:
            raise ConnectionError(problem)
        raise Refused(problem)
